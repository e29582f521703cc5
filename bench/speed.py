"""Speed as ratios, both sides of each measured in turn in one process: `make bench`.

Random images of CIFAR's size stand in for data. A time is the least of several rounds; with one
thread (`OMP_NUM_THREADS=1`) it is processor time, so that other work on the machine counts for
little. `ratio` is ours divided by the alternative: smaller is better. Rows of bfloat16 are for
processors that have units for it.
"""

import itertools
import os
import time
from functools import partial
from timeit import timeit
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import RidgeClassifier

from backbone import weights
from bench import load_runner
from bench.run.devices import reuse_memory
from core.arguments import ArgumentParser, whole
from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import adapt
from scroll.embedding.embedder import Embedder
from scroll.embedding.precision import resolve_precision
from scroll.ground.progress import track
from scroll.learners.learner import Scroll
from utils.evaluate import serve

BATCH = 32
CLASSES = 100
SAMPLES = 20_000


class Row(NamedTuple):
    """A row of the table. ours, other: seconds."""

    stage: str
    ours: float
    other: float
    against: str

    def markdown(self) -> str:
        """The row in Markdown."""
        return (
            f'| {self.stage} | {1e3 * self.ours:,.1f} ms | {self.against} '
            f'| {1e3 * self.other:,.1f} ms | {self.ours / self.other:.2f} |'
        )


def clock() -> float:
    """Seconds: processor time of this process on one thread, else by the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def fastest(*functions, rounds: int) -> list:
    """Seconds of each function: the least of `rounds` calls, in turn, after one each that is not
    timed.
    """
    times = [
        [timeit(function, timer=clock, number=1) for function in functions]
        for _ in track('Rounds', range(rounds + 1))
    ]
    return np.min(times[1:], axis=0).tolist()


def embedding(measure, backbone, integers, images):
    """The integer network and the exact one, compared with floating point. integers: None where
    there is none."""
    kinds = {'embedding, exact': ({'chunk': 16}, 'exact', images[:16])}
    if integers is not None:
        kinds['embedding in integers'] = {'integers': integers}, 'integer', images
    for stage, (options, dtype, some) in kinds.items():
        ours = Embedder(*backbone, dtype, **options)
        floats = Embedder(*backbone, chunk=ours.chunk)
        times = measure(partial(ours.features, some), partial(floats.features, some))
        yield Row(stage, *times, 'the same network in float32')


def vectors(measure):
    """Feature vectors: learned and predicted, with few classes and with many."""
    X = np.random.default_rng(0).normal(size=(SAMPLES, 256)).astype(np.float32)
    labels = np.arange(SAMPLES)

    def learn(classes):
        learner = Scroll(buffer_size=0).partial_fit(X, labels % classes)
        learner.predictor()
        return learner

    theirs = RidgeClassifier()
    wide = X.astype(float)
    for classes in (10, 100, 1000):
        times = measure(partial(learn, classes), partial(theirs.fit, wide, labels % classes))
        yield Row(f'learning {SAMPLES:,} vectors, {classes:,} classes', *times, 'RidgeClassifier')
        times = measure(partial(learn(classes).predict, X), partial(theirs.predict, wide))
        yield Row('predicting them', *times, 'RidgeClassifier')


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
    yield Row('adaptation, an update of the adapters', small, full, 'full tuning')
    yield Row('the same, exact', update('adapters', exact=True), small, 'in float32')
    if resolve_precision('auto') == 'bfloat16':
        coarse = update('adapters', precision='bfloat16')
        yield Row('adaptation in bfloat16', coarse, small, 'in float32')


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


def steps(measure, name: str, input_size: int):
    """A step of ER in bfloat16."""
    if resolve_precision('auto') == 'bfloat16':
        kinds = [er_step(name, input_size, precision)[1] for precision in ('bfloat16', 'float32')]
        for step in kinds:
            step()  # without memory
        yield Row('a step of `er` in bfloat16', *measure(*kinds), 'in float32')


def main():
    parts = 'embedding', 'vectors', 'adaptation', 'er'
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag('--weights', default=weights.DEFAULT)
    flag('--input_size', type=whole(1), help='pixels (default: what the weights say)')
    flag('--only', choices=parts, help='one part of the table')
    flag('--rounds', type=whole(1), default=5, help='of which the fastest counts')
    options = parser.parse_args()
    reuse_memory()
    backbone = weights.network(options.weights, options.input_size)
    has_integers = weights.has_integers(options.weights, options.input_size)
    integers = weights.integers_of(options.weights, *backbone) if has_integers else None
    images = np.random.default_rng(0).integers(0, 256, (512, 32, 32, 3), dtype=np.uint8)
    print(
        f'torch {torch.__version__}, threads {torch.get_num_threads()}, cores {os.cpu_count()}, '
        f'instructions {torch.backends.cpu.get_cpu_capability()}, backbone {options.weights}\n'
        '| stage | ours | alternative | takes | ratio |\n|' + 5 * '---|'
    )
    measure = partial(fastest, rounds=options.rounds)
    tables = (
        embedding(measure, backbone, integers, images),
        vectors(measure),
        adaptation(backbone, images, 5 * options.rounds),
        steps(measure, options.weights, backbone[1].input_size),
    )
    for part, rows in zip(parts, tables):
        if options.only in (None, part):
            for row in rows:
                print(row.markdown(), flush=True)
