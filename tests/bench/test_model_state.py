"""A method's state as plain data: complete, without code, refused in one line where it does not
fit.
"""

import collections
import copy
import io
import types

import numpy as np
import pytest
import torch
from torch import nn

from bench.resume.state import Packer, load_model_state
from tests.conftest import refused
from tests.scroll.conftest import tiny_net


class Everything(nn.Module):
    """Attributes of every kind that a method may have."""

    TRANSIENT = ('cache',)

    def __init__(self, seed=0, learned=False):
        super().__init__()
        self.net = tiny_net(seed)
        self.device = torch.device('cpu')
        self.args = object()
        self.dataset = object()
        self.loss = print
        self.register_buffer('keys', torch.rand(3))
        self.net.register_buffer('shift', torch.rand(2), persistent=False)
        self.scale = nn.Parameter(torch.rand(2))
        self.counts = collections.Counter()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.torch_random = torch.Generator().manual_seed(seed)
        self.numpy_random = np.random.default_rng(seed)
        self.old_net = None
        self.count = 0
        self.seen = set()
        self.means = {}
        self.cache = 'cheap to make again'
        self.bias = torch.zeros(2, requires_grad=True)
        self.solver = types.ModuleType('solver')
        self.bias_opt = torch.optim.SGD([self.bias], lr=1)
        self.solver.own = object()
        if learned:
            self.net(torch.rand(2, 3, 16, 16)).sum().backward()
            self.opt.step()
            self.net.task = 3
            self.net.where = 'another machine'
            self.old_net = copy.deepcopy(self.net).eval()
            self.counts[3] += 2
            self.count = np.int64(7)
            self.seen = {3, 1}
            self.means = {2: torch.arange(3), 'a': [1.5, None, (True, 'b')]}
            self.names = np.array(['x', 'yy'])
            self.digests = np.array([2**63 + 1], np.uint64)
            self.flags = np.array([True, False])
            self.images = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
            self.torch_random.manual_seed(5)
            self.numpy_random.random(3)
            self.net.train()
            self.live = list(self.net.parameters())
            self.register_buffer('late', torch.arange(2))
            self.bias.data += 1
            self.plain = torch.ones(1)


def through_a_file(state: dict) -> dict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def different(a, b, path='') -> list:
    """Paths at which two ends differ."""
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        return [p for k in a for p in different(a[k], b[k], f'{path}/{k}')]
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return [p for i, (x, y) in enumerate(zip(a, b)) for p in different(x, y, f'{path}/{i}')]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) else [path]
    return [] if a == b or (a != a and b != b) else [path]


def test_everything_comes_back():
    model = Everything(0, learned=True)
    again = Everything(1)
    packer = Packer()
    load_model_state(again, through_a_file(packer.members(model)))
    assert not packer.lost
    assert again.old_net is not model.old_net
    assert again.counts == model.counts
    assert again.net.task == 3
    assert not hasattr(again.net, 'where')
    assert all(one is other for one, other in zip(again.live, again.net.parameters(), strict=True))
    assert type(again.count) is int
    assert again.names.tolist() == ['x', 'yy']
    assert again.means['a'] == [1.5, None, (True, 'b')]
    assert not different(Packer().members(model), Packer().members(again))
    again.bias.sum().backward()
    again.bias_opt.step()
    assert again.bias.tolist() == [0, 0]
    again.register_buffer('late', again.late + 1)  # as methods do that learn one
    assert again.late.tolist() == [1, 2]
    assert 'late' in again.state_dict()
    # the optimiser's parameters are still those of the network
    before = again.net.get_params().clone()
    again.net(torch.rand(2, 3, 16, 16)).sum().backward()
    again.opt.step()
    assert not torch.equal(again.net.get_params(), before)


def test_a_state_of_an_earlier_version_has_only_the_mode_of_each_part():
    model = Everything(1)
    state = Packer().members(model)
    del state['net']['numbers']
    state['net']['training'] = [False for _ in state['net']['training']]
    load_model_state(model, state)
    assert not any(part.training for part in model.net.modules())
    assert model.net.num_classes == 3


def test_a_tensor_in_two_places_is_named_as_lost():
    model = Everything(0, learned=True)
    model.means['newest'] = model.plain  # a change of one in place is a change of the other
    packer = Packer()
    packer.members(model)
    assert packer.lost == ['model.plain']
    model.means['newest'] = model.scale  # a parameter is filled in its place
    packer = Packer()
    packer.members(model)
    assert not packer.lost
    assert packer.needs['model.means.newest'] == 'Parameter'  # or the run has no checkpoints


@pytest.mark.parametrize(
    'damage',
    [
        lambda s: s.update(opt=s['torch_random']),
        lambda s: s['net']['tensors'].popitem(),
        lambda s: s['numpy_random'].update(state=3),
    ],
)
def test_a_state_that_does_not_fit_is_refused(damage):
    state = Packer().members(Everything(0, learned=True))
    damage(state)
    with refused('expected'):
        load_model_state(Everything(1), state)
