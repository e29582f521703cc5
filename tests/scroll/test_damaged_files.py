"""Files of statistics and of learners that are torn, forged or something else: one line that names the file, nothing
written, no code run; a file that is taken is of use."""
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scroll import Adaptation, InputError, Scroll, archive
from scroll.__main__ import main
from scroll.exemplars import STRATEGIES
from scroll.statistics import Statistics
from tests.scroll.conftest import make_stream, quick, refused

STREAM = make_stream(np.arange(80) % 4, seed=5)
TOP = 2 ** 63 - 1


class Kind(NamedTuple):
    """A kind of file: its format, who writes and reads it, commands that read x.npz, and the prefix of its sums."""
    format: str
    save: callable
    load: callable
    commands: tuple
    prefix: str


def learned(**params) -> Scroll:
    return Scroll(**{**dict(buffer_size=9, keep_keys=True), **params}).fit(STREAM.features, STREAM.labels)


def counted() -> Statistics:
    return Statistics(5).add(STREAM.features, STREAM.labels)


KINDS = {
    'statistics': Kind('scroll-statistics-2', lambda path: counted().save(path), Statistics.load, (
        ['show', 'x.npz'], ['digest', 'x.npz'], ['merge', 'good.npz', 'x.npz', '--repeated', '-o', 'good.npz'],
        ['merge', 'x.npz', 'good.npz', '--repeated', '-o', 'x.npz'], ['remove', 'good.npz', '--minus', 'x.npz', '-o', 'out.npz'],
        ['remove', 'x.npz', '--samples', 'old.npz', '-o', 'out.npz']), ''),
    'state': Kind('scroll-state-1', lambda path: learned().save(path), Scroll.load, (
        ['show', 'x.npz'], ['digest', 'x.npz'], ['unlearn', 'x.npz', '--samples', 'old.npz', '-o', 'x.npz'],
        ['unlearn', 'x.npz', '--minus', 'good.npz', '-o', 'out.npz']), 'statistics_')}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch) -> Kind:
    """In a folder with a sound x.npz of this kind, other statistics in good.npz and samples in old.npz."""
    monkeypatch.chdir(tmp_path)
    kind = KINDS[request.param]
    kind.save('x.npz')
    counted().save('good.npz')
    np.savez('old.npz', features=STREAM.features[:3], labels=STREAM.labels[:3])
    return kind


@pytest.fixture
def useless(kind, capsys):
    """useless(): asserts that nothing can be done with x.npz."""
    def check(also: str = ''):
        before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
        with refused(f'x.npz.*{also}'):
            kind.load('x.npz')
        for words in kind.commands:
            code = main(words)
            out, err = capsys.readouterr()
            assert (code, out, len(err.splitlines())) == (2, '', 1) and len(err) < 500, (words, err)
            assert err.startswith('scroll: error: x.npz'), (words, err)
        assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
    return check



OTHER = {
    'cut': lambda p: p.write_bytes(p.read_bytes()[:-100]), 'cut early': lambda p: p.write_bytes(p.read_bytes()[:500]),
    'empty': lambda p: p.write_bytes(b''), 'text': lambda p: p.write_bytes(b'text'), 'torn zip': lambda p: p.write_bytes(b'PK\x03\x04'),
    'gone': Path.unlink, 'a folder': lambda p: p.unlink() or p.mkdir(), 'npy': lambda p: np.save(p.open('wb'), np.zeros(3)),
    'other npz': lambda p: np.savez(p, a=np.zeros(3)),
    'words': lambda p: np.savez(p, **{**np.load(p), 'facts': 'psi'}), 'no facts': lambda p: np.savez(p, **{**np.load(p), 'facts': '{}'}),
    'complex': lambda p: np.savez(p, **{**np.load(p), 'sha256': 1j})}


@pytest.mark.parametrize('damage', OTHER)
def test_what_is_no_such_file_is_refused(useless, damage):
    OTHER[damage](Path('x.npz'))
    useless()


