"""ResNet50 as pre-trained by BYOL: stride-2 windows padded as TensorFlow and JAX do.

Of an even side, 'SAME' padding adds one row more at the end than at the start: (2, 3) for the 7x7
stem, (0, 1) for 3x3 windows, where torch adds as many on both sides. So these weights need this
file, though names and shapes of the tensors are torchvision's. At 224 px the maps are 56, 56, 28,
14, 7 wide; width 64 is the published network (23,508,032 parameters without head, 2048 non-negative
features). Grill et al. 2020, "Bootstrap your own latent".
"""

import torch
import torch.nn.functional as F
from torch import nn

from backbone import kaiming, register_backbone
from backbone.resnet_cifar import ResNet, conv3x3


def same(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Apply a layer of stride 2, odd kernel k and padding k // 2 as if padded by 'SAME'.

    Of an even side, torch's windows start one pixel too early: one row more in front, and its
    window dropped again, moves them all by one. A residual adapter can stand next to such a
    plain layer."""
    rows, columns = (1 - side % 2 for side in x.shape[2:])
    return layer(F.pad(x, (columns, 0, rows, 0)))[:, :, rows:, columns:]


class Bottleneck(nn.Module):
    """1x1 - 3x3 - 1x1 convolutions, plus identity or a projection where that does not fit, ReLU.

    The 3x3 has `channels` and `stride`, the last four times the channels; BN and ReLU between."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int = 1):
        super().__init__()
        wide = 4 * channels
        self.stride = stride
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.downsample = None
        if channels_in != wide:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, wide, 1, stride, bias=False), nn.BatchNorm2d(wide)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = same(self.conv2, out) if self.stride == 2 else self.conv2(out)
        out = F.relu(self.bn2(out), inplace=True)
        return F.relu(self.bn3(self.conv3(out)) + shortcut, inplace=True)


@register_backbone('resnet50-byol')
class ResNet50Byol(ResNet):
    """ResNet50 v1 with 'SAME' padding.

    num_classes: outputs of the linear head.
    width: channels of the stem; features are 32 times as many."""

    def __init__(self, num_classes: int, width: int = 64):
        if width < 1:
            raise ValueError(f'width={width}: must be positive')
        stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        super().__init__(Bottleneck, [3, 4, 6, 3], num_classes, width, stem)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        kaiming(self)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return same(self.maxpool, F.relu(self.bn1(same(self.conv1, x)), inplace=True))
