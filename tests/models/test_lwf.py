"""LwF: distillation at a temperature, the warm-up of new rows of the head, and recorded logits that
stay with their images.
"""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.models.conftest import classes, cross_entropy, next_task, softmax


def test_the_warm_up_is_over_the_new_classes_and_moves_their_rows_of_the_head_alone(start):
    """A step by hand; old classes, whose logits lie far above the new ones', take no part in the
    softmax.
    """
    model, dataset, _ = start('lwf', '--lr 0.003 --bn frozen')
    next_task(model, dataset)
    with torch.no_grad():
        model.net.classifier.bias[dataset.task_classes(0)] += 20
    before = copy.deepcopy(model.net).eval()
    inputs, labels, *_ = next(iter(dataset.train_loader))
    model.warm_up(SimpleNamespace(train_loader=[(inputs, labels)]))
    new = classes(dataset, 1)
    features, logits = (
        before(inputs, returnt=what).detach().double().numpy() for what in ('features', 'out')
    )
    error = softmax(logits[:, new]) - (labels.numpy()[:, None] == new)
    moved = (model.net.classifier.weight - before.classifier.weight).detach().numpy()
    assert np.allclose(moved[new], -0.003 * error.T @ features / len(labels), atol=1e-6)
    assert not np.delete(moved, new, axis=0).any()
    for name, value in model.net.state_dict().items():
        assert name.startswith('classifier') or torch.equal(value, before.state_dict()[name])


def test_the_loss_by_hand_with_logits_recorded_for_each_image(start):
    """Cross-entropy over the classes seen + alpha * distillation over the old ones; unseen classes
    get no gradient. The logits are those of the un-augmented images, when the task began."""
    model, dataset, _ = start('lwf', '--alpha 3 --softmax_temp 4 --lr 0')
    coming = next_task(model, dataset)
    teacher = copy.deepcopy(model.net).eval()
    assert sum(len(batch[1]) for batch in coming) == 24
    for inputs, _, images, recorded in coming:
        assert torch.allclose(teacher(model.normalization_transform(images)), recorded, atol=1e-5)
        assert not torch.allclose(teacher(inputs), recorded, atol=1e-3)  # these are augmented
    model.net.eval()
    inputs, labels, images, recorded = coming[0]
    old = classes(dataset, 0)
    seen = classes(dataset, 0, 1)
    unseen = classes(dataset, 2)
    out = model.net(inputs).detach()
    p_old = softmax(recorded[:, old] / 4)
    p = softmax(out[:, old] / 4)
    expected = cross_entropy(out, labels, seen) - 3 * (p_old * np.log(p)).sum(axis=1).mean()
    assert model.meta_observe(inputs, labels, images, logits=recorded).item() == pytest.approx(
        expected, rel=1e-4
    )
    assert not model.net.classifier.weight.grad[unseen].any()
    assert model.net.classifier.weight.grad[seen].any(dim=1).all()
