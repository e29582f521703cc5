"""Switches of torch that all threads of a process share, set for the time of a block."""

import os
import threading
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_LOCK = threading.RLock()  # of the blocks, which take turns
# a process is forked between blocks, when each switch is as the user has set it
os.register_at_fork(
    before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
)


@contextmanager
def switches(ieee: bool = False, nnpack: bool = True, **flags):
    """A block in which cuDNN has these flags and, with `ieee`, rounds no factors; without `nnpack`
    torch does not use NNPACK. One thread at a time is in such a block.

    `torch.backends.cudnn.flags` fails, or is not heeded, where torch.backends.fp32_precision was
    set (torch 2.14)."""
    cudnn: Any = torch.backends.cudnn
    settings = [(cudnn, name, value) for name, value in flags.items()]
    if ieee and hasattr(cudnn, 'conv'):
        settings.append((cudnn.conv, 'fp32_precision', 'ieee'))
    elif ieee:
        settings.append((cudnn, 'allow_tf32', False))
    with _LOCK, ExitStack() as restoring:
        for place, name, value in settings:
            # first: an interrupt may come between
            restoring.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        if not nnpack:
            restoring.callback(torch._C._set_nnpack_enabled, torch._C._get_nnpack_enabled())
            torch._C._set_nnpack_enabled(False)
        yield
