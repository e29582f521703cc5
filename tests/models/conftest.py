"""Shared by tests of several methods: a data set that takes no time, runs on it, and arithmetic to
compare with.
"""

import functools

import numpy as np
import pytest
import torch

import models
from bench.cli.parsing import base_parser
from bench.run.building import initialize
from bench.run.training import train, training_mode
from tests.conftest import words_of

# whether past samples matter at each of the first batches
BEGINNINGS = pytest.mark.parametrize(
    'flags, begun',
    [
        ('--task_free 0', [False, False, True, True]),
        ('--task_free 0 --schedule gaussian:batch=12', [False, True]),
    ],
)


@functools.cache
def known_flags(method) -> set:
    parser = base_parser()
    models.get_model_class(method).get_parser(parser)
    return set(parser.format_help().replace(',', ' ').split())


@pytest.fixture
def start(parse, small_digits):
    """start(method, *flags): (model, dataset, args), ready to train in three tasks of 4, 3 and 3
    renamed classes in any order. Methods with a buffer keep 40 of the 80 samples; one pass over
    each task, in batches of 12."""

    def build(method, *flags):
        flags = words_of(*flags)
        usual = {'permute_classes': 1, 'batch_size': 12}
        if '--n_splits' not in flags:
            usual['schedule'] = 'split:3,order=random'
        if '--buffer_size' in known_flags(method):
            usual['buffer_size'] = 40
        if not models.get_model_class(method).ONLINE:
            usual['n_epochs'] = 1
        return initialize(parse(method, *flags, **usual))

    return build


@pytest.fixture
def trained(start):
    """trained(method, *flags): (model, dataset) after a run."""

    def run(method, *flags):
        model, dataset, args = start(method, *flags)
        train(model, dataset, args)
        return model, dataset

    return run


def batches(model, dataset, count=9, bn='train') -> list:
    """(inputs, labels, images, ...) of the next task, which has begun."""
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, bn)
    return list(loader)[:count]


def next_task(model, dataset, tasks=1, learn=True) -> list:
    """Batches of the next task but `tasks`; those before it are over, and learned if `learn`."""
    for _ in range(tasks):
        for batch in batches(model, dataset)[: 9 if learn else 0]:
            model.meta_observe(*batch[:3])
        model.meta_end_task(dataset)
    return batches(model, dataset)


def still(model):
    """Nothing random any more: replay is not augmented, batch norms are as in evaluation. Returns
    the model.
    """
    model.transform = model.normalization_transform
    model.net.eval()
    return model


def step_of(model, batch) -> tuple:
    """(loss, -step / rate (P,)) of a method at a batch."""
    before = model.net.get_params().detach().clone()
    loss = model.meta_observe(*batch[:3]).item()
    return loss, (before - model.net.get_params().detach()) / model.args.lr


def close(step, expected) -> bool:
    """Return whether two vectors are equal up to the rounding of float32 parameters."""
    return torch.allclose(step, expected, atol=1e-3 * float(expected.abs().max()))


def same_state(one, other) -> bool:
    """Return whether two networks have the same parameters and statistics, to the last bit."""
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def check_step(model, batch, loss, direction):
    """A step at a batch returns this loss and follows this gradient; returns the step."""
    returned, step = step_of(model, batch)
    assert returned == pytest.approx(loss.item(), rel=1e-5)
    assert close(step, direction)
    return step


def stored(model, tasks=None) -> tuple:
    """(inputs, labels) of what the buffer holds, un-augmented; only of these tasks."""
    images, labels, *of_task = model.buffer.get_all_data()
    if tasks is not None:
        rows = torch.isin(of_task[0], torch.tensor(tasks))
        images = images[rows]
        labels = labels[rows]
    return model.plain(images), labels


def opposed(model, batch) -> tuple:
    """The batch's first class alone, of which the buffer then holds the same images under another
    label, as of task 0. The head hesitates between these two: the gradients on batch and memory
    disagree."""
    same = batch[1] == batch[1][0]
    inputs, labels, images = (part[same] for part in batch[:3])
    wrong = (labels + 1) % 10
    model.net.classifier.bias.data[[int(labels[0]), int(wrong[0])]] += 5
    model.buffer.empty()
    model.buffer.add_data(examples=images, labels=wrong, task_labels=torch.zeros_like(labels))
    return inputs, labels, images


def classes(dataset, *tasks) -> np.ndarray:
    """The classes of these tasks, ascending."""
    return np.sort(np.concatenate([dataset.task_classes(t) for t in tasks]))


def gradient(loss, net) -> torch.Tensor:
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, net.parameters())])


def softmax(z) -> np.ndarray:
    z = np.asarray(z.detach() if isinstance(z, torch.Tensor) else z, np.float64)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def cross_entropy(z, y, among=None) -> float:
    """Mean over samples, of a softmax over the classes `among` (ascending; default: all)."""
    y = y.numpy() if isinstance(y, torch.Tensor) else y
    among = np.arange(z.shape[1]) if among is None else np.asarray(among)
    p = softmax(z[:, among])
    return float(-np.log(p[np.arange(len(p)), np.searchsorted(among, y)]).mean())


def seeded(seed=0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
