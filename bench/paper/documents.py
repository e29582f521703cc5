"""The tables of README.md and docs/, and their picture, from committed rows.

    python scripts/documents.py                         # after scripts/report.py; both are `make tables`

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; `TABLES` has the names.
"""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bench.certify.sensitivity import figures, predictors_of
from bench.checkout import side_by_side
from bench.paper.experiments import Cell, cell_rows, load
from bench.paper.report import write
from bench.paper.tables import NOT_RUN, md_table, number, summary
from bench.results import plots, style
from core.arguments import ArgumentParser
from core.configs import read_yaml
from core.plugins import ROOT
from core.rows import read_rows
from scroll.ground.archive import read_json
from scroll.ground.errors import InputError
from scroll.heads.registry import HEADS

_BLOCK = re.compile(r'(?<=<!-- table: )(\S+)( -->\n\n).*?(?=<!-- end of table -->)', re.S)
_ROWS = 'results/rows'
_DATA_SETS = {'seq-cifar10': 'CIFAR-10', 'seq-cifar100': 'CIFAR-100', 'seq-miniimg': 'miniImageNet'}


def main_table(root: Path) -> list:
    """Every method on EfficientNet-Lite0 at |M| = 500, next to the paper; SCROLL on wider features."""
    ours, rows, better = load(ROOT / 'experiments/lite_comparison.yaml'), [], 'Ridge, square, 5,000'
    runs, wide = cell_rows(root / _ROWS, ours.name), cell_rows(root / _ROWS, 'features')
    last = f'SCROLL ({better}) on wider features, no sample in memory'
    runs |= {
        (last, c): wide[better, f'EfficientNet-Lite0 96 px, {c.split()[0]}'] for c in ours.columns
    }
    printed = {c for title in ours.rows for c in ours.columns if ours.cell(title, c).paper}
    for title in [*ours.rows, last]:
        rows.append([title])
        for name in ours.columns:
            paper = ours.cell(title, name).paper if title in ours.rows else None
            found = summary(runs, Cell(title, name, {}, None))
            rows[-1] += [
                number(*found) if found else NOT_RUN,
                *[number(*paper) if paper else ''] * (name in printed),
            ]
    return md_table(
        ['', *(s for c in ours.columns for s in (c, 'in the paper')[: 1 + (c in printed)])], rows
    )


def schedules_table(root: Path, folder: str = 'clouds') -> list:
    """How far each method depends on the schedule of the digits."""
    rows = []
    for model, mine in cloud_rows(root / f'results/{folder}/seq-digits.csv').items():
        values = np.array([float(row['final_accuracy']) for row in mine])
        rows.append(
            [
                style.name(model),
                len(mine),
                f'{values.mean():.2f} ± {values.std(ddof=1):.2f}',
                f'{values.min():.2f}',
                f'{np.ptp(values):.2f}',
                len({row['outcome'] for row in mine}),
            ]
        )
    return md_table(['', 'schedules', 'accuracy', 'worst', 'range', 'different predictors'], rows)


def orders_table(root: Path, dataset: str = 'seq-digits') -> list:
    """How far each method depends on the order of a data set's classes, in numbers."""
    names, rows = ('worst', 'cvar10', 'anytime', 'easiest', 'hardest', 'worst_found'), []
    for model, mine in cloud_rows(root / f'results/orders/{dataset}.csv').items():
        of = figures(mine)
        shares = of['variance'] or ()
        rows.append(
            [
                style.name(model),
                number(of['mean'], of['deviation'], of['orders']),
                *(f'{of[n]:.2f}' for n in names),
                ', '.join(f'{share:.0f}' for share in shares) if any(shares) else 'none',
                predictors_of(of),
            ]
        )
    return md_table(
        [
            '',
            'random orders',
            'worst',
            'CVaR 10 %',
            'anytime',
            'easiest',
            'hardest',
            'worst found',
            'variance by order, seed, rest (%)',
            'different predictors',
        ],
        rows,
    )


def tuned_table(root: Path) -> list:
    """What `scripts/tune.py` chose on EfficientNet-Lite0, and what it was worth on held-out
    samples.
    """
    found = re.compile(
        r'tuned with \d+ trials .*?: (\S+) %; with the values of the first trial ([\d.]+) %'
        r'(?:; the best of \d+ finalists on .*?: ([\d.]+) %)?'
    )
    rows = []
    for path in sorted((ROOT / 'models/config').glob('*.yaml')):
        for rule in read_yaml(path).get('best') or []:
            if rule['when'].get('weights') == 'efficientnet-lite0':
                best, first, final = found.match(rule['by']).groups('')
                values = ', '.join(f'`{name} {value}`' for name, value in rule['set'].items())
                data = [_DATA_SETS[rule['when']['dataset']]]
                for name in ('n_splits', 'n_epochs'):
                    if name in rule['when']:
                        data.append(f'`{name} {rule["when"][name]}`')
                rows.append(
                    [
                        style.name(path.stem) + ' (NCC)' * (rule['when'].get('predictor') == 'ncc'),
                        ', '.join(data),
                        values,
                        first,
                        best,
                        final,
                    ]
                )
    return md_table(['', 'data set', 'values', 'first trial', 'best', 'finalist'], rows)


