"""The contract of everything that reads a file or parses text: what comes out is what was written, or it is
refused in one line that names the file; nothing in a file is run; never another exception, in bounded time.
Damage of every common kind, payloads, random damage. What is particular to a format is in its reader's test.
"""
import gzip
import hashlib
import io
import os
import pickle
import random
import string
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from backbone import weights
from bench.resume import checkpoints, saved_models
from core.configs import read_yaml
from core.rows import append_row, read_rows
from datasets.utils import image_files, readers
from datasets.utils.tiny_imagenet import tiny_imagenet
from scroll import InputError, Scroll
from scroll.embedding.cache import FeatureCache
from scroll.grid import quantise
from scroll.schedule_forms import FORMS
from scroll.schedules import make_schedule
from scroll.state import State
from scroll.statistics import Statistics
from tests.backbone.test_checkpoints import byol_content
from tests.bench.test_safe_pickle import Calls
from tests.conftest import refused, save_tiny
from tests.datasets.test_mnist import idx

SECONDS = 10
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def one_line_or_nothing(quiet: bool = True):
    """The block may refuse, in one line, and must be quick."""
    began = time.process_time()
    try:
        yield
    except InputError as error:
        assert str(error) and len(' '.join(str(error).split())) < 2000
        if not quiet:
            raise
    assert time.process_time() - began < SECONDS


@st.composite
def damage(draw):
    """A function of bytes -> other bytes: cut, flip bits, overwrite, repeat, leave out, put in."""
    kinds = draw(st.lists(st.sampled_from(['cut', 'flip', 'flip', 'flip', 'fill', 'double', 'drop', 'insert']), min_size=1, max_size=3))
    seed = draw(st.integers(0, 10 ** 6))

    def change(content: bytes) -> bytes:
        chance, out = random.Random(seed), bytearray(content)
        for kind in kinds:
            # beginnings and ends say what the rest means: half of the damage is there
            size = max(len(out), 1)
            at = chance.choice([chance.randrange(size), chance.randrange(min(size, 200)), size - 1 - chance.randrange(min(size, 200))])
            length = chance.choice([1, 4, 8, 100])
            if kind == 'cut':
                del out[at:]
            elif kind == 'flip' and out:
                out[at] ^= 1 << chance.randrange(8)
            elif kind == 'fill':
                out[at:at + length] = bytes([chance.choice([0, 255, 127, 128])]) * min(length, len(out) - at)
            elif kind == 'double':
                out[at:at] = out[at:at + length]
            elif kind == 'drop':
                del out[at:at + length]
            else:
                out[at:at] = chance.randbytes(length)
        return bytes(out)
    return change


# -- files of numbers --------------------------------------------------------------------------------------------------

X, Y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3


def torch_file(path, legacy: bool = False):
    torch.save(save_and_load_tiny(path), path, _use_new_zipfile_serialization=not legacy)


def save_and_load_tiny(path) -> dict:
    save_tiny(path)
    return dict(weights.load(str(path)).tensors)