def test_another_version_or_kind_is_named(kind, useless):
    facts, arrays = archive.read('x.npz', kind.format)
    archive.write('x.npz', f'{kind.format[:-1]}9', facts, arrays)
    useless('version 9 .*expected version')
    archive.write('x.npz', 'scroll-other-1', facts, arrays)
    useless('scroll-other-1')


@pytest.mark.parametrize('flip', [0xFF, 0x01])
def test_a_torn_file_or_a_flipped_byte_is_refused_or_without_effect(kind, flip):
    content, digest, wrong = Path('x.npz').read_bytes(), kind.load('x.npz').digest(), {}
    for at in range(0, len(content), 31):
        for torn in (content[:at], content[:at] + bytes([content[at] ^ flip]) + content[at + 1:]):
            Path('x.npz').write_bytes(torn)
            try:
                if kind.load('x.npz').digest() != digest:
                    wrong[at] = 'other content'
            except InputError:
                pass
            except Exception as error:      # collected, to show them all
                wrong[at] = repr(error)
    assert not wrong


def test_no_code_of_a_file_is_run(kind):
    class Trap:
        def __reduce__(self):
            return open, ('trap', 'w')
    content = dict(np.load('x.npz'))
    for name in content:
        np.savez('x.npz', **{**content, name: np.array([Trap()], object)})
        with refused('x.npz'):
            kind.load('x.npz')
    assert not Path('trap').exists()
    np.load('x.npz', allow_pickle=True)[name]
    assert Path('trap').exists()            # so the trap works


# -- edited, and signed again ------------------------------------------------------------------------------------------

def edit(kind: Kind, change) -> None:
    """x.npz after `change(facts, arrays)`, with a digest that goes with its content."""
    facts, arrays = archive.read('x.npz', kind.format)
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(facts, arrays)
    archive.write('x.npz', kind.format, facts, arrays)


FORMS = {'text': lambda a: a.astype(str), 'one fewer': lambda a: a[1:], 'one axis more': lambda a: a[None],
         'a number': lambda a: a.ravel()[0], 'complex': lambda a: a.astype(complex)}


@pytest.mark.parametrize('form', FORMS)
def test_an_array_in_another_form_is_refused(kind, form):
    facts, arrays = archive.read('x.npz', kind.format)
    for name, array in arrays.items():
        archive.write('x.npz', kind.format, facts, {**arrays, name: FORMS[form](array)})
        with refused('x.npz'):
            kind.load('x.npz')
            pytest.fail(name)


def test_an_array_too_few_or_too_many_is_refused(kind):
    facts, arrays = archive.read('x.npz', kind.format)
    for name in arrays:
        archive.write('x.npz', kind.format, facts, {other: array for other, array in arrays.items() if other != name})
        with refused('x.npz'):
            kind.load('x.npz')
        archive.write('x.npz', kind.format, facts, {**arrays, f'{name}_more': np.zeros(1)})
        with refused('x.npz'):
            kind.load('x.npz')


def put(*changes):
    """changes: (name, place, value or function of the old one), ... -> what makes them in arrays without their prefix."""
    def make(arrays):
        for name, place, value in changes:
            arrays[name][place] = value(arrays[name][place]) if callable(value) else value
    return make


def pair(value):
    """Both entries of a symmetric matrix."""
    return put(('gram', (0, 1), value), ('gram', (1, 0), value))


SUMS = {
    'an entry of 2^63 - 1': pair(TOP), 'the lowest entry': pair(-TOP - 1), 'more than its diagonal allows': pair(80 << 36),
    'a diagonal of 2^63 - 1': put(('gram', (0, 0), TOP)), 'a negative diagonal': put(('gram', (0, 0), -1)),
    'not symmetric': put(('gram', (0, 1), lambda x: x + 1)), 'less than its class sums need': put(*(('gram', (i, i), 1) for i in range(5))),
    'sums that wrap to what they were': put(('sums', (0, 0), lambda x: x + 2 ** 46)),
    'sums of more than its samples': put(('sums', (0, 0), lambda x: x + (21 << 18)), ('sums', (1, 0), lambda x: x - (21 << 18))),
    'counts that wrap': put(('counts', 0, 2 ** 62), ('counts', 1, 2 ** 62)), 'counts below one': put(('counts', 0, -5), ('counts', 1, 45)),
    'classes twice': put(('classes', 1, 0)), 'classes backwards': lambda a: a.update(classes=a['classes'][::-1].copy()),
    'classes of real numbers': lambda a: a.update(classes=a['classes'] / 1),
    'text that is none': lambda a: a.update(classes=np.array([0x110000 + i for i in range(4)], '<u4').view('<U1')),
    'no features': lambda a: a.update(gram=np.full((1, 1), 80 << 36), sums=np.full((1, 1), 80 << 18), counts=np.array([80]),
                                      classes=np.array([0]))}


