"""Reports: means, deviations and p-values agree with hand and scipy; empty cells stay empty; claims
get the verdict they deserve.
"""

import csv
import functools
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.cli.parsing import parse_args
from bench.paper import claims, report
from bench.paper.experiments import load
from bench.results.keys import key_text
from core.commands import run_command
from core.rows import append_row
from tests.conftest import ROOT, files_below, refused

EXPERIMENT = """
title: Some methods, |M| = 20
source: tab:some
seeds: 3
flags: {dataset: seq-digits, weights: WEIGHTS}
columns:
  'digits, 2-split': {n_splits: 2}
  'digits, 5-split': {n_splits: 5}
rows:
  Bound: {model: joint, paper: {digits: 90 ± 0.03}}
  ER: {group: base, model: er, buffer_size: 20, paper: [50 ± 1, 40.5]}
  ACE: {group: base, model: er-ace, buffer_size: 20}
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
        monkeypatch.setattr(
            sys, 'argv', ['report.py', '--out', str(tmp_path / 'out'), *map(str, words)]
        )
        return run_command(report.main), *capsys.readouterr()

    return run


@functools.cache
def parsed(words: tuple):
    return parse_args(list(words))


def run_of(cell, seed: int, accuracy: float, **more) -> dict:
    """A row as a run of the cell would leave it."""
    args = parsed(tuple(cell.command(0)))
    schedule = f'split:{args.n_splits}'
    return {
        **vars(args),
        'seed': seed,
        'run_key': key_text(args.key, seed, schedule, None),
        'schedule': schedule,
        'num_threads': 1,
        'final_accuracy': accuracy,
        'finished': f'2026-01-0{seed + 1}',
        'host': 'secret',
        'git_commit': 'c' * 40,
        'torch': '9.9',
        'device': 'cpu',
        'task1': 1.0,
        **more,
    }


def write_runs(folder, experiment, values: dict) -> None:
    """values: (row, column) -> accuracies of seeds 0, 1, ..., None for a seed that was not run."""
    for (row, column), accuracies in values.items():
        cell = experiment.cell(row, column)
        for seed, accuracy in enumerate(accuracies):
            if accuracy is not None:
                more = (
                    {'online_digest': 'f' * 64, 'psi_digest': 'abcdef01' + '0' * 56}
                    if cell.flags['model'] == 'scroll'
                    else {}
                )
                append_row(
                    folder / 'results' / 'class-il' / 'seq-digits' / cell.flags['model'],
                    run_of(cell, seed, accuracy, **more),
                )


TWO, FIVE = 'digits, 2-split', 'digits, 5-split'
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


def test_a_page_has_means_deviations_and_seeds_beside_the_papers_values(experiment, make, tmp_path):
    write_runs(tmp_path / 'data', experiment, VALUES)
    code, out, err = make('--collect', '--base_path', tmp_path / 'data')
    assert (code, err) == (0, '')
    assert out.splitlines() == [str(tmp_path / 'out' / 'tables' / 'some.md')]
    text = (tmp_path / 'out' / 'tables' / 'some.md').read_text(encoding='utf-8')
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
    assert 'tiny (abcdef01)' in text
    assert 'torch 9.9' in text
    assert 'commits cccccccc' in text
    assert 'hardware: cpu' in text
    index = (tmp_path / 'out' / 'README.md').read_text(encoding='utf-8')
    assert (
        '| [some](tables/some.md) | Some methods, \\|M\\| = 20 | 5 of 8 | 1 supported, 2 undecided |'
        in index
    )
    said = index.split('## Each claim of the paper')[1]
    assert '3 claims; our rows decide 1.' in said
    assert table_of(said)[1:] == [
        ['SCROLL is above the others', '[some](tables/some.md): undecided'],
        ['the others fall', '[some](tables/some.md): undecided'],
        ['SCROLL stays', '[some](tables/some.md): supported'],
    ]


def test_a_page_says_how_the_values_of_each_method_were_chosen(experiment, make, tmp_path):
    write_runs(tmp_path / 'data', experiment, VALUES)
    make('--collect', '--base_path', tmp_path / 'data')
    said = (
        (tmp_path / 'out' / 'tables' / 'some.md')
        .read_text(encoding='utf-8')
        .split('were chosen')[1]
    )
    assert "- ER, ACE: the paper's values." in said
    assert '- SCROLL: tuned on held-out' in said
    assert 'Bound' not in said


def test_committed_rows_make_the_same_pages_without_results_files(experiment, make, tmp_path):
    write_runs(tmp_path / 'data', experiment, VALUES)
    make('--collect', '--base_path', tmp_path / 'data')
    first = {path.name: path.read_bytes() for path in files_below(tmp_path / 'out')}
    make()
    make('--collect', '--base_path', tmp_path / 'nowhere')
    assert {path.name: path.read_bytes() for path in files_below(tmp_path / 'out')} == first
    text = first['some.csv'].decode()
    assert 'secret' not in text
    assert str(tmp_path) not in text
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 13
    assert rows[0]['row'] == 'ER'
    assert rows[0]['column'] == TWO
    assert {r['weights'] for r in rows} == {'tiny'}
    assert {'buffer_size', 'git_commit', 'torch', 'online_digest', 'seed', 'lr'} <= set(rows[0])


def test_newer_runs_replace_and_those_of_other_arguments_stay_until_there_are_some_of_today(
    experiment, make, tmp_path
):
    write_runs(tmp_path / 'data', experiment, {('ER', TWO): [50, 60]})
    make('--collect', '--base_path', tmp_path / 'data')
    cell, path = experiment.cell('ER', TWO), tmp_path / 'out' / 'rows' / 'some.csv'

    def after(seed, accuracy, **flags):
        append_row(
            tmp_path / 'more' / 'results' / 'class-il' / 'seq-digits' / 'er',
            run_of(replace(cell, flags=cell.flags | flags), seed, accuracy, finished='2026-02-01'),
        )
        make('--collect', '--base_path', tmp_path / 'more')
        return [(r['seed'], r['final_accuracy']) for r in csv.DictReader(path.open())]

    assert after(1, 80.0) == [('0', '50'), ('1', '80.0')]
    assert after(0, 10.0, lr=7.0) == [('0', '50'), ('1', '80.0')]
    path.write_text(path.read_text().replace('""given"":{', '""given"":{""notch"":""3"",'))
    make('--collect', '--base_path', tmp_path / 'nowhere')
    assert len(path.read_text().splitlines()) == 3
    assert '- ER: made with earlier values than' in (
        tmp_path / 'out' / 'tables' / 'some.md'
    ).read_text(encoding='utf-8')
    assert after(2, 70.0) == [('1', '80.0'), ('2', '70.0')]


@pytest.fixture
def own(experiment, tmp_path, tiny_weights):
    """An experiment file of one's own, in a folder of its own, without values of a paper."""
    lines = (
        EXPERIMENT.replace('WEIGHTS', tiny_weights)
        .replace('Some methods', 'My methods')
        .splitlines()
    )
    text = '\n'.join(
        re.sub(', paper: .*}', '}', line) for line in lines if not line.startswith('source')
    )
    path = tmp_path / 'elsewhere' / 'mine.yaml'
    path.parent.mkdir()
    path.write_text(text, encoding='utf-8')
    return path


