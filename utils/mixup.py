"""MixUp (Zhang et al. 2018), as MixMatch has it (Berthelot et al. 2019): the
first of two stays the larger part."""
import numpy as np
import torch


def mixup(pairs, alpha: float) -> list:
    """share * a + (1 - share) * b for each pair of tensors (a, b), with one share for all.

    It is max(l, 1 - l) for l from Beta(alpha, alpha), by numpy's global generator. Give inputs and
    (soft or one-hot) labels as two pairs.

    Args:
        pairs: of tensors of the same shape. alpha: above 0; 0: nothing is mixed.
    """
    share = np.random.beta(alpha, alpha) if alpha > 0 else 1.0
    share = max(share, 1 - share)
    mixed = []
    for a, b in pairs:
        if a.shape != b.shape:
            raise ValueError(f'mixup: tensors of shapes {tuple(a.shape)} and {tuple(b.shape)}')
        mixed.append(torch.lerp(b, a, share))
    return mixed
