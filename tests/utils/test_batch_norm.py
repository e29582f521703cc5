"""Batch norms inside and outside `bn_track_stats`."""
import pytest
import torch
from torch import nn

from utils.batch_norm import bn_track_stats


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4),
                         nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.BatchNorm1d(5)))


def statistics(net):
    return {name: value.clone() for name, value in net.named_buffers()}


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


X = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('options, tracked',
                         [(dict(condition=False), False), ({}, True), (dict(condition=True), True)])
def test_without_the_condition_statistics_stay_and_the_output_is_that_of_training(options, tracked):
    net, twin = network(), network()
    before = statistics(net)
    with bn_track_stats(net, **options):
        out = net(X)
    assert torch.equal(out, twin(X)) and not equal(before, statistics(twin))
    assert equal(statistics(twin) if tracked else before, statistics(net))
    if not tracked:
        net(X)
        assert equal(statistics(net), statistics(twin))         # they follow again afterwards


def test_eval_mode_still_uses_the_running_statistics():
    net = network()
    net(X)
    net.eval()
    expected = net(X)
    with bn_track_stats(net, False):
        assert torch.equal(net(X), expected)


def test_settings_come_back_after_an_error_and_those_without_statistics_stay_without():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
    with pytest.raises(KeyError), bn_track_stats(net, False):
        raise KeyError
    assert [norm.track_running_stats for norm in net] == [True, False]
    with bn_track_stats(net, False), bn_track_stats(net, False):
        net(torch.randn(3, 2))
    assert [norm.track_running_stats for norm in net] == [True, False] and net[0].num_batches_tracked == 0
