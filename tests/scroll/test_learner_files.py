"""A learner on disk: it goes on as if it had never stopped; it forgets from the command line; the buffer is refilled."""
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scroll import Adaptation, Embedder, InputError, Scroll
from scroll.__main__ import main
from scroll.embedding.images import Augmentation
from scroll.grid import quantise
from scroll.io import files
from scroll.io.states import KIND, State
from scroll.statistics import Statistics
from tests.scroll.conftest import PREPROCESSING, Stream, cuttings, make_stream, quick, refused, streams, tiny_net

RAW = make_stream(np.arange(80) % 4, seed=5)
STREAM = Stream(quantise(RAW.features), RAW.labels, RAW.keys)       # what a learner of RAW counts
STRATEGIES = ('herding', 'random', 'nearest', 'outlier', 'hash')


def digests(learner) -> tuple:
    content = learner.buffer_.content() if learner.buffer_ is not None and len(learner.buffer_) else None
    return learner.digest(), content and content.digest(), content and content.samples.tobytes(), content and content.features.tobytes()


def fit(stream, *pieces, **params) -> Scroll:
    learner = Scroll(**params)
    for at in pieces or [np.arange(len(stream.labels))]:
        learner.partial_fit(stream.features[at], stream.labels[at])
    return learner


@quick
@given(streams(min_size=3), st.data(), st.sampled_from(STRATEGIES), st.sampled_from([0, 3, 50]))
def test_a_learner_goes_on_as_if_it_had_never_stopped(tmp_path_factory, stream, data, strategy, size):
    path = tmp_path_factory.mktemp('state') / 'x'
    pieces = data.draw(cuttings(len(stream.labels)))
    params = dict(buffer_size=size, strategy=strategy, seed=3)
    straight, halting = fit(stream, *pieces, **params), None
    for at in pieces:
        halting = Scroll(**params) if halting is None else Scroll.load(path)
        halting.partial_fit(stream.features[at], stream.labels[at]).save(path)
    assert digests(Scroll.load(path)) == digests(straight)
    gone = pieces[0]
    for learner in (straight, halting := Scroll.load(path)):
        learner.remove(stream.features[gone], stream.labels[gone])
    assert digests(halting) == digests(straight)


def test_settings_are_kept_and_f_star_is_made_again(embedder, toy, tmp_path):
    adaptation = Adaptation(iterations=2, minibatch=4, calibrate=False, augmentation=Augmentation(0.2, False, 0.1))
    learner = Scroll(embedder, 'ncc', 0.7, 'onehot', 'paper', 10, 'hash', adaptation, 4).fit(*toy).adapt()
    learner.save(tmp_path / 'x')
    loaded = Scroll.load(tmp_path / 'x', embedder)
    assert loaded.get_params() == learner.get_params() and loaded.adapted_ is None
    assert loaded.predictor().digest() == learner.predictor().digest()
    assert loaded.adapt().adapted_.digest() == learner.adapted_.digest()
    assert [p.name for p in tmp_path.iterdir()] == ['x']


@pytest.mark.parametrize('labels', ['words', 'numbers'])
@pytest.mark.parametrize('params', [dict(buffer_size=0), dict(adaptation=None), dict(ridge_lambda='auto')], ids=str)
def test_labels_and_settings_of_any_kind_are_kept(params, labels, tmp_path):
    y = STREAM.labels if labels == 'numbers' else np.array(['ant', 'bee', 'elephant', 'ä'])[STREAM.labels]
    learner = Scroll(**params).fit(RAW.features, y)
    learner.save(tmp_path / 'x')
    loaded = Scroll.load(tmp_path / 'x')
    assert digests(loaded) == digests(learner) and loaded.classes_.tolist() == sorted(set(y.tolist()))
    assert loaded.get_params() == learner.get_params()
    np.testing.assert_array_equal(loaded.predict(RAW.features), learner.predict(RAW.features))