def test_an_experiment_of_ones_own_has_its_page_without_a_paper(own, make, tmp_path):
    write_runs(tmp_path / 'data', load(own), VALUES)
    code, out, err = make(own, '--collect', '--base_path', tmp_path / 'data')
    assert (code, out, err) == (0, f'{tmp_path / "out" / "tables" / "mine.md"}\n', '')
    made = {path.name: path.read_text(encoding='utf-8') for path in files_below(tmp_path / 'out')}
    assert set(made) == {'mine.csv', 'mine.md', 'README.md'}
    assert 'paper' not in made['mine.md'].split('## How the values')[0].lower()
    assert table_of(made['mine.md'])[:5] == [
        ['', TWO, FIVE],
        ['Bound', 'not run yet', 'not run yet'],
        ['ER', '53.0 ± 3.6 (3)', '41.2 ± 1.3 (3)'],
        ['ACE', '61.0 (1)', 'not run yet'],
        ['SCROLL', '70.0 ± 0.0 (3)', '70.0 ± 0.0 (3)'],
    ]
    assert '`mine.yaml`' in made['mine.md']
    assert '## Claims' in made['mine.md']
    assert str(tmp_path) not in made['mine.md']
    assert (
        '| [mine](tables/mine.md) | My methods, \\|M\\| = 20 | 5 of 8 | 1 supported, 2 undecided |'
        in made['README.md']
    )


def test_a_figure_is_drawn_when_it_is_full_and_one_of_ones_own_names_no_paper(
    own, make, tmp_path, drawn
):
    own.write_text('kind: figure\n' + own.read_text(encoding='utf-8'), encoding='utf-8')
    write_runs(tmp_path / 'data', load(own), VALUES)
    make(own, '--collect', '--base_path', tmp_path / 'data')
    assert not drawn
    assert 'mine.png' not in (tmp_path / 'out' / 'tables' / 'mine.md').read_text(encoding='utf-8')
    write_runs(tmp_path / 'data', load(own), FULL)
    make(own, '--collect', '--base_path', tmp_path / 'data')
    (axes,), (legend,) = drawn[0].axes, drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        'Bound',
        'ER',
        'ACE',
        'SCROLL',
    ]
    assert axes.get_title() == ''
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [TWO, FIVE]


