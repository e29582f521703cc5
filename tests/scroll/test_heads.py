"""Heads beyond ridge, NCC and LDA: balanced ridge, QDA and the choice among heads; what leaving one
out is for each.
"""

from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import RidgeClassifier

from scroll import Adaptation, Scroll, Statistics
from scroll.ground.grid import GRID, quantise
from scroll.ground.settings import HEAD_NAMES, NCC_BIASES, OAS, PUBLISHED, SETTINGS, TARGETS
from scroll.heads.discriminants import qda
from scroll.heads.predictors import evened
from scroll.heads.registry import HEADS, Settings
from scroll.sums.lift import Lift
from tests.scroll.conftest import exact_solution, in_units, left_out, quick, refused, sample


@quick
@given(st.integers(0, 10**6), st.lists(st.integers(0, 60), max_size=4))
def test_gram_matrices_by_class_are_those_of_the_classes_and_add_up(seed, cuts):
    u, y = sample(seed)
    order = np.random.default_rng(seed).permutation(60)
    by_class = Statistics(4, by_class=True)
    for part in np.split(order, sorted(cuts)):
        by_class.add(u[part], y[part])
    assert np.array_equal(by_class.gram, Statistics(4).add(u, y).gram)
    for gram, label in zip(by_class.grams, by_class.classes):
        assert np.array_equal(gram, Statistics(4).add(u[y == label], y[y == label]).gram)
    half, rest = np.split(order, 2)
    assert by_class.remove(u[half], y[half]) == Statistics(4, by_class=True).add(u[rest], y[rest])


def test_settings_of_heads_are_those_of_a_learner():
    assert asdict(Settings()) == {
        name: setting.default for name, setting in SETTINGS.items() if setting.heads
    }


@st.composite
def small_systems(draw) -> tuple:
    """Up to twelve samples of up to three classes on few points: many are equal, and those of a
    class may all be."""
    values = st.sampled_from([0, 0, 1, 3, 4, -1, 0.377, 1e-30, 1e30])
    width = draw(st.integers(1, 4))
    points = draw(
        st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=6)
    )
    labels = draw(st.lists(st.integers(0, 2), min_size=1, max_size=12))
    return np.float32([draw(st.sampled_from(points)) for _ in labels]), np.array(labels)


def exact_weights(learner, u, y) -> list:
    """Rounded weights of ridge and balanced (with biases), and of lda (without), (K, D), from the
    samples, in fractions."""
    each = np.unique(y, return_inverse=True)[1]
    counts = np.bincount(each).tolist()
    x = np.column_stack([u, np.full(len(u), GRID)]).astype(object)
    right = np.eye(len(counts), dtype=int)[each].T @ x
    shift = round((learner.ridge_lambda_ or 0) * GRID**2)
    gram = x.T @ x
    times = 1
    if learner.head == 'lda':
        right = rounded(right[:, :-1].T, 1, counts).T
        v = x[:, :-1] - right[each]
        gram = v.T @ v
        trace = int(np.trace(gram))
        shift = GRID**2
        if trace:
            share = Fraction(learner.shrinkage)
            added = round(Fraction(trace, len(gram)) * share / (1 - share))
            shift = max(added, -(-trace >> 40))
            times = max(len(y) - len(counts), 1)
    if learner.head == 'balanced':
        share = round(len(y) / len(counts))
        right = rounded(right.T, share, counts).T
        parts = [x[each == k].T @ x[each == k] for k in range(len(counts))]
        gram = sum(rounded(part, share, [n] * len(part)) for part, n in zip(parts, counts))
        gram[-1] = gram[:, -1] = GRID * right.sum(axis=0)
    if learner.targets == 'pm1' and learner.head != 'lda':
        right = 2 * right - right.sum(axis=0)
    solution = np.array(exact_solution(gram, shift, right.T)).T * times * GRID
    return in_units(solution, learner.predictor().exponent)


