"""Orders of classes: distances and chains by hand and compared with numpy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.certify.measures import variance_shares
from bench.certify.sensitivity import chain, dealt, separations
from scroll.ground.grid import GRID
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import make_stream, quick, refused


def summed(features, labels) -> Statistics:
    return Statistics(features.shape[1], by_class=True).add(features, labels)


def test_separations_are_fishers_ratio_and_the_same_in_any_order():
    stream = make_stream(np.random.default_rng(0).integers(0, 4, 90), dim=6)
    found = separations(summed(stream.features, stream.labels))
    of = [stream.features[stream.labels == c] / GRID for c in range(4)]
    for a, b in itertools.permutations(range(4), 2):
        gap = ((of[a].mean(axis=0) - of[b].mean(axis=0)) ** 2).sum()
        assert found[a, b] == pytest.approx(
            gap / (of[a].var(axis=0).sum() + of[b].var(axis=0).sum())
        )
    assert np.array_equal(found, found.T)
    assert not found.diagonal().any()
    shuffled = np.random.default_rng(1).permutation(90)
    assert np.array_equal(
        found, separations(summed(stream.features[shuffled], stream.labels[shuffled]))
    )


def test_classes_without_width_are_finite_and_one_class_has_no_order():
    features = np.eye(3, dtype=np.int32)[[0, 1, 2]] * GRID
    assert np.isfinite(separations(summed(features, np.arange(3)))).all()
    with refused('one class only'):
        separations(summed(features[:1], np.zeros(1, int)))


def test_a_chain_goes_to_the_nearest_and_dealing_parts_neighbours():
    line = np.array([0, 10, 1, 11, 2, 12.0])  # two groups on a line
    order = chain(abs(line[:, None] - line))
    assert order.tolist() == [0, 2, 4, 1, 3, 5]
    assert dealt(order, 3).tolist() == [0, 1, 2, 3, 4, 5]
    assert dealt(np.arange(7), 3).tolist() == [0, 3, 6, 1, 4, 2, 5]


@quick
@given(st.integers(2, 9), st.integers(2, 4), st.integers(0, 99))
def test_orders_are_permutations(n, tasks, seed):
    points = np.random.default_rng(seed).normal(size=(n, 2))
    order = chain(((points[:, None] - points) ** 2).sum(axis=2))
    for found in (order, dealt(order, min(tasks, n))):
        assert sorted(found.tolist()) == list(range(n))


def test_a_two_way_layout_by_hand():
    assert variance_shares([[1, 2], [3, 4], [5, 6.0]]) == pytest.approx(
        (100 * 16 / 17.5, 100 * 1.5 / 17.5, 0)
    )
    assert variance_shares(np.full((3, 2), 59.8)) == (0, 0, 0)
    shares = variance_shares(np.random.default_rng(0).normal(50, 5, (4, 3)))
    assert sum(shares) == pytest.approx(100)
    assert min(shares) > 0
