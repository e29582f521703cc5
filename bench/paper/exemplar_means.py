"""How well the buffer's samples of a class represent it: herding, random choice, hash, over many shuffles.

    python scripts/exemplar_means.py --dataset seq-cifar100 --out figure.png

The paper's appendix, "Buffering Strategy and Schedule-Robustness": each class by itself comes in segments of
b2 samples, the buffer keeps b1 of them. The distance of the buffer's mean to that of the class, of unit
features, is averaged over classes and shuffles; its deviation is the root of the classes' mean variance over
shuffles (ddof 1). The numbers go to a CSV file. An hour for the 50,000 samples of CIFAR.
Flags of main.py, as --weights, go behind the script's own.
"""
from pathlib import Path

import numpy as np
import pandas as pd

from bench.cli import parsing as cli
from bench.results import style
from bench.run.building import initialize
from core.arguments import ArgumentParser, whole
from scroll.archive import atomic_write, check_target
from scroll.exemplars import ExemplarBuffer
from scroll.grid import GRID
from scroll.progress import Progress
from scroll.schedules import make_schedule
from scroll.statistics import Statistics

SCENARIOS = ((20, 20), (20, 80), (90, 10), (50, 50))  # (b1, b2): places in the buffer, samples a segment
STRATEGIES = {'herding': '#0072B2', 'random': '#E69F00', 'hash': '#009E73'}
POINTS = 25                                                 # of a curve, at most


def follow(features, keys, buffer_size: int, batch_size: int, seed: int) -> list:
    """Rows (b1, b2, strategy, points to come, samples seen, distance, digest of the buffer) on the way
    through one class, at up to `POINTS` segments, evenly spaced, the last among them. features: int (n, d),
    all of the class, quantised. keys: uint64 (n,). seed: of shuffle and `random`."""
    labels, mean, rows = np.zeros(len(keys), np.int64), features.mean(axis=0) / GRID, []
    segments = list(make_schedule(f'iid,batch={batch_size}', labels, seed).segments())
    places = dict.fromkeys(len(segments) - 1 - int(k * len(segments) / POINTS) for k in range(POINTS))
    left = {place: k for k, place in enumerate(places)}
    buffers = {name: ExemplarBuffer(buffer_size, name, seed) for name in STRATEGIES}
    statistics = Statistics(features.shape[1])
    for i, at in enumerate(segments):
        statistics.add(features[at], labels[at])
        for name, buffer in buffers.items():
            buffer.update(keys[at], features[at], keys[at], labels[at], statistics)
            if i in left:
                held = buffer.content()
                distance = np.linalg.norm(held.features.mean(axis=0) / GRID - mean)
                rows.append((buffer_size, batch_size, name, left[i], statistics.total, distance,
                             held.digest()))
    return rows


def table(classes, shuffles: int, scenarios=SCENARIOS) -> pd.DataFrame:
    """A row for each scenario, strategy and point: `seen`, `distance`, `deviation` and `different_buffers`,
    means over classes. classes: an iterable of (features, keys)."""
    by, found = ['buffer_size', 'batch_size', 'strategy', 'left'], []
    for features, keys in classes:
        rows = [row for scenario in scenarios for seed in range(shuffles)
                for row in follow(features, keys, *scenario, seed)]
        rows = pd.DataFrame(rows, columns=[*by, 'seen', 'distance', 'digest'])
        found.append(rows.groupby(by).agg(
            seen=('seen', 'mean'), variance=('distance', 'var'), distance=('distance', 'mean'),
            different_buffers=('digest', 'nunique')))
    mean = pd.concat(found).groupby(level=by).mean().reset_index().sort_values([*by[:3], 'seen'])
    return mean.assign(deviation=np.sqrt(mean.variance)).drop(columns=['left', 'variance'])


def draw(path: Path, found: pd.DataFrame, title: str) -> None:
    """A panel for each scenario: mean distance and standard deviation by samples seen."""
    panels = found.groupby(['buffer_size', 'batch_size'])
    with style.picture(path, columns=len(panels), size=(2.6 * len(panels), 3.2), sharey=True,
                       squeeze=False) as (figure, (row,)):
        for axes, ((kept, segment), panel) in zip(row, panels):
            for name, line in panel.groupby('strategy'):
                axes.errorbar(line.seen, line.distance, line.deviation, label=name, color=STRATEGIES[name])
            axes.set(xlabel='samples of the class seen', title=f'{kept} kept, {segment} a segment',
                     xlim=(0, None), ylim=(0, None))
        row[0].set(ylabel='distance to the mean of the class')
        figure.legend(*row[0].get_legend_handles_labels(), loc='outside lower center', ncols=3)
        figure.suptitle(title)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--dataset', required=True, help='one that main.py --help names')
    parser.add_argument('--shuffles', type=whole(2), default=100)
    parser.add_argument('--out', type=Path, default=Path('exemplar_means.png'), help='and .csv for numbers')
    options, flags = parser.parse_known_args()
    picture, numbers = (options.out.with_suffix(suffix) for suffix in ('.png', '.csv'))
    check_target(picture, '--out')
    model, dataset, _ = initialize(cli.parse_args(
        ['--model', 'scroll', '--dataset', options.dataset, '--disable_log', '1', *flags]))
    images, labels = dataset.images.train, dataset.images.train_labels
    names = Progress('Classes', dataset.N_CLASSES).over(range(dataset.N_CLASSES))
    found = table((model.embedder(images[labels == label]) for label in names), options.shuffles)
    model.embedder.cache.flush()
    with atomic_write(numbers) as file:
        found.to_csv(file, index=False)
    draw(picture, found, f'{options.dataset}, all classes, {options.shuffles} shuffles')
    print(picture, numbers, sep='\n')
