"""Speed as ratios, both sides of each measured in turn in one process: `make bench`.

Random images of CIFAR's size stand in for data. A time is the least of several rounds; with one
thread (`OMP_NUM_THREADS=1`) it is processor time, so that other work on the machine counts for
little. `ratio` is ours divided by the alternative: smaller is better. `target` is the largest
wanted ratio. A row that does not apply to this processor says so.
"""

import copy
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import RidgeClassifier

from backbone import weights
from bench import load_runner
from bench.run.devices import reuse_memory
from core.arguments import ArgumentParser, whole
from core.plugins import ROOT
from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import adapt
from scroll.embedding.embedder import Embedder
from scroll.embedding.precision import has_instructions, resolve_precision
from scroll.ground.grid import GRID_BITS, quantise
from scroll.ground.progress import track
from scroll.heads.predictors import ridge
from scroll.learners.learner import Scroll
from scroll.sums.statistics import Statistics
from utils.evaluate import serve

GROWTH = """
from pathlib import Path
from sys import argv

import numpy as np

from scroll import Scroll


def peak():
    return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])


X = np.random.default_rng(0).standard_normal((1_000_000, 64), np.float32)
labels = np.arange(len(X)) % 100
Scroll().partial_fit(X[:1000], labels[:1000])
before = peak()
Scroll(buffer_size=int(argv[1])).partial_fit(X, labels)
print(peak() - before)
"""  # KiB
BATCH = 32
CLASSES = 100
SAMPLES = 20_000


class Row(NamedTuple):
    """A row of the table. ours, other: seconds; None where it does not apply, and `against` says
    why. target: the largest wanted ratio. unit: of a thousandth."""

    stage: str
    ours: float | None
    other: float | None
    against: str
    target: float | None = None
    unit: str = 'ms'

    def markdown(self) -> str:
        """The row in Markdown."""
        if self.ours is None or self.other is None:
            return f'| {self.stage} | | {self.against} | | | | |'
        ratio = self.ours / self.other
        wanted = ' | '
        if self.target:
            wanted = f'{self.target:.2f} | {"yes" if ratio <= self.target else "no"}'
        return (
            f'| {self.stage} | {1e3 * self.ours:,.1f} {self.unit} | {self.against} '
            f'| {1e3 * self.other:,.1f} {self.unit} | {ratio:.2f} | {wanted} |'
        )


