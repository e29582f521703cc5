"""Shared by the tests of the outer rooms: small weights, runs inside this process, bad input that
must end in one line.
"""

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

import backbone
import datasets
import main
import models
from backbone import weights
from bench.cli.parsing import parse_args
from core import plugins
from core.environment import warn_once
from core.plugins import PluginFolder
from datasets.utils import readers, scheduled_dataset
from scroll.embedding.embedder import state_digest
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import golden_images
from scroll.embedding.quantisation import quantise_network
from scroll.ground import progress
from tests.datasets.foreign import FILES as foreign_files
from tests.scroll.conftest import refused as refused_input
from tests.scroll.conftest import tiny_net

ROOT = Path(__file__).resolve().parent.parent
# the machine may be busy
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope='session', autouse=True)
def one_thread():
    """Tiny networks gain nothing from two threads, and on a busy machine two wait for each
    other.
    """
    torch.set_num_threads(1)


@pytest.fixture(scope='session', autouse=True)
def no_progress():
    """Runs within this process say nothing of how far they are, however slow the machine."""
    progress.EVERY = 1e6


@pytest.fixture(scope='session', autouse=True)
def default_signals():
    """Signals do what they do by default, here and in every process that a test starts, whatever
    started the suite: a shell ignores SIGINT for what it runs in the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def words_of(*parts) -> list:
    """The words of a command line. Parts are lines as they are typed, which begin with a dash or
    are empty, or single words.
    """
    return [
        word for part in map(str, parts) for word in (part.split() if part[:1] in '-' else [part])
    ]


def written(folder: Path, files: dict) -> Path:
    """The folder, with these texts in files of these names below it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@contextmanager
def refused(*words: str):
    """The block must raise an InputError of one line that has all these words in it."""
    with refused_input() as caught:
        yield
    text = str(caught.value)
    assert not [word for word in words if word not in text], text


def save_tiny(path, width: int = 4) -> str:
    """A weights file of a tiny seeded network, for images of 16 pixels."""
    weights.save(
        path,
        tiny_net(width=width),
        'resnet18-md',
        {'width': width},
        16,
        (0.5,) * 3,
        (0.5,) * 3,
        {'classes': ['n0']},
    )
    return str(path)


def save_tiny_integers(path, width: int = 4, images=None) -> str:
    """The same, with its integer network, by default of its golden images, in a file next to it."""
    name = save_tiny(path, width)
    net = tiny_net(width=width).half().float()  # as files keep it
    network = quantise_network(
        net,
        Preprocessing(16, (0.5,) * 3, (0.5,) * 3),
        golden_images() if images is None else images,
    )
    network.golden = network.check()
    network.save(weights.integer_file(name), {'psi': state_digest(net)})
    return name


@pytest.fixture(scope='session')
def tiny_weights(tmp_path_factory) -> str:
    return save_tiny(tmp_path_factory.mktemp('weights') / 'tiny.safetensors')


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """third_party(models=dict(name=text), datasets=..., backbone=...): as if such files lay in
    these folders.
    """
    warn_once.cache_clear()
    packages = {'models': models, 'datasets': datasets, 'backbone': backbone}

    def add(**folders):
        for name, files in folders.items():
            package = packages[name]
            folder = tmp_path / name
            written(
                folder,
                {path.name: path.read_text() for path in (ROOT / name).glob('*.py')}
                | {f'{stem}.py': text for stem, text in files.items()},
            )
            with monkeypatch.context() as patch:
                patch.setattr(plugins, 'ROOT', tmp_path)
                fresh = PluginFolder(name, package.PLUGINS.kind)
                fresh.files()
            fresh.registered = dict(package.PLUGINS.registered)
            for part, value in vars(fresh).items():
                monkeypatch.setattr(package.PLUGINS, part, value)
            monkeypatch.setattr(package, '__path__', [*package.__path__, str(folder)])

    before = set(sys.modules)
    yield add
    for name in set(sys.modules) - before:
        path = str(getattr(sys.modules[name], '__file__', ''))
        if name.partition('.')[0] in packages and str(tmp_path) in path:
            del sys.modules[name]


@pytest.fixture(scope='session')
def parse(tiny_weights, tmp_path_factory):
    """Arguments of a run on the digits: parse('sgd', '--lr 0.1', seed=3); flags override
    keywords.
    """
    base = tmp_path_factory.mktemp('base')

    def arguments(model: str, *flags, dataset: str = 'seq-digits', base_path=base, **more):
        fixed = dict(
            model=model,
            dataset=dataset,
            weights=tiny_weights,
            base_path=base_path,
            non_verbose=1,
            disable_log=1,
            **more,
        )
        flags = words_of(*flags)
        given = {flag[2:] for flag in flags if flag.startswith('--')}
        fixed = [
            word
            for name, value in fixed.items()
            if name not in given
            for word in (f'--{name}', str(value))
        ]
        return parse_args([*fixed, *flags])

    return arguments


def first_of_each(whole: readers.Images, train: int, test: int) -> readers.Images:
    """The first training and test images of each digit."""

    def first(labels, count):
        return np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(10)]))

    rows = first(whole.train_labels, train)
    test_rows = first(whole.test_labels, test)
    return readers.Images(
        whole.train[rows],
        whole.train_labels[rows],
        whole.test[test_rows],
        whole.test_labels[test_rows],
        whole.class_names,
    )


@contextmanager
def digits_are(images: readers.Images):
    """Inside, these are the images of the digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            readers, 'digits', lambda: readers.Images(*map(np.copy, images[:4]), images.class_names)
        )
        scheduled_dataset._read_once.cache_clear()
        try:
            yield images
        finally:
            scheduled_dataset._read_once.cache_clear()


@pytest.fixture
def small_digits():
    """The first 8 training and 4 test images of each digit: enough for what holds of any data."""
    with digits_are(first_of_each(readers.digits(), 8, 4)):
        yield


@pytest.fixture
def foreign(third_party):
    """Adds data-set files of a user to the folder of data sets."""
    third_party(datasets=foreign_files)


@pytest.fixture
def arguments(parse, foreign):
    """arguments(dataset, *flags, model=, **more): of a run on a foreign data set; `more` are set as
    parsed flags would be.
    """

    def build(dataset, *flags, model='sgd', **more):
        args = parse(
            model,
            '--lr 0.05 --weights none --backbone resnet18-md --width 2 --device cpu',
            *flags,
            dataset=dataset,
        )
        vars(args).update(more)
        return args

    return build


@pytest.fixture
def command_line(monkeypatch, capfd):
    """`python main.py ...` inside this process, without a picture: (exit code, stdout, stderr)."""

    def run(*words):
        capfd.readouterr()
        monkeypatch.setattr(sys, 'argv', ['main.py', '--picture', '0', *words_of(*words)])
        try:
            code = main.main()
        except SystemExit as end:
            code = end.code
        return code, *capfd.readouterr()

    return run


def files_below(folder) -> list:
    return [p for p in Path(folder).rglob('*') if p.is_file()]


def python(*words, cwd, env=None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
