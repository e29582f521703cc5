#!/usr/bin/env python3
"""How much the order of the classes matters to a method: easy, hard and random orders.

    python scripts/orders.py --dataset seq-digits --model er-ace --buffer_size 200 --num_threads 1
    python scripts/orders.py --dataset seq-cifar100 --model scroll --weights small --tasks 10

`--orders` random orders, the *easiest*, with classes alike to the frozen backbone in one task, and
the *hardest*, which deals them out to different tasks, are run under `--seeds` seeds. SCROLL is run
as f_T. A run whose loss ends up infinite counts as 0 %. Runs are kept, so the same command resumes
a killed study; the rows go to `<--keep>/<dataset>.csv`, of which the table of docs/orders.md is
printed. Flags of main.py go behind the script's own.
"""

if __name__ == '__main__':
    import _root

    _root.run('scripts.orders')

from pathlib import Path

import numpy as np

from backbone import weights
from bench import load_runner
from bench.certify import command
from bench.certify.store import Store, keep_rows
from bench.paper.documents import orders_table
from core.arguments import ArgumentParser, whole
from core.loss_watch import Diverged
from scroll.ground.errors import InputError
from scroll.ground.progress import Progress
from scroll.ground.randomness import numpy_stream
from scroll.sums.statistics import Statistics

COLUMNS = (
    'model',
    'kind',
    'schedule',
    'seed',
    'final_accuracy',
    'average_incremental_accuracy',
    'anytime_area',
    'net_digest',
)
NO_CHECKS = '--schedules 0 --specs= --stream_check 0 --buffers 0 --curve_points 0'


def main() -> None:
    parser = ArgumentParser(prog='orders.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True, help='one that main.py --help names')
    flag('--model', default='scroll', help='any method')
    flag('--tasks', type=whole(2), help="of every order (default: the data set's own number)")
    flag('--orders', type=whole(2), default=10, help='random ones')
    flag('--seeds', type=whole(1), default=3, help='0, 1, ...')
    flag('--keep', type=Path, metavar='FOLDER', help='put the rows into <FOLDER>/<dataset>.csv')
    options, flags = parser.parse_known_args()
    for name in (word.partition('=')[0] for word in flags):
        if name in ('--seed', '--permute_classes', '--custom_class_order'):
            raise InputError(f'{name} is varied here (--seeds, --orders); leave the flag out')

    model_words = ['--dataset', options.dataset, '--model', options.model]
    of_certificate, _ = command.parse_options([*model_words, *NO_CHECKS.split()])
    by_seed = []
    for seed in range(options.seeds):
        words = command.of_main(options.model, options.dataset, [*flags, '--seed', str(seed)])
        by_seed.append(command.prepare(of_certificate, words))
    method, dataset, args = by_seed[0].identity['model'], by_seed[0].dataset, by_seed[0].args
    classes = np.unique(dataset.train_labels)
    tasks = options.tasks or dataset.N_TASKS
    if not 2 <= tasks <= len(classes):
        raise InputError(
            f'--tasks {tasks}: expected 2..{len(classes)}, of the classes of {options.dataset}'
        )
    near = chain(separations(class_statistics(options.dataset, args)))
    random = numpy_stream(0, 'class orders')
    orders = [('easiest', near), ('hardest', dealt(near, tasks))]
    orders += [('random', random.permutation(len(classes))) for _ in range(options.orders)]

    store = Store(Path(args.base_path) / 'certificates' / dataset.NAME / method)
    rows = []
    runs = [(seed, kind, order) for seed in range(options.seeds) for kind, order in orders]
    for seed, kind, order in Progress('Orders', len(runs)).over(runs):
        spec = f'split:{tasks},order={"-".join(map(str, classes[order].tolist()))}'
        try:
            (row,), _ = command.run_all(by_seed[seed]._replace(specs=[spec]), store, quiet=True)
        except Diverged:
            row = dict.fromkeys(COLUMNS, 0.0) | {'net_digest': ''}
        rows.append(row | {'kind': kind, 'schedule': spec, 'seed': seed})
    path = (options.keep or store.folder / 'orders') / f'{dataset.NAME}.csv'
    keep_rows(path, COLUMNS, method, rows)
    print(f'{orders_table(path)}\n{path}')


def class_statistics(dataset: str, args) -> Statistics:
    """Statistics by class of the features of the run's backbone, or of the default one where the
    run's is not pre-trained.
    """
    flags = {
        name: getattr(args, name)
        for name in ('base_path', 'device', 'num_threads', 'input_size', 'feature_cache')
        if name in args.given
    }
    flags['weights'] = weights.DEFAULT if args.weights == 'none' else args.weights
    scroll, data = load_runner('scroll', dataset, flags, buffer_size=0, disable_log=True)
    features, _ = scroll.embedder(data.images.train[data.train_ids])
    return Statistics(features.shape[1], by_class=True).add(features, data.train_labels)


def separations(parts: Statistics) -> np.ndarray:
    """Fisher's ratio of each two classes, float64 (K, K): |m_a - m_b|^2 / (v_a + v_b).

    v_c = tr(G_c) / n_c - |m_c|^2, in integers up to one correctly rounded division: the same on
    every machine. Classes without width have that of one unit of the grid. parts: `by_class`."""
    counts = parts.counts.astype(object)
    sums = parts.sums[:, :-1].astype(object)
    products = sums @ sums.T  # s_a' s_b, in 2^-36
    squares = products.diagonal()
    pairs = np.outer(counts, counts)
    traces = np.array([sum(np.diagonal(gram)[:-1].tolist()) for gram in parts.grams], object)
    widths = np.outer(np.maximum(traces * counts - squares, 1), counts**2)  # v_a (n_a n_b)^2
    lengths = np.outer(squares, counts**2)
    gaps = lengths + lengths.T - 2 * pairs * products
    return (gaps / (widths + widths.T)).astype(np.float64)


def chain(distances: np.ndarray) -> np.ndarray:
    """int64 (K,): classes, each followed by the nearest of the rest, so that tasks cut from it hold
    classes that are alike; of the chains from all K beginnings the shortest, the first of several.
    distances: `separations`.
    """
    chains = []
    for begin in range(len(distances)):
        order = [begin]
        length = 0.0
        rest = distances.copy()
        for _ in range(len(distances) - 1):
            rest[:, order[-1]] = np.inf
            nearest = int(rest[order[-1]].argmin())
            length += rest[order[-1], nearest]
            order.append(nearest)
        chains.append((length, begin, order))
    return np.array(min(chains)[-1], np.int64)


def dealt(order: np.ndarray, tasks: int) -> np.ndarray:
    """int64 (K,): the classes of `order` dealt out to tasks: neighbours in it never share a
    task.
    """
    task = np.arange(len(order)) % tasks  # sizes as `split:<tasks>` cuts them
    return order[np.argsort(task, kind='stable')]
