"""How much the order of the classes matters to a method: easy, hard and random orders.

    python scripts/orders.py --dataset seq-digits --model er-ace --buffer_size 200 --num_threads 1
    python scripts/orders.py --dataset seq-cifar100 --model scroll --weights small --tasks 10

`--orders` random orders, the *easiest*, with classes alike to the frozen backbone in one task, and the
*hardest*, which deals them out to different tasks, are run under `--seeds` seeds. SCROLL is run as f_T. A run
whose loss ends up infinite counts as 0 %. Runs are kept in `--out`, so the same command continues a killed
study; `--keep FOLDER`: rows for scripts/documents.py. Flags of main.py go behind the script's own.
"""
import functools
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from bench.certify import command
from bench.certify.store import Store, keep_rows
from core.arguments import ArgumentParser, whole
from core.loss_watch import Diverged
from scroll.errors import InputError
from scroll.progress import Progress
from scroll.statistics import Statistics

COLUMNS = ('model', 'kind', 'schedule', 'seed', 'final_accuracy', 'average_incremental_accuracy',
           'anytime_area', 'net_digest')
_VARIED = {'--seed': '--seeds says which',
           **dict.fromkeys(('--permute_classes', '--custom_class_order'),
                           'the order of the classes is what is varied here')}
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


class Orders:
    """Runs of one method under orders of the classes; each once."""

    def __init__(self, options, flags: list):
        self.options, self.flags, self.rows = options, flags, []
        self.prepare = functools.cache(
            lambda seed: self._prepare(options.model, [*flags, '--seed', str(seed)]))
        identity, args, self.dataset, _, _ = self.prepare(0)
        self.classes = np.unique(self.dataset.train_labels)
        self.tasks = options.tasks or self.dataset.N_TASKS
        if not 2 <= self.tasks <= len(self.classes):
            raise InputError(f'--tasks {self.tasks}: expected 2..{len(self.classes)}, of the classes of '
                             f'{options.dataset}')
        folder = Path(args.base_path) / 'certificates' / self.dataset.NAME
        self.store = Store(options.out or folder / identity['model'])

    def _prepare(self, model: str, flags: list) -> tuple:
        """What `bench.certify.command.prepare` gives for a method with these flags of main.py."""
        dataset, words = self.options.dataset, ['--schedules', '0', '--specs', '', '--stream_check', '0',
                                                '--buffers', '0', '--curve_points', '0']
        asked, _ = command.parse_options(['--dataset', dataset, '--model', model, *words])
        return command.prepare(asked, command.of_main(model, dataset, flags))

    def run(self, kind: str, order: np.ndarray, seed: int = 0) -> float:
        """The final accuracy under an order (K,), places in `classes`; its row is kept, with 0 and no digest
        where the loss ended up infinite."""
        identity, args, dataset, _, trials = self.prepare(seed)
        spec = f"split:{self.tasks},order={'-'.join(map(str, self.classes[order].tolist()))}"
        try:
            (row,), _ = command.run_all(trials, [spec], dataset, args, identity, self.store, quiet=True)
        except Diverged:
            row = dict.fromkeys(COLUMNS, 0.0) | dict(net_digest='')
        known = dict(row, model=identity['model'], kind=kind, schedule=spec, seed=seed)
        self.rows.append({name: known[name] for name in COLUMNS})
        return row['final_accuracy']

    def alike(self) -> np.ndarray:
        """`separations` of the classes on the features of the run's backbone, or of the default one where it
        has none that is pre-trained."""
        from backbone import weights
        args = self.prepare(0)[1]
        given = {name: getattr(args, name) for name in _SAME if name in args.given} | dict(
            weights=args.weights if args.weights != 'none' else weights.DEFAULT, buffer_size=0)
        return separations(self._prepare('scroll', command.words_of(given))[4].summed.parts)


def study(orders: Orders) -> None:
    """Make all runs."""
    from scroll.randomness import numpy_stream
    options, random = orders.options, numpy_stream(0, 'class orders')
    near = chain(orders.alike())
    named = [('easiest', near), ('hardest', dealt(near, orders.tasks))]
    named += [('random', random.permutation(len(near))) for _ in range(options.orders)]
    runs = [(kind, order, seed) for seed in range(options.seeds) for kind, order in named]
    for run in Progress('Orders', len(runs)).over(runs):
        orders.run(*run)


