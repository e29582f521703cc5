"""Which row a sample takes: what tells each strategy from the others."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import quick
from utils.buffer import Buffer

IMAGE = (1, 1, 1)


def offer(buffer, labels, scores=None, batch: int = 1) -> Buffer:
    labels = torch.as_tensor(labels)
    for start in range(0, len(labels), batch):
        part = slice(start, start + batch)
        buffer.add_data(torch.zeros(len(labels[part]), *IMAGE), labels[part],
                        sample_selection_scores=None if scores is None else torch.as_tensor(scores)[part])
    return buffer


def counts(buffer, classes: int) -> np.ndarray:
    return np.bincount(buffer.labels[:len(buffer)], minlength=classes)


@quick
@given(st.integers(2, 6), st.integers(6, 25), st.integers(1, 9), st.integers(0, 9), st.booleans())
def test_greedy_is_balanced_in_any_order_of_arrival(classes, size, batch, seed, in_order):
    """Every class has at least |M| samples: shares are the floor, the rest is left where
    it came to lie, no class above it."""
    labels = np.repeat(np.arange(classes), size)
    if not in_order:
        labels = np.random.default_rng(seed).permutation(labels)
    buffer = offer(Buffer(size, sample_selection_strategy='greedy', seed=seed), labels, batch=batch)
    kept = counts(buffer, classes)
    assert kept.sum() <= size and kept.min() >= size // classes and kept[-1] >= size // classes


def test_greedy_gives_a_class_that_comes_last_its_share():
    buffer = offer(Buffer(10, sample_selection_strategy='greedy', seed=0), [0] * 30 + [1] * 30 + [2])
    assert counts(buffer, 3)[2] == 1
    assert counts(offer(buffer, [2] * 30), 3).tolist() in ([4, 3, 3], [3, 4, 3], [3, 3, 4], [3, 3, 3])


def test_a_balanced_reservoir_is_nearer_to_balance_than_a_plain_one():
    labels = [0, 0, 0, 0, 0, 1] * 60
    plain, balanced = (np.mean([counts(offer(Buffer(20, sample_selection_strategy=s, seed=i), labels,
                                             batch=16), 2)[1] for i in range(20)])
                       for s in ('reservoir', 'balancoir'))
    assert plain < 5 and balanced > 7


@pytest.mark.parametrize('strategy', ['lars', 'labrs'])
def test_loss_aware_strategies_keep_what_is_not_learned(strategy):
    labels, losses = [0, 1] * 200, np.tile([0.0, 0.0, 5.0, 5.0], 100)
    high = []
    for seed in range(10):
        buffer = offer(Buffer(20, sample_selection_strategy=strategy, seed=seed), labels, losses, batch=8)
        high.append((buffer.sample_selection_fn.losses > 1).mean())
        if strategy == 'labrs':
            assert counts(buffer, 2).min() >= 8
    assert np.mean(high) > 0.7                              # half of what was offered


def test_new_losses_count():
    """A sample that has been learned since is the one that goes."""
    buffer = offer(Buffer(4, sample_selection_strategy='lars', seed=0), [0, 1, 2, 3], [1.0, 1.0, 1.0, 1.0])
    buffer.sample_selection_fn.update(torch.tensor([2]), torch.tensor([-50.0]))
    while buffer.labels.tolist() == [0, 1, 2, 3]:
        offer(buffer, [9], [1.0])
    assert buffer.labels.tolist() == [0, 1, 9, 3]


@pytest.mark.parametrize('labels, losses, gone',
                         [([0, 1, 1, 1], [9.0, 1.0, 5.0, 2.0], 2), ([0, 0, 0, 1], [9.0, 1.0, 5.0, 2.0], 1)])
def test_asymmetric_sampling_drops_large_current_losses_and_small_earlier_ones(labels, losses, gone):
    """Of the larger part."""
    dataset = SimpleNamespace(current_task=1, get_offsets=lambda t: (1, 2),
                              task_classes=lambda t: np.array([1]))
    selection = Buffer(4, sample_selection_strategy='abs', seed=0, dataset=dataset).sample_selection_fn
    selection.labels, selection.losses = np.array(labels), np.array(losses)
    weights = selection.weights(1)
    other = [i for i in range(4) if (labels[i] == 1) != (labels[gone] == 1)]
    assert weights.argmax() == gone and not weights[other].any()


def test_what_a_strategy_needs_is_named():
    with pytest.raises(ValueError, match='dataset='):
        Buffer(4, sample_selection_strategy='abs')


def test_an_unknown_strategy_is_named():
    with pytest.raises(ValueError, match="'nearest'.*reservoir"):
        Buffer(4, sample_selection_strategy='nearest')


@pytest.mark.parametrize('size', [0, 1, 6])
@pytest.mark.parametrize('labels', [None, [-1, -1, -1], [0, -1, 1]])
@pytest.mark.parametrize('strategy', ['greedy', 'balancoir', 'lars', 'labrs', 'abs'])
def test_labels_and_losses_may_be_missing_or_no_numbers(strategy, labels, size):
    """`abs` is in its first task here: there are no earlier classes to take the place of."""
    dataset = SimpleNamespace(current_task=0, get_offsets=lambda t: (0, 2),
                              task_classes=lambda t: np.array([0, 1, -1]))
    buffer = Buffer(size, sample_selection_strategy=strategy, seed=0,
                    **(dict(dataset=dataset) if strategy == 'abs' else {}))
    for losses in ([np.nan, np.inf, -np.inf], [np.nan, 1.0, 2.0], None):
        for _ in range(6):
            buffer.add_data(torch.zeros(3, *IMAGE), labels, sample_selection_scores=losses)
    shares = strategy == 'greedy' and labels == [0, -1, 1]
    assert len(buffer) == (min(size, max(1, size // 3) * 3) if shares else size)


@pytest.mark.parametrize('strategy', ['greedy', 'balancoir', 'lars', 'labrs'])
def test_a_buffer_may_be_made_smaller(strategy):
    buffer = offer(Buffer(10, sample_selection_strategy=strategy, seed=0), [0, 1] * 20, np.arange(40.0))
    buffer.buffer_size = 4
    offer(buffer, [2, 3] * 60, np.arange(120.0))
    assert len(buffer) == 4 and buffer.labels[:4].max() >= 2
