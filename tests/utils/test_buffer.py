"""Replay buffer: what is kept, with which probability, and what comes out."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from bench.resume.state import Packer, unpack
from tests.conftest import refused
from utils.buffer import Buffer, fill_buffer


def numbered(count: int, start: int = 0) -> torch.Tensor:
    """uint8 images (count, 2, 2, 3): the number of each sample in two bytes."""
    numbers = torch.arange(start, start + count)
    images = torch.zeros(count, 2, 2, 3, dtype=torch.uint8)
    images[:, 0, 0, 0] = numbers % 256
    images[:, 0, 0, 1] = numbers // 256
    return images


def number_of(images) -> list:
    return (images[:, 0, 0, 0].long() + 256 * images[:, 0, 0, 1].long()).tolist()


def offer(buffer, labels, batch: int = 1, start: int = 0) -> Buffer:
    for at in range(0, len(labels), batch):
        part = torch.as_tensor(labels[at : at + batch])
        buffer.add_data(numbered(len(part), start + at), labels=part)
    return buffer


def filled(
    size: int, count: int, batch: int, seed: int = 0, strategy: str = 'reservoir', classes: int = 5
) -> Buffer:
    return offer(
        Buffer(size, sample_selection_strategy=strategy, raw=True, seed=seed),
        np.arange(count) % classes,
        batch,
    )


@pytest.mark.parametrize('batch', [1, 7, 60])
def test_every_sample_is_kept_with_the_same_probability_whatever_the_batches(batch):
    """|M| / N for each, also within a batch; a reservoir that draws a whole batch from the count
    before it fails this.
    """
    kept = np.zeros(60)
    for seed in range(40):
        kept[number_of(filled(12, 60, batch, seed).examples[:12])] += 1
    assert kept.sum() == 40 * 12
    # early and late samples, first and last of a batch
    assert chisquare(kept.reshape(12, 5).sum(axis=1)).pvalue > 1e-4


def test_the_first_are_kept_in_order_and_never_more_than_its_size():
    buffer = offer(Buffer(10, raw=True, seed=0), np.arange(6), 6)
    assert number_of(buffer.examples[: len(buffer)]) == list(range(6))
    assert len(buffer) == 6
    assert not buffer.is_full()
    offer(buffer, np.arange(6, 56), 50, start=6)
    assert len(buffer) == len(buffer.examples) == 10
    assert buffer.is_full()
    assert buffer.num_seen_examples == 56
    assert number_of(buffer.examples) == buffer.labels.tolist()  # rows stay together
    buffer.empty()
    assert buffer.is_empty()
    assert buffer.used_attributes == []
    assert buffer.num_seen_examples == 0


def test_sizes_of_zero_and_what_mammoths_own_buffer_can():
    assert filled(0, 40, 8).is_empty()
    assert filled(0, 40, 8, strategy='greedy').num_seen_examples == 40
    for size, strategy, more in (
        (-1, 'reservoir', {}),
        (5, 'lars', {}),
        (5, 'reservoir', {'dataset': 3}),
    ):
        with refused(f'{size}, {strategy}', 'reservoir or greedy', '--mammoth', *more):
            Buffer(size, sample_selection_strategy=strategy, **more)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.integers(6, 20), st.integers(1, 9), st.integers(0, 9), st.booleans())
def test_greedy_is_balanced_in_any_order_of_arrival(classes, size, batch, seed, in_order):
    """Every class has at least |M| samples: shares are the floor, the rest is left where it came to
    lie.
    """
    labels = np.repeat(np.arange(classes), size)
    if not in_order:
        labels = np.random.default_rng(seed).permutation(labels)
    buffer = offer(Buffer(size, sample_selection_strategy='greedy', seed=seed), labels, batch)
    kept = np.bincount(buffer.labels[: len(buffer)], minlength=classes)
    assert kept.sum() <= size
    assert kept.min() >= size // classes


def test_greedy_gives_a_class_that_was_loaded_its_share():
    again = Buffer(10, sample_selection_strategy='greedy', raw=True, seed=1).load(
        filled(10, 50, 10, strategy='greedy').serialize()
    )
    assert np.bincount(offer(again, [0] * 50, 50).labels[: len(again)]).tolist() == [2] * 5


def test_kinds_of_numbers():
    buffer = Buffer(4, seed=0)
    buffer.add_data(
        torch.rand(3, 3, 2, 2).double(),
        labels=torch.tensor([1, 2, 3], dtype=torch.int32),
        logits=torch.rand(3, 5).half(),
        task_labels=torch.zeros(3),
        true_labels=torch.ones(3),
    )
    kinds = {name: getattr(buffer, name).dtype for name in buffer.used_attributes}
    assert kinds == {
        'examples': torch.float32,
        'labels': torch.int64,
        'logits': torch.float32,
        'task_labels': torch.int64,
        'true_labels': torch.int64,
    }
    assert filled(4, 4, 4).examples.dtype == torch.uint8
    assert not hasattr(filled(4, 4, 4), 'logits')


def test_draws_do_not_repeat_and_are_uniform_and_leave_the_global_generators_alone():
    state = np.random.get_state()[1].copy()
    times = np.zeros(20)
    buffer = filled(20, 20, 20)
    for _ in range(200):
        images, labels = buffer.get_data(5)
        drawn = number_of(images)
        assert len(set(drawn)) == 5
        assert [n % 5 for n in drawn] == labels.tolist()
        times[drawn] += 1
    assert chisquare(times).pvalue > 1e-4
    assert len(buffer.get_data(100)[0]) == 20  # fewer where fewer are there
    first, again, other = (filled(9, 30, 4, seed).get_data(4)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert np.array_equal(state, np.random.get_state()[1])


def test_what_comes_out():
    buffer = Buffer(6, raw=True, seed=0)
    buffer.add_data(
        numbered(6), labels=torch.arange(6), task_labels=torch.tensor([0, 0, 1, 1, 2, 2])
    )
    rows, images, labels, tasks = buffer.get_data(4, return_index=True)
    assert labels.tolist() == rows.tolist() == number_of(images)
    assert (tasks == labels // 2).all()
    assert set(buffer.get_data(6, mask_task_out=1)[1].tolist()) == {0, 1, 4, 5}
    rows, changed, *_ = buffer.get_data(3, transform=lambda x: x.float() + 1, return_index=True)
    assert torch.equal(changed, buffer.examples[rows].float() + 1)
    assert buffer.get_all_data()[1].tolist() == list(range(6))
    assert buffer.get_data_by_index([3])[1].tolist() == [3]


@pytest.mark.parametrize('strategy', ['reservoir', 'greedy'])
def test_a_buffer_goes_on_where_it_was_saved(strategy):
    buffer = filled(8, 50, 9, strategy=strategy)
    again = unpack(
        Packer().pack(buffer, ''),
        Buffer(8, sample_selection_strategy=strategy, raw=True, seed=99),
        None,
    )
    for b in (buffer, again):
        offer(b, np.arange(90) % 11, 40, start=50)
    assert torch.equal(buffer.examples[: len(buffer)], again.examples[: len(again)])
    assert torch.equal(buffer.get_data(5)[1], again.get_data(5)[1])
    other = Buffer(8, raw=True, seed=1).load(filled(8, 50, 9).serialize())
    assert len(other) == 8
    assert other.num_seen_examples == 50


def test_a_smaller_size_hides_the_last():
    buffer = filled(5, 5, 5)
    buffer.buffer_size = 3
    assert len(buffer) == 3
    assert len(buffer.get_data(9)[0]) == 3


@pytest.mark.parametrize('larger', [False, True])
@pytest.mark.parametrize('strategy', ['reservoir', 'greedy'])
def test_free_rows_are_filled_one_after_the_other(strategy, larger):
    """Long after the reservoir's counter has passed the size: no row may come to count that nothing
    was written to.
    """
    buffer = filled(10, 100, 9, strategy=strategy)
    if larger:
        buffer.buffer_size = 16
    else:
        buffer.keep([3, 1])
    for number in range(100, 130):
        offer(buffer, [number % 5], start=number)
        kept = number_of(buffer.examples[: len(buffer)])
        assert len(set(kept)) == len(kept)
        assert [n % 5 for n in kept] == buffer.labels[: len(buffer)].tolist()
    assert buffer.is_full() or strategy == 'greedy'  # shares are rounded down


@pytest.mark.parametrize(
    'batch, words',
    [
        ({'examples': numbered(2)}, ('examples, labels',)),
        (
            {'examples': numbered(2), 'labels': torch.arange(2), 'logits': torch.rand(2, 5)},
            ('labels, logits',),
        ),
        ({'examples': torch.rand(2, 2, 2, 3), 'labels': torch.arange(2)}, ('uint8', 'float32')),
    ],
)
def test_rows_are_never_half_written(batch, words):
    """A label of the sample before, logits of zero, or images in [0, 1] among bytes would be
    learned from without a word.
    """
    buffer = filled(10, 4, 4)
    with refused('empty buffer', *words):
        buffer.add_data(**batch)
    with pytest.raises(ValueError, match='different lengths'):
        buffer.add_data(numbered(3), labels=torch.arange(2))
    with refused('no buffer'):
        buffer.load({'examples': numbered(3), 'labels': torch.arange(2)})
    assert len(buffer) == 4
    assert buffer.num_seen_examples == 4


def test_nothing_to_draw():
    buffer = filled(6, 6, 6, classes=1)

    def per_image(image):
        return torch.zeros(3, 5, 5)

    buffer.task_labels = torch.zeros(6, dtype=torch.int64)
    for empty in (
        buffer.get_data(0, transform=per_image),
        buffer.get_data(4, transform=per_image, mask_task_out=0),
    ):
        assert empty[0].shape == (0, 3, 5, 5)
        assert empty[1].shape == (0,)


class _Task:
    """A data set as `fill_buffer` needs it: six images of class 0, none of class 1."""

    targets = torch.zeros(6, dtype=torch.int64)

    @staticmethod
    def raw(ids):
        return numbered(6)[ids]

    @staticmethod
    def task_classes(t):
        return [0, 1]

    @staticmethod
    def get_normalization_transform():
        return None


def test_a_task_may_lack_a_class():
    """`--label_perc_by_class 0.01` of ten samples leaves none."""
    net = torch.nn.Module()
    net.forward = lambda x, returnt: x.flatten(1).float()
    net.device = 'cpu'
    _Task.train_loader = SimpleNamespace(dataset=_Task)
    for size in (0, 4):
        buffer = Buffer(size, raw=True, seed=0)
        fill_buffer(buffer, _Task, 0, net, use_herding=True)
        assert buffer.labels[: len(buffer)].tolist() == [0] * size
    buffer = Buffer(6, raw=True, seed=0)
    for t in range(3):
        fill_buffer(buffer, _Task, t, required_attributes=['examples', 'labels', 'task_labels'])
    assert buffer.task_labels.tolist() == [0, 0, 1, 1, 2, 2]  # domains have the same classes
    net.forward = lambda x, returnt: x.flatten(1) * float('nan')
    with refused('finite features', '--lr'):
        fill_buffer(Buffer(4, raw=True, seed=0), _Task, 0, net, use_herding=True)
