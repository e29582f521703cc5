"""ResNets for small images against torchvision's, their stem replaced; what files written for Mammoth import."""
import inspect

import pytest
import torch
from torch import nn
from torchvision import models

from backbone import get_backbone_class
from backbone.ResNetBlock import BasicBlock, ResNet, reduced_resnet18, resnet18, resnet34
from tests.backbone.conftest import pictures, settle, small


@pytest.mark.parametrize('build, theirs', [(resnet18, models.resnet18), (resnet34, models.resnet34)])
@torch.no_grad()
def test_features_are_those_of_torchvision_with_a_3x3_stem(build, theirs):
    reference = theirs(num_classes=4)
    reference.conv1, reference.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    settle(reference)
    net = build(4)
    net.load_state_dict({name.replace('fc.', 'classifier.'): t for name, t in reference.state_dict().items()})
    x = pictures(2, 16)
    torch.testing.assert_close(net.eval()(x), reference(x), rtol=1e-4, atol=1e-4 * float(reference(x).abs().max()))


def test_the_names_that_foreign_files_import():
    assert resnet18 is get_backbone_class('resnet18-cifar') and reduced_resnet18 is get_backbone_class('reduced_resnet18')
    assert resnet34 is get_backbone_class('resnet34')
    net = ResNet(BasicBlock, [1, 1, 1], 6, 2)
    assert net.feature_dim == 8 and net(pictures()).shape == (3, 6) and isinstance(resnet18(2, num_filters=1), ResNet)


def test_num_filters_is_a_flag_and_sets_the_width():
    for name, default in (('resnet18-cifar', 64), ('reduced-resnet18', 20), ('resnet34', 64), ('resnet32', 16)):
        assert inspect.signature(get_backbone_class(name)).parameters['num_filters'].default == default
    assert small('resnet18-cifar', num_filters=5).feature_dim == 40 and small('resnet32', num_filters=5).feature_dim == 20


def test_a_run_from_the_command_line(command_line):
    code, out, err = command_line('--model', 'sgd', '--dataset', 'seq-digits', '--weights', 'none', '--backbone', 'reduced_resnet18',
                                  '--num_filters', '2', '--lr', '0.1', '--n_epochs', '1', '--disable_log', '1', '--non_verbose', '1')
    assert code == 0, err
