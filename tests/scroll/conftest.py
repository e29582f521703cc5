"""Shared by the tests of `scroll/`: small streams, a tiny seeded network, images it can tell
apart.
"""

import linecache
import sys
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from backbone.resnet18 import ResNet18
from scroll import Embedder, InputError, Preprocessing, Statistics
from scroll.__main__ import main
from scroll.ground.grid import quantise, sample_keys
from scroll.heads.registry import HEADS, Settings
from scroll.learners.fitted_head import FittedHead

# the machine may be busy
quick = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
PREPROCESSING = Preprocessing(16)
WORDS = np.array(['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine'])


@contextmanager
def refused(match: str | None = None):
    """The block must raise an InputError of one line; yields what pytest knows of it."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """command('learn', ...) in a folder of its own -> (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capsys.readouterr()
        return main([str(word) for word in words]), *capsys.readouterr()

    return run


@pytest.fixture
def refusal(command):
    """refusal('learn', ...): the line that a command ends with that cannot be carried out."""

    def run(*words) -> str:
        code, out, err = command(*words)
        assert (code, out, len(err.splitlines())) == (2, '', 1), err
        assert err.startswith('scroll: error: ')
        return err

    return run


@pytest.fixture
def rounding():
    """rounding(torch.backends.cudnn.conv, 'tf32'): how these products round their factors in a
    test, by torch's switches since 2.9.
    """
    before = []

    def switch(place, how: str):
        before.append((place, place.fp32_precision))
        place.fp32_precision = how

    yield switch
    for place, how in before:
        place.fp32_precision = how


@contextmanager
def threads(count: int):
    """Run torch on `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def exact_solution(gram, units: int, right) -> list:
    """(gram + units I)^-1 right as rows of fractions, by Gauss and Jordan."""
    rows = [[Fraction(int(value)) for value in (*left, *tail)] for left, tail in zip(gram, right)]
    for i, row in enumerate(rows):
        row[i] += units
    for i in range(len(rows)):  # no pivoting: the matrix is positive definite
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(len(rows)):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i])]
    return [row[len(rows) :] for row in rows]


def in_units(rows, exponent: int) -> list:
    """Fractions in units of 2^exponent, each rounded to the nearest integer, ties to even."""
    return [[round(value / Fraction(2) ** exponent) for value in row] for row in rows]


class Stream(NamedTuple):
    """Labelled features on the grid; `keys` are unique. Indexing by positions takes a part."""

    features: np.ndarray
    labels: np.ndarray
    keys: np.ndarray

    def part(self, at) -> 'Stream':
        return Stream(*(array[np.asarray(at, np.int64)] for array in self))


def make_stream(labels, dim: int = 5, seed: int = 0) -> Stream:
    """Random unit features for these labels."""
    features = quantise(np.random.default_rng(seed).normal(size=(len(labels), dim)))
    return Stream(features, np.asarray(labels), sample_keys(features))


def of(stream, *at) -> Statistics:
    """Digest of a stream, or of the samples at these positions."""
    part = stream.part(np.concatenate([np.asarray(a) for a in at])) if at else stream
    return counted(part.features, part.labels)


def counted(features, labels, by_class: bool = False) -> Statistics:
    return Statistics(features.shape[1], by_class=by_class).add(features, labels)


def sample(seed=0, count=60, dim=4, classes=3, spread=1.0):
    """Quantised features of classes with means of their own, and labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    return quantise(
        rng.normal(size=(classes, dim))[labels] + spread * rng.normal(size=(count, dim))
    ), labels


def left_out(name, statistics, features, labels, **settings) -> np.ndarray:
    """Logits (N, K) of a head, of each sample as if it had not been learned."""
    settings = Settings(**settings)
    fitted = FittedHead(HEADS[name].make(statistics, settings), statistics, settings, name)
    return fitted.left_out(features, labels)


def digests(learner) -> tuple:
    """Digests of statistics, buffer and keys."""
    held = (
        learner.buffer_.content() if learner.buffer_ is not None and len(learner.buffer_) else None
    )
    keys = (
        None
        if learner.keys_ is None
        else {name: array.tolist() for name, array in learner.keys_.state_dict().items()}
    )
    return (
        learner.digest(),
        held and held.digest(),
        held and held.samples.tobytes(),
        held and held.features.tobytes(),
        keys,
    )


@st.composite
def streams(draw, max_size: int = 40, min_size: int = 1) -> Stream:
    """A small stream of up to five classes."""
    labels = draw(st.lists(st.integers(0, 4), min_size=min_size, max_size=max_size))
    return make_stream(labels, seed=draw(st.integers(0, 99)))


@st.composite
def cuttings(draw, count: int) -> list:
    """A schedule over `count` samples: their positions in some order, cut somewhere."""
    order = np.array(draw(st.permutations(range(count))), np.int64)
    return (
        np.split(order, sorted(draw(st.sets(st.integers(1, count - 1), max_size=6))))
        if count > 1
        else [order]
    )


def tiny_net(seed: int = 0, width: int = 4, **kwargs) -> ResNet18:
    """A narrow ResNet18 in eval mode, batch norms with running statistics as if it had been
    trained.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = ResNet18(3, width=width, **kwargs)
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
                module.weight.data.uniform_(0.5, 1.5)
                module.bias.data.normal_(0, 0.2)
    return net.eval()


def toy_images(per_class: int = 8, size: int = 12, seed: int = 0) -> tuple:
    """uint8 images of three classes that differ in where they are bright, and their labels."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), per_class)
    images = random.integers(0, 90, (len(labels), size, size, 3))
    images[labels == 0, : size // 2] += 120
    images[labels == 1, size // 2 :] += 120
    images[labels == 2, :, :, 0] += 120
    return images.astype(np.uint8), labels


@pytest.fixture(scope='session')
def net() -> ResNet18:
    return tiny_net(width=8)  # the narrowest that has a choice of layouts


@pytest.fixture(scope='session')
def embedder(net) -> Embedder:
    return Embedder(net, PREPROCESSING, chunk=8)


@pytest.fixture(scope='session')
def toy() -> tuple:
    return toy_images()


class interrupted:
    """Within the block the `at`-th line that this thread runs in files of such names raises a
    KeyboardInterrupt.

    Lines at which a `with` statement ends its block do not count: a tracer sees them, but Python
    takes no signal between the last instruction of a block and the `__exit__` of what guards it."""

    def __init__(self, at: int, names: tuple = ('/scroll/',)):
        self.left = at
        self.names = names
        self.hit = False
        self._begins = {}

    def _trace(self, frame, event, argument):
        code = frame.f_code
        if not any(name in code.co_filename for name in self.names):
            return None
        if event == 'line':
            begins = self._begins.setdefault((code, frame.f_lineno), frame.f_lasti)
            with_ = linecache.getline(code.co_filename, frame.f_lineno).lstrip().startswith('with ')
            self.left -= not with_ or frame.f_lasti == begins
            if self.left == 0:
                self.hit = True
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error):
        sys.settrace(self._before)
