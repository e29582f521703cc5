"""Memory, layout, precision of products, compilation."""

import copy
import pickle

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from bench.run.devices import arrange, optimise, share_cores
from scroll.learners.learner import Scroll
from tests.scroll.conftest import tiny_net


@pytest.fixture(autouse=True)
def as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision('highest')


def model_of(net, device='cpu', trains=True):
    model = torch.nn.Module()
    model.net = net
    model.device = torch.device(device)
    model.opt = torch.optim.SGD(net.parameters(), lr=0.1) if trains else None
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
    plain = tiny_net(width=8).double()
    x = torch.rand(8, 3, 48, 48, dtype=torch.float64)
    y = torch.arange(8) % 3
    model = model_of(copy.deepcopy(plain))
    arrange(model)
    assert model.net.channels_last
    assert not plain.channels_last
    for ours, theirs in zip(step(model.net, x, y), step(plain, x, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    for p in model.net.parameters():
        assert p.view(-1).shape == p.grad.view(-1).shape
    # third-party methods view them
    assert all(m.is_contiguous() for m in model.net(x, returnt='full')[1])
    frozen = model_of(copy.deepcopy(plain), trains=False)
    arrange(frozen)
    assert not frozen.net.channels_last  # as SCROLL's, whose digests the layout belongs to


def test_bfloat16_is_of_products_alone_and_learns_the_same_but_for_its_rounding(capsys):
    plain = tiny_net(width=8)
    x = torch.rand(8, 3, 48, 48)
    y = torch.arange(8) % 3
    model = model_of(copy.deepcopy(plain))
    assert arrange(model, 'bfloat16') == 'bfloat16'
    network = pickle.loads(pickle.dumps(copy.deepcopy(model.net)))
    for ours, theirs in zip(step(network, x, y), step(plain, x, y), strict=True):
        assert ours.dtype == torch.float32
        likeness = torch.nn.functional.cosine_similarity(
            ours.detach().flatten(), theirs.detach().flatten(), dim=0
        )
        assert likeness > 0.9
        assert not torch.equal(ours, theirs)
    assert {tensor.dtype for tensor in network.state_dict().values()} == {
        torch.float32,
        torch.int64,
    }
    assert {m.dtype for m in network(x, returnt='full')[1]} == {torch.float32}
    assert arrange(model_of(torch.nn.Linear(3, 2)), 'bfloat16') == 'float32'
    assert (
        '--precision bfloat16 has no effect on a network of type Linear' in capsys.readouterr().err
    )


def test_depthwise_convolutions_stay_in_float32():
    ours = type(
        'Ours',
        (torch.nn.Sequential,),
        {'__module__': 'backbone.resnet18', 'precision': 'float32', 'channels_last': False},
    )
    plain = ours(*copy.deepcopy(DEEP))
    x = torch.randn(4, 80, 6, 6)
    model = model_of(copy.deepcopy(plain))
    arrange(model, 'bfloat16')
    with torch.autocast('cpu', torch.bfloat16):
        found = copy.deepcopy(model.net)[0](x)
    torch.testing.assert_close(found, plain[0](x).bfloat16())


@pytest.mark.parametrize('level, precision', [(0, 'highest'), (2, 'medium')])
def test_precision_of_products(level, precision):
    # as a run before this one in the same process left it
    torch.set_float32_matmul_precision('high')
    net = tiny_net()
    optimise(net, level)
    assert torch.get_float32_matmul_precision() == precision
    assert net._compiled_call_impl is None


def convs(*shapes):
    return [torch.nn.Conv2d(*shape, bias=False) for shape in shapes]


WIDE = convs((80, 96, 3, 1, 1), (96, 80, 3, 1, 1))
DEEP = convs((80, 80, 5, 1, 2, 1, 80), (80, 80, (5, 7), (1, 2), (0, 1), 1, 80))
THIN = convs((80, 96, 1), (96, 80, 1))


@pytest.mark.parametrize(
    'layers, size', [(WIDE, 8), (WIDE, 6), (WIDE, 7), (THIN, 7), (DEEP, 6), (DEEP, 10), (DEEP, 15)]
)
def test_convolutions_of_fewer_or_faster_products_learn_the_same(layers, size):
    """In float64 they differ from direct ones by rounding alone; also under a gradient of a
    gradient, and in copies.
    """
    kind = type('Ours', (torch.nn.Sequential,), {'__module__': 'backbone.resnet18'})
    plain = kind(*copy.deepcopy(layers)).double()
    plain.channels_last = False
    model = model_of(copy.deepcopy(plain))
    x = torch.randn(16, 80, size, size, dtype=torch.float64, requires_grad=True)
    arrange(model)
    with torch.inference_mode():
        model.net(x)  # what it keeps for later calls can still be trained with
    found = []
    for net in (plain, model.net, copy.deepcopy(model.net)):
        out = net(x)
        (inner,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(
            (out, inner, *torch.autograd.grad(inner.square().sum(), [x, *net.parameters()]))
        )
    for others in found[1:]:
        for ours, theirs in zip(others, found[0], strict=True):
            torch.testing.assert_close(
                ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.detach().abs().max())
            )
    # no whole number of tiles; too many pixels
    assert all(map(torch.equal, *found[:2])) == (size in (7, 15))


@pytest.mark.parametrize('head, threads', [('ridge', 1), ('rp', 2), (None, 1)])
def test_products_of_numpy_leave_the_cores_to_torch_but_for_sums_of_a_lift(
    head, threads, monkeypatch
):
    model = torch.nn.Module()
    if head:
        model.learner = Scroll(head=head)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 2)
    with threadpool_limits(7, user_api='blas'):
        share_cores(model)
        assert {
            pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas'
        } == {threads}
