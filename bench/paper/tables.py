"""Tables and figures: ours compared with the paper's. Markdown, PNG and SVG.

`runs` maps (row, column) to the rows of results of that cell; cells without any say "not run yet".
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.paper.experiments import Cell, Experiment
from bench.results import style


class Summary(NamedTuple):
    """Mean and standard deviation (ddof 1; None for one seed) of `n` seeds, percent."""

    mean: float
    deviation: float | None
    n: int


def summary(runs: dict, cell: Cell) -> Summary | None:
    """Summary of the seeds of a cell; None without rows."""
    rows = runs.get((cell.row, cell.column), [])
    values = [float(row[cell.metric]) for row in rows if row.get(cell.metric)]
    if not values:
        return None
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), deviation, len(values))


def number(mean: float, deviation: float | None, n: int | None = None) -> str:
    """'67.9 ± 1.1 (5)': one decimal, as in the paper; more where a deviation would become zero."""
    text = f'{mean:.1f}'
    if deviation is not None:
        form = '.1g' if 1e-9 <= deviation < 0.05 else '.1f'
        text += f' ± {deviation:{form}}'
    return text if n is None else f'{text} ({n})'


def md_row(cells) -> str:
    """A line of a Markdown table."""
    return '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in cells) + ' |'


def md_table(heads, rows) -> str:
    """A Markdown table. rows: iterables of cells."""
    return '\n'.join([md_row(heads), '|' + '---|' * len(heads), *map(md_row, rows)])


def markdown(experiment: Experiment, runs: dict, findings: list, origin: str, choices: dict) -> str:
    """The whole page: title, origin, table, claims, and how values were chosen.

    findings: `claims.Finding` of each claim. origin: Markdown. choices: text -> rows. The table has
    for each row ours (number of seeds), then the paper's."""
    sections = [f'# {experiment.title}', experiment.about, origin]
    if experiment.cells:
        sections += _cells(experiment, runs)
    sections.append(experiment.table.strip())
    if findings:
        rows = [[f.says, f'**{f.verdict}**', f.evidence] for f in findings]
        heading = 'What the paper says of it' if experiment.source else 'Claims'
        sections += [f'## {heading}', md_table(['claim', 'our rows', 'why'], rows)]
    if choices:
        sections.append('## How the values of each method were chosen')
        sections.append(
            '\n'.join(f'- {", ".join(rows)}: {text}.' for text, rows in choices.items())
        )
    return '\n\n'.join(map(str, filter(None, sections))) + '\n'


def _cells(experiment: Experiment, runs: dict) -> list:
    """The table of an experiment's cells, and a line on how to read it."""
    labels = ['', ''] if experiment.source else ['']
    rows = []
    for row in experiment.rows:
        cells = [experiment.cells[row, column] for column in experiment.columns]
        seeds = [summary(runs, cell) for cell in cells]
        ours = [number(*some) if some else 'not run yet' for some in seeds]
        if experiment.source:
            papers = [number(*cell.paper) if cell.paper else '' for cell in cells]
            rows += [[row, 'ours', *ours], ['', 'paper', *papers]]
        else:
            rows.append([row, *ours])
    note = 'Percent: mean ± deviation over seeds (number of seeds).'
    if experiment.source:
        note += (
            ' The paper has a backbone of its own: compare the order of its numbers with ours, not '
            'their size.'
        )
    return [md_table([*labels, *experiment.columns], rows), note]


def figure(path: Path, experiment: Experiment, runs: dict) -> None:
    """Accuracy against columns, a line a row, bars of one standard deviation; the paper's in its
    own panel. Rows of one method have a colour each, and no zero."""
    compared = bool(experiment.source)
    models = [
        experiment.cells[row, experiment.columns[0]].flags['model'] for row in experiment.rows
    ]
    one_method = len(set(models)) == 1
    with style.picture(
        path,
        (8.6 if compared else 6, 3.8),
        ncols=1 + compared,
        sharex=True,
        sharey=True,
        squeeze=False,
    ) as (figure, (panels,)):
        for place, (row, model) in enumerate(zip(experiment.rows, models)):
            before = models[:place].count(model)
            colour, marker = style.nth(before) if one_method else style.of(model)
            line = ('-', '-.', ':')[before % 3]
            cells = [experiment.cells[row, column] for column in experiment.columns]
            ours = [summary(runs, cell) for cell in cells]
            for axes, values in zip(panels, (ours, [cell.paper for cell in cells])):
                points = [(x, *value[:2]) for x, value in enumerate(values) if value]
                if points:
                    x, mean, deviation = zip(*points)
                    if experiment.gain:
                        mean = np.subtract(mean, mean[0])
                    axes.errorbar(
                        x,
                        mean,
                        [d or 0 for d in deviation],
                        capsize=2,
                        label=row,
                        color=colour,
                        marker=marker,
                        linestyle=line,
                    )
        for axes, title in zip(panels, ('ours', 'the paper, with a backbone of its own')):
            axes.set(xlabel=experiment.x, title=title if compared else '')
            axes.set_xticks(range(len(experiment.columns)), experiment.columns)
        panels[0].set(
            ylabel='points' if experiment.gain else 'accuracy (%)',
            ylim=(None if one_method else 0, None),
        )
        figure.legend(*panels[0].get_legend_handles_labels(), loc='outside right center')
        figure.suptitle(experiment.title)


def bars(path: Path, experiment: Experiment, runs: dict) -> None:
    """Accuracy of each row that has any, a panel a column, bars of one standard deviation, paler
    where there is one run; a diamond is the paper's."""
    rows = [row for row in experiment.rows if any((row, c) in runs for c in experiment.columns)]
    columns = experiment.columns
    with style.picture(
        path,
        (3.2 * len(columns) + 1, 0.24 * len(rows) + 1),
        ncols=len(columns),
        sharex=True,
        sharey=True,
        squeeze=False,
    ) as (_, (panels,)):
        for axes, column in zip(panels, columns):
            for place, row in enumerate(rows):
                cell = experiment.cells[row, column]
                ours = summary(runs, cell)
                if ours:
                    colour = style.of(cell.flags['model'])[0]
                    alpha = 1 if ours.n > 1 else 0.45
                    axes.barh(place, ours.mean, xerr=ours.deviation, color=colour, alpha=alpha)
                    axes.text(102, place, number(*ours), va='center')
                if cell.paper:
                    axes.plot(cell.paper[0], place, 'D', color='white', mec='black')
            axes.set(title=column, xlabel='accuracy (%)', xlim=(0, 100))
            axes.grid(False, axis='y')
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
