"""Exact sums of products of features, by matrix products in which nothing is rounded.

Products of features on the grid are below 2^36, so float64 adds 2^17 of them exactly. Random
features of 7 bits (`relu7`) have products below 2^14: float32 adds at least 1,000 of them, and
8-bit kernels, also those that add pairs of products in 16 bits, as many. To these kernels a feature
on the grid is three digits.
"""

import sys
from functools import lru_cache

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.sparse import csc_array

from scroll.ground.grid import GRID, GRID_BITS
from scroll.sums.lift import Lift

_EXACT_ROWS = 1 << 17  # products that float64 adds exactly
_ROWS = 1 << 12  # of a block
# columns, and numbers of all rows, of a product in float64
_PANEL = (1 << 11) + 1
_NUMBERS = 1 << 19
_STRIP = 1 << 7  # columns that are added to a Gram matrix at once
# columns of a product of 7 bits, and numbers at a time
_FEW = 1 << 9
_SHORT_NUMBERS = 1 << 28
_POWERS = 128 ** np.arange(3)  # of digits from -64 to 63: with three of them a feature is written
_EXACT = 1 << 24  # float32 has all whole numbers up to here


def lifted_blocks(features: np.ndarray, lift: Lift | None = None):
    """Yield (rows, h of these rows), so that not all of h is in memory at once."""
    return [(slice(None), features)] if lift is None else lift.blocks(features)


