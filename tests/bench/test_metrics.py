"""Metrics against values worked out by hand."""

import pytest

from utils.metrics import (
    average_incremental_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    mean,
)

FALLING = [[80], [60, 90], [50, 70, 95]]
RISING = [[50], [80, 90], [70, 95, 60]]


def test_by_hand():
    """Forgetting is measured from the best ever."""
    assert backward_transfer(FALLING) == -25  # (50 - 80 + 70 - 90) / 2
    assert backward_transfer(RISING) == 12.5  # (70 - 50 + 95 - 90) / 2
    assert forgetting(FALLING) == 25  # (80 - 50 + 90 - 70) / 2
    assert forgetting(RISING) == 5  # (80 - 70 + 95 - 95) / 2
    assert forward_transfer(before=[20, 30], untrained=[10, 5]) == 17.5
    assert average_incremental_accuracy(FALLING) == pytest.approx((80 + 75 + 215 / 3) / 3)


def test_one_task_has_no_transfer_and_no_forgetting():
    assert backward_transfer([[70]]) is forgetting([[70]]) is forward_transfer([], []) is None
    assert average_incremental_accuracy([[70]]) == 70
    assert mean([]) is None
    assert mean(x for x in (1, 2)) == 1.5
