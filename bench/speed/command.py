"""Speed and memory as ratios, both sides of each measured in turn in one process: `make bench`.

Random images of CIFAR's size stand in for data: no stage looks at what is in them. A time is the least of
several rounds; with one thread (`OMP_NUM_THREADS=1`) it is processor time, so that other work on the
machine counts for little. `ratio` is ours divided by what stands beside it, and the smaller the better; the
target is the largest ratio, or number, that is wanted. The peak is what this process measures for a float32
matrix product, or for copying memory.
"""
import json
import os

import numpy as np
import torch

from backbone import weights
from bench.run.devices import reuse_memory
from bench.speed import (
    library,
    training,
)
from bench.speed.timing import peaks
from core.arguments import ArgumentParser, whole
from scroll.embedding.machine import in_words
from scroll.errors import InputError


def measure(backbone, integers, images, rounds: int, features: int, peak):
    """Yield the lines of the table, as they are measured.

    Args:
        integers: the integer network made from backbone, or None. features: length of the stream whose memory
            is watched.
    """
    dim = backbone[0].feature_dim
    yield from library.online_stage(backbone, images[:512], rounds, peak)
    if integers is not None:
        yield from library.embedding_in_integers(backbone, integers, images[:512], rounds)
    yield from library.exact_statistics(dim, 3 * rounds, peak)
    yield from library.buffers(dim, rounds)
    yield from library.a_class_comes_and_goes(rounds, max(features // 2000, 2))
    yield from library.adaptation(backbone, images, rounds)
    yield from training.steps(backbone, images, rounds, peak)
    yield from training.mixed_step(backbone, images, 2 * rounds, peak)
    yield from training.narrow_step(images, 2 * rounds, peak)
    yield from training.loading(backbone, images, rounds, peak)
    yield from training.evaluation(backbone, images[:512], rounds, peak)
    yield from training.start(images, min(rounds, 3))
    yield from library.million_features(features)


def amount(value, unit: str) -> str:
    """A number of seconds or megabytes, to be read."""
    if value is None:
        return ''
    return f'{value:.0f} MB' if unit == 'MB' else f'{value:.2f} s' if value >= 1 else f'{1e3 * value:.3g} ms'


def shown(line) -> str:
    """A line as a row of a Markdown table."""
    target = ''
    if line.target is not None:
        target = f'{line.target:.2f}' if line.beside is not None else amount(line.target, line.unit)
    cells = (line.stage, amount(line.ours, line.unit), line.against, amount(line.beside, line.unit),
             '' if line.ratio is None else f'{line.ratio:.2f}', target,
             {None: '', True: 'yes', False: 'no'}[line.met],
             '' if line.share is None else f'{line.share:.0%} ({line.peak})')
    return '| ' + ' | '.join(cells) + ' |'


def random_images(count: int) -> np.ndarray:
    """uint8 (count, 32, 32, 3)."""
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def er_alone(backbone, options) -> None:
    """Lines on a step of `er` on one device."""
    device = torch.device(options.er_on)
    if device.type == 'cuda' and not torch.cuda.is_available():
        raise InputError(f'--er_on {options.er_on}: torch finds no such device here')
    images = random_images(options.images)
    print(f'{in_words(device)}, {options.weights}')
    for line in training.steps_on(device, backbone, images, options.rounds):
        facts = vars(line) | dict(ratio=line.ratio)
        print(json.dumps(facts) if options.json else shown(line), flush=True)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--weights', default=weights.DEFAULT)
    parser.add_argument('--rounds', type=whole(1), default=5, help='of which the fastest counts')
    parser.add_argument('--images', type=whole(500), default=1000, help='of an epoch of the loader')
    parser.add_argument('--features', type=whole(1), default=1_000_000,
                        help='length of the stream whose memory is watched')
    parser.add_argument('--json', action='store_true', help='one object a line instead of the table')
    parser.add_argument('--er_on', metavar='DEVICE',
                        help='a step of `er` alone, on this device: eager, compiled, and as CUDA graphs')
    options = parser.parse_args()
    reuse_memory()
    backbone = weights.network(options.weights)
    if options.er_on:
        er_alone(backbone, options)
        return
    peak = peaks(2 * options.rounds)
    integers = None
    if weights.has_integers(options.weights):
        integers = weights.integers_of(options.weights, *backbone)
    images = random_images(options.images)
    machine = dict(torch=torch.__version__, threads=torch.get_num_threads(), cores=os.cpu_count(),
                   instructions=torch.backends.cpu.get_cpu_capability(), backbone=options.weights,
                   features=backbone[0].feature_dim,
                   pixels=backbone[1].input_size, gigaflops=round(peak[0] / 1e9, 1),
                   gigabytes_a_second=round(peak[1] / 1e9, 1))
    if options.json:
        print(json.dumps(machine))
    else:
        print(', '.join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()) + '\n')
        print('| stage | ours | beside | takes | ratio | target | met | share of peak |\n'
              '|---|---|---|---|---|---|---|---|')
    for line in measure(backbone, integers, images, options.rounds, options.features, peak):
        facts = vars(line) | dict(ratio=line.ratio, met=line.met)
        print(json.dumps(facts) if options.json else shown(line), flush=True)
