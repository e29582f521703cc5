"""How the maps of a network lie in memory."""
import torch
from torch import nn

_FEWEST = 8


def layout_for(net: nn.Module) -> torch.memory_format:
    """The memory format that `net` may run and train in: channels-last (faster on CPUs) where it is sound.

    With AVX2 and no AVX-512, oneDNN's backward pass of a strided 1x1 convolution writes past its memory where
    a channels-last input has fewer than eight channels (torch 2.15). So a network with a convolution of fewer
    output channels, or a 1x1 one that reads fewer, keeps contiguous maps, on every machine."""
    for conv in (m for m in net.modules() if isinstance(m, nn.Conv2d)):
        reads_few = conv.in_channels < _FEWEST and max(conv.kernel_size) == 1
        if conv.out_channels < _FEWEST or reads_few:
            return torch.contiguous_format
    return torch.channels_last