def test_another_psi_is_refused(embedder, toy, tmp_path):
    Scroll(embedder).fit(*toy).save(tmp_path / 'x')
    for other in (Embedder(tiny_net(1, 8), PREPROCESSING, chunk=8), None):
        with refused('another psi'):
            Scroll.load(tmp_path / 'x', other)
    assert Scroll.load(tmp_path / 'x', Embedder(tiny_net(width=8), PREPROCESSING, chunk=8)).statistics_.total == 24
    Scroll().fit(RAW.features, STREAM.labels).save(tmp_path / 'y')
    with refused('another psi'):
        Scroll.load(tmp_path / 'y', embedder)


def test_nothing_learned_is_nothing_to_save(tmp_path):
    with refused('partial_fit'):
        Scroll().save(tmp_path / 'x')
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_file_is_made(tmp_path):
    learner = fit(RAW, buffer_size=9)
    learner.save(tmp_path / 'not' / 'yet' / 'x')
    learner.statistics_.save(tmp_path / 'nor' / 'this' / 'y')
    assert Scroll.load(tmp_path / 'not' / 'yet' / 'x').digest() == learner.digest() == \
        Statistics.load(tmp_path / 'nor' / 'this' / 'y').digest()
    for path in ('x/not/a/folder', 'x/not'):
        with refused('cannot be written'):
            learner.save(tmp_path / 'not' / 'yet' / path)


def _with(path, name=None, array=None, **facts):
    """The file with one other array or other facts, and a digest that goes with them."""
    known, arrays = files.read(path, KIND)
    arrays |= {} if name is None else {name: array}
    files.write(path, KIND, {**known, **facts}, arrays)


DAMAGE = {
    'cut': lambda p: p.write_bytes(p.read_bytes()[:-100]), 'other bytes': lambda p: p.write_bytes(b'state'), 'gone': lambda p: p.unlink(),
    'statistics': lambda p: of(STREAM).save(p), 'version': lambda p: files.write(p, 'scroll-state-9', *files.read(p, KIND)),
    'unknown setting': lambda p: _with(p, params=dict(colour=1)), 'no settings': lambda p: _with(p, params=[1]),
    'bad strategy': lambda p: _with(p, buffer=dict(capacity=9, strategy='best', random={})),
    'bad adaptation': lambda p: _with(p, params=dict(adaptation=dict(mode='auto'))),
    'bad random state': lambda p: _with(p, buffer=dict(capacity=9, strategy='hash', random=dict(state=1))),
    'fewer keys': lambda p: _with(p, 'buffer_keys', np.zeros(2, np.uint64)), 'other keys': lambda p: _with(p, 'buffer_keys', np.zeros(9)),
    'classes unknown': lambda p: _with(p, 'buffer_labels', np.arange(4) + 7), 'too many': lambda p: _with(p, 'buffer_sizes', np.array([90, 1, 1, 1])),
    'narrow features': lambda p: _with(p, 'buffer_features', np.zeros((9, 2), np.int32)),
    'statistics that are none': lambda p: _with(p, 'statistics_counts', np.zeros(4, int))}


def of(stream, *at) -> Statistics:
    part = stream.part(np.concatenate([np.asarray(a) for a in at])) if at else stream
    return Statistics(stream.features.shape[1]).add(part.features, part.labels)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """state(**params): a file s.npz in the working folder, of a learner of STREAM."""
    monkeypatch.chdir(tmp_path)

    def save(**params):
        fit(RAW, **{'buffer_size': 9, **params}).save('s.npz')
        return Path('s.npz')
    return save


@pytest.mark.parametrize('damage', DAMAGE)
def test_a_file_that_cannot_be_used_is_refused(state, capsys, damage):
    DAMAGE[damage](state())
    np.savez('old.npz', features=RAW.features[:3], labels=STREAM.labels[:3])
    before = {p.name: p.read_bytes() for p in Path().iterdir()}
    with refused('s.npz' if damage not in ('bad strategy',) else 'best'):
        Scroll.load('s.npz')
    if damage != 'unknown setting':                     # forgetting needs no constructor
        assert main(['unlearn', 's.npz', '--samples', 'old.npz', '-o', 's.npz']) == 2
        err = capsys.readouterr().err
        assert err.startswith('scroll: error: ') and len(err.splitlines()) == 1
        assert {p.name: p.read_bytes() for p in Path().iterdir()} == before


