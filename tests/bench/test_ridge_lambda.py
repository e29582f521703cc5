"""The table of lambdas: right numbers, right marks, and a test set that chooses nothing."""
from functools import partial

import numpy as np
import pandas as pd
import pytest

from bench.paper import ridge_lambda as script
from scroll.heads.predictors import ridge
from scroll.heads.ridge_lambda import choose_lambda, gcv, left_out, spectrum
from scroll.statistics import Statistics
from tests.scroll.conftest import make_stream

TRAIN = make_stream(np.random.default_rng(0).integers(0, 3, 90), dim=6)[:2]
TEST = make_stream(np.random.default_rng(1).integers(0, 3, 50), dim=6, seed=1)[:2]


@pytest.fixture
def call(on_digits):
    """call(*words): (exit code, stdout, stderr) of the command."""
    return partial(on_digits, script)


def chosen(rows, by: str) -> float:
    found, = (row for row in rows if by in row['chosen_by'].split(' and '))
    return found['ridge_lambda']


@pytest.mark.parametrize('targets', ['pm1', 'onehot'])
def test_each_row_holds_what_its_columns_say(targets):
    statistics = Statistics(6).add(*TRAIN)
    of = spectrum(statistics, targets)
    rows = script.table(TRAIN, TEST, targets)
    assert [row['ridge_lambda'] for row in rows] == sorted({row['ridge_lambda'] for row in rows})
    assert set(script.GRID) <= {row['ridge_lambda'] for row in rows}
    for row in rows:
        (error,), (share,) = left_out(of, [row['ridge_lambda']], *TRAIN)
        right = ridge(statistics, row['ridge_lambda'], targets).predict(TEST[0]) == TEST[1]
        assert row['gcv'] == pytest.approx(gcv(of, [row['ridge_lambda']])[0]) and row['left_out_error'] == pytest.approx(error)
        assert row['left_out_accuracy'] == pytest.approx(100 * share) and row['test_accuracy'] == pytest.approx(100 * right.mean())
    assert chosen(rows, 'GCV') == choose_lambda(statistics, targets)
    for by, column, sign in (('GCV', 'gcv', 1), ('leave-one-out error', 'left_out_error', 1),
                             ('leave-one-out accuracy', 'left_out_accuracy', -1)):
        best = min(sign * row[column] for row in rows)
        assert min(sign * row[column] for row in rows if row['ridge_lambda'] == chosen(rows, by)) <= best + 1e-9


def test_a_tuned_value_stands_beside_and_the_test_set_chooses_nothing():
    rows = script.table(TRAIN, TEST, 'pm1', tuned=0.07)
    assert chosen(rows, 'tuning') == 0.07
    others = script.table(TRAIN, (TEST[0], (TEST[1] + 1) % 3), 'pm1', tuned=0.07)
    assert [row['test_accuracy'] for row in rows] != [row['test_accuracy'] for row in others]
    assert [row['chosen_by'] for row in rows] == [row['chosen_by'] for row in others]
    assert not any('tuning' in row['chosen_by'] for row in script.table(TRAIN, TEST, 'pm1'))


def test_the_command_prints_and_writes_the_table(call, tmp_path, monkeypatch):
    monkeypatch.setattr(script, 'model_config', lambda model, which, known: (dict(ridge_lambda=0.07), ''))
    code, out, _ = call()
    lines, path = out.splitlines(), tmp_path / 'tuning' / 'seq-digits-ridge_lambda.csv'
    assert code == 0 and lines[-1] == str(path)
    numbers = pd.read_csv(path, keep_default_na=False)
    assert tuple(numbers.columns) == script.COLUMNS and len(numbers) == len(lines) - 3
    assert numbers[numbers.chosen_by.str.contains('tuning')].ridge_lambda.tolist() == [0.07]
    for line, row in zip(lines[2:], numbers.itertuples()):
        assert line.split('|')[1].strip() == f'{row.ridge_lambda:g}' and line.split('|')[5].strip() == f'{row.test_accuracy:.2f}'


@pytest.mark.parametrize('flags, words', [
    (['--ridge_targets', 'pm2'], ['ridge_targets', 'pm2']), (['--lambda', '3'], ['--lambda']),
    (['--out', '/dev/null/table.csv'], ['/dev/null/table.csv', 'cannot be written'])], ids=' '.join)
def test_bad_flags_end_in_one_line_and_exit_code_2(call, flags, words):
    code, _, err = call(*flags)
    assert code == 2 and not [word for word in words if word not in err], err
    assert 'Traceback' not in err
