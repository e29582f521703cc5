#!/usr/bin/env python3
"""Speed and memory of SCROLL's stages as ratios, each pair measured in turn in this one process: `make bench`.

Random images of CIFAR's size stand in for data: no stage looks at what is in them. Each figure is the median over rounds.
"""
import argparse
import copy
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from backbone import get_backbone_class, weights  # noqa: E402
from datasets.utils.loader import ImageLoader, InMemoryDataset  # noqa: E402
from models.er import Er  # noqa: E402
from scroll.adaptation import Adaptation, adapt  # noqa: E402
from scroll.embedding import Embedder, FeatureCache, quantise  # noqa: E402
from scroll.images import Preprocessing  # noqa: E402
from scroll.learner import Scroll  # noqa: E402
from scroll.statistics import Statistics  # noqa: E402
from utils.augmentations import BatchTransform  # noqa: E402
from utils.errors import run_command  # noqa: E402


def seconds(*functions, rounds: int) -> list:
    """Median seconds of each function, called in turn `rounds` times after one call each that does not count."""
    times = [[] for _ in functions]
    for _ in range(rounds + 1):
        for row, function in zip(times, functions):
            began = time.perf_counter()
            function()
            row.append(time.perf_counter() - began)
    return [float(np.median(row[1:])) for row in times]


def load_psi(name: str):
    """The network, its input and the weights' description; untrained where there are no such weights."""
    about = weights.load(name)
    net = get_backbone_class(about.backbone)(num_classes=1, **about.options)
    about.load_into(net)
    return net.eval(), Preprocessing(about.input_size, about.mean, about.std)


