"""Hostile and broken files of what was learned (checkpoints of runs, models, statistics, states), and data that cannot be:
each ends in one line and exit code 2, or is harmless and says so. Nothing in a file is run, and what was there stays."""
import io
import zipfile

import numpy as np
import pytest
import torch

from core import rows as results
from core.rows import read_rows
from scroll import archive
from scroll.__main__ import main as scroll_command
from scroll.errors import InputError
from tests.conftest import files_below
from tests.models.conftest import small_digits  # noqa: F401
from tests.test_fuzz import numpy_file, torch_bytes
from tests.test_hostile import marker, payload  # noqa: F401

QUICK = '--dataset', 'seq-digits', '--n_splits', '2', '--batch_size', '16', '--non_verbose', '1'
ER = '--model', 'er', '--lr', '0.1', '--n_epochs', '1', '--weights', 'none', '--width', '2', '--buffer_size', '10', *QUICK


def changed(change):
    """content -> bytes of a file with one thing changed, and all its check sums right."""
    def make(content: bytes) -> bytes:
        parts = torch.load(io.BytesIO(content), weights_only=True)
        change(parts)
        return torch_bytes(parts)
    return make


def put(*path, value=None):
    """Another value at a place in nested dicts; None takes away what is there."""
    def change(content):
        for name in path[:-1]:
            content = content[name]
        content.pop(path[-1])
        if value is not None:
            content[path[-1]] = value
    return changed(change)


# -- checkpoints of interrupted runs -----------------------------------------------------------------------------------

class Unfinished:
    """A run that ended at the very last step, since the disk was full."""

    def __init__(self, base):
        self.base, self.path, self.content = base, None, None
        self.words = *ER, '--base_path', base

    def begin(self, command_line, monkeypatch) -> None:
        def full(folder, row):
            raise InputError(f'{folder} cannot be written (No space left on device)')
        with monkeypatch.context() as patch:
            patch.setattr(results, 'append_row', full)
            code, _, err = command_line(*self.words)
        assert code == 2 and len(err.splitlines()) == 1 and 'No space left' in err
        self.path, = (path for path in files_below(self.base) if path.suffix == '.pt')
        self.content = self.path.read_bytes()

    def with_content(self, content: bytes) -> None:
        """This one checkpoint, and no other."""
        for path in files_below(self.base / 'unfinished'):
            path.unlink()
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(content)


@pytest.fixture(scope='module')
def unfinished_run(tmp_path_factory) -> Unfinished:
    return Unfinished(tmp_path_factory.mktemp('unfinished'))


@pytest.fixture
def unfinished(unfinished_run, command_line, small_digits, monkeypatch) -> Unfinished:      # noqa: F811
    if unfinished_run.content is None:
        unfinished_run.begin(command_line, monkeypatch)
    return unfinished_run


def test_a_disk_that_is_full_at_the_end_costs_nothing_but_the_command_again(unfinished, command_line):
    unfinished.with_content(unfinished.content)
    code, out, err = command_line(*unfinished.words)
    assert (code, err) == (0, '') and 'continuing the run that was interrupted' in out
    rows = [read_rows(path) for path in files_below(unfinished.base) if path.name == results.FILE]
    assert len(rows) == 2 and all(rows) and not list(unfinished.base.glob('unfinished/*.pt'))