@pytest.mark.parametrize('forgery', SUMS)
def test_sums_that_no_samples_can_have_are_refused(kind, useless, forgery):
    def change(facts, arrays):
        own = {name.removeprefix(kind.prefix): array for name, array in arrays.items() if name.startswith(kind.prefix)}
        SUMS[forgery](own)
        arrays.update({kind.prefix + name: array for name, array in own.items()})
    edit(kind, change)
    useless()


BUFFER = {
    'classes that are unknown': put(('labels', slice(None), lambda x: x + 7)), 'a class twice': put(('labels', 1, 0)),
    'more than there are': put(('sizes', 0, 90)), 'sizes that wrap': put(('sizes', 0, 2 ** 62), ('sizes', 1, -2 ** 62)),
    'more than a quota': put(('sizes', 0, 5), ('sizes', 1, 0)), 'long features': put(('features', slice(None), lambda x: 2 * x)),
    'a feature off the grid': put(('features', (0, 0), 2 ** 18 + 1)), 'the lowest feature': put(('features', (0, 0), -2 ** 31)),
    'long samples': put(('samples', 0, lambda x: 2 * x)),
    'a coin of 1': put(('coins', 0, 1.0)), 'a negative coin': put(('coins', 3, -0.1)), 'a coin that is none': put(('coins', 3, np.nan)),
    'wide features': lambda a: a.update(features=np.zeros((9, 5))), 'signed keys': lambda a: a.update(keys=np.arange(9))}


def of_state(tmp_path, monkeypatch, **params) -> Kind:
    monkeypatch.chdir(tmp_path)
    learned(**params).save('x.npz')
    return KINDS['state']


@pytest.mark.parametrize('forgery', BUFFER)
def test_a_buffer_that_cannot_be_is_refused(tmp_path, monkeypatch, forgery):
    def change(facts, arrays):
        own = {name.removeprefix('buffer_'): array for name, array in arrays.items() if name.startswith('buffer_')}
        BUFFER[forgery](own)
        arrays.update({f'buffer_{name}': array for name, array in own.items()})
    edit(of_state(tmp_path, monkeypatch), change)
    with refused('x.npz'):
        Scroll.load('x.npz')


@pytest.mark.parametrize('strategy, name', [('hash', 'buffer_keys'), ('random', 'buffer_coins')])
def test_a_buffer_that_is_not_in_its_order_is_refused(tmp_path, monkeypatch, strategy, name):
    edit(of_state(tmp_path, monkeypatch, strategy=strategy), lambda facts, arrays: put((name, [0, 1], lambda x: x[::-1].copy()))(arrays))
    with refused('order'):
        Scroll.load('x.npz')


def test_keys_that_are_not_those_of_the_samples_are_refused(tmp_path, monkeypatch):
    for change in (put(('keys_keys', slice(None), lambda x: x + np.uint64(1))), put(('keys_labels', slice(None), lambda x: x + 1)),
                   put(('keys_sizes', slice(None), lambda x: x + [1, -1, 0, 0]))):
        edit(of_state(tmp_path, monkeypatch), lambda facts, arrays, change=change: change(arrays))
        with refused('x.npz'):
            Scroll.load('x.npz')


def places(value, *place):
    """Every place in nested dicts, from the top."""
    yield place
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from places(inner, *place, name)