def rounded(rows, times, counts) -> np.ndarray:
    return np.array(
        [[round(Fraction(times * int(value), n)) for value, n in zip(row, counts)] for row in rows],
        object,
    )


@settings(quick, max_examples=80)
@given(
    small_systems(),
    st.sampled_from(HEAD_NAMES),
    st.sampled_from(TARGETS),
    st.sampled_from([*(2.0**-k for k in (35, 30, 22, 16)), 0.1, 50, 'auto']),
    st.sampled_from([0.0, 0.25, 1 - 2**-20]),
)
@example(
    (np.float32([[1, 1], [1, -1], [1, 3], [0, 1]]), np.array([1, 0, 1, 1])),
    'balanced',
    'onehot',
    'auto',
    0.0,
)
@example(
    (np.float32([[1, 0, 0], [4, 0, 3], [0, 4, 0], [1, 0, 3]]), np.array([0, 2, 2, 1])),
    'balanced',
    'onehot',
    'auto',
    0.0,
)
def test_small_systems_end_and_weights_are_the_exact_ones_rounded(
    system, head, targets, ridge_lambda, shrinkage
):
    X, y = system
    learner = Scroll(
        head=head,
        ridge_lambda=ridge_lambda,
        targets=targets,
        shrinkage=shrinkage,
        lift_dim=3,
        buffer_size=9,
        strategy='hash',
    ).fit(X, y)
    assert set(learner.predict(X)) <= set(y)
    np.testing.assert_allclose(learner.out_of_sample(X, y).sum(axis=1), 1)
    if head in ('ridge', 'balanced', 'lda'):
        exact = exact_weights(learner, quantise(X), y)
        units = learner.predictor().units
        assert units[:, : len(exact[0])].tolist() == exact
        assert np.abs(units).max() <= 2**47


def test_sums_by_class_and_of_all_do_not_mix():
    pooled = Statistics(4).add(*sample())
    by_class = Statistics(4, by_class=True).add(*sample())
    with refused('by_class True'):
        pooled.merge(by_class)
    with refused('one Gram matrix'):
        qda(pooled, 0.5, OAS)


def scatters(x, y) -> tuple:
    """Means (3, d) and scatters (3, d, d) of three classes."""
    means = np.stack([x[y == c].mean(axis=0) for c in range(3)])
    return means, np.stack([(x[y == c] - means[c]).T @ (x[y == c] - means[c]) for c in range(3)])


@quick
@given(
    seed=st.integers(0, 10**6),
    pooling=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    shrinkage=st.sampled_from([0.01, 0.5]),
)
def test_qda_is_its_formula(seed, pooling, shrinkage):
    u, y = sample(seed, spread=0.7)
    predictor = qda(Statistics(4, by_class=True).add(u, y), pooling, shrinkage)
    x = u / GRID
    means, parts = scatters(x, y)
    common = parts.sum(axis=0) / 57
    expected = np.empty((60, 3))
    for c in range(3):
        covariance = (1 - pooling) * parts[c] / 19 + pooling * common
        covariance = (1 - shrinkage) * covariance + shrinkage * np.trace(common) / 4 * np.eye(4)
        v = x - means[c]
        expected[:, c] = -(v * np.linalg.solve(covariance, v.T).T).sum(axis=1)
    np.testing.assert_allclose(
        predictor.decision_function(u) / (1 - shrinkage), expected, rtol=2e-4, atol=2e-3
    )


def test_qdas_logits_are_exact_integers():
    """Compare with Python's integers; also at the corners of the grid, where numbers are
    largest.
    """
    u, y = sample(count=30, dim=3, spread=0.1)
    predictor = qda(Statistics(3, by_class=True).add(u, y), 0.5, OAS)
    points = np.concatenate([u[:5], GRID * np.array([[1, -1, 1], [-1, -1, -1]])])
    unit = 2.0 ** (predictor.exponent - 36)
    for row, logits in zip(points.tolist(), predictor.decision_function(points)):
        for mean, form, logit in zip(predictor.means.tolist(), predictor.forms.tolist(), logits):
            v = [a - m for a, m in zip(row, mean)]
            exact = -sum(v[i] * form[i][j] * v[j] for i in range(3) for j in range(3))
            assert logit == pytest.approx(exact * unit, rel=1e-15)
    assert (predictor.predict(points) == predictor.decision_function(points).argmax(axis=1)).all()