def test_mistakes_end_in_one_line(own, make, tmp_path):
    for words in (('--no_such', 'x'), ('experiments/none.yaml',)):
        code, _, err = make(*words)
        assert code == 2
        assert len(err.splitlines()) == 1
    other = tmp_path / 'some.yaml'
    other.write_bytes(own.read_bytes())
    code, _, err = make(own, other)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert str(other) in err
    assert 'rename' in err
    assert not (tmp_path / 'out').exists()


def verdicts(experiment, values: dict, claim: dict | None = None, **more) -> list:
    """(verdict, evidence) of each claim, or of one; values as above."""
    rows = {
        key: [
            dict(seed=str(s), final_accuracy=str(v), **more.get(key[1][-7:-6] + '_split', {}))
            for s, v in enumerate(accuracies)
            if v is not None
        ]
        for key, accuracies in values.items()
    }
    found = [
        claims.judge(c, experiment, load, lambda _, cell: rows.get((cell.row, cell.column), []))
        for c in ([claim] if claim else experiment.claims)
    ]
    return [(f.verdict, f.evidence) for f in found]


def higher(**columns) -> dict:
    return dict(says='a claim', higher={'rows': 'SCROLL'}, lower={'rows': 'ER'}, **columns)


def test_p_values_are_those_of_paired_tests(experiment):
    first, second = [70.0, 72.5, 71.0, 75.0], [69.0, 70.0, 71.5, 70.0]
    t = stats.ttest_rel(first, second, alternative='greater').pvalue
    w = stats.wilcoxon(first, second, alternative='greater').pvalue
    ((verdict, evidence),) = verdicts(
        experiment, {('SCROLL', TWO): first, ('ER', TWO): second}, higher(columns='2-split')
    )
    assert verdict == 'undecided'
    assert f'p = {t:.2g} (Wilcoxon {w:.2g})' in evidence
    assert '+2.00 over 4 seeds' in evidence
    assert claims.probability(np.subtract(first, second)) == pytest.approx(t)
    assert claims.probability([2.0, 2.0]) == 0.0
    assert claims.probability([0.0, 0.0]) == 1.0
    assert claims.probability([-1.0, -1.0]) == 1.0


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
    assert (
        verdicts(experiment, {('SCROLL', TWO): scroll, ('ER', TWO): er}, higher(columns='2-split'))[
            0
        ][0]
        == verdict
    )


def test_a_claim_needs_all_its_pairs_and_falls_with_one(experiment):
    high, low = [70, 71, 72.5], [60, 61.5, 62]
    values = {('SCROLL', TWO): high, ('ER', TWO): low, ('SCROLL', FIVE): high, ('ER', FIVE): low}
    assert verdicts(experiment, values, higher())[0][0] == 'supported'
    verdict, evidence = verdicts(experiment, half := {**values, ('ER', FIVE): []}, higher())[0]
    assert verdict == 'undecided'
    assert '1 of 2 pairs have two seeds in common, 1 support it' in evidence
    assert '1 of 1 pairs' not in evidence
    assert (
        'the sign is right in 2 of 2 pairs'
        in verdicts(experiment, {**values, ('ER', FIVE): [9]}, higher())[0][1]
    )
    one = verdicts(experiment, {('SCROLL', FIVE): [70], ('ER', FIVE): [69]}, higher())[0]
    assert one[0] == 'undecided'
    assert '0 of 2 pairs have two seeds' in one[1]
    assert '1 of 1 pairs that have a seed, the least difference is +1.00' in one[1]
    verdict, evidence = verdicts(
        experiment, fallen := {**values, ('SCROLL', FIVE): low, ('ER', FIVE): high}, higher()
    )[0]
    assert verdict == 'contradicted'
    assert FIVE in evidence
    # half of them
    assert [verdicts(experiment, v, higher(of='most'))[0][0] for v in (fallen, half)] == [
        'contradicted',
        'undecided',
    ]


def test_what_a_part_of_the_pairs_decides_is_corrected_for_their_number(experiment):
    low, high = [60, 60, 60], [63, 63.5, 65]  # the opposite test has p = 0.012
    assert 0.01 < stats.ttest_rel(high, low, alternative='greater').pvalue < 0.025
    few, many = (
        {
            'says': 'a claim',
            'higher': {'rows': 'SCROLL'},
            'lower': {'rows': ['ER'] * n},
            'columns': '2-split',
        }
        for n in (2, 5)
    )
    values = {('SCROLL', TWO): low, ('ER', TWO): high}
    assert verdicts(experiment, values, few)[0][0] == 'contradicted'
    assert verdicts(experiment, values, many)[0][0] == 'undecided'
    values = {('SCROLL', TWO): high, ('ER', TWO): low}
    of_most = [
        verdicts(experiment, values, many | {'lower': {'rows': ['ER'] * n}, 'of': 'most'})[0][0]
        for n in (5, 11)
    ]
    assert verdicts(experiment, values, many)[0][0] == 'supported'
    assert of_most == [
        'supported',
        'undecided',
    ]


