"""BYOL's ResNet50: 'SAME' padding against windows written out, the whole network against one padded by hand."""
import pytest
import torch
import torch.nn.functional as F
from torchvision import models

from backbone.resnet50_byol import ResNet50Byol
from tests.backbone.conftest import pictures, settle, small


def amounts(side: int, kernel: int) -> tuple:
    """Rows that TensorFlow's 'SAME' adds (before, after) for stride 2: as many outputs as ceil(side / 2), the odd row after."""
    total = max((-(-side // 2) - 1) * 2 + kernel - side, 0)
    return total // 2, total - total // 2


def test_amounts_at_224_pixels():
    assert (amounts(224, 7), amounts(112, 3), amounts(56, 3), amounts(56, 1)) == ((2, 3), (0, 1), (0, 1), (0, 0))


def padded_by_hand(net: ResNet50Byol, x: torch.Tensor, stride_on: str) -> torch.Tensor:
    """Features, by explicit asymmetric padding and convolutions that pad nothing; from the tensors alone."""
    state = net.state_dict()

    def convolve(name, x, stride):
        weight = state[f'{name}.weight']
        kernel = weight.shape[2]
        both = amounts(x.shape[2], kernel) if stride == 2 else (kernel // 2,) * 2
        return F.conv2d(F.pad(x, both * 2), weight, stride=stride)

    def norm(name, x):
        return F.batch_norm(x, *(state[f'{name}.{k}'] for k in ('running_mean', 'running_var', 'weight', 'bias')), eps=1e-5)

    x = F.relu(norm('bn1', convolve('conv1', x, 2)))
    x = F.max_pool2d(F.pad(x, amounts(x.shape[2], 3) * 2, value=-torch.inf), 3, 2)
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for k in range(blocks):
            name, stride = f'layer{stage}.{k}', 2 if stage > 1 and k == 0 else 1
            first, second = (1, stride) if stride_on == '3x3' else (stride, 1)
            out = F.relu(norm(f'{name}.bn1', convolve(f'{name}.conv1', x, first)))
            out = F.relu(norm(f'{name}.bn2', convolve(f'{name}.conv2', out, second)))
            out = norm(f'{name}.bn3', convolve(f'{name}.conv3', out, 1))
            x = F.relu(out + (norm(f'{name}.downsample.1', convolve(f'{name}.downsample.0', x, stride)) if k == 0 else x))
    return x.mean(dim=(2, 3))


@pytest.mark.parametrize('stride_on', ['3x3', '1x1'])
@pytest.mark.parametrize('size', [40, 64, 75])                  # even and odd sides on the way, even only, odd first
@torch.no_grad()
def test_features_are_those_of_explicit_padding(size, stride_on):
    net, x = small('resnet50-byol', stride_on=stride_on).double(), pictures(2, size, torch.float64)
    torch.testing.assert_close(net.features(x), padded_by_hand(net, x, stride_on), rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_torchvisions_network_agrees_where_sides_are_odd_and_only_there():
    """Then 'SAME' is symmetric. The tensors have torchvision's names and shapes."""
    theirs = settle(models.resnet50(num_classes=5))
    ours = ResNet50Byol(5)
    ours.load_state_dict({name.replace('fc.', 'classifier.'): t for name, t in theirs.state_dict().items()})
    ours.eval()
    odd, even = pictures(1, 65), pictures(1, 64)                # 65 -> 33 -> 17 -> 17 -> 9 -> 5 -> 3
    scale = float(theirs(odd).abs().max())
    torch.testing.assert_close(ours(odd), theirs(odd), rtol=1e-4, atol=1e-4 * scale)
    assert (ours(even) - theirs(even)).abs().max() > 1e-2 * scale
