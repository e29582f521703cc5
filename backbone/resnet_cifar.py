"""ResNets for small images, with Mammoth's names of tensors: a 3x3 stem of stride 1, no max-pool.

At 32 px the maps of `resnet18` are 32, 32, 16, 8, 4 wide. It has 11.22 M parameters with a head of
100 classes and 512 features; `reduced-resnet18`, of 20 filters, 1.11 M and 160. He et al. 2016,
"Deep residual learning"; the reduced network: Lopez-Paz and Ranzato 2017.
"""

import torch
import torch.nn.functional as F
from torch import nn

from backbone import StagedBackbone, register_backbone


def conv3x3(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of maps, but for its stride; without bias."""
    return nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    """conv3x3 - BN - ReLU - conv3x3 - BN, plus identity or a strided 1x1 projection, then ReLU."""

    expansion = 1  # channels of the output for each of `channels`
    SHORTCUT = 'shortcut'  # name of the projection

    def __init__(self, channels_in: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1 = conv3x3(channels_in, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        projection = None
        if stride != 1 or channels_in != channels:
            projection = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
        setattr(self, self.SHORTCUT, projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projection = getattr(self, self.SHORTCUT)
        shortcut = x if projection is None else projection(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + shortcut, inplace=True)


class ResNet(StagedBackbone):
    """Stages of residual blocks, each but the first of stride 2 and of double width.

    block: `block(channels_in, channels, stride)`, with `channels` times its `expansion` (default:
        1) out.
    num_blocks: of each stage.
    num_classes: outputs of the linear head.
    num_filters: channels of the stem and, before expansion, of the first stage; also `nf`.
    stem: the first convolution, if not this one."""

    RENAMED = {'shortcut': 'downsample'}  # what digests call it, as before

    def __init__(
        self,
        block,
        num_blocks: list,
        num_classes: int,
        num_filters: int = 64,
        stem: nn.Module = None,
    ):
        super().__init__()
        if num_filters < 1:
            raise ValueError(f'num_filters={num_filters}: must be positive')
        expansion = getattr(block, 'expansion', 1)
        self.num_classes = num_classes
        self.nf = num_filters
        self.feature_dim = num_filters * 2 ** (len(num_blocks) - 1) * expansion
        self.conv1 = stem or conv3x3(3, num_filters)
        self.bn1 = nn.BatchNorm2d(num_filters)
        channels_in = num_filters
        for stage, count in enumerate(num_blocks):
            channels = num_filters * 2**stage
            blocks = [block(channels_in, channels, 2 if stage else 1)]
            channels_in = channels * expansion
            blocks += [block(channels_in, channels) for _ in range(count - 1)]
            setattr(self, f'layer{stage + 1}', nn.Sequential(*blocks))
        self.classifier = nn.Linear(self.feature_dim, num_classes)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn1(self.conv1(x)), inplace=True)


@register_backbone('resnet18')
def resnet18(num_classes: int, num_filters: int = 64) -> ResNet:
    """ResNet18 with the stem for small images; that of Meta-Dataset is `resnet18-md`."""
    return ResNet(BasicBlock, [2, 2, 2, 2], num_classes, num_filters)


@register_backbone('reduced-resnet18')
def reduced_resnet18(num_classes: int, num_filters: int = 20) -> ResNet:
    """The narrow ResNet18 of GEM and of much of the online literature."""
    return ResNet(BasicBlock, [2, 2, 2, 2], num_classes, num_filters)


@register_backbone('resnet34')
def resnet34(num_classes: int, num_filters: int = 64) -> ResNet:
    """ResNet34 with the stem for small images."""
    return ResNet(BasicBlock, [3, 4, 6, 3], num_classes, num_filters)
