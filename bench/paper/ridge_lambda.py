"""Which lambda ridge should have, by the training data alone: GCV beside exact leave-one-out.

    python scripts/ridge_lambda.py --dataset seq-cifar100

Prints a line and writes a CSV row for each lambda of a grid and for each choice: GCV (generalised
cross-validation, from the statistics alone: what `--ridge_lambda auto` takes), leave-one-out by squared error
and by accuracy (one pass over the features), and the value that `scripts/tune.py` found on held-out samples.
Errors are squared, summed over classes, means over samples. The test accuracy stands beside and chooses
nothing.
"""
import functools
from pathlib import Path

import pandas as pd

from bench.cli import parsing as cli
from bench.run.building import initialize
from core.arguments import ArgumentParser
from core.configs import model_config
from scroll.archive import atomic_write, check_target
from scroll.errors import InputError
from scroll.heads import predictors
from scroll.heads.ridge_lambda import choose_lambda, gcv, left_out, search, spectrum
from scroll.statistics import Statistics

GRID = (.0001, .000316, .001, .00316, .01, .0316, .1, .316, 1., 3.16, 10., 31.6, 100., 316., 1000.)
COLUMNS = ('ridge_lambda', 'gcv', 'left_out_error', 'left_out_accuracy', 'test_accuracy', 'chosen_by')


def parse_args():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--weights', default='compact')
    parser.add_argument('--ridge_targets', choices=predictors.TARGETS, default='pm1')
    parser.add_argument('--base_path', default='./data/')
    parser.add_argument('--out', type=Path,
                        help='CSV file (default: <base_path>/tuning/<dataset>-ridge_lambda.csv)')
    return parser.parse_args()


def table(train: tuple, test: tuple, targets: str, tuned: float = None) -> list:
    """Rows of `COLUMNS` by ascending lambda; accuracies in percent.

    Args:
        train, test: (quantised features (N, d), labels (N,)). tuned: a lambda to show beside, or None.
    """
    statistics = Statistics(train[0].shape[1]).add(*train)
    of = spectrum(statistics, targets)

    @functools.cache
    def errors(lambdas: tuple) -> tuple:
        return left_out(of, lambdas, *train)

    choices = {'GCV': choose_lambda(statistics, targets), 'tuning': tuned,
               'leave-one-out error': search(lambda lambdas: errors(tuple(lambdas))[0]),
               'leave-one-out accuracy': search(lambda lambdas: 1 - errors(tuple(lambdas))[1])}
    lambdas = tuple(sorted({*GRID, *choices.values()} - {None}))
    rows = []
    for value, score, error, share in zip(lambdas, gcv(of, lambdas), *errors(lambdas)):
        right = predictors.ridge(statistics, value, targets).predict(test[0]) == test[1]
        chosen_by = ' and '.join(name for name, choice in choices.items() if choice == value)
        rows.append(dict(zip(COLUMNS, (value, score, error, 100 * share, 100 * right.mean(), chosen_by))))
    return rows


def write(path: Path, rows: list) -> None:
    """The rows as a CSV file. InputError if it cannot be written."""
    try:
        with atomic_write(path) as file:
            pd.DataFrame(rows).to_csv(file, index=False)
    except OSError as error:
        raise InputError(f'--out {path} cannot be written ({error.strerror})') from error


def main():
    options = parse_args()
    if options.out:
        check_target(options.out, '--out')
    args = cli.parse_args(['--model', 'scroll', '--dataset', options.dataset, '--weights', options.weights,
                           '--base_path', options.base_path, '--disable_log', '1'])
    model, dataset, args = initialize(args)
    images, embed = dataset.images, model.embedder
    train, test = ((embed(x)[0], y)
                   for x, y in ((images.train, images.train_labels), (images.test, images.test_labels)))
    embed.cache.flush()
    tuned = model_config('scroll', 'best', vars(args))[0].get('ridge_lambda')
    rows = table(train, test, options.ridge_targets, tuned)
    print('| lambda | GCV | leave-one-out error | leave-one-out accuracy | test accuracy | chosen by |\n'
          + '|---' * 6 + '|')
    for row in rows:
        print('| {:g} | {:.5f} | {:.5f} | {:.2f} | {:.2f} | {} |'.format(*row.values()))
    path = options.out or Path(options.base_path) / 'tuning' / f'{args.dataset}-ridge_lambda.csv'
    write(path, rows)
    print(path)
