"""How well the buffer's samples of a class stand for the class: herding, random choice, many shuffles.

    python scripts/exemplar_means.py --dataset seq-cifar100 --out figure.png

The experiment of the paper's appendix (section "Buffering Strategy and Schedule-Robustness"): each class by
itself comes in pieces of b2 samples, the buffer keeps b1 of them; the distance |mean of the buffer - mean of
the class| of unit features is measured on the way and at the end, for 100 shuffles (seeds 0..99) in each of
four scenarios. The table has its mean over classes and shuffles, and the standard deviation over the shuffles
(ddof 1) of a class: the root of the mean of the classes' variances. A small one means that all schedules lead
to buffers alike. `hash` shows the extreme: the distance is that of a random choice, and the buffer the same
under every shuffle.

Prints a table, draws the figure and writes its numbers beside it as CSV; `--redraw` draws it from these
again. An hour for the 50,000 samples of CIFAR-10 or CIFAR-100 (`--shuffles 10`: six minutes).
"""
from pathlib import Path

import numpy as np
import pandas as pd

from bench.cli import parsing as cli
from bench.cli.flags import whole
from bench.results import plots
from bench.results.style import with_vector
from bench.run.building import initialize
from core.arguments import ArgumentParser
from core.progress import Progress
from scroll.archive import atomic_write, check_target
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.grid import GRID
from scroll.schedules import make_schedule
from scroll.statistics import Statistics

SCENARIOS = ((20, 20), (20, 80), (90, 10), (50, 50))  # (b1, b2): places in the buffer, samples a segment
STRATEGIES = ('herding', 'random', 'hash')
COLUMNS = ('buffer_size', 'batch_size', 'strategy', 'seen', 'distance', 'deviation', 'least', 'most',
           'different_buffers')
POINTS = 25                                                 # of a curve, at most


def parse_args():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--class_id', type=whole(0),
                        help='one class, by its number in the files (default: all)')
    parser.add_argument('--shuffles', type=whole(2), default=100)
    parser.add_argument('--weights', default='compact')
    parser.add_argument('--base_path', default='./data/')
    parser.add_argument('--out', type=Path, default=Path('exemplar_means.png'),
                        help='figure; its numbers go beside it, .csv')
    parser.add_argument('--redraw', action='store_true',
                        help='draw the figure from the numbers that are there')
    return parser.parse_args()


def follow(features, keys, segments, buffer_size: int, seed: int = 0, strategies=STRATEGIES) -> list:
    """What the buffers of several strategies hold on the way through one class.

    Args:
        features: int (n, d), all of the class, quantised. keys: uint64 (n,). segments: arrays of positions.
            seed: of `random`.

    Returns:
        (samples seen, {strategy: (distance of the buffer's mean to the class's, digest of the buffer)}) for
            up to `POINTS` of
        the segments, evenly spaced, the last among them.
    """
    mean = features.mean(axis=0) / GRID
    looked_at = {len(segments) - 1 - int(k * len(segments) / POINTS) for k in range(POINTS)}
    buffers = {name: ExemplarBuffer(buffer_size, name, seed) for name in strategies}
    statistics, points = Statistics(features.shape[1]), []
    for i, at in enumerate(segments):
        labels = np.zeros(len(at), np.int64)
        statistics.add(features[at], labels)
        for buffer in buffers.values():
            buffer.update(keys[at], features[at], keys[at], labels, statistics)
        if i in looked_at:
            held = {name: buffer.content() for name, buffer in buffers.items()}
            points.append((statistics.total, {
                name: (np.linalg.norm(content.features.mean(axis=0) / GRID - mean), content.digest())
                for name, content in held.items()}))
    return points


def scenario(features, keys, buffer_size: int, batch_size: int, shuffles: int) -> list:
    """Rows of `COLUMNS` for one class: for each point and strategy the distances, and how many buffers
    differ."""
    cut = f'iid,batch={batch_size}'
    runs = [follow(features, keys, list(make_schedule(cut, np.zeros(len(keys), np.int64), seed).segments()),
                   buffer_size, seed)
            for seed in range(shuffles)]
    rows = []
    for points in zip(*runs):
        for strategy in STRATEGIES:
            distance, digests = zip(*(held[strategy] for _, held in points))
            rows.append(dict(zip(COLUMNS, (buffer_size, batch_size, strategy, points[0][0], np.mean(distance),
                                           np.std(distance, ddof=1), min(distance), max(distance),
                                           len(set(digests))))))
    return rows


