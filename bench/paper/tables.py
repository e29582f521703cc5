"""Tables and figures: ours compared with the paper's. Markdown, PNG and SVG.

`runs` maps (row, column) to the rows of results of that cell; cells without any say "not run yet".
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.paper.experiments import Cell, Experiment
from bench.results import style

NOT_RUN = 'not run yet'


class Summary(NamedTuple):
    """Mean and standard deviation (ddof 1; None for one seed) of `n` seeds, percent."""

    mean: float
    deviation: float
    n: int


def summary(runs: dict, cell: Cell):
    """Of the seeds of a cell; None without rows."""
    rows = runs.get((cell.row, cell.column), [])
    values = [float(row[cell.metric]) for row in rows if row.get(cell.metric)]
    if not values:
        return None
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Summary(float(np.mean(values)), deviation, len(values))


def number(mean: float, deviation, n: int | None = None) -> str:
    """'67.9 ± 1.1 (5)': one decimal, as in the paper; more where that would make a deviation zero."""
    text = f'{mean:.1f}'
    if deviation is not None:
        text += (
            f' ± {deviation:.1f}'
            if deviation >= 0.05 or deviation < 1e-9
            else f' ± {deviation:.1g}'
        )
    return text if n is None else f'{text} ({n})'


def markdown(experiment: Experiment, runs: dict, findings: list, facts: list, chosen: dict) -> str:
    """The whole page: title, facts, table, claims, how values were chosen (text -> rows). Of each
    row of the table ours (number of seeds), then the paper's."""
    lines = [
        f'# {experiment.title}',
        '',
        *([experiment.about, ''] if experiment.about else []),
        *facts,
        '',
    ]
    if experiment.cells:
        compared, rows = bool(experiment.source), []
        for row in experiment.rows:
            cells = [experiment.cell(row, column) for column in experiment.columns]
            ours = [summary(runs, cell) for cell in cells]
            rows.append(
                [row, *['ours'] * compared, *(number(*of) if of else NOT_RUN for of in ours)]
            )
            if compared:
                rows.append(
                    ['', 'paper', *('' if c.paper is None else number(*c.paper) for c in cells)]
                )
        lines += [
            *md_table(['', *[''] * compared, *experiment.columns], rows),
            '',
            'Percent: mean ± deviation over seeds (number of seeds).'
            + compared
            * (
                ' The paper has a backbone of its own: compare the order of its numbers with ours, not '
                'their size.'
            ),
        ]
    if experiment.values:
        lines += md_table(
            ['', 'what it is', 'flag', 'values in the paper'],
            [
                [name, v['is'], f'`--{v["flag"]}`', ', '.join(map(str, v['paper']))]
                for name, v in experiment.values.items()
            ],
        )
    if findings:
        heading = 'What the paper says of it' if experiment.source else 'Claims'
        lines += [
            '',
            f'## {heading}',
            '',
            *md_table(
                ['claim', 'our rows', 'why'],
                [[f.says, f'**{f.verdict}**', f.evidence] for f in findings],
            ),
        ]
    if chosen:
        lines += [
            '',
            '## How the values of each method were chosen',
            '',
            *(f'- {", ".join(rows)}: {text}.' for text, rows in chosen.items()),
        ]
    return '\n'.join(lines).rstrip() + '\n'


def md_row(cells: list) -> str:
    """A line of a Markdown table."""
    return '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in cells) + ' |'


def md_table(heads: list, rows: list) -> list:
    """Lines of a Markdown table."""
    return [md_row(heads), '|' + '---|' * len(heads), *map(md_row, rows)]


def figure(path: Path, experiment: Experiment, runs: dict) -> Path:
    """Accuracy against columns, a line a row, bars of one standard deviation; the paper's in its
    own panel. Rows of one method have a colour each, and no zero."""
    compared = bool(experiment.source)
    models = {
        row: experiment.cell(row, experiment.columns[0]).flags['model'] for row in experiment.rows
    }
    one_method, nth, drawn = len(set(models.values())) == 1, Counter(), {}
    with style.picture(
        path,
        columns=1 + compared,
        size=(8.6, 3.8) if compared else (6, 3.8),
        sharex=True,
        sharey=True,
        squeeze=False,
    ) as (figure, (panels,)):
        for row, model in models.items():
            colour, marker = style.nth(nth[model]) if one_method else style.of(model)
            look = {
                'color': colour,
                'marker': marker,
                'linestyle': ('-', '-.', ':')[nth[model] % 3],
            }
            nth[model] += 1
            cells = [experiment.cell(row, column) for column in experiment.columns]
            for axes, values in zip(
                panels, ([summary(runs, c) for c in cells], [c.paper for c in cells])
            ):
                if points := [(x, *of[:2]) for x, of in enumerate(values) if of]:
                    x, mean, deviation = zip(*points)
                    around = [d or 0 for d in deviation]
                    drawn.setdefault(
                        row, axes.errorbar(x, mean, around, capsize=2, label=row, **look)
                    )
        for axes, title in zip(panels, ('ours', 'the paper, with a backbone of its own')):
            axes.set(xlabel=experiment.x, title=title if compared else '')
            axes.set_xticks(range(len(experiment.columns)), experiment.columns)
        panels[0].set(ylabel='accuracy (%)', ylim=(None if one_method else 0, None))
        if drawn:
            figure.legend(list(drawn.values()), list(drawn), loc='outside right center')
        figure.suptitle(experiment.title)
    return path
