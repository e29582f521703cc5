"""EfficientNet-Lite: inverted residuals with ReLU6, no squeeze-and-excitation, made for integers.

A 3x3 stem, seven stages of blocks and a 1x1 convolution to 1,280 features. Windows of stride 2 are
padded as TensorFlow's 'SAME' does. At 96 px the maps are 48, 48, 24, 12, 6, 6, 3, 3, 3 wide. Tan
and Le 2019, "EfficientNet", as changed in
https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from backbone import StagedBackbone, feature_tensors, kaiming, register_backbone
from scroll.ground.errors import InputError

# channels, blocks: times 0's
VARIANTS = ((1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4), (1.4, 1.8))
STAGES = (  # (expansion, kernel, stride, channels, blocks) of variant 0
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM = 32
FEATURES = 1280
EPS = 1e-3  # of its batch norms
INPUT_SIZES = 224, 240, 260, 280, 300  # that the published weights of each variant were trained at


def scaled_stages(variant: int) -> list:
    """(expansion, kernel, stride, channels, blocks) of each stage of a variant.

    Channels are multiples of 8, at least nine tenths of the scaled number."""
    width, depth = VARIANTS[variant]
    stages = []
    for stage in STAGES:
        *block, channels, count = stage
        scaled = channels * width
        rounded = max(8, int(scaled + 4) // 8 * 8)
        if rounded < 0.9 * scaled:
            rounded += 8
        if stage not in (STAGES[0], STAGES[-1]):
            count = math.ceil(count * depth)
        stages.append((*block, rounded, count))
    return stages


def pad_same(x: torch.Tensor, kernel: int, stride: int) -> torch.Tensor:
    """Zeros around maps (B, C, H, W) so that ceil(side / stride) windows fit.

    The odd row comes after the last. Padding stands before the convolution, whose batch norm
    follows it directly then, and can be folded."""
    amounts = []
    for side in (x.shape[3], x.shape[2]):
        total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
        amounts += [total // 2, total - total // 2]
    return F.pad(x, amounts)


class InvertedResidual(nn.Module):
    """1x1 expansion (unless it is 1) - depthwise - 1x1 projection, plus identity if shapes agree.

    BN behind each, ReLU6 behind the first two."""

    def __init__(self, channels_in: int, channels: int, expansion: int, kernel: int, stride: int):
        super().__init__()
        wide = expansion * channels_in
        self.conv1 = None if expansion == 1 else nn.Conv2d(channels_in, wide, 1, bias=False)
        self.bn1 = None if expansion == 1 else nn.BatchNorm2d(wide, EPS)
        padding = kernel // 2 if stride == 1 else 0  # else see `pad_same`
        self.conv2 = nn.Conv2d(wide, wide, kernel, stride, padding, groups=wide, bias=False)
        self.bn2 = nn.BatchNorm2d(wide, EPS)
        self.conv3 = nn.Conv2d(wide, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels, EPS)
        self.stays = stride == 1 and channels_in == channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x if self.conv1 is None else F.relu6(self.bn1(self.conv1(x)))
        stride, _ = self.conv2.stride
        kernel, _ = self.conv2.kernel_size
        if stride > 1:
            out = pad_same(out, kernel, stride)
        out = F.relu6(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return out + x if self.stays else out


@register_backbone('efficientnet-lite')
class EfficientNetLite(StagedBackbone):
    """EfficientNet-Lite 0 to 4; 0 has 3,371,008 parameters without head.

    num_classes: outputs of the linear head.
    variant: 0 to 4."""

    def __init__(self, num_classes: int, variant: int = 0):
        super().__init__()
        if variant not in range(len(VARIANTS)):
            raise ValueError(f'variant={variant}: must be 0 to {len(VARIANTS) - 1}')
        self.num_classes = num_classes
        self.feature_dim = FEATURES
        self.conv1 = nn.Conv2d(3, STEM, 3, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM, EPS)
        channels_in = STEM
        stages = enumerate(scaled_stages(variant), 1)
        for number, (expansion, kernel, stride, channels, count) in stages:
            blocks = [InvertedResidual(channels_in, channels, expansion, kernel, stride)]
            blocks += [
                InvertedResidual(channels, channels, expansion, kernel, 1) for _ in range(count - 1)
            ]
            setattr(self, f'layer{number}', nn.Sequential(*blocks))
            channels_in = channels
        self.layer8 = nn.Sequential(
            nn.Conv2d(channels_in, FEATURES, 1, bias=False),
            nn.BatchNorm2d(FEATURES, EPS),
            nn.ReLU6(),
        )
        self.classifier = nn.Linear(FEATURES, num_classes)
        kaiming(self)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(self.bn1(self.conv1(pad_same(x, 3, 2))))


def from_published(state: dict) -> tuple:
    """(name here -> tensor, variant) of published weights, without head; both have one order.

    InputError: they have the shapes of no variant."""
    for variant in range(len(VARIANTS)):
        with torch.device('meta'):
            expected = feature_tensors(EfficientNetLite(1, variant))
        if [t.shape for t in expected.values()] == [t.shape for t in state.values()]:
            return dict(zip(expected, state.values())), variant
    raise InputError(f'EfficientNet-Lite of {len(state)} tensors is none of its variants 0 to 4')
