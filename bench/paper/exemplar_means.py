"""How well the buffer's samples of a class represent it: herding, random choice, hash, over many shuffles.

    python scripts/exemplar_means.py --dataset seq-cifar100 --out figure.png

The experiment of the paper's appendix (section "Buffering Strategy and Schedule-Robustness"): each class by
itself comes in segments of b2 samples, the buffer keeps b1 of them; the distance |mean of the buffer - mean
of the class| of unit features is measured on the way and at the end, for 100 shuffles in each of four
scenarios. The table has its mean over classes and shuffles, and the standard deviation over the shuffles
(ddof 1) of a class: the root of the mean of the classes' variances. `hash` has the distance of a random
choice, and the same buffer under every shuffle. Draws the figure, with its numbers as CSV. An hour for the
50,000 samples of CIFAR.
"""
from pathlib import Path

import numpy as np
import pandas as pd

from bench.cli import parsing as cli
from bench.results import style
from bench.run.building import initialize
from core.arguments import ArgumentParser, whole
from core.progress import Progress
from scroll.archive import atomic_write, check_target
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.grid import GRID
from scroll.schedules import make_schedule
from scroll.statistics import Statistics

SCENARIOS = ((20, 20), (20, 80), (90, 10), (50, 50))  # (b1, b2): places in the buffer, samples a segment
STRATEGIES = {'herding': '#0072B2', 'random': '#E69F00', 'hash': '#009E73'}
COLUMNS = ['buffer_size', 'batch_size', 'strategy', 'seen', 'distance', 'deviation', 'least', 'most',
           'different_buffers']
POINTS = 25                                                 # of a curve, at most


def follow(features, keys, segments, buffer_size: int, seed: int = 0) -> list:
    """Rows (strategy, seen, distance, digest of the buffer) on the way through one class.

    Args:
        features: int (n, d), all of the class, quantised. keys: uint64 (n,). seed: of `random`.
        segments: arrays of positions, up to `POINTS` of which are looked at, evenly spaced, and the last.
    """
    mean = features.mean(axis=0) / GRID
    looked_at = {len(segments) - 1 - int(k * len(segments) / POINTS) for k in range(POINTS)}
    buffers = {name: ExemplarBuffer(buffer_size, name, seed) for name in STRATEGIES}
    statistics, rows = Statistics(features.shape[1]), []
    for i, at in enumerate(segments):
        labels = np.zeros(len(at), np.int64)
        statistics.add(features[at], labels)
        for name, buffer in buffers.items():
            buffer.update(keys[at], features[at], keys[at], labels, statistics)
            if i in looked_at:
                held = buffer.content()
                distance = np.linalg.norm(held.features.mean(axis=0) / GRID - mean)
                rows.append((name, statistics.total, distance, held.digest()))
    return rows


def scenario(features, keys, buffer_size: int, batch_size: int, shuffles: int) -> pd.DataFrame:
    """`COLUMNS` for one class: by strategy and samples seen the distances, and how many buffers differ."""
    runs = []
    for seed in range(shuffles):
        schedule = make_schedule(f'iid,batch={batch_size}', np.zeros(len(keys), np.int64), seed)
        runs += follow(features, keys, list(schedule.segments()), buffer_size, seed)
    table = pd.DataFrame(runs, columns=['strategy', 'seen', 'distance', 'digest'])
    found = table.groupby(['seen', 'strategy'], sort=False).agg(
        least=('distance', 'min'), most=('distance', 'max'), deviation=('distance', 'std'),
        distance=('distance', 'mean'), different_buffers=('digest', 'nunique')).reset_index()
    return found.assign(buffer_size=buffer_size, batch_size=batch_size)[COLUMNS]


def over_classes(tables: list) -> pd.DataFrame:
    """`COLUMNS` for all classes, from the tables of each, at points as far from the end as all have them."""
    by = COLUMNS[:3]
    for table in tables:
        table['left'] = table.groupby(by).cumcount(ascending=False)         # points to come
    found = pd.concat(tables).groupby([*by, 'left'], sort=False).agg(
        seen=('seen', 'mean'), distance=('distance', 'mean'), least=('least', 'min'), most=('most', 'max'),
        deviation=('deviation', lambda values: np.sqrt((values ** 2).mean())),
        different_buffers=('different_buffers', 'mean'), classes=('seen', 'size'))
    return found[found.classes == len(tables)].reset_index().astype(dict(seen=int))[COLUMNS]


def draw(path: Path, table: pd.DataFrame, title: str) -> None:
    """A panel for each scenario: mean distance and standard deviation by samples seen."""
    paths = style.with_vector(path) if path.suffix == '.png' else (path,)
    with style.picture(*paths, columns=len(SCENARIOS), size=(2.6 * len(SCENARIOS), 3.2), sharey=True,
                       squeeze=False) as (figure, grid):
        for axes, ((kept, segment), panel) in zip(grid[0], table.groupby(COLUMNS[:2], sort=False)):
            for name, line in panel.groupby('strategy', sort=False):
                axes.plot(line.seen, line.distance, label=name, color=STRATEGIES[name])
                axes.fill_between(line.seen, line.distance - line.deviation, line.distance + line.deviation,
                                  color=STRATEGIES[name], alpha=0.2, linewidth=0)
            axes.set(xlabel='samples of the class seen', title=f'{kept} kept, {segment} a segment',
                     xlim=(0, None))
        grid[0, 0].set(ylabel='distance to the mean of the class', ylim=(0, None))
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc='outside lower center', ncols=3)
        figure.suptitle(title)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', required=True)
    parser.add_argument('--shuffles', type=whole(2), default=100)
    parser.add_argument('--weights', default='compact')
    parser.add_argument('--base_path', default='./data/')
    parser.add_argument('--out', type=Path, default=Path('exemplar_means.png'), help='and .csv for numbers')
    options = parser.parse_args()
    if options.out.suffix not in ('.png', '.pdf', '.svg'):
        raise InputError(f'--out {options.out}: expected a name that ends in .png, .pdf or .svg')
    numbers = options.out.with_suffix('.csv')
    for path in (options.out, numbers):
        check_target(path, '--out')
    model, dataset, _ = initialize(cli.parse_args([
        '--model', 'scroll', '--dataset', options.dataset, '--weights', options.weights, '--base_path',
        options.base_path, '--disable_log', '1']))
    images, labels = dataset.images.train, dataset.images.train_labels
    least = max(size for size, _ in SCENARIOS) + 1
    if np.bincount(labels).min() < least:
        raise InputError(f'--dataset {options.dataset}: expected at least {least} samples of each class')
    classes = Progress('Classes', labels.max() + 1).over(range(labels.max() + 1))
    table = over_classes([pd.concat([scenario(*one, *scene, options.shuffles) for scene in SCENARIOS])
                          for one in (model.embedder(images[labels == label]) for label in classes)])
    model.embedder.cache.flush()
    with atomic_write(numbers) as file:
        table.to_csv(file, index=False)
    draw(options.out, table, f'{options.dataset}, all classes, {options.shuffles} shuffles')
    print(table[table.seen == table.seen.max()].to_string(index=False, float_format='%.4f'))
    print(options.out, numbers, sep='\n')
