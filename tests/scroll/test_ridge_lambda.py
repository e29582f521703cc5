"""GCV from the statistics, against scikit-learn and fractions; a choice that no schedule and no
LAPACK can change.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import RidgeCV

from scroll import Scroll
from scroll.ground.grid import GRID, quantise
from scroll.ground.settings import TARGETS
from scroll.heads.predictors import exact_lambda, ridge, ridge_system
from scroll.heads.ridge_lambda import choose_lambda, exact_gcv, gcv_bounds, grid_lambda
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import counted, exact_solution, left_out, quick, refused, streams

LAMBDAS = (1e-4, 3e-3, 0.1, 1.0, 50.0)


# three classes that features tell apart, with errors
RANDOM = np.random.default_rng(0)
FEATURES = quantise(RANDOM.normal(size=(120, 6)))
LABELS = np.where(
    RANDOM.random(120) < 0.3, RANDOM.integers(0, 3, 120), FEATURES[:, :3].argmax(axis=1)
)


@pytest.mark.parametrize('targets', TARGETS)
def test_leave_one_out_and_the_choice_are_those_of_scikit_learn(targets):
    """RidgeCV's GCV is leave-one-out: ours must equal it, while GCV proper stays near and
    chooses the same."""
    x = np.column_stack([FEATURES / GRID, np.ones(120)])
    y = (LABELS[:, None] == np.arange(3)) * 1.0
    y = 2 * y - 1 if targets == 'pm1' else y
    s = counted(FEATURES, LABELS)
    theirs = RidgeCV(alphas=LAMBDAS, fit_intercept=False, store_cv_results=True).fit(x, y)
    errors = theirs.cv_results_.sum(axis=1).mean(axis=0)  # (N, K, L): squared errors
    gcv = []
    for lambda_, error in zip(LAMBDAS, errors):
        alpha = exact_lambda(lambda_)
        logits = left_out('ridge', s, FEATURES, LABELS, ridge_lambda=alpha, targets=targets)
        assert ((y - logits) ** 2).sum(axis=1).mean() == pytest.approx(error, rel=1e-4)
        gcv.append(float(exact_gcv(ridge_system(s, targets), alpha)))
    np.testing.assert_allclose(gcv, errors, rtol=0.02)
    assert theirs.alpha_ == LAMBDAS[np.argmin(gcv)]


def exact_criterion(s: Statistics, targets: str, alpha: float) -> Fraction:
    """N |Y - HY|^2 / (N - tr H)^2 in fractions, from the sums: W = (A + lambda I)^-1 R, H = X (A +
    lambda I)^-1 X'."""
    right = s.sums.T
    squares = s.total
    if targets == 'pm1':
        right = 2 * right - right.sum(axis=1, keepdims=True)
        squares *= len(s.classes)
    identity = np.eye(len(s.gram), dtype=int)
    shift = int(Fraction(alpha) * GRID**2)
    w = np.array(exact_solution(s.gram, shift, right)) * GRID
    inverse = np.array(exact_solution(s.gram, shift, identity))
    fitted = (w * (s.gram.astype(object) @ w)).sum() / GRID**2
    rss = squares - (w * right).sum() * Fraction(2, GRID) + fitted
    return s.total * rss / (s.total - len(identity) + shift * inverse.trace()) ** 2


@quick
@given(st.sampled_from(TARGETS), streams(max_size=12), st.integers(-80, 80), st.booleans())
def test_bounds_hold_what_fractions_say_and_60_bits_are_right(targets, stream, k, twice):
    """One sample, repeated ones, fewer than dimensions: where eigenvalues are zero to rounding, the
    bounds are wide.
    """
    at = np.repeat(np.arange(len(stream.labels)), 1 + twice)
    s = counted(stream.features[at], stream.labels[at])
    alpha = grid_lambda(k)
    expected = exact_criterion(s, targets, alpha)
    assert abs(exact_gcv(ridge_system(s, targets), alpha) / expected - 1) < Fraction(1, 1 << 60)
    low, high = gcv_bounds(ridge_system(s, targets))(alpha)
    assert low <= expected <= high


@settings(quick, max_examples=10)
@given(st.sampled_from(TARGETS), streams(max_size=8))
def test_the_choice_is_that_of_exact_arithmetic(targets, stream):
    """The largest lambda of equal criteria: two orthogonal samples, or one, leave all equal."""
    s = counted(stream.features, stream.labels)
    k = 0
    reach = 80
    for step in (16, 4, 1):
        near = range(max(k - reach, -80), min(k + reach, 80) + 1, step)
        criteria = {k: exact_criterion(s, targets, grid_lambda(k)) for k in near}
        limit = min(criteria.values()) * (1 + Fraction(1, 1 << 30))
        k = max(k for k in near if criteria[k] <= limit)
        reach = step
    assert choose_lambda(ridge_system(s, targets)) == grid_lambda(k)


@pytest.mark.parametrize(
    'features, labels',
    [
        (quantise(np.eye(4)[:1]), np.zeros(1, int)),
        (quantise(np.eye(4)), np.arange(4)),
        (np.repeat(FEATURES[:4], 3, axis=0), np.arange(12) % 3),
        (FEATURES, LABELS),
    ],
    ids=['one', 'orthogonal', 'repeated', 'many'],
)
def test_the_last_bits_of_eigenvalues_choose_nothing(features, labels, monkeypatch):
    s = counted(features, labels)
    eigh = np.linalg.eigh
    r = np.random.default_rng(0)
    expected = choose_lambda(ridge_system(s, 'pm1'))

    def another(matrix):
        noise = r.normal(size=matrix.shape) * 1e-16 * matrix.trace()
        return eigh(matrix + noise + noise.T)

    monkeypatch.setattr(np.linalg, 'eigh', another)
    assert {choose_lambda(ridge_system(s, 'pm1')) for _ in range(3)} == {expected}


def test_a_lambda_that_rounding_swallows_is_never_chosen():
    """Two samples, sixteen million times each: fitted exactly, so the error falls with lambda as
    far as rounding lets it.
    """
    s = counted(quantise(np.eye(3)[:2]), np.arange(2))
    for _ in range(24):
        s.merge(s)
    with refused('larger'):
        ridge(s, 1e-5)
    assert np.isfinite(ridge(s, choose_lambda(ridge_system(s, 'pm1'))).weight).all()


def test_the_choice_is_made_again_when_more_is_learned_or_settings_change(tmp_path):
    labels = FEATURES[:, :3].argmax(axis=1)
    learner = Scroll(ridge_lambda='auto', buffer_size=20).fit(FEATURES, labels)
    before = learner.ridge_lambda_
    number = Scroll(ridge_lambda=before, buffer_size=20).fit(FEATURES, labels)
    assert number.predictor().digest() == learner.predictor().digest()
    assert number.ridge_lambda_ == before
    learner.save(tmp_path / 'state')
    noise = np.random.default_rng(2).integers(0, 3, len(FEATURES))
    learner = Scroll.load(tmp_path / 'state').partial_fit(FEATURES, noise)
    sums = learner.statistics_
    assert learner.ridge_lambda_ == choose_lambda(ridge_system(sums, 'pm1')) > before
    assert learner.set_params(targets='onehot').ridge_lambda_ == choose_lambda(
        ridge_system(sums, 'onehot')
    )
    assert learner.set_params(ridge_lambda=2.5).ridge_lambda_ == 2.5
    assert learner.set_params(head='ncc').ridge_lambda_ is None
