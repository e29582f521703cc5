"""Every kind of file that is read, corrupted in every way: it is refused in one line that names it,
or read as it was. Nothing in a file is run, no other exception is raised, and time and memory are
bounded."""

import functools
import io
import json
import os
import pickle
import resource
import struct
import time
import zipfile
import zlib
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from backbone import weights
from bench.resume import checkpoints, saved_models
from core.configs import read_yaml
from core.torch_files import load_torch
from datasets.utils import image_files, readers
from scroll import Adaptation, InputError, Scroll
from scroll.embedding.integer_network import IntegerNetwork
from scroll.files.features import open_files, read_blocks
from scroll.ground import archive
from scroll.learners.state import State
from scroll.streams.schedules import make_schedule
from scroll.sums.exemplars import STRATEGIES
from scroll.sums.statistics import Statistics
from tests.backbone.test_checkpoints import byol_content
from tests.bench.test_safe_pickle import Calls
from tests.conftest import files_below, save_tiny, save_tiny_integers

SECONDS = 10
fuzz = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
X = np.random.default_rng(0).normal(size=(80, 4))
Y = np.arange(80) % 4


@pytest.fixture(autouse=True)
def marker(tmp_path):
    """A file that payloads make: there must be none. No test takes a gigabyte."""
    path = tmp_path / 'payload-has-run'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield path
    assert not path.exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kB


@contextmanager
def one_line(name: str, must: bool = True):
    """The block must refuse, or may, in one line that names the file, and must be quick."""
    began = time.process_time()
    text = None
    try:
        yield
    except InputError as error:
        text = str(error)
    assert text or not must
    if text:
        assert name in text
        assert len(text.splitlines()) == 1
        assert len(text) < 2000
    assert time.process_time() - began < SECONDS


class Kind(NamedTuple):
    """write(path), with other files that the reader wants; read(path) -> what must be equal
    whatever the damage.
    """

    write: callable
    read: callable


def torch_file(path):
    save_tiny(path)
    torch.save(dict(weights.load(str(path)).tensors), path)


def image_file(kind):
    return lambda path: Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (20, 20, 3)).astype(np.uint8)
    ).save(path, format=kind)


def mini(**changes) -> bytes:
    content = {
        'image_data': np.zeros((4, 84, 84, 3), np.uint8),
        'class_dict': {'n01': [0, 1], 'n02': [2, 3]},
    } | changes
    return pickle.dumps({name: value for name, value in content.items() if value is not None}, 2)


def form_of_tensors(path):
    """A flipped bit in a number makes another number, which nothing can tell."""
    return sorted(
        (name, tuple(t.shape), t.dtype) for name, t in weights.load(str(path)).tensors.items()
    )


def mini_images(path):
    return readers.mini_split(path.parent.parent, 'test')[0].shape[1:]


def learned(**params) -> Scroll:
    return Scroll(**{'buffer_size': 9, 'keep_keys': True} | params).fit(X, Y)


CONFIG = (
    b'default:\n  lr: 0.1\n  optimizer: sgd\n'
    b'best:\n- when: {dataset: seq-digits, buffer_size: {min: 100}}\n'
    b'  set: {lr: 0.2, n_epochs: 3}\n'
)
KINDS = {
    'w.safetensors': Kind(save_tiny, form_of_tensors),
    'w.pt': Kind(torch_file, form_of_tensors),
    'statistics.npz': Kind(learned().statistics_.save, lambda path: Statistics.load(path).digest()),
    'state.npz': Kind(
        lambda path: learned().save(path),
        lambda path: (
            State.read(path).statistics.digest(),
            Scroll.load(path).buffer_.content().digest(),
        ),
    ),
    'integers.npz': Kind(
        lambda path: os.replace(weights.integer_file(save_tiny_integers(path)), path),
        lambda path: IntegerNetwork.load(path)[0].digest(),
    ),
    'features.npz': Kind(
        lambda path: np.savez(path, X=X, y=Y),
        lambda path: [
            block.X.tobytes() for _, block in read_blocks(open_files([path], need=('X', 'y')))
        ],
    ),
    'run.pt': Kind(
        lambda path: checkpoints.write(path, {'a': torch.arange(99), 'b': [1, 'two', None]}),
        lambda path: repr(load_torch(path)),
    ),
    'model.pt': Kind(
        lambda path: torch.save({'model': {'w': torch.zeros(99)}, 'args': {'lr': 1.0}}, path),
        lambda path: repr(saved_models.read(path)['model']),
    ),
    'MINIIMAGENET/mini-imagenet-cache-test.pkl': Kind(
        lambda path: path.write_bytes(mini()), mini_images
    ),
    'byol.pkl': Kind(
        lambda path: path.write_bytes(pickle.dumps(byol_content(), 2)), form_of_tensors
    ),
    'config.yaml': Kind(
        lambda path: path.write_bytes(CONFIG), lambda path: isinstance(read_yaml(path), dict)
    ),
    'schedule.txt': Kind(
        lambda path: path.write_text(' '.join(map(str, range(80)))),
        lambda path: sorted(make_schedule(f'file:{path}', Y.tolist()).order),
    ),
    **{
        f'x.{kind.lower()}': Kind(
            image_file(kind), lambda path: image_files.read_images([path], 8).shape
        )
        for kind in ('PNG', 'JPEG', 'TIFF')
    },
}
# read from wherever a user says
SPECIAL = 'w.safetensors', 'statistics.npz', 'state.npz', 'features.npz'


