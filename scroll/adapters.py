"""Residual adapters: few parameters beside a frozen convolutional backbone.

Every 3x3 convolution inside the residual blocks (not the stem, not the 1x1 projections) gets a parallel 1x1 convolution
of the same stride, added to its output before the batch norm: y = conv3x3(x) + conv1x1(x). Li et al. 2022,
"Cross-domain few-shot learning with task-specific adapters"; paper, section 3.3.
"""
import torch
import torch.nn.functional as F
from torch import nn

from scroll.errors import InputError


class ParallelAdapter(nn.Module):
    """A 3x3 convolution with a 1x1 one beside it.

    Args:
        conv: the frozen convolution, padding 1, one group.
        scale: the adapter starts as `scale` times the rectangular identity; with 0 the network is unchanged, bit for bit.
    """

    def __init__(self, conv: nn.Conv2d, scale: float):
        super().__init__()
        self.conv = conv
        weight = conv.weight
        self.alpha = nn.Parameter(scale * torch.eye(conv.out_channels, conv.in_channels, device=weight.device,
                                                    dtype=weight.dtype)[..., None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x) + F.conv2d(x, self.alpha, stride=self.conv.stride)

    def folded(self) -> nn.Conv2d:
        """One convolution with the same output: the adapter is its kernel's centre."""
        weight = self.conv.weight.detach().clone()
        weight[:, :, 1, 1] += self.alpha.detach()[:, :, 0, 0]
        self.conv.weight.data = weight
        return self.conv


def _is_adaptable(name: str, module: nn.Module) -> bool:
    """A 3x3 convolution that is not a direct child of the network, where the stem is."""
    return ('.' in name and isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3) and module.padding == (1, 1)
            and module.dilation == (1, 1) and module.groups == 1)


def attach(net: nn.Module, scale: float = 1e-4) -> list:
    """Put an adapter beside each eligible convolution of `net`, in place; everything else is frozen.

    Returns:
        The adapters' parameters, in the order of the network's modules.

    Raises:
        InputError: the network has no convolution to adapt.
    """
    convolutions = [name for name, module in net.named_modules() if _is_adaptable(name, module)]
    if not convolutions:
        raise InputError(f'{type(net).__name__} has no 3x3 convolution inside a block: adapters need a convolutional '
                         'backbone; use full tuning or none')
    net.requires_grad_(False)
    adapters = []
    for name in convolutions:
        parent, _, leaf = name.rpartition('.')
        adapters.append(ParallelAdapter(net.get_submodule(name), scale))
        setattr(net.get_submodule(parent), leaf, adapters[-1])
    return [adapter.alpha for adapter in adapters]


def fold(net: nn.Module) -> nn.Module:
    """Replace each adapter of `net` by one plain convolution of the same output, in place."""
    for name, module in list(net.named_modules()):
        if isinstance(module, ParallelAdapter):
            parent, _, leaf = name.rpartition('.')
            setattr(net.get_submodule(parent), leaf, module.folded())
    return net