def image_file(kind):
    def make(path):
        pixels = np.random.default_rng(0).integers(0, 256, (20, 20, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path, format=kind)
    return make


def mini_file(path):
    content = dict(image_data=np.zeros((4, 84, 84, 3), np.uint8), class_dict=dict(n01=[0, 1], n02=[2, 3]))
    path.write_bytes(pickle.dumps(content, 2))


def read_mini(path):
    images = readers.mini_split(path.parent.parent, 'test')
    return images[0].shape[1:] == (84, 84, 3), images[0].dtype == np.uint8


def mini_table(path):
    (path.parent / 'images').mkdir(exist_ok=True)
    Image.new('RGB', (84, 84)).save(path.parent / 'images' / 'a.png')
    path.write_text('filename,label\na.png,n01\n')


def mnist_file(path):
    for split in ('train', 't10k'):
        (path.parent / f'{split}-images-idx3-ubyte.gz').write_bytes(gzip.compress(idx(np.zeros((9, 28, 28)))))
        (path.parent / f'{split}-labels-idx1-ubyte.gz').write_bytes(gzip.compress(idx(np.arange(9))))


def tiny_file(path):
    for split in ('train', 'val'):
        for i in range(1, 21):
            np.save(path.parent / f'x_{split}_{i:02}.npy', np.zeros((1, 64, 64, 3), np.float32))
            np.save(path.parent / f'y_{split}_{i:02}.npy', np.array([i]))


def read_model(path):
    """What is in it is checked when a run takes it, against what the run needs."""
    return type(saved_models.read(path)['model'])


def no_tensor_is_of_another_kind(path):
    """A flipped bit in a number makes another number, which nothing can tell."""
    loaded = weights.load(str(path))
    return sorted((name, tuple(t.shape), t.dtype) for name, t in loaded.tensors.items())


CONFIG = (b'default:\n  lr: 0.1\n  optimizer: sgd\n'
          b'best:\n- when: {dataset: seq-digits, buffer_size: {min: 100}}\n  set: {lr: 0.2, n_epochs: 3}\n')
FILES = {       # name -> (write, read: what must be equal whatever the damage, if it is not refused)
    'w.safetensors': (save_tiny, no_tensor_is_of_another_kind), 'w.pt': (torch_file, no_tensor_is_of_another_kind),
    'about.pt': (torch_file, lambda path: weights.load(str(path), tensors=False).options),
    'old.pt': (lambda path: torch_file(path, legacy=True), no_tensor_is_of_another_kind),
    'statistics.npz': (lambda path: Scroll(buffer_size=0).fit(X, Y).statistics_.save(path), lambda path: Statistics.load(path).digest()),
    'state.npz': (lambda path: Scroll(buffer_size=5).fit(X, Y).save(path),
                  lambda path: (State.read(path).statistics.digest(), Scroll.load(path).buffer_.content().digest())),
    'run.pt': (lambda path: checkpoints.write(path, dict(a=torch.arange(99), b=[1, 'two', None])), lambda path: repr(checkpoints.read(path))),
    'model.pt': (lambda path: torch.save(dict(model=dict(w=torch.zeros(3)), args=dict(lr=1.0)), path), read_model),
    'MINIIMAGENET/mini-imagenet-cache-test.pkl': (mini_file, read_mini),
    'MINIIMAGENET/test.csv': (mini_table, lambda path: readers.mini_split(path.parents[1], 'test')[0].shape[1:]),
    'MNIST/train-images-idx3-ubyte.gz': (mnist_file, lambda path: readers.mnist(path.parents[1]).train.shape),
    'TINYIMG/processed/x_train_07.npy':
        (tiny_file, lambda path: tiny_imagenet(path.parents[2]).train.shape),
    'byol.pkl': (lambda path: path.write_bytes(pickle.dumps(byol_content(), 2)), no_tensor_is_of_another_kind),
    'config.yaml': (lambda path: path.write_bytes(CONFIG), lambda path: isinstance(read_yaml(path), dict)),
    'schedule.txt': (lambda path: path.write_text(' '.join(map(str, range(30)))),
                     lambda path: sorted(make_schedule(f'file:{path}', Y.tolist()).order)),
    **{f'x.{kind.lower()}': (image_file(kind), lambda path: image_files.read_images([path], 8, path).shape) for kind in
       ('PNG', 'JPEG', 'BMP', 'GIF', 'TIFF', 'WEBP', 'PPM', 'TGA', 'ICO')},
}


class Originals(dict):
    """name -> (path, bytes, what is read of them). Other files that the reader wants lie beside it."""

    def __repr__(self):
        return 'the whole files'

    def place(self, name):
        """Where this file is, and now is not."""
        path = self[name][0]
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        return path


@pytest.fixture(scope='module')
def originals(tmp_path_factory) -> Originals:
    out = Originals()
    for name, (write, read) in FILES.items():
        path = tmp_path_factory.mktemp('whole') / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        out[name] = path, path.read_bytes(), read(path)
    return out


@contextmanager
def in_one_line(path):
    """The block must refuse the file, in one line that names it."""
    with refused(path.name), one_line_or_nothing(quiet=False):
        yield


DAMAGED = {
    'empty': lambda path: path.write_bytes(b''), 'text': lambda path: path.write_text('hello'), 'gone': lambda path: None,
    'a pickle': lambda path: path.write_bytes(pickle.dumps({'a': 1})), 'a folder': lambda path: path.mkdir(),
    'a link to itself': lambda path: path.symlink_to(path), 'a pipe': os.mkfifo,
    'endless': lambda path: path.symlink_to('/dev/zero')}
SPECIAL = 'w.safetensors', 'statistics.npz', 'state.npz'        # read from wherever a user says
CASES = [(name, damage) for name in FILES for damage in DAMAGED
         if (name, damage) != ('config.yaml', 'empty')          # which changes nothing
         and (name in SPECIAL or damage not in ('a pipe', 'endless'))]


@pytest.mark.parametrize('name, damage', CASES)
def test_what_is_no_such_file_is_refused(originals, name, damage):
    path = originals.place(name)
    DAMAGED[damage](path)
    with in_one_line(path):
        FILES[name][1](path)


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', FILES)
def test_a_file_that_is_cut_is_refused_or_read_as_it_was(originals, name):
    path, content, known = originals[name]
    originals.place(name)
    for share in (0.001, 0.01, 0.1, 0.3, 0.5, 0.8, 0.95, 0.999):
        path.write_bytes(content[:int(share * len(content))])
        with one_line_or_nothing():
            assert FILES[name][1](path) == known


def numpy_file(save, array) -> bytes:
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def torch_bytes(content, **options) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


PAYLOADS = {
    'pickle': pickle.dumps,
    'pickle of a dict': lambda payload: pickle.dumps({'state_dict': {'conv1.weight': payload}}, 2),
    'in BYOL': lambda payload: pickle.dumps(byol_content() | dict(rng=payload), 2),
    'array of objects': lambda payload: pickle.dumps({'experiment_state': np.array([payload], object)}, 2),
    'torch': lambda payload: torch_bytes({'state_dict': payload}),
    'state dict': lambda payload: torch_bytes({'conv1.weight': payload}),
    'about': lambda payload: torch_bytes(dict(about=payload)),
    'old torch': lambda payload: torch_bytes({'model': payload}, _use_new_zipfile_serialization=False),
    'numpy': lambda payload: numpy_file(np.save, np.array([payload], object)),
    'numpy archive': lambda payload: numpy_file(np.savez, np.array([payload], object))}


@pytest.mark.parametrize('kind', PAYLOADS)
@pytest.mark.parametrize('name', FILES)
def test_nothing_in_a_file_is_run(originals, tmp_path, name, kind):
    path = originals.place(name)
    path.write_bytes(PAYLOADS[kind](Calls(os.system, f'touch {tmp_path / "payload-has-run"}')))
    with in_one_line(path):
        FILES[name][1](path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', FILES)
@fuzz
@given(change=damage())
def test_a_damaged_file_is_refused_or_read_as_it_was(originals, name, change):
    path, content, known = originals[name]
    originals.place(name)
    path.write_bytes(change(content))
    with one_line_or_nothing():
        assert FILES[name][1](path) == known


@fuzz
@given(change=damage())
def test_a_damaged_cache_gives_what_was_put_in_or_nothing(tmp_path_factory, change):
    folder, features, keys = tmp_path_factory.mktemp('cache'), quantise(X), np.arange(30, dtype=np.uint64)
    cache = FeatureCache(folder, 4)
    cache.add(keys, features)
    cache.flush()
    path, = folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(change(content))
    again, out = FeatureCache(folder, 4), np.zeros((30, 4), np.int32)
    missing = again.read(keys, out)
    assert len(missing) in (0, 30) and (len(missing) == 30 or (out == features).all())
    assert path.exists() == (len(missing) == 0)                 # what is wrong is dropped


@pytest.mark.parametrize('kind', [*PAYLOADS, 'empty', 'real numbers'])
def test_a_file_of_a_cache_that_holds_no_features_is_not_used(tmp_path, kind):
    """Its digest is right: somebody has made it so."""
    more = {'empty': b'', 'real numbers': numpy_file(np.save, X)}
    payload = Calls(os.system, f'touch {tmp_path / "payload-has-run"}')
    content = more[kind] if kind in more else PAYLOADS[kind](payload)
    path = tmp_path / f'{hashlib.sha256(content).hexdigest()[:32]}.npy'
    path.write_bytes(content)
    assert len(FeatureCache(tmp_path, 4).read(np.arange(3, dtype=np.uint64), np.zeros((3, 4), np.int32))) == 3
    assert set(tmp_path.iterdir()) <= {path}


# -- text --------------------------------------------------------------------------------------------------------------

@fuzz
@given(change=damage())
def test_damaged_results_lose_no_row_that_can_be_read(tmp_path_factory, change):
    folder = tmp_path_factory.mktemp('rows')
    for i in range(3):
        path = append_row(folder, dict(task1=i, notes=f'a "b"\n{i}', run=f'r{i}'))
    content = change(path.read_bytes())
    path.write_bytes(content)
    before = None
    with one_line_or_nothing():
        before = read_rows(path)
    written = None
    with one_line_or_nothing():
        written = append_row(folder, dict(task1=9, run='new'))
    if written is None:
        assert path.read_bytes() == content
    elif before is None:                                        # a row is no reason to read all of a long file
        assert path.read_bytes().startswith(content)
    else:
        rows = read_rows(path)
        assert [row['run'] for row in rows[-1:]] == ['new'] and len(rows) == len(before) + 1
        assert all(row[name] == value for row, old in zip(rows, before) for name, value in old.items())


@fuzz
@given(text=st.text(st.sampled_from('a:-[]{},&*!|>#"\'\n \t1.?%@`'), max_size=60))
def test_any_yaml_is_a_mapping_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / 'fuzz.yaml'
    path.write_text(text)
    with one_line_or_nothing():
        assert isinstance(read_yaml(path), dict)


@pytest.fixture(scope='module')
def command(parse):
    """command(*words): arguments of a run of SGD."""
    return lambda *words: parse('sgd', '--lr', '0.1', *words)


WORDS = st.sampled_from(['--lr', '--batch_size', '--n_epochs', '--seed', '--schedule', '--n_splits', '--validation', '--noise_rate', '--device',
                         '--model_config', '--no_such', '--', '-', '-O3', '--lr=1', '1', '0', '-1', 'nan', '1e9', '[1]', '{}', '', 'None', 'best'])


@settings(fuzz, max_examples=40)
@given(words=st.lists(WORDS | st.text(max_size=8), max_size=5))
def test_any_command_line_is_a_run_or_refused(command, words):
    if not {'-h', '--help'} & set(words):
        with one_line_or_nothing():
            command(*words)


VALUES = st.sampled_from(['0', '1', '2', '3', '7', '-1', '1.5', '1e3', 'nan', 'inf', '99999', '999999999999999', '10' * 20, 'label', 'random', '0-1-2',
                          '2-1-0', '0-0-1', '', ' ', '٣']) | st.text(string.printable, max_size=6)
OPTIONS = sorted({name for form in FORMS.values() for name in form.options})


@st.composite
def specs(draw) -> str:
    """Text that is a schedule, or nearly one."""
    name = draw(st.sampled_from(sorted(FORMS)))
    items = draw(st.lists(st.tuples(st.sampled_from([*FORMS[name].options, *OPTIONS[:2]]), VALUES), max_size=4, unique_by=lambda item: item[0]))
    argument = [draw(VALUES)] if draw(st.booleans()) else []
    text = name + draw(st.sampled_from([':', ':', ',', ''])) + ','.join([*argument, *(f'{key}={value}' for key, value in items)])
    at = draw(st.integers(0, len(text)))
    return text if draw(st.booleans()) else text[:at] + draw(st.text(max_size=2)) + text[at + 1:]


@settings(fuzz, max_examples=300)
@given(spec=specs() | st.text(max_size=30), labels=st.lists(st.integers(0, 4), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_any_schedule_orders_the_samples_or_is_refused(spec, labels, seed):
    with one_line_or_nothing():
        schedule = make_schedule(spec, labels, seed)
        assert schedule.cuts[0] == 0 and schedule.cuts[-1] == len(schedule.order) and (np.diff(schedule.cuts) > 0).all()
        if schedule.covers == 'all':
            assert sorted(schedule.order.tolist()) == list(range(len(labels)))
