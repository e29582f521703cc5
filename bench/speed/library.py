"""Stages of SCROLL: embedding, statistics, buffers, adaptation, a stream of a million feature vectors."""
import copy
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch

from bench.speed.timing import Line, clock, fastest, operations
from core.plugins import ROOT
from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import adapt
from scroll.embedding.cache import FeatureCache
from scroll.embedding.embedder import Embedder
from scroll.grid import quantise
from scroll.learner import Scroll
from scroll.statistics import Statistics


def online_stage(backbone, images, rounds, peak) -> list:
    """The online stage of a learner, on images never seen and on cached ones, beside
    the forward pass on ready inputs."""
    net, preprocessing = backbone
    embedder, labels = Embedder(net, preprocessing), np.arange(len(images)) % 100
    bare = copy.deepcopy(net).to(memory_format=torch.channels_last)
    x = preprocessing(torch.from_numpy(images[:embedder.chunk])).contiguous(memory_format=torch.channels_last)

    def forward():
        with torch.inference_mode():
            for _ in range(len(images) // embedder.chunk):
                bare.features(x)

    def online(parts=2):
        learner = Scroll(embedder, buffer_size=500)
        for part in np.array_split(np.argsort(labels, kind='stable'), parts):
            learner.partial_fit(images[part], labels[part])

    def cached():
        embedder.cache = FeatureCache(embedder.cache.folder, embedder.dim)
        online(parts=50)

    ours, plain = fastest(online, forward, rounds=rounds)
    with torch.no_grad():
        per_image = operations(lambda: bare.features(x)) / len(x)
    with tempfile.TemporaryDirectory() as folder:
        embedder.cache = FeatureCache(Path(folder), embedder.dim)
        embedder(images)
        embedder.cache.flush()
        again, forward_again = fastest(cached, forward, rounds=rounds)
    return [Line('online stage', ours, plain, 'bare forward pass',
                 share=len(images) * per_image / ours / peak[0],
                 peak='product'),
            Line('online stage, cached features, 50 tasks', again, forward_again, 'bare forward pass')]


def embedding_in_integers(backbone, integers, images, rounds) -> list:
    """Features by the integer network beside those of the network it was made from, in float32."""
    plain, exact = Embedder(*backbone), Embedder(*backbone, 'integer', integers=integers)
    ours, other = fastest(lambda: exact.features(images), lambda: plain.features(images), rounds=rounds)
    return [Line('embedding in integers', ours, other, 'the same network in float32', 1 / 0.9)]


def exact_statistics(dim, rounds, peak, count=20_000) -> list:
    """The exact statistics of features of 100 classes beside X'X in float64, with the constant column."""
    features = quantise(np.random.default_rng(0).normal(size=(count, dim)))
    x = np.concatenate([features / 2.0 ** 18, np.ones((count, 1))], axis=1)
    labels = np.arange(count) % 100
    ours, plain = fastest(lambda: Statistics(dim).add(features, labels).gram, lambda: x.T @ x, rounds=rounds)
    return [Line(f'exact statistics of {count:,} features', ours, plain, "float64 X'X",
                 share=2 * count * (dim + 1) ** 2 / ours / peak[0], peak='product')]


def buffers(dim, rounds, count=20_000) -> list:
    """Statistics and buffer of 500, two classes a segment, beside the statistics alone."""
    features = quantise(np.random.default_rng(0).normal(size=(count, dim)))
    labels, lines = np.repeat(np.arange(100), count // 100), []

    def run(size, strategy='herding'):
        learner = Scroll(buffer_size=size, strategy=strategy)
        for part in np.array_split(np.arange(count), 50):
            learner.learn(features[part], features[part], part.astype(np.uint64), labels[part])
        return learner.statistics_.gram

    for strategy in ('herding', 'hash'):
        ours, plain = fastest(partial(run, 500, strategy), partial(run, 0), rounds=rounds)
        lines.append(Line(f'statistics and {strategy} buffer, {count:,} features', ours, plain,
                          'statistics alone'))
    return lines


def a_class_comes_and_goes(rounds, count, dim=768, others=99) -> list:
    """A class of so many features comes to others, and goes, each time with f_T made anew."""
    random, lines = np.random.default_rng(0), []
    for head in ('ridge', 'lda'):
        learner = Scroll(head=head, buffer_size=500)
        for label in range(others):
            learner.partial_fit(random.normal(size=(count, dim)), [label] * count)
        one = random.normal(size=(count, dim))

        def comes(learner=learner, one=one):
            learner.partial_fit(one, [others] * count).predictor()

        def goes(learner=learner, one=one):
            learner.remove_class(others, one).predictor()

        for what, seconds in zip(('learned', 'removed'), fastest(comes, goes, rounds=rounds)):
            lines.append(Line(f'a class of {count} features {what}, d = {dim}, {head} anew', seconds,
                              target=1.0))
    return lines


def adaptation(backbone, images, rounds, updates=5) -> list:
    """An update of the adapters beside one of the whole network: the
    fastest of all, augmentation included."""
    embedder = Embedder(*backbone)
    learner = Scroll(embedder, buffer_size=500).partial_fit(images[:500], np.arange(500) % 100)
    given = embedder, learner.predictor(), learner.buffer_.content()

    def update(mode):
        ends = []
        adapt(*given, Adaptation(mode=mode, iterations=updates), progress=lambda loss: ends.append(clock()))
        return min(np.diff(ends))

    small, full = (float(min(times))
                   for times in zip(*((update('adapters'), update('full')) for _ in range(rounds))))
    return [Line('adaptation, an update of the adapters', small, full, 'full tuning', 1 / 1.5)]


def million_features(count=1_000_000) -> list:
    """Memory of a process of its own that learns from so many feature vectors, 512 wide."""
    command = [sys.executable, '-m', 'bench.speed.memory', str(count)]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    early, late = map(float, out.split())
    return [Line(f'memory after {count:,} features of 512', late, unit='MB', target=1000),
            Line('the same', late, early, 'after a tenth of them', unit='MB')]
