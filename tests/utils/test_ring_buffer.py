"""The ring buffer against a list of queues, one for each task."""
from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import quick, refused
from utils.ring_buffer import RingBuffer


def fill(buffer, values):
    values = torch.as_tensor(values)
    buffer.add_data(examples=values.float().view(-1, 1), labels=values)


@quick
@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=3))
def test_each_task_keeps_its_newest_samples(size, tasks):
    n_tasks = min(3, size)
    buffer, queues, number = RingBuffer(size, 'cpu', n_tasks=n_tasks, seed=0), [], 0
    for t, counts in enumerate(tasks[:n_tasks]):
        buffer.task_number = t
        queues.append(deque(maxlen=size // n_tasks))
        for count in counts:
            values = list(range(number, number + count))
            number += count
            queues[-1].extend(values)
            if values:
                fill(buffer, values)
    kept = sorted(v for queue in queues for v in queue)
    assert len(buffer) == len(kept) and buffer.num_seen_examples == number
    if kept:
        assert sorted(buffer.labels[:len(buffer)].tolist()) == kept
        assert torch.equal(buffer.examples[:len(buffer), 0].long(), buffer.labels[:len(buffer)])
        assert sorted(buffer.get_data(size)[1].tolist()) == kept                   # draws come from all tasks


def test_counting_tasks_up_naming_the_same_one_again_and_emptying():
    buffer = RingBuffer(4, n_tasks=2, seed=0)
    assert buffer.task_number == 0
    fill(buffer, [1, 2, 3])
    buffer.task_number = 0                                  # still the first: 4 takes the place of 2
    fill(buffer, [4])
    assert buffer.labels[:2].tolist() == [3, 4]
    buffer.task_number += 1
    fill(buffer, [5, 6, 7])
    assert buffer.labels.tolist() == [3, 4, 7, 6] and buffer.task_number == 1
    again = RingBuffer(4, n_tasks=2, seed=0)
    again.load_state_dict(buffer.state_dict())
    for each in (buffer, again):
        fill(each, [8])
    assert buffer.labels.tolist() == again.labels.tolist() == [3, 4, 7, 8]
    buffer.empty()
    fill(buffer, [9])
    assert len(buffer) == 1 and buffer.labels[0] == 9


@pytest.mark.parametrize('size, n_tasks', [(3, 4), (0, 1), (5, 0)])
def test_a_share_without_a_row_is_refused(size, n_tasks):
    with refused(f'--buffer_size {size}', f'{n_tasks} tasks'):
        RingBuffer(size, n_tasks=n_tasks)


@pytest.mark.parametrize('task', [2, -1])
def test_a_task_beyond_its_number_is_refused(task):
    buffer = RingBuffer(4, n_tasks=2)
    with refused(f'task_number {task}', '2 tasks'):
        buffer.task_number = task
