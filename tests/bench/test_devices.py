"""Memory, layout, precision of products, compilation, several GPUs."""
import copy
from types import SimpleNamespace

import pytest
import torch

from bench.run.building import initialize
from bench.run.devices import CustomDP, arrange, optimise, split_among_gpus
from models import get_model_class
from tests.conftest import refused, save_tiny
from tests.scroll.conftest import tiny_net


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    torch.set_float32_matmul_precision('highest')


def model_of(net, device='cpu', trains=True):
    model = torch.nn.Module()
    model.net, model.device, model.opt = net, torch.device(device), torch.optim.SGD(net.parameters(), lr=0.1) if trains else None
    return model


def step(net, x, y) -> tuple:
    """(logits, gradients) of a training step, and what the network says afterwards."""
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    logits = net(x)
    torch.nn.functional.cross_entropy(logits, y).backward()
    gradients = net.get_grads()
    opt.step()
    return logits, gradients, net.eval()(x)


def test_a_rearranged_network_learns_the_same_and_its_parameters_may_be_viewed_flat():
    """In float64 the two layouts differ by rounding alone, which is far below a float32's."""
    plain, x, y = tiny_net(width=8).double(), torch.rand(8, 3, 48, 48, dtype=torch.float64), torch.arange(8) % 3
    model = model_of(copy.deepcopy(plain))
    arrange(model)
    assert model.net.channels_last and not plain.channels_last
    for ours, theirs in zip(step(model.net, x, y), step(plain, x, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    for p in model.net.parameters():
        assert p.view(-1).shape == p.grad.view(-1).shape
    maps = model.net.maps(x)
    small = [given.shape[2:].numel() <= model.net.CONTIGUOUS_PIXELS for given in maps[:-1]]
    assert True in small and False in small
    for m, contiguous in zip(maps, [False, *small], strict=True):
        assert m.is_contiguous() is contiguous and m.is_contiguous(memory_format=torch.channels_last) is not contiguous
    assert all(m.is_contiguous() for m in model.net(x, returnt='full')[1])         # methods of foreign make view them
    for ours, theirs in zip(model.net(x, returnt='full')[1], plain(x, returnt='full')[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize('method, more, rearranged', [('er', ['--lr', 0.1], True), ('scroll', [], False)])
def test_a_run_rearranges_the_networks_that_it_trains(parse, tmp_path, method, more, rearranged):
    flags = ('--buffer_size', 10, '--device', 'cpu', '--weights', save_tiny(tmp_path / 'eight.safetensors', 8))
    model, _, _ = initialize(parse(method, *flags, *more, base_path=tmp_path))
    assert isinstance(model, get_model_class(method)) and model.net.channels_last is rearranged


@pytest.mark.parametrize('level, precision', [(0, 'highest'), (1, 'high'), (2, 'medium')])
def test_precision_of_products(level, precision):
    torch.set_float32_matmul_precision('high')                  # as a run before this one in the same process left it
    net = tiny_net()
    optimise(net, level)
    assert torch.get_float32_matmul_precision() == precision and net._compiled_call_impl is None


def test_a_split_network_answers_as_the_network_does():
    """Without GPUs `torch` runs the network itself."""
    net = tiny_net().eval()
    split = CustomDP(net)
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
