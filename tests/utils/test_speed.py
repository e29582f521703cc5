"""Precision of products, compilation, several GPUs."""
import copy
from types import SimpleNamespace

import pytest
import torch

from tests.conftest import refused
from tests.scroll.conftest import tiny_net
from utils import speed
from utils.speed import SplitAmongGPUs, optimise, split_among_gpus


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    torch.set_float32_matmul_precision('highest')


@pytest.mark.parametrize('level, precision', [(0, 'highest'), (1, 'high'), (2, 'medium')])
def test_precision_of_products(level, precision):
    torch.set_float32_matmul_precision('high')                  # as a run before this one in the same process left it
    net = tiny_net()
    optimise(net, level)
    assert torch.get_float32_matmul_precision() == precision and net._compiled_call_impl is None


def test_compiling_leaves_names_and_values(monkeypatch):
    monkeypatch.setattr(torch, 'compile', lambda function, **options: function)
    net, names = tiny_net(), list(tiny_net().state_dict())
    optimise(net, 3)
    assert net._compiled_call_impl is not None and list(net.state_dict()) == names
    assert copy.deepcopy(net).classifier.out_features == net.classifier.out_features


def test_a_machine_without_compilers_is_told(monkeypatch):
    def fail(function, **options):
        raise RuntimeError('no compiler\nat all')
    monkeypatch.setattr(torch, 'compile', fail)
    with pytest.raises(speed.UserError, match='-O 3.*no compiler'):
        optimise(tiny_net(), 3)


def test_a_split_network_answers_as_the_network_does():
    """Without GPUs `torch` runs the network itself."""
    net = tiny_net().eval()
    split = SplitAmongGPUs(net)
    x = torch.rand(3, 3, 16, 16)
    assert torch.equal(split(x), net(x)) and torch.equal(split(x, returnt='features'), net(x, returnt='features'))
    assert split.classifier is net.classifier and split.device == net.device and torch.equal(split.get_params(), net.get_params())
    assert split.module is net and torch.equal(copy.deepcopy(split)(x), net(x))
    with pytest.raises(AttributeError):
        split.no_such_thing                                     # noqa: B018


def test_one_device_and_methods_without_training_are_refused():
    two = [torch.device('cuda:0'), torch.device('cuda:1')]
    with refused('--distributed dp', 'two CUDA devices', 'cuda:0'):
        split_among_gpus(SimpleNamespace(opt='there'), two[:1])
    with refused('--distributed dp', 'some-method', 'no network'):
        split_among_gpus(SimpleNamespace(opt=None, NAME='some-method'), two)
