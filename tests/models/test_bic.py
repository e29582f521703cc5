"""BiC: the correction, its fit on held-out samples, the loss by hand, and which samples are held
out.
"""

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from models.bic import corrected, fit_bias
from models.utils.losses import frozen_copy, masked_cross_entropy
from tests.conftest import refused
from tests.models.conftest import classes, cross_entropy, next_task, seeded, softmax

NEWEST = torch.tensor([False, True, False, True, False])
SEEN = torch.tensor([True, True, True, True, False])


def best_bias(logits, labels) -> list:
    """The optimum by Nelder and Mead's method, without gradients; the problem is convex."""

    def loss(bias):
        outputs = corrected(logits.double(), NEWEST, torch.tensor(bias))
        return masked_cross_entropy(outputs, labels, SEEN).item()

    return minimize(loss, [1.0, 0.0], method='Nelder-Mead', tol=1e-6).x.tolist()


@pytest.mark.parametrize('alpha, beta', [(1.25, 0.3), (1, 12)])
def test_stage_two_undoes_a_planted_affine_map(alpha, beta):
    """Labels drawn from the softmax of logits, of which those of the newest
    classes then become alpha o + beta.

    250 passes of small steps would be far from the optimum; about ten passes of Newton's method are
    not."""
    random = seeded()
    logits = 2 * torch.randn(6000, 5, generator=random)
    labels = torch.multinomial(
        logits.masked_fill(~SEEN, -torch.inf).softmax(1), 1, generator=random
    )[:, 0]
    changed = torch.where(NEWEST, alpha * logits + beta, logits)
    fitted = fit_bias(changed, labels, NEWEST, SEEN, 250)
    assert fitted.tolist() == pytest.approx(best_bias(changed, labels), abs=0.01)
    assert fitted[0].item() == pytest.approx(1 / alpha, abs=0.08)
    assert fitted[1].item() == pytest.approx(-beta * fitted[0].item(), abs=0.15)
    assert torch.allclose(fit_bias(changed, labels, NEWEST, SEEN, 15), fitted, atol=1e-6)
    assert fit_bias(changed, labels, NEWEST, SEEN, 0).tolist() == [1, 0]
    poisoned = changed.masked_fill(~SEEN, 1e6)  # classes to come have no say
    assert torch.equal(fit_bias(poisoned, labels, NEWEST, SEEN, 250), fitted)


def as_set(images, labels) -> list:
    return sorted((int(y), np.asarray(image).tobytes()) for image, y in zip(images, labels))


@pytest.mark.parametrize('size, share, per_class', [(32, 0.4, 3), (5, 0.1, 1)])
def test_what_is_held_out(start, size, share, per_class):
    """Equally many of each class, old ones out of the exemplars; nothing is lost, nothing is
    trained on and held out.
    """
    model, dataset, _ = start('bic', '--buffer_size', size, '--valset_split', share)
    next_task(model, dataset, 0)
    model.meta_end_task(dataset)
    exemplars = as_set(*model.buffer.get_all_data())
    loader, _ = dataset.get_data_loaders()
    own = loader.dataset.data, loader.dataset.targets
    model.meta_begin_task(dataset)
    images, labels = model.held_out
    counts = {int(c): int((labels == c).sum()) for c in labels.unique()}
    assert counts == {int(c): per_class for c in classes(dataset, 0, 1)}
    held_out = as_set(images, labels)
    trained = as_set(loader.dataset.data, loader.dataset.targets)
    assert sorted(held_out + trained) == sorted(exemplars + as_set(*own))
    assert {row for row in held_out if row[0] in dataset.task_classes(0)} <= set(exemplars)
    model.meta_end_task(dataset)
    assert loader.dataset.data is own[0]
    assert loader.dataset.targets is own[1]  # exemplars come from all of the task


@pytest.mark.parametrize(
    'flags, tasks, weight',
    [
        ('', 2, 7 / 10),
        ('--distill_after_bic 0', 1, 4 / 7),
        ('--distill_weight mammoth --distill_scale 9', 2, 1 / 3),
    ],
)
def test_the_loss_by_hand(start, flags, tasks, weight):
    """Tasks of 4, 3 and 3 classes; the teacher speaks with its correction, of what was newest to
    it, or without.
    """
    model, dataset, _ = start('bic', '--lr 0 --temp 3 --wd_reg 0.01', flags)
    inputs, labels, images = next_task(model, dataset, tasks, learn=False)[0]
    model.net.eval()
    net, newest, _ = model.teacher
    assert newest.nonzero()[:, 0].tolist() == classes(dataset, tasks - 1).tolist()
    model.teacher = net, newest, torch.tensor([0.7, 0.2])
    with torch.no_grad():
        model.net.classifier.weight.mul_(-1)  # not its teacher any more
    old = classes(dataset, *range(tasks))
    seen = classes(dataset, *range(tasks + 1))
    z = model.net(inputs).detach().double()
    z_old = net(inputs).double()
    if not flags.endswith('bic 0'):
        z_old[:, newest] = z_old[:, newest] * 0.7 + 0.2
    soft = -(softmax(z_old[:, old] / 3) * np.log(softmax(z[:, old] / 3))).sum(1).mean()
    decay = 0.01 * sum((p**2).sum().item() for p in model.net.parameters())
    expected = (
        weight * (9 if 'scale' in flags else 1) * soft
        + (1 - weight) * cross_entropy(z, labels, seen)
        + decay
    )
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(expected, rel=1e-4)


def test_the_correction_is_fitted_on_held_out_images_un_augmented_and_lasts_until_the_next_task(
    start,
):
    """The newest classes alone are corrected at a task's end; the first task has nothing to
    correct.
    """
    model, dataset, _ = start('bic')
    next_task(model, dataset)
    x = torch.randn(4, 3, 16, 16, generator=seeded())
    net = copy.deepcopy(model.net).eval()
    model.net.eval()
    assert torch.equal(model(x), net(x))  # the first task's
    images, labels = model.held_out
    newest = torch.zeros(10, dtype=torch.bool)
    newest[dataset.task_classes(1)] = True
    logits = frozen_copy(model.net)(model.normalization_transform(torch.as_tensor(images)))
    expected = fit_bias(logits, torch.as_tensor(labels), newest, model.seen, 250)
    model.meta_end_task(dataset)
    assert torch.allclose(model.bias.double(), expected, atol=1e-3)
    assert model.bias.tolist() != [1, 0]
    out = model(x)
    raw = net(x)
    assert torch.equal(out[:, ~newest], raw[:, ~newest])
    assert torch.equal(out[:, newest], model.bias[0] * raw[:, newest] + model.bias[1])
    dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    assert torch.equal(model(x), raw)


def test_a_share_that_leaves_nothing_is_refused(start):
    with refused('--valset_split 1.5', 'below 1'):
        start('bic', '--valset_split 1.5')
