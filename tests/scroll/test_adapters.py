"""Residual adapters: where they go, that they start as nothing, that they fold away."""
import copy

import pytest
import torch
from torch import nn

from backbone.resnet18 import ResNet18
from scroll.adaptation.adapters import ParallelAdapter, attach, fold
from scroll.embedding.embedder import fold_batch_norm
from tests.scroll.conftest import refused, tiny_net

X = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def adapted(scale: float) -> tuple:
    """A network with random adapters, and their parameters."""
    net = tiny_net()
    parameters = attach(net, scale)
    with torch.no_grad():
        for p in parameters:
            p.add_(scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    return net, parameters


def test_an_adapter_of_zero_changes_no_bit():
    net = tiny_net()
    expected = net.features(X)
    attach(net, 0)
    assert torch.equal(net.features(X), expected)


def test_resnet18_gets_16_adapters_of_the_published_size():
    parameters = attach(ResNet18(10))
    assert len(parameters) == 16 and sum(p.numel() for p in parameters) == 1_220_608


def test_neither_the_stem_nor_the_projections_are_adapted():
    net = tiny_net()
    attach(net)
    names = [name for name, module in net.named_modules() if isinstance(module, ParallelAdapter)]
    assert names == [f'layer{s}.{b}.conv{c}' for s in (1, 2, 3, 4) for b in (0, 1) for c in (1, 2)]
    assert type(net.conv1) is nn.Conv2d and type(net.layer2[0].downsample[0]) is nn.Conv2d


def test_an_adapter_starts_as_a_multiple_of_the_rectangular_identity():
    alpha = attach(tiny_net(), 0.5)[4]                                      # 4 -> 8 channels
    assert alpha.shape == (8, 4, 1, 1)
    assert torch.equal(alpha[:4, :, 0, 0], 0.5 * torch.eye(4)) and not alpha[4:].any()


@pytest.mark.parametrize('stride', [1, 2])
def test_an_adapter_adds_a_1x1_convolution_by_hand(stride):
    conv = nn.Conv2d(3, 4, 3, stride, 1)
    adapter = ParallelAdapter(conv, 2.0)
    expected = conv(X)
    expected[:, :3] += 2 * X[:, :, ::stride, ::stride]
    torch.testing.assert_close(adapter(X), expected)


def test_folded_equals_unfolded_and_has_the_shape_of_the_original():
    net, _ = adapted(0.2)
    expected, pristine = net.features(X).detach(), tiny_net()
    assert (expected - pristine.features(X)).abs().max() > 0.01             # the adapters do something
    assert fold(net) is net
    torch.testing.assert_close(net.features(X).detach(), expected, atol=1e-5, rtol=1e-5)
    assert [(n, type(m)) for n, m in net.named_modules()] == [(n, type(m)) for n, m in pristine.named_modules()]


def test_only_adapters_get_gradients():
    net, parameters = adapted(0.1)
    net.features(X).square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters)
    trained = {id(p) for p in parameters}
    assert all(p.grad is None and not p.requires_grad for p in net.parameters() if id(p) not in trained)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU())

    def features(self, x):
        return self.body(x)


class OnlyStem(nn.Module):
    def __init__(self, conv=nn.Conv2d(3, 8, 3, padding=1)):
        super().__init__()
        self.conv = conv


class Unfit(nn.Module):
    """Convolutions in a block that a 1x1 one cannot stand beside."""
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 5, padding=2), nn.Conv2d(4, 4, 3, padding=1, groups=2),
                                   nn.Conv2d(4, 4, 3, padding=1, dilation=2), nn.Conv2d(4, 4, 1))


@pytest.mark.parametrize('make', [Mlp, OnlyStem, Unfit])
def test_a_network_without_such_convolutions_is_refused_and_left_alone(make):
    net = make()
    before = copy.deepcopy(net)
    with refused(make.__name__):
        attach(net)
    assert [n for n, _ in net.named_modules()] == [n for n, _ in before.named_modules()]
    assert all(p.requires_grad for p in net.parameters())


class _TwoBranches(nn.Module):
    """The textbook form: two convolutions, their outputs added, then the batch norm."""

    def __init__(self, conv, alpha):
        super().__init__()
        self.conv, self.alpha = conv, nn.Parameter(alpha)

    def forward(self, x):
        return self.conv(x) + nn.functional.conv2d(x, self.alpha, stride=self.conv.stride)


def test_output_and_gradients_are_those_of_two_branches_before_the_batch_norm():
    x = X.double()
    ours, textbook = tiny_net().double(), tiny_net().double().requires_grad_(False)
    fold_batch_norm(ours, x[:1])                                            # adapters then carry the norm's gain
    parameters, branches = attach(ours), []
    for p, name in zip(parameters, [n for n, m in ours.named_modules() if isinstance(m, ParallelAdapter)]):
        p.data = 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(branches)), dtype=p.dtype)
        parent, _, leaf = name.rpartition('.')
        branches.append(_TwoBranches(textbook.get_submodule(name), p.detach().clone()))
        setattr(textbook.get_submodule(parent), leaf, branches[-1])
    outputs = [net.features(x) for net in (ours, textbook)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-12)
    for out in outputs:
        (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    for p, branch in zip(parameters, branches):
        torch.testing.assert_close(p.grad, branch.alpha.grad, rtol=1e-8, atol=1e-10)
