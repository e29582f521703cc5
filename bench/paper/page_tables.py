"""The tables of README.md and docs/, each from committed rows: a function a table, its lines in Markdown."""
import json
import re
from functools import partial
from pathlib import Path

import numpy as np

from bench.certify.sensitivity import figures, predictors_of
from bench.paper.experiments import load
from bench.paper.tables import md_row, number, summary
from bench.results import style
from bench.speed.tables import digest_lines, learner_lines, rate_lines, request_lines
from core.configs import read_yaml
from core.plugins import ROOT
from core.rows import read_rows
from scroll.heads.registry import HEADS

_DATA_SETS = {'seq-cifar10': 'CIFAR-10, 5 tasks', 'seq-cifar100': 'CIFAR-100, 10 tasks',
              'seq-miniimg': 'miniImageNet, 10 tasks'}
_SIZES = ('200', '500', '2000')


def main_table(root: Path) -> list:
    """The paper's first table at |M| = 500: ours on EfficientNet-Lite0, and the paper's."""
    paper, label = load(ROOT / 'experiments/table_1_cifar.yaml'), 'lite_table_1_cifar'
    ours, runs = load(ROOT / f'experiments/{label}.yaml'), _runs(root, label)
    names = ('CIFAR-10 5-split', 'CIFAR-100 10-split')
    heads = [head for name in names for head in (name, 'in the paper')]
    lines = [md_row(['', *heads]), '|---|' + '---|' * len(heads)]
    rows = {'SCROLL (NCC)': ('NCC', 500), 'SCROLL (Ridge)': ('Ridge', 500),
            'SCROLL (RP, 5,000), no sample in memory': ('RP, 5,000 (ridge, relu)', 0)}
    for title in dict.fromkeys([*paper.rows, *rows]):
        texts = []
        for name in names:
            row, size = rows.get(title, (None, 0))
            column = f'{name}, |M| = {size}'
            mine = row and summary(runs[row, column], ours.cell(row, column).metric)
            of_paper = paper.cell(title, f'{name}, |M| = 500').paper if title in paper.rows else None
            texts += [number(mine.mean, mine.deviation) if mine else 'not run yet',
                      number(*of_paper) if of_paper else '']
        lines.append(md_row([title, *texts]))
    return lines


def scroll_table(root: Path) -> list:
    """SCROLL with both classifiers, before and after adaptation, by data set and buffer size."""
    rows = [row for name in ('table_1_cifar', 'table_2_miniimagenet') for cell in _runs(root, name).values()
            for row in cell
            if row['model'] == 'scroll']
    lines = [md_row(['data set', 'classifier', 'f_T', *(f'f*, |M| = {size}' for size in _SIZES)]),
             '|---|---|' + '---|' * 4]
    for dataset, name in _DATA_SETS.items():
        for predictor, classifier in (('ridge', 'ridge'), ('ncc', 'NCC')):
            mine = [row for row in rows if (row['dataset'], row['predictor']) == (dataset, predictor)]
            adapted = [summary([row for row in mine if row['buffer_size'] == size], 'adapted_accuracy')
                       for size in _SIZES]
            f_t = summary(mine, 'online_accuracy')
            lines.append(md_row([name, classifier, f'{f_t.mean:.2f}', *(
                f'{a.mean:.2f} ± {a.deviation:.2f}' if a else '' for a in adapted)]))
    return lines


def digest_table(root: Path) -> list:
    """SCROLL on CIFAR-100, ridge, |M| = 500, seed 0: a line for each set of accuracies and digests."""
    names = ('online_accuracy', 'adapted_accuracy', 'statistics_digest', 'online_digest', 'buffer_digest',
             'adapted_digest')
    found = {}
    for label in ('figure_2_splits', 'table_5_two_class_splits', 'table_6_ensemble'):
        for row in (row for cell in _runs(root, label).values() for row in cell):
            wanted = dict(model='scroll', dataset='seq-cifar100', predictor='ridge',
                          buffer_size='500', seed='0')
            if all(row.get(name) == value for name, value in wanted.items()):
                values = tuple(row[name][:8] if 'digest' in name else f'{float(row[name]):.2f}'
                               for name in names)
                found.setdefault(values, set()).add(row['schedule'])
    lines = [md_row(['schedules', 'f_T', 'f*', 'statistics', "f_T's digest", 'buffer', "f*'s digest"]),
             '|---|' + '---|' * 6]
    by_tasks = lambda spec: (not spec.startswith('split'), [int(n) for n in re.findall(r'\d+', spec)])
    return lines + [md_row([', '.join(f'`{spec}`' for spec in sorted(specs, key=by_tasks)), *values])
                    for values, specs in found.items()]


