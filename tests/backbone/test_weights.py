"""Weights files: complete, self-describing, refused when damaged."""

import hashlib

import pytest
import torch

from backbone import weight_files, weights
from backbone.resnet18 import ResNet18
from tests.conftest import files_below, refused, save_tiny
from tests.scroll.conftest import tiny_net


@pytest.fixture
def path(tmp_path):
    weights.save(
        tmp_path / 'w.safetensors',
        tiny_net(),
        'resnet18-md',
        {'width': 4, 'stem_padding': 2},
        16,
        (0.1, 0.2, 0.3),
        (1, 2, 4),
        {'classes': ['n1', 'n2'], 'accuracy': 12.5},
    )
    return tmp_path / 'w.safetensors'


def test_a_file_says_all_about_itself(path):
    loaded = weights.load(path)
    assert loaded.backbone == 'resnet18-md'
    assert loaded.options == {'width': 4, 'stem_padding': 2}
    assert loaded.input_size == 16
    assert (loaded.mean, loaded.std) == ((0.1, 0.2, 0.3), (1, 2, 4))
    assert loaded.info == {'classes': ['n1', 'n2'], 'accuracy': 12.5}
    assert loaded.name == str(path)
    assert loaded.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    about = weights.load(path, tensors=False)
    assert about.tensors == {}
    assert about.digest == loaded.digest


def test_tensors_come_back_in_half_precision_and_the_head_stays(path):
    source = tiny_net()
    net = ResNet18(9, width=4)
    head = net.classifier.weight.clone()
    weights.load(path).load_into(net)
    assert torch.equal(net.classifier.weight, head)
    state = net.state_dict()
    expected = source.state_dict()
    for name, tensor in state.items():
        if not name.startswith('classifier.') and not name.endswith('num_batches_tracked'):
            assert torch.equal(tensor, expected[name].half().float()), name
    torch.manual_seed(0)
    x = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(net.eval().features(x), source.features(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize('value', [float('nan'), 1e6])  # half precision ends at 65,504
def test_what_is_not_finite_in_half_precision_is_not_saved(tmp_path, value):
    net = tiny_net()
    net.bn1.weight.data[1] = value
    with pytest.raises(ValueError, match=r'bn1\.weight'):
        weights.save(tmp_path / 'w', net, 'resnet18-md', {}, 16, (0,) * 3, (1,) * 3, {})
    assert not files_below(tmp_path)


def test_shipped_names_come_first_and_unknown_ones_get_the_nearest(path, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_files, 'SHIPPED', tmp_path)
    assert weight_files.names() == ['w']
    assert weight_files.find('w') == path
    assert weights.load('w').name == 'w'
    save_tiny(tmp_path / 'compact.safetensors')
    with refused('--weights compct', 'did you mean compact', "'none'"):
        weight_files.find('compct')
    with refused('--weights zzz', 'known: byol-resnet50, compact,'):
        weight_files.find('zzz')
