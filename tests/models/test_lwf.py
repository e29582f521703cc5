"""LwF: distillation at a temperature, the warm-up of new rows of the head, and recorded logits that stay with their images."""
import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train, training_mode
from models.utils.losses import softened_cross_entropy
from tests.conftest import quick


def start(parse, *flags):
    return initialize(parse('lwf', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64))


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def in_second_task(parse, *flags):
    """(model, dataset, network when the second task began)."""
    model, dataset, args = start(parse, *flags)
    loader, _ = dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    for batch in list(loader)[:3]:
        model.meta_observe(*batch)
    model.meta_end_task(dataset)
    dataset.get_data_loaders()
    before = copy.deepcopy(model.net)
    model.meta_begin_task(dataset)
    return model, dataset, before


@quick
@given(seed=st.integers(0, 2 ** 20), temperature=st.floats(0.5, 8))
def test_softening_is_taking_roots_of_probabilities(seed, temperature):
    """The paper's p^(1/T), made to sum to one, is softmax(z / T); adding a constant to all logits changes nothing."""
    teacher, student = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(seed)) * 3
    roots = [softmax(z.double().numpy()) ** (1 / temperature) for z in (teacher, student)]
    p, q = (r / r.sum(axis=1, keepdims=True) for r in roots)
    expected = -(p * np.log(q)).sum(axis=1).mean()
    assert float(softened_cross_entropy(teacher, student, temperature)) == pytest.approx(expected, rel=1e-4)
    assert float(softened_cross_entropy(teacher + 7, student - 5, temperature)) == pytest.approx(expected, rel=1e-4)


def test_hopeless_logits_stay_finite():
    """The logarithm of a probability that is zero in float32."""
    out = softened_cross_entropy(torch.tensor([[0.0, 300]]), torch.tensor([[300.0, 0]]), 2.0)
    assert float(out) == pytest.approx(150)


def test_the_warm_up_moves_the_heads_new_rows_and_nothing_else(parse):
    model, dataset, before = in_second_task(parse, '--bn', 'frozen')
    new = np.isin(np.arange(10), dataset.task_classes(1))
    for name, value in model.net.state_dict().items():
        same = torch.eq(value, before.state_dict()[name]).numpy()
        if name.startswith('classifier'):
            assert same[~new].all() and not same[new].any(axis=tuple(range(1, same.ndim))).any()
        else:
            assert same.all()


def test_the_warm_up_is_over_the_new_classes(parse):
    """A step by hand; old classes, whose logits lie far above the new ones', take no part in the softmax."""
    model, dataset, _ = in_second_task(parse, '--lr', '0.003')
    with torch.no_grad():
        model.net.classifier.bias[dataset.task_classes(0)] += 20
    before = copy.deepcopy(model.net).eval()
    inputs, labels, *_ = next(iter(dataset.train_loader))
    model.warm_up(SimpleNamespace(train_loader=[(inputs, labels)]))
    new = np.sort(dataset.task_classes(1))
    features, logits = (before(inputs, returnt=what).detach().double().numpy() for what in ('features', 'out'))
    error = softmax(logits[:, new]) - (labels.numpy()[:, None] == new)
    moved = (model.net.classifier.weight - before.classifier.weight).detach().numpy()
    assert np.allclose(moved[new], -0.003 * error.T @ features / len(labels), atol=1e-6)
    assert not np.delete(moved, new, axis=0).any()


def test_the_warm_up_lowers_the_loss_and_leaves_modes_alone(parse):
    model, dataset, _ = start(parse, '--n_epochs', '30')
    dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    model.meta_end_task(dataset)
    dataset.get_data_loaders()
    training_mode(model.net, 'frozen')
    modes = [module.training for module in model.net.modules()]
    assert len(set(modes)) == 2
    before = copy.deepcopy(model.net).eval()
    model.meta_begin_task(dataset)
    assert [module.training for module in model.net.modules()] == modes
    train_set = dataset.train_loader.dataset
    x = model.normalization_transform(train_set.raw(slice(None)))
    new = torch.from_numpy(np.sort(dataset.task_classes(1)))
    losses = [F.cross_entropy(net(x)[:, new], torch.searchsorted(new, train_set.targets)).item()
              for net in (before, copy.deepcopy(model.net).eval())]
    assert losses[1] < 0.9 * losses[0]


def test_recorded_logits_come_with_their_images(parse):
    model, dataset, _ = in_second_task(parse)
    teacher = copy.deepcopy(model.net).eval()
    loader = dataset.train_loader.serve(False, True, 'cpu')
    rows = 0
    for inputs, _labels, images, logits in loader:
        assert torch.allclose(teacher(model.normalization_transform(images)), logits, atol=1e-5)
        assert not torch.allclose(teacher(inputs), logits, atol=1e-3)           # these are augmented
        rows += len(logits)
    assert rows == len(loader.dataset) and not any(p.grad is not None and p.grad.isnan().any() for p in model.net.parameters())


@pytest.mark.parametrize('alpha, temperature', [(0, 2), (0.5, 2), (3, 1)])
def test_the_loss_by_hand(parse, alpha, temperature):
    """Cross-entropy over the classes seen + alpha * distillation over the old ones; unseen classes get no gradient."""
    model, dataset, _ = in_second_task(parse, '--alpha', str(alpha), '--softmax_temp', str(temperature), '--lr', '0')
    model.net.eval()
    old, new = (np.sort(dataset.task_classes(t)) for t in (0, 1))
    seen = np.sort(np.concatenate([old, new]))
    inputs, labels, images, recorded = next(iter(dataset.train_loader))
    out = model.net(inputs).detach().double().numpy()
    p = softmax(out[:, seen])
    expected = -np.log(p[np.arange(len(p)), np.searchsorted(seen, labels.numpy())]).mean()
    z, z_old = out[:, old] / temperature, recorded.double().numpy()[:, old] / temperature
    expected += alpha * -(softmax(z_old) * np.log(softmax(z))).sum(axis=1).mean()
    assert model.meta_observe(inputs, labels, images, logits=recorded).item() == pytest.approx(expected, rel=1e-4)
    unseen = np.setdiff1d(np.arange(10), seen)
    assert not model.net.classifier.weight.grad[unseen].any() and model.net.classifier.weight.grad[seen].any(dim=1).all()


def test_a_run(parse):
    model, dataset, args = start(parse)
    result = train(model, dataset, args)
    assert model.seen.all() and model.old.sum() == 7 and set(model.old.nonzero()[:, 0].tolist()).isdisjoint(dataset.task_classes(2))
    assert 0 <= result['final_accuracy'] <= 100
