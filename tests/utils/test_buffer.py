"""Replay buffer: what is kept, with which probability, and what comes out."""
import io

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from utils.buffer import Buffer


def numbered(count: int, start: int = 0) -> torch.Tensor:
    """uint8 images (count, 2, 2, 3): the number of each sample in two bytes."""
    numbers = torch.arange(start, start + count)
    images = torch.zeros(count, 2, 2, 3, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = numbers % 256, numbers // 256
    return images


def number_of(images) -> list:
    return (images[:, 0, 0, 0].long() + 256 * images[:, 0, 0, 1].long()).tolist()


def filled(size: int, count: int, batch: int, seed: int = 0, strategy: str = 'reservoir', classes: int = 5) -> Buffer:
    buffer = Buffer(size, sample_selection_strategy=strategy, raw=True, seed=seed)
    for start in range(0, count, batch):
        images = numbered(min(batch, count - start), start)
        buffer.add_data(images, labels=torch.arange(start, start + len(images)) % classes)
    return buffer


@pytest.mark.parametrize('batch', [1, 7, 32, 200])
def test_every_sample_is_kept_with_the_same_probability_whatever_the_batches(batch):
    """|M| / N for each, also within a batch; a reservoir that draws a whole batch from the count before it fails this."""
    kept = np.zeros(200)
    for seed in range(300):
        kept[number_of(filled(20, 200, batch, seed).examples[:20])] += 1
    assert kept.sum() == 300 * 20
    blocks = kept.reshape(20, 10).sum(axis=1)               # early and late samples, first and last of a batch
    assert chisquare(blocks).pvalue > 1e-4


def test_the_first_are_kept_in_order_and_never_more_than_there_is_room_for():
    buffer = Buffer(10, raw=True, seed=0)
    assert buffer.is_empty() and not buffer.is_full() and len(buffer) == 0
    buffer.add_data(numbered(6), labels=torch.arange(6))
    assert number_of(buffer.examples[:len(buffer)]) == list(range(6)) and len(buffer) == 6
    buffer.add_data(numbered(50, 6), labels=torch.arange(6, 56))
    assert len(buffer) == 10 and buffer.is_full() and buffer.num_seen_examples == 56 and len(buffer.examples) == 10
    assert number_of(buffer.examples) == buffer.labels.tolist()                 # rows stay together
    buffer.empty()
    assert buffer.is_empty() and buffer.used_attributes == [] and buffer.num_seen_examples == 0


def test_a_buffer_without_room_keeps_nothing():
    buffer = filled(0, 40, 8)
    assert buffer.is_empty() and buffer.num_seen_examples == 40


def test_kinds_of_numbers():
    buffer = Buffer(4, seed=0)
    buffer.add_data(torch.rand(3, 3, 2, 2).double(), labels=torch.tensor([1, 2, 3], dtype=torch.int32), logits=torch.rand(3, 5).half(),
                    task_labels=torch.zeros(3), true_labels=torch.ones(3))
    kinds = {name: getattr(buffer, name).dtype for name in buffer.used_attributes}
    assert kinds == dict(examples=torch.float32, labels=torch.int64, logits=torch.float32, task_labels=torch.int64,
                         true_labels=torch.int64)
    assert filled(4, 4, 4).examples.dtype == torch.uint8 and not hasattr(filled(4, 4, 4), 'logits')


def test_draws_do_not_repeat_and_are_uniform():
    buffer = filled(20, 20, 20)
    times = np.zeros(20)
    for _ in range(400):
        images, labels = buffer.get_data(5)
        drawn = number_of(images)
        assert len(set(drawn)) == 5 and [n % 5 for n in drawn] == labels.tolist()
        times[drawn] += 1
    assert chisquare(times).pvalue > 1e-4
    assert len(buffer.get_data(100)[0]) == 20                                   # fewer where fewer are there


def test_draws_leave_the_global_generators_alone_and_depend_on_the_seed():
    state = np.random.get_state()[1].copy()
    first, again, other = ([filled(9, 30, 4, seed).get_data(4)[1].tolist() for _ in range(3)] for seed in (1, 1, 2))
    assert first == again != other and np.array_equal(state, np.random.get_state()[1])


def test_what_comes_out():
    buffer = Buffer(6, raw=True, seed=0)
    buffer.add_data(numbered(6), labels=torch.arange(6), task_labels=torch.tensor([0, 0, 1, 1, 2, 2]))
    rows, images, labels, tasks = buffer.get_data(4, return_index=True)
    assert labels.tolist() == rows.tolist() == number_of(images) and (tasks == labels // 2).all()
    assert set(buffer.get_data(6, mask_task_out=1)[1].tolist()) == {0, 1, 4, 5}
    assert buffer.get_data(6, force_indexes=[5, 0])[1].tolist() == [5, 0]
    plain, changed, *_ = buffer.get_data(3, transform=lambda x: x.float() + 1, return_not_aug=True)
    assert torch.equal(changed, plain.float() + 1)
    assert buffer.get_all_data()[1].tolist() == list(range(6)) and buffer.get_data_by_index([3])[1].tolist() == [3]
    del buffer.task_labels
    assert set(buffer.get_data(6, mask_task_out=1, cpt=3)[1].tolist()) == {0, 1, 2}


def test_a_balanced_draw_has_as_many_of_each_class():
    buffer = Buffer(30, raw=True, seed=0)
    buffer.add_data(numbered(30), labels=torch.tensor([0] * 20 + [1] * 8 + [2] * 2))
    assert np.bincount(buffer.get_balanced_data(12)[1]).tolist() == [5, 5, 2]
    assert len(np.unique(buffer.get_balanced_data(10, n_classes=2)[1])) == 2


def test_a_loader_over_the_buffer():
    batches = list(filled(10, 10, 10).get_dataloader(batch_size=4, transform=lambda image: image.float()))
    assert [len(labels) for _, labels in batches] == [4, 4, 2] and batches[0][0].dtype == torch.float32


@pytest.mark.parametrize('strategy', ['reservoir', 'greedy', 'balancoir', 'lars'])
def test_a_buffer_goes_on_where_it_was_saved(strategy):
    buffer, file = filled(8, 50, 9, strategy=strategy), io.BytesIO()        # greedy: a row for each of five classes
    state = buffer.state_dict()
    torch.save({k: v for k, v in state.items() if isinstance(v, (torch.Tensor, int))}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)['labels'], buffer.labels[:len(buffer)])
    again = Buffer(8, sample_selection_strategy=strategy, raw=True, seed=99)
    again.load_state_dict(state)
    for b in (buffer, again):
        b.add_data(numbered(40, 50), labels=torch.arange(40) % 7)
    assert torch.equal(buffer.examples[:len(buffer)], again.examples[:len(again)]) and torch.equal(buffer.get_data(5)[1], again.get_data(5)[1])
    other = Buffer(8, raw=True, seed=1).load(filled(8, 50, 9).serialize())
    assert len(other) == 8 and other.num_seen_examples == 50


def test_more_room_is_used_and_less_hides_the_last():
    buffer = filled(5, 5, 5)
    buffer.buffer_size = 8
    buffer.add_data(numbered(3, 5), labels=torch.arange(3))
    assert len(buffer) == 8 and number_of(buffer.examples[:8]) == list(range(8))
    buffer.buffer_size = 3
    assert len(buffer) == 3 and len(buffer.get_data(9)[0]) == 3


def test_unlimited():
    buffer = filled(-1, 100, 7, strategy='unlimited')
    assert len(buffer) == 100 and number_of(buffer.examples[:100]) == list(range(100))
