"""ResNet12: its blocks computed step by step, and what DropBlock drops and when."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from backbone.resnet12 import DropBlock, ResNet12
from tests.backbone.conftest import pictures, small
from tests.conftest import refused


def block(state: dict, name: str, x: torch.Tensor) -> torch.Tensor:
    def convolve(conv, norm, x, padding):
        x = F.conv2d(x, state[f'{name}.{conv}.weight'], padding=padding)
        mean, var, gain, bias = (state[f'{name}.{norm}.{k}'].view(-1, 1, 1) for k in ('running_mean', 'running_var', 'weight', 'bias'))
        return (x - mean) / (var + 1e-5).sqrt() * gain + bias

    def bend(x):
        return torch.where(x > 0, x, x / 10)

    out = bend(convolve('conv2', 'bn2', bend(convolve('conv1', 'bn1', x, 1)), 1))
    out = bend(convolve('conv3', 'bn3', out, 1) + convolve('downsample.0', 'downsample.1', x, 0))
    sides = [side // 2 for side in out.shape[2:]]
    return out[..., :2 * sides[0], :2 * sides[1]].unflatten(3, (sides[1], 2)).unflatten(2, (sides[0], 2)).amax(dim=(3, 5))


@torch.no_grad()
def test_features_computed_step_by_step():
    net, x = small('resnet12').double(), pictures(2, 37, torch.float64)
    state, out = net.state_dict(), x
    for stage in (1, 2, 3, 4):
        out = block(state, f'layer{stage}.0', out)
    torch.testing.assert_close(net.features(x), out.flatten(2).mean(dim=2), rtol=1e-10, atol=1e-12)
    assert net.features(x).min() < 0                            # unlike the features of the others


def test_the_state_is_named_as_published():
    names = {f'layer{s}.0.{m}.weight' for s in (1, 2, 3, 4) for m in ('conv1', 'bn1', 'conv2', 'bn2', 'conv3', 'bn3', 'downsample.0',
                                                                      'downsample.1')} | {'classifier.weight'}
    assert {name for name in small('resnet12').state_dict() if name.endswith('.weight')} == names


def ramped(rate: float, size: int, share: float = 1.0) -> DropBlock:
    """A DropBlock whose next batch is this share of the way up."""
    drop = DropBlock(rate, size)
    drop.num_batches_tracked += round(share * 40_000) - 1
    return drop


@pytest.mark.parametrize('size, side', [(5, 10), (3, 6), (1, 4)])
def test_what_is_dropped_are_squares(size, side):
    torch.manual_seed(0)
    out = ramped(0.2, size)(torch.ones(40, 8, side, side))
    zeros = (out == 0).double()
    assert zeros.any() and not zeros.all()
    inside = F.avg_pool2d(zeros, size, 1) == 1                  # windows that are zero all over
    covered = F.max_pool2d(F.pad(inside.double(), [size - 1] * 4), size, 1)
    assert torch.equal(covered, zeros)                          # every zero lies in one of them
    kept = out[out != 0]
    assert torch.allclose(kept, kept[0]) and float(out.mean()) == pytest.approx(1, abs=1e-5)       # the sum stays


@pytest.mark.parametrize('share', [0.25, 1.0, 2.0])
def test_the_rate_of_seeds_grows_linearly_to_that_of_the_paper(share, monkeypatch):
    seen = []
    rand = torch.rand
    monkeypatch.setattr(torch, 'rand', lambda *a, **k: seen.append(rand(*a, **k)) or seen[-1])
    torch.manual_seed(0)
    drop = ramped(0.1, 5, share)
    zeros = drop(torch.ones(64, 32, 10, 10)) == 0
    gamma = 0.1 * min(share, 1) / 25 * 100 / 36                 # equation 1: keep_prob, block 5, feature map 10
    expected = F.max_pool2d(F.pad((seen[0] < gamma).float(), [4] * 4), 5, 1) == 1
    assert seen[0].shape == (64, 32, 6, 6) and torch.equal(zeros, expected)
    assert float((seen[0] < gamma).float().mean()) == pytest.approx(gamma, rel=0.1)


def test_a_square_is_no_larger_than_the_map():
    torch.manual_seed(0)
    out = ramped(0.5, 5)(torch.ones(200, 4, 2, 2))
    per_map = out.flatten(2).count_nonzero(dim=2)
    assert set(per_map.unique().tolist()) == {0, 4}             # a 2x2 map goes as a whole
    assert float((per_map == 0).float().mean()) == pytest.approx(0.5, abs=0.06)


def test_only_training_drops_and_counts_and_nothing_left_is_zero():
    drop, x = ramped(0.5, 3), torch.ones(4, 4, 6, 6)
    before = int(drop.num_batches_tracked)
    assert drop.eval()(x) is x and drop.num_batches_tracked == before
    drop.train()(x)
    assert drop.num_batches_tracked == before + 1
    assert DropBlock(0.0, 3)(x) is x
    torch.manual_seed(0)
    assert torch.equal(ramped(0.999999, 5)(torch.ones(1, 1, 2, 2)), torch.zeros(1, 1, 2, 2))    # and not nan


def test_dropout_in_the_first_two_stages_dropblock_in_the_last_two_and_its_count_in_checkpoints():
    net, other = (ResNet12(5, width=2, drop_rate=0.3, dropblock_size=2) for _ in range(2))
    drops = [getattr(net, f'layer{stage}')[0].drop for stage in (1, 2, 3, 4)]
    assert [type(d) for d in drops] == [nn.Dropout] * 2 + [DropBlock] * 2
    assert [d.p for d in drops[:2]] == [d.rate for d in drops[2:]] == [0.3, 0.3] and drops[3].size == 2
    net(pictures(2))
    net(pictures(2))
    other.load_state_dict(net.state_dict())
    assert [int(m.num_batches_tracked) for m in other.modules() if isinstance(m, DropBlock)] == [2, 2]


def test_images_that_cannot_be_halved_four_times_are_one_line():
    net = small('resnet12')
    assert net(pictures(size=16)).shape == (3, 5)
    with refused('resnet12', '(16, 15)', '--input_size 16'):
        net(pictures(size=16)[..., :15])
