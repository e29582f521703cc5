"""GCV from the statistics and exact leave-one-out, each against what it stands for; a choice no schedule can change."""
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import RidgeCV

from scroll import Scroll
from scroll.grid import GRID, quantise
from scroll.heads.predictors import TARGETS, exact_lambda, ridge
from scroll.heads.ridge_lambda import (
    choose_lambda,
    exact_gcv,
    gcv,
    gcv_bounds,
    grid_lambda,
    left_out,
    search,
    spectrum,
)
from scroll.statistics import Statistics
from tests.scroll.conftest import cuttings, exact_solution, quick, refused, streams

LAMBDAS = (1e-4, 3e-3, 0.1, 1.0, 50.0)
every_target = pytest.mark.parametrize('targets', TARGETS)


def noisy(count: int = 120, dim: int = 6, seed: int = 0) -> tuple:
    """Features on the grid and labels of three classes that they tell apart, with errors."""
    r = np.random.default_rng(seed)
    features = quantise(r.normal(size=(count, dim)))
    return features, np.where(r.random(count) < 0.3, r.integers(0, 3, count), features[:, :3].argmax(axis=1))


FEATURES, LABELS = noisy()


def of(features, labels) -> Statistics:
    return Statistics(features.shape[1]).add(features, labels)


def design(features) -> np.ndarray:
    """[u; 1], float64 (N, d + 1)."""
    return np.hstack([features / GRID, np.ones((len(features), 1))])


def matrix(labels, targets: str) -> np.ndarray:
    onehot = (labels[:, None] == np.unique(labels)).astype(float)
    return 2 * onehot - 1 if targets == 'pm1' else onehot


def brute_gcv(features, labels, alpha: float, targets: str) -> float:
    """From the hat matrix: (|Y - HY|^2 / N) / (1 - tr(H) / N)^2."""
    x, y, n = design(features), matrix(labels, targets), len(labels)
    hat = x @ np.linalg.solve(x.T @ x + alpha * np.eye(x.shape[1]), x.T)
    return ((y - hat @ y) ** 2).sum() / n / (1 - np.trace(hat) / n) ** 2


@every_target
@quick
@given(streams(), st.sampled_from(LAMBDAS))
def test_gcv_is_what_the_hat_matrix_says(targets, stream, alpha):
    """Also with fewer samples than dimensions, where ridge can fit all of them."""
    ours = gcv(spectrum(of(stream.features, stream.labels), targets), [alpha])[0]
    assert ours == pytest.approx(brute_gcv(stream.features, stream.labels, alpha, targets), rel=1e-6, abs=1e-9)


@every_target
def test_leave_one_out_and_the_choice_are_those_of_scikit_learn(targets):
    """What RidgeCV calls GCV is leave-one-out: ours must equal it, while GCV proper stays near and chooses the same."""
    x, y = design(FEATURES), matrix(LABELS, targets)
    theirs = RidgeCV(alphas=LAMBDAS, fit_intercept=False, store_cv_results=True).fit(x, y)
    per_lambda = theirs.cv_results_.sum(axis=1).mean(axis=0)                    # (N, K, L): squared errors
    s = spectrum(of(FEATURES, LABELS), targets)
    error, _ = left_out(s, LAMBDAS, FEATURES, LABELS)
    np.testing.assert_allclose(error, per_lambda, rtol=1e-9)
    np.testing.assert_allclose(gcv(s, LAMBDAS), per_lambda, rtol=0.02)
    assert theirs.alpha_ == LAMBDAS[error.argmin()] == LAMBDAS[gcv(s, LAMBDAS).argmin()]


@every_target
def test_leave_one_out_is_as_many_refits(targets):
    features, labels = noisy(30)
    error, share = left_out(spectrum(of(features, labels), targets), LAMBDAS, features, labels)
    y = matrix(labels, targets)
    for alpha, ours, right in zip(LAMBDAS, error, share):
        logits = np.array([ridge(of(np.delete(features, i, 0), np.delete(labels, i)), alpha, targets)
                           .decision_function(features[i:i + 1])[0] for i in range(30)])
        assert ours == pytest.approx(((y - logits) ** 2).sum(axis=1).mean(), rel=1e-9)
        assert right == (logits.argmax(axis=1) == labels).mean()


