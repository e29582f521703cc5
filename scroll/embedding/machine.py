"""The kind of machine: what last bits depend on, and how the maps of a network may lie in its
memory.
"""

import contextlib
import functools
import operator
import os
import platform
import re
import sys
import threading
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
FEW = 8  # channels: see `layout_for`


def kind_of_machine(device='cpu') -> str:
    """The processor and its vector instructions, as torch uses them, or the name of the GPU; which
    of these the environment rules out; that oneDNN or cuDNN is off; which float32 products may
    round their factors."""
    device = torch.device(device)
    name = (
        torch.cuda.get_device_name(device)
        if device.type == 'cuda'
        else f'{platform.machine()} {_processor()} {torch.backends.cpu.get_cpu_capability()}'
    )
    limits = [f'{limit}={os.environ[limit]}' for limit in _LIMITS if limit in os.environ]
    places = (
        ('cuda.matmul', 'cudnn.conv') if device.type == 'cuda' else ('mkldnn.matmul', 'mkldnn.conv')
    )
    library = places[1].partition('.')[0]
    limits += [f'{library}=off'] * (not getattr(torch.backends, library).enabled)
    cuda = torch.backends.cuda  # whose switches choose the kernels of attention on a CPU, too
    kernels = {
        'flash': cuda.flash_sdp_enabled,
        'memory-efficient': cuda.mem_efficient_sdp_enabled,
        'math': cuda.math_sdp_enabled,
        'multi-head': torch.backends.mha.get_fastpath_enabled,
    }
    limits += [f'{name} attention=off' for name, is_enabled in kernels.items() if not is_enabled()]
    try:
        rounds = [
            operator.attrgetter(f'{place}.fp32_precision')(torch.backends) for place in places
        ]
    except AttributeError:  # torch before 2.9
        rounds = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    rounded = [
        f'{place}={how}'
        for place, how in zip(places, rounds)
        if how not in ('none', 'ieee', 'highest', False)
    ]
    return ' '.join([name, *limits, *rounded])


@functools.cache
def _processor() -> str:
    """'25 17 AMD EPYC': family, model and name, as far as the system tells them."""
    try:
        first = Path('/proc/cpuinfo').read_text(errors='replace').partition('\n\n')[0]
    except OSError:
        return platform.processor()
    return ' '.join(
        re.findall(r'^(?:model name|cpu family|model|CPU part)\s*:\s*(.*)$', first, re.M)
    )


class _Switches:
    """Switches of torch that all threads of a process share, set for the time of a block.

    Blocks of several threads may overlap: the first one remembers what a switch was, the last one
    restores it. Each switch has one value here, wherever it is set."""

    def __init__(self):
        self._lock, self._before, self._blocks = threading.Lock(), {}, {}

    def hold(self, block, place, name: str, value) -> None:
        """Set an attribute of `place` until `release` is called with the same block."""
        with self._lock:
            blocks = self._blocks.setdefault((place, name), set())
            if not blocks:
                self._before[place, name] = getattr(place, name)
            blocks.add(block)
            setattr(place, name, value)

    def release(self, block, place, name: str) -> None:
        with self._lock:
            blocks = self._blocks.get((place, name), set())
            if block in blocks:
                if len(blocks) == 1:  # first: an interrupt may come between
                    setattr(place, name, self._before[place, name])
                blocks.remove(block)

    def renew(self) -> None:
        """Forget the blocks of other threads, which a process that was forked does not have."""
        self._lock = threading.Lock()
        for (place, name), blocks in self._blocks.items():
            if blocks:
                setattr(place, name, self._before[place, name])
        self._blocks.clear()


class _Nnpack:
    """torch's switch for NNPACK as an attribute."""

    @property
    def enabled(self) -> bool:
        return torch._C._get_nnpack_enabled()

    @enabled.setter
    def enabled(self, value: bool):
        torch._C._set_nnpack_enabled(value)


_SWITCHES, _NNPACK = _Switches(), _Nnpack()
os.register_at_fork(after_in_child=_SWITCHES.renew)


@contextlib.contextmanager
def switches(ieee: bool = False, nnpack: bool = True, **flags):
    """A block in which cuDNN has these flags and, with `ieee`, rounds no factors; without `nnpack`
    torch does not use NNPACK. `torch.backends.cudnn.flags` fails, or is not heeded, where
    torch.backends.fp32_precision was set (torch 2.14)."""
    cudnn, new = torch.backends.cudnn, hasattr(torch.backends.cudnn, 'conv')
    wanted = [(cudnn, name, value) for name, value in flags.items()]
    wanted += [
        (cudnn.conv, 'fp32_precision', 'ieee') if new else (cudnn, 'allow_tf32', False)
    ] * ieee
    wanted += [(_NNPACK, 'enabled', False)] * (not nnpack)
    block = object()
    with contextlib.ExitStack() as ending:
        for place, name, value in wanted:
            # first: an interrupt may come between
            ending.callback(_SWITCHES.release, block, place, name)
            _SWITCHES.hold(block, place, name, value)
        yield


def describe_machine(device='cpu', threads: bool = True) -> str:
    """'x86_64 25 17 AMD EPYC AVX512, 2 threads, torch 2.15.0': where it is the same, what is
    trained has the same bits. threads: whether their number counts."""
    count = f'{torch.get_num_threads()} thread{"s" * (torch.get_num_threads() != 1)}, ' * threads
    return f'{kind_of_machine(device)}, {count}torch {torch.__version__}'


def versions(net: torch.nn.Module) -> str:
    """'cuDNN 92000, numpy 2.4.6, timm 1.0.26': of cuDNN, numpy and the libraries of a network's
    modules.
    """
    names = {'numpy', *(type(module).__module__.partition('.')[0] for module in net.modules())} - {
        'torch'
    }
    found = {'cuDNN': torch.backends.cudnn.version()}
    found |= {name: getattr(sys.modules.get(name), '__version__', '') for name in sorted(names)}
    return ', '.join(f'{name} {version}' for name, version in found.items() if version)


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
