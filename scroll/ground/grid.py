"""The grid of features: unit vectors in whole multiples of 2^-18, so that their sums are exact.

>>> quantise([[3.0, 4.0]]).tolist(), GRID              # 0.6 and 0.8, in units of 2^-18
([[157286, 209715]], 262144)
"""

import hashlib
import json
import re
from fractions import Fraction
from math import isqrt

import numpy as np

from scroll.ground.errors import InputError

GRID_BITS = 18  # features are integers in units of 2^-GRID_BITS
GRID = 1 << GRID_BITS
PRECISION = 'float32'  # of features as they are taken in
_CACHED = 1 << 15  # numbers of a block that caches hold


def widened(numbers):
    """Return tensors of bfloat16 and float8, and arrays of the types of `ml_dtypes`, which numpy
    itself does not know, as float32, which holds them exactly; everything else as it is."""
    if re.match(r'(torch\.)?(bfloat|float8)', str(getattr(numbers, 'dtype', ''))):
        return numbers.float() if hasattr(numbers, 'float') else numbers.astype(np.float32)
    return numbers


def quantise(features, as_float32: bool = False, first: int = 0) -> np.ndarray:
    """Return unit rows on the grid: 2^18 x / |x| for each row x, rounded to the nearest integers,
    ties to even.

    The exact quotient is rounded: where float64 cannot tell on which side of a tie it lies,
    integers decide. So a row's result is a function of its numbers alone, whatever the machine or
    the other rows.

    features: numbers (N, d), taken as float64; denormals of float32 and float64 as 0. A zero row
    stays zero. as_float32: round them first, as `intake` does. first: number of the first row, for
    errors. Returns int32 (N, d) in units of 2^-18. InputError: not a finite 2-D numeric array."""
    try:
        features = np.asarray(widened(features))
    except ValueError as error:
        raise InputError(f'features are not a table of numbers: {error}') from error
    if features.ndim != 2 or features.dtype.kind not in 'fiu' or features.shape[1] == 0:
        raise InputError(
            f'features have shape {features.shape} and dtype {features.dtype}: expected '
            'numbers (N, d)'
        )
    out = np.empty(features.shape, np.int32)
    rows = max(_CACHED // features.shape[1], 1)
    for start in range(0, len(features), rows):
        block = features[start : start + rows]
        if as_float32 and block.dtype != np.float32:
            block = intake(block, first + start)
        out[start : start + rows] = _quantised(block, first + start)
    return out


def _quantised(features: np.ndarray, first: int) -> np.ndarray:
    """Return `quantise` of a block that caches hold, as float64."""
    x = features.astype(np.float64, order='C')
    with np.errstate(over='ignore', invalid='ignore'):
        squares = np.einsum('nd,nd->n', x, x)
    special = np.flatnonzero(~((squares > 2.0**-100) & (squares < 2.0**600)))
    if len(special):  # squares overflow or vanish, or denormals matter
        rows = _without_denormals(features[special])
        largest = np.abs(rows).max(axis=1, keepdims=True)
        bad = ~np.isfinite(largest)
        if bad.any():
            row = first + int(special[bad.argmax()])
            raise InputError(f'the features of sample {row} are not finite')
        x[special] = rows / np.where(largest > 0, largest, 1)
        squares[special] = np.maximum(np.square(x[special]).sum(axis=1), largest[:, 0] == 0)
    x *= (GRID / np.sqrt(squares))[:, None]
    out = np.rint(x)
    # d / 2 + 4 roundings by 2^-53 of at most 2^18 lie between `x` and the exact quotient: allow for
    # twice that
    limit = 0.5 - (features.shape[1] + 8) * 2.0 ** (GRID_BITS - 53)
    x -= out
    np.abs(x, out=x)
    if x.max(initial=0) > limit:
        for row in np.flatnonzero(x.max(axis=1) > limit):
            unsure = np.flatnonzero(x[row] > limit)
            exact = _without_denormals(features[row]).tolist()
            out[row, unsure] = _rounded_quotients(exact, unsure)
    return out


def _without_denormals(features: np.ndarray) -> np.ndarray:
    """Return float64: processors may take denormals, of float32 and float64, for 0."""
    if features.dtype.kind == 'f' and features.itemsize in (4, 8):
        features = np.where(np.abs(features) < np.finfo(features.dtype).tiny, 0, features)
    return features.astype(np.float64)


def intake(features, first: int = 0) -> np.ndarray:
    """Round numbers (N, d) to float32, as a learner of feature vectors does before `quantise`, so
    that a number and its float32 copy are one. Numbers below 2^-126 in size, which float32 holds
    with fewer than 24 bits, become 0, as on some processors. first: as in `quantise`. InputError: a
    value is beyond float32."""
    features = np.asarray(features)
    if features.dtype.kind not in 'fiu':
        return features
    with np.errstate(over='ignore'):
        out = features.astype(np.float32)
    if features.dtype.kind == 'f':
        out += 0  # never -0.0
        small = (np.abs(features) < 2.0**-126) & (features != 0)
        if small.any():
            exact = features[small].astype(np.float64)  # which has no denormals here
            rounded_up = np.abs(exact) >= 2.0**-126 - 2.0**-150
            out[small] = np.where(rounded_up, np.copysign(2.0**-126, exact), 0)
    beyond = ~np.isfinite(out)
    if beyond.any() and np.isfinite(features[beyond]).any():
        row = first + np.argwhere(beyond & np.isfinite(features))[0][0]
        raise InputError(
            f'sample {row} has values beyond float32, to which features are rounded: scale them'
        )
    return out


def _rounded_quotients(x: list[float], columns) -> list[int]:
    """Return entries of 2^18 x / |x|, rounded exactly; ties to even. x: floats, not all zero."""
    # every float64 is a multiple of 2^-1074
    x = [int(Fraction(value) * (1 << 1074)) for value in x]
    squares = sum(value * value for value in x)
    out = []
    for column in columns:
        value = x[column]
        square = (value << GRID_BITS + 1) ** 2
        twice = isqrt(square // squares)  # floor(2 t), t the absolute value of the quotient
        nearest = (twice + 1) // 2
        if twice * twice * squares == square:  # 2 t is an integer: with an odd one t is a tie
            nearest -= twice % 2 and nearest % 2
        out.append(nearest if value >= 0 else -nearest)
    return out


def on_grid(features, dim: int | None = None) -> np.ndarray:
    """Return features as an array. InputError unless they are integers (N, d), from -2^18 to
    2^18.
    """
    features = np.asarray(features)
    if features.ndim == 2 and dim and features.shape[1] != dim:
        raise InputError(f'there are {features.shape[1]} features: expected {dim}')
    if features.ndim != 2 or features.dtype.kind not in 'iu':
        raise InputError(
            f'features have shape {features.shape} and dtype {features.dtype}: '
            f'expected integers (N, {dim or "d"})'
        )
    if int(features.min(initial=0)) < -GRID or int(features.max(initial=0)) > GRID:
        raise InputError(
            f'features are off the grid: expected integers from -{GRID} to {GRID}, as '
            '`scroll.ground.grid.quantise` makes them'
        )
    return features


def check_quantised(features, dim: int | None = None) -> None:
    """InputError unless `quantise` can have made the features: `on_grid`, rows of length 0 or,
    rounded, 2^18.
    """
    exact = on_grid(features, dim).astype(np.float64)
    length = np.sqrt(np.einsum('nd,nd->n', exact, exact))
    wrong = (np.abs(length - GRID) > 0.5 * exact.shape[1] ** 0.5 + 0.01) & (length > 0)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f'the feature of sample {first} has length {length[first] / GRID:.6g}: expected '
            f'unit length on a grid of 2^-{GRID_BITS}, as quantise gives it'
        )


def little_endian(array) -> np.ndarray:
    """Return the array as digests and files have it on every machine: C-contiguous, the lowest byte
    first.
    """
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder('<'), order='C', copy=False)


def native(array) -> np.ndarray:
    """Return the array with its bytes in the order of this machine."""
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder('='), copy=False)


def digest_of(facts, *arrays: np.ndarray) -> str:
    """Return the SHA-256, in hex, of facts that JSON holds, and of integers, eight bytes each."""
    sha = hashlib.sha256(json.dumps(facts).encode())
    for array in arrays:
        sha.update(np.ascontiguousarray(array, '<i8').tobytes())
    return sha.hexdigest()


def sample_keys(samples: np.ndarray) -> np.ndarray:
    """Return the first eight bytes of the SHA-256 of each sample's bytes (`little_endian`), uint64
    (N,).
    """
    rows = little_endian(samples)[:, None]  # arrays, also where a sample is a number
    digests = [hashlib.sha256(row.tobytes()).digest()[:8] for row in rows]
    return np.frombuffer(b''.join(digests), '>u8').astype(np.uint64)