def content_of(save, *content, **options) -> bytes:
    file = io.BytesIO()
    save(*content, file, **options) if save is torch.save else save(file, *content, **options)
    return file.getvalue()


def changed(change):
    """path -> the file with other bytes."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def of(content: bytes):
    return changed(lambda _: content)


def bomb(path):
    """Zip archives: compressed members that are far larger; other files: a compressed megabyte."""
    if not zipfile.is_zipfile(path):
        path.write_bytes(zlib.compress(bytes(1 << 20)))
        return
    with zipfile.ZipFile(path) as source:
        entries = {entry.filename: source.read(entry) for entry in source.infolist()}
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as target:
        for name, content in entries.items():
            target.writestr(name, bytes(1 << 22) if name.endswith(('.npy', '/data/0')) else content)


def elsewhere(make):
    """path -> something else in its place."""

    def change(path):
        path.unlink()
        make(path)

    return change


PAYLOADS = {  # each runs a command if it is unpickled carelessly
    'pickle of a dict': lambda payload: pickle.dumps({'state_dict': {'conv1.weight': payload}}, 2),
    'in BYOL': lambda payload: pickle.dumps(byol_content() | {'rng': payload}, 2),
    'array of objects': lambda payload: pickle.dumps(
        {'experiment_state': np.array([payload], object)}, 2
    ),
    'torch': lambda payload: content_of(torch.save, {'conv1.weight': payload}),
    'old torch': lambda payload: content_of(
        torch.save, {'model': payload}, _use_new_zipfile_serialization=False
    ),
    'npz': lambda payload: content_of(np.savez, X=np.array([payload], object)),
}


def with_payload(make):
    return lambda path: path.write_bytes(
        make(Calls(os.system, f'touch {path.parent / "payload-has-run"}'))
    )


REFUSED = {
    'empty': of(b''),
    'text': of(b'hello'),
    'a pickle': of(pickle.dumps({'a': 1})),
    'deep JSON': of(b'{"format":' + b'[' * 1500),
    'gone': elsewhere(lambda path: None),
    'a folder': elsewhere(lambda path: path.mkdir()),
    'a link to itself': elsewhere(lambda path: path.symlink_to(path)),
    'a pipe': elsewhere(os.mkfifo),
    'endless': elsewhere(lambda path: path.symlink_to('/dev/zero')),
    'other arrays': of(content_of(np.savez, a=np.zeros(3))),
    'a torn zip': of(b'PK\x03\x04'),
    'zeros': of(bytes(999)),
    **{f'payload: {kind}': with_payload(make) for kind, make in PAYLOADS.items()},
}


def cut(share: float):
    return changed(lambda content: content[: int(share * len(content))])


def flipped(share: float):
    """Flip a bit of the byte at this share of a file."""

    def change(content: bytes) -> bytes:
        content = bytearray(content)
        content[int(share * len(content))] ^= 64
        return bytes(content)

    return changed(change)


WAYS = (
    REFUSED
    | {'a bomb': bomb, 'doubled': changed(lambda content: content * 2)}
    | {f'cut to {share}': cut(share) for share in (0.001, 0.5, 0.999)}
    | {f'bit flipped at {share}': flipped(share) for share in (0, 0.02, 0.5, 0.9999)}
)


def about(**changes):
    """A weights file that says something else of itself; None leaves it out."""

    def change(path):
        content = path.read_bytes()
        (size,) = struct.unpack('<Q', content[:8])
        header = json.loads(content[8 : 8 + size])
        own = json.loads(header['__metadata__']['about']) | changes
        header['__metadata__']['about'] = json.dumps(
            {name: value for name, value in own.items() if value is not None}
        )
        header = json.dumps(header).encode()
        path.write_bytes(struct.pack('<Q', len(header)) + header + content[8 + size :])

    return change


def shared(depth: int = 40) -> list:
    """A list that stands for 2^40 numbers."""
    value = [0, 1]
    for _ in range(depth):
        value = [value, value]
    return value


YAML_BOMB = 'a: &a [x,x,x,x,x,x,x,x,x]\n' + ''.join(
    f'{name}: &{name} [{",".join([f"*{before}"] * 9)}]\n'
    for before, name in zip('abcdefghijk', 'bcdefghijkl')
)
OWN = {  # kind -> ways of its own, all to be refused
    'w.safetensors': {
        'header of 2^63 bytes': changed(lambda content: b'\xff' * 8 + content[8:]),
        'more at the end': changed(lambda content: content + b'more'),
        'no version': about(format=None),
        'input size as text': about(input_size='84'),
        'options of another kind': about(options=['width', 4]),
        'mean not a number': about(mean=[float('nan')] * 3),
        'deviation 0': about(std=[0, 0, 0]),
        'whole numbers': lambda path: torch.save(
            {'conv1.weight': torch.ones(4, 3, 5, 5, dtype=torch.int64)}, path
        ),
        'a trillion numbers out of one': lambda path: torch.save(
            {'conv1.weight': torch.zeros(1).expand(10**6, 10**6)}, path
        ),
    },
    'config.yaml': {
        'not UTF-8': of(b'lr: \xff\xfe'),
        'no mapping': of(b'- lr'),
        'a list in itself': of(b'lr: &a [*a]'),
        'a bomb': of(YAML_BOMB.encode() + b'lr: *l'),
        'an object': of(b'lr: !!python/object/apply:os.system ["ls"]'),
    },
    'MINIIMAGENET/mini-imagenet-cache-test.pkl': {
        name: of(content)
        for name, content in {
            'no images': mini(image_data=None),
            'a set': pickle.dumps({1, 2}),
            'rows beyond the images': mini(class_dict={'n01': [9]}),
            'rows of lists': mini(class_dict={'n01': [[0], [1]]}),
            'half rows': mini(class_dict={'n01': [0.5]}),
            'images of floats': mini(image_data=np.zeros((4, 84, 84, 3))),
            'few bytes that stand for 2^40 rows': mini(class_dict={'n01': shared()}),
            'few bytes that ask for 64 GB': b'\x80\x02Nr\xff\xff\xff\xff.',
            'ten thousand deep': b'\x80\x02' + b']' * 10_000 + b'a' * 9999 + b'.',
            'a number of 99999 digits': b'I' + b'9' * 99_999 + b'\n.',
        }.items()
    },
}


@pytest.fixture(scope='module')
def original(tmp_path_factory):
    """original(kind): path and value of a whole file, made when it is first asked for."""

    @functools.cache
    def made(kind):
        path = tmp_path_factory.mktemp('whole') / kind
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind].write(path)
        return path, path.read_bytes(), KINDS[kind].read(path)

    def whole(kind):
        path, content, value = made(kind)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return path, value

    return whole


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('kind', KINDS)
def test_a_corrupt_file_is_refused_in_one_line_or_read_as_it_was(original, kind):
    own = OWN.get(kind, {})
    for how, damage in (WAYS | own).items():
        if kind not in SPECIAL and how in ('a pipe', 'endless'):
            continue
        path, value = original(kind)
        damage(path)
        # nothing and zeros may well be a config file
        must = how in REFUSED | own and (kind != 'config.yaml' or how not in ('empty', 'zeros'))
        with one_line(path.name, must):
            assert KINDS[kind].read(path) == value, how
        assert not (path.parent / 'payload-has-run').exists(), how


FORMATS = {
    'statistics.npz': ('scroll-statistics-2', '', Statistics.load),
    'state.npz': ('scroll-state-1', 'statistics_', Scroll.load),
}
TOP = 2**63 - 1


@pytest.fixture(params=FORMATS)
def forge(request, tmp_path):
    """forge(change): x.npz, after change(facts, arrays without the prefix of sums), must be
    refused. Its kind is forge.kind.
    """
    path, (version, prefix, load) = tmp_path / 'x.npz', FORMATS[request.param]
    KINDS[request.param].write(path)
    original = path.read_bytes()

    def change_it(change):
        path.write_bytes(original)
        facts, arrays = archive.read(path, version)
        arrays = {name.removeprefix(prefix): array.copy() for name, array in arrays.items()}
        own = {name for name in arrays if name in ('classes', 'counts', 'sums', 'gram')}
        change(facts, arrays)
        archive.write(
            path,
            version,
            facts,
            {prefix + name if name in own else name: array for name, array in arrays.items()},
        )
        with one_line('x.npz'):
            load(path)

    change_it.kind = request.param
    change_it.content = lambda: archive.read(path, version)
    return change_it


FORMS = {
    'text': lambda a: a.astype(str),
    'one fewer': lambda a: a[1:],
    'one axis more': lambda a: a[None],
    'complex': lambda a: a.astype(complex),
}


def test_arrays_in_another_form_or_too_few_are_refused(forge):
    names = [name.removeprefix('statistics_') for name in forge.content()[1]]
    for name in names:
        for form in FORMS.values():
            forge(
                lambda facts, arrays, name=name, form=form: arrays.update(
                    {name: form(arrays[name])}
                )
            )
        forge(lambda facts, arrays, name=name: arrays.pop(name))


def put(*changes):
    """Make a function of these changes, (name, place, value or function of the old one)."""

    def make(facts, arrays):
        for name, place, value in changes:
            arrays[name][place] = value(arrays[name][place]) if callable(value) else value

    return make


def pair(value):
    return put(('gram', (0, 1), value), ('gram', (1, 0), value))


def replaced(**arrays):
    return lambda facts, own: own.update(
        {name: make(own[name]) if callable(make) else make for name, make in arrays.items()}
    )


def fact(*place):
    """(names of nested dicts, ..., value) -> what sets it in facts."""

    def make(facts, arrays):
        for name in place[:-2]:
            facts = facts[name]
        facts[place[-2]] = place[-1]

    return make


OF_SUMS = [
    pair(-TOP - 1),
    pair(80 << 36),
    put(('gram', (0, 0), TOP)),
    put(('gram', (0, 1), lambda x: x + 1)),
    put(('sums', (0, 0), lambda x: x + 2**46)),
    put(('sums', (0, 0), lambda x: x + (21 << 18)), ('sums', (1, 0), lambda x: x - (21 << 18))),
    put(('counts', 0, 2**62), ('counts', 1, 2**62)),
    put(('counts', 0, -5), ('counts', 1, 45)),
    put(('classes', 1, 0)),
    replaced(sums=lambda a: a.astype(np.int32)),
    replaced(classes=np.array([0x110000 + i for i in range(4)], '<u4').view('<U1')),
    replaced(
        gram=np.full((1, 1), 80 << 36),
        sums=np.full((1, 1), 80 << 18),
        counts=np.array([80]),
        classes=np.array([0]),
    ),
    fact('psi', 3),
    *(fact('parts', parts) for parts in ('none', ['a'], {}, {'a': '1'}, {'a': 0})),
]
OF_STATES = [
    put(('buffer_labels', slice(None), lambda x: x + 7)),
    put(('buffer_labels', 1, 0)),
    put(('buffer_sizes', 0, 2**62), ('buffer_sizes', 1, -(2**62))),
    put(('buffer_sizes', 0, 5), ('buffer_sizes', 1, 0)),
    put(('buffer_features', slice(None), lambda x: 2 * x)),
    put(('buffer_samples', 0, lambda x: 2 * x)),
    replaced(buffer_keys=np.arange(9)),
    put(('keys_labels', 1, 0)),
    put(('keys_keys', slice(None), lambda x: x + np.uint64(1))),
    put(('keys_sizes', slice(None), lambda x: x + np.array([1, -1, 0, 0]))),
    fact('params', [1]),
    fact('params', {'colour': 1}),
    fact('params', 'seed', 10**400),
    fact('params', 'head', 'svm'),
    fact('params', 'ridge_lambda', 0),
    fact('params', 'adaptation', {'iterations': -1, 'augmentation': {}}),
    fact('buffer', None),
    *(fact('buffer', 'capacity', value) for value in (4, 9.5, 10**23)),
    fact('buffer', 'strategy', 'best'),
    fact('buffer', 'random', {'state': 1}),
    fact('buffer', 'random', 'bit_generator', 'MT19937'),
]


def test_what_no_samples_can_have_left_is_refused(forge):
    for change in OF_SUMS + OF_STATES * (forge.kind == 'state.npz'):
        forge(change)


NUMBERS = st.one_of(
    st.integers(-2, 2),
    st.sampled_from([TOP, -TOP - 1, 1 << 36, 1 << 18, -(1 << 18), 1 << 62]),
    st.integers(-TOP - 1, TOP),
)


@settings(fuzz, max_examples=20)
@given(st.data(), st.sampled_from(STRATEGIES), st.sampled_from([0, 9, 100]))
def test_whatever_one_number_of_a_file_is_the_file_is_refused_or_of_use(
    tmp_path_factory, data, strategy, size
):
    """A state that is taken learns, forgets, adapts, is written and read again, and none of its
    sums leaves its bounds.
    """
    path = tmp_path_factory.getbasetemp() / 's.npz'
    learned(
        buffer_size=size, strategy=strategy, keep_keys=False, adaptation=Adaptation(iterations=1)
    ).save(path)
    facts, arrays = archive.read(path, 'scroll-state-1')
    name = data.draw(st.sampled_from(sorted(name for name, array in arrays.items() if array.size)))
    array = arrays[name].copy()
    at = data.draw(st.integers(0, array.size - 1))
    number = data.draw(NUMBERS)
    if data.draw(st.booleans()) and array.dtype.kind in 'iu':
        number = int(array.flat[at]) + number
    with np.errstate(all='ignore'):
        array.flat[at] = (
            np.array(number & (2**64 - 1), np.uint64).astype(array.dtype)
            if array.dtype.kind in 'iu'
            else number
        )
    archive.write(path, 'scroll-state-1', facts, {**arrays, name: array})
    learner = None
    with one_line('s.npz', must=False):
        learner = Scroll.load(path)
    if learner is None:
        return
    total = learner.statistics_.total
    assert np.abs(learner.statistics_.gram.astype(object)).max() <= total << 36
    assert learner.buffer_ is None or len(learner.buffer_) <= min(size, total)
    learner.predict(X)
    if learner.buffer_ is not None:
        learner.adapt().predict(X)
    learner.partial_fit(X[:3], Y[:3]).remove(X[:3], Y[:3]).save(path)
    assert Scroll.load(path).digest() == learner.digest()


ER = (
    '--model er --lr 0.1 --n_epochs 1 --weights none --width 2 --buffer_size 10',
    '--dataset seq-digits --n_splits 2 --batch_size 16 --non_verbose 1',
)


def nested(change, name: str):
    """content -> bytes of a torch file in which one entry is another."""

    def make(content: bytes) -> bytes:
        parts = torch.load(io.BytesIO(content), weights_only=True)
        return content_of(torch.save, parts | {name: change(parts[name])})

    return make


def test_a_checkpoint_is_resumed_refused_or_dropped_and_never_a_traceback(
    command_line, small_digits, tmp_path, monkeypatch
):
    def full(folder, row):
        raise InputError(f'{folder} cannot be written (No space left on device)')

    with monkeypatch.context() as patch:
        patch.setattr('core.rows.append_row', full)
        code, _, err = command_line(*ER, '--base_path', tmp_path)
    assert code == 2
    assert 'No space left' in err
    (path,) = (path for path in files_below(tmp_path) if path.suffix == '.pt')
    content = path.read_bytes()
    others = {
        'whole': content,
        'a list': content_of(torch.save, [1]),
        'cut': content[: len(content) // 2],
    }
    others |= {
        f'{name}, a number': nested(lambda _: 3, name)(content)
        for name in list(torch.load(path, weights_only=True))[::3]
    }
    for how, other in others.items():
        for file in files_below(tmp_path / 'unfinished'):
            file.unlink()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(other)
        code, out, err = command_line(*ER, '--base_path', tmp_path)
        assert code == 0 or (
            (code, len(err.splitlines())) == (2, 1)
            and str(path) in err
            and path.read_bytes() == other
        ), (how, err)
        assert how != 'whole' or ((code, err) == (0, '') and 'continuing' in out)


def test_a_model_is_evaluated_or_refused_and_never_a_traceback(
    command_line, small_digits, tmp_path
):
    code, _, err = command_line(
        *ER,
        '--base_path',
        tmp_path,
        '--disable_log 1 --savecheck task --checkpoint_path',
        tmp_path / 'kept',
    )
    assert (code, err) == (0, '')
    content = min(files_below(tmp_path / 'kept')).read_bytes()
    for change in (
        lambda _: content_of(torch.save, [1]),
        lambda content: content[:-999],
        nested(lambda _: {}, 'model'),
        nested(lambda _: 3, 'args'),
        nested(lambda model: {name: t[None] for name, t in model.items()}, 'model'),
        nested(lambda model: {name: t + 0j for name, t in model.items()}, 'model'),
    ):
        (tmp_path / 'm.pt').write_bytes(change(content))
        code, _, err = command_line(
            *ER, '--base_path', tmp_path, '--disable_log 1 --loadcheck', tmp_path / 'm.pt'
        )
        assert (code, len(err.splitlines())) == (2, 1), err
        assert 'm.pt' in err
