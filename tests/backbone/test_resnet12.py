"""ResNet12: its blocks computed step by step."""

import torch
import torch.nn.functional as F

from scroll.embedding.wide import WideNetwork
from tests.backbone.conftest import pictures, small
from tests.conftest import refused


def block(state: dict, name: str, x: torch.Tensor) -> torch.Tensor:
    def convolve(conv, norm, x, padding):
        x = F.conv2d(x, state[f'{name}.{conv}.weight'], padding=padding)
        mean, var, gain, bias = (
            state[f'{name}.{norm}.{k}'].view(-1, 1, 1)
            for k in ('running_mean', 'running_var', 'weight', 'bias')
        )
        return (x - mean) / (var + 1e-5).sqrt() * gain + bias

    def bend(x):
        return torch.where(x > 0, x, x / 10)

    out = bend(convolve('conv2', 'bn2', bend(convolve('conv1', 'bn1', x, 1)), 1))
    out = bend(convolve('conv3', 'bn3', out, 1) + convolve('downsample.0', 'downsample.1', x, 0))
    sides = [side // 2 for side in out.shape[2:]]
    return (
        out[..., : 2 * sides[0], : 2 * sides[1]]
        .unflatten(3, (sides[1], 2))
        .unflatten(2, (sides[0], 2))
        .amax(dim=(3, 5))
    )


@torch.no_grad()
def test_features_computed_step_by_step():
    net = small('resnet12').double()
    x = pictures(2, 37, torch.float64)
    state = net.state_dict()
    out = x
    for stage in (1, 2, 3, 4):
        out = block(state, f'layer{stage}.0', out)
    torch.testing.assert_close(net.features(x), out.flatten(2).mean(dim=2), rtol=1e-10, atol=1e-12)
    assert net.features(x).min() < 0  # unlike the features of the others
    first = WideNetwork(net, (1,)).features(x)[:, net.feature_dim :]
    of_stage = block(state, 'layer1.0', x).mean(dim=(2, 3))
    torch.testing.assert_close(first, F.normalize(of_stage).float())


def test_images_that_cannot_be_halved_four_times_are_one_line():
    net = small('resnet12')
    assert net(pictures(size=16)).shape == (3, 5)
    with refused('resnet12', '(16, 15)', '--input_size 16'):
        net(pictures(size=16)[..., :15])
