"""The network's size, shapes, and Mammoth's contract of a backbone."""
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from backbone import get_backbone, get_backbone_class, get_backbone_names, num_flat_features, xavier
from backbone.resnet18 import ResNet18
from tests.conftest import refused
from tests.scroll.conftest import tiny_net


def inputs(count=3, size=16):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_the_published_network_has_11_171_904_parameters_and_512_features():
    net = ResNet18(100, width=64)
    assert sum(p.numel() for name, p in net.named_parameters() if not name.startswith('classifier.')) == 11_171_904
    assert net.feature_dim == net.classifier.in_features == 512 and net.classifier.out_features == 100


@pytest.mark.parametrize('padding, sizes', [(1, [41, 41, 21, 11, 6]), (2, [42, 42, 21, 11, 6])])
def test_map_sizes_at_84_pixels(padding, sizes):
    maps = tiny_net(stem_padding=padding).maps(torch.zeros(1, 3, 84, 84))
    assert [tuple(m.shape) for m in maps] == [(1, c, s, s) for c, s in zip((4, 4, 8, 16, 32), sizes)]


def test_the_same_weights_fit_both_stem_paddings():
    narrow, wide = tiny_net(stem_padding=1), tiny_net(seed=1, stem_padding=2)
    wide.load_state_dict(narrow.state_dict())
    assert not torch.equal(narrow.features(inputs()), wide.features(inputs()))


@torch.no_grad()
def test_what_forward_returns():
    net, x = tiny_net(), inputs()
    features = net.features(x)
    assert features.shape == (3, 32)
    torch.testing.assert_close(features, net.maps(x)[-1].mean(dim=(2, 3)))
    assert torch.equal(net(x), net.classifier(features)) and torch.equal(net(x, 'out'), net(x))
    assert torch.equal(net(x, returnt='features'), features)
    assert [torch.equal(a, b) for a, b in zip(net(x, 'both'), (net(x), features), strict=True)] == [True, True]
    for word in ('full', 'all'):
        logits, maps = net(x, word)
        assert torch.equal(logits, net(x)) and len(maps) == 5
        assert all(torch.equal(a, b) for a, b in zip(maps, net.maps(x)))
    with pytest.raises(ValueError, match="'logits'.*'both'"):
        net(x, 'logits')


def test_the_head_can_be_replaced():
    net = tiny_net()
    net.classifier = nn.Linear(net.feature_dim, 7)
    assert net(inputs()).shape == (3, 7)


def test_parameters_as_one_vector_and_back():
    net, other = tiny_net(), tiny_net(seed=1)
    flat = net.get_params()
    assert flat.shape == (sum(p.numel() for p in net.parameters()),)
    other.set_params(flat)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters()))
    other.set_params(torch.arange(len(flat)).float())
    assert torch.equal(torch.cat([p.flatten() for p in other.parameters()]), torch.arange(len(flat)).float())
    assert all(p.requires_grad for p in other.parameters())
    assert torch.equal(net.get_params(), flat)                  # the other network shares no memory with it


@pytest.mark.parametrize('method', ['set_params', 'set_grads'])
@pytest.mark.parametrize('change', [-1, 1])
def test_a_vector_of_another_length_is_refused(method, change):
    net = tiny_net()
    with pytest.raises((ValueError, RuntimeError)):
        getattr(net, method)(torch.zeros(len(net.get_params()) + change))


def test_gradients_as_one_vector_and_back():
    net = tiny_net()
    assert not net.get_grads().any()                            # none yet: zeros
    net(inputs()).sum().backward()
    grads = net.get_grads()
    assert grads.any() and len(grads) == len(net.get_params())
    other = tiny_net()
    other.set_grads(2 * grads)
    assert all(torch.equal(2 * a.grad, b.grad) for a, b in zip(net.parameters(), other.parameters()))


def test_the_device_attribute_follows_the_network():
    net = tiny_net()
    assert net.device == torch.device('cpu') and net.to('meta').device == torch.device('meta')


def test_a_fresh_network_from_arguments():
    """GDumb asks for one in the middle of a run."""
    args = SimpleNamespace(backbone='resnet18-md', num_classes=9, width=4, stem_padding=2, lr=1)
    first, second = get_backbone(args), get_backbone(args)
    assert first.classifier.out_features == 9 and first.width == 4 and first.conv1.padding == (2, 2)
    assert not torch.equal(first.get_params(), second.get_params())
    assert 'resnet18-md' in get_backbone_names() and get_backbone_class('ResNet18_MD') is ResNet18
    with refused('--backbone resnet81', 'did you mean resnet18'):
        get_backbone_class('resnet81')


@pytest.mark.parametrize('options', [dict(width=0), dict(stem_padding=3)])
def test_options_out_of_range_are_named(options):
    with pytest.raises(Exception, match=f'{next(iter(options))}={next(iter(options.values()))}'):
        ResNet18(3, **options)


def test_helpers():
    layer = nn.Linear(30, 20)
    nn.Sequential(layer, nn.ReLU()).apply(xavier)
    assert not layer.bias.any() and layer.weight.abs().max() <= (6 / 50) ** 0.5
    assert num_flat_features(torch.zeros(5, 3, 2, 2)) == 12
