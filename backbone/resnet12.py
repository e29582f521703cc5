"""ResNet12 of mini-ImageNet: four blocks of three convolutions, each halving the image.

At 84 px the maps are 42, 21, 10, 5 wide. Width 64 is the published network (12,424,320 parameters
without head, 640 features, which may be negative). Images of at least 16 px. Tian et al. 2020,
"Rethinking few-shot image classification", https://github.com/WangYueFt/rfs; without its dropout.
"""

import torch
import torch.nn.functional as F
from torch import nn

from backbone import StagedBackbone, kaiming, register_backbone
from scroll.ground.errors import InputError


class Block(nn.Module):
    """Three conv3x3 - BN with LeakyReLU between, plus a 1x1 projection, LeakyReLU, max-pool."""

    def __init__(self, channels_in: int, channels: int):
        super().__init__()
        for number, read in (1, channels_in), (2, channels), (3, channels):
            setattr(self, f'conv{number}', nn.Conv2d(read, channels, 3, 1, 1, bias=False))
            setattr(self, f'bn{number}', nn.BatchNorm2d(channels))
        self.downsample = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.leaky_relu(self.bn1(self.conv1(x)), 0.1, inplace=True)
        out = F.leaky_relu(self.bn2(self.conv2(out)), 0.1, inplace=True)
        out = F.leaky_relu(self.bn3(self.conv3(out)) + self.downsample(x), 0.1, inplace=True)
        return F.max_pool2d(out, 2)


@register_backbone('resnet12')
class ResNet12(StagedBackbone):
    """Four blocks of three convolutions and a linear head.

    num_classes: outputs of the linear head.
    width: channels of the first stage, even; the others have 2.5, 5 and 10 times as many,
        features 10."""

    def __init__(self, num_classes: int, width: int = 64):
        super().__init__()
        if width < 2 or width % 2:
            raise ValueError(
                f'width={width}: must be even and positive, since stage 2 has 2.5 times as many '
                'channels'
            )
        self.num_classes = num_classes
        self.feature_dim = 10 * width
        channels = [3, width, width * 5 // 2, 5 * width, 10 * width]
        for stage in range(4):
            block = Block(channels[stage], channels[stage + 1])
            setattr(self, f'layer{stage + 1}', nn.Sequential(block))
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        kaiming(self)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        if min(x.shape[2:]) < 16:
            raise InputError(
                f'--backbone resnet12 halves images four times; {tuple(x.shape[2:])} pixels are '
                'too few: give --input_size 16 or more'
            )
        return x
