"""Backbone files as users of Mammoth write them, put where `--backbone` finds them: unchanged, they
run.
"""

import pytest
import torch

from backbone import get_backbone
from bench.run.building import initialize
from bench.run.training import train
from tests.conftest import refused

STYLED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

from backbone import MammothBackbone, ReturnTypes, num_flat_features, register_backbone, xavier
from backbone.resnet_cifar import BasicBlock, ResNet


class WeeNet(MammothBackbone):
    def __init__(self, num_classes: int, nf: int, flat: bool) -> None:
        super().__init__()
        self.nf, self.flat = nf, flat
        self.conv = nn.Conv2d(3, nf, 3, padding=1)
        self.bn = nn.BatchNorm2d(nf)
        self.classifier = nn.Linear(nf, num_classes)
        self.classifier.apply(xavier)

    def forward(self, x: torch.Tensor, returnt: ReturnTypes = 'out') -> torch.Tensor:
        maps = F.relu(self.bn(self.conv(x)))
        feats = F.adaptive_avg_pool2d(maps, 1)
        feats = feats.view(-1, num_flat_features(feats))
        if returnt == 'features':
            return feats
        out = self.classifier(feats)
        return {'out': out, 'both': (out, feats), 'full': (out, [maps])}[returnt]


@register_backbone('wee_net')
def wee_net(num_classes: int, num_filters: int = 8, flat: bool = False) -> WeeNet:
    return WeeNet(num_classes, num_filters, flat)


@register_backbone('wee-resnet')
def wee_resnet(num_classes: int) -> ResNet:
    return ResNet(BasicBlock, [1, 1], num_classes, 3)


class ViewNet(ResNet):
    def features(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return x.view(len(x), 8, -1).mean(-1) + 0 * self.layer1(x).view(len(x), -1).sum()


@register_backbone('view-net')
def view_net(num_classes: int) -> ViewNet:
    return ViewNet(BasicBlock, [1], num_classes, 8)
"""

LEGACY = """
from typing import Literal

import torch
from torch import nn

from backbone import register_backbone


class Plain(nn.Module):
    def __init__(self, n, act):
        super().__init__()
        last = nn.ReLU() if act == 'relu' else nn.Tanh()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), last)
        self.classifier = nn.Linear(9, n)

    def forward(self, x, returnt='out'):
        feats = self.body(x)
        return feats if returnt == 'features' else self.classifier(feats)


@register_backbone('plain')
def plain(num_classes, act: Literal['relu', 'tanh'] = 'relu'):
    return Plain(num_classes, act)
"""

RUNS = {
    'view-net': [],
    'wee-net': ['--num_filters 4 --flat 1'],
    'wee-resnet': [],
    'plain': ['--act tanh'],
}


@pytest.fixture
def arguments(parse, third_party):
    """arguments(backbone, *flags, model=): of a short run on the digits with a backbone of the
    files above.
    """
    third_party(backbone={'foreign_styled': STYLED, 'foreign_legacy': LEGACY})

    def build(name, *flags, model='sgd'):
        steps = [] if model == 'scroll' else ['--lr 0.05 --n_epochs 1 --batch_size 200']
        return parse(model, '--weights none --backbone', name, '--device cpu', *steps, *flags)

    return build


@pytest.mark.parametrize('name', RUNS)
def test_a_run_with_a_foreign_backbone(arguments, name):
    args = arguments(name, *RUNS[name], '--buffer_size 30 --alpha 0.1 --beta 0.5', model='derpp')
    model, dataset, args = initialize(args)
    before = torch.cat([p.flatten() for p in model.net.parameters()]).clone()
    row = train(model, dataset, args)
    assert 0 <= row['task5'] <= 100
    assert not torch.equal(before, torch.cat([p.flatten() for p in model.net.parameters()]))
    args.num_classes = 10  # a fresh network in the middle of a run
    first = get_backbone(args)
    second = get_backbone(args)
    assert type(first) is type(second)
    assert not torch.equal(first.classifier.weight, second.classifier.weight)


@torch.no_grad()
def test_parameters_of_the_signature_are_flags_and_a_forward_of_its_own_gives_features(arguments):
    args = arguments('wee_net', '--num_filters 4 --flat 1')
    assert args.backbone == 'wee-net'
    assert args.num_filters == 4
    assert args.flat is True
    args.num_classes = 6
    net = get_backbone(args).eval()
    x = torch.randn(2, 3, 8, 8)
    assert net.nf == 4
    assert net.flat is True
    assert net.classifier.out_features == 6
    assert torch.equal(net.features(x), net(x, returnt='features'))
    net.set_params(torch.zeros_like(net.get_params()))
    assert not net(x).any()
    with refused('--act', 'relu', 'tanh'):
        arguments('plain', '--act gelu')
    with refused('--num_filters'):
        arguments('plain', '--num_filters 4')


@pytest.mark.parametrize('name', ['wee-net', 'view-net'])
def test_scroll_runs_on_a_backbone_with_a_forward_of_its_own(arguments, name):
    row = train(*initialize(arguments(name, '--buffer_size 0', model='scroll')))
    assert row['task5'] > 20  # chance is 10
