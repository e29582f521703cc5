"""Tables and figures as text and pictures: ours beside the paper's. Markdown to read, LaTeX in the paper's layout, PNG.

`runs` maps (row, column) to the rows of results of that cell; cells without any stay empty.
"""
import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.paper.experiments import Experiment, lower, upper

_TEX = ((r'\|M\| = (\d+)', r'$|M|=\1$'), (r'\bf_T\b', '$f_T$'), (r'\bf\*', '$f^*$'), ('%', r'\\%'),
        ('SCROLL', r'\\textsc{Scroll}'), ('miniImageNet', r'\\textit{mini}ImageNet'))


@dataclass(frozen=True)
class Summary:
    """Mean and deviation (ddof 1; None for one seed) of `n` seeds, percent."""
    mean: float
    deviation: float
    n: int


def summary(rows: list, metric: str):
    """What the seeds of a cell come to; None without rows."""
    values = [float(row[metric]) for row in rows if row.get(metric)]
    if not values:
        return None
    return Summary(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


def summaries(experiment: Experiment, runs: dict) -> dict:
    """(row, column) -> Summary or None."""
    return {(c.row, c.column): summary(runs.get((c.row, c.column), []), c.metric) for c in experiment.cells}


def _number(mean: float, deviation, n: int = None) -> str:
    """'67.9 ± 1.1 (5)'."""
    return f'{mean:.1f}' + ('' if deviation is None else f' ± {_spread(deviation)}') + ('' if n is None else f' ({n})')


def _spread(deviation: float) -> str:
    """One decimal, as in the paper; more where that would make something of it zero."""
    return f'{deviation:.1f}' if deviation >= 0.05 or deviation < 1e-9 else f'{deviation:.1g}'


def markdown(experiment: Experiment, runs: dict, findings: list, facts: list) -> str:
    """The whole page: title, facts, table, claims. Of each row ours (number of seeds), then that of the paper."""
    lines = [f'# {experiment.title}', '', *([experiment.about, ''] if experiment.about else []), *facts, '']
    if experiment.cells:
        ours, beside = summaries(experiment, runs), experiment.of_the_paper
        heads = ['', ''] if beside else ['']
        lines += [md_row(heads + experiment.columns), '|' + '---|' * len(heads + experiment.columns)]
        for row in experiment.rows:
            cells = [experiment.cell(row, column) for column in experiment.columns]
            means = [ours[c.row, c.column] for c in cells]
            numbers = ['' if m is None else _number(m.mean, m.deviation, m.n) for m in means]
            lines.append(md_row([row, *['ours'] * beside, *numbers]))
            if beside:
                numbers = ['' if c.paper is None else _number(*c.paper) for c in cells]
                lines.append(md_row(['', 'paper', *numbers]))
        lines += ['', 'Percent: mean ± deviation over seeds (number of seeds).' + beside * (
            ' The paper has a psi of its own: its numbers stand beside ours for their order, not '
            'for their size.')]
    if experiment.values:
        lines += [md_row(['', 'what it is', 'flag', 'values in the paper']), '|---|---|---|---|']
        lines += [md_row([name, v['is'], f"`--{v['flag']}`", ', '.join(map(str, v['paper']))])
                  for name, v in experiment.values.items()]
    if findings:
        heading = 'What the paper says of it' if experiment.of_the_paper else 'Claims'
        lines += ['', f'## {heading}', '', md_row(['claim', 'our rows', 'why']), '|---|---|---|']
        lines += [md_row([f.says, f'**{f.verdict}**', f.evidence]) for f in findings]
    return '\n'.join(lines).rstrip() + '\n'


def md_row(cells: list) -> str:
    """A line of a Markdown table."""
    return '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in cells) + ' |'


def latex(experiment: Experiment, runs: dict) -> str:
    """A `table` for booktabs, multirow, graphicx, xcolor: ours, the best in bold, then the paper's in grey."""
    columns, ours = experiment.columns, summaries(experiment, runs)
    headings = [(heading, len(list(group))) for heading, group in itertools.groupby(map(upper, columns))]
    two_levels = any(lower(column) for column in columns)
    bars = '|'.join('c' * n for _, n in headings) if two_levels else 'c' * len(columns)
    lines = [r'\begin{table}[tb]', r'    \centering', r'    \scriptsize', rf'    \begin{{tabular}}{{ll|{bars}}}']
    if two_levels:
        last = len(headings) - 1
        lines += ['        & & ' + ' & '.join(rf'\multicolumn{{{n}}}{{c{"|" * (i < last)}}}{{\textbf{{{_tex(heading)}}}}}'
                                              for i, (heading, n) in enumerate(headings)) + r'\\', r'        \midrule']
    lines += ['        & & ' + ' & '.join(_tex(lower(column) or column) for column in columns) + r'\\']
    for group, rows in itertools.groupby(experiment.rows, key=experiment.groups.get):
        lines += [r'        \midrule', *_latex_group(experiment, group, list(rows), ours)]
    beside = ' Below our values, in grey, those of the paper.' if experiment.of_the_paper else ''
    lines += [r'    \end{tabular}', rf'    \caption{{{_tex(experiment.title)}.{beside}}}',
              rf'    \label{{{experiment.source or experiment.name}}}', r'\end{table}']
    return '\n'.join(lines) + '\n'


def _latex_group(experiment, group: str, rows: list, ours: dict) -> list:
    height = (1 + experiment.of_the_paper) * len(rows)
    lines = [rf'        \multirow{{{height}}}{{*}}{{\rotatebox[origin=c]{{90}}{{\textsc{{{group}}}}}}}'] if group else []
    for row in rows:
        cells = [experiment.cell(row, column) for column in experiment.columns]
        mine = [_latex_value(ours[c.row, c.column], _is_best(experiment, c, ours)) for c in cells]
        paper = [rf'\color{{gray}}{_latex_number(*c.paper)}' if c.paper else '' for c in cells]
        lines.append(f'        & {_tex(row)} & {_spanned(experiment, mine, paper, mine)}' + r' \\')
        if experiment.of_the_paper:
            lines.append(f'        & & {_spanned(experiment, mine, paper, paper)}' + r' \\')
    return lines


def _spanned(experiment, mine: list, paper: list, shown: list) -> str:
    """A line of cells; those below one upper heading become one where ours and the paper's are each the same in all of them."""
    parts, last = [], len(experiment.columns)
    for _, group in itertools.groupby(range(last), key=lambda i: upper(experiment.columns[i])):
        places = list(group)
        if len(places) > 1 and paper[places[0]] and len({(mine[i], paper[i]) for i in places}) == 1:
            bar = '|' * (places[-1] + 1 < last)
            parts.append(rf'\multicolumn{{{len(places)}}}{{c{bar}}}{{{shown[places[0]]}}}')
        else:
            parts += [shown[i] for i in places]
    return ' & '.join(parts)


def _latex_value(found, best: bool) -> str:
    return '' if found is None else _latex_number(found.mean, found.deviation, best)


def _latex_number(mean: float, deviation, best: bool = False) -> str:
    mean = rf'$\mathbf{{{mean:.1f}}}$' if best else f'${mean:.1f}$'
    return mean + ('' if deviation is None else rf' \tiny{{$\pm {_spread(deviation)}$}}')


def _is_best(experiment, cell, ours: dict) -> bool:
    """Whether it is the highest of its column; where rows have headings, of those that have one (the others are bounds)."""
    rows = [row for row in experiment.rows if experiment.groups.get(row)] or experiment.rows
    have = [ours[row, cell.column].mean for row in rows if ours[row, cell.column]]
    mine = ours[cell.row, cell.column]
    return cell.row in rows and mine is not None and len(have) > 1 and mine.mean == max(have)


def _tex(text: str) -> str:
    for plain, written in _TEX:
        text = re.sub(plain, written, text)
    return text


def figure(path: Path, experiment: Experiment, runs: dict) -> Path:
    """Accuracy against columns, a line a row with bars of one deviation; the paper's points are hollow."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    picture = Figure(figsize=(6, 3.8), layout='constrained')
    FigureCanvasAgg(picture)
    axes, ours, places = picture.subplots(), summaries(experiment, runs), range(len(experiment.columns))
    for i, row in enumerate(experiment.rows):
        found = [ours[row, column] for column in experiment.columns]
        paper = [experiment.cell(row, column).paper for column in experiment.columns]
        axes.errorbar(places, [math.nan if f is None else f.mean for f in found], [(f and f.deviation) or 0 for f in found],
                      marker='o', markersize=4, capsize=2, color=f'C{i}', label=row)
        axes.plot(places, [math.nan if p is None else p[0] for p in paper], 'o', mfc='none', color=f'C{i}')
    if experiment.of_the_paper:
        axes.plot([], [], 'o', mfc='none', color='grey', label='the paper, with its psi')
    axes.set(xlabel=experiment.x, ylabel='accuracy (%)', title=experiment.title, ylim=(0, 100))
    axes.set_xticks(places, [column.removesuffix('-split') for column in experiment.columns])
    axes.grid(alpha=0.3)
    axes.legend(fontsize='x-small', ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)
    return path
