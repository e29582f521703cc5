"""torchvision's ResNets as backbones: the same numbers, the same tensors."""
import pytest
import torch
from torchvision import models

from backbone.torchvision_resnets import TorchvisionResNet
from tests.backbone.conftest import build, pictures, settle


@torch.no_grad()
def test_logits_and_maps_are_torchvisions():
    theirs, x = settle(models.resnet18(num_classes=6)), pictures(2, 64)
    expected = theirs(x)
    shapes = []
    for layer in (theirs.maxpool, theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4):
        layer.register_forward_hook(lambda module, inputs, out: shapes.append(out.clone()))
    theirs(x)
    net = TorchvisionResNet(theirs).eval()
    assert net.num_classes == 6
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert all(torch.equal(a, b) for a, b in zip(net.maps(x), shapes[:5], strict=True))


@pytest.mark.parametrize('name', ['resnet18', 'resnet50'])
def test_the_state_is_torchvisions_but_for_the_name_of_the_head(name):
    with torch.device('meta'):
        ours, theirs = build(f'{name}-tv', num_classes=5).state_dict(), getattr(models, name)(num_classes=5).state_dict()
    assert {k.replace('classifier.', 'fc.'): t.shape for k, t in ours.items()} == {k: t.shape for k, t in theirs.items()}