def change(name, at, by):
    """The file with one number of an array changed, and a digest that goes with it."""
    def make(path):
        array = files.read(path, KIND)[1][name].copy()
        array[at] = by(array[at]) if callable(by) else by
        _with(path, name, array)
    return make


def fact(*place, value):
    """The file with another value at a place in its facts."""
    def make(path):
        facts = files.read(path, KIND)[0]
        inner = facts
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        _with(path, **facts)
    return make


def both(*changes):
    def make(path):
        for each in changes:
            each(path)
    return make


GRAM, SUMS, TOP = 'statistics_gram', 'statistics_sums', 2 ** 63 - 1
FORGED = {
    'an entry of 2^63 - 1': both(change(GRAM, (0, 1), TOP), change(GRAM, (1, 0), TOP)), 'the lowest entry': both(change(GRAM, (0, 1), -TOP - 1), change(GRAM, (1, 0), -TOP - 1)),
    'a diagonal of 2^63 - 1': change(GRAM, (0, 0), TOP), 'a negative diagonal': change(GRAM, (0, 0), -1), 'not symmetric': change(GRAM, (0, 1), lambda x: x + 1),
    'more than its diagonal allows': both(change(GRAM, (0, 1), 80 << 36), change(GRAM, (1, 0), 80 << 36)),
    'less than its class sums need': both(*(change(GRAM, (i, i), 1 << 20) for i in range(5))),
    'sums that wrap to what they were': both(change(SUMS, (0, 0), lambda x: x + 2 ** 62), change(SUMS, (1, 0), lambda x: x - 2 ** 62)),
    'sums of more than its samples': both(change(SUMS, (0, 0), lambda x: x + (21 << 18)), change(SUMS, (1, 0), lambda x: x - (21 << 18))),
    'counts that wrap': both(change('statistics_counts', 0, 2 ** 62), change('statistics_counts', 1, 2 ** 62)),
    'classes twice': change('statistics_classes', 1, 0), 'classes backwards': lambda p: _with(p, 'statistics_classes', np.arange(4)[::-1].copy()),
    'classes of real numbers': lambda p: _with(p, 'statistics_classes', np.arange(4.)),
    'text that is none': lambda p: _with(p, 'statistics_classes', np.array([0x110000 + i for i in range(4)], '<u4').view('<U1')),
    'capacity below content': fact('buffer', 'capacity', value=4), 'no capacity': fact('buffer', 'capacity', value=0), 'capacity as text': fact('buffer', 'capacity', value='9'),
    'half a place': fact('buffer', 'capacity', value=9.5), 'a huge capacity': fact('buffer', 'capacity', value=10 ** 23), 'no strategy': fact('buffer', 'strategy', value=None),
    'a strategy as a list': fact('buffer', 'strategy', value=['hash']), 'features as text': lambda p: _with(p, 'buffer_features', files.read(p, KIND)[1]['buffer_features'].astype(str)),
    'long features': lambda p: _with(p, 'buffer_features', files.read(p, KIND)[1]['buffer_features'] * 2), 'a feature off the grid': change('buffer_features', (0, 0), 2 ** 18 + 1),
    'the lowest feature': change('buffer_features', (0, 0), -2 ** 31), 'wide features': lambda p: _with(p, 'buffer_features', np.zeros((9, 5))),
    'samples as text': lambda p: _with(p, 'buffer_samples', np.array(['a'] * 9)), 'fewer samples': lambda p: _with(p, 'buffer_samples', np.zeros((8, 5), np.int32)),
    'signed keys': lambda p: _with(p, 'buffer_keys', np.arange(9)), 'keys in a table': lambda p: _with(p, 'buffer_keys', np.zeros((9, 1), np.uint64)),
    'a coin of 1': change('buffer_coins', 0, 1.0), 'a negative coin': change('buffer_coins', 3, -0.1), 'a coin that is none': change('buffer_coins', 3, np.nan),
    'a class twice in the buffer': change('buffer_labels', 1, 0), 'sizes that wrap': both(change('buffer_sizes', 0, 2 ** 62), change('buffer_sizes', 1, -2 ** 62)),
    'more than a quota': both(change('buffer_sizes', 0, 5), change('buffer_sizes', 1, 0)), 'sizes as real numbers': lambda p: _with(p, 'buffer_sizes', np.array([3., 2, 2, 2])),
    'an array more': lambda p: _with(p, 'buffer_more', np.zeros(1)), 'another array': lambda p: _with(p, 'more', np.zeros(1)), 'an array of a buffer that is none': fact('buffer', value=None),
    'an even increment': fact('buffer', 'random', 'state', 'inc', value=2), 'a long state': fact('buffer', 'random', 'state', 'state', value=2 ** 128),
    'a negative state': fact('buffer', 'random', 'state', 'state', value=-1), 'another generator': fact('buffer', 'random', 'bit_generator', value='MT19937'),
    'half a number more': fact('buffer', 'random', 'uinteger', value=2 ** 32), 'a flag of 2': fact('buffer', 'random', 'has_uint32', value=2), 'no random state': fact('buffer', 'random', value={}),
    'psi a number': fact('psi', value=3), 'a real buffer size': fact('params', 'buffer_size', value=2.5), 'a seed as text': fact('params', 'seed', value='a'),
    'another classifier': fact('params', 'classifier', value='lda'), 'lambda zero': fact('params', 'ridge_lambda', value=0), 'an adaptation as text': fact('params', 'adaptation', value='x'),
    'no iterations': fact('params', 'adaptation', value=dict(iterations=None, augmentation={})), 'other targets': fact('params', 'targets', value=3),
    'a huge seed': fact('params', 'seed', value=10 ** 400)}