FACTS = {('psi',): [3], ('params',): [[1], dict(colour=1)], ('parts',): ['none', ['a'], {}, {'a': '1'}, {'a': 1.5}, {'a': 0}, {'0' * 64: 1}],
         ('buffer',): [None], ('buffer', 'capacity'): [4, 0, '9', 9.5, 10 ** 23], ('buffer', 'strategy'): [None, ['hash'], 'best'],
         ('buffer', 'random'): [{}, dict(state=1)], ('buffer', 'random', 'state', 'inc'): [2], ('buffer', 'random', 'uinteger'): [2 ** 32],
         ('buffer', 'random', 'state', 'state'): [2 ** 128, -1], ('buffer', 'random', 'bit_generator'): ['MT19937'],
         ('buffer', 'random', 'has_uint32'): [2], ('params', 'buffer_size'): [2.5], ('params', 'seed'): ['a', 10 ** 400],
         ('params', 'classifier'): ['svm'], ('params', 'ridge_lambda'): [0], ('params', 'targets'): [3],
         ('params', 'adaptation'): ['x', dict(mode='auto'), dict(iterations=None, augmentation={})]}


def test_facts_that_cannot_be_are_refused(kind):
    facts, arrays = archive.read('x.npz', kind.format)
    known = {place for place in places(facts) if place}
    for place, values in FACTS.items():
        for value in values if place in known else ():
            if value == {'0' * 64: 1} and kind.prefix:              # of a learner whose classes were renamed it may be so
                continue
            edited = archive.read('x.npz', kind.format)[0]
            inner = edited
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = value
            archive.write('x.npz', kind.format, edited, arrays)
            with refused('x.npz'):
                kind.load('x.npz')
                pytest.fail(f'{place} {value}')
            archive.write('x.npz', kind.format, facts, arrays)


NUMBERS = st.one_of(st.integers(-2, 2), st.sampled_from([TOP, -TOP - 1, 1 << 36, 1 << 18, -(1 << 18), 1 << 62]), st.integers(-TOP - 1, TOP))


@lru_cache
def written(folder, strategy: str, size: int) -> tuple:
    """(facts, arrays) of a file of a learner."""
    learned(buffer_size=size, strategy=strategy, keep_keys=False, adaptation=Adaptation(iterations=1)).save(folder / 'made.npz')
    return archive.read(folder / 'made.npz', 'scroll-state-1')


@settings(quick, max_examples=60)
@given(st.data(), st.sampled_from(STRATEGIES), st.sampled_from([0, 9, 100]))
def test_whatever_one_number_of_a_file_is_the_file_is_refused_or_of_use(tmp_path_factory, data, strategy, size):
    """A state that is taken learns, forgets, adapts, is written and read again, and none of its sums leaves its bounds."""
    path = tmp_path_factory.getbasetemp() / 's.npz'
    facts, arrays = written(path.parent, strategy, size)
    name = data.draw(st.sampled_from(sorted(name for name, array in arrays.items() if array.size)))
    array = arrays[name].copy()
    at, number = data.draw(st.integers(0, array.size - 1)), data.draw(NUMBERS)
    if data.draw(st.booleans()) and array.dtype.kind in 'iu':
        number = int(array.flat[at]) + number
    with np.errstate(all='ignore'):
        array.flat[at] = np.array(number & (2 ** 64 - 1), np.uint64).astype(array.dtype) if array.dtype.kind in 'iu' else number
    archive.write(path, 'scroll-state-1', facts, {**arrays, name: array})
    try:
        learner = Scroll.load(path)
    except InputError as error:
        assert len(str(error).splitlines()) == 1 and 's.npz' in str(error)
        return
    total = learner.statistics_.total
    assert np.abs(learner.statistics_.gram.astype(object)).max() <= total << 36
    assert learner.buffer_ is None or len(learner.buffer_) <= min(size, total)
    learner.predict(STREAM.features)
    if learner.buffer_ is not None:
        learner.adapt().predict(STREAM.features)
    learner.partial_fit(STREAM.features[:3], STREAM.labels[:3]).remove(STREAM.features[:3], STREAM.labels[:3]).save(path)
    assert Scroll.load(path).digest() == learner.digest()
