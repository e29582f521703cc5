"""timm's networks as backbones: tiny, at random; and what is said where timm is missing or weights cannot be had."""
import sys

import pytest
import torch
from torch import nn

from tests.backbone.conftest import build, pictures
from tests.conftest import refused

TINY = {'vit': dict(vit_name='test_vit', img_size=32, pretrained=False),
        'efficientnet': dict(efficientnet_name='test_efficientnet', pretrained=False)}


@pytest.fixture(params=TINY)
def net(request):
    pytest.importorskip('timm')
    return build(request.param, **TINY[request.param]).eval()


@torch.no_grad()
def test_what_forward_returns(net):
    x = pictures()
    logits, features = net(x, returnt='both')
    assert logits.shape == (3, 5) and features.shape == (3, net.feature_dim)
    assert torch.equal(net.classifier(features), logits) and torch.equal(net(x), logits)
    same, maps = net(x, returnt='full')
    torch.testing.assert_close(same, logits)
    assert len(maps) > 2 and all(m.dim() == 4 and len(m) == 3 for m in maps)
    net.classifier = nn.Linear(net.feature_dim, 7)
    assert net(x).shape == (3, 7) and len(net.get_params()) == sum(p.numel() for p in net.parameters())


def test_images_of_another_size_are_one_line():
    pytest.importorskip('timm')
    with refused('32 pixels', 'have 48', '--input_size 32'):
        build('vit', vit_name='test_vit3', img_size=32, pretrained=False)(pictures(1, 48))


def test_names_and_weights_that_cannot_be_had_are_one_line(monkeypatch):
    pytest.importorskip('timm')
    with refused('--backbone vit', 'no_such_vit'):
        build('vit', vit_name='no_such_vit', img_size=32, pretrained=False)

    def no_network(*_, **__):
        raise OSError('cannot reach\nthe hub')
    monkeypatch.setattr('huggingface_hub.HfApi.model_info', no_network)
    with refused('--backbone vit', 'cannot reach the hub', '--pretrained 0'):
        build('vit')


def test_without_timm_the_flags_are_there_and_the_run_ends_in_one_line(monkeypatch, command_line):
    monkeypatch.setitem(sys.modules, 'timm', None)
    words = ['--model', 'sgd', '--dataset', 'seq-digits', '--weights', 'none', '--backbone', 'vit', '--lr', '0.1', '--disable_log', '1']
    code, out, err = command_line(*words)
    assert code == 2 and 'pip install timm' in err and len(err.splitlines()) == 1


@pytest.mark.parametrize('model', [['sgd'], ['der', '--buffer_size', '20', '--alpha', '0.5']], ids=lambda words: words[0])
def test_a_run_from_the_command_line(command_line, model):
    pytest.importorskip('timm')
    code, out, err = command_line('--model', *model, '--dataset', 'seq-digits', '--weights', 'none', '--backbone', 'vit', '--vit_name',
                                  'test_vit', '--img_size', '32', '--input_size', '32', '--pretrained', '0', '--lr', '0.01', '--n_epochs',
                                  '1', '--n_splits', '1', '--disable_log', '1', '--non_verbose', '1', '--debug_mode', '1')
    assert code == 0, err