def add_products(gram: np.ndarray, features: np.ndarray, lift: Lift | None = None) -> None:
    """Add sum [h; 1][h; 1]^T over quantised features (N, d) to gram, int64 (D + 1, D + 1),
    exactly.
    """
    if lift is not None and lift.low_bits:
        rows = min(max(_SHORT_NUMBERS // lift.width, 1), 1 << 17)  # int32 holds their sums
        for start in range(0, len(features), rows):
            _add_seven_bit(gram, features[start : start + rows], lift)
        return
    for _, lifted in lifted_blocks(features, lift):
        for start in range(0, len(lifted), _EXACT_ROWS):
            _add_in_float64(gram, lifted[start : start + _EXACT_ROWS])


def _add_in_float64(gram: np.ndarray, h: np.ndarray) -> None:
    """Add products of at most 2^17 rows h, by panels of columns: half of the products is enough,
    and float64 holds their sums."""
    size = len(gram)
    rows = max(min(_ROWS, _NUMBERS // size, len(h)), 1)
    block = np.full((rows, size), float(GRID))  # last: the constant feature
    for i in range(0, size, _PANEL):
        j = min(i + _PANEL, size)
        square = np.zeros((j - i, j - i), order='F')
        rest = np.zeros((size - j, j - i))
        for start in range(0, len(h), rows):
            part = h[start : start + rows]
            x = block[: len(part)]
            x[:, :-1] = part
            square = dsyrk(1.0, x[:, i:j].T, 1.0, square, overwrite_c=True, lower=True)
            if len(rest):
                rest += x[:, j:].T @ x[:, i:j]
        for start in range(0, j - i, _STRIP):
            columns = slice(start, start + _STRIP)
            products = np.vstack([square[start:, columns], rest[:, columns]]).astype(np.int64)
            few = products[: products.shape[1]]  # zeros above its diagonal
            few += np.tril(few, -1).T
            _add_panel(gram, i + start, products)


def class_sums(
    features: np.ndarray, index: np.ndarray, classes: int, lift: Lift | None = None
) -> np.ndarray:
    """Return sums of h over the features of each class, int64 (K, D).

    features: (N, d) on the grid.
    index: (N,), the number of each feature's class.
    classes: K; none is without features."""
    if lift is not None and lift.low_bits:
        order = np.argsort(index, kind='stable')
        random = np.zeros((classes, lift.width), np.int64)
        for start in range(0, len(order), _ROWS):
            part = order[start : start + _ROWS]
            first = np.flatnonzero(np.diff(index[part], prepend=-1))
            few = np.add.reduceat(lift.seven_bit(features[part]), first, axis=1, dtype=np.int32)
            random[index[part][first]] += few.T
        return np.hstack([class_sums(features, index, classes), random << lift.low_bits])
    size = features.shape[1] if lift is None else lift.size
    sums = np.zeros((classes, size), np.int64)
    for rows, h in lifted_blocks(features, lift):
        of_rows = index[rows]
        for start in range(0, len(h), _ROWS):  # int32 holds their sums
            part = h[start : start + _ROWS]
            seen, places = np.unique(of_rows[start : start + _ROWS], return_inverse=True)
            ones = np.ones(len(part), np.int32)
            each = csc_array((ones, places, np.arange(len(part) + 1)), (len(seen), len(part)))
            sums[seen] += each @ part.astype(np.int32, copy=False)
    return sums


def _add_panel(gram: np.ndarray, i: int, products: np.ndarray) -> None:
    """Add columns i to j of a symmetric matrix, from row i on, and what mirrors them."""
    j = i + products.shape[1]
    gram[i:, i:j] += products
    gram[i:j, j:] += products[j - i :].T


def _add_seven_bit(gram: np.ndarray, features: np.ndarray, lift: Lift) -> None:
    """Add products as `add_products`, of a lift whose random features have 7 bits; theirs are
    nearly all products.
    """
    d = lift.dim
    bits = lift.low_bits
    kernel = _by_torch() or _by_numpy
    random = lift.seven_bit(features)
    digits = _digits(features)
    parts = [
        (np.ascontiguousarray(random[:, part]), kernel(np.ascontiguousarray(digits[:, part])))
        for part in _parts(random, digits)
    ]
    ends = np.r_[:d, len(gram) - 1]
    for i in range(0, lift.width, _FEW):  # at most 2^14 a column
        products = sum(
            kernel(short[i : i + _FEW])(short[i:]).astype(np.int32) for short, _ in parts
        )
        _add_panel(gram[d:-1, d:-1], i, np.asarray(products).astype(np.int64) << 2 * bits)
        mixed = np.zeros((min(_FEW, lift.width - i), 1 + len(_POWERS) * d), np.int64)
        for short, by_digits in parts:
            mixed += by_digits(short[i : i + _FEW]).astype(np.int64)
        features_ = _POWERS @ mixed[:, 1:].reshape(len(mixed), -1, d)
        mixed = np.c_[features_, mixed[:, 0] << GRID_BITS] << bits
        gram[d + i : d + i + len(mixed), ends] += mixed
        gram[ends, d + i : d + i + len(mixed)] += mixed.T
    unlifted = np.zeros((d + 1, d + 1), np.int64)
    add_products(unlifted, features)
    gram[np.ix_(ends, ends)] += unlifted


def _digits(features: np.ndarray) -> np.ndarray:
    """Return ones, and the features as sums of 128^k times numbers from -64 to 63, by k, int8 (1 +
    3 d, N).
    """
    left = features.T
    digits = [np.ones((1, len(features)), np.int8)]
    for _ in _POWERS:
        digits.append(((left + 64 & 127) - 64).astype(np.int8))
        left = left - digits[-1] >> 7
    return np.vstack(digits)


def _parts(*arrays: np.ndarray) -> list[slice]:
    """Return slices of columns of arrays, whole numbers from -127 to 127, whose products add up
    exactly in float32: no sum of products of two rows is above the largest sum of squares of a
    row."""
    parts = []
    squares = np.zeros(1)
    size = _EXACT // 127**2
    for start in range(0, arrays[0].shape[1], size):
        some = (x[:, start : start + size].astype(np.float32) for x in arrays)
        more = np.concatenate([np.einsum('mn,mn->m', x, x) for x in some])
        if parts and (squares + more).max() < _EXACT:  # float32 rounds 2^24 + 1 to 2^24
            squares = squares + more
            parts[-1] = slice(parts[-1].start, start + size)
        else:
            squares = more
            parts.append(slice(start, start + size))
    return parts


def _by_numpy(y: np.ndarray):
    """Return x -> x y' of whole numbers, x from 0 to 127, in float32."""
    y = y.astype(np.float32).T
    return lambda x: x.astype(np.float32) @ y


@lru_cache(maxsize=1)
def _by_torch():
    """Return `_by_numpy` with torch's kernel for 8-bit integers, in half of the time; None if torch
    is not loaded, has no such kernel, or it is wrong on this machine where all numbers are as large
    as they can be."""
    torch = sys.modules.get('torch')
    if torch is None:
        return None

    def kernel(y):
        # none above 127
        packed = torch.ops.onednn.qlinear_prepack(torch.from_numpy(y.view(np.int8)), None)
        scales = torch.ones(len(y))
        zeros = torch.zeros(len(y), dtype=torch.int64)

        @torch.inference_mode()
        def times(x):
            x = torch.from_numpy(x)
            return torch.ops.onednn.qlinear_pointwise(
                x, 1.0, 0, packed, scales, zeros, None, 1.0, 0, torch.float32, 'none', [], ''
            ).numpy()

        return times

    try:
        largest = np.full((100, _EXACT // 127**2), 127, np.uint8)
        return kernel if (kernel(largest)(largest) == 127.0**2 * largest.shape[1]).all() else None
    except (RuntimeError, AttributeError):  # a torch without these kernels
        return None