def test_a_class_of_two_next_to_as_many_samples_as_sums_hold_does_not_wrap():
    def times(count, features, labels):
        arrays = Statistics(2, by_class=True).add(features, labels).state_dict()
        return Statistics.from_arrays(
            {name: array if name == 'classes' else array * count for name, array in arrays.items()}
        )

    u = quantise([[0.6, 0.8], [1, 0], [-1, 0]])
    # a scatter of 2, times all samples
    few = times(2**26 + 5, u[:1], [0]).merge(times(1, u[1:], [1, 1]))
    np.testing.assert_allclose(qda(few, 0.5, 0.1).quadratic[1], np.diag([1, 9 * 2**26]), rtol=1e-4)
    even = evened(times(2**26, u[:1], [0]).merge(times(2**26 - 1, u[:1], [1])))
    assert even.gram[-1, -1] == even.total << 36


@pytest.mark.parametrize(
    'name, lift, settings',
    [
        ('ridge', None, {'targets': 'pm1'}),
        ('ridge', None, {'targets': 'onehot'}),
        ('ridge', 'relu', {}),
        ('ncc', 'fourier', {}),
        ('ridge', 'fourier', {'ridge_lambda': 1e-9}),
        *(('ncc', None, {'ncc_bias': bias}) for bias in NCC_BIASES),
    ],
)
def test_leaving_one_out_is_learning_without_it(name, lift, settings):
    """The last sample is the only one of its class: without it that is unknown."""
    (u, y), lift = sample(6, 25), lift and Lift(lift, 4, 60 if 'ridge_lambda' in settings else 3)
    y[-1] = 3
    logits = left_out(name, Statistics(4, lift).add(u, y), u, y, **settings)
    for i in (*range(9), 24):
        rest = Statistics(4, lift).add(np.delete(u, i, 0), np.delete(y, i))
        without = HEADS[name].make(rest, Settings(**settings)).decision_function(u[i : i + 1])[0]
        np.testing.assert_allclose(logits[i], without if i < 24 else [*without, -np.inf], atol=1e-9)


def test_leaving_one_out_of_balanced_is_weighted_ridge_without_it():
    y = np.repeat([0, 1, 2], [30, 12, 4])
    r = np.random.default_rng(1)
    u = quantise(r.normal(size=(3, 4))[y] + r.normal(size=(46, 4)))
    logits = left_out('balanced', Statistics(4, by_class=True).add(u, y), u, y, ridge_lambda=0.3)
    x = np.column_stack([u / GRID, np.ones(46)])
    weights = 15 / np.bincount(y)[y]
    for i in range(0, 46, 9):
        rest = np.arange(46) != i
        other = RidgeClassifier(alpha=0.3, fit_intercept=False)
        other.fit(x[rest], y[rest], sample_weight=weights[rest])
        np.testing.assert_allclose(logits[i], other.decision_function(x[i : i + 1])[0], atol=1e-5)