@pytest.mark.parametrize('forgery', FORGED)
def test_a_file_that_was_edited_and_signed_again_is_refused(state, capsys, forgery):
    path = state()
    FORGED[forgery](path)
    np.savez('old.npz', features=RAW.features[:1], labels=STREAM.labels[:1])
    with refused('s.npz'):
        Scroll.load(path)
    assert main(['unlearn', str(path), '--samples', 'old.npz', '-o', 'new.npz']) == 2 and not Path('new.npz').exists()
    err = capsys.readouterr().err
    assert err.startswith('scroll: error: ') and len(err.splitlines()) == 1 and len(err) < 500


@pytest.mark.parametrize('strategy', ['hash', 'random'])
def test_a_buffer_that_is_not_in_its_order_is_refused(state, strategy):
    path = state(strategy=strategy)
    name = dict(hash='buffer_keys', random='buffer_coins')[strategy]
    first = files.read(path, KIND)[1][name][:2]
    both(change(name, 0, first[1]), change(name, 1, first[0]))(path)
    with refused('order'):
        Scroll.load(path)


NUMBERS = st.one_of(st.integers(-2, 2), st.sampled_from([TOP, -TOP - 1, 1 << 36, 1 << 18, -(1 << 18), 1 << 62]), st.integers(-2 ** 63, TOP))


@lru_cache
def written(folder, strategy: str, size: int) -> tuple:
    """(facts, arrays) of a file of a learner of RAW."""
    fit(RAW, buffer_size=size, strategy=strategy, adaptation=Adaptation(iterations=1)).save(folder / 'made.npz')
    return files.read(folder / 'made.npz', KIND)


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
    files.write(path, KIND, facts, {**arrays, name: array})
    try:
        learner = Scroll.load(path)
    except InputError as error:
        assert len(str(error).splitlines()) == 1 and 's.npz' in str(error)
        return
    total = learner.statistics_.total
    assert np.abs(learner.statistics_.gram.astype(object)).max() <= total << 36
    assert learner.buffer_ is None or len(learner.buffer_) <= min(size, total)
    learner.predict(RAW.features)
    if learner.buffer_ is not None:
        learner.adapt().predict(RAW.features)
    learner.partial_fit(RAW.features[:3], STREAM.labels[:3]).remove(RAW.features[:3], STREAM.labels[:3]).save(path)
    assert Scroll.load(path).digest() == learner.digest()


def test_a_merge_with_a_learner_without_buffer_keeps_to_the_quotas(tmp_path):
    learner = fit(RAW, np.flatnonzero(STREAM.labels < 2), buffer_size=8)
    learner.merge(fit(RAW, np.flatnonzero(STREAM.labels >= 2), buffer_size=0))
    assert learner.buffer_.content().labels.tolist() == [0, 0, 1, 1]
    learner.save(tmp_path / 'x')
    assert digests(Scroll.load(tmp_path / 'x')) == digests(learner)


