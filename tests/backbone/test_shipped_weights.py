"""The weights in the repository: small enough for it, whole, and free of the classes that the streams have."""
import pytest
import torch

from backbone import get_backbone_class, weights
from bench.pretraining.recipes import SHARED
from tests.conftest import ROOT

NAMES = 'compact', 'wide', 'small'


@pytest.mark.parametrize('name', NAMES)
def test_classes_of_streams_are_left_out_and_said(name):
    assert (ROOT / 'backbone' / 'weights' / f'{name}.safetensors').stat().st_size < 30e6
    info = weights.load(name, tensors=False).info
    assert len(info['classes']) == 52 and info['left_out'] == SHARED['cifar100']
    assert not set(info['classes']) & set(info['left_out']) and set(SHARED['cifar10']) <= set(info['classes'])


@pytest.mark.parametrize('name, width', list(zip(NAMES, (32, 64, 16))))
def test_every_tensor_has_its_place_and_features_are_finite(name, width):
    about = weights.load(name)
    net = get_backbone_class(about.backbone)(num_classes=1, **about.options)
    about.load_into(net)
    net.eval()
    size = about.input_size
    with torch.no_grad():
        features = net(torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0)), returnt='features')
    assert features.shape == (4, 8 * width) and features.isfinite().all() and features.std(dim=0).mean() > 0.01


def test_the_wide_one_is_no_mere_copy_of_the_compact_one():
    """It began with every channel of the compact one twice; training had to tell the copies apart."""
    first = weights.load('wide').tensors['layer1.0.conv1.weight'].float()
    rows = first.flatten(1)
    distances = torch.cdist(rows, rows) + 1e9 * torch.eye(len(rows))
    assert distances.min() > 0.01 * rows.norm(dim=1).mean()
