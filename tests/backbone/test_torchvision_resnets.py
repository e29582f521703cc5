"""torchvision's ResNets as backbones: the same numbers, the same tensors, and where the weights come from."""
from urllib.error import URLError

import pytest
import torch
from torchvision import models

from backbone.torchvision_resnets import TorchvisionResNet
from tests.backbone.conftest import build, pictures, settle
from tests.conftest import refused

WEIGHTS = models.ResNet18_Weights.IMAGENET1K_V1


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


@torch.no_grad()
def test_pretrained_weights_come_from_torchvision_and_only_the_head_is_new(monkeypatch):
    source, asked = models.resnet18(), []

    def get_state_dict(self, **options):
        asked.append((self, options))
        return source.state_dict()

    monkeypatch.setattr(models.ResNet18_Weights, 'get_state_dict', get_state_dict)
    net = build('resnet18-7x7-pt', num_classes=7)
    assert net.classifier.out_features == 7 and asked == [(WEIGHTS, dict(progress=False, check_hash=True, weights_only=True))]
    for name, tensor in source.state_dict().items():
        assert name.startswith('fc.') or torch.equal(net.state_dict()[name], tensor), name


@pytest.mark.parametrize('kind, error', [(models.ResNet18_Weights, URLError('no route')), (models.ResNet50_Weights, RuntimeError('invalid hash'))])
def test_weights_that_cannot_be_fetched_are_one_line(monkeypatch, kind, error):
    def get_state_dict(self, **options):
        raise error

    monkeypatch.setattr(kind, 'get_state_dict', get_state_dict)
    name = 'resnet18-7x7-pt' if kind is models.ResNet18_Weights else 'resnet50-pt'
    with refused(f'--backbone {name}', 'IMAGENET1K_V1', 'https://', 'checkpoints', str(error)):
        build(name)
