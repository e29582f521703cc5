"""The kind of machine: what last bits depend on, and how the maps of a network may lie in its memory."""
import os
import platform
import sys

import numpy as np
import torch

_LIMITS = ('ONEDNN_MAX_CPU_ISA', 'DNNL_MAX_CPU_ISA', 'MKL_ENABLE_INSTRUCTIONS', 'MKL_CBWR',
           'NVIDIA_TF32_OVERRIDE')
FEW = 8                     # channels: see `layout_for`


def kind_of_machine(device='cpu') -> str:
    """The processor and its vector instructions, as torch uses them, or the name of the GPU."""
    device = torch.device(device)
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    return f'{platform.machine()} {torch.backends.cpu.get_cpu_capability()}'


def describe_machine(device='cpu') -> str:
    """'x86_64 AVX512, 2 threads, torch 2.15.0': where it is the same, what is trained has the same bits."""
    count = torch.get_num_threads()
    return f"{kind_of_machine(device)}, {count} thread{'s' * (count != 1)}, torch {torch.__version__}"


def versions_and_switches(net: torch.nn.Module) -> tuple:
    """What else floating-point features may depend on: versions of numpy, cuDNN and the libraries of the
    network's modules; TF32; instructions that the environment rules out."""
    packages = {type(module).__module__.partition('.')[0] for module in net.modules()} - {'torch'}
    versions = {name: getattr(sys.modules.get(name), '__version__', '') for name in sorted(packages)}
    limits = {name: os.environ[name] for name in _LIMITS if name in os.environ}
    return (np.__version__, torch.backends.cudnn.version(), versions, torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32, limits)


def layout_for(net: torch.nn.Module) -> torch.memory_format:
    """The memory format that `net` may run and train in: channels-last (faster on CPUs) where it is sound.

    With AVX2 and no AVX-512, oneDNN's backward pass of a strided 1x1 convolution writes past its memory where
    a channels-last input has fewer than eight channels (torch 2.15). So a network with a convolution of fewer
    output channels, or a 1x1 one that reads fewer, keeps contiguous maps, on every machine."""
    sound = all(conv.out_channels >= FEW and (conv.in_channels >= FEW or max(conv.kernel_size) > 1)
                for conv in net.modules() if isinstance(conv, torch.nn.Conv2d))
    return torch.channels_last if sound else torch.contiguous_format
