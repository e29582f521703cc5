"""Linear discriminant analysis from the sums: against rational arithmetic, scikit-learn, and its
own limits.
"""

import copy
from fractions import Fraction

import numpy as np
import pytest

from scroll import Statistics
from scroll.ground.grid import GRID, quantise
from scroll.heads import discriminants as head
from scroll.sums.statistics import MAX_SAMPLES
from tests.scroll.conftest import exact_solution, in_units, left_out, sample


@pytest.mark.parametrize('shrinkage', ['oas', 0])
@pytest.mark.parametrize('weight', [10**5, MAX_SAMPLES - 2])
def test_one_sample_of_most_of_the_weight_is_no_contradiction(weight, shrinkage):
    X, y = np.array([[3.0, 4.0], [1.0, 0.0], [-1.0, 0.5]]), [0, 1, 1]
    one, statistics = Statistics(2).add(quantise(X[:1]), y[:1]), Statistics(2)
    for bit in f'{weight:b}':  # of the first sample `weight` copies
        statistics.merge(copy.copy(statistics))
        statistics = statistics.merge(one) if bit == '1' else statistics
    statistics.add(quantise(X[1:]), y[1:])
    means, scatter = head.class_means(statistics), head.within_scatter(statistics)
    predictor, trace = head.lda(statistics, shrinkage), int(np.trace(scatter))
    share = head.oas(scatter, weight) if shrinkage == 'oas' else 0
    units = max(round(Fraction(trace, 2) * share / (1 - share)), -(-trace >> 40))
    system = [
        [int(v) + units * (i == j) for j, v in enumerate(row)] for i, row in enumerate(scatter)
    ]
    exact = exact_solution(system, 0, [[GRID * weight * int(v) for v in row] for row in means.T])
    assert predictor.units[:, :-1].T.tolist() == in_units(exact, predictor.exponent)


@pytest.mark.parametrize('spread', [0.01, 0.3, 2.0])
def test_the_shrinkage_is_the_formulas(spread):
    u, y = sample(4, 90, 6, spread=spread)
    statistics = Statistics(6).add(u, y)
    covariance = head.within_scatter(statistics).astype(float)
    n, p, t, t2 = 87, 6, np.trace(covariance), (covariance**2).sum()
    expected = min(1, ((1 - 2 / p) * t2 + t**2) / ((n + 1 - 2 / p) * (t2 - t**2 / p)))
    assert float(head.oas(head.within_scatter(statistics), 87)) == pytest.approx(expected, abs=1e-8)


def test_leaving_one_out_is_learning_without_it():
    u, y = sample(6, 31, 5, 3)
    # without the first nothing varies
    few = Statistics(1).add(np.full((4, 1), GRID) * [[1], [1], [-1], [1]], [0, 1, 0, 1])
    assert np.isfinite(left_out('lda', few, np.array([[GRID]]), [0], shrinkage=0.0)).all()
    u, y = np.concatenate([u, sample(7, 1, 5)[0]]), np.r_[y, 3]  # a class of one
    statistics = Statistics(5).add(u, y)
    scatter, share = head.within_scatter(statistics), head.exact_share(0.3)
    logits = left_out('lda', statistics, u, y, shrinkage=0.3)
    units = round(Fraction(int(np.trace(scatter)), 5) * share / (1 - share))
    for i in range(0, 31, 3):
        rest = Statistics(5).add(np.delete(u, i, axis=0), np.delete(y, i))
        without = head.within_scatter(rest) / GRID**2 + units / GRID**2 * np.eye(5)
        means = rest.sums[:, :-1] / rest.counts[:, None] / GRID
        weights = (rest.total - 4) * np.linalg.solve(without, means.T)
        expected = u[i] / GRID @ weights - (means.T * weights).sum(axis=0) / 2
        np.testing.assert_allclose(logits[i], expected, atol=2e-3, rtol=1e-4)
