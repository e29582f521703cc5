"""Speed as ratios, both sides of each measured in turn in one process: `make bench`.

Random images of CIFAR's size stand in for data. A time is the least of several rounds; with one
thread (`OMP_NUM_THREADS=1`) it is processor time, so that other work on the machine counts for
little. `ratio` is ours divided by the alternative: smaller is better. `target` is the largest
wanted ratio.
"""

import copy
import itertools
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from backbone import weights
from bench import load_runner
from bench.run.devices import reuse_memory
from core.arguments import ArgumentParser, whole
from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import adapt
from scroll.embedding.embedder import Embedder
from scroll.embedding.precision import resolve_precision
from scroll.ground.grid import GRID_BITS, quantise
from scroll.ground.progress import Progress
from scroll.heads.predictors import ncc
from scroll.learners.learner import Scroll
from scroll.sums.lift import Lift
from scroll.sums.statistics import Statistics
from utils.evaluate import serve

BATCH = 32
CLASSES = 100
_PARTS = 'embedding', 'exact', 'sums', 'prediction', 'adaptation', 'er'


def line(stage: str, ours: float, other: float, against: str, target: float | None = None) -> str:
    """A row of the Markdown table. ours, other: seconds. target: the largest wanted ratio."""
    ratio = ours / other
    wanted = ' | '
    if target:
        wanted = f'{target:.2f} | {"yes" if ratio <= target else "no"}'
    ours, other = (
        f'{value:.2f} s' if value >= 1 else f'{1e3 * value:.3g} ms' for value in (ours, other)
    )
    return f'| {stage} | {ours} | {against} | {other} | {ratio:.2f} | {wanted} |'


