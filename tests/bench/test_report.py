"""Reports: means, deviations and p-values agree with hand and scipy; empty cells stay empty; claims
get the verdict they deserve.
"""

import csv
import functools
import re
import sys
from dataclasses import replace

import pytest
from scipy import stats

from bench.cli.parsing import parse_args
from bench.paper import claims, report
from bench.paper.experiments import load
from bench.results.keys import key_text
from core.commands import run_command
from core.rows import append_row
from tests.conftest import refused, words_of

EXPERIMENT = """
title: Some methods, |M| = 20
source: tab:some
seeds: 3
flags: {dataset: seq-digits, weights: WEIGHTS}
columns:
  'digits, 2-split': {n_splits: 2}
  'digits, 5-split': {n_splits: 5}
rows:
  Bound: {model: joint, paper: [90 ± 0.03, 90 ± 0.03]}
  ER: {group: base, model: er, buffer_size: 20, paper: [50 ± 1, 40.5]}
  ACE: {group: base, model: er-ace, buffer_size: 20, bn: frozen}
  SCROLL: {model: scroll, buffer_size: 20, paper: [null, 60 ± 0]}
claims:
- says: SCROLL is above the others
  higher: {rows: SCROLL}
  lower: {rows: base}
- says: the others fall
  higher: {columns: 2-split}
  lower: {columns: 5-split}
  rows: base
- says: SCROLL stays
  same: {columns: 2-split}
  as: {columns: 5-split}
  rows: SCROLL
"""


@pytest.fixture
def experiment(tmp_path, monkeypatch, tiny_weights):
    """The experiment above, as the only one there is."""
    folder = tmp_path / 'experiments'
    folder.mkdir()
    (folder / 'some.yaml').write_text(EXPERIMENT.replace('WEIGHTS', tiny_weights), encoding='utf-8')
    monkeypatch.setattr('bench.paper.experiments.FOLDER', folder)
    return load(folder / 'some.yaml')


