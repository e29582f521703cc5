"""Linear discriminant analysis from the sums: against rational arithmetic, scikit-learn, and its
own limits.
"""

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
    x = quantise([[3.0, 4.0], [1.0, 0.0], [-1.0, 0.5]])
    arrays = Statistics(2).add(x[:1], [0]).state_dict()
    copies = {name: array * weight for name, array in arrays.items()}  # of class 0
    statistics = Statistics.from_arrays(copies).add(x[1:], [1, 1])
    scatter = head.within_scatter(statistics)
    means = head.class_means(statistics).T
    trace = int(np.trace(scatter))
    share = head.oas(scatter, weight) if shrinkage == 'oas' else 0
    shift = max(round(Fraction(trace, 2) * share / (1 - share)), -(-trace >> 40))
    exact = exact_solution(scatter, shift, GRID * weight * means.astype(object))
    predictor = head.lda(statistics, shrinkage)
    assert predictor.units[:, :-1].T.tolist() == in_units(exact, predictor.exponent)


@pytest.mark.parametrize('spread', [0.01, 0.3, 2.0])
def test_the_shrinkage_is_the_formulas(spread):
    u, y = sample(4, 90, 6, spread=spread)
    statistics = Statistics(6).add(u, y)
    covariance = head.within_scatter(statistics).astype(float)
    n = 87
    p = 6
    t = np.trace(covariance)
    t2 = (covariance**2).sum()
    expected = min(1, ((1 - 2 / p) * t2 + t**2) / ((n + 1 - 2 / p) * (t2 - t**2 / p)))
    assert float(head.oas(head.within_scatter(statistics), 87)) == pytest.approx(expected, abs=1e-8)


def test_leaving_one_out_is_learning_without_it():
    """The last sample is the only one of its class."""
    u, y = sample(6, 32, 5)
    y[31] = 3
    statistics = Statistics(5).add(u, y)
    share = head.exact_share(0.3)
    logits = left_out('lda', statistics, u, y, shrinkage=0.3)
    variance = np.trace(head.within_scatter(statistics)) / 5
    for i in range(0, 31, 3):
        rest = Statistics(5).add(np.delete(u, i, axis=0), np.delete(y, i))
        system = head.within_scatter(rest) + float(share / (1 - share)) * variance * np.eye(5)
        means = rest.sums[:, :-1] / rest.counts[:, None] / GRID
        weights = (rest.total - 4) * np.linalg.solve(system / GRID**2, means.T)
        expected = u[i] / GRID @ weights - (means.T * weights).sum(axis=0) / 2
        np.testing.assert_allclose(logits[i], expected, atol=2e-3, rtol=1e-4)


def test_where_nothing_varies_without_a_sample_its_logits_are_finite():
    u = GRID * np.array([[1], [1], [-1], [1]])
    statistics = Statistics(1).add(u, [0, 1, 0, 1])
    assert np.isfinite(left_out('lda', statistics, u[:1], [0], shrinkage=0.0)).all()