def over_classes(classes: list) -> list:
    """Rows of `COLUMNS` for all classes, from those of each; points as far from the end as all classes have
    them. Distances, buffers and samples seen are means over the classes."""
    by, tables = list(COLUMNS[:3]), [pd.DataFrame(rows) for rows in classes]
    for table in tables:
        table['left'] = table.groupby(by).cumcount(ascending=False)         # points to come
    found = pd.concat(tables).groupby([*by, 'left'], sort=False).agg(
        seen=('seen', 'mean'), distance=('distance', 'mean'), least=('least', 'min'), most=('most', 'max'),
        deviation=('deviation', lambda values: np.sqrt((values ** 2).mean())),
        different_buffers=('different_buffers', 'mean'), classes=('seen', 'size'))
    found = found[found.classes == len(classes)].reset_index().astype(dict(seen=int))
    return found[list(COLUMNS)].to_dict('records')


def whole_class(features, keys, buffer_size: int) -> float:
    """Distance that herding reaches where the class comes in one segment; no shuffle changes it."""
    return follow(features, keys, [np.arange(len(keys))], buffer_size,
                  strategies=('herding',))[0][1]['herding'][0]


def draw(path: Path, rows: list, title: str) -> None:
    """A panel for each scenario: mean distance, standard deviation, by samples seen; beside a PNG an SVG."""
    panels = {}
    for row in rows:
        panel = panels.setdefault((row['buffer_size'], row['batch_size']), {})
        for curve, name in zip(panel.setdefault(row['strategy'], ([], [], [])),
                               ('seen', 'distance', 'deviation')):
            curve.append(row[name])
    plots.buffer_panels(with_vector(path) if path.suffix == '.png' else (path,), panels, title)


def show(rows: list, together: dict) -> None:
    """The table: distances at the end of a class, a line a scenario; together: by b1, of `whole_class`."""
    print(f'| b1 | b2 | {" | ".join(STRATEGIES)} | herding, class whole | different buffers: '
          f'{", ".join(STRATEGIES)} |\n|---|---|{"---|" * (len(STRATEGIES) + 2)}')
    last = max(row['seen'] for row in rows)
    for scene in SCENARIOS:
        ends = [r for r in rows if (r['buffer_size'], r['batch_size'], r['seen']) == (*scene, last)]
        cells = [f"{r['distance']:.4f} +- {r['deviation']:.4f}" for r in ends]
        print(f"| {scene[0]} | {scene[1]} | {' | '.join(cells)} | {together[scene[0]]:.4f} "
              f"| {', '.join(format(r['different_buffers'], 'g') for r in ends)} |")


def classes_of(options) -> list:
    """(quantised features, keys) of each class, or of the one that the flags name."""
    args = cli.parse_args(['--model', 'scroll', '--dataset', options.dataset, '--weights', options.weights,
                           '--base_path', options.base_path, '--disable_log', '1'])
    model, dataset, args = initialize(args)
    images, names = dataset.images, dataset.images.class_names
    if options.class_id is not None and options.class_id >= len(names):
        raise InputError(f'--class_id {options.class_id}: {args.dataset} has the classes 0..{len(names) - 1}')
    chosen = range(len(names)) if options.class_id is None else [options.class_id]
    least, found = max(buffer_size for buffer_size, _ in SCENARIOS) + 1, []
    for label in chosen:
        mine = images.train[images.train_labels == label]
        if len(mine) < least:
            raise InputError(f'class {label} of {args.dataset} has {len(mine)} samples: at least {least} are '
                             'needed')
        found.append(model.embedder(mine))
    model.embedder.cache.flush()
    return found


def main():
    options = parse_args()
    if options.out.suffix not in ('.png', '.pdf', '.svg'):
        raise InputError(f'--out {options.out}: expected a name that ends in .png, .pdf or .svg')
    numbers = options.out.with_suffix('.csv')
    for path in (options.out, numbers):
        check_target(path, '--out')
    if options.redraw and not numbers.is_file():
        raise InputError(f'--redraw: {numbers} is not there: leave --redraw out, and it is made')
    try:
        if options.redraw:
            rows = pd.read_csv(numbers).to_dict('records')
        else:
            classes = classes_of(options)
            rows = over_classes([
                [row for scene in SCENARIOS for row in scenario(*one, *scene, options.shuffles)]
                for one in Progress('Classes', len(classes)).over(classes)])
            show(rows, {size: np.mean([whole_class(*one, size) for one in classes]) for size, _ in SCENARIOS})
            with atomic_write(numbers) as file:
                pd.DataFrame(rows).to_csv(file, index=False)
        which = 'all classes' if options.class_id is None else f'class {options.class_id}'
        draw(options.out, rows, f'{options.dataset}, {which}, {options.shuffles} shuffles')
    except OSError as error:
        raise InputError(f'--out {options.out} cannot be written ({error.strerror})') from error
    print(options.out, numbers, sep='\n')
