"""ResNet50 for small images: bottleneck blocks behind the 3x3 stem of `backbone/resnet_cifar.py`.

He et al. 2016.

23,500,352 parameters without head, 2048 features. torchvision's, with a stem for 224 px, is `resnet50-tv`.
"""
import torch
import torch.nn.functional as F
from torch import nn

from backbone import register_backbone
from backbone.resnet_cifar import ResNet, conv3x3


class Bottleneck(nn.Module):
    """conv1x1 - BN - ReLU - conv3x3 - BN - ReLU - conv1x1 - BN, plus identity or a strided 1x1 projection,
    then ReLU."""
    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.downsample = None
        if stride != 1 or channels_in != channels * self.expansion:
            self.downsample = nn.Sequential(nn.Conv2d(channels_in, channels * self.expansion, 1, stride,
                                                      bias=False),
                                            nn.BatchNorm2d(channels * self.expansion))

    def before_relu(self, x: torch.Tensor) -> torch.Tensor:
        """The output without its last ReLU."""
        shortcut = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        return self.bn3(self.conv3(out)) + shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.before_relu(x), inplace=True)


@register_backbone('resnet50')
def resnet50(num_classes: int, num_filters: int = 64) -> ResNet:
    """ResNet50 with the stem for small images."""
    return ResNet(Bottleneck, [3, 4, 6, 3], num_classes, num_filters)
