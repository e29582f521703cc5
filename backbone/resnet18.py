"""`resnet18-md`, the ResNet18 of Meta-Dataset: 5x5 stem of stride 2, four stages, no max-pool.

At 84 px the maps are 41, 41, 21, 11, 6 wide. Width 64 is the published network (11,171,904
parameters without head, 512 features). Li et al. 2021, "Universal representation learning",
https://github.com/VICO-UoE/URL.
"""

from torch import nn

from backbone import kaiming, register_backbone
from backbone.resnet_cifar import BasicBlock as Block
from backbone.resnet_cifar import ResNet


class BasicBlock(Block):
    """That of the ResNets for small images; its projection is called as in torch."""

    SHORTCUT = 'downsample'


@register_backbone('resnet18-md')
class ResNet18(ResNet):
    """Meta-Dataset's ResNet18.

    num_classes: outputs of the linear head.
    width: channels of the first stage; features are 8 times as many.
    stem_padding: 1 (published evaluation code) or 2 (published training code); the weights fit
        both."""

    def __init__(self, num_classes: int, width: int = 64, stem_padding: int = 1):
        if stem_padding not in (1, 2) or width < 1:
            raise ValueError(
                f'width={width}, stem_padding={stem_padding}: width must be positive, '
                'stem_padding 1 or 2'
            )
        stem = nn.Conv2d(3, width, 5, 2, stem_padding, bias=False)
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes, width, stem)
        kaiming(self)
