"""ResNet12 as used on mini-ImageNet: four blocks of three convolutions, each block halving the image.

At 84 px the maps are 42, 21, 10, 5 wide. Width 64 is the published network (12,424,320 parameters without
head, 640 features, which may be negative). Images of at least 16 px. Tian et al. 2020, "Rethinking few-shot
image classification", https://github.com/WangYueFt/rfs; DropBlock: Ghiasi et al. 2018.
"""
import torch
import torch.nn.functional as F
from torch import nn

from backbone import MammothBackbone, kaiming, register_backbone
from scroll.errors import InputError


class DropBlock(nn.Module):
    """Zeroes squares of a feature map in training; what is left is scaled up to keep the sum.

    Ghiasi et al. 2018, algorithm 1.

    Neighbours are too alike for dropping single values to hide anything. The share that is dropped grows
    linearly from 0 to `rate` over the first `RAMP` training batches, which a buffer counts: it is part of
    checkpoints, not of weights.
    """
    RAMP = 20 * 2000

    def __init__(self, rate: float, size: int):
        super().__init__()
        self.rate, self.size = rate, size
        self.register_buffer('num_batches_tracked', torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.rate:
            return x
        self.num_batches_tracked += 1
        count, channels, height, width = x.shape
        side = min(self.size, height, width)
        corners = (height - side + 1) * (width - side + 1)                      # of squares that fit
        rate = self.rate * (self.num_batches_tracked / self.RAMP).clamp(max=1)
        gamma = rate / side ** 2 * (height * width) / corners                   # equation 1
        seeds = torch.rand(count, channels, height - side + 1, width - side + 1, device=x.device) < gamma
        # each seed grows to a square
        dropped = F.max_pool2d(F.pad(seeds.to(x.dtype), [side - 1] * 4), side, stride=1)
        kept = 1 - dropped
        return x * (kept / kept.mean().clamp(min=1 / kept.numel()))             # all may have been dropped


class Block(nn.Module):
    """Three conv3x3 - BN with LeakyReLU between, plus a 1x1 projection, LeakyReLU, max-pool of 2, `drop`."""

    def __init__(self, channels_in: int, channels: int, drop: nn.Module):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.downsample = nn.Sequential(nn.Conv2d(channels_in, channels, 1, bias=False),
                                        nn.BatchNorm2d(channels))
        self.drop = drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.leaky_relu(self.bn1(self.conv1(x)), 0.1, inplace=True)
        out = F.leaky_relu(self.bn2(self.conv2(out)), 0.1, inplace=True)
        out = F.leaky_relu(self.bn3(self.conv3(out)) + self.downsample(x), 0.1, inplace=True)
        return self.drop(F.max_pool2d(out, 2))


@register_backbone('resnet12')
class ResNet12(MammothBackbone):
    """ResNet12 of few-shot learning.

    Args:
        num_classes: outputs of the linear head.
        width: channels of the first stage; the others have 2.5, 5 and 10 times as many, and so has the
            feature.
        drop_rate: dropout of stages 1 and 2, and the rate that DropBlock in stages 3 and 4 ends at.
        dropblock_size: side of the squares that DropBlock zeroes; no more than the map's.
    """

    def __init__(self, num_classes: int, width: int = 64, drop_rate: float = 0.1, dropblock_size: int = 5):
        super().__init__()
        if width < 2 or width % 2:
            raise ValueError(f'width={width}: must be even and positive, since stage 2 has 2.5 times as many '
                             'channels')
        if not 0 <= drop_rate < 1 or dropblock_size < 1:
            raise ValueError(f'drop_rate={drop_rate}, dropblock_size={dropblock_size}: expected a rate in '
                             '[0, 1), a size above 0')
        self.width, self.num_classes, self.feature_dim = width, num_classes, 10 * width
        channels = [3, width, width * 5 // 2, 5 * width, 10 * width]
        for stage in range(4):
            drop = nn.Dropout(drop_rate) if stage < 2 else DropBlock(drop_rate, dropblock_size)
            setattr(self, f'layer{stage + 1}',
                    nn.Sequential(Block(channels[stage], channels[stage + 1], drop)))
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        kaiming(self)

    def maps(self, x: torch.Tensor) -> list:
        if min(x.shape[2:]) < 16:
            raise InputError(f'--backbone resnet12 halves images four times; {tuple(x.shape[2:])} pixels are '
                             'too few: give --input_size 16 or more')
        maps = []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            maps.append(x)
        return maps