WHOLE = {
    'a list': lambda content: torch_bytes([1]), 'an empty dict': lambda content: torch_bytes({}), 'empty parts': lambda content: torch_bytes(dict(about={})),
    'about a list': put('about', value=[1]), 'no state': put('state'), 'no time': put('time'), 'time as text': put('time', value='now'),
    'state a list': put('state', value=[1]), 'of unknown code': put('about', 'code', value=3), 'no version': put('about', 'torch'),
    'another version': put('about', 'torch', value='0.4'), 'no position': put('state', 'position'), 'an empty position': put('state', 'position', value=[]),
    'a position beyond the end': put('state', 'position', value=[99, 0, 0, True]), 'a negative position': put('state', 'position', value=[-1, 0, 0, False]),
    'a position as text': put('state', 'position', value='end'), 'beginnings that are none': put('state', 'begins', value=[1, 2]),
    'no random state': put('state', 'random', value={'torch': 1}), 'no method': put('state', 'model'), 'a method as a list': put('state', 'model', value=[1]),
    'an unknown part': put('state', 'model', 'net', value=dict(magic=3)), 'a part of nothing': put('state', 'model', 'net', value={}),
    'a reference to nothing': put('state', 'model', 'net', value=dict(known='os.system', mark=None)), 'no record': put('state', 'record'),
    'arguments as a number': put('state', 'args', value=3)}


@pytest.mark.parametrize('damage', WHOLE)
def test_a_checkpoint_of_something_else_is_told_and_kept(unfinished, command_line, marker, damage):     # noqa: F811
    content = WHOLE[damage](unfinished.content)
    unfinished.with_content(content)
    code, _, err = command_line(*unfinished.words)
    assert (code, len(err.splitlines())) == (2, 1) and str(unfinished.path) in err and '--resume never' in err
    assert unfinished.path.read_bytes() == content


DAMAGED = {
    'truncated': lambda content: content[:len(content) // 2],
    'bits flipped': lambda content: content[:9000] + bytes([content[9000] ^ 255]) + content[9001:]}


@pytest.mark.parametrize('damage', [*DAMAGED, 'a payload'])
def test_a_damaged_checkpoint_is_told_and_the_run_starts_over(unfinished, command_line, payload, damage):     # noqa: F811
    unfinished.with_content(torch_bytes(dict(about=payload)) if damage == 'a payload' else DAMAGED[damage](unfinished.content))
    code, out, err = command_line(*unfinished.words)
    assert (code, err) == (0, '') and 'starts over' in out.splitlines()[0]


def test_a_checkpoint_that_is_small_on_the_disk_and_large_in_memory(unfinished, command_line, marker):     # noqa: F811
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(unfinished.content)) as source, zipfile.ZipFile(made, 'w', zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, b'\0' * (1 << 18) if '/data/' in entry.filename else source.read(entry))
    unfinished.with_content(made.getvalue())
    code, out, _ = command_line(*unfinished.words)
    assert code == 0 and 'starts over' in out.splitlines()[0]


# -- files of models (--loadcheck) -------------------------------------------------------------------------------------

def each(change):
    """All tensors of the model changed."""
    return changed(lambda content: content['model'].update({name: change(t) for name, t in content['model'].items()}))


def buffer(**given):
    """Parts of the buffer changed: values, or functions of what is there."""
    return changed(lambda content: content['buffer'].update(
        {name: value(content['buffer'][name]) if callable(value) else value for name, value in given.items()}))


MODELS = {
    'truncated': lambda content: content[:-999], 'a list': lambda content: torch_bytes([1]), 'no names':
    lambda content: torch_bytes(dict(model={3: torch.zeros(1)})), 'no tensors': put('model', value={}), 'numbers for tensors': each(lambda t: 3),
    'tensors of other shapes': each(lambda t: t[None]), 'complex tensors': each(lambda t: t + 0j), 'whole tensors': each(lambda t: t.long()),
    'NaN': each(lambda t: t * float('nan') if t.is_floating_point() else t), 'arguments as a list': put('args', value=[1]),
    'arguments as text': put('args', value='--lr 3'), 'an argument of another kind': put('args', 'lr', value=[1]),
    'an argument that cannot be': put('args', 'buffer_size', value='many'), 'a run that is none': put('run', value=3),
    'a run without position': put('run', 'position'), 'a run with a position as text': put('run', 'position', value='abc'),
    'examples that are none': buffer(examples=3), 'examples of another size': buffer(examples=lambda t: t[:, :3]),
    'examples of NaN': buffer(examples=lambda t: t.permute(0, 3, 1, 2) * float('nan')), 'examples of whole numbers': buffer(examples=lambda t: t.long()),
    'fewer labels': buffer(labels=lambda t: t[:3]), 'labels out of range': buffer(labels=lambda t: t + 99), 'negative labels':
    buffer(labels=lambda t: t - 99), 'labels with fractions': buffer(labels=lambda t: t + 0.5), 'labels as a list': buffer(labels=lambda t: t.tolist()),
    'fewer than no samples': buffer(num_seen_examples=-5), 'samples as text': buffer(num_seen_examples='many')}
