"""Batch norms inside and outside `bn_track_stats` and `allow_single_values`."""

import pytest
import torch
from torch import nn

from utils.batch_norm import allow_single_values, bn_track_stats


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.BatchNorm1d(5)),
    )


def statistics(net):
    return {name: value.clone() for name, value in net.named_buffers()}


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


X = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    'options, tracked', [({'condition': False}, False), ({}, True), ({'condition': True}, True)]
)
def test_without_the_condition_statistics_stay_and_the_output_is_that_of_training(options, tracked):
    net = network()
    twin = network()
    before = statistics(net)
    with bn_track_stats(net, **options):
        out = net(X)
    assert torch.equal(out, twin(X))
    assert not equal(before, statistics(twin))
    assert equal(statistics(twin) if tracked else before, statistics(net))
    if not tracked:
        net(X)
        assert equal(statistics(net), statistics(twin))  # they follow again afterwards


def test_settings_come_back_after_an_error_and_those_without_statistics_stay_without():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
    with pytest.raises(KeyError), bn_track_stats(net, False):
        raise KeyError
    assert [norm.track_running_stats for norm in net] == [True, False]
    with bn_track_stats(net, False), bn_track_stats(net, False):
        net(torch.randn(3, 2))
    assert [norm.track_running_stats for norm in net] == [True, False]
    assert net[0].num_batches_tracked == 0


def test_a_single_value_per_channel_is_normalised_by_the_running_statistics_which_stay():
    """The convolution leaves one pixel of 3 x 3: (x - 3) / sqrt(4 + 0) * 5 + 1 of each channel."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=0), nn.Flatten(), nn.BatchNorm1d(4, eps=0)
    )
    net[1].running_mean.fill_(3)
    net[1].running_var.fill_(4)
    net[1].weight.data.fill_(5)
    net[1].bias.data.fill_(1)
    x = X[:1, :, :3, :3]
    with pytest.raises(ValueError, match='more than 1 value per channel'):
        net(x)
    before = statistics(net)
    with allow_single_values(net):
        torch.testing.assert_close(net(x), (net[0](x).flatten(1) - 3) / 2 * 5 + 1)
        assert equal(before, statistics(net))
        assert net[1].training
        assert net[3].training
        with pytest.raises(RuntimeError):
            net[1](torch.zeros(1, 9, 1, 1))  # nine channels
        assert net[1].training
    with pytest.raises(ValueError, match='more than 1 value per channel'):
        net(x)


@pytest.mark.parametrize('samples', [1, 2])
def test_more_values_are_normalised_by_their_own_and_remembered(samples):
    net = network()[:2]
    twin = network()[:2]
    with allow_single_values(net):
        assert torch.equal(net(X[:samples]), twin(X[:samples]))
        assert equal(statistics(net), statistics(twin))
        net.eval()
        twin.eval()
        assert torch.equal(net(X[:1, :, :3, :3]), twin(X[:1, :, :3, :3]))
        assert not net[1].training
