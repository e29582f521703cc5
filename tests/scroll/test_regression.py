"""Regression from exact sums: against fractions, scikit-learn and itself on what is left."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from scroll import InputError, ScrollRegressor
from scroll.ground import archive
from tests.scroll.conftest import cuttings, exact_solution, quick, refused

R = np.random.default_rng(0)
# whole multiples of a unit of the grid: nothing is rounded
X = R.integers(-1000, 1000, (60, 4)) * [1, 4, 1 / 8, 2] + [0, 3000, 0, -99]
Y = np.column_stack([X @ [2, -1, 5, 0.5], X @ [0, 1, 1, 3]])
Y = np.rint(Y + R.normal(size=Y.shape) * 2000)
NEW = ScrollRegressor(limit=2**14, target_limit=2**15)


def fingerprint(model) -> tuple:
    return model.digest(), model.predict(X).tobytes(), np.array(model.coef_).tobytes()


@parametrize_with_checks([ScrollRegressor(limit=1e5, target_limit=1e5)])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


def test_without_limits_fit_makes_its_grid_and_partial_fit_cannot_begin():
    X, y = load_diabetes(return_X_y=True)
    model = ScrollRegressor().fit(X, y)
    x = X / _powers(X)
    nearby = RidgeCV(2.0 ** np.arange(-20, 21)).fit(x, y).alpha_  # by leave-one-out
    assert 1 / 2 <= model.ridge_lambda_ / nearby <= 2
    assert_allclose(model.predict(X), Ridge(model.ridge_lambda_).fit(x, y).predict(x), atol=0.01)
    for name in 'limit', 'target_limit':
        with refused(name):
            clone(NEW).set_params(**{name: None}).partial_fit(X, y)


def _powers(X):
    """The powers of two at or above the standard deviations."""
    return 2.0 ** np.ceil(np.log2(X.std(axis=0)))


@pytest.mark.parametrize('alpha', [1e-3, 0.5, 100.0])
def test_slopes_and_values_are_those_of_ridge_regression(alpha):
    scale = _powers(X)
    theirs = Ridge(alpha, solver='cholesky').fit(X / scale, Y / _powers(Y))
    model = clone(NEW).set_params(ridge_lambda=alpha).fit(X, Y)
    coef = theirs.coef_ / scale * _powers(Y)[:, None]
    assert_allclose(model.coef_, coef, rtol=1e-9)
    assert_allclose(model.intercept_, theirs.intercept_ * _powers(Y), rtol=1e-9, atol=1e-6)
    assert_allclose(model.predict(X), theirs.predict(X / scale) * _powers(Y), rtol=1e-9, atol=1e-6)
    one = clone(model).fit(X, Y[:, 1])
    assert_allclose(one.coef_, model.coef_[1], rtol=1e-9)
    assert (one.predict(X).shape, one.coef_.shape) == ((60,), (4,))


def test_slopes_are_those_of_fractions():
    """Four samples whose means are whole: every number in the system is known."""
    x = np.array([[1, 2], [-1, 4], [5, -2], [3, 0]]) * 2048.0
    y = np.array([7.0, -3, 1, 3]) * 512
    scale = _powers(x)
    z = (x - x.mean(axis=0)) / scale
    gram = (z.T @ z * 2**20).astype(int)
    right = (z.T @ (y - y.mean()) * 2**20).astype(int)[:, None]
    w = exact_solution(gram, 3 << 18, right)  # lambda .75
    model = clone(NEW).set_params(ridge_lambda=0.75).fit(x, y)
    assert_allclose(model.coef_, np.array(w, float)[:, 0] / scale, rtol=1e-13)


@settings(quick, max_examples=10)
@given(cut=cuttings(60))
def test_any_order_batching_and_sharding_ends_in_the_same_bits(cut):
    pieces = clone(NEW)
    shards = []
    for at in cut:
        pieces.partial_fit(X[at], Y[at])
        shards.append(clone(NEW).fit(X[at], Y[at]))
    expected = fingerprint(clone(NEW).fit(X, Y))
    assert fingerprint(pieces) == fingerprint(sum(shards[1:], shards[0])) == expected


def test_samples_that_were_learned_without_a_window_never_leave_so_none_can_begin():
    plain = clone(NEW).partial_fit(X[:10], Y[:10])
    before = plain.set_params(window=5).digest()
    with refused('window: some samples were learned without one'):
        plain.partial_fit(X[10:], Y[10:])
    assert plain.digest() == before
    rolling = clone(NEW).set_params(window=5).partial_fit(X[:10], Y[:10])
    rolling.set_params(window=8).partial_fit(X[10:20], Y[10:20])
    assert rolling.statistics_.total == 8
    rolling.set_params(window=None).partial_fit(X[20:30], Y[20:30]).remove(X[20:25], Y[20:25])
    rest = clone(NEW).partial_fit(X[12:20], Y[12:20]).partial_fit(X[25:30], Y[25:30])
    assert fingerprint(rolling) == fingerprint(rest)


def test_what_is_removed_was_never_there():
    both = clone(NEW).fit(X, Y).partial_fit(X[:20], Y[:20]).remove(X, Y)
    assert fingerprint(both) == fingerprint(clone(NEW).fit(X[:20], Y[:20]))


@settings(quick, max_examples=10)
@given(cut=cuttings(60), window=st.integers(1, 70))
def test_a_window_ends_where_its_last_samples_alone_do(cut, window):
    rolling = clone(NEW).set_params(window=window, ridge_lambda=1.0)
    seen = []
    for at in cut:
        rolling.partial_fit(X[at], Y[at])
        seen += list(at)
    last = seen[-window:]
    assert fingerprint(rolling) == fingerprint(
        clone(NEW).set_params(ridge_lambda=1.0).fit(X[last], Y[last])
    )


def test_a_long_stream_leaves_a_window_without_a_trace():
    """More than 2^14 samples go: their sums are taken out on the way."""
    x = np.tile(X, (400, 1))
    y = np.tile(Y[:, 0], 400)
    rolling = clone(NEW).set_params(window=50)
    for at in np.array_split(np.arange(len(x)), 90):
        rolling.partial_fit(x[at], y[at])
    assert rolling.statistics_.total == 50
    assert fingerprint(rolling) == fingerprint(clone(NEW).fit(x[-50:], y[-50:]))


@pytest.mark.parametrize('alpha', [0.01, 'auto'])
def test_left_out_is_what_removing_each_sample_predicts(alpha):
    """Scale and lambda stay those of all samples."""
    model = clone(NEW).set_params(ridge_lambda=alpha).fit(X, Y)
    scale = _powers(X)
    lambda_ = model.ridge_lambda_
    rest = [np.delete(np.arange(60), i) for i in range(60)]
    theirs = [
        Ridge(lambda_).fit((X / scale)[at], Y[at]).predict((X / scale)[i : i + 1])[0]
        for i, at in enumerate(rest)
    ]
    assert_allclose(model.left_out(X, Y), theirs, rtol=1e-8, atol=1e-5)


def test_files_and_pickles_have_all_of_it(tmp_path):
    path = tmp_path / 'model.npz'
    model = ScrollRegressor(limit=[2**14] * 4, target_limit=2**15, window=30).partial_fit(X, Y)
    model.save(path)
    for copy in ScrollRegressor.load(path), pickle.loads(pickle.dumps(model)):
        assert fingerprint(copy) == fingerprint(model)
        copy.partial_fit(X[:9], Y[:9])
        assert copy.statistics_.total == 30
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with refused('model.npz'):
        ScrollRegressor.load(path)


@pytest.mark.parametrize(
    'name, value',
    [('exponents', np.ones(6)), ('centres', np.full(6, np.nan)), ('names', 'a'), ('dim', 1.5)],
)
def test_a_forged_file_is_refused(tmp_path, name, value):
    path = tmp_path / 'model.npz'
    clone(NEW).fit(X, Y).save(path)
    facts, arrays = archive.read(path, 'scroll-regressor-1')
    {name: facts, 'exponents': arrays, 'centres': arrays}[name][name] = value
    archive.write(path, 'scroll-regressor-1', facts, arrays)
    with refused('grid'):
        ScrollRegressor.load(path)


@pytest.mark.parametrize(
    'params, call, word',
    [
        ({'limit': 10}, lambda m: m.fit(X, Y), 'grid reaches'),
        ({'target_limit': 10}, lambda m: m.fit(X, Y), 'targets.*grid reaches'),
        ({'target_limit': 'a'}, lambda m: m.fit(X, Y), 'target_limit'),
        ({'ridge_lambda': -1}, lambda m: m.fit(X, Y).predict(X), 'ridge_lambda'),
        ({'ridge_lambda': 1e300}, lambda m: m.fit(X, Y).predict(X), 'lambda'),
        ({'ridge_lambda': 1e-30}, lambda m: m.fit(X, Y).predict(X), 'lambda'),
        ({'window': 0}, lambda m: m.fit(X, Y), 'window'),
        ({}, lambda m: m.fit(X, 'ab'), 'array.*ab'),
        ({'window': 9}, lambda m: m.fit(X, Y).remove(X[:1], Y[:1]), 'window'),
        ({'window': 9}, lambda m: m.fit(X, Y) + m, 'window'),
        ({}, lambda m: m.fit(X, Y).partial_fit(X, Y[:, 0]), '1 targets, expected 2'),
        ({}, lambda m: m.fit(X, Y.astype(str)), 'y has dtype <U32: expected numbers'),
        ({}, lambda m: m.fit(X, Y).remove(X + 1, Y), 'do not contain'),
        ({}, lambda m: m.fit(X, Y) + clone(m).set_params(limit=2**15).fit(X, Y), 'limits'),
        ({}, lambda m: m.fit(X, Y).remove(X, Y).predict(X), 'first sample'),
    ],
)
def test_errors_say_what_is_wrong(params, call, word):
    with refused(word):
        call(clone(NEW).set_params(**params))


def test_what_is_refused_changes_nothing():
    model = clone(NEW).fit(X, Y)
    before = fingerprint(model)
    for x, y in (X * 99, Y), (X, Y * 99), (X[:, :2], Y):
        with pytest.raises(InputError):
            model.partial_fit(x, y)
    assert fingerprint(model) == before


def test_targets_in_another_order_are_refused_not_taken_by_place(tmp_path):
    y = pd.DataFrame(Y, columns=['a', 'b'])
    other = y[['b', 'a']]
    model = clone(NEW).fit(X, y)
    model.save(tmp_path / 'model.npz')
    for known in model, ScrollRegressor.load(tmp_path / 'model.npz'):
        for call in known.partial_fit, known.remove, known.score, known.left_out:
            with refused('^y has other columns, or in another order'):
                call(X, other)
        with refused('^y of the other'):
            known + clone(NEW).fit(X, other)
        assert known.score(X, y) == known.score(X, Y)
    assert model.fit(X, other).score(X, other) > 0.5