def schedules_table(root: Path) -> list:
    """How far each method depends on the schedule of the digits."""
    lines = [md_row(['', 'schedules', 'accuracy', 'worst', 'range', 'different predictors']),
             '|---|' + '---|' * 5]
    for model, rows in cloud_rows(root / 'results/clouds/seq-digits.csv').items():
        values = np.array([float(row['final_accuracy']) for row in rows])
        lines.append(md_row([style.name(model), len(rows), f'{values.mean():.2f} ± {values.std(ddof=1):.2f}',
                             f'{values.min():.2f}', f'{np.ptp(values):.2f}',
                             len({row['outcome'] for row in rows})]))
    return lines


def orders_table(root: Path, dataset: str = 'seq-digits') -> list:
    """How far each method depends on the order of a data set's classes, in numbers."""
    found = {model: figures(rows)
             for model, rows in cloud_rows(root / f'results/orders/{dataset}.csv').items()}
    names = dict(worst='worst', cvar10='CVaR 10 %', anytime='anytime', easiest='easiest', hardest='hardest',
                 worst_found='worst found')
    lines = [md_row(['', 'random orders', *names.values(), 'variance by order, seed, rest (%)',
                     'different predictors']), '|---|' + '---|' * 9]
    for model, of in found.items():
        shares = of['variance'][:3] if of['variance'] else ()
        lines.append(md_row([
            style.name(model), number(of['mean'], of['deviation'], of['orders']),
            *(f'{of[n]:.2f}' for n in names),
            ', '.join(f'{share:.0f}' for share in shares) if any(shares) else 'none', predictors_of(of)]))
    return lines


def tuned_table(root: Path) -> list:
    """What `scripts/tune.py` chose for the backbone `small`, and what it was worth on held-out samples."""
    said = re.compile(r'tuned with (\d+) trials .*? tasks(?:, \|M\| = (\d+))?: (\S+) %; with the values of '
                      r'the first trial (\S+) %')
    lines = [md_row(['', 'data set', '|M|', 'trials', 'values', 'held out', 'first trial']),
             '|---|' + '---|' * 6]
    for path in sorted((ROOT / 'models/config').glob('*.yaml')):
        for rule in read_yaml(path).get('best') or []:
            if rule['when'].get('weights') == 'small':
                trials, size, best, first = said.match(rule['by']).groups()
                values = ', '.join(f'`{name} {value}`' for name, value in rule['set'].items())
                dataset = _DATA_SETS.get(rule['when']['dataset'], 'digits').split(',')[0]
                if passes := rule['when'].get('n_epochs'):
                    dataset += f', {passes} {"pass" if passes == 1 else "passes"}'
                lines.append(md_row([style.name(path.stem), dataset, size or 'none', trials, values, best,
                                     first]))
    return lines


def label_errors_table(root: Path) -> list:
    """How well out-of-sample scores find wrong labels, by head; f_T learned with them."""
    runs = _runs(root, 'label_errors')
    heads, columns = (list(dict.fromkeys(cell[i] for cell in runs)) for i in (0, 1))
    lines = [md_row(['head', *(title for column in columns for title in (f'{column}, AUC', 'f_T'))]),
             '|---|' + '---|---|' * len(columns)]
    return lines + [md_row([head, *(f'{s.mean:.2f} ± {s.deviation:.2f}' for column in columns for s in (
        summary(runs[head, column], metric) for metric in ('label_error_auc', 'online_accuracy')))])
        for head in heads]


def heads_table(root: Path) -> list:
    """f_T by head, and the megabytes of what it is made of, for 256 features and 100 classes."""
    return _rows_by_head(root, 'heads', 'state, MB', lambda flags: f'{_megabytes(flags):.1f}')


def heads_adapted_table(root: Path) -> list:
    """f_T and f* by head."""
    return _rows_by_head(root, 'heads_adapted')


def lite_table(root: Path) -> list:
    """SCROLL on EfficientNet-Lite0 at 96 px, and what the paper has beside NCC and ridge."""
    return _rows_by_head(root, 'lite_table_1_cifar', with_paper=True)


def lite_sizes_table(root: Path) -> list:
    """f_T on EfficientNet-Lite0 by head and input size."""
    return _rows_by_head(root, 'lite_sizes')


