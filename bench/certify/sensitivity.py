"""How much the order of the classes matters to a method: easy, hard and random orders.

    python scripts/orders.py --dataset seq-digits --model er-ace --buffer_size 200 --num_threads 1
    python scripts/orders.py --dataset seq-cifar100 --model scroll --weights small --tasks 10

`--orders` random orders, the *easiest*, with classes alike to the frozen backbone in one task, and
the
*hardest*, which deals them out to different tasks, are run under `--seeds` seeds. SCROLL is run as
f_T. A run whose loss ends up infinite counts as 0 %. Runs are kept in `--out`, so the same command
continues a killed study; `--keep FOLDER`: rows for scripts/documents.py. Flags of main.py go behind
the script's own.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from bench.certify import command
from bench.certify.store import Store, keep_rows
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
_VARIED = {
    '--seed': '--seeds says which',
    **dict.fromkeys(
        ('--permute_classes', '--custom_class_order'),
        'the order of the classes is what is varied here',
    ),
}
_SAME = ('base_path', 'device', 'num_threads', 'input_size', 'feature_cache')


def parse_options(words=None) -> tuple:
    """(the script's own options, the flags of main.py)."""
    parser = ArgumentParser(prog='orders.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True, help='one that main.py --help names')
    flag('--model', default='scroll', help='any method')
    flag('--tasks', type=whole(2), help="of every order (default: the data set's own number)")
    flag('--orders', type=whole(2), default=10, help='random ones')
    flag('--seeds', type=whole(1), default=3, help='0, 1, ...')
    flag('--out', type=Path, help='folder of what has been run')
    flag('--keep', type=Path, metavar='FOLDER', help='put the rows into <FOLDER>/<dataset>.csv')
    options, flags = parser.parse_known_args(words)
    for word in flags:
        if (flag := word.split('=')[0]) in _VARIED:
            raise InputError(f'{flag}: {_VARIED[flag]}; leave the flag out')
    return options, flags


def prepare(dataset: str, model: str, flags: list) -> tuple:
    """`bench.certify.command.prepare` of a method with these flags of main.py."""
    words = [
        '--dataset',
        dataset,
        '--model',
        model,
        '--schedules',
        '0',
        '--specs',
        '',
        '--stream_check',
        '0',
        '--buffers',
        '0',
        '--curve_points',
        '0',
    ]
    return command.prepare(command.parse_options(words)[0], command.of_main(model, dataset, flags))


def study(options, flags: list) -> tuple:
    """(the method, data set, folder of what has been run, a row for each run)."""
    by_seed = [
        prepare(options.dataset, options.model, [*flags, '--seed', str(seed)])
        for seed in range(options.seeds)
    ]
    identity, args, dataset, _, _ = by_seed[0]
    classes = np.unique(dataset.train_labels)
    tasks = options.tasks or dataset.N_TASKS
    if not 2 <= tasks <= len(classes):
        raise InputError(
            f'--tasks {tasks}: expected 2..{len(classes)}, of the classes of {options.dataset}'
        )
    folder = Path(args.base_path) / 'certificates' / dataset.NAME / identity['model']
    store = Store(options.out or folder)
    rows = []
    random = numpy_stream(0, 'class orders')
    near = chain(alike(options.dataset, args))
    orders = [('easiest', near), ('hardest', dealt(near, tasks))]
    orders += [('random', random.permutation(len(classes))) for _ in range(options.orders)]
    runs = [(seed, kind, order) for seed in range(options.seeds) for kind, order in orders]
    for seed, kind, order in Progress('Orders', len(runs)).over(runs):
        identity, args, dataset, _, trials = by_seed[seed]
        spec = f'split:{tasks},order={"-".join(map(str, classes[order].tolist()))}'
        try:
            (row,), _ = command.run_all(trials, [spec], dataset, args, identity, store, quiet=True)
        except Diverged:
            row = dict.fromkeys(COLUMNS, 0.0) | {'net_digest': ''}
        rows.append(dict(row, kind=kind, schedule=spec, seed=seed))
    return identity['model'], dataset.NAME, store.folder, rows


def alike(dataset: str, args) -> np.ndarray:
    """`separations` of the classes on the features of the run's backbone, or of the default one
    where it has none that is pre-trained."""
    from backbone import weights

    given = {name: getattr(args, name) for name in _SAME if name in args.given} | {'buffer_size': 0}
    given['weights'] = args.weights if args.weights != 'none' else weights.DEFAULT
    samples = prepare(dataset, 'scroll', command.words_of(given))[4].samples
    parts = Statistics(samples.features.shape[1], by_class=True)
    return separations(parts.add(samples.features, samples.labels))


def figures(rows: list) -> dict:
    """Summarise a method's rows: name -> number. Of random orders under the first seed: mean,
    standard deviation, worst, CVaR of a tenth, anytime accuracy (area, mean). Of the easiest and
    the hardest order the mean over seeds; the worst of all runs under the first seed; of random
    orders the shares of variance (`bench.certify.measures.variance_shares`), None for one seed."""
    from bench.certify.measures import summary, variance_shares

    of = pd.DataFrame(rows).astype({'seed': int, 'final_accuracy': float, 'anytime_area': float})
    by_seed = [run.final_accuracy.to_numpy() for _, run in of[of.kind == 'random'].groupby('seed')]
    first = of[of.seed == of.seed.min()]
    accuracy = of.groupby('kind').final_accuracy.mean()
    found = summary(by_seed[0])
    return {
        'orders': len(by_seed[0]),
        'mean': found.mean,
        'deviation': found.deviation,
        'worst': found.worst,
        'cvar10': found.cvar10,
        'anytime': first[first.kind == 'random'].anytime_area.mean(),
        'easiest': accuracy['easiest'],
        'hardest': accuracy['hardest'],
        'worst_found': first.final_accuracy.min(),
        'predictors': len(set(of.net_digest) - {''}),
        'diverged': int((of.net_digest == '').sum()),
        'variance': variance_shares(np.array(by_seed).T) if len(by_seed) > 1 else None,
    }


def predictors_of(found: dict) -> str:
    """How many different predictors there were, and how many runs diverged."""
    return f'{found["predictors"]}' + (
        f', {found["diverged"]} diverged' if found['diverged'] else ''
    )


def main() -> None:
    options, flags = parse_options()
    model, dataset, folder, rows = study(options, flags)
    path = (options.keep or folder / 'orders') / f'{dataset}.csv'
    keep_rows(path, COLUMNS, model, rows)
    found = figures(rows)
    print(
        f'{model}: {found["orders"]} random orders {found["mean"]:.2f} +- '
        f'{found["deviation"]:.2f} %, '
        f'worst {found["worst"]:.2f}, CVaR 10 % {found["cvar10"]:.2f}, anytime '
        f'{found["anytime"]:.2f}\n'
        f'  classes alike in one task {found["easiest"]:.2f}, dealt out {found["hardest"]:.2f}; '
        f'predictors: {predictors_of(found)}\n  {path}'
    )


def separations(parts: Statistics) -> np.ndarray:
    """float64 (K, K): |m_a - m_b|^2 / (v_a + v_b), Fisher's ratio, the distance of classes relative
    to their width. v_c = tr(G_c) / n_c - |m_c|^2, in integers up to one correctly rounded division:
    the same on every machine. Classes without width have that of one unit of the grid. parts:
    `by_class`. InputError: there is one class."""
    if len(parts.classes) < 2:
        raise InputError('there is one class only: its order cannot matter')
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


def chain(apart: np.ndarray) -> np.ndarray:
    """int64 (K,): classes, each followed by the nearest of the rest; of the chains from all K
    beginnings the shortest, the first of several. Tasks cut from it hold classes that are alike.
    apart: `separations`."""
    best = None
    shortest = np.inf
    for begin in range(len(apart)):
        order = [begin]
        left = np.ones(len(apart), bool)
        length = 0.0
        left[begin] = False
        while left.any():
            distances = np.where(left, apart[order[-1]], np.inf)
            order.append(int(distances.argmin()))
            left[order[-1]] = False
            length += distances.min()
        if length < shortest:
            best = order
            shortest = length
    return np.array(best, np.int64)


def dealt(order: np.ndarray, tasks: int) -> np.ndarray:
    """int64 (K,): the classes of `order` dealt out to tasks: neighbours in it never share a
    task.
    """
    task = np.arange(len(order)) % tasks  # sizes as `split:<tasks>` cuts them
    return np.concatenate([order[task == t] for t in range(tasks)])
