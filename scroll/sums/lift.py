"""Random features between backbone and sums: wider, in integers, and the same on every machine.

A linear classifier of u sees a Gram matrix of d features; of h = [u; phi(u R)] it sees d + M, and
what is not linear in u becomes linear in h (for streams: RanPAC, McDonnell et al. 2023; random
Fourier features, Rahimi and Recht 2007). h is on the grid that u is on, so sums of h are as exact
as sums of u, and u comes first in it, so the sums of a lift hold those of no lift.

R is drawn from SHAKE-256 of a text that names it, column after column: no release of a library
changes it, and a narrower lift is the beginning of a wider one.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from math import pi
from typing import ClassVar

import numpy as np

from scroll.ground.arguments import MAX_SEED, check_memory, number, one_of, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS
from scroll.ground.settings import LIFTS, MAX_LIFT_WIDTH

# products are exact
_MAX_DIM = dict.fromkeys(('relu', 'square'), 1 << 12) | {'fourier': 1 << 14}
SQUARE_BITS = 21  # of the square of a product, below those that are kept
_TABLE_BITS = 12  # the table has 2^12 cosines
_NORMAL_BITS = 32  # a weight of `fourier` is the number of ones among 32 bits, less half
# with it a product of 1 is a whole turn
_LEAST_BANDWIDTH = 1 / (2 * pi * (_NORMAL_BITS / 4) ** 0.5)
_BLOCK = 1 << 24  # numbers of h in a block


@dataclass(frozen=True)
class Lift:
    """Map u -> [u; phi(u R)], integers in units of 2^-18.

    relu: R has entries 0 (twice as often), 1 and -1; phi is max(0, .), shifted by s bits, the least
    s with 2^s >= sqrt(d), so that no number leaves the grid. |u R| is at most 2^18 sqrt(d), also on
    the way: float32 adds it exactly for d <= 4096.

    square: R as of relu; phi is x^2 / 8, at most 1. What is linear in h is quadratic in u.
    fourier: R has whole numbers near to normal (variance 8); phi(x) = 2^-4 cos(2 pi (x c + b)) with
    the offset b random and c such that h' h - u' u follows exp(-|u - u'|^2 / (2 bandwidth^2));
    angles and cosines are looked up. `scroll.adaptation.training.lifted` does the same with
    tensors.

    kind: 'relu', 'square' or 'fourier'.
    dim: d.
    width: M.
    seed: of R.
    bandwidth: of `fourier`.
    InputError: an invalid value."""

    kind: str
    dim: int
    width: int
    seed: int = 0
    bandwidth: float = 1.0
    TURN_BITS: ClassVar[int] = 16  # an angle is a multiple of 2^-16 turns

    def __post_init__(self):
        one_of('lift', self.kind, LIFTS)
        whole(f'features that lift {self.kind} takes, dim', self.dim, 1, _MAX_DIM[self.kind])
        whole('lift_dim', self.width, 1, MAX_LIFT_WIDTH)
        whole('lift_seed', self.seed, 0, MAX_SEED)
        number('lift_bandwidth', self.bandwidth, positive=True)
        for name, kind in (('dim', int), ('width', int), ('seed', int), ('bandwidth', float)):
            object.__setattr__(self, name, kind(getattr(self, name)))  # numpy's round otherwise
        if self.kind == 'fourier' and not 1 <= self.turns < 1 << self.TURN_BITS:
            raise InputError(
                f'lift_bandwidth {self.bandwidth:g}: expected a number from '
                f'{_LEAST_BANDWIDTH:.3g} to {_LEAST_BANDWIDTH * (1 << 16):.3g}'
            )

    def __getstate__(self) -> dict:
        return dict(vars(self))  # as of now: another thread may lift meanwhile

    @property
    def size(self) -> int:
        """Number of features of h, d + M."""
        return self.dim + self.width

    @property
    def shift(self) -> int:
        """Shift s of `relu`."""
        return ((self.dim - 1).bit_length() + 1) // 2

    @property
    def turns(self) -> int:
        """Turns for a product of 1, c of `fourier`, in units of 2^-16; 0 for other kinds."""
        share = min(_LEAST_BANDWIDTH / self.bandwidth, 1.0) if self.kind == 'fourier' else 0
        return round(share * (1 << self.TURN_BITS))

    @cached_property
    def matrix(self) -> np.ndarray:
        """Random matrix R, float32 whole numbers (d, M)."""
        count = self.dim * self.width
        fourier = self.kind == 'fourier'
        check_memory(
            f'the random matrix of lift {self}', count * (_NORMAL_BITS + 8 if fourier else 12)
        )
        if fourier:
            bits = np.unpackbits(self._stream('', count * _NORMAL_BITS // 8)).reshape(
                -1, _NORMAL_BITS
            )
            weights = bits.sum(axis=1, dtype=np.int32) - _NORMAL_BITS // 2
        else:
            bytes_ = self._stream('', -(-count // 4))  # two bits each: 0 1 | 2 -> 1, 3 -> -1
            pairs = (bytes_[:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3).reshape(-1)[:count]
            weights = (pairs == 2).astype(np.float32) - (pairs == 3)
        return np.ascontiguousarray(weights.reshape(self.width, self.dim).T, np.float32)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Offsets b of `fourier`, int64 (M,), in units of 2^-34 turns."""
        drawn = np.frombuffer(self._stream(' offsets', 4 * self.width), '<u4').astype(np.int64)
        return drawn << GRID_BITS + self.TURN_BITS - 32

    def _stream(self, more: str, size: int) -> np.ndarray:
        text = f'scroll lift {self.kind} {self.seed} {self.dim}{more}'
        return np.frombuffer(hashlib.shake_256(text.encode()).digest(size), np.uint8)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return h, int32 (N, d + M), of features (N, d) on the grid."""
        return np.concatenate([h for _, h in self.blocks(np.asarray(features))])

    def blocks(self, features: np.ndarray):
        """Yield (rows, h of these rows), so that not all of h is in memory at once."""
        rows = max(_BLOCK // self.size, 1)
        for start in range(0, max(len(features), 1), rows):
            part = slice(start, start + rows)
            yield part, np.hstack([features[part].astype(np.int32), self._phi(features[part])])

    def _phi(self, features: np.ndarray) -> np.ndarray:
        """Return the random features, int32 (N, M)."""
        if self.kind == 'fourier':
            angles = (features.astype(np.float64) @ self.matrix.astype(np.float64)).astype(np.int64)
            angles = angles * self.turns + self.offsets >> GRID_BITS + self.TURN_BITS - _TABLE_BITS
            return cosine_table()[angles & (1 << _TABLE_BITS) - 1]
        longest = int(np.abs(features).sum(axis=1, dtype=np.int64).max(initial=0))
        if longest > 1 << 24:
            raise InputError(
                f'a feature whose numbers add up to {longest / GRID:.3g} cannot be lifted: '
                'expected unit length'
            )
        products = (features.astype(np.float32) @ self.matrix).astype(np.int32)
        if self.kind == 'relu':
            return np.clip(products >> self.shift, 0, GRID)
        squares = products.astype(np.int64) ** 2 >> SQUARE_BITS
        return np.minimum(squares, GRID).astype(np.int32)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that h depends on, except u."""
        sha = hashlib.sha256(
            json.dumps(['scroll-lift-1', self.kind, self.dim, self.width]).encode()
        )
        sha.update(self.matrix.astype('i1').tobytes())
        if self.kind == 'fourier':
            sha.update(str(self.turns).encode() + self.offsets.astype('<i8').tobytes())
            sha.update(cosine_table().astype('<i4').tobytes())
        return sha.hexdigest()

    def __str__(self) -> str:
        return f'{self.kind} {self.width}, seed {self.seed}' + (
            f', bandwidth {self.bandwidth:g}' if self.kind == 'fourier' else ''
        )


def cosine_table() -> np.ndarray:
    """Return 2^14 cos(2 pi i / 2^12), rounded, int32 (2^12,): no entry is so near to a tie that
    libraries could differ.
    """
    cosines = np.cos(np.arange(1 << _TABLE_BITS) * (2 * pi / (1 << _TABLE_BITS)))
    return np.rint(cosines * (GRID >> 4)).astype(np.int32)
