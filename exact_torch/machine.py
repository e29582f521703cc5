"""The kind of machine that last bits of floating-point results depend on."""

import functools
import operator
import os
import platform
import re
from pathlib import Path

import torch

_LIMITS = (
    'ONEDNN_MAX_CPU_ISA',
    'DNNL_MAX_CPU_ISA',
    'ONEDNN_DEFAULT_FPMATH_MODE',
    'DNNL_DEFAULT_FPMATH_MODE',
    'MKL_ENABLE_INSTRUCTIONS',
    'MKL_CBWR',
    'NVIDIA_TF32_OVERRIDE',
)


def kind_of_machine(device: torch.device | str) -> str:
    """The processor and its vector instructions, as torch uses them, or the name of the GPU; which
    of these the environment rules out; that oneDNN or cuDNN is off; which float32 products may
    round their factors."""
    device = torch.device(device)
    if device.type == 'cuda':
        words = [torch.cuda.get_device_name(device)]
        library = 'cudnn'
        products = 'cuda.matmul'
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        words = [f'{platform.machine()} {_processor()} {capability}']
        library = 'mkldnn'
        products = 'mkldnn.matmul'
    words += [f'{limit}={os.environ[limit]}' for limit in _LIMITS if limit in os.environ]
    if not getattr(torch.backends, library).enabled:
        words.append(f'{library}=off')
    cuda = torch.backends.cuda  # whose switches choose the kernels of attention on a CPU, too
    kernels = {
        'flash': cuda.flash_sdp_enabled(),
        'memory-efficient': cuda.mem_efficient_sdp_enabled(),
        'math': cuda.math_sdp_enabled(),
        'multi-head': torch.backends.mha.get_fastpath_enabled(),
    }
    words += [f'{name} attention=off' for name, enabled in kernels.items() if not enabled]
    places = products, f'{library}.conv'
    try:
        rounding = [
            operator.attrgetter(f'{place}.fp32_precision')(torch.backends) for place in places
        ]
    except AttributeError:  # torch before 2.9
        rounding = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    for place, kind in zip(places, rounding):
        if kind not in ('none', 'ieee', 'highest', False):
            words.append(f'{place}={kind}')
    return ' '.join(words)


@functools.cache
def _processor() -> str:
    """'25 17 AMD EPYC': family, model and name, as far as the system tells them."""
    try:
        first = Path('/proc/cpuinfo').read_text(errors='replace').partition('\n\n')[0]
    except OSError:
        return platform.processor()
    fields = r'^(?:model name|cpu family|model|CPU part)\s*:\s*(.*)$'
    return ' '.join(re.findall(fields, first, re.MULTILINE))
