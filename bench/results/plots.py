"""Pictures of runs, of schedules, and of methods under many schedules."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from bench.results import style
from scroll.ground.archive import check_target
from scroll.ground.errors import InputError
from utils import metrics


def check_out(path: Path) -> None:
    """InputError unless a picture can be written there."""
    if path.suffix not in ('.png', '.svg'):
        raise InputError(f'--out {path}: expected a name that ends in .png or .svg')
    check_target(path, '--out')


def run_picture(path: Path, row: dict) -> Path | None:
    """Draw mean accuracy after each task, and accuracy on each task after each task; return the
    path, or None for a run of one task. row: of a results file."""
    R = json.loads(row['accuracy_matrix'])
    if len(R) < 2:
        return None
    last = len(R[-1])
    with style.picture(path, (8.6, 3.8), ncols=2) as (figure, (along, each)):
        for label, column in (
            ('the model tested', 'accuracy_matrix'),
            ('online classifier f_T', 'online_accuracy_matrix'),
        ):
            if row.get(column):
                lines = json.loads(row[column])
                along.plot(list(map(len, lines)), list(map(metrics.mean, lines)), '.-', label=label)
        along.xaxis.get_major_locator().set_params(integer=True)
        along.set(xlabel='tasks learned', ylabel='mean accuracy so far (%)', ylim=(0, 105))
        along.legend()
        square = [line + [np.nan] * (last - len(line)) for line in R]
        image = each.imshow(
            square,
            cmap=style.SEQUENTIAL,
            vmin=0,
            vmax=100,
            extent=(0.5, last + 0.5, last + 0.5, len(R[0]) - 0.5),
        )
        each.set(xlabel='task tested', ylabel='tasks learned')
        each.grid(False)
        figure.colorbar(image, ax=each, label='accuracy (%)')
        figure.suptitle(f'{row["model"]} on {row["dataset"]}, {row["schedule"]}')
    return path


def rows_picture(path: Path, rows: pd.DataFrame, by: pd.DataFrame, against: str) -> Path:
    """Draw mean and standard deviation of groups of rows: final accuracy, the mean accuracy after
    each task, forgetting, and final accuracy against a column.

    Args:
        path: of the picture.
        rows: of results files.
        by: text, a row for each of theirs; rows of a group agree in it, 'model' among it.
        against: name of the column.

    LookupError, TypeError, ValueError: no such column, or cells that are no numbers."""
    shown = (by.nunique() > 1) | (by.columns == 'model')
    names = by.loc[:, shown].agg(', '.join, axis=1)
    groups = dict(iter(rows.groupby(names, sort=False)))
    with style.picture(path, (11, 0.3 * len(groups) + 6), nrows=2, ncols=2) as (figure, grid):
        last, along, forgotten, cost = grid.flat
        for place, group in enumerate(groups.values()):
            colour, marker = style.nth(place)
            look = {'color': colour, 'marker': marker}
            accuracy = group.final_accuracy
            matrices = group.get('accuracy_matrix', accuracy[:0]).dropna()
            lost = matrices.map(json.loads).map(metrics.forgetting).dropna()
            for axes, values in ((last, accuracy), (forgotten, lost)):
                if len(values):
                    axes.barh(place, values.mean(), xerr=values.std(), color=colour)
            tasks = group.filter(regex=r'^task\d+$').dropna(axis=1)
            along.errorbar(range(1, tasks.shape[1] + 1), tasks.mean(), tasks.std(), **look)
            cost.errorbar(group[against].mean(), accuracy.mean(), accuracy.std(), **look)
        for axes in (last, forgotten):
            axes.set_yticks(range(len(groups)), groups)
            axes.invert_yaxis()
        last.set(xlabel='final accuracy (%)')
        forgotten.set(xlabel='forgetting (points)')
        along.set(xlabel='tasks learned', ylabel='mean accuracy so far (%)')
        along.xaxis.get_major_locator().set_params(integer=True)
        cost.set(xlabel=against, ylabel='final accuracy (%)')
        for axes in grid.flat:
            axes.set_visible(axes.has_data())
        figure.suptitle(', '.join(by.loc[:, ~shown].iloc[0]))
    return path


def schedule_picture(path: Path, pictures: dict, title: str) -> Path:
    """Draw when samples of which class arrive, class against time: a panel a schedule, one colour
    scale.

    pictures: name -> int (K, bins), samples of each class in each of equally long parts of the
    stream."""
    shares = {name: 100 * counts / counts.sum(axis=0).clip(1) for name, counts in pictures.items()}
    top = max(share.max() for share in shares.values())
    with style.picture(
        path,
        (4.6, 2.1 * len(shares) + 0.6),
        nrows=len(shares),
        sharex=True,
        sharey=True,
        squeeze=False,
    ) as (figure, grid):
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
            spread = (0.618034 * np.arange(len(points)) + 0.5) % 1 - 0.5
            axes.plot(
                points,
                place + 0.5 * spread,
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
