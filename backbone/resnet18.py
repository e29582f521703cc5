"""`resnet18-md`, the ResNet18 of Meta-Dataset: 5x5 stem of stride 2, no max-pool, four stages of two blocks.

At 84 px the maps are 41, 41, 21, 11, 6 wide. Width 64 is the published network (11,171,904 parameters without
head, 512 features). Li et al. 2021, "Universal representation learning", https://github.com/VICO-UoE/URL.
"""
import torch
import torch.nn.functional as F
from torch import nn

from backbone import StagedBackbone, kaiming, register_backbone


def conv3x3(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of maps, but for its stride; without bias."""
    return nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)


class BasicBlock(nn.Module):
    """conv3x3 - BN - ReLU - conv3x3 - BN, plus identity or a strided 1x1 projection, then ReLU."""
    expansion = 1                       # channels of the output for each of `channels`
    SHORTCUT = 'downsample'             # name of the projection

    def __init__(self, channels_in: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1 = conv3x3(channels_in, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        projection = None
        if stride != 1 or channels_in != channels:
            projection = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                       nn.BatchNorm2d(channels))
        setattr(self, self.SHORTCUT, projection)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projection = getattr(self, self.SHORTCUT)
        shortcut = x if projection is None else projection(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + shortcut, inplace=True)


@register_backbone('resnet18-md')
class ResNet18(StagedBackbone):
    """Args:
        num_classes: outputs of the linear head.
        width: channels of the first stage; features are 8 times as many.
        stem_padding: 1 (published evaluation code) or 2 (published training code); the weights fit both."""

    def __init__(self, num_classes: int, width: int = 64, stem_padding: int = 1):
        super().__init__()
        if stem_padding not in (1, 2) or width < 1:
            raise ValueError(f'width={width}, stem_padding={stem_padding}: width must be positive, '
                             'stem_padding 1 or 2')
        self.width, self.num_classes, self.feature_dim = width, num_classes, 8 * width
        self.conv1 = nn.Conv2d(3, width, 5, 2, stem_padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage, stride in enumerate((1, 2, 2, 2)):
            channels_in, channels = width * 2 ** max(stage - 1, 0), width * 2 ** stage
            setattr(self, f'layer{stage + 1}', nn.Sequential(BasicBlock(channels_in, channels, stride),
                                                            BasicBlock(channels, channels)))
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        kaiming(self)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn1(self.conv1(x)), inplace=True)
