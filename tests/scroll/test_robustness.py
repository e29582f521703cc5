"""Formulas over a set of schedules: hand-computed values, properties, and agreement with plain
numpy and scipy.
"""

import itertools
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from bench.certify import measures as robustness
from bench.certify.measures import disagreement, summary
from tests.scroll.conftest import quick


def test_spread_by_hand():
    got = summary([40, 36, 44, 40])
    assert astuple(got) == (40, pytest.approx((32 / 3) ** 0.5), 36, 44, 8)


@quick
@given(st.floats(0, 100), st.integers(1, 50))
def test_equal_accuracies_differ_in_nothing(value, count):
    """Whatever rounding does to a mean of equal numbers."""
    got = summary([value] * count)
    assert astuple(got) == (value, 0, value, value, 0)


@quick
@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 999))
def test_disagreement_is_the_mean_hamming_distance_of_pairs(schedules, samples, seed):
    predictions = np.random.default_rng(seed).integers(-3, 3, (schedules, samples))
    for times in (np.ones(schedules, int), np.arange(1, schedules + 1)):
        pairs = pdist(np.repeat(predictions, times, axis=0), 'hamming')
        assert disagreement(predictions, times) == pytest.approx(100 * pairs.mean())


@quick
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 999))
def test_largest_weight_difference_is_that_of_the_farthest_pair(schedules, weights, seed):
    w = np.random.default_rng(seed).normal(size=(schedules, weights))
    farthest = max((np.abs(a - b).max() for a, b in itertools.combinations(w, 2)), default=0)
    assert robustness.largest_weight_difference(list(w)) == farthest


@pytest.mark.parametrize('weights', [[[1.0], [1.0, 2.0]], [[1.0], [np.nan]], [[1.0], [np.inf]]])
def test_weights_that_cannot_be_compared_are_infinitely_far(weights):
    assert robustness.largest_weight_difference(list(map(np.array, weights))) == np.inf


def test_anytime_accuracy_by_hand():
    """Two classes of 4 and 6 samples; the second one's hits do not count before it is seen."""
    hits = np.array([[3, 5], [2, 3]])
    seen = np.array([[True, False], [True, True]])
    assert robustness.anytime_accuracy(hits, np.array([4, 6]), seen).tolist() == [75, 50]


def test_average_incremental_accuracy_by_hand():
    """Task 0: classes 0 and 2 (4 and 6 test samples), task 1: class 1 (10). R = [[70]], [[40,
    90]].
    """
    hits = np.array([[3, 0, 4], [2, 9, 2]])
    sizes = np.array([4, 10, 6])
    tasks = np.array([0, 1, 0])
    assert (
        robustness.average_incremental_accuracy(hits, sizes, tasks, np.array([0, 1]))
        == (70 + (40 + 90) / 2) / 2
    )
    assert robustness.average_incremental_accuracy(hits[1:], sizes, tasks, np.array([1])) == 65


SAME = (1, np.array([1.0, 2.0]), np.array([0, 0, 1, 0]))
OTHER = (1, np.array([1.0, 2.5]), np.array([0, 1, 1, 1]))


def _judge(digests, claims):
    outcomes = {'a': SAME, 'b': OTHER}
    return robustness.judge({'buffer': digests}, {'buffer': claims}, outcomes, [75, 75], [80, 90])


@pytest.mark.parametrize(
    'digests, claims, identical',
    [
        ('aa', 'aa', True),
        ('ab', 'ab', False),
        ('ab', 'a', True),
        (['a', None], ['a', None], True),
        ([None, None], [None, None], True),
    ],
)
def test_identical_is_what_is_claimed_to_be(digests, claims, identical):
    assert _judge(digests, claims).identical == identical


def test_a_verdict_by_hand():
    got = _judge('ab', 'ab')
    assert (got.schedules, got.distinct, got.weight_difference, got.disagreement) == (
        2,
        {'buffer': 2},
        0.5,
        50,
    )
    assert (got.final.range, got.incremental.mean) == (0, 85)
    assert '50.00 %' in got.sentence()
    assert 'not identical' in got.sentence()
    said = _judge('ab', 'a').report()
    assert 'the same predictor, bit for bit, under 2 schedules' in said
    assert 'stored samples (buffer) differed; only f* depends on them, which was not made' in said
    assert 'stored samples' not in got.report() + _judge('aa', 'aa').report()
