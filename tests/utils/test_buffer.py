"""Replay buffer: what is kept, with which probability, and what comes out."""
import copy
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tests.conftest import refused
from utils.buffer import Buffer, fill_buffer

STRATEGIES = ['reservoir', 'greedy', 'balancoir', 'lars', 'labrs']


def numbered(count: int, start: int = 0) -> torch.Tensor:
    """uint8 images (count, 2, 2, 3): the number of each sample in two bytes."""
    numbers = torch.arange(start, start + count)
    images = torch.zeros(count, 2, 2, 3, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = numbers % 256, numbers // 256
    return images


def number_of(images) -> list:
    return (images[:, 0, 0, 0].long() + 256 * images[:, 0, 0, 1].long()).tolist()


def filled(size: int, count: int, batch: int, seed: int = 0, strategy: str = 'reservoir',
           classes: int = 5) -> Buffer:
    buffer = Buffer(size, sample_selection_strategy=strategy, raw=True, seed=seed)
    for start in range(0, count, batch):
        images = numbered(min(batch, count - start), start)
        buffer.add_data(images, labels=torch.arange(start, start + len(images)) % classes)
    return buffer


@pytest.mark.parametrize('batch', [1, 7, 32, 200])
def test_every_sample_is_kept_with_the_same_probability_whatever_the_batches(batch):
    """|M| / N for each, also within a batch; a reservoir that draws a whole batch
    from the count before it fails this."""
    kept = np.zeros(100)
    for seed in range(200):
        kept[number_of(filled(20, 100, batch, seed).examples[:20])] += 1
    assert kept.sum() == 200 * 20
    blocks = kept.reshape(20, 5).sum(axis=1)               # early and late samples, first and last of a batch
    assert chisquare(blocks).pvalue > 1e-4


def test_the_first_are_kept_in_order_and_never_more_than_its_size():
    buffer = Buffer(10, raw=True, seed=0)
    assert buffer.is_empty() and not buffer.is_full() and len(buffer) == 0
    buffer.add_data(numbered(6), labels=torch.arange(6))
    assert number_of(buffer.examples[:len(buffer)]) == list(range(6)) and len(buffer) == 6
    buffer.add_data(numbered(50, 6), labels=torch.arange(6, 56))
    assert len(buffer) == 10 and buffer.is_full() and buffer.num_seen_examples == 56
    assert len(buffer.examples) == 10
    assert number_of(buffer.examples) == buffer.labels.tolist()                 # rows stay together
    buffer.empty()
    assert buffer.is_empty() and buffer.used_attributes == [] and buffer.num_seen_examples == 0


def test_sizes_of_zero_and_without_end():
    buffer = filled(0, 40, 8)
    assert buffer.is_empty() and buffer.num_seen_examples == 40
    buffer = filled(-1, 100, 7, strategy='unlimited')
    assert len(buffer) == 100 and number_of(buffer.examples[:100]) == list(range(100))


def test_kinds_of_numbers():
    buffer = Buffer(4, seed=0)
    buffer.add_data(torch.rand(3, 3, 2, 2).double(), labels=torch.tensor([1, 2, 3], dtype=torch.int32),
                    logits=torch.rand(3, 5).half(), task_labels=torch.zeros(3), true_labels=torch.ones(3))
    kinds = {name: getattr(buffer, name).dtype for name in buffer.used_attributes}
    assert kinds == dict(examples=torch.float32, labels=torch.int64, logits=torch.float32,
                         task_labels=torch.int64, true_labels=torch.int64)
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
    first, again, other = ([filled(9, 30, 4, seed).get_data(4)[1].tolist() for _ in range(3)]
                           for seed in (1, 1, 2))
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
    assert buffer.get_all_data()[1].tolist() == list(range(6))
    assert buffer.get_data_by_index([3])[1].tolist() == [3]
    del buffer.task_labels
    assert set(buffer.get_data(6, mask_task_out=1, cpt=3)[1].tolist()) == {0, 1, 2}
    assert set(buffer.get_data(6, mask_task_out=1, cpt=[1, 3, 2])[1].tolist()) == {0, 4, 5}
    with refused('which task', 'empty buffer'):
        buffer.get_data(6, mask_task_out=1)


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
    buffer, file = filled(8, 50, 9, strategy=strategy), io.BytesIO()  # greedy: a row for each of five classes
    state = buffer.state_dict()
    torch.save({k: v for k, v in state.items() if isinstance(v, (torch.Tensor, int))}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)['labels'], buffer.labels[:len(buffer)])
    again = Buffer(8, sample_selection_strategy=strategy, raw=True, seed=99)
    again.load_state_dict(state)
    for b in (buffer, again):
        b.add_data(numbered(40, 50), labels=torch.arange(40) % 7)
    assert torch.equal(buffer.examples[:len(buffer)], again.examples[:len(again)])
    assert torch.equal(buffer.get_data(5)[1], again.get_data(5)[1])
    other = Buffer(8, raw=True, seed=1).load(filled(8, 50, 9).serialize())
    assert len(other) == 8 and other.num_seen_examples == 50


def test_a_larger_size_is_used_and_a_smaller_one_hides_the_last():
    buffer = filled(5, 5, 5)
    buffer.buffer_size = 8
    buffer.add_data(numbered(3, 5), labels=torch.arange(3))
    assert len(buffer) == 8 and number_of(buffer.examples[:8]) == list(range(8))
    buffer.buffer_size = 3
    assert len(buffer) == 3 and len(buffer.get_data(9)[0]) == 3