def clock() -> float:
    """Seconds: processor time of this process on one thread, else by the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def fastest(*functions, rounds: int, seconds=clock) -> list:
    """Seconds of each function: the least of `rounds` calls, in turn, after one each that is not
    timed.
    """
    times = []
    for _ in track('Rounds', range(rounds + 1)):
        times.append([timeit(function, timer=seconds, number=1) for function in functions])
    return np.min(times[1:], axis=0).tolist()


def with_matrix_units(stage: str, against: str, target: float, times) -> Row:
    """The row of a stage that is for processors with matrix units for bfloat16. times: the function
    that measures it."""
    if resolve_precision('auto') == 'bfloat16':
        return Row(stage, *times(), against, target)
    return Row(stage, None, None, 'no matrix units for bfloat16 here')


def command(*words: str) -> partial:
    """A function that runs Python with these words, in a process of its own."""
    return partial(subprocess.run, [sys.executable, *words], cwd=ROOT, capture_output=True)


def start(rounds: int, name: str):
    """Commands in processes of their own, compared with an import of torch."""
    run = (
        f'main.py --model er --dataset seq-digits --weights {name} --lr 0.1 --buffer_size 9 '
        '--device cpu --disable_log 1 --non_verbose'
    )
    words = run.split()

    def processor_time():
        return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    wrong, first, alone = fastest(
        command(*words, '--wrong'),
        command('-c', f'import sys; sys.argv = {words}; import main; main.initialize()'),
        command('-c', 'import torch'),
        rounds=rounds,
        seconds=processor_time,
    )
    yield Row('start: a wrong flag', wrong, alone, 'an import of torch', 0.5)
    yield Row('start: a run of `er`, to its first batch', first, alone, 'an import of torch', 2.5)


def loading(measure, dim=2048):
    """A saved learner, compared with its largest array."""
    X = np.random.default_rng(0).normal(size=(2000, dim))
    learner = Scroll(buffer_size=0).partial_fit(X, np.arange(2000) % CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ('state.npz', 'gram.npy')]
        learner.save(paths[0])
        np.save(paths[1], learner.statistics_.gram)
        times = measure(partial(Scroll.load, paths[0]), partial(np.load, paths[1]))
    yield Row(f'load a state of {dim:,} features', *times, '`np.load` of its products', 10)


def embedding(measure, backbone, integers, images):
    """The integer network, compared with floating point. integers: None where there is none."""
    if integers is not None:
        depthwise = any(getattr(layer, 'groups', 1) > 1 for layer in backbone[0].modules())
        target = 0.8 if depthwise else 0.35 if has_vnni() else 0.6
        exact = Embedder(*backbone, 'integer', integers=integers)
        stage = 'embedding in integers'
        yield _compared_with_floats(stage, measure, backbone, exact, images, target)
        coarse = Embedder(*backbone, 'bfloat16', chunk=exact.chunk)
        both = [partial(one.features, images) for one in (exact, coarse)]
        yield with_matrix_units(stage, 'the same in bfloat16', 0.6, lambda: measure(*both))


def exact_embedding(measure, backbone, images):
    """The network in `scroll.embedding.exact`."""
    exact = Embedder(*backbone, 'exact', chunk=len(images))
    layers = list(backbone[0].modules())
    target = 4.0
    if any(isinstance(layer, torch.nn.LayerNorm) for layer in layers):
        target = 1.5 if resolve_precision('auto') == 'bfloat16' else 2.0
    if any(getattr(layer, 'groups', 1) > 1 for layer in layers):
        target = 3.0
    yield _compared_with_floats('embedding, exact', measure, backbone, exact, images, target)


def _compared_with_floats(stage, measure, backbone, embedder, images, target) -> Row:
    floats = Embedder(*backbone, chunk=embedder.chunk)
    times = measure(partial(embedder.features, images), partial(floats.features, images))
    return Row(stage, *times, 'the same network in float32', target)


def has_vnni() -> bool:
    """Return whether oneDNN may add four 8-bit products at a time here; False where the processor
    does not say.
    """
    newer = 'AVX512_CORE_VNNI', 'BF16', 'FP16', 'AMX'
    return has_instructions('avx512_vnni', *newer) or has_instructions('avx_vnni', 'AVX2_VNNI')


def sums(measure, dim):
    """A buffer on top of exact statistics."""
    features = quantise(np.random.default_rng(0).normal(size=(SAMPLES, dim)))
    labels = np.repeat(np.arange(CLASSES), SAMPLES // CLASSES)

    def learn(size):
        learner = Scroll(buffer_size=size)
        for part in np.array_split(np.arange(SAMPLES), 50):
            learner.learn(features[part], features[part], part.astype(np.uint64), labels[part])
        return learner.statistics_.gram

    times = measure(partial(learn, 10_000), partial(learn, 0))
    stage = f'statistics and a buffer of 10,000, {SAMPLES:,} features'
    yield Row(stage, *times, 'statistics alone', 2.5)


def vectors(measure, dim=256):
    """Feature vectors: learned and predicted, with few classes and with many."""
    X = np.random.default_rng(0).normal(size=(SAMPLES, dim)).astype(np.float32)
    labels = np.arange(SAMPLES)

    def learn(classes=CLASSES):
        learner = Scroll(buffer_size=0).partial_fit(X, labels % classes)
        learner.predictor()
        return learner

    def normalised():
        x = X / np.linalg.norm(X, axis=1, keepdims=True)
        return x.T @ x

    times = measure(learn, normalised)
    yield Row(f'learning {SAMPLES:,} feature vectors', *times, "float32 normalising, X'X", 3.4)
    theirs = RidgeClassifier()
    wide = X.astype(float)
    for classes in (10, 100, 1000):
        times = measure(partial(learn, classes), partial(theirs.fit, wide, labels % classes))
        yield Row(f'the same, {classes:,} classes', *times, 'RidgeClassifier', 0.6)
        times = measure(partial(learn(classes).predict, X), partial(theirs.predict, wide))
        yield Row('predicting them', *times, 'RidgeClassifier', 1.5)
    many = Statistics(dim).add(quantise(X), np.arange(SAMPLES))
    gram = many.gram / 2.0 ** (2 * GRID_BITS) + np.eye(dim + 1)
    times = measure(partial(many.add, quantise(X[:1]), [0]), many.sums.copy)
    yield Row(f'one row more, {SAMPLES:,} classes', *times, 'a copy of the class sums', 0.1)
    times = measure(partial(ridge, many, 1.0), lambda: cho_solve(cho_factor(gram), many.sums.T))
    yield Row(f'ridge, {SAMPLES:,} classes', *times, 'float64 Cholesky', 7)
    wide = quantise(np.random.default_rng(0).normal(size=(1 << 13, 1 << 10)))
    x = np.ldexp(wide.astype(float), -GRID_BITS)
    times = measure(
        lambda: Statistics(1 << 10).add(wide, np.arange(1 << 13) % CLASSES).gram, lambda: x.T @ x
    )
    yield Row('exact statistics of 1,024 numbers', *times, "float64 X'X", 1.2)


def memory():
    """Memory of one call that learns 1,000,000 vectors of 64 numbers, the vectors included."""
    for size in ('0', '500'):
        used = 0.256 + int(command('-c', GROWTH, size)().stdout) * 1024e-9
        yield Row(f'learning 1,000,000 x 64, buffer of {size}', used, 0.256, 'X', 1.5, 'MB')


def adaptation(backbone, images, updates: int):
    """An update of the adapters, compared with one of the whole network; the fastest of
    `updates`.
    """
    embedder = Embedder(*backbone)
    learner = Scroll(embedder, buffer_size=500).partial_fit(images[:500], np.arange(500) % CLASSES)
    begin = embedder, learner.predictor(), learner.buffer_.content()

    def update(mode, **settings):
        ends = []
        how = Adaptation(mode=mode, iterations=updates, **settings)
        adapt(*begin, how, progress=lambda loss: ends.append(clock()))
        return float(np.diff(ends).min())

    small = update('adapters')
    full = update('full')
    yield Row('adaptation, an update of the adapters', small, full, 'full tuning', 1 / 1.5)
    yield Row('the same, exact', update('adapters', exact=True), small, 'in float32', 5)
    yield with_matrix_units(
        'adaptation in bfloat16',
        'in float32',
        0.75,
        lambda: (update('adapters', precision='bfloat16'), small),
    )


def er_step(name: str, input_size: int | None = None, precision: str = 'float32') -> tuple:
    """(ER on a network of these weights, a function that makes it learn the next batch of
    digits).
    """
    method, dataset = load_runner(
        'er',
        'seq-digits',
        weights=name,
        input_size=input_size,
        n_splits=1,
        lr=1e-4,
        buffer_size=500,
        precision=precision,
        batch_size=BATCH,
        minibatch_size=BATCH,
        drop_last=True,
        device='cpu',
        disable_log=True,
        non_verbose=True,
    )
    loader = dataset.get_data_loaders()[0]
    serve(loader, method)
    method.meta_begin_task(dataset)
    method.net.train()
    batches = itertools.cycle(loader)
    return method, lambda: method.meta_observe(*next(batches), epoch=0)


def bare_step(method, size: int):
    """A function that passes as many ready inputs through the method's network as a step of ER, and
    updates it.
    """
    net = copy.deepcopy(method.net)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    labels = torch.arange(2 * BATCH) % method.N_CLASSES
    inputs = torch.randn(2 * BATCH, 3, size, size)

    def step():
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        opt.step()

    return step


def steps(measure, name: str, input_size: int):
    """A step of ER, compared with the work of its network alone."""
    method, step = er_step(name, input_size)
    step()  # without memory
    times = measure(step, bare_step(method, input_size))
    yield Row('a step of `er`', *times, 'forward, backward, update')
    _, coarse = er_step(name, input_size, 'bfloat16')
    coarse()
    yield with_matrix_units(
        'a step of `er` in bfloat16', 'in float32', 0.75, lambda: measure(coarse, step)
    )


def main():
    parts = (
        'start',
        'load',
        'embedding',
        'exact',
        'sums',
        'vectors',
        'memory',
        'adaptation',
        'er',
    )
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag('--weights', default=weights.DEFAULT)
    flag('--input_size', type=whole(1), help='pixels (default: what the weights say)')
    flag('--only', choices=parts, help='one part of the table')
    flag('--rounds', type=whole(1), default=5, help='of which the fastest counts')
    options = parser.parse_args()
    reuse_memory()
    backbone = weights.network(options.weights, options.input_size)
    integers = None
    if weights.has_integers(options.weights):
        integers = weights.integers_of(options.weights, *backbone)
    images = np.random.default_rng(0).integers(0, 256, (512, 32, 32, 3), dtype=np.uint8)
    print(
        f'torch {torch.__version__}, threads {torch.get_num_threads()}, cores {os.cpu_count()}, '
        f'instructions {torch.backends.cpu.get_cpu_capability()}, backbone {options.weights}\n'
        '| stage | ours | alternative | takes | ratio | target | met |\n|' + 7 * '---|'
    )
    dim = backbone[0].feature_dim
    measure = partial(fastest, rounds=options.rounds)
    tables = (
        start(options.rounds, options.weights),
        loading(measure),
        embedding(measure, backbone, integers, images),
        exact_embedding(measure, backbone, images[:16]),
        sums(measure, dim),
        vectors(measure),
        memory(),
        adaptation(backbone, images, 5 * options.rounds),
        steps(measure, options.weights, backbone[1].input_size),
    )
    for part, rows in zip(parts, tables):
        if options.only in (None, part):
            for row in rows:
                print(row.markdown(), flush=True)
