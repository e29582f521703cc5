"""The tables of README.md and docs/, and their picture, from committed rows.

    python scripts/documents.py         # after scripts/report.py; both are `make tables`

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; `TABLES` has the names.
"""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from bench.paper.tables import md_table, number
from bench.results import plots, style
from core.arguments import ArgumentParser
from core.configs import read_yaml
from core.plugins import ROOT
from scroll.ground.archive import read_json, write_text
from scroll.heads.registry import HEADS

_BLOCK = re.compile(
    r'(<!-- table: (\S+) -->)(?:(?!<!-- table: ).)*?(?=<!-- end of table -->)', re.S
)
_DATA_SETS = {'seq-cifar10': 'CIFAR-10', 'seq-cifar100': 'CIFAR-100', 'seq-miniimg': 'miniImageNet'}


def schedules_table(root: Path, folder: str = 'clouds') -> str:
    """Dependence of each method on the schedule of the digits."""
    rows = []
    for model, runs in by_method(root / f'results/{folder}/seq-digits.csv').items():
        values = runs.final_accuracy
        rows.append(
            [
                style.name(model),
                len(runs),
                f'{values.mean():.2f} ± {values.std():.2f}',
                f'{values.min():.2f}',
                f'{np.ptp(values):.2f}',
                runs.outcome.nunique(),
            ]
        )
    return md_table(['', 'schedules', 'accuracy', 'worst', 'range', 'different predictors'], rows)


def tuned_table(root: Path) -> str:
    """Values that `scripts/tune.py` chose on EfficientNet-Lite0, and their accuracy on held-out
    samples.
    """
    accuracies = re.compile(
        r'tuned with \d+ trials .*?: (\S+) %; with the values of the first trial ([\d.]+) %'
        r'(?:; the best of \d+ finalists on .*?: ([\d.]+) %)?'
    )
    rows = []
    for path in sorted((ROOT / 'models/config').glob('*.yaml')):
        for rule in read_yaml(path).get('best') or []:
            when = rule['when']
            tuned = accuracies.match(rule.get('by', ''))
            if when.get('weights') == 'efficientnet-lite0' and tuned:
                best, first, final = tuned.groups('')
                passes = [f'`{n} {when[n]}`' for n in ('n_splits', 'n_epochs') if n in when]
                data = ', '.join([_DATA_SETS[when['dataset']], *passes])
                values = ', '.join(f'`{name} {value}`' for name, value in rule['set'].items())
                rows.append([style.name(path.stem), data, values, first, best, final])
    return md_table(['', 'data set', 'values', 'first trial', 'best', 'finalist'], rows)


def certificates_table(root: Path) -> str:
    """The certificates that are handed on: digests of what holds anywhere."""
    rows = []
    for path in sorted((root / 'results/certificates').glob('*.json')):
        certificate = read_json(path)
        settings = certificate['settings']
        anywhere = certificate['anywhere']
        name = next(line for line in anywhere if line.startswith('f_T, ')).removeprefix('f_T, ')
        head = name.split(', lambda')[0]
        lift = settings.get('lift', 'auto')
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


def verdicts_table(root: Path, file: str = 'verdicts') -> str:
    """Models and data sets of Mammoth checkouts by whether they run here."""
    verdicts = pd.read_csv(root / f'results/mammoth/{file}.csv', keep_default_na=False)
    verdicts['text'] = '`' + verdicts.name + '`'
    verdicts.loc[verdicts.verdict == 'fails', 'text'] += ': ' + verdicts.reason
    groups = verdicts.groupby(['kind', 'verdict'], sort=False).text
    rows = [[*group, len(texts), ', '.join(texts)] for group, texts in groups]
    rows.sort(key=lambda row: (list(verdicts.kind).index(row[0]), -row[2]))
    return md_table(['', 'verdict', '', 'which'], rows)


def compare_table(root: Path) -> str:
    """Our methods and those of a Mammoth checkout with the same flags: mean and deviation, their
    difference with its 95 % interval (Welch), and the ratio of processor times."""
    rows = []
    for model, runs in pd.read_csv(root / 'results/mammoth/compare.csv').groupby('model'):
        ours, theirs = (runs[runs['where'] == where] for where in ('here', 'there'))
        test = stats.ttest_ind(ours.accuracy, theirs.accuracy, equal_var=False)
        low, high = test.confidence_interval()
        difference = ours.accuracy.mean() - theirs.accuracy.mean()
        rows.append(
            [
                style.name(model),
                len(theirs),
                number(ours.accuracy.mean(), ours.accuracy.std()),
                number(theirs.accuracy.mean(), theirs.accuracy.std()),
                f'{difference:+.1f} ({low:+.1f} to {high:+.1f})',
                f'{ours.seconds.median() / theirs.seconds.median():.2f}',
            ]
        )
    return md_table(
        ['', 'runs, each', 'ours', "Mammoth's", 'difference (95 %)', 'processor time, of theirs'],
        rows,
    )


def authors_table(root: Path) -> str:
    """SCROLL as its authors published it and ours; last, how many different values there are."""
    runs = pd.read_csv(root / 'results/mammoth/authors.csv', dtype=str).set_index('schedule').T
    runs['different'] = runs.nunique(axis=1)
    return md_table(['', *runs], runs.reset_index().to_numpy())


def by_method(path: Path) -> dict:
    """Method -> DataFrame of its rows, the one that depends least on the schedule first."""
    methods = pd.read_csv(path, keep_default_na=False).groupby('model', sort=False)
    return dict(sorted(methods, key=lambda item: np.ptp(item[1].final_accuracy)))


TABLES = {
    'schedules': schedules_table,
    'certificates': certificates_table,
    'tuned': tuned_table,
    'mammoth_verdicts': verdicts_table,
    'mammoth_forks': partial(verdicts_table, file='forks'),
    'mammoth_schedules': partial(schedules_table, folder='mammoth'),
    'mammoth_compare': compare_table,
    'mammoth_authors': authors_table,
}


def update(root: Path, paths: list) -> list:
    """Renew the tables of these Markdown files; returns those that changed."""
    changed = []
    for path in paths:
        text = path.read_text(encoding='utf-8')
        new = _BLOCK.sub(lambda block: f'{block[1]}\n\n{TABLES[block[2]](root)}\n\n', text)
        if new != text:
            write_text(path, new)
            changed.append(path)
    return changed


def documents(root: Path) -> list:
    """README.md and the pages of docs/."""
    return [root / 'README.md', *sorted((root / 'docs').rglob('*.md'))]


def draw(root: Path) -> Path:
    """Draw the picture, the digits under many schedules; returns its path."""
    methods = by_method(root / 'results/clouds/seq-digits.csv')
    return plots.cloud(
        root / 'docs/figures/schedules.png',
        {model: runs.final_accuracy.tolist() for model, runs in methods.items()},
        'The same data, many schedules (handwritten digits)',
    )


def main():
    ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for path in (draw(ROOT), *update(ROOT, documents(ROOT))):
        print(path)
