"""Beside the others: each way to keep sums is right, ours without any error; each learner learns; the tables are of the files."""
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from bench.speed import beside, learners, requests
from bench.speed.tables import learner_lines, request_lines
from core.commands import run_command
from core.rows import read_rows

OURS, FLOATS, RECURSIVE = (kind.NAME for kind in requests.KEEPERS)


def test_requests_are_of_samples_that_are_there_and_end_where_they_say():
    first, asked, learned = requests.random_requests(40, 900, 300, np.random.default_rng(0))
    there = set(first.tolist())
    for kind, ids in asked:
        some = set(ids.tolist())
        assert len(some) == len(ids) and 1 <= len(ids) <= 32 and (some <= there if kind == 'remove' else not some & there)
        there = there - some if kind == 'remove' else there | some
    assert there == set(learned.tolist()) and {kind for kind, _ in asked} == {'add', 'merge', 'remove'}


@pytest.mark.parametrize('kind', requests.KEEPERS, ids=lambda kind: kind.__name__)
def test_each_way_is_ridge_regression_after_requests_of_every_kind(kind):
    random, keeper = np.random.default_rng(1), kind(5)
    features, labels = random.normal(size=(200, 5)), random.integers(10, size=200)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    keeper.add(features[:80], labels[:80])
    keeper.merge(features[80:], labels[80:])
    keeper.remove(features[:30], labels[:30])
    x = np.concatenate([features[30:], np.ones((170, 1))], axis=1)
    weights = Ridge(alpha=requests.LAMBDA, fit_intercept=False).fit(x, np.eye(10)[labels[30:]]).coef_.T
    np.testing.assert_allclose(keeper.state()[1], weights, atol=1e-5)           # ours rounds features to its grid
    for found, truth in zip(keeper.state(), keeper.truth(features[30:], labels[30:])):
        np.testing.assert_allclose(found, truth.astype(float), rtol=1e-9, atol=1e-12)


def test_exact_sums_alone_are_as_if_what_was_removed_had_never_been_there():
    rows = list(requests.measure(8, 200, 500, left=60, few=5))
    assert [row['stage'] for row in rows] == ['200 requests', '500 down-dates', '555 down-dates'] * 3
    assert [row['left'] for row in rows][1:3] == [60, 5] and [row['keeper'] for row in rows] == [OURS] * 3 + [FLOATS] * 3 + [RECURSIVE] * 3
    for row in rows:
        errors, exact = (row['kept_error'], row['weights_error']), row['keeper'] == OURS
        assert errors == (0, 0) if exact else min(errors) > 0 and max(errors) < 1e-6
        assert row['same_digest'] == exact


def test_learners_have_equal_data_and_rows_of_one_form():
    data = learners.synthetic(250, 3000, classes=6)
    assert np.linalg.norm(data.X, axis=1) == pytest.approx(1) and data.X.shape == (3000, 250) and len(data.y_test) == 600
    rows = {row['learner']: row for row in learners.measure(data)}
    ridge, sgd = rows['SCROLL, ridge'], rows['SGDClassifier.partial_fit']
    assert ridge['accuracy'] == pytest.approx(rows['RidgeClassifier, refit']['accuracy'], abs=1.5)
    assert rows['SCROLL, lda']['accuracy'] == pytest.approx(rows['LinearDiscriminantAnalysis, refit']['accuracy'], abs=2)
    assert all(row['accuracy'] > 40 and min(row['seconds'], row['seconds_to_add']) >= 0 for row in rows.values())
    assert 'seconds_to_remove' in ridge and 'seconds_to_remove' not in sgd
    assert sgd['accuracy_added'] <= sgd['accuracy_in_order'] < sgd['accuracy']
    assert ridge['accuracy_added'] == ridge['accuracy_in_order'] == ridge['accuracy']


def test_one_run_writes_the_tables(tmp_path, monkeypatch, capsys):
    words = ['--requests', '20', '--downdates', '30', '--dim', '4', '--samples', '500', '--dims', '8', '--dataset', 'seq-digits', '--device', 'cpu']
    monkeypatch.setattr('sys.argv', ['beside.py', *words, '--base_path', str(tmp_path), '--out', str(tmp_path / 'bench')])
    assert run_command(beside.main) == 0
    said = capsys.readouterr().out
    for name, lines in (('requests', request_lines), ('learners', learner_lines)):
        assert '\n'.join(lines(read_rows(tmp_path / 'bench' / f'{name}.csv'))) in said
    assert {row['features'] for row in read_rows(tmp_path / 'bench' / 'learners.csv')} == {'synthetic', 'seq-digits'}


@pytest.mark.parametrize('words, said', [(['--seed', '3'], '--seed'), (['--requests', '0'], '--requests'), (['--dims', 'x'], '--dims'),
                                         (['--dataset', 'seq-nothing'], 'seq-nothing')])
def test_what_cannot_be_measured_ends_in_one_line(monkeypatch, capsys, words, said):
    monkeypatch.setattr('sys.argv', ['beside.py', *words])
    assert run_command(beside.main) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and said in err