def test_a_refill_with_samples_that_were_never_learned_is_refused():
    learner = fit(RAW, np.arange(4), buffer_size=8)
    learner.buffer_.drop([0])
    before = digests(learner)
    with refused('learned'):
        learner.refill(-RAW.features[:1], [0])
    assert digests(learner) == before


def test_no_code_of_a_file_is_run(state):
    path = state()

    class Trap:
        def __reduce__(self):
            return open, ('trap', 'w')
    with np.load(path) as file:
        content = dict(file)
    for name in content:
        np.savez(path, **{**content, name: np.array([Trap()], object)})
        with refused():
            Scroll.load(path)
    assert not Path('trap').exists()


@quick
@given(streams(min_size=2), st.data(), st.sampled_from(['herding', 'hash', 'nearest', 'outlier']), st.integers(1, 12))
def test_after_a_refill_the_buffer_too_is_that_of_never_having_seen_what_was_removed(stream, data, strategy, size):
    gone, *rest = data.draw(cuttings(len(stream.labels)))
    if not rest:
        return
    rest = np.concatenate(rest)
    learner = fit(stream, buffer_size=size, strategy=strategy).remove(stream.features[gone], stream.labels[gone])
    learner.refill(stream.features[rest], stream.labels[rest])
    expected = fit(stream, rest, buffer_size=size, strategy=strategy)
    assert digests(learner) == digests(expected)
    again = learner.refill(stream.features[rest], stream.labels[rest])          # nothing is taken twice
    assert digests(again) == digests(expected)


@quick
@given(streams(min_size=4), st.data(), st.integers(1, 12))
def test_a_hash_buffer_may_be_refilled_in_pieces(stream, data, size):
    gone, *rest = data.draw(cuttings(len(stream.labels)))
    learner = fit(stream, buffer_size=size, strategy='hash').remove(stream.features[gone], stream.labels[gone])
    for at in rest:
        learner.refill(stream.features[at], stream.labels[at])
    if rest:
        assert digests(learner) == digests(fit(stream, np.concatenate(rest), buffer_size=size, strategy='hash'))


def test_samples_of_equal_pixels_are_refilled_as_often_as_they_came():
    features, labels = np.repeat(RAW.features[:3], 2, axis=0), np.repeat([0, 0, 1], 2)
    learner = Scroll(buffer_size=5, strategy='hash').fit(features, labels)
    learner.remove(features[:1], labels[:1]).refill(features[1:], labels[1:])
    assert digests(learner) == digests(Scroll(buffer_size=5, strategy='hash').fit(features[1:], labels[1:]))


@pytest.mark.parametrize('X, y, word', [
    (RAW.features[:3], [7, 7, 7], 'class 7'), (np.repeat(RAW.features, 2, axis=0), np.repeat(STREAM.labels, 2), 'class 0'),
    (RAW.features[:3], [0, 1], 'y has'), (RAW.features[:3, :2], [0, 1, 2], '2 features')])
def test_a_refill_with_what_was_not_learned_changes_nothing(X, y, word):
    learner = fit(RAW, buffer_size=9)
    before = digests(learner)
    with refused(word):
        learner.refill(X, y)
    assert digests(learner) == before
    with refused('buffer_size'):
        fit(RAW, buffer_size=0).refill(RAW.features, STREAM.labels)


GONE, REST = np.arange(0, 80, 3), np.setdiff1d(np.arange(80), np.arange(0, 80, 3))


@pytest.mark.parametrize('size', [0, 9, 100])
def test_samples_are_forgotten(state, capsys, size):
    path = state(buffer_size=size)
    np.savez('old.npz', features=RAW.features[GONE], labels=STREAM.labels[GONE])
    assert main(['unlearn', str(path), '--samples', 'old.npz', '-o', 'new.npz']) == 0
    assert capsys.readouterr().out == f'{of(STREAM, REST).digest()}\n'
    new, expected = Scroll.load('new.npz'), fit(RAW, buffer_size=size).remove(RAW.features[GONE], STREAM.labels[GONE])
    assert digests(new) == digests(expected) and new.predictor().digest() == fit(RAW, REST).predictor().digest()
    if size == 100:
        assert digests(new) == digests(fit(RAW, REST, buffer_size=100))
    np.savez('old.npz', features=np.repeat(RAW.features, 2, axis=0), labels=np.repeat(RAW.labels, 2))
    assert main(['unlearn', 'new.npz', '--samples', 'old.npz', '-o', 'new.npz']) == 2              # more than there are