def certificates_table(root: Path) -> list:
    """The certificates that are handed on: digests of what holds anywhere."""
    rows = []
    for path in sorted((root / 'results/certificates').glob('*.json')):
        certificate = read_json(path)
        settings, anywhere = certificate['settings'], certificate['anywhere']
        name = next(line for line in anywhere if line.startswith('f_T, ')).removeprefix('f_T, ')
        head, lift = name.split(', lambda')[0], settings.get('lift', 'auto')
        if lift != 'auto':
            head += f', {lift}'
        if lift != 'auto' or HEADS[settings['predictor']].lift:
            head += f', {settings["lift_dim"]}'
        rows.append(
            [
                f'`{path.name}`',
                head,
                f'{certificate["verdict"]["schedules"]:,}',
                anywhere['statistics'][:8],
                anywhere[f'f_T, {name}'][:8],
                anywhere[f'right, {name}'],
            ]
        )
    return md_table(['file', 'f_T', 'schedules', 'statistics', "f_T's digest", 'right'], rows)


def verdicts_table(root: Path) -> list:
    """What of a Mammoth checkout runs here."""
    found = pd.read_csv(root / 'results/mammoth/verdicts.csv', keep_default_na=False)
    rows = []
    for (kind, verdict), mine in found.groupby(['kind', 'verdict'], sort=False):
        names = [
            f'`{name}`' + f': {reason}' * (verdict == 'fails')
            for name, reason in zip(mine['name'], mine.reason)
        ]
        rows.append([kind, verdict, len(mine), ', '.join(names)])
    return md_table(
        ['', 'verdict', '', 'which'], sorted(rows, key=lambda row: (row[0] != 'model', -row[2]))
    )


def configs_table(root: Path) -> list:
    """The configurations of a Mammoth checkout whose values are not the same here."""
    found = pd.read_csv(root / 'results/mammoth/configs.csv', dtype=str, keep_default_na=False)
    other = found[found.equal != '1']
    names = ['model', 'dataset', 'buffer_size', 'dataset_config', 'difference']
    rows = [
        [f'{len(found) - len(other)} of {len(found)}', '', '', '', 'none'],
        *other[names].to_numpy(),
    ]
    return md_table(['model', 'data set', '|M|', 'file', 'difference, theirs / ours'], rows)


def compare_table(root: Path) -> list:
    """Our methods and those of a Mammoth checkout with the same flags."""
    rows = read_rows(root / 'results/mammoth/compare.csv')
    return md_table(
        ['', 'runs, each', 'ours', "Mammoth's", 'difference (95 %)', 'processor time, of theirs'],
        [
            [style.name(model), *side_by_side(model, rows)]
            for model in sorted({row['model'] for row in rows})
        ],
    )


def cloud_rows(path: Path) -> dict:
    """Method -> rows, the one that depends least on the schedule first."""
    found = {}
    for row in read_rows(path):
        found.setdefault(row['model'], []).append(row)

    def span(rows):
        return np.ptp([float(row['final_accuracy']) for row in rows])

    return dict(sorted(found.items(), key=lambda item: span(item[1])))


TABLES = {
    'main': main_table,
    'schedules': schedules_table,
    'certificates': certificates_table,
    'tuned': tuned_table,
    'mammoth_verdicts': verdicts_table,
    'mammoth_configs': configs_table,
    'mammoth_schedules': partial(schedules_table, folder='mammoth'),
    'mammoth_compare': compare_table,
    'orders': orders_table,
    'orders_cifar100': partial(orders_table, dataset='seq-cifar100'),
}


def update(root: Path, paths: list) -> list:
    """Renew the tables of these Markdown files; returns those that changed. InputError: an unknown
    table.
    """
    changed = []
    for path in paths:

        def renewed(found, path=path):
            if found[1] not in TABLES:
                raise InputError(f'{path}: table {found[1]}: expected one of {", ".join(TABLES)}')
            return found[1] + found[2] + '\n'.join(TABLES[found[1]](root)) + '\n\n'

        text = path.read_text(encoding='utf-8')
        if (new := _BLOCK.sub(renewed, text)) != text:
            write(path, new)
            changed.append(path)
    return changed


def documents(root: Path) -> list:
    """README.md and the pages of docs/."""
    return [root / 'README.md', *sorted((root / 'docs').rglob('*.md'))]


def draw(root: Path) -> Path:
    """The picture: the digits under many schedules."""
    digits = {
        model: [float(row['final_accuracy']) for row in rows]
        for model, rows in cloud_rows(root / 'results/clouds/seq-digits.csv').items()
    }
    return plots.cloud(
        root / 'docs/figures/schedules.png',
        digits,
        'The same data, many schedules (handwritten digits)',
    )


def main():
    ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for path in (draw(ROOT), *update(ROOT, documents(ROOT))):
        print(path)