CONTINUED = {
    'no run': put('run', value=3), 'results that are none': changed(lambda content: content.update(run=None, results=[3, 3])),
    'results as text': changed(lambda content: content.update(run=None, results=[[['a']], [['a']]])),
    'a state that is none': put('run', 'model', value=3), 'of another data set': put('args', 'dataset', value='seq-cifar10')}


@pytest.fixture
def model_file(command_line, small_digits, tmp_path_factory):     # noqa: F811
    """model_file(): what `--savecheck task` kept after the first of two tasks; made once."""
    def content() -> bytes:
        if not _MODEL:
            base = tmp_path_factory.mktemp('model')
            code, _, err = command_line(*ER, '--base_path', base, '--disable_log', '1', '--savecheck', 'task', '--checkpoint_path', base / 'kept')
            assert (code, err) == (0, '')
            _MODEL.append(min(files_below(base / 'kept')).read_bytes())
        return _MODEL[0]
    return content


_MODEL = []


@pytest.mark.parametrize('damage', [*MODELS, *(f'{name}, continued' for name in CONTINUED)])
def test_files_of_models(model_file, command_line, tmp_path, marker, damage):     # noqa: F811
    table, flags = (CONTINUED, ['--start_from', '1']) if damage.endswith('continued') else (MODELS, [])
    content = table[damage.removesuffix(', continued')](model_file())
    (tmp_path / 'm.pt').write_bytes(content)
    code, _, err = command_line(*ER, '--base_path', tmp_path, '--loadcheck', tmp_path / 'm.pt', *flags)
    assert (code, len(err.splitlines())) == (2, 1) and (damage == 'NaN' or 'm.pt' in err), err
    assert (tmp_path / 'm.pt').read_bytes() == content and not [p for p in files_below(tmp_path) if p.name == results.FILE]


# -- statistics and states ---------------------------------------------------------------------------------------------

def altered(name=None, array=None, **facts):
    """The file with another array or other facts, and a digest that goes with them."""
    def change(path):
        kind = archive.kind_of(path)
        known, arrays = archive.read(path, kind)
        prefix = 'statistics_' if kind.startswith('scroll-state') else ''
        arrays |= {} if name is None else {prefix + name: array(arrays[prefix + name])}
        archive.write(path, kind, {**known, **facts}, arrays)
    return change


def rewritten(compression=zipfile.ZIP_STORED, **entries):
    """The archive with other entries: name -> bytes, or a function of those that are there."""
    def change(path):
        with zipfile.ZipFile(path) as source:
            parts = {entry.filename: source.read(entry) for entry in source.infolist()}
        parts |= {f'{name}.npy': value(parts.get(f'{name}.npy')) for name, value in entries.items()}
        with zipfile.ZipFile(path, 'w', compression) as target:
            for name, content in parts.items():
                target.writestr(name, content)
    return change


def of_version(path):
    kind = archive.kind_of(path)
    archive.write(path, kind[:-1] + '9', *archive.read(path, kind))


