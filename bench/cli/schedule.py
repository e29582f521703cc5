"""A schedule's effect on a data set: as a picture, or whether it is sound.

python scripts/schedule.py plot split:5 blurry iid --dataset seq-cifar10  # in one scale
python scripts/schedule.py check file:stream.txt --dataset seq-digits
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


def check(schedule, labels: np.ndarray) -> None:
    """Print facts; one that is not sound has ended in one line and exit code 2."""
    sizes = np.diff(schedule.cuts)
    count = len(schedule.order)
    arrived = labels[schedule.order]
    segment_of = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.unique([arrived, segment_of], axis=1)
    whole = pairs.shape[1] == len(np.unique(arrived))
    covers = {
        'all': 'each sample once',
        'part': f'{count} of {len(labels)} samples, each once',
        'repeats': f'{len(np.unique(schedule.order))} of {len(labels)} samples, some of them again',
    }
    facts = {
        'samples': f'{count} ({covers[schedule.covers]})',
        'permutation': (
            'yes' if schedule.covers == 'all' else 'no: no method can be exactly invariant to it'
        ),
        'segments': f'{len(sizes)} of {sizes.min()} to {sizes.max()} samples',
        'tasks': 'none (general-continual)' if schedule.task_free else str(len(schedule.tasks) - 1),
        'each class in one segment': (
            'yes: a herded buffer is the same as under any such schedule of these samples'
            if whole
            else 'no'
        ),
        'digest': schedule.digest(),
    }
    for name, text in facts.items():
        print(f'{name:<26} {text}')


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0], epilog=GRAMMAR)
    flag = parser.add_argument
    flag('command', choices=('plot', 'check'))
    flag('schedules', nargs='+', metavar='schedule', help='see below')
    flag('--dataset', default='seq-digits')
    flag('--out', type=Path, default=Path('schedule.png'), help='plot draws it, and its .svg')
    options, others = parser.parse_known_args()
    if options.command == 'plot':
        if options.out.suffix not in ('.png', '.svg'):
            raise InputError(f'--out {options.out}: expected a name that ends in .png or .svg')
        check_target(options.out, '--out')
    pictures = {}
    for spec in options.schedules:
        dataset = get_dataset(
            cli.parse_args(
                ['--model', 'scroll', '--dataset', options.dataset, '--schedule', spec, *others]
            )
        )
        schedule = dataset.schedule
        labels = dataset.train_labels
        if options.command == 'plot':
            pictures[spec] = arrivals(schedule, labels, min(_PARTS, len(schedule.order)))
        else:
            check(schedule, labels)
    if pictures:
        print(
            plots.schedule_picture(options.out, pictures, f'What arrives when, {options.dataset}')
        )
