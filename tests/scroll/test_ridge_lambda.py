"""GCV from the statistics and exact leave-one-out, each against what it stands for; a choice no schedule can change."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import RidgeCV

from scroll import Scroll
from scroll.embedding import quantise
from scroll.predictors import TARGETS, ridge, ridge_left_out
from scroll.ridge_lambda import choose_lambda, gcv, left_out, search, spectrum
from scroll.statistics import GRID, Statistics
from tests.scroll.conftest import cuttings, quick, refused, streams, threads

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


def test_leave_one_out_goes_over_the_features_in_blocks(monkeypatch):
    whole = left_out(spectrum(of(FEATURES, LABELS)), LAMBDAS, FEATURES, LABELS)
    monkeypatch.setattr('scroll.ridge_lambda._BLOCK', 7)
    np.testing.assert_allclose(left_out(spectrum(of(FEATURES, LABELS)), LAMBDAS, FEATURES, LABELS), whole, rtol=1e-12)


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


def test_the_choice_does_not_depend_on_the_number_of_threads():
    features, labels = noisy(600, dim=256)
    s, found = of(features, labels), set()
    for count in (1, 2):
        with threads(count):
            found.add((choose_lambda(s), spectrum(s).projected.tobytes()))
    assert len(found) == 1


def test_the_choice_minimises_gcv_to_its_resolution():
    s = spectrum(of(FEATURES, LABELS))
    best = choose_lambda(of(FEATURES, LABELS))
    around = best * 10.0 ** np.linspace(-3, 3, 601)
    assert gcv(s, [best])[0] <= gcv(s, around).min() * (1 + 1e-4)
    assert abs(np.log10(around[gcv(s, around).argmin()] / best)) < 0.02
    assert 1e-3 < best < 1e3                                                    # not at an end


def test_the_choice_is_near_that_of_leave_one_out_and_scales_with_the_noise():
    clean = FEATURES[:, :3].argmax(axis=1)
    s = spectrum(of(FEATURES, LABELS))
    by_error = search(lambda lambdas: left_out(s, lambdas, FEATURES, LABELS)[0])
    assert abs(np.log10(choose_lambda(of(FEATURES, LABELS)) / by_error)) < 0.25
    shuffled = np.random.default_rng(1).permutation(LABELS)
    assert choose_lambda(of(FEATURES, clean)) < choose_lambda(of(FEATURES, LABELS)) < choose_lambda(of(FEATURES, shuffled))


def test_gcv_is_in_units_of_the_squared_targets():
    """+-1 targets are twice as far apart as one-hot ones: four times the error, where ridge shrinks the constant little."""
    pm1, onehot = (gcv(spectrum(of(FEATURES, LABELS), targets), [1e-3])[0] for targets in TARGETS)
    assert pm1 == pytest.approx(4 * onehot, rel=1e-6)


@pytest.mark.parametrize('criterion, expected', [
    (lambda x: np.log10(x / 0.0372) ** 2, 0.0372), (lambda x: np.log10(x / 12.3) ** 2, 12.3),
    (lambda x: 1 / x, 1e6), (lambda x: x, 1e-6), (np.ones_like, 1e6), (lambda x: np.maximum(x, 0.316), 0.316),
    (lambda x: np.where(x < 1, np.inf, x), 1.0)], ids=['inside', 'inside too', 'top', 'bottom', 'tie', 'plateau', 'infinite'])
def test_search_finds_the_least_and_of_equals_the_largest(criterion, expected):
    assert search(criterion) == expected


def test_search_asks_for_few_and_plain_numbers():
    asked = []
    search(lambda x: asked.append(x) or np.log10(x / 3) ** 2)
    assert [len(x) for x in asked] == [49, 11, 11]
    assert all(float(f'{x:.3g}') == x for x in np.concatenate(asked))


def test_a_lambda_that_rounding_swallows_is_never_chosen():
    """Two samples, sixteen million times each: fitted exactly, so that the error falls with lambda as far as rounding lets it."""
    s = of(quantise(np.eye(3)[:2]), np.arange(2))
    for _ in range(24):
        s.merge(s)
    assert np.isinf(gcv(spectrum(s), [1e-9])[0]) and np.isfinite(gcv(spectrum(s), [1.0])[0])
    assert np.isfinite(ridge(s, choose_lambda(s)).weight).all()


@quick
@given(streams(max_size=8), st.sampled_from(TARGETS))
def test_any_stream_gets_a_lambda_that_ridge_can_use(stream, targets):
    """One sample, one class, equal samples, fewer than dimensions."""
    learner = Scroll(ridge_lambda='auto', targets=targets).fit(stream.features, stream.labels)
    assert 1e-6 <= learner.ridge_lambda_ <= 1e6 and np.isfinite(learner.decision_function(stream.features)).all()


def test_auto_is_ridge_with_that_number_also_where_samples_are_left_out():
    auto = Scroll(ridge_lambda='auto', buffer_size=20).fit(FEATURES, LABELS)
    number = Scroll(ridge_lambda=auto.ridge_lambda_, buffer_size=20).fit(FEATURES, LABELS)
    assert auto.predictor().digest() == number.predictor().digest() and number.ridge_lambda_ == auto.ridge_lambda_
    content = auto.buffer_.content()
    np.testing.assert_array_equal(auto.left_out(content), ridge_left_out(
        auto.statistics_, choose_lambda(auto.statistics_), 'pm1', content.features, content.labels))


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
    assert learner.set_params(classifier='ncc').ridge_lambda_ is None


@pytest.mark.parametrize('value', ['Auto', '1', None, -1.0, np.nan])
def test_another_lambda_is_refused(value):
    with refused('ridge lambda .*auto'):
        Scroll(ridge_lambda=value).fit(FEATURES, LABELS).predict(FEATURES)


def test_what_cannot_be_is_refused():
    with refused('first sample'):
        choose_lambda(Statistics(4))
    with refused('targets'):
        choose_lambda(of(FEATURES, LABELS), 'pm2')
