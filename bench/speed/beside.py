"""SCROLL beside what others keep and fit, in two tables.

    python scripts/beside.py                                                # as in `make bench`: minutes
    python scripts/beside.py --dataset seq-cifar100 --out results/bench     # and with features of a data set
    python scripts/beside.py --requests 100 --downdates 200 --samples 2000 --dims 16    # seconds

`requests.csv`: what random requests to add, merge and remove, then samples removed one by one, leave of exact
sums, of float64 sums and of recursive least squares. `learners.csv`: time and accuracy beside scikit-learn's
linear classifiers, on synthetic features of each width in `--dims`, and with `--dataset` on those of a
backbone; flags of main.py go behind. With one thread (`OMP_NUM_THREADS=1`) seconds are processor time.
"""
from itertools import chain
from pathlib import Path

import numpy as np
import sklearn

from bench.paper.report import write_rows
from bench.speed import learners, requests
from bench.speed.tables import learner_lines, request_lines
from core.arguments import ArgumentParser, whole
from scroll.embedding.machine import in_words
from scroll.errors import InputError
from scroll.grid import GRID


def features_of(dataset: str, flags: list) -> learners.Data:
    """Features of a data set's images by the backbone of a run with these flags; those to learn shuffled."""
    from bench.cli.parsing import parse_args
    from bench.run.building import initialize
    from datasets.utils.scheduled_dataset import ScheduledDataset
    model, data, _ = initialize(parse_args(['--model', 'scroll', '--dataset', dataset, '--disable_log', '1',
                                            *flags]))
    if not isinstance(data, ScheduledDataset):
        raise InputError(f'--dataset {dataset}: expected one that schedules can cut')
    train, test = (model.embedder(images)[0] / float(GRID)
                   for images in (data.images.train[data.train_ids], data.test_images))
    order = np.random.default_rng(0).permutation(len(train))
    return learners.Data(data.NAME, train[order], data.train_labels[order], test, data.test_labels)


def parse_options(words=None) -> tuple:
    """(the script's own options, flags of main.py)."""
    parser = ArgumentParser(prog='beside.py', description=__doc__)
    flag = parser.add_argument
    flag('--requests', type=whole(1), default=10_000, help='random ones to add, merge or remove')
    flag('--downdates', type=whole(1), default=100_000, help='samples removed one by one')
    flag('--dim', type=whole(1, 4096), default=64, help='width of the features of these')
    flag('--samples', type=whole(500), default=50_000, help='of which learners learn')
    flag('--dims', type=whole(2, 4096), nargs='*', default=[512, 768], help='widths of synthetic features')
    flag('--dataset', help="also on a data set's features")
    flag('--out', type=Path, help='folder of requests.csv and learners.csv')
    options, flags = parser.parse_known_args(words)
    if flags and options.dataset is None:
        raise InputError(f'{flags[0]}: no such flag here; those of main.py go with --dataset')
    return options, flags


def main():
    options, flags = parse_options()
    own = [features_of(options.dataset, flags)] if options.dataset else []
    machine = f'{in_words()}, scikit-learn {sklearn.__version__}'
    print(f'{machine}\n', flush=True)
    found = dict(requests=[row | dict(machine=machine) for row in requests.measure(
        options.dim, options.requests, options.downdates)])
    print('\n'.join(request_lines(found['requests'])), end='\n\n', flush=True)
    made = (learners.synthetic(dim, options.samples) for dim in options.dims)
    found['learners'] = [row | dict(machine=machine) for data in chain(made, own)
                         for row in learners.measure(data)]
    print('\n'.join(learner_lines(found['learners'])), flush=True)
    for name, rows in found.items():
        if options.out:
            write_rows(options.out / f'{name}.csv', rows)
            print(options.out / f'{name}.csv')
