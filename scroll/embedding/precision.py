"""bfloat16 for the products of networks that are trained in floating point, where it is faster.

Autocast rounds the factors of convolutions and products; their sums, batch norms, losses and
optimisers stay in float32. On CPUs oneDNN takes up to thirty times as long for gradients of
depthwise convolutions in bfloat16 as in float32 (torch 2.14), so these stay in float32, too.
"""

import functools
import os
import re
from pathlib import Path

import torch
from torch import nn

CPU_INFO = Path('/proc/cpuinfo')
# by the name of a processor's units: what ONEDNN_MAX_CPU_ISA says where oneDNN may use them
_UNITS = {'amx_bf16': '^$|ALL|DEFAULT|AMX', 'avx512_bf16': '^$|ALL|DEFAULT|AMX|AVX10|[BF][FP]16'}


def resolve_precision(precision: str, device: torch.device | str = 'cpu') -> str:
    """'float32' or 'bfloat16', for these, or 'auto', on a device. 'auto': bfloat16 where
    there are units for it: on CPUs with AMX or AVX-512 BF16, unless the environment or a switch of
    torch keeps oneDNN from them, and on GPUs from compute capability 8.0 on."""
    device = torch.device(device)
    if precision != 'auto':
        return precision
    if device.type == 'cuda':
        return 'bfloat16' if torch.cuda.get_device_capability(device) >= (8, 0) else 'float32'
    usable = torch.backends.mkldnn.enabled and _has_units()
    return 'bfloat16' if usable else 'float32'


def _has_units() -> bool:
    """True if the processor has units for bfloat16, the system says so, and oneDNN may use them."""
    limit = os.environ.get('ONEDNN_MAX_CPU_ISA', os.environ.get('DNNL_MAX_CPU_ISA', '')).upper()
    try:
        about = CPU_INFO.read_text(errors='replace').split()
    except OSError:
        return False
    return any(unit in about and re.search(levels, limit) for unit, levels in _UNITS.items())


def keep_depthwise_in_float32(net: nn.Module) -> None:
    """Let depthwise convolutions of a network on a CPU compute in float32 under autocast."""
    for conv in net.modules():
        depthwise = isinstance(conv, nn.Conv2d) and conv.groups == conv.in_channels > 1
        if depthwise and conv.padding_mode == 'zeros':
            vars(conv)['_conv_forward'] = functools.partial(_in_float32, conv._conv_forward)


def _in_float32(convolve, x, weight, bias):
    with torch.autocast(x.device.type, enabled=False):
        out = convolve(x.float(), weight, bias)
    return out.to(torch.bfloat16) if torch.is_autocast_enabled(x.device.type) else out
