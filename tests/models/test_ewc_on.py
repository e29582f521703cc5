"""EWC: the Fisher information of a model small enough to do by hand, and the penalty's gradient."""
import copy
import math

import pytest
import torch
from torch import nn

from bench.run.building import initialize
from bench.run.training import train
from models.ewc_on import EwcOn, fisher


class OneWeight(nn.Module):
    """Logistic regression with one weight: logits (0, w x)."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(float(w)))

    def forward(self, x):
        return torch.stack([torch.zeros_like(x), self.w * x], dim=1)


@pytest.fixture
def start(parse, monkeypatch):
    """start(method, *flags): the model in its first task, of which every eighth image is left."""
    def build(method='ewc-on', *flags):
        model, dataset, args = initialize(parse(method, *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=32))
        whole = dataset.get_data_loaders

        def few():
            loaders = whole()
            data = loaders[0].dataset
            data.data, data.targets = data.data[::8], data.targets[::8]
            return loaders
        monkeypatch.setattr(dataset, 'get_data_loaders', few)
        return model, dataset, args
    return build


def test_logistic_regression_by_hand():
    """sum of p (x (1 - p))^2, p the likelihood of the label."""
    w, samples = 0.7, [(1.5, 1), (-2.0, 1), (0.3, 0), (4.0, 0)]
    expected = 0.0
    for x, y in samples:
        p = 1 / (1 + math.exp(-w * x if y else w * x))
        expected += p * (x * (1 - p)) ** 2
    inputs, labels = (torch.tensor(column) for column in zip(*samples))
    assert fisher(OneWeight(w), inputs, labels).tolist() == [pytest.approx(expected, rel=1e-5)]


def test_it_squares_the_gradient_of_each_sample_not_their_sum():
    """Two samples whose gradients cancel."""
    inputs, labels = torch.tensor([1.0, -1.0]), torch.tensor([1, 1])
    assert fisher(OneWeight(0), inputs, labels).tolist() == [pytest.approx(2 * 0.5 * 0.25)]


def test_at_the_end_of_a_task_it_is_the_mean_over_samples(start, monkeypatch):
    """Whatever the batches (the last is short), with nothing of the network changed; later tasks add to what gamma leaves."""
    model, dataset, _ = start('ewc-on', '--gamma', '0.5')
    train_set, totals = None, []
    for task in range(2):
        loader, _ = dataset.get_data_loaders()
        train_set = loader.dataset
        train_set.transform = model.normalization_transform                     # nothing random
        assert len(train_set) % 32
        model.meta_begin_task(dataset)
        before, modes = copy.deepcopy(model.net.state_dict()), [m.training for m in model.net.modules()]
        twin = copy.deepcopy(model.net).eval()
        model.meta_end_task(dataset)
        assert all(torch.equal(a, b) for a, b in zip(before.values(), model.net.state_dict().values()))
        assert modes == [m.training for m in model.net.modules()]
        total = 0
        for x, y, _ in (train_set[i] for i in range(len(train_set))):
            log_p = twin(x[None]).log_softmax(1)[0, y]
            gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(log_p, twin.parameters())])
            total = total + log_p.detach().exp() * gradient ** 2
        totals.append(total / len(train_set))
        expected = totals[0] if task == 0 else 0.5 * totals[0] + totals[1]
        assert torch.allclose(model.fisher, expected, rtol=1e-3, atol=1e-5 * float(expected.max()))
        assert torch.equal(model.anchor, model.net.get_params())


def one_step(start, method, *flags, fisher=None, away=None):
    """Parameters after a step; with this Fisher information, and an anchor that lies `away` from where the step begins."""
    model, dataset, _ = start(method, *flags)
    loader, _ = dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    if fisher is not None:
        model.fisher, model.anchor = fisher, model.net.get_params().detach() - away
    batch = next(iter(loader))
    model.meta_observe(*batch)
    return model.net.get_params().detach(), model


def test_no_penalty_is_sgd(start):
    """Before the second task, with e_lambda = 0, and at theta* itself; bit by bit."""
    plain, model = one_step(start, 'sgd')
    random = torch.rand(2, len(plain), generator=torch.Generator().manual_seed(0))
    assert torch.equal(one_step(start, 'ewc-on')[0], plain)
    assert torch.equal(one_step(start, 'ewc-on', '--e_lambda', '0', fisher=random[0], away=random[1])[0], plain)
    assert torch.equal(one_step(start, 'ewc-on', fisher=random[0], away=torch.zeros(len(plain)))[0], plain)


def test_the_penalty_pulls_back_with_twice_e_lambda(start):
    plain, model = one_step(start, 'sgd')
    F, away = torch.rand(2, len(plain), generator=torch.Generator().manual_seed(0))
    pulled, _ = one_step(start, 'ewc-on', '--e_lambda', '3', fisher=F, away=away)
    assert torch.allclose((plain - pulled) / model.args.lr, 2 * 3 * F * away, atol=1e-4)


def test_a_run(start):
    model, dataset, args = start('ewc-on')
    assert isinstance(model, EwcOn)
    train(model, dataset, args)
    assert model.fisher.shape == model.anchor.shape == model.net.get_params().shape
    assert (model.fisher >= 0).all() and model.fisher.sum() > 0