LEARNED = {
    'gone': lambda path: path.unlink(), 'another version': of_version, 'no format': lambda path: np.savez(path, a=np.zeros(3)), 'of another psi': altered(psi='0' * 64),
    'of features of its own': altered(psi=''), 'a class that the data set lacks': altered('classes', lambda a: a + 90),
    'classes of names': altered('classes', lambda a: a.astype(str)), 'negative classes': altered('classes', lambda a: a - 90),
    'a class without samples': altered('counts', lambda a: a * 0), 'counts as real numbers': altered('counts', lambda a: a / 1),
    'NaN': altered('sums', lambda a: a * float('nan')), 'narrow numbers': altered('sums', lambda a: a.astype(np.int32)),
    'a Gram matrix of another size': altered('gram', lambda a: a[:3, :3]), 'a Gram matrix without numbers': altered('gram', lambda a: a[:0, :0]),
    'a number for a matrix': altered('gram', lambda a: a[0, 0]), 'sums that no features have': altered('sums', lambda a: a + (1 << 60)),
    'facts that are none': rewritten(facts=lambda _: numpy_file(np.save, np.array('[1]'))), 'facts without end':
    rewritten(facts=lambda _: numpy_file(np.save, np.array('[' * 100_000))), 'a name twice': lambda path: zipfile.ZipFile(path, 'a').writestr('facts.npy', b''),
    'a trillion rows': rewritten(counts=lambda _: numpy_file(np.save, np.zeros(3, np.int64)).replace(b'(3,)', b'(9**12,)'[:4])),
    'zeros that take no room': rewritten(zipfile.ZIP_DEFLATED, counts=lambda _: numpy_file(np.save, np.zeros(1 << 22, np.int64)))}


@pytest.fixture
def learned(command_line, small_digits, tiny_weights, tmp_path):     # noqa: F811
    """learned(name): a file s.npz of the statistics or the state of SCROLL on the digits; made once."""
    def words(*flags):
        return ('--model', 'scroll', '--weights', tiny_weights, '--base_path', tmp_path, '--buffer_size', '20', '--iterations', '1',
                '--feature_cache', '0', *QUICK, *flags)

    def make(kind):
        if not _LEARNED:
            code, _, err = command_line(*words('--save_state', tmp_path / 'state', '--save_statistics', tmp_path / 'statistics'))
            assert (code, err) == (0, '')
            _LEARNED.update({name: (tmp_path / name).read_bytes() for name in ('state', 'statistics')})
        (tmp_path / 's.npz').write_bytes(_LEARNED[kind])
        return tmp_path / 's.npz', words('--load_state', tmp_path / 's.npz', '--inference_only', '1')
    return make


_LEARNED = {}


OTHERS = 'psi', 'its own', 'lacks', 'names', 'negative classes'       # nothing is wrong with such files by themselves


@pytest.mark.filterwarnings('ignore:Duplicate name')
@pytest.mark.parametrize('kind', ['statistics', 'state'])
@pytest.mark.parametrize('damage', [*LEARNED, 'a payload'])
def test_what_scroll_has_learned(learned, command_line, payload, capfd, damage, kind):     # noqa: F811
    path, words = learned(kind)
    rows = files_below(path.parent / 'results')
    before = [p.read_bytes() for p in rows]
    (rewritten(counts=lambda _: numpy_file(np.save, np.array([payload], object))) if damage == 'a payload' else LEARNED[damage])(path)
    if kind == 'state' or damage.endswith((*OTHERS, 'payload')):
        code, _, err = command_line(*words)
        assert (code, len(err.splitlines())) == (2, 1) and 's.npz' in err and len(err) < 2000, err
        assert [p.read_bytes() for p in rows] == before
    if kind == 'statistics' and not damage.endswith(OTHERS):
        for words in (['show', path], ['merge', path, path, '--repeated', '-o', path.parent / 'out'], ['remove', path, '--samples', path, '-o', path]):
            assert scroll_command(list(map(str, words))) == 2
            err = capfd.readouterr().err
            assert len(err.splitlines()) == 1 and 's.npz' in err and not (path.parent / 'out').exists()