@quick
@given(streams(min_size=2), st.data(), st.sampled_from(TARGETS))
def test_the_choice_is_the_same_under_every_schedule_and_sharding(stream, data, targets):
    whole = Scroll(ridge_lambda='auto', targets=targets, buffer_size=0).fit(stream.features, stream.labels)
    first, *rest = (Scroll(ridge_lambda='auto', targets=targets, buffer_size=0).fit(stream.features[at], stream.labels[at])
                    for at in data.draw(cuttings(len(stream.labels))))
    for other in rest:
        first.merge(other)
    assert first.ridge_lambda_ == whole.ridge_lambda_ == choose_lambda(of(stream.features, stream.labels), targets)
    assert first.predictor().digest() == whole.predictor().digest()


def exact_criterion(s: Statistics, targets: str, alpha: float) -> Fraction:
    """N |Y - HY|^2 / (N - tr H)^2 in fractions, from the sums: W = (A + lambda I)^-1 R, H = X (A + lambda I)^-1 X'."""
    n, unit = len(s.gram), 2 ** 18
    right = (2 * s.sums - s.sums.sum(axis=0) if targets == 'pm1' else s.sums).T
    units = int(Fraction(alpha) * unit ** 2)
    w = np.array(exact_solution(s.gram, units, right)) * unit
    trace = sum(row[i] for i, row in enumerate(exact_solution(s.gram, units, np.eye(n, dtype=int)))) * unit ** 2
    rss = (s.total * (len(s.classes) if targets == 'pm1' else 1) - (w * right).sum() * Fraction(2, unit)
           + (w * (s.gram.astype(object) @ w)).sum() / unit ** 2)
    return s.total * rss / (s.total - n + Fraction(units, unit ** 2) * trace) ** 2


@every_target
@quick
@given(streams(max_size=12), st.integers(-80, 80), st.booleans())
def test_bounds_hold_what_fractions_say_and_60_bits_are_right(targets, stream, k, twice):
    """One sample, repeated ones, fewer than dimensions: where eigenvalues are zero to rounding, the bounds are wide."""
    at = np.repeat(np.arange(len(stream.labels)), 1 + twice)
    s, alpha = of(stream.features[at], stream.labels[at]), grid_lambda(k)
    expected = exact_criterion(s, targets, alpha)
    assert abs(exact_gcv(s, targets, alpha) / expected - 1) < Fraction(1, 1 << 60)
    (low,), (high,) = gcv_bounds(spectrum(s, targets), s, [alpha])
    assert low <= expected <= high


@every_target
@quick
@given(streams(max_size=10))
def test_the_choice_is_that_of_exact_arithmetic(targets, stream):
    """Of criteria that are equal, the largest lambda: two orthogonal samples, or one, leave all equal."""
    s = of(stream.features, stream.labels)

    def chosen(exponents) -> int:
        values = [exact_criterion(s, targets, grid_lambda(k)) for k in exponents]
        return max(k for k, value in zip(exponents, values) if value <= min(values) * (1 + Fraction(1, 1 << 30)))
    k = chosen(range(-80, 81, 16))
    for reach, step in ((16, 4), (4, 1)):
        k = chosen(range(max(k - reach, -80), min(k + reach, 80) + 1, step))
    assert choose_lambda(s, targets) == grid_lambda(k)


@pytest.mark.parametrize('features, labels', [
    (quantise(np.eye(4)[:1]), np.zeros(1, int)), (quantise(np.eye(4)), np.arange(4)),
    (np.repeat(FEATURES[:4], 3, axis=0), np.arange(12) % 3), (FEATURES, LABELS)], ids=['one', 'orthogonal', 'repeated', 'many'])
def test_the_last_bits_of_eigenvalues_choose_nothing(features, labels, monkeypatch):
    s, eigh, r = of(features, labels), np.linalg.eigh, np.random.default_rng(0)
    expected = choose_lambda(s)

    def another(matrix):
        noise = r.normal(size=matrix.shape) * 1e-16 * matrix.trace()
        return eigh(matrix + noise + noise.T)
    monkeypatch.setattr(np.linalg, 'eigh', another)
    assert {choose_lambda(s) for _ in range(5)} == {expected}