@pytest.fixture
def make(monkeypatch, capsys, tmp_path):
    """make(*words): `scripts/report.py` into tmp_path/out; its (exit code, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, 'argv', ['report.py', *words_of(f'--out {tmp_path}/out', *words)])
        return run_command(report.main), *capsys.readouterr()

    return run


@pytest.fixture
def collect(make, tmp_path):
    """collect(experiment, values, *words): files of `scripts/report.py --collect`, name -> text.
    values: (row, column) -> accuracies of seeds 0, 1, ..., None for a seed that was not run."""

    def run(experiment, values, *words):
        for (row, column), accuracies in values.items():
            cell = experiment.cells[row, column]
            for seed, accuracy in enumerate(accuracies):
                if accuracy is not None:
                    write_run(tmp_path / 'data', cell, seed, accuracy)
        code, out, err = make(f'--collect --base_path {tmp_path}/data', *words)
        assert (code, err) == (0, '')
        return out, texts(tmp_path / 'out')

    return run


def texts(folder) -> dict:
    """name -> text of the files that are no pictures."""
    files = [*folder.rglob('*.md'), *folder.rglob('*.csv')]
    return {path.name: path.read_text(encoding='utf-8') for path in files}


@functools.cache
def parsed(words: tuple):
    return parse_args(list(words))


def write_run(folder, cell, seed: int, accuracy: float, **more) -> None:
    """A row as a run of the cell would leave it."""
    args = parsed(tuple(cell.command(0)))
    model = cell.flags['model']
    if model == 'scroll':
        more |= {'online_digest': 'f' * 64, 'psi_digest': 'abcdef01' + '0' * 56}
    row = {
        **vars(args),
        'seed': seed,
        'run_key': key_text(args.key, seed, None),
        'schedule': args.key['schedule'],
        'num_threads': 1,
        'final_accuracy': accuracy,
        'finished': f'2026-01-0{seed + 1}',
        'host': 'secret',
        'git_commit': 'c' * 40 + '+'[seed:],
        'torch': '9.9',
        'device': 'cpu',
        'task1': 1.0,
        'test_samples': 1e9,
        **more,
    }
    append_row(folder / 'results' / 'class-il' / 'seq-digits' / model, row)


TWO = 'digits, 2-split'
FIVE = 'digits, 5-split'
VALUES = {
    ('ER', TWO): [50, 52, 57],
    ('ER', FIVE): [40, 41, 42.5],
    ('ACE', TWO): [61],
    ('SCROLL', TWO): [70, 70, 70],
    ('SCROLL', FIVE): [70, 70, 70],
}
FULL = {('Bound', TWO): [80], ('Bound', FIVE): [80], ('ACE', TWO): [61], ('ACE', FIVE): [50]}


def table_of(text: str) -> list:
    """Rows of the first Markdown table as lists of cells."""
    lines = [line for line in text.splitlines() if line.startswith('|')]
    return [
        [cell.strip() for cell in re.split(r'(?<!\\)\|', line)[1:-1]]
        for line in lines
        if not line.startswith('|---')
    ]


def test_a_page_has_means_deviations_and_seeds_beside_the_papers_values(
    experiment, collect, tmp_path
):
    out, made = collect(experiment, VALUES)
    assert out.splitlines() == [str(tmp_path / 'out' / 'tables' / 'some.md')]
    text = made['some.md']
    assert table_of(text)[:9] == [
        ['', '', TWO, FIVE],
        ['Bound', 'ours', 'not run yet', 'not run yet'],
        ['', 'paper', '90.0 ± 0.03', '90.0 ± 0.03'],
        # sqrt(13), sqrt(19/12)
        ['ER', 'ours', '53.0 ± 3.6 (3)', '41.2 ± 1.3 (3)'],
        ['', 'paper', '50.0 ± 1.0', '40.5'],
        ['ACE', 'ours', '61.0 (1)', 'not run yet'],
        ['', 'paper', '', ''],
        ['SCROLL', 'ours', '70.0 ± 0.0 (3)', '70.0 ± 0.0 (3)'],
        ['', 'paper', '', '60.0 ± 0.0'],
    ]
    for fact in (
        'tiny (abcdef01)',
        'torch 9.9',
        'commits cccccccc, cccccccc+;',
        'hardware: cpu',
        'orders of the classes: one for all seeds.',
    ):
        assert fact in text
    assert 'classes: one a seed.' in report.origin(experiment, [{'schedule': 'blurry'}])
    chosen = text.split('were chosen')[1]
    assert "- ER: the paper's values.\n- ACE: the paper's values; bn from the" in chosen
    assert '- SCROLL: lambda and f* are the defaults' in chosen
    assert 'Bound' not in chosen
    line = 'Some methods, \\|M\\| = 20 | 5 of 8 | 1 supported, 2 undecided |'
    index, said = made['README.md'].split('## Each claim')
    assert f'| [some](tables/some.md) | {line}' in index
    assert '3 claims, once for each table, of the paper unless one' in said
    assert 'our rows decide 1.' in said
    assert table_of(said)[1:] == [
        ['SCROLL is above the others', '[some](tables/some.md): undecided'],
        ['the others fall', '[some](tables/some.md): undecided'],
        ['SCROLL stays', '[some](tables/some.md): supported'],
    ]


def test_committed_rows_make_the_same_pages_without_results_files(
    experiment, collect, make, tmp_path
):
    _, first = collect(experiment, VALUES)
    make()
    make(f'--collect --base_path {tmp_path}/nowhere')
    assert texts(tmp_path / 'out') == first
    text = first['some.csv']
    assert 'secret' not in text
    assert str(tmp_path) not in text
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 13
    assert (rows[0]['row'], rows[0]['column']) == ('ER', TWO)


def test_newer_runs_replace_and_those_of_other_arguments_stay_until_there_are_some_of_today(
    experiment, collect, make, tmp_path
):
    collect(experiment, {('ER', TWO): [50, 60]})
    cell = experiment.cells['ER', TWO]
    path = tmp_path / 'out' / 'rows' / 'some.csv'

    def after(seed, accuracy, **flags):
        other = replace(cell, flags=cell.flags | flags)
        write_run(tmp_path / 'more', other, seed, accuracy, finished='2026-02-01')
        make(f'--collect --base_path {tmp_path}/more')
        return [(r['seed'], r['final_accuracy']) for r in csv.DictReader(path.open())]

    assert after(1, 80.0) == [('0', '50'), ('1', '80.0')]
    assert after(0, 10.0, lr=7.0) == [('0', '50'), ('1', '80.0')]
    path.write_text(path.read_text().replace('""given"":{', '""given"":{""notch"":""3"",'))
    make(f'--collect --base_path {tmp_path}/nowhere')
    assert '- ER: made with earlier values than' in texts(tmp_path / 'out')['some.md']
    assert after(2, 70.0) == [('1', '80.0'), ('2', '70.0')]
    file = experiment.path
    file.write_text(file.read_text().replace('  ER:', '  Replay:'))  # its rows go with it
    make(f'--collect --base_path {tmp_path}/nowhere')
    rows = [(row['row'], row['seed']) for row in csv.DictReader(path.open())]
    assert rows == [('Replay', '1'), ('Replay', '2')]


@pytest.mark.parametrize('change', [('50', 'n/a'), ('row,', 'roe,')])
def test_committed_rows_that_are_none_are_named(experiment, collect, make, tmp_path, change):
    collect(experiment, {('ER', TWO): [50]})
    path = tmp_path / 'out' / 'rows' / 'some.csv'
    path.write_text(path.read_text().replace(*change))
    code, _, err = make()
    assert code == 2
    assert str(path) in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def own(experiment, tmp_path, tiny_weights):
    """An experiment file of one's own, in a folder of its own, without values of a paper."""
    text = EXPERIMENT.replace('WEIGHTS', tiny_weights).replace('Some methods', 'My methods')
    path = tmp_path / 'elsewhere' / 'mine.yaml'
    path.parent.mkdir()
    path.write_text(re.sub(', paper: .*}', '}', re.sub('source: .*', '', text)), encoding='utf-8')
    return path


