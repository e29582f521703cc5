"""Unit features -> logits in torch, for every kind of predictor: what stands between psi' and the loss.

The classifier is trained; a lift's random matrix and the forms of `qda` stay as they are.
"""
from math import pi

import numpy as np
import torch

from scroll.grid import GRID, GRID_BITS
from scroll.lift import Lift


def logits(units: torch.Tensor, weight, bias, lift: Lift = None, forms: torch.Tensor = None) -> torch.Tensor:
    """Differentiable logits (B, K) of unit features (B, d). weight: (K, D). bias: (K,). lift: of the
    predictor. forms: (K, D, D), or None."""
    h = units if lift is None else lifted(units, lift)
    out = h @ weight.T + bias
    if forms is not None:
        out = out - torch.einsum('bd,kde,be->bk', h, forms, h)
    return out


def offsets(lift: Lift) -> np.ndarray:
    """b of a `fourier` lift, float64 (M,), in turns."""
    return lift.offsets * 2.0 ** -(GRID_BITS + lift.TURN_BITS)


def lifted(units: torch.Tensor, lift: Lift, matrix=None, angles=None, exact: bool = False,
           table=None) -> torch.Tensor:
    """h (B, D) of unit features (B, d), as `Lift`, in torch. matrix, angles: the lift's R and `offsets`, if
    the caller has them as tensors. exact: units are whole numbers on the grid, float64, and h is what `Lift`
    gives; else h is not rounded, and has gradients. table: `cosine_table` as a tensor, of an exact `fourier`
    lift."""
    if matrix is None:
        matrix = torch.as_tensor(lift.matrix, dtype=units.dtype, device=units.device)
    one, products = float(GRID) if exact else 1.0, units @ matrix
    if lift.kind == 'relu':
        random = torch.relu(products) * 2.0 ** -lift.shift
    elif lift.kind == 'square':
        random = (products * products / (8 * one)).clamp(max=one)
    else:
        if angles is None:
            angles = torch.as_tensor(offsets(lift), dtype=units.dtype, device=units.device)
        turns = products * (lift.turns * 2.0 ** -lift.TURN_BITS / one) + angles
        random = (table[((turns - turns.floor()) * len(table)).long()] if exact
                  else torch.cos(2 * pi * turns) / 16)
    return torch.cat([units, random.floor().clamp(max=one) if exact else random], dim=1)