@pytest.mark.parametrize('change',
                         [lambda buffer: buffer.keep([3, 1]),
                          lambda buffer: setattr(buffer, 'buffer_size', 16)],
                         ids=['rows lost', 'larger'])
@pytest.mark.parametrize('strategy', STRATEGIES)
def test_free_rows_are_filled_one_after_the_other(strategy, change):
    """Long after the reservoir's counter has passed the size: no row may come to
    count that nothing was written to."""
    buffer = filled(10, 200, 9, strategy=strategy)
    change(buffer)
    for number in range(200, 230):
        buffer.add_data(numbered(1, number), labels=torch.tensor([number % 5]))
        kept = number_of(buffer.examples[:len(buffer)])
        assert len(set(kept)) == len(kept) and [n % 5 for n in kept] == buffer.labels[:len(buffer)].tolist()
    assert buffer.is_full() or strategy == 'greedy'                     # shares are rounded down


def test_losses_stay_with_their_samples_when_rows_are_lost():
    buffer = Buffer(6, sample_selection_strategy='lars', raw=True, seed=0)
    buffer.add_data(numbered(6), labels=torch.arange(6), sample_selection_scores=torch.arange(6.0))
    buffer.keep([5, 2, 3])
    buffer.add_data(numbered(2, 6), labels=torch.arange(2), sample_selection_scores=torch.tensor([6.0, 7.0]))
    assert buffer.sample_selection_fn.losses[:5].tolist() == number_of(buffer.examples[:5]) == [5, 2, 3, 6, 7]
    buffer.empty()
    assert np.isinf(buffer.sample_selection_fn.losses).all()


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_a_saved_state_does_not_change_with_the_buffer(strategy):
    buffer = filled(8, 50, 9, strategy=strategy)
    state = buffer.state_dict()
    before = copy.deepcopy(state)
    again = Buffer(8, sample_selection_strategy=strategy, raw=True, seed=1)
    again.load_state_dict(state)
    for b in (buffer, again):
        b.add_data(numbered(90, 50), labels=torch.arange(90) % 11, sample_selection_scores=torch.arange(90.0))
    assert str(state) == str(before)


def test_classes_that_were_loaded_have_their_share():
    whole = filled(10, 50, 10, strategy='greedy')
    buffer = Buffer(10, sample_selection_strategy='greedy', raw=True, seed=1).load(whole.serialize())
    buffer.add_data(numbered(50), labels=torch.zeros(50))
    assert np.bincount(buffer.labels[:len(buffer)]).tolist() == [2] * 5


@pytest.mark.parametrize('batch, words', [
    (dict(examples=numbered(2)), ('examples, labels',)),
    (dict(examples=numbered(2), labels=torch.arange(2), logits=torch.rand(2, 5)), ('labels, logits',)),
    (dict(examples=torch.rand(2, 2, 2, 3), labels=torch.arange(2)), ('uint8', 'float32'))])
def test_rows_are_never_half_written(batch, words):
    """A label of the sample before, logits of zero, or images in [0, 1] among bytes
    would be learned from without a word."""
    buffer = filled(10, 4, 4)
    with refused('empty buffer', *words):
        buffer.add_data(**batch)
    assert len(buffer) == 4 and buffer.num_seen_examples == 4


def test_columns_of_different_lengths_are_refused():
    kept = filled(4, 4, 4)
    with pytest.raises(ValueError, match='different lengths'):
        kept.add_data(numbered(3), labels=torch.arange(2))
    with refused('no buffer'):
        kept.load(dict(examples=numbered(3), labels=torch.arange(2)))
    assert len(kept) == 4


@pytest.mark.parametrize('size, strategy', [(-1, 'reservoir'), (-5, 'greedy'), (5, 'unlimited')])
def test_unlimited_goes_with_minus_one_and_nothing_else_does(size, strategy):
    with pytest.raises(ValueError, match='unlimited'):
        Buffer(size, sample_selection_strategy=strategy)


def test_nothing_to_draw():
    buffer, per_image = filled(6, 6, 6, classes=1), lambda image: torch.zeros(3, 5, 5)
    for empty in (buffer.get_data(0, transform=per_image),
                  buffer.get_data(4, transform=per_image, mask_task_out=0, cpt=2)):
        assert empty[0].shape == (0, 3, 5, 5) and empty[1].shape == (0,)
    with pytest.raises(ValueError, match='-1 samples'):
        buffer.get_data(-1)
    with pytest.raises(ValueError, match='empty'):
        Buffer(4).get_data(2)


class _Task:
    """What `fill_buffer` asks of a data set: six images of class 0, none of class 1."""
    raw, targets = staticmethod(lambda ids: numbered(6)[ids]), torch.zeros(6, dtype=torch.int64)
    task_classes, get_normalization_transform = staticmethod(lambda t: [0, 1]), staticmethod(lambda: None)


@pytest.mark.parametrize('size', [0, 4])
def test_a_task_may_lack_a_class(size):
    """`--label_perc_by_class 0.01` of ten samples leaves none."""
    net = torch.nn.Module()
    net.forward, net.device = lambda x, returnt: x.flatten(1).float(), 'cpu'
    _Task.train_loader, buffer = SimpleNamespace(dataset=_Task), Buffer(size, raw=True, seed=0)
    fill_buffer(buffer, _Task, 0, net, use_herding=True)
    assert buffer.labels[:len(buffer)].tolist() == [0] * size
    net.forward = lambda x, returnt: x.flatten(1) * float('nan')
    if size:
        with refused('finite features', '--lr'):
            fill_buffer(Buffer(size, raw=True, seed=0), _Task, 0, net, use_herding=True)
