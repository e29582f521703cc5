"""The experiments: their files say what the paper's LaTeX says, every command is one that main.py
takes, rows find their cells.
"""

import functools
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.cli.parsing import parse_args
from bench.paper import claims
from bench.paper.experiments import Cell, experiment_files, load, matching_rows, results_rows
from bench.paper.sweep import Run
from bench.results.keys import key_text
from core.rows import append_row, read_rows
from tests.conftest import ROOT, refused

NAMES = [path.stem for path in experiment_files()]
LATEX = (Path(__file__).parent / 'paper_tables.tex').read_text(encoding='utf-8')
NUMBER = re.compile(r'(\d+(?:\.\d+)?)\s*(?:\\pm\s*(\d+(?:\.\d+)?))?')


@functools.cache
def get(name: str):
    return load(ROOT / 'experiments' / f'{name}.yaml')


def latex_rows(label: str) -> list:
    """Rows of a table of the paper as lists of texts; a multicolumn cell stands once for each of
    its columns.
    """
    body = LATEX.split(f'% {label}\n')[1].split('\n%')[0]
    rows = []
    for line in re.split(r'\\\\', re.sub(r'\\multirow\{.*\n', '', body)):
        cells = []
        for text in line.split('&'):
            span = re.match(r'\s*\\multicolumn\{(\d)\}\{[^}]*\}(.*)', text, re.S)
            cells += [plain(span[2])] * int(span[1]) if span else [plain(text)]
        rows.append(cells)
    return rows


def plain(text: str) -> str:
    for pattern, words in (
        (r'\\algname\{\}~?\s*', 'SCROLL '),
        (r'\\mimg\{\}', 'miniImageNet'),
        (r'\\(textbf|mathbf|tiny|boldsymbol)|[{}$]', ''),
        ('~', ' '),
        (r'\|M\|=', '|M| = '),
    ):
        text = re.sub(pattern, words, text)
    return ' '.join(text.split())


def latex_values(label: str) -> dict:
    """row label in lower case -> [(mean, deviation), ...], of the rows that have values in all
    their columns but the labels.
    """
    found = {}
    for cells in latex_rows(label):
        matches = [NUMBER.fullmatch(cell) for cell in cells]
        if any(matches):
            first = next(i for i, match in enumerate(matches) if match)
            row = next(cell for cell in cells[:first] if cell).lower()
            found[row] = [(float(m[1]), m[2] and float(m[2])) for m in matches[first:]]
    return found


@pytest.mark.parametrize(
    'name',
    [name for name in NAMES if name.startswith('table') and name != 'table_8_hyperparameters'],
)
def test_every_value_is_that_of_the_paper_and_cells_run_what_their_headings_say(name):
    experiment = get(name)
    papers = latex_values(experiment.source)
    ours = {
        row.lower(): values
        for row in experiment.rows
        if any(values := [experiment.cells[row, column].paper for column in experiment.columns])
    }
    assert list(ours.items()) == list(papers.items())
    datasets = {
        'CIFAR-10': 'seq-cifar10',
        'CIFAR-100': 'seq-cifar100',
        'miniImageNet': 'seq-miniimg',
    }
    for cell in experiment.cells.values():
        assert cell.flags['dataset'] == datasets[re.split('[ ,]', cell.column)[0]]
        if cell.flags['model'] == 'joint':
            continue
        assert ('schedule' in cell.flags) == ('Gaussian' in cell.column)
        for pattern, flag in ((r'\|M\| = (\d+)', 'buffer_size'), (r'(\d+)-split', 'n_splits')):
            said = re.search(pattern, f'{cell.row} {cell.column}')
            assert not said or cell.flags[flag] == int(said[1])


def test_the_grid_of_hyper_parameters_is_the_papers():
    rows = [cells for cells in latex_rows('tab:hyper-params') if len(cells) == 3]
    grid = [values.strip('[]') for *_, values in rows[1:]]
    lines = get('table_8_hyperparameters').table.splitlines()[2:]
    assert [line.split('|')[-2].strip() for line in lines] == grid
    known = vars(parse_args(['--model', 'scroll', '--dataset', 'seq-cifar100']))
    assert set(re.findall('`--(.*?)`', ''.join(lines))) < set(known)


@pytest.mark.slow
def test_every_kind_of_command_is_one_that_main_takes(tiny_weights):
    cells = {
        (cell.flags['model'], *sorted(cell.flags)): cell
        for name in NAMES
        for cell in get(name).cells.values()
    }
    assert len(cells) > 20  # one for each method and set of flags
    for cell in cells.values():
        # a ResNet50 that nobody may redistribute
        extra = {'weights': tiny_weights} if 'weights' in cell.flags else {}
        flags = cell.flags | extra
        args = parse_args(replace(cell, flags=flags).command(0))
        made = {flag: getattr(args, flag) for flag in flags}
        if flags.get('precision') == 'auto':
            made['precision'] = 'auto'  # args have what this machine makes of it
        assert made == flags, (cell.row, cell.column)


