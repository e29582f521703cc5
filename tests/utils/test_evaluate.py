"""Evaluation: logits known in advance, nothing else touched."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from bench.run.building import initialize
from utils.evaluate import evaluate


class Logits(nn.Module):
    """The inputs are the logits."""

    RAW_STREAM = False
    COMPATIBILITY = ['class-il']
    args = SimpleNamespace(non_verbose=True, debug_mode=False)

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.device = torch.device('cpu')
        self.was_training = []

    def forward(self, x):
        self.was_training.append(self.net.training)
        return x


class Batches(list):
    """A loader: batches of (logits, labels)."""

    @property
    def dataset(self):
        return range(sum(len(y) for _, y, *_ in self))


def stream(tasks, c_task, loaders):
    return SimpleNamespace(
        SETTING='class-il',
        c_task=c_task,
        N_CLASSES=4,
        test_loaders=loaders,
        task_classes=lambda t: np.array(tasks[t]),
        seen_classes=lambda: np.concatenate(tasks[: c_task + 1]),
    )


def batches(rows, labels, size=2):
    x = torch.tensor(rows, dtype=torch.float32)
    y = torch.tensor(labels)
    return Batches(zip(x.split(size), y.split(size)))


TASKS = [[0, 3], [1, 2]]  # as a permutation of classes makes them
FIRST = batches([[1, 9, 9, 0], [0, 5, 0, 4], [3, 9, 0, 2]], [0, 3, 3])
SECOND = batches([[9, 1, 0, 0], [0, 2, 1, 5], [0, 1, 2, 0], [0, 3, 1, 0]], [1, 1, 2, 2])


def test_unseen_classes_are_never_predicted():
    class_il, task_il = evaluate(Logits(), stream(TASKS, 0, [FIRST]))
    # among {0, 3}: 0 right, 3 right, 0 wrong
    assert class_il == task_il == [pytest.approx(100 * 2 / 3)]


def test_class_il_chooses_among_all_seen_and_task_il_among_the_classes_of_the_task():
    class_il, task_il = evaluate(Logits(), stream(TASKS, 1, [FIRST, SECOND]))
    assert class_il == [0, 25]  # first: 1, 1, 1; second: 0, 3, 2, 1
    assert task_il == [pytest.approx(100 * 2 / 3), 75]  # second, among {1, 2}: 1, 1, 2, 1


def test_which_tasks_and_classes_count():
    """The newest task alone; before the first all classes; among other classes."""
    assert evaluate(Logits(), stream(TASKS, 1, [FIRST, SECOND]), last=True) == ([25], [75])
    assert evaluate(Logits(), stream(TASKS, -1, []), loaders=[(1, SECOND)]) == ([25], [75])
    assert evaluate(Logits(), stream(TASKS, 0, []), loaders=[(1, SECOND)], seen=range(4)) == (
        [25],
        [75],
    )


@pytest.mark.parametrize('training, frozen', [(False, False), (True, True)])
def test_the_network_is_in_eval_mode_and_then_as_it_was(training, frozen):
    """Also a part that a method had frozen, the rest being in training mode."""
    model = Logits()
    model.net.train(training)
    model.net[1].train(training and not frozen)
    evaluate(model, stream(TASKS, 0, [FIRST]))
    assert model.was_training
    assert not any(model.was_training)
    assert model.net.training is training
    assert model.net[1].training is (training and not frozen)


@pytest.mark.parametrize('method', ['sgd', 'scroll'])
def test_no_global_random_stream_is_drawn_from(parse, method, tmp_path):
    """Otherwise how often one evaluates would change what is learned."""
    flags = ['--lr 0.1'] if method == 'sgd' else ['--adaptation none --feature_cache 0']
    args = parse(method, '--n_splits 5', *flags, base_path=tmp_path)
    model, dataset, args = initialize(args)
    loader, _ = dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    loader.raw = model.RAW_STREAM
    model.meta_observe(*next(iter(loader)), epoch=0)
    model.meta_end_task(dataset)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    first = evaluate(model, dataset)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())
    assert evaluate(model, dataset) == first  # evaluating changes nothing


def test_the_loss_is_the_mean_over_the_classes_seen_of_all_samples():
    model = Logits()
    logits = torch.tensor([[1.0, 9, 9, 0], [0, 5, 0, 4], [3, 9, 0, 2]])
    labels = torch.tensor([0, 1, 1])
    *accuracies, loss = evaluate(model, stream(TASKS, 0, [FIRST]), return_loss=True)
    assert accuracies == [[pytest.approx(200 / 3)]] * 2
    assert loss == pytest.approx(
        torch.nn.functional.cross_entropy(logits[:, [0, 3]], labels).item()
    )
    ruled_out = batches([[1.0, -torch.inf, 0, -torch.inf]], [3])
    assert 0 < evaluate(model, stream(TASKS, 0, [ruled_out]), return_loss=True)[2] < float('inf')


class TaskAware(Logits):
    """Notes the task that it is given."""

    COMPATIBILITY = ['task-il']

    def __init__(self):
        super().__init__()
        self.tasks = []

    def forward(self, x, task=None):
        self.tasks.append(task)
        return x


def test_a_method_for_task_il_alone_gets_the_task_and_has_no_class_il_accuracy():
    model = TaskAware()
    assert evaluate(model, stream(TASKS, 1, [FIRST, SECOND])) == (
        [0, 0],
        [pytest.approx(100 * 2 / 3), 75],
    )
    assert model.tasks == [0, 0, 1, 1]
    domains = stream([range(4)] * 2, 1, [FIRST, SECOND])
    domains.SETTING = 'domain-il'
    assert evaluate(model, domains)[0] == evaluate(Logits(), domains)[0] != [0, 0]
    other = TaskAware()
    other.COMPATIBILITY = ['class-il', 'task-il']
    assert evaluate(other, stream(TASKS, 1, [FIRST, SECOND]))[0] == [0, 25]
    assert set(other.tasks) == {None}
