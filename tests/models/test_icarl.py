"""iCaRL: targets, herded exemplars, and the nearest mean of exemplars, on features that can be
checked by hand.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.models.conftest import classes, next_task


class Pixels(nn.Module):
    """Features: the input's pixels, shrunk to 4 x 4, times `scale`; logits: a linear map of
    them.
    """

    device = torch.device('cpu')

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.classifier = nn.Linear(48, 10)

    def forward(self, x, returnt='out'):
        features = self.scale * F.adaptive_avg_pool2d(x, 4).flatten(1)
        return features if returnt == 'features' else self.classifier(features)


@pytest.fixture
def after(start):
    """after(tasks, *flags): (model, dataset); exemplars of the first tasks are kept, nothing is
    trained.
    """

    def build(tasks, *flags, size='31'):
        model, dataset, _ = start('icarl', '--buffer_size', size, *flags)
        model.net = Pixels()
        for _ in range(tasks):
            dataset.get_data_loaders()
            model.meta_begin_task(dataset)
            model.meta_end_task(dataset)
        return model, dataset

    return build


def rows_by_class(model) -> dict:
    images, labels = model.buffer.get_all_data()
    return {int(c): images[labels == c].numpy() for c in labels.unique()}


@pytest.mark.parametrize('tasks', [0, 2])
def test_the_loss_is_a_mean_over_samples_and_the_classes_seen(after, tasks):
    """The old network's answers for old classes, one-hot for this task's; classes to come are not
    pushed down.
    """
    model, dataset = after(tasks, '--opt_wd 0.01')
    inputs, labels, plain = next_task(model, dataset, 0)[0][:3]
    model.opt = SimpleNamespace(zero_grad=model.net.zero_grad, step=lambda: None)
    with torch.no_grad():
        model.net.classifier.weight.mul_(-1)  # not its teacher any more
    old = [c for t in range(tasks) for c in dataset.task_classes(t)]
    seen = classes(dataset, *range(tasks + 1))
    p = model.net(inputs).sigmoid().detach().double().numpy()
    target = np.eye(10)[labels.numpy()]
    if old:
        target[:, old] = model.old_net(inputs).sigmoid().double().numpy()[:, old]
    entries = -(target * np.log(p) + (1 - target) * np.log(1 - p))
    expected = entries[:, seen].mean() + 0.01 * sum(
        (q**2).sum().item() for q in model.net.parameters()
    )
    assert model.meta_observe(inputs, labels, plain).item() == pytest.approx(expected, rel=1e-5)
    pushed = model.net.classifier.weight.grad - 0.02 * model.net.classifier.weight
    moved = (pushed.abs() > 1e-6).any(dim=1).numpy()
    assert moved[seen].all()
    assert not np.delete(moved, seen).any()


def test_exemplars_are_herded_on_unit_features(after):
    """Algorithm 4 of the paper, written out; features of the first class of the first task."""
    model, dataset = after(1)
    c = int(dataset.task_classes(0)[0])
    images = torch.from_numpy(dataset.images.train[dataset.train_labels == c])
    f = F.normalize(model.net(model.plain(images), returnt='features')).double().numpy()
    chosen = []
    for k in range(1, 8):
        distance = [
            np.inf
            if j in chosen
            else np.linalg.norm(f.mean(axis=0) - (f[chosen].sum(axis=0) + f[j]) / k)
            for j in range(len(f))
        ]
        chosen.append(int(np.argmin(distance)))
    assert np.array_equal(rows_by_class(model)[c][:7], images[chosen].numpy())


@pytest.mark.parametrize('mirrored', [False, True])
def test_the_prediction_is_the_nearest_mean_of_exemplars(after, mirrored):
    """Whatever the scale of features and the batch; classes not seen are out."""
    model, dataset = after(2)
    model.dataset = SimpleNamespace(FLIP=mirrored)

    def unit(images):
        f = model.net(images, returnt='features').detach().double().numpy()
        return f / np.linalg.norm(f, axis=1, keepdims=True)

    x = model.plain(torch.tensor(dataset.images.test[::3]))
    logits = model(x)
    for c, rows in rows_by_class(model).items():
        views = [model.plain(torch.from_numpy(rows))]
        views += [torch.flip(views[0], [3])] * mirrored
        mean = np.mean([unit(view) for view in views], axis=(0, 1))
        distance = np.linalg.norm(unit(x) - mean / np.linalg.norm(mean), axis=1)
        assert np.allclose(logits[:, c].detach(), -distance, atol=1e-5)
    assert (logits[:, dataset.task_classes(2)] == torch.finfo(torch.float32).min).all()
    assert not torch.isnan(logits.softmax(1)).any()
    assert torch.equal(torch.cat([model(row[None]) for row in x]), logits)
    model.net.scale = 1000.0
    model.class_means = None
    assert torch.allclose(model(x), logits, atol=1e-5)