def test_an_experiment_of_ones_own_has_its_page_without_a_paper(own, collect, tmp_path):
    out, made = collect(load(own), VALUES, own)
    assert out == f'{tmp_path / "out" / "tables" / "mine.md"}\n'
    assert set(made) == {'mine.csv', 'mine.md', 'README.md'}
    page = made['mine.md']
    assert 'paper' not in page.split('## How the values')[0].lower()
    assert table_of(page)[2] == ['ER', '53.0 ± 3.6 (3)', '41.2 ± 1.3 (3)']
    assert '`mine.yaml`' in page
    assert '## Claims' in page
    assert str(tmp_path) not in page
    assert '| [mine](tables/mine.md) | My methods, ' in made['README.md']


def test_a_figure_is_drawn_when_it_is_full_and_one_of_ones_own_names_no_paper(own, collect, drawn):
    own.write_text('kind: figure\n' + own.read_text(encoding='utf-8'), encoding='utf-8')
    _, made = collect(load(own), VALUES, own)
    assert not drawn
    assert 'mine.png' not in made['mine.md']
    collect(load(own), FULL, own)
    (axes,), (legend,) = drawn[0].axes, drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ['Bound', 'ER', 'ACE', 'SCROLL']
    assert axes.get_title() == ''


def test_a_cell_that_main_py_refuses_today_says_why(own, collect, make, tmp_path, monkeypatch):
    collect(load(own), VALUES, own)
    monkeypatch.setattr(report, 'arguments', lambda cell: (None, 'no such network'))
    assert make(own)[0] == 0
    assert '- ER, ACE, SCROLL: no such network.' in texts(tmp_path / 'out')['mine.md']


def test_mistakes_end_in_one_line(own, make, tmp_path):
    other = tmp_path / 'some.yaml'
    other.write_bytes(own.read_bytes())
    for words, said in (
        (['--no_such x'], '--no_such'),
        (['experiments/none.yaml'], 'none.yaml'),
        ([own, other], f'{other}: another has this name'),
    ):
        code, _, err = make(*words)
        assert (code, len(err.splitlines())) == (2, 1)
        assert said in err
    assert not (tmp_path / 'out').exists()
    own.write_text(own.read_text() + '- {says: x, higher: 5, lower: {rows: ER}}\n')
    code, _, err = make(own)
    assert (code, len(err.splitlines())) == (2, 1)


def judge(experiment, values: dict, claim: dict, of_column=None) -> claims.Finding:
    """values: as above. of_column: column -> other values of its rows."""
    more = of_column or {}
    rows = {
        (row, column): [
            {
                'seed': str(seed),
                'final_accuracy': str(value),
                'test_samples': 'inf',
                **more.get(column, {}),
            }
            for seed, value in enumerate(accuracies)
            if value is not None
        ]
        for (row, column), accuracies in values.items()
    }
    return claims.judge(
        claim, experiment, load, lambda _, cell: rows.get((cell.row, cell.column), [])
    )