def figures(rows: list) -> dict:
    """What a method's rows come to: name -> number. Of random orders under the first seed: mean, standard
    deviation, worst, CVaR of a tenth, anytime accuracy (area, mean). Of the easiest and the hardest order the
    mean over seeds; the worst of all runs under the first seed; of random orders the shares of variance
    (`scroll.certificates.variance_shares`), None for one seed."""
    from scroll.certificates import summary, variance_shares
    of = pd.DataFrame(rows).astype(dict(seed=int, final_accuracy=float, anytime_area=float))
    by_seed = [run.final_accuracy.to_numpy() for _, run in of[of.kind == 'random'].groupby('seed')]
    first, accuracy = of[of.seed == of.seed.min()], of.groupby('kind').final_accuracy.mean()
    found = summary(by_seed[0])
    return dict(orders=len(by_seed[0]), mean=found.mean, deviation=found.deviation, worst=found.worst,
                cvar10=found.cvar10, anytime=first[first.kind == 'random'].anytime_area.mean(),
                easiest=accuracy['easiest'], hardest=accuracy['hardest'],
                worst_found=first.final_accuracy.min(), predictors=len(set(of.net_digest) - {''}),
                diverged=int((of.net_digest == '').sum()),
                variance=variance_shares(np.array(by_seed).T) if len(by_seed) > 1 else None)


def predictors_of(found: dict) -> str:
    """How many different predictors there were, and how many runs diverged."""
    return f"{found['predictors']}" + (f", {found['diverged']} diverged" if found['diverged'] else '')


def main():
    options, flags = parse_options()
    try:
        orders = Orders(options, flags)
        study(orders)
    except KeyboardInterrupt:
        print('interrupted: finished runs are kept, and the same command resumes', file=sys.stderr)
        return 130
    name = orders.rows[0]['model']
    path = (options.keep or orders.store.folder / 'orders') / f'{orders.dataset.NAME}.csv'
    keep_rows(path, COLUMNS, name, orders.rows)
    found = figures(orders.rows)
    print(f"{name}: {found['orders']} random orders {found['mean']:.2f} +- {found['deviation']:.2f} %, "
          f"worst {found['worst']:.2f}, CVaR 10 % {found['cvar10']:.2f}, anytime {found['anytime']:.2f}\n"
          f"  classes alike in one task {found['easiest']:.2f}, dealt out {found['hardest']:.2f}; "
          f"predictors: {predictors_of(found)}")
    if found['variance']:
        print('  variance: order {:.1f} %, seed {:.1f} %, rest {:.1f} %'.format(*found['variance']))
    print(f'  {path}')
    return 0


def separations(parts: Statistics) -> np.ndarray:
    """float64 (K, K): |m_a - m_b|^2 / (v_a + v_b), Fisher's ratio, the distance of classes relative to their
    width. v_c = tr(G_c) / n_c - |m_c|^2, in integers up to one correctly rounded division: the same on every
    machine. Classes without width have that of one unit of the grid. parts: `by_class`. InputError:
    there is one class."""
    if len(parts.classes) < 2:
        raise InputError('there is one class only: its order cannot matter')
    counts, n = parts.counts.tolist(), len(parts.classes)
    sums = parts.sums[:, :-1].astype(object)
    products = sums @ sums.T                                        # s_a' s_b, in 2^-36
    traces = [sum(np.diagonal(gram)[:-1].tolist()) for gram in parts.grams]
    widths = [max(trace * count - products[k, k], 1) for k, (trace, count) in enumerate(zip(traces, counts))]
    out = np.zeros((n, n))                                          # widths: v_c n_c^2
    for a in range(n):
        for b in range(a):
            p, q = counts[a], counts[b]
            gap = q * q * products[a, a] - 2 * p * q * products[a, b] + p * p * products[b, b]
            out[a, b] = out[b, a] = gap / (widths[a] * q * q + widths[b] * p * p)
    return out


def chain(apart: np.ndarray) -> np.ndarray:
    """int64 (K,): classes, each followed by the nearest of the rest; of the chains from all K beginnings the
    shortest, the first of several. Tasks cut from it hold classes that are alike. apart: `separations`."""
    best, shortest = None, np.inf
    for begin in range(len(apart)):
        order, left, length = [begin], np.ones(len(apart), bool), 0.0
        left[begin] = False
        while left.any():
            distances = np.where(left, apart[order[-1]], np.inf)
            order.append(int(distances.argmin()))
            left[order[-1]] = False
            length += distances.min()
        if length < shortest:
            best, shortest = order, length
    return np.array(best, np.int64)


def dealt(order: np.ndarray, tasks: int) -> np.ndarray:
    """int64 (K,): the classes of `order` dealt out to tasks: neighbours in it never share a task."""
    task = np.arange(len(order)) % tasks                            # sizes as `split:<tasks>` cuts them
    return np.concatenate([order[task == t] for t in range(tasks)])