def clock() -> float:
    """Seconds: processor time of this process on one thread, else by the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def fastest(*functions, rounds: int, seconds=clock) -> list:
    """Seconds of each function: the least of `rounds` calls, in turn, after one each that is not
    timed.
    """
    times = [[] for _ in functions]
    for _ in Progress('Rounds', rounds + 1).over(range(rounds + 1)):
        for row, function in zip(times, functions):
            began = seconds()
            function()
            row.append(seconds() - began)
    return [min(row[1:]) for row in times]


def compared(
    rounds: int, stage: str, ours, other, against: str, target: float | None = None
) -> str:
    """A row of the table, of two functions."""
    return line(stage, *fastest(ours, other, rounds=rounds), against, target)


def embedding(backbone, integers, images, rounds):
    """The online stage, and the integer network, compared with a forward pass. integers: the
    integer network, or None."""
    net, preprocessing = backbone
    embedder = Embedder(net, preprocessing)
    labels = np.arange(len(images)) % CLASSES
    bare = copy.deepcopy(net).to(memory_format=torch.channels_last)
    x = preprocessing(torch.from_numpy(images[: embedder.chunk])).contiguous(
        memory_format=torch.channels_last
    )

    @torch.inference_mode()
    def forward():
        for _ in range(len(images) // embedder.chunk):
            bare.features(x)

    def online():
        learner = Scroll(embedder, buffer_size=500)
        for part in np.array_split(np.argsort(labels, kind='stable'), 2):
            learner.partial_fit(images[part], labels[part])

    yield compared(rounds, 'online stage', online, forward, 'bare forward pass')
    if integers is not None:
        floats = Embedder(*backbone)
        exact = Embedder(*backbone, 'integer', integers=integers)
        depthwise = any(getattr(layer, 'groups', 1) > 1 for layer in net.modules())
        wanted = 0.8 if depthwise else 0.35 if _has_vnni() else 0.6
        yield compared(
            rounds,
            'embedding in integers',
            lambda: exact.features(images),
            lambda: floats.features(images),
            'the same network in float32',
            wanted,
        )


def exact_embedding(backbone, images, rounds):
    """The network in `scroll.embedding.exact`."""
    floats, exact = (
        Embedder(*backbone, dtype, chunk=len(images)) for dtype in ('float32', 'exact')
    )
    yield compared(
        rounds,
        'embedding, exact',
        lambda: exact.features(images),
        lambda: floats.features(images),
        'the same network in float32',
        4,
    )


def _has_vnni() -> bool:
    """Return whether oneDNN may add four 8-bit products at a time here; False where the processor
    does not say.
    """
    about = Path('/proc/cpuinfo')
    return 'ONEDNN_MAX_CPU_ISA' not in os.environ and about.exists() and 'vnni' in about.read_text()


def sums(dim, rounds, count=20_000):
    """Exact statistics, compared with X'X in float64, those of a lift, in float32, and the buffer
    of 500 on top of them."""
    features = quantise(np.random.default_rng(0).normal(size=(count, dim)))
    x = np.concatenate([features / 2.0**18, np.ones((count, 1))], axis=1)
    labels = np.repeat(np.arange(CLASSES), count // CLASSES)
    yield compared(
        3 * rounds,
        f'exact statistics of {count:,} features',
        lambda: Statistics(dim).add(features, labels).gram,
        lambda: x.T @ x,
        "float64 X'X",
    )
    lift = Lift('relu7', dim, 2000)
    few = features[: count // 2]
    some = labels[: count // 2]

    def plain_lift():
        u = few.astype(np.float32)
        h = np.hstack([u, np.maximum(u @ lift.matrix, 0)])
        return h.T @ h

    yield compared(
        rounds,
        f'the same of {len(few):,}, {lift.width:,} random ones more',
        lambda: Statistics(dim, lift).add(few, some).gram,
        plain_lift,
        "float32 lift and X'X",
        1.3,
    )

    def run(size, strategy='herding'):
        learner = Scroll(buffer_size=size, strategy=strategy)
        for part in np.array_split(np.arange(count), 50):
            learner.learn(features[part], features[part], part.astype(np.uint64), labels[part])
        return learner.statistics_.gram

    for strategy in ('herding', 'hash'):
        yield compared(
            rounds,
            f'statistics and {strategy} buffer, {count:,} features',
            partial(run, 500, strategy),
            lambda: run(0),
            'statistics alone',
        )


def prediction(dim, rounds, count=20_000, classes=1000):
    """Labels of features, compared with logits in float64."""
    features = quantise(np.random.default_rng(0).normal(size=(count, dim)))
    head = ncc(Statistics(dim).add(features, np.arange(count) % classes))
    weight, bias = head.linear

    def plain():
        for part in np.array_split(features, 50):
            (np.ldexp(part.astype(float), -GRID_BITS) @ weight.T + bias).argmax(axis=1)

    yield compared(
        rounds,
        f'prediction, {count:,} features, {classes:,} classes',
        lambda: head.predict(features),
        plain,
        'float64 logits',
        1.1,
    )


def adaptation(backbone, images, rounds, updates=5):
    """An update of the adapters, compared with one of the whole network; the fastest of all."""
    embedder = Embedder(*backbone)
    learner = Scroll(embedder, buffer_size=500).partial_fit(images[:500], np.arange(500) % CLASSES)
    given = embedder, learner.predictor(), learner.buffer_.content()

    def update(mode, **settings):
        ends = []
        how = Adaptation(mode=mode, iterations=updates, **settings)
        for _ in range(rounds):
            ends.append([])
            adapt(*given, how, progress=lambda loss: ends[-1].append(clock()))
        return float(np.diff(ends).min())

    small = update('adapters')
    full = update('full')
    yield line('adaptation, an update of the adapters', small, full, 'full tuning', 1 / 1.5)
    yield line('the same, exact', update('adapters', exact=True), small, 'in float32', 5)
    yield line('full tuning, exact', update('full', exact=True), full, 'in float32', 5)
    if not _has_matrix_units():
        yield '| adaptation in bfloat16 | no matrix units for it here |' + 5 * ' |'
        return
    yield line(
        'adaptation in bfloat16',
        update('adapters', precision='bfloat16'),
        small,
        'in float32',
        0.75,
    )


def _has_matrix_units() -> bool:
    return resolve_precision('auto') == 'bfloat16'


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
    coming = itertools.cycle(loader)
    return method, lambda: method.meta_observe(*next(coming), epoch=0)


def bare_step(method, size, count):
    """A function that passes this number of ready inputs through the method's network, and updates
    it.
    """
    net = copy.deepcopy(method.net)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    labels = torch.arange(count) % method.N_CLASSES
    inputs = torch.randn(count, 3, size, size)

    def step():
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        opt.step()

    return step


def steps(name, input_size, rounds):
    """A step of ER, compared with the work of its network alone."""
    method, step = er_step(name, input_size)
    step()  # without memory
    yield compared(
        rounds,
        'a step of `er`',
        step,
        bare_step(method, input_size, 2 * BATCH),
        'forward, backward, update',
    )
    if not _has_matrix_units():
        yield '| a step of `er` in bfloat16 | no matrix units for it here |' + 5 * ' |'
        return
    coarse = er_step(name, input_size, 'bfloat16')[1]
    coarse()
    yield compared(rounds, 'a step of `er` in bfloat16', coarse, step, 'in float32', 0.75)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--weights', default=weights.DEFAULT)
    parser.add_argument(
        '--input_size', type=whole(1), help='pixels (default: what the weights say)'
    )
    parser.add_argument('--only', choices=_PARTS, help='one part of the table')
    parser.add_argument('--rounds', type=whole(1), default=5, help='of which the fastest counts')
    options = parser.parse_args()
    reuse_memory()
    backbone = weights.network(options.weights, options.input_size)
    rounds = options.rounds
    has_integers = weights.has_integers(options.weights)
    integers = weights.integers_of(options.weights, *backbone) if has_integers else None
    images = np.random.default_rng(0).integers(0, 256, (512, 32, 32, 3), dtype=np.uint8)
    print(
        f'torch {torch.__version__}, threads {torch.get_num_threads()}, cores {os.cpu_count()}, '
        f'instructions {torch.backends.cpu.get_cpu_capability()}, backbone {options.weights}\n'
        '| stage | ours | alternative | takes | ratio | target | met |\n|' + 7 * '---|'
    )
    dim = backbone[0].feature_dim
    parts = (
        embedding(backbone, integers, images, rounds),
        exact_embedding(backbone, images[:16], rounds),
        sums(dim, rounds),
        prediction(dim, rounds),
        adaptation(backbone, images, rounds),
        steps(options.weights, backbone[1].input_size, rounds),
    )
    for name, lines in zip(_PARTS, parts):
        if options.only in (None, name):
            for row in lines:
                print(row, flush=True)
