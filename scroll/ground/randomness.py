"""One random stream per concern: what one part of a run draws never shifts what another part sees.

With another release of numpy or torch a seed may stand for another schedule, `random` buffer,
shuffle or augmentation. SCROLL's statistics, f_T, lifts and other buffers, given the schedule, draw
nothing.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def stream_seed(seed: int, concern: str) -> int:
    """Return a 63-bit seed for one concern ('schedule', 'shuffle', ...), derived from the run's
    seed.
    """
    return int.from_bytes(hashlib.sha256(f'{seed}/{concern}'.encode()).digest()[:8], 'big') >> 1


def numpy_stream(seed: int, concern: str) -> np.random.Generator:
    """Return the numpy generator of a concern."""
    return np.random.default_rng(stream_seed(seed, concern))


def torch_stream(seed: int, concern: str) -> 'torch.Generator':
    """Return the torch generator of a concern, on the CPU."""
    import torch

    return torch.Generator().manual_seed(stream_seed(seed, concern))