HIGHER = {'says': 'a claim', 'higher': {'rows': 'SCROLL'}, 'lower': {'rows': 'ER'}}
HIGHER_IN_TWO = HIGHER | {'columns': '2-split'}


def test_p_values_are_those_of_paired_tests_with_the_error_of_test_samples(experiment):
    """Without it scipy's; with equal differences that of two shares of independent samples."""
    first = [70.0, 72.5, 71.0, 75.0]
    second = [69.0, 70.0, 71.5, 70.0]
    seeds = [(a - b, {}, {}, 0.0) for a, b in zip(first, second)]
    t = stats.ttest_rel(first, second, alternative='greater').pvalue
    assert claims.probability(seeds) == pytest.approx(t, rel=1e-6)
    assert claims.probability(seeds, -1) == pytest.approx(1 - t, rel=1e-6)
    assert t < claims.probability([(*seed[:3], 4.0) for seed in seeds]) < 0.5
    equal = [claims.probability([(x, {}, {}, 0.0)] * 2) for x in (2.0, 0.0, -1.0)]
    assert equal == pytest.approx([0, 0.5, 1], abs=1e-6)
    error = (0.7 * 0.3 + 0.69 * 0.31) ** 0.5  # 100 / 10_000 ** 0.5 = 1
    values = {('SCROLL', TWO): [70.0] * 3, ('ER', TWO): [69.0] * 3}
    p = stats.norm.sf(1.0 / error)
    of_samples = [
        judge(experiment, values, HIGHER_IN_TWO, {TWO: {'test_samples': count}})
        for count in ('10000', '')
    ]
    assert f'+1.00 over 3 seeds, p = {p:.2g} (' in of_samples[0].evidence
    assert of_samples[1].verdict == 'undecided'  # how many is not known


@pytest.mark.parametrize(
    'scroll, er, verdict',
    [
        ([70, 71, 72], [60, 60, 63], 'supported'),
        ([60, 60, 63], [70, 71, 72], 'contradicted'),
        ([70, 60, 65], [65, 66, 60], 'undecided'),
        ([70, None, 71], [None, 60, 61], 'undecided'),
        ([70, None], [None, 60], 'not run yet'),
        ([70, 70], [60, 60], 'supported'),
        ([60, 60], [60, 60], 'undecided'),
    ],
)
def test_which_is_higher_is_decided_over_the_seeds_in_common(experiment, scroll, er, verdict):
    values = {('SCROLL', TWO): scroll, ('ER', TWO): er}
    assert judge(experiment, values, HIGHER_IN_TWO).verdict == verdict


def test_a_claim_needs_all_its_pairs_and_falls_with_one(experiment):
    high = [70, 71, 72.5]
    low = [60, 61.5, 62]
    values = {('SCROLL', TWO): high, ('ER', TWO): low, ('SCROLL', FIVE): high, ('ER', FIVE): low}
    half = {**values, ('ER', FIVE): []}
    one_seed = {**values, ('ER', FIVE): [9]}
    fallen = {**values, ('SCROLL', FIVE): low, ('ER', FIVE): high}
    for rows, claim, verdict, said in (
        (values, HIGHER, 'supported', '2 support it'),
        (half, HIGHER, 'undecided', '1 of 2 pairs have enough seeds in common, 1 support it'),
        (one_seed, HIGHER, 'undecided', 'the sign is right in 2 of 2 pairs that have a seed'),
        (fallen, HIGHER, 'contradicted', FIVE),
    ):
        _, judged, evidence = judge(experiment, rows, claim)
        assert judged == verdict
        assert said in evidence


@pytest.mark.parametrize(
    'scroll_is_higher, pairs, verdict',
    [(False, 2, 'contradicted'), (False, 5, 'undecided'), (True, 5, 'supported')],
)
def test_what_a_part_of_the_pairs_decides_is_corrected_for_their_number(
    experiment, scroll_is_higher, pairs, verdict
):
    low = [60, 60, 60]
    high = [63, 63.5, 65]  # p = 0.02
    scroll, er = (high, low) if scroll_is_higher else (low, high)
    claim = HIGHER_IN_TWO | {'lower': {'rows': ['ER'] * pairs}}
    assert judge(experiment, {('SCROLL', TWO): scroll, ('ER', TWO): er}, claim).verdict == verdict