@pytest.mark.parametrize(
    'changes, within, verdict',
    [
        ([0.1, -0.2, 0.1], 1.0, 'supported'),
        ([-3.0, -3.2, -3.1], 1.0, 'contradicted'),
        ([0.5, 2.0, -1.0], 1.0, 'undecided'),
        ([0.5], 1.0, 'undecided'),
    ],
)
def test_what_is_near_is_decided_by_two_one_sided_tests(experiment, changes, within, verdict):
    claim = {
        'says': 'a claim',
        'near': {'columns': '2-split'},
        'to': {'columns': '5-split'},
        'rows': 'ER',
        'within': within,
    }
    values = {('ER', TWO): [50 + c for c in changes], ('ER', FIVE): [50 for _ in changes]}
    found, evidence = verdicts(experiment, values, claim)[0]
    assert found == verdict
    if verdict == 'supported':
        p = max(
            stats.ttest_1samp(changes, -within, alternative='greater').pvalue,
            stats.ttest_1samp(changes, within, alternative='less').pvalue,
        )
        assert f'p = {p:.2g}' in evidence


SAME = {
    'says': 'a claim',
    'same': {'columns': '2-split'},
    'as': {'columns': '5-split'},
    'rows': 'SCROLL',
}


@pytest.mark.parametrize(
    'first, second, digests, verdict',
    [
        ([70, 71], [70], 'aa', 'supported'),
        ([70], [70.01], 'aa', 'contradicted'),
        ([70], [70], 'ab', 'contradicted'),
        ([70], [None, 70], 'aa', 'not run yet'),
    ],
)
def test_the_same_is_the_same_in_accuracy_and_digest(experiment, first, second, digests, verdict):
    common = {'git_commit': 'c', 'torch': 't', 'device': 'cpu'}
    more = {
        '2_split': dict(online_digest=digests[0], **common),
        '5_split': dict(online_digest=digests[1], **common),
    }
    assert (
        verdicts(experiment, {('SCROLL', TWO): first, ('SCROLL', FIVE): second}, SAME, **more)[0][0]
        == verdict
    )


def test_bits_are_compared_within_one_kind_of_machine(experiment):
    """Sums that are made in another order differ in their last bits, and one prediction in ten
    thousand with them.
    """
    more = {'2_split': {'torch': '1'}, '5_split': {'torch': '2'}}
    values = {('SCROLL', TWO): [70, 71], ('SCROLL', FIVE): [70.01, 71]}
    verdict, evidence = verdicts(experiment, values, SAME, **more)[0]
    assert verdict == 'undecided'
    assert 'no rows of one kind of machine' in evidence
    assert verdicts(experiment, values, SAME)[0][0] == 'contradicted'


@pytest.mark.parametrize(
    'change, words',
    [
        ({'lower': None}, ['lower']),
        ({'extra': 1}, ['extra']),
        ({'rows': 'ER'}, ['rows', 'both']),
        ({'lower': {'rows': 'Nobody'}}, ['Nobody']),
        ({'within': 1}, ['within']),
        ({'lower': {'rows': 'ER', 'seeds': 1}}, ['seeds']),
    ],
)
def test_claims_that_cannot_be_read_are_refused(experiment, change, words):
    claim = {key: value for key, value in {**higher(), **change}.items() if value is not None}
    with refused(*words):
        claims.pairs(claim, experiment, load)


def test_columns_of_both_sides_are_read_side_by_side(experiment):
    claim = {
        'says': 'a',
        'higher': {'columns': ['2-split', '5-split']},
        'lower': {'columns': ['5-split', '2-split']},
        'rows': 'base',
    }
    found = [
        (a.row, a.column, b.row, b.column)
        for (_, a), (_, b) in claims.pairs(claim, experiment, load)
    ]
    assert found == [
        (row, a, row, b) for row in ('ER', 'ACE') for a, b in ((TWO, FIVE), (FIVE, TWO))
    ]
    with refused('2 columns against 1'):
        claims.pairs({**claim, 'lower': {'columns': '5-split'}}, experiment, load)


@pytest.mark.parametrize(
    'path', ['experiments/blurry.yaml', str(ROOT / 'experiments' / 'blurry.yaml')]
)
def test_a_page_names_the_same_command_however_the_file_was_named(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert report.facts(load(path), []) == [
        'Made by `scripts/tables.sh blurry`, which runs what `experiments/blurry.yaml` says.'
    ]
