"""Progressive ResNet18 for small images: each stage also reads the stages of the columns before it.

Rusu et al. 2016.
"""
from functools import partial

import torch
from torch import nn

from backbone import register_backbone
from backbone.MNISTMLP_PNN import Frozen, Lateral
from backbone.resnet_cifar import BasicBlock, ResNet


class ResNetPNN(ResNet):
    """As `ResNet`; the input of every stage but the first, and of the head, has a lateral part.

    Args:
        old_cols: networks of this class, of tasks before. Others: as of `ResNet`.
    """

    def __init__(self, block, num_blocks: list, num_classes: int, num_filters: int = 64,
                 old_cols: list = None):
        super().__init__(block, num_blocks, num_classes, num_filters)
        self.old_cols = Frozen(old_cols)
        self.laterals = nn.ModuleList()
        for stage in range(len(num_blocks)):
            widths = [col.nf * 2 ** stage for col in self.old_cols]
            self.laterals.append(Lateral(widths, num_filters * 2 ** stage, partial(nn.Conv2d, kernel_size=1)))

    def maps(self, x: torch.Tensor) -> list:
        before = [col.maps(x) for col in self.old_cols]
        maps = [self.stem(self.laid_out(x))]
        for stage, lateral in enumerate(self.laterals, 1):
            own = getattr(self, f'layer{stage}')(maps[-1])
            maps.append(own + lateral([columns[stage] for columns in before]))
        return maps


def resnet18_pnn(nclasses: int, nf: int = 64, old_cols: list = None, x_shape=None) -> ResNetPNN:
    """A column beside others.

    `x_shape`, the shape of a batch, is accepted as in Mammoth; channels say all that is needed.
    """
    return ResNetPNN(BasicBlock, [2, 2, 2, 2], nclasses, nf, old_cols)


@register_backbone('resnet18-pnn')
def first_column(num_classes: int, num_filters: int = 64) -> ResNetPNN:
    return resnet18_pnn(num_classes, num_filters)