def test_every_claim_names_cells_that_are_there():
    for experiment in map(get, NAMES):
        for claim in experiment.claims:
            found = claims.pairs(claim, experiment, get)
            assert found
            assert all(first != second for first, second in found)


MINIMAL = """
title: t
source: tab:x
flags: {model: er, dataset: seq-digits, lr: 0.1}
columns:
  'a, 1': {buffer_size: 1}
  'a, 2': {buffer_size: 2, lr: 0.2}
rows:
  one: {paper: [50 ± 1, null]}
  two:
    {group: g, model: sgd, buffer_size: null, lr: 0.3, paper: [7, 8 ± 2], metric: anytime_accuracy}
cells: {two: {'a, 2': {lr: 0.4, bn: frozen}}}
"""


def written(tmp_path, text: str) -> Path:
    path = tmp_path / 'some.yaml'
    path.write_text(text, encoding='utf-8')
    return path


def test_flags_of_a_cell_override_those_of_row_column_and_file(tmp_path):
    experiment = load(written(tmp_path, MINIMAL))
    cells = list(experiment.cells.values())
    assert [cell.flags for cell in cells] == [
        {'model': 'er', 'dataset': 'seq-digits', 'lr': 0.1, 'buffer_size': 1},
        {'model': 'er', 'dataset': 'seq-digits', 'lr': 0.2, 'buffer_size': 2},
        {'model': 'sgd', 'dataset': 'seq-digits', 'lr': 0.3},
        {'model': 'sgd', 'dataset': 'seq-digits', 'lr': 0.4, 'bn': 'frozen'},
    ]
    assert [cell.paper for cell in cells] == [(50, 1), None, (7, None), (8, 2)]
    assert {(cell.row, cell.metric) for cell in cells} == {
        ('one', 'final_accuracy'),
        ('two', 'anytime_accuracy'),
    }
    assert experiment.groups == {'one': '', 'two': 'g'}
    assert experiment.seeds == 1
    cell = Cell('r', 'c', {'model': 'er', 'drop_last': True, 'seed': 7}, None)
    assert cell.command(2) == ['--model', 'er', '--drop_last', '1', '--seed', '2']