def test_classes_are_forgotten_by_their_statistics(state, capsys):
    path, rest = state(), np.flatnonzero(STREAM.labels % 2 == 1)
    for label in (0, 2):
        of(STREAM, STREAM.labels.tolist().index(label) + 4 * np.arange(20)).save(f'class-{label}.npz')
    assert main(['unlearn', str(path), '--minus', 'class-0.npz', 'class-2.npz', '-o', 'new.npz']) == 0
    assert capsys.readouterr().out == f'{of(STREAM, rest).digest()}\n'
    new = Scroll.load('new.npz')
    assert new.classes_.tolist() == [1, 3] and set(new.buffer_.content().labels.tolist()) == {1, 3}
    new.refill(RAW.features[rest], STREAM.labels[rest])
    assert digests(new) == digests(fit(RAW, rest, buffer_size=9))
    of(STREAM, np.arange(10)).save('some.npz')
    assert main(['unlearn', str(path), '--minus', 'some.npz', '-o', 'other.npz']) == 2 and not Path('other.npz').exists()
    assert '--samples' in capsys.readouterr().err
    assert fit(RAW, buffer_size=0).save('s.npz') is None
    assert main(['unlearn', 's.npz', '--minus', 'some.npz', '-o', 'other.npz']) == 0               # without a buffer it can be done


def test_images_are_forgotten_by_their_pixels(embedder, toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images, labels = toy
    features, keys = embedder(images)
    Scroll(embedder, buffer_size=10).fit(images, labels).save('s.npz')
    expected = Scroll(embedder, buffer_size=10).fit(images, labels).remove(images[5:12], labels[5:12])
    part = dict(quantised=features[5:12], labels=labels[5:12])
    for extra in (dict(keys=keys[5:12]), dict(images=images[5:12])):
        np.savez('old.npz', **part, **extra)
        assert main(['unlearn', 's.npz', '--samples', 'old.npz', '-o', 'new.npz']) == 0
        assert digests(Scroll.load('new.npz', embedder)) == digests(expected)
    np.savez('old.npz', **part)
    capsys.readouterr()
    assert main(['unlearn', 's.npz', '--samples', 'old.npz', '-o', 'new.npz']) == 2 and 'keys or images' in capsys.readouterr().err
    Statistics(embedder.dim).add(features[:8], labels[:8]).save('class.npz')            # says nothing of psi
    assert main(['unlearn', 's.npz', '--minus', 'class.npz', '-o', 'new.npz']) == 2 and 'another psi' in capsys.readouterr().err


@pytest.mark.parametrize('words', [[], ['s.npz'], ['s.npz', '-o', 'x'], ['s.npz', '--samples', 's.npz'], ['s.npz', '--minus', 's.npz', '-o', 'x'],
                                   ['s.npz', '--samples', 'nothing', '-o', 'x'], ['s.npz', '--samples', 's.npz', '-o', 'x'],
                                   ['s.npz', '--samples', 'a', '--minus', 'b', '-o', 'x']], ids=' '.join)
def test_what_cannot_be_done_is_one_line(state, capsys, words):
    state()
    assert main(['unlearn', *words]) == 2 and not Path('x').exists()
    out, err = capsys.readouterr()
    assert out == '' and err.startswith('scroll: error: ') and len(err.splitlines()) == 1


def test_the_size_of_a_file_does_not_grow_with_the_stream(tmp_path):
    sizes = []
    for count in (200, 2000):
        stream = make_stream(np.arange(count) % 4, dim=8)
        fit(stream, buffer_size=20).save(tmp_path / 'x')
        sizes.append((tmp_path / 'x').stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100
    facts, _ = files.read(tmp_path / 'x', KIND)
    assert json.loads(json.dumps(facts)) == facts and State.read(tmp_path / 'x').buffer.capacity == 20