def _rows_by_head(root: Path, label: str, second: str = None, of_flags=None, with_paper=False) -> list:
    """The rows and columns of an experiment that have runs; `second`: a column more, `of_flags` of a cell;
    with_paper: what the paper has in a line below."""
    experiment, runs = load(ROOT / f'experiments/{label}.yaml'), _runs(root, label)
    columns = [column for column in experiment.columns if any(column == known for _, known in runs)]
    lines = [md_row(['head', *([second] if second else []), *columns])]
    lines.append('|---' * (len(columns) + 1 + bool(second)) + '|')
    for row in experiment.rows:
        cells = [experiment.cell(row, column) for column in columns]
        found = [summary(runs.get((row, cell.column), []), cell.metric) for cell in cells]
        if any(found):
            own = [of_flags(cells[0].flags)] if second else []
            lines.append(md_row([row, *own, *map(_with_deviation, found)]))
        if with_paper and any(cell.paper for cell in cells):
            lines.append(md_row([f'{row}, the paper', *(number(*c.paper) if c.paper else '' for c in cells)]))
    return lines


def _with_deviation(of) -> str:
    """Mean and standard deviation, if there is any; '' without rows."""
    if of is None:
        return ''
    return f'{of.mean:.2f}' + (f' ± {of.deviation:.2f}' if (of.deviation or 0) > 1e-9 else '')


def _megabytes(flags: dict, features: int = 256, classes: int = 100) -> float:
    """Of counts, class sums and Gram matrices."""
    head = HEADS[flags['predictor']]
    size = features + (flags.get('lift_dim', 0) if head.lift or 'lift' in flags else 0) + 1
    return 8e-6 * size * (size * (classes if head.by_class else 1) + classes)


def certificates_table(root: Path) -> list:
    """The certificates that are handed on: digests of what holds anywhere."""
    lines = [md_row(['file', 'f_T', 'schedules', 'statistics', "f_T's digest", 'right']),
             '|---|' + '---|' * 5]
    for path in sorted((root / 'results/certificates').glob('*.json')):
        certificate = json.loads(path.read_text(encoding='utf-8'))
        settings, said = certificate['settings'], certificate['anywhere']
        head = name = settings.get('predictor') or settings['head']
        if head == 'ridge':
            name = f"ridge, lambda {settings['ridge_lambda']}"
        if settings.get('lift', 'auto') != 'auto':
            head += f", {settings['lift']}"
        if HEADS[name.split(',')[0]].lift or 'lift' in settings and settings['lift'] != 'auto':
            head += f", {settings['lift_dim']}"
        lines.append(md_row([f'`{path.name}`', head, f"{certificate['verdict']['schedules']:,}",
                             said['statistics'][:8], said[f'f_T, {name}'][:8], said[f'right, {name}']]))
    return lines


def requests_table(root: Path) -> list:
    """What thousands of requests leave of exact sums, float64 sums and recursive least squares."""
    return request_lines(read_rows(root / 'results/bench/requests.csv'))


def learners_table(root: Path) -> list:
    """SCROLL beside scikit-learn's linear classifiers."""
    return learner_lines(read_rows(root / 'results/bench/learners.csv'))


def engine_digests_table(root: Path) -> list:
    """One digest from every engine."""
    return digest_lines(read_rows(root / 'results/bench/engines.csv'))


def engine_rates_table(root: Path) -> list:
    """What counting files costs."""
    return rate_lines(read_rows(root / 'results/bench/engines.csv'))


def _runs(root: Path, label: str) -> dict:
    """(row, column) -> committed rows."""
    found = {}
    for row in read_rows(root / 'results/rows' / f'{label}.csv'):
        found.setdefault((row['row'], row['column']), []).append(row)
    return found


def cloud_rows(path: Path) -> dict:
    """Method -> rows, the one that depends least on the schedule first."""
    found = {}
    for row in read_rows(path):
        found.setdefault(row['model'], []).append(row)
    span = lambda rows: np.ptp([float(row['final_accuracy']) for row in rows])
    return dict(sorted(found.items(), key=lambda item: span(item[1])))


TABLES = {'main': main_table, 'scroll': scroll_table, 'digests': digest_table, 'schedules': schedules_table,
          'label_errors': label_errors_table, 'heads': heads_table, 'heads_adapted': heads_adapted_table,
          'lite': lite_table, 'lite_sizes': lite_sizes_table, 'certificates': certificates_table,
          'orders': orders_table, 'orders_cifar100': partial(orders_table, dataset='seq-cifar100'),
          'requests': requests_table, 'learners': learners_table,
          'tuned': tuned_table, 'engine_digests': engine_digests_table, 'engine_rates': engine_rates_table}
