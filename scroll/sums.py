"""Sums of products of features on the grid, exact in integers; what tells that numbers are no such sums."""
import numpy as np

from scroll.grid import GRID
from scroll.lift import Lift

_PRODUCT = 1 << 12                   # rows per matrix product; exactness would allow 2^17, caches like less
_PANEL, _NUMBERS = 1 << 10, 1 << 23  # columns, and numbers of all rows, of a matrix product


def contradiction(counts: np.ndarray, sums: np.ndarray, gram: np.ndarray) -> str:
    """Why no samples on the grid can have these statistics (see `Sums`), in short; '' where nothing says so.

    Checked in integers, none of which wraps: each sum and product is within its bound, the constant feature
    has the sums that follow from the others, and each diagonal entry is at least the least sum of squares of
    integers with the sums of the classes. Then the scatter within classes, G - sum_c s_c s_c^T / n_c, must be
    positive semidefinite: its Cholesky decomposition, scaled to a diagonal of at most 1, may not fail after
    more than the largest rounding error (Higham 2002, theorem 10.7) was added, so what is refused is certain.
    """
    if gram.ndim == 3:
        each = (contradiction(counts[k:k + 1], sums[k:k + 1], gram[k]) for k in range(len(counts)))
        return next(filter(None, each), '')
    if not _within(sums, GRID * counts[:, None]) or (sums[:, -1] != GRID * counts).any():
        return 'class sums that samples on the grid cannot have'
    constant = (gram[-1] == GRID * sums.sum(axis=0)).all()
    if not _within(gram, GRID * GRID * counts.sum()) or (gram != gram.T).any() or not constant:
        return 'a Gram matrix that does not go with the sums'
    some, diagonal = np.maximum(counts, 1)[:, None], gram.diagonal()
    mean, rest = np.divmod(sums, some)          # the squares are least where all are one of mean, mean + 1
    least = (some * mean * mean + rest * (2 * mean + 1)).sum(axis=0)
    if (diagonal < least).any() or gram[diagonal == 0].any():
        return 'a Gram matrix too small for the sums'
    scale = 1 / np.sqrt(np.maximum(diagonal, 1))
    between = sums / np.sqrt(some) * scale
    rounding = 2 * len(gram) * (len(gram) + len(counts) + 20) * np.finfo(float).eps
    try:
        np.linalg.cholesky(gram * scale * scale[:, None] - between.T @ between + rounding * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return 'a Gram matrix too small for the sums'
    return ''


def _within(array: np.ndarray, bound) -> bool:
    """Whether -bound <= array <= bound; the absolute value of the least int64 would be negative."""
    return bool(((array >= -bound) & (array <= bound)).all())


def add_products(gram: np.ndarray, features: np.ndarray, lift: Lift = None) -> None:
    """Add sum [h; 1][h; 1]^T over quantised features (N, d) to gram, int64 (D + 1, D + 1), exactly."""
    size = len(gram)
    rows = max(min(_PRODUCT, _NUMBERS // size, len(features)), 1)
    block = np.full((rows, size), float(GRID))                                  # last: the constant feature
    for _, lifted in lifted_blocks(features, lift):
        for start in range(0, len(lifted), rows):
            part = lifted[start:start + rows]
            x = block[:len(part)]
            x[:, :-1] = part
            for i in range(0, size, _PANEL):                                    # of a wide one half is enough
                products = (x[:, i:i + _PANEL].T @ x[:, i:]).astype(np.int64)
                gram[i:i + _PANEL, i:] += products
                gram[i + _PANEL:, i:i + _PANEL] += products[:, _PANEL:].T


def lifted_blocks(features: np.ndarray, lift: Lift = None):
    """Yield (rows, h of these rows), so that not all of h is in memory at once."""
    return [(slice(None), features)] if lift is None else lift.blocks(features)
