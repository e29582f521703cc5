"""Pictures of schedules and of methods under many schedules."""

import math
from pathlib import Path

from bench.results import style


def schedule_picture(path: Path, pictures: dict, title: str) -> Path:
    """Draw when samples of which class arrive, class against time: a panel a schedule, one colour
    scale.

    pictures: name -> int (K, bins), samples of each class in each of equally long parts of the
    stream."""
    shares = {name: 100 * counts / counts.sum(axis=0).clip(1) for name, counts in pictures.items()}
    top = max(share.max() for share in shares.values())
    size = (4.6, 2.1 * len(shares) + 0.6)
    with style.picture(path, size, nrows=len(shares), sharex=True, sharey=True, squeeze=False) as (
        figure,
        grid,
    ):
        for axes, (name, share) in zip(grid[:, 0], shares.items()):
            image = axes.imshow(
                share,
                aspect='auto',
                origin='lower',
                interpolation='nearest',
                cmap=style.SEQUENTIAL,
                vmin=0,
                vmax=top,
                extent=(0, 100, -0.5, len(share) - 0.5),
            )
            axes.set(title=name, ylabel='class')
            axes.grid(False)
            axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel='stream seen (%)')
        figure.colorbar(image, ax=grid, label='share of the class (%)', shrink=0.9)
        figure.suptitle(title)
    return path


def cloud(path: Path, accuracies: dict, title: str) -> Path:
    """Draw each method's final accuracies, percent: a row a method, a point a schedule."""
    top = 10 * max(math.ceil(max(map(max, accuracies.values())) / 10), 1)
    with style.picture(path, (7.5, 0.55 * len(accuracies) + 1.2)) as (figure, axes):
        for place, (method, values) in enumerate(accuracies.items()):
            colour, marker = style.of(method)
            low = min(values)
            high = max(values)
            same = low == high  # one point, for all that many may lie on it
            points = values[:1] if same else values
            spread = [0.5 * ((0.618034 * k) % 1 - 0.5) for k in range(len(values))]
            axes.plot(
                points,
                [place] if same else [place + offset for offset in spread],
                marker,
                color=colour,
                linestyle='none',
                markersize=10 if same else 7,
                mec='white',
                mew=0.6,
                alpha=1 if same else 0.8,
                clip_on=False,
            )
            extent = f'{low:.1f} %, every time' if same else f'{low:.1f} to {high:.1f} %'
            axes.annotate(
                f'{len(values)} schedules: {extent}',
                (1.02, place),
                va='center',
                xycoords=axes.get_yaxis_transform(),
                annotation_clip=False,
            )
        axes.set(
            xlim=(0, top),
            ylim=(len(accuracies) - 0.5, -0.5),
            xlabel='final accuracy on all classes (%), a point for each schedule',
        )
        figure.suptitle(title)
        axes.set_yticks(range(len(accuracies)), [style.name(method) for method in accuracies])
        axes.tick_params(axis='y', length=0)
        axes.grid(False, axis='y')
    return path
