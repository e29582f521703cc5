"""Adapters of every kind: which network gets which, that they start as nothing, that they fold
away.
"""

import copy

import pytest
import torch
from torch import nn

from scroll.adaptation.adapters import ParallelAdapter, attach, fold, kind_for
from scroll.embedding.embedder import fold_batch_norm
from tests.scroll.conftest import refused, tiny_net
from tests.scroll.test_exact import Attention


def drawn(*shape, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X = drawn(5, 3, 16, 16)


def test_gradients_of_single_pixels_are_numbers_whatever_lies_behind_them():
    net = ParallelAdapter(nn.Conv2d(8, 16, 3, 2, 1), 1.0)
    for _ in range(60):
        x = drawn(9, 8, 1, 1).bfloat16()
        rubbish = [torch.full((2**n,), torch.nan) for n in range(2, 13)]
        del rubbish  # memory that is used again
        with torch.autocast('cpu', torch.bfloat16):
            net(x).sum().backward()
        assert net.alpha.grad.isfinite().all()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.ReLU())

    def features(self, x):
        return self.body(x)


class Standardised(nn.Conv2d):
    """A convolution that does something else with its weight."""

    def forward(self, x):
        return nn.functional.conv2d(
            x, self.weight - self.weight.mean(), self.bias, self.stride, self.padding
        )


class OfItsOwn(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(Standardised(4, 4, 3, padding=1))


@pytest.mark.parametrize('make', [Mlp, OfItsOwn])
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
        self.conv = conv
        self.alpha = nn.Parameter(alpha)

    def forward(self, x):
        return self.conv(x) + nn.functional.conv2d(x, self.alpha, stride=self.conv.stride)


def test_output_and_gradients_are_those_of_two_branches_before_the_batch_norm():
    x = X.double()
    ours = tiny_net().double()
    textbook = tiny_net().double().requires_grad_(False)
    fold_batch_norm(ours, x[:1])  # adapters then carry the norm's gain
    parameters = attach(ours)
    branches = []
    names = [n for n, m in ours.named_modules() if isinstance(m, ParallelAdapter)]
    for p, name in zip(parameters, names):
        p.data = 0.05 * drawn(*p.shape, seed=len(branches)).double()
        parent, _, leaf = name.rpartition('.')
        branches.append(_TwoBranches(textbook.get_submodule(name), p.detach().clone()))
        setattr(textbook.get_submodule(parent), leaf, branches[-1])
    outputs = [net.features(x) for net in (ours, textbook)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-12)
    for out in outputs:
        (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    for p, branch in zip(parameters, branches):
        torch.testing.assert_close(p.grad, branch.alpha.grad, rtol=1e-8, atol=1e-10)


class Inverted(nn.Module):
    """A depthwise network: pointwise convolutions 8 -> 16 -> 12, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
            nn.Conv2d(16, 16, 3, 2, 1, groups=16, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
            nn.Conv2d(16, 12, 1, bias=False),
            nn.BatchNorm2d(12),
        )
        self.last = nn.Sequential(nn.Linear(12, 20))
        self.classifier = nn.Linear(20, 3)

    def features(self, x):
        return self.last(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.Sequential(Attention(8), nn.LayerNorm(8), Attention(8))

    def features(self, x):
        return self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(dim=1)


def of_timm(name: str):
    pytest.importorskip('timm')
    from scroll.embedding.libraries import timm_network

    return timm_network(name, random=0)[0]


# the layers' widths by hand: low rank has r (in + out) parameters, r = in out / 9 (in + out) or, of
# LoRA, 8
OTHERS = {
    'blocks': (tiny_net, 'parallel', None),
    'depthwise': (Inverted, 'low-rank', [24, 28, 32]),
    'transformer': (Transformer, 'lora', [8 * (8 + 24), 8 * 16] * 2),
    'timm ViT': (lambda: of_timm('test_vit'), 'lora', [8 * 256, 8 * 128, 8 * 256, 8 * 256] * 6),
    'timm ConvNeXt': (lambda: of_timm('test_convnext'), 'low-rank', None),
}


@pytest.fixture(params=OTHERS)
def other(request):
    """(network in eval mode, kind of adapters, parameters of each adapter or None)."""
    make, kind, counts = OTHERS[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval(), kind, counts


def test_every_kind_starts_as_nothing_learns_and_folds_away(other):
    pristine, kind, counts = other
    size = getattr(pristine, 'input_size', 16)
    x = drawn(3, 3, size, size).to(memory_format=torch.channels_last)
    net = copy.deepcopy(pristine).to(memory_format=torch.channels_last)
    with torch.no_grad():
        before = net.features(x)
        parameters = attach(net, 0.0)
        assert kind_for(pristine)[0] == kind
        assert torch.equal(net.features(x), before)
        for p in parameters:
            p.add_(0.1 * drawn(*p.shape, seed=1))
    after = net.features(x)
    after.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters)
    trained = [p for p in net.parameters() if p.requires_grad]
    assert {id(p) for p in trained} == {id(p) for p in parameters}
    if counts is not None:
        assert [a.numel() + b.numel() for a, b in zip(parameters[::2], parameters[1::2])] == counts
    assert not torch.equal(after, before)
    folded = fold(copy.deepcopy(net))
    torch.testing.assert_close(folded.features(x).detach(), after.detach(), rtol=1e-4, atol=1e-6)
    assert [(n, type(m)) for n, m in folded.named_modules()] == [
        (n, type(m)) for n, m in pristine.named_modules()
    ]
    assert folded.state_dict().keys() == pristine.state_dict().keys()


def test_low_rank_adapters_carry_the_gain_of_a_folded_norm():
    """Act as if they stood before the norm."""
    plain = Inverted().eval()
    for norm in (m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_var.uniform_(0.3, 3)
    ours = copy.deepcopy(plain)
    fold_batch_norm(ours, X)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in ours.modules())
    for net in (plain, ours):
        for p in attach(net):
            p.data += 0.3 * drawn(*p.shape, seed=p.numel())
    torch.testing.assert_close(ours.features(X), plain.features(X), rtol=1e-4, atol=1e-5)
