"""A description of what last bits depend on, and the layout of maps in memory."""

import sys

import torch

from exact_torch.machine import kind_of_machine

FEW = 8  # channels: see `layout_for`


def describe_machine(device: torch.device | str = 'cpu', threads: bool = True) -> str:
    """'x86_64 25 17 AMD EPYC AVX512, 2 threads, torch 2.15.0': where it is the same, what is
    trained has the same bits. threads: whether their number counts."""
    words = [kind_of_machine(device), f'torch {torch.__version__}']
    if threads:
        count = torch.get_num_threads()
        words.insert(1, f'{count} thread' if count == 1 else f'{count} threads')
    return ', '.join(words)


def versions(net: torch.nn.Module) -> str:
    """'cuDNN 92000, numpy 2.4.6, timm 1.0.26': of cuDNN, numpy and the libraries of a network's
    modules.
    """
    libraries = {type(module).__module__.partition('.')[0] for module in net.modules()}
    numbers: dict[str, object] = {'cuDNN': torch.backends.cudnn.version()}
    for name in sorted({'numpy', *libraries} - {'torch'}):
        numbers[name] = getattr(sys.modules.get(name), '__version__', '')
    return ', '.join(f'{name} {number}' for name, number in numbers.items() if number)


def layout_for(net: torch.nn.Module) -> torch.memory_format:
    """The memory format that `net` may run and train in: channels-last (faster on CPUs) where it is
    sound.

    With AVX2 and no AVX-512, oneDNN's backward pass of a strided 1x1 convolution writes past its
    memory where a channels-last input has fewer than eight channels (torch 2.15). So a network with
    a convolution of fewer output channels, or a 1x1 one that reads fewer, keeps contiguous maps, on
    every machine; so does one with weights of five dimensions, which have no such format."""
    sound = all(
        conv.out_channels >= FEW and (conv.in_channels >= FEW or max(conv.kernel_size) > 1)
        for conv in net.modules()
        if isinstance(conv, torch.nn.Conv2d)
    )
    sound &= all(parameter.dim() != 5 for parameter in net.parameters())  # of nn.Conv3d
    return torch.channels_last if sound else torch.contiguous_format