def online_stage(net, preprocessing, rounds, images, dtype):
    """(images/s of the bare forward pass, of the online stage) with the same batch, dtype and layout."""
    embedder = Embedder(net, preprocessing, dtype)
    bare = net.to(memory_format=torch.channels_last)
    x = preprocessing(torch.from_numpy(images[:embedder.chunk])).contiguous(memory_format=torch.channels_last)
    labels = np.arange(len(images)) % 100

    def forward():
        with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16, enabled=dtype == 'bfloat16'):
            for _ in range(len(images) // embedder.chunk):
                bare.features(x)

    def online():
        learner = Scroll(embedder, buffer_size=500)
        for part in np.array_split(np.arange(len(images)), 2):
            learner.partial_fit(images[part], labels[part])

    return [len(images) / s for s in seconds(forward, online, rounds=rounds)]


def cached_stage(net, preprocessing, rounds, images):
    """Images/s of the online stage when all features are on disk, opening the cache included."""
    labels = np.arange(len(images)) % 100
    with tempfile.TemporaryDirectory() as folder:
        first = Embedder(net, preprocessing, cache=folder)
        first(images)
        first.cache.flush()

        def run():
            first.cache = FeatureCache(first.cache.folder, first.dim)
            learner = Scroll(first, buffer_size=500)
            for part in np.array_split(np.argsort(labels, kind='stable'), 50):
                learner.partial_fit(images[part], labels[part])
        return len(images) / seconds(run, rounds=rounds)[0]


def gram(rounds, dim):
    """Seconds of (float64 X'X with a bias column, the exact statistics) for 20,000 features."""
    features = quantise(np.random.default_rng(0).normal(size=(20_000, dim)))
    x = np.concatenate([features / 2.0 ** 18, np.ones((len(features), 1))], axis=1)
    labels = np.arange(len(features)) % 100
    return seconds(lambda: x.T @ x, lambda: Statistics(dim).add(features, labels), rounds=rounds)


def buffers(rounds, dim, strategy):
    """Seconds to offer 20,000 features of 100 classes, two classes a segment, to a buffer of 500."""
    features = quantise(np.random.default_rng(0).normal(size=(20_000, dim)))
    labels = np.repeat(np.arange(100), 200)

    def run():
        learner = Scroll(buffer_size=500, strategy=strategy)
        for part in np.array_split(np.arange(len(features)), 50):
            learner.learn(features[part], features[part], part.astype(np.uint64), labels[part])
    return seconds(run, rounds=rounds)[0]


def adaptation(net, preprocessing, rounds, images):
    """Images/s of updates of (adapters, the whole network)."""
    labels, embedder = np.arange(500) % 100, Embedder(net, preprocessing)
    learner = Scroll(embedder, buffer_size=500).partial_fit(images[:500], labels)
    arguments = embedder, learner.predictor(), learner.buffer_.content()
    runs = [lambda m=m: adapt(*arguments, Adaptation(mode=m, iterations=8)) for m in ('adapters', 'full')]
    return [8 * 50 / s for s in seconds(*runs, rounds=rounds)]


def er_step(net, preprocessing, rounds, images, batch=32, steps=10):
    """Seconds of (forward, backward and update of 2 x 32 ready inputs, a step of ER with loading, replay and insertion)."""
    args = argparse.Namespace(lr=0.01, optimizer='sgd', optim_wd=0, optim_mom=0, optim_nesterov=False, device='cpu', seed=0,
                              buffer_size=500, minibatch_size=batch)
    transform = BatchTransform(preprocessing, 4, True, 0)
    stream = InMemoryDataset(images[:steps * batch], torch.arange(steps * batch) % 100, transform)
    net = copy.deepcopy(net).train().to(memory_format=torch.channels_last)
    net.classifier = torch.nn.Linear(net.feature_dim, 100)
    method = Er(net, torch.nn.functional.cross_entropy, args, transform)
    method.buffer.add_data(torch.from_numpy(images[-500:]), torch.arange(500) % 100)
    x = preprocessing(torch.from_numpy(images[:2 * batch])).contiguous(memory_format=torch.channels_last)
    y = torch.arange(2 * batch) % 100

    def bare():
        for _ in range(steps):
            method.opt.zero_grad()
            method.loss(method.net(x), y).backward()
            method.opt.step()

    def er():
        for batch_of in ImageLoader(stream, batch, shuffle=True).serve(Er.RAW_STREAM, Er.RAW_NOT_AUG, 'cpu'):
            method.observe(*batch_of)
    return [s / steps for s in seconds(bare, er, rounds=rounds)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('--weights', default=weights.DEFAULT)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--images', type=int, default=2048)
    options = parser.parse_args()
    net, preprocessing = load_psi(options.weights)
    images = np.random.default_rng(0).integers(0, 256, (options.images, 32, 32, 3), dtype=np.uint8)
    dim = net.feature_dim
    print(f'torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, '
          f'{os.cpu_count()} cores; psi {options.weights}, {dim} features at {preprocessing.input_size} px\n')
    print('| stage | measured | beside | ratio |\n|---|---|---|---|')
    for dtype in ('float32', 'bfloat16'):
        bare, online = online_stage(net, preprocessing, options.rounds, images, dtype)
        print(f'| online stage, {dtype} | {online:.0f} images/s | bare forward pass {bare:.0f} images/s | {online / bare:.2f} |')
    cached = cached_stage(net, preprocessing, options.rounds, np.concatenate([images] * 2 + [255 - images] * 2))
    print(f'| online stage, cached | {cached:.0f} images/s | 50,000 images in {50_000 / cached:.2f} s | |')
    plain, exact = gram(options.rounds, dim)
    print(f"| exact statistics | {1e3 * exact:.0f} ms for 20,000 | float64 X'X {1e3 * plain:.0f} ms | {exact / plain:.2f} |")
    for strategy in ('herding', 'hash'):
        s = buffers(options.rounds, dim, strategy)
        print(f'| statistics and {strategy} buffer | {20_000 / s:.0f} features/s | | |')
    small, full = adaptation(net, preprocessing, options.rounds, images)
    print(f'| updates of adapters | {small:.0f} images/s | of the whole network {full:.0f} images/s | {small / full:.2f} |')
    bare, step = er_step(net, preprocessing, options.rounds, images)
    print(f'| a step of `er`, 32 + 32 | {1e3 * step:.0f} ms | the network alone {1e3 * bare:.0f} ms | {step / bare:.2f} |')
    state = Statistics(dim).add(quantise(np.ones((100, dim))), np.arange(100))
    size = sum(a.nbytes for a in (state.classes, state.counts, state.sums, state.gram))
    print(f'| state for 100 classes | {size / 1e6:.2f} MB | whatever the number of samples | |')


if __name__ == '__main__':
    sys.exit(run_command(main))