@pytest.mark.parametrize(
    'change, words',
    [
        (('title: t', 'titel: t'), ['titel']),
        (('[50 ± 1, null]', '[50 ± 1]'), ['form']),
        (('50 ± 1', '50 +- 1'), ['one', '50 +- 1']),
        (('dataset: seq-digits, ', ''), ['dataset']),
        (('anytime_accuracy', 'best'), ['metric', 'best']),
        (("two: {'a, 2'", "two: {'a, 3'"), ['a, 3']),
        (('lr: 0.1', 'lr: [1]'), ['lr']),
        (('title: t', 'title: t\nseeds: 2.5'), ['seeds']),
        (('title: t', 'title: t\nseeds: true'), ['seeds']),
        (('title: t', 'title: t\nclaims: [a]'), ['claims']),
        (('title: t', 'title: t\ncommands: scripts/documents.py'), ['commands', 'list']),
        (('title: t', 'title: t\ncommands: [{a: 1}]'), ['commands', 'str']),
        (('title: t', 'title: t\ntable: [a]'), ['table', 'str']),
        (('lr: 0.1', '3: 0.1'), ['flag']),
        (('lr: 0.1', 'seed: 1'), ['seed']),
        (('lr: 0.1', 'base_path: .'), ['base_path']),
        (('title: t', 'title: t\nkind: pie'), ['pie']),
        (('one: {paper', '200: {paper'), ["'200'"]),
        (('  one: {paper: [50 ± 1, null]}', '  one: null'), ['form']),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line(tmp_path, change, words):
    assert change[0] in MINIMAL
    with refused('some.yaml', *words):
        load(written(tmp_path, MINIMAL.replace(*change)))


def row_of(cell: Cell, **more) -> dict:
    """A row as a run of the cell would write it. more: other columns, or flags."""
    args = parse_args(cell.command(0))
    key = {
        part: {name: str(more.get(name, text)) for name, text in args.key[part].items()}
        for part in ('given', 'default')
    }
    key['schedule'] = more.get('schedule', args.key['schedule'])
    row = {
        **vars(args),
        'schedule': key['schedule'],
        'final_accuracy': 50,
        'finished': '2026-01-01 00:00:00',
        'run_key': key_text(key, more.get('seed', 0), None),
        **more,
    }
    return {name: '' if value is None else str(value) for name, value in row.items()}


@pytest.fixture
def cell(tiny_weights) -> Cell:
    flags = {'model': 'sgd', 'dataset': 'seq-digits', 'n_splits': 5, 'weights': tiny_weights}
    return Cell('r', 'c', flags, None)


def test_rows_of_other_arguments_are_not_runs_of_a_cell(cell):
    cell.flags.update(model='er', buffer_size=20)
    # bfloat16: where the machine has units for it
    here = {'n_splits': '', 'device': 'cuda:1', 'base_path': '/', 'newer_flag': 3}
    right = [row_of(cell), row_of(cell, seed=1, precision='bfloat16', **here)]
    wrong = [
        row_of(cell, **change)
        for change in (
            {'lr': 0.5},
            {'buffer_size': 21},
            {'schedule': 'split:2'},
            {'permute_classes': True},
            {'weights': 'compact'},
            {'bn': 'frozen'},
            {'lr_scheduler': 'cosine'},
            {'code_optimization': 2},
        )
    ]
    assert matching_rows(cell, [*wrong, *reversed(right)]) == right
    cell = replace(cell, flags=cell.flags | {'precision': 'float32'})
    assert matching_rows(cell, right) == right[:1]
    cell.flags['precision'] = 'auto'
    assert matching_rows(cell, right) == right


def test_a_key_without_a_flag_has_its_default(cell):
    """A flag that came after the row, and one that is gone."""
    row = row_of(cell)
    key = json.loads(row['run_key'])
    del key['default']['bn']
    key['default']['of_old'] = '3'
    row['run_key'] = json.dumps(key)
    assert matching_rows(cell, [row]) == [row]
    for norm, rows in (('train', [row]), ('frozen', [])):
        assert matching_rows(replace(cell, flags=cell.flags | {'bn': norm}), [row]) == rows
    key['given']['of_old'] = key['default'].pop('of_old')
    assert matching_rows(cell, [{**row, 'run_key': json.dumps(key)}]) == []


def test_what_a_run_recorded_counts_where_the_cell_asks_for_it(cell):
    rows = [row_of(cell, seed=1) | {'eval_epochs': text} for text in ('', '1')]
    assert matching_rows(cell, rows) == rows[-1:]
    assert matching_rows(replace(cell, flags=cell.flags | {'eval_epochs': 1}), rows) == rows[1:]
    assert matching_rows(replace(cell, flags=cell.flags | {'eval_epochs': 2}), rows) == []


def test_when_a_method_fits_counts_where_accuracies_on_the_way_do(cell):
    cell.flags['model'] = 'joint'
    end = replace(cell, metric='average_incremental_accuracy')
    each = replace(end, flags=end.flags | {'fit_every_task': 1})
    rows = [row_of(end), row_of(each)]
    assert matching_rows(cell, rows) == rows[1:]  # the newest
    for asked, row in zip((end, each), rows):
        assert matching_rows(asked, rows) == [row]
    assert Run(end, 0, '').key != Run(each, 0, '').key


@pytest.mark.parametrize('text', ['{', '[]', '{"given": 1, "default": {}}'])
def test_a_damaged_key_is_refused(cell, text):
    with refused('run_key', text):
        matching_rows(cell, [{**row_of(cell), 'run_key': text}])


def test_rows_of_a_cell_are_of_its_stream(cell):
    del cell.flags['n_splits']
    flags = {'split:5': {}, 'split:1': {'schedule': 'split:1'}, 'inc:2,b=4': {'inc': 2, 'b': 4}}
    rows = {spec: row_of(cell, schedule=spec) for spec in [*flags, 'inc:2,b=0']}
    for spec, more in flags.items():
        asked = replace(cell, flags=cell.flags | more)
        assert matching_rows(asked, [*rows.values()]) == [rows[spec]]


def test_a_network_has_one_digest_on_all_pages():
    # of tests/test_pretrain_quantise.py
    digests = {('compact', '', '', 'False', ''): {'881ce32c974df4e3'}}
    for path in ROOT.glob('results/rows/*.csv'):
        for row in read_rows(path):
            if digest := row.get('embedding_digest'):
                names = 'weights', 'input_size', 'stages', 'mirror', 'more_weights'
                digests.setdefault(tuple(map(row.get, names)), set()).add(digest[:16])
    assert {*map(len, digests.values())} == {1}


def test_rows_are_of_commits_in_the_history():
    """A row of changed files has a name that git does not know."""
    git = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True)
    if git(['git', 'rev-parse', '--is-shallow-repository']).stdout.strip() != 'false':
        pytest.skip('the history is not here')
    paths = ROOT.glob('results/rows/*.csv')
    commits = {row['git_commit'] for path in paths for row in read_rows(path)}
    said = git(['git', 'cat-file', '--batch-check'], input='\n'.join(commits)).stdout
    assert 'missing' not in said


@pytest.mark.parametrize('setting', ['class-il', 'domain-il', 'general-continual'])
def test_rows_of_every_setting_with_accuracies_among_all_classes_are_found(tmp_path, setting):
    row = {'model': 'er', 'final_accuracy': '50'}
    append_row(tmp_path / 'results' / setting / 'a' / 'er', row)
    assert results_rows(tmp_path) == [row]
