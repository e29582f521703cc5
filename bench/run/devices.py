"""Speed: memory that is used again, layout; at a price, coarser products, a compiled network."""

import ctypes
from functools import partial

import torch
from threadpoolctl import threadpool_limits

from backbone.convolutions import depthwise, winograd
from core.environment import warn_once
from core.plugins import is_shipped
from scroll.embedding.machine import layout_for
from scroll.embedding.precision import keep_depthwise_in_float32
from scroll.ground.errors import InputError
from scroll.heads.registry import lift_of

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def reuse_memory() -> None:
    """Let a process keep the memory that tensors give back, where the C library is glibc: by
    default large blocks go back to the kernel and are mapped again at every step, 4 to 7 % of its
    time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def share_cores(model) -> None:
    """Give the products of numpy and scipy one core, but where sums of a lift are counted.

    Between torch's layers they are small, and their threads, waiting for more, would take cores
    from torch's: on two cores f* on 10,000 images takes 18 s, with them 38."""
    learner = getattr(model, 'learner', None)
    lifted = learner is not None and lift_of(learner.get_params(), 1) is not None
    threadpool_limits(torch.get_num_threads() if lifted else 1, user_api='blas')


def arrange(model, precision: str = 'float32') -> str:
    """Let networks that a method trains have this precision, and on a CPU keep the channels of a
    pixel together, where they can, and convolve with fewer products, or faster ones. Returns the
    precision that they have: networks that are not of this project have their own.

    A method that trains none, as SCROLL, arranges its backbone itself: its digests depend on it. On
    GPUs float32 gains nothing by the layout."""
    if model.opt is None:
        return precision
    networks = [
        module
        for module in model.modules()
        if hasattr(module, 'precision') and is_shipped(type(module))
    ]
    if precision == 'bfloat16' and not networks:
        warn_once(
            f'--precision bfloat16 has no effect on a network of type {type(model.net).__name__}'
        )
        precision = 'float32'
    for network in networks:
        network.precision = precision
    if model.device.type == 'cpu':
        for module in model.modules():
            if hasattr(module, 'channels_last') and is_shipped(type(module)):
                module.channels_last = layout_for(module) == torch.channels_last
                for conv in module.modules() if module.channels_last else ():
                    # hooks, weights, copies stay
                    if precision == 'float32' and winograd.suits(conv):
                        conv._conv_forward = winograd.convolve
                    elif depthwise.suits(conv):
                        conv._conv_forward = partial(depthwise.convolve, conv.stride, conv.padding)
                    elif _is_pointwise(conv):
                        # Changes no pixel. On one thread torch gives 1x1 convolutions of few
                        # images to oneDNN, in half the time, only if they are dilated.
                        conv.dilation = 2, 2
        if precision == 'bfloat16':
            keep_depthwise_in_float32(model)
    return precision


def _is_pointwise(module) -> bool:
    return isinstance(module, torch.nn.Conv2d) and module.kernel_size == module.stride == (1, 1)


def optimise(net, level: int) -> None:
    """`-O`: 1 lets float32 products use TF32, 2 bfloat16; 3 also compiles the network. Changes last
    bits.
    """
    torch.set_float32_matmul_precision(('highest', 'high', 'medium', 'medium')[level])
    if level == 3:
        try:
            torch.compile(lambda x: x + 1)(torch.zeros(2, device=next(net.parameters()).device))
        except Exception as error:  # compilers raise anything
            raise InputError(
                f'-O 3: torch.compile does not work on this machine ({type(error).__name__}: '
                f'{error}); use -O 2'
            ) from error
        net.compile()
