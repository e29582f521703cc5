"""Picture of what arrives when under schedules, in one scale.

python scripts/schedule.py split:5 blurry iid --dataset seq-cifar10
"""

from pathlib import Path

import numpy as np

from bench.cli import parsing as cli
from bench.results import plots
from core.arguments import ArgumentParser
from datasets import get_dataset
from scroll.streams.schedules import GRAMMAR


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
    plots.check_out(options.out)
    pictures = {}
    for spec in options.schedules:
        words = ['--model', 'scroll', '--dataset', options.dataset, '--schedule', spec, *others]
        dataset = get_dataset(cli.parse_args(words))
        # columns of the picture
        parts = min(100, len(dataset.schedule.order))
        pictures[spec] = arrivals(dataset.schedule, dataset.train_labels, parts)
    print(plots.schedule_picture(options.out, pictures, f'What arrives when, {options.dataset}'))
