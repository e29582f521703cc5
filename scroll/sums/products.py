"""Exact sums of products of features, by matrix products in which nothing is rounded.

Products of features on the grid are below 2^36, so float64 adds 2^17 of them exactly.
"""

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.sparse import csc_array

from scroll.ground.grid import GRID
from scroll.sums.lift import Lift

_EXACT_ROWS = 1 << 17  # products that float64 adds exactly
_ROWS = 1 << 12  # of a block
# columns, and numbers of all rows, of a product in float64
_PANEL = (1 << 11) + 1
_NUMBERS = 1 << 19
_STRIP = 1 << 7  # columns that are added to a Gram matrix at once


def lifted_blocks(features: np.ndarray, lift: Lift | None):
    """Yield (rows, h of these rows), so that not all of h is in memory at once."""
    return [(slice(None), features)] if lift is None else lift.blocks(features)


def add_products(gram: np.ndarray, features: np.ndarray, lift: Lift | None) -> None:
    """Add sum [h; 1][h; 1]^T over quantised features (N, d) to gram, int64 (D + 1, D + 1),
    exactly.
    """
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
            at = i + start
            gram[at:, at : at + products.shape[1]] += products
            gram[at : at + len(few), at + len(few) :] += products[len(few) :].T


def class_sums(
    features: np.ndarray, index: np.ndarray, classes: int, lift: Lift | None
) -> np.ndarray:
    """Return sums of h over the features of each class, int64 (K, D).

    features: (N, d) on the grid.
    index: (N,), the number of each feature's class.
    classes: K; none is without features."""
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
