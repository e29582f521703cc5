"""Picture of what arrives when under schedules, in one scale.

python scripts/schedule.py split:5 blurry iid --dataset seq-cifar10
"""

from pathlib import Path

import numpy as np

from bench.cli import parsing as cli
from bench.results import plots
from core.arguments import ArgumentParser
from datasets import get_dataset
from scroll.ground.archive import check_target
from scroll.ground.errors import InputError
from scroll.streams.schedules import GRAMMAR

_PARTS = 100  # columns of a picture


def arrivals(schedule, labels: np.ndarray, bins: int) -> np.ndarray:
    """int64 (K, bins): samples of each class in each of equally long parts of the stream."""
    part = np.arange(len(schedule.order)) * bins // len(schedule.order)
    counts = np.zeros((int(labels.max()) + 1, bins), np.int64)
    np.add.at(counts, (labels[schedule.order], part), 1)
    return counts


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0], epilog=GRAMMAR)
    flag = parser.add_argument
    flag('schedules', nargs='+', metavar='schedule', help='see below')
    flag('--dataset', default='seq-digits')
    flag('--out', type=Path, default=Path('schedule.png'), help='draw it, and its .svg')
    options, others = parser.parse_known_args()
    if options.out.suffix not in ('.png', '.svg'):
        raise InputError(f'--out {options.out}: expected a name that ends in .png or .svg')
    check_target(options.out, '--out')
    pictures = {}
    for spec in options.schedules:
        words = ['--model', 'scroll', '--dataset', options.dataset, '--schedule', spec, *others]
        dataset = get_dataset(cli.parse_args(words))
        parts = min(_PARTS, len(dataset.schedule.order))
        pictures[spec] = arrivals(dataset.schedule, dataset.train_labels, parts)
    print(plots.schedule_picture(options.out, pictures, f'What arrives when, {options.dataset}'))