@pytest.mark.parametrize('pooling', [0.0, 0.5])
def test_leaving_one_out_of_qda_is_its_formula_without_it(pooling):
    """The factors of the scatters stay, and what is added to the diagonals."""
    u, y = sample(6, 90, spread=0.5)
    statistics = Statistics(4, by_class=True).add(u, y)
    logits = left_out('qda', statistics, u, y, pooling=pooling, shrinkage=0.2)
    x = u / GRID
    variance = np.trace(scatters(x, y)[1].sum(axis=0)) / 87 / 4
    for i in range(0, 90, 7):
        means, parts = scatters(np.delete(x, i, 0), np.delete(y, i))
        common = pooling * parts.sum(axis=0) / 87 + 0.2 / 0.8 * variance * np.eye(4)
        for c in range(3):
            v = x[i] - means[c]
            exact = -v @ np.linalg.solve((1 - pooling) * parts[c] / 29 + common, v)
            assert logits[i, c] == pytest.approx(exact, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize('name', HEAD_NAMES)
def test_f_star_starts_from_any_head(name):
    y = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4)) + 3 * np.eye(4)[y]
    how = Adaptation(iterations=0, calibrate=False)
    learner = Scroll(head=name, lift_dim=8, buffer_size=30, adaptation=how).fit(x, y)
    f_T = learner.decision_function(x)
    f_star = learner.adapt().decision_function(x)
    np.testing.assert_allclose(f_star, f_T, rtol=1e-3, atol=2e-3 * np.abs(f_T).max())


def test_f_star_of_a_random_f_T_keeps_its_scale_though_chance_may_favour_it():
    y = np.arange(60) % 3
    x = np.random.default_rng(0).normal(size=(60, 4))
    how = Adaptation(iterations=0, scale=2.0)
    for seed in range(8):
        learner = Scroll(head='random', seed=seed, buffer_size=30, adaptation=how).fit(x, y)
        assert learner.adapt().adapted_.initial_scale == 2.0


def learned_and_adapted(head, x, y, size, how=None):
    """Accuracies of f_T and of f* on what was not learned, a third or more."""
    learner = Scroll(head=head, buffer_size=size, strategy='hash', adaptation=how)
    count = len(x) * 2 // 3
    before = learner.fit(x[:count], y[:count]).score(x[count:], y[count:])
    return before, learner.adapt().score(x[count:], y[count:])


@pytest.mark.parametrize('seed', range(3))
def test_f_star_keeps_what_f_T_knows_of_samples_that_left(seed):
    """LDA of many samples is the best there is for such clouds; labels of 40 would spoil it."""
    y = np.arange(3000) % 2
    x = np.random.default_rng(seed).normal(size=(3000, 12)) + 0.35 * np.eye(12)[y]
    before, after = learned_and_adapted('lda', x, y, 40)
    assert after >= before - 0.01


def test_f_star_gains_where_f_T_cannot_see():
    """Nearest means know nothing of a direction in which samples vary much and classes do not."""
    r = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = np.stack([r.normal(size=400) * 5, y + 0.1 * r.normal(size=400), np.ones(400)], axis=1)
    how = Adaptation(iterations=100, classifier_lr=5.0)
    before, after = learned_and_adapted('ncc', x, y, 200, how)
    assert after > before


@pytest.mark.parametrize('labels', [[0], [0, 1, 2], [0, 0, 1], [0] * 8])
def test_f_star_of_very_few_samples_has_finite_logits(labels):
    """Leave-one-out logits of a class's only sample do not exist."""
    x = np.random.default_rng(0).normal(size=(len(labels), 3))
    learner = Scroll(buffer_size=9, adaptation=Adaptation(iterations=4)).fit(x, labels).adapt()
    assert np.isfinite(learner.decision_function(x)).all()


@pytest.mark.parametrize('name', PUBLISHED)
def test_the_names_of_papers_are_the_heads_and_lifts_that_they_mean(name):
    x = np.random.default_rng(0).normal(size=(60, 8))
    y = np.arange(60) % 3
    head, lift = PUBLISHED[name]
    asked = Scroll(head=name, lift_dim=20, buffer_size=0).partial_fit(x, y)
    meant = Scroll(head=head, lift=lift or 'auto', lift_dim=20, buffer_size=0).partial_fit(x, y)
    assert asked.predictor().digest() == meant.predictor().digest()
    assert (asked.predictor().lift is None) == (lift is None)