def by_column(first: str, second: str, row: str) -> dict:
    sides = {first: {'columns': '2-split'}, second: {'columns': '5-split'}}
    return {'says': 'a claim', 'rows': row, **sides}


@pytest.mark.parametrize(
    'changes, verdict',
    [
        ([0.1, -0.2, 0.1], 'supported'),
        ([-3.0, -3.2, -3.1], 'contradicted'),
        ([0.5, 2.0, -1.0], 'undecided'),
    ],
)
def test_what_is_near_is_decided_by_two_one_sided_tests(experiment, changes, verdict):
    values = {('ER', TWO): [50 + c for c in changes], ('ER', FIVE): [50] * 3}
    claim = by_column('near', 'to', 'ER') | {'within': 1.0}
    assert judge(experiment, values, claim).verdict == verdict


@pytest.mark.parametrize('of_machine', ['torch', 'adapted_on'])
@pytest.mark.parametrize(
    'first, second, digests, kinds, verdict',
    [
        ([70, 71], [70], 'aa', '11', 'supported'),
        ([70], [70.01], 'aa', '11', 'contradicted'),
        ([70], [70], 'ab', '11', 'contradicted'),
        ([70], [None, 70], 'aa', '11', 'not run yet'),
        # sums in another order differ in their last bits, and one prediction in ten thousand, too
        ([70], [70.01], 'ab', '12', 'undecided'),
    ],
)
def test_the_same_is_the_same_in_accuracy_and_digest_on_one_kind_of_machine(
    experiment, of_machine, first, second, digests, kinds, verdict
):
    of_column = {
        column: {'online_digest': digest, 'git_commit': 'c', of_machine: kind}
        for column, digest, kind in zip((TWO, FIVE), digests, kinds)
    }
    values = {('SCROLL', TWO): first, ('SCROLL', FIVE): second}
    claim = by_column('same', 'as', 'SCROLL')
    _, found, evidence = judge(experiment, values, claim, of_column)
    assert found == verdict
    assert ('no rows of one kind of machine' in evidence) == (kinds == '12')


def test_the_same_says_how_many_seeds_are_of_two_kinds_of_machine(experiment):
    rows = [{'seed': seed, 'final_accuracy': '70', 'online_digest': 'a'} for seed in '01']
    others = [row | {'torch': kind} for row, kind in zip(rows, ('', '2'))]
    found = claims.judge(
        by_column('same', 'as', 'SCROLL'),
        experiment,
        load,
        lambda _, cell: others if cell.column == TWO else rows,
    )
    assert found.verdict == 'supported'
    assert 'machines differ: 1' in found.evidence


@pytest.mark.parametrize(
    'change, words',
    [
        ({'lower': None}, ['lower']),
        ({'higher': None}, ['higher']),
        ({'extra': 1}, ['extra']),
        ({'rows': 'ER'}, ['rows', 'both']),
        ({'lower': {'rows': 'Nobody'}}, ['Nobody']),
        ({'within': 1}, ['within']),
        ({'higher': None, 'lower': None, 'near': {}, 'to': {}, 'within': '5'}, ["within '5'"]),
        ({'lower': {'rows': 200}}, ['200']),
        ({'lower': {'rows': 'ER', 'experiment': ['some']}}, ['some', 'no such']),
        ({'lower': {'rows': 'ER', 'seeds': 1}}, ['seeds']),
        (
            {'higher': {'columns': ['2-split', '5-split']}, 'lower': {'columns': '5-split'}},
            ['2 columns against 1'],
        ),
    ],
)
def test_claims_that_cannot_be_read_are_refused(experiment, change, words):
    claim = {key: value for key, value in {**HIGHER, **change}.items() if value is not None}
    with refused(*words):
        claims.judge(claim, experiment, load, None)


def test_columns_of_both_sides_are_read_side_by_side(experiment):
    claim = {
        'says': 'a',
        'higher': {'columns': ['2-split', '5-split']},
        'lower': {'columns': ['5-split', '2-split']},
        'rows': 'ER',
    }
    found = [(a.column, b.column) for (_, a), (_, b) in claims.pairs(claim, experiment, load)]
    assert found == [(TWO, FIVE), (FIVE, TWO)]
