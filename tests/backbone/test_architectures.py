"""The promises of every architecture: its size, its shapes, Mammoth's contract, a place for
residual adapters.
"""

import copy

import pytest
import torch
from torch import nn

from backbone import (
    MammothBackbone,
    get_backbone_class,
    get_backbone_names,
    num_flat_features,
    xavier,
)
from scroll.adaptation.adapters import ParallelAdapter, attach
from scroll.embedding.embedder import fold_batch_norm
from tests.backbone.conftest import OPTIONS, build, pictures, small
from tests.conftest import refused


@pytest.fixture(params=['resnet18-md', 'resnet12', 'resnet50-byol', 'resnet34'])
def net(request):
    return small(request.param)


@pytest.fixture(params=['resnet18-md', 'resnet12', 'resnet50-byol', 'resnet18'])
def convolutional(request):
    return small(request.param)


def count(parameters) -> int:
    return sum(p.numel() for p in parameters)


def test_this_table_has_every_name():
    """The others need timm (`test_libraries.py`), or take features
    (`test_seq_features.py`).
    """
    assert set(get_backbone_names()) == {*OPTIONS, 'timm', 'linear', 'mlp'}


@pytest.mark.parametrize(
    'name, parameters, features, adapters, adapter_parameters',
    [
        ('resnet18-md', 11_171_904, 512, 16, 1_220_608),
        ('resnet12', 12_424_320, 640, 12, 1_349_824),
        (
            'resnet50-byol',
            23_508_032,
            2048,
            16,
            sum(n * c * c for n, c in zip((3, 4, 6, 3), (64, 128, 256, 512))),
        ),
        ('resnet18', 11_168_832, 512, 16, 1_220_608),
        ('reduced-resnet18', 1_109_240 - 16_100, 160, 16, 119_200),
    ],
)
def test_published_sizes(name, parameters, features, adapters, adapter_parameters):
    with torch.device('meta'):  # shapes without values
        net = build(name, num_classes=64)
        assert count(net.parameters()) - count(net.classifier.parameters()) == parameters
        assert net.feature_dim == net.classifier.in_features == features
        alphas = attach(net)
    assert len(alphas) == adapters
    assert count(alphas) == adapter_parameters


@pytest.mark.parametrize(
    'name, size, sides',
    [
        ('resnet18-md', 84, [41, 41, 21, 11, 6]),
        ('resnet12', 84, [84, 42, 21, 10, 5]),
        ('resnet12', 16, [16, 8, 4, 2, 1]),
        ('resnet50-byol', 224, [56, 56, 28, 14, 7]),
        ('resnet50-byol', 33, [9, 9, 5, 3, 2]),
        ('efficientnet-lite', 96, [48, 48, 24, 12, 6, 6, 3, 3, 3]),
        ('resnet18', 32, [32, 32, 16, 8, 4]),
        ('resnet34', 32, [32, 32, 16, 8, 4]),
    ],
)
def test_map_sizes(name, size, sides):
    with torch.device('meta'):
        maps = build(name).maps(torch.zeros(2, 3, size, size))
    assert [m.shape[2] for m in maps] == [m.shape[3] for m in maps] == sides


@torch.no_grad()
def test_what_forward_returns_and_that_the_head_can_be_replaced(net):
    x = pictures()
    logits = net(x)
    features = net.features(x)
    assert logits.shape == (3, net.num_classes) == (3, 5)
    assert features.shape == (3, net.feature_dim)
    assert torch.equal(net.classifier(features), logits)
    assert torch.equal(net(x, returnt='out'), logits)
    assert torch.equal(net(x, returnt='features'), features)
    assert all(map(torch.equal, net(x, returnt='both'), (logits, features)))
    for word in ('full', 'all'):
        first, second = net(x, returnt=word)
        assert torch.equal(first, logits)
        torch.testing.assert_close(second[-1].mean(dim=(2, 3)), features)
    with pytest.raises(ValueError, match="'nothing'"):
        net(x, returnt='nothing')
    assert type(net.classifier) is nn.Linear
    net.classifier = nn.Linear(net.feature_dim, 7)
    assert net(x).shape == (3, 7)