def test_the_grid_is_the_same_number_everywhere():
    """Quarters of octaves, to the unit of the Gram matrix."""
    for k in range(-80, 81):
        assert grid_lambda(k) == exact_lambda(grid_lambda(k))
        assert abs(grid_lambda(k) - 2.0 ** (k / 4)) <= 2.0 ** -37 + 2.0 ** (k / 4 - 52)
    assert (grid_lambda(-80), grid_lambda(0), grid_lambda(8), grid_lambda(80)) == (2.0 ** -20, 1.0, 4.0, 2.0 ** 20)


@pytest.mark.parametrize('criterion, k', [
    (lambda x: np.log2(x * 40) ** 2, -21), (lambda x: np.log2(x / 12) ** 2, 14),
    (lambda x: 1 / x, 80), (lambda x: x, -80), (np.ones_like, 80), (lambda x: np.maximum(x, 0.3), -7),
    (lambda x: np.where(x < 1, np.inf, x), 0)], ids=['inside', 'inside too', 'top', 'bottom', 'tie', 'plateau', 'infinite'])
def test_search_finds_the_least_and_of_equals_the_largest(criterion, k):
    assert search(criterion) == grid_lambda(k)


def test_a_lambda_that_rounding_swallows_is_never_chosen():
    """Two samples, sixteen million times each: fitted exactly, so that the error falls with lambda as far as rounding lets it."""
    s = of(quantise(np.eye(3)[:2]), np.arange(2))
    for _ in range(24):
        s.merge(s)
    assert np.isinf(gcv(spectrum(s), [1e-9])[0]) and np.isfinite(gcv(spectrum(s), [1.0])[0])
    with refused('larger'):
        ridge(s, 1e-5)
    assert np.isfinite(ridge(s, choose_lambda(s)).weight).all()


@quick
@given(streams(max_size=8), st.sampled_from(TARGETS))
def test_any_stream_gets_a_lambda_that_ridge_can_use(stream, targets):
    """One sample, one class, equal samples, fewer than dimensions."""
    learner = Scroll(ridge_lambda='auto', targets=targets).fit(stream.features, stream.labels)
    assert 2 ** -20 <= learner.ridge_lambda_ <= 2 ** 20 and np.isfinite(learner.decision_function(stream.features)).all()


def test_auto_is_ridge_with_that_number_also_where_samples_are_left_out():
    auto = Scroll(ridge_lambda='auto', buffer_size=20).fit(FEATURES, LABELS)
    number = Scroll(ridge_lambda=auto.ridge_lambda_, buffer_size=20).fit(FEATURES, LABELS)
    assert auto.predictor().digest() == number.predictor().digest() and number.ridge_lambda_ == auto.ridge_lambda_
    content = auto.buffer_.content()
    np.testing.assert_array_equal(auto.left_out(content), number.left_out(content))


def test_auto_stays_auto_on_disk(tmp_path):
    learner = Scroll(ridge_lambda='auto', buffer_size=0).fit(FEATURES[:60], LABELS[:60])
    learner.save(tmp_path / 'state')
    read = Scroll.load(tmp_path / 'state').partial_fit(FEATURES[60:], LABELS[60:])
    assert read.ridge_lambda_ == choose_lambda(of(FEATURES, LABELS)) and read.ridge_lambda == 'auto'


def test_the_choice_is_made_again_when_more_is_learned_or_settings_change():
    learner = Scroll(ridge_lambda='auto', buffer_size=0).fit(FEATURES, FEATURES[:, :3].argmax(axis=1))
    before = learner.ridge_lambda_
    learner.partial_fit(FEATURES, np.random.default_rng(2).integers(0, 3, len(FEATURES)))
    assert learner.ridge_lambda_ == choose_lambda(learner.statistics_) > before
    assert learner.set_params(targets='onehot').ridge_lambda_ == choose_lambda(learner.statistics_, 'onehot')
    assert learner.set_params(ridge_lambda=2.5).ridge_lambda_ == 2.5
    assert learner.set_params(head='ncc').ridge_lambda_ is None


def test_what_cannot_be_is_refused():
    with refused('first sample'):
        choose_lambda(Statistics(4))
    with refused('targets'):
        choose_lambda(of(FEATURES, LABELS), 'pm2')