def test_parameters_and_gradients_as_one_vector_and_back(net):
    flat = net.get_params()
    x = pictures()
    assert len(flat) == count(net.parameters())
    assert not net.get_grads().any()
    other = copy.deepcopy(net)
    other.set_params(-flat)
    assert torch.equal(other.get_params(), -flat)
    assert torch.equal(net.get_params(), flat)
    net(x).square().sum().backward()
    grads = net.get_grads()
    # every parameter has one
    assert torch.equal(grads, torch.cat([p.grad.flatten() for p in net.parameters()]))
    net.set_grads(2 * grads)
    assert torch.equal(net.get_grads(), 2 * grads)
    for method in (net.set_params, net.set_grads):
        with pytest.raises(RuntimeError, match='sum'):
            method(torch.zeros(len(flat) + 1))


def with_random_adapters(net):
    for i, alpha in enumerate(attach(net)):
        noise = torch.randn(
            alpha.shape, generator=torch.Generator().manual_seed(i), dtype=alpha.dtype
        )
        alpha.data = 0.05 * noise / alpha.shape[1] ** 0.5
    return net


def test_each_3x3_convolution_of_a_block_gets_an_adapter_that_trains_and_zero_ones_change_no_bit(
    convolutional,
):
    net = convolutional
    x = pictures()
    wanted = [
        n
        for n, m in net.named_modules()
        if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3) and '.' in n
    ]
    trained = with_random_adapters(copy.deepcopy(net))
    (trained.features(x) * torch.arange(1.0, 1 + net.feature_dim)).sum().backward()
    alphas = [p for p in trained.parameters() if p.requires_grad]
    assert len(alphas) == len(wanted)
    assert all(p.grad.abs().max() > 0 for p in alphas)
    with torch.no_grad():
        expected = net.features(x)
        attach(net, 0)
        assert torch.equal(net.features(x), expected)
    assert [n for n, m in net.named_modules() if isinstance(m, ParallelAdapter)] == wanted


@torch.no_grad()
def test_folded_batch_norms_leave_features_and_adapters_as_they_are(convolutional):
    net = convolutional.double()
    x = pictures(dtype=torch.float64)
    folded = copy.deepcopy(net)
    fold_batch_norm(folded, x[:1])
    left = [n for n, m in folded.named_modules() if isinstance(m, nn.BatchNorm2d)]
    # 'SAME' padding cuts between convolution and norm
    shifted = ['bn1', *(f'layer{i}.0.bn2' for i in (2, 3, 4))]
    assert left == (shifted if type(net).__name__ == 'ResNet50Byol' else [])
    expected = net.features(x)
    torch.testing.assert_close(folded.features(x), expected, rtol=1e-10, atol=1e-12)
    adapted = with_random_adapters(net).features(x)
    assert (adapted - expected).abs().max() > 1e-3
    torch.testing.assert_close(
        with_random_adapters(folded).features(x), adapted, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize(
    'name, options',
    [
        ('resnet12', {'width': 3}),
        ('resnet50-byol', {'width': 0}),
        ('resnet18', {'num_filters': 0}),
        ('resnet18-md', {'stem_padding': 3}),
    ],
)
def test_options_out_of_range_are_named(name, options):
    ((option, value),) = options.items()
    with refused(f'--backbone {name}', f'{option}={value}'):
        build(name, **options)


def test_names_devices_and_helpers():
    net = small('resnet18-md')
    layer = nn.Linear(30, 20)
    assert net.device == torch.device('cpu')
    assert net.to('meta').device == torch.device('meta')
    assert get_backbone_class('ResNet18_MD') is get_backbone_class('resnet18-md')
    with refused('--backbone resnet81', 'did you mean resnet18'):
        get_backbone_class('resnet81')
    nn.Sequential(layer, nn.ReLU()).apply(xavier)
    assert not layer.bias.any()
    assert layer.weight.abs().max() <= (6 / 50) ** 0.5
    assert num_flat_features(torch.zeros(5, 3, 2, 2)) == 12
    with pytest.raises(NotImplementedError, match='MammothBackbone has no feature maps'):
        MammothBackbone()(pictures())
