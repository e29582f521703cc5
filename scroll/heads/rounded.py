"""Integer linear systems, solved and rounded correctly: the same integers on every machine, with
every BLAS.

(G + l I) X = R with integers G, l > 0 and R has one rational solution if G has no eigenvalue below
-l / 2: it is positive semidefinite, or rounded entry by entry from a matrix that is. The system is
solved in float64 and refined (Wilkinson 1963; Higham 2002, chapter 12), with residuals that are
exact: G and each correction are cut into integers so short that every sum of their products is an
integer below 2^53, which float64 holds in whatever order it is added. The eigenvalues of G + l I
are at least l / 2, so what is still missing of a column of X is no longer than 2 / l times its
residual. Entries are rounded once that bound no longer reaches across a rounding boundary; columns
where it does are refined further.
"""

import copy
import itertools
from fractions import Fraction
from functools import reduce

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from scroll.ground.errors import InputError

_RADIX = 22  # bits of a limb: numbers are sums of limbs l_i 2^(22 i), |l_i| <= 2^21
_BASE = 2.0**_RADIX
_TIE = 64  # within 2^-64 of a unit of the middle counts as the middle: to even
_COLUMNS = 1 << 8  # solved for at once; caches hold them
_CONDITION = 40  # l is at least 2^-40 of G's trace: then float64 steers it well
_EXACT_SUM = 1 << 12  # products of 19 and 22 bits whose sum is below 2^53


def scaled(array: np.ndarray, times, over) -> np.ndarray:
    """Return array times / over, rounded to integers, half to even: int64.

    array: int64, of results below 2^62.
    times, over: whole numbers, or arrays of them, from 1 to 2^31."""
    whole, rest = np.divmod(array, over)
    more, rest = np.divmod(rest * times, over)
    out = whole * times + more
    return out + (2 * rest + out % 2 > over)


def least_shift(gram: np.ndarray) -> int:
    """Return the least l for which (gram + l I) X = R can be solved: 2^-40 of the trace, rounded
    up; 1 if that is 0."""
    return -(-exact_trace(gram) >> _CONDITION) or 1


def exact_trace(matrix: np.ndarray) -> int:
    """The trace of an int64 matrix, which int64 may not hold."""
    return sum(np.diagonal(matrix).tolist())


class Refinement:
    """X = (gram + shift I)^-1 right, to more bits with every step.

    gram: int64 (n, n), no eigenvalue below -shift / 2, n < 2^16.
    shift: int, `least_shift` or more.
    right: int64 (n, K).

    Attributes:
        exponent: X is known in units of 2^exponent.
        pieces: [(float64 (n, K), whole numbers, e), ...]: X is the sum of pieces 2^e, up to
            `error`.

    InputError: float64 cannot steer the solution; says so if `gram` has another eigenvalue than it
    may."""

    def __init__(self, gram: np.ndarray, shift: int, right: np.ndarray):
        size = len(gram)
        top = int(np.abs(gram).max())
        # of a correction: sums stay below 2^53
        self._bits = 52 - (_RADIX - 1) - (size + 1).bit_length()
        count = _count(max(top, shift))
        identity = np.eye(size)
        digits = limbs_of(np.array([shift], object), count)
        gram_limbs = limbs_of(gram, count)
        self._system = [limb + digit * identity for limb, digit in zip(gram_limbs, digits)]
        try:
            self._factor = cho_factor(gram + float(shift) * identity)
        except LinAlgError as error:
            raise _unsolvable(gram, shift) from error
        self._largest = size * top + shift
        self._arguments = gram, shift
        self._scale_bits = 0  # the residual is in units of 2^(exponent - scale_bits)
        self._begin(right)

    def _begin(self, right: np.ndarray) -> None:
        largest = max(self._largest, int(np.abs(right).max()))
        self._residual = limbs_of(right, _count(largest << self._bits))
        self.exponent = 0
        self.pieces = []

    def of(self, right: np.ndarray) -> 'Refinement':
        """Return the refinement of another right side, before its first step; this one made
        none."""
        out = copy.copy(self)
        out._begin(right)
        return out

    def step(self) -> None:
        """Add one correction: of up to 21 bits for n = 512, of fewer where the matrix is
        ill-conditioned."""
        residual = _floats(self._residual)
        correction = cho_solve(self._factor, residual) * 2.0**-self._scale_bits
        excess = _exponent(correction) - self._bits + 1
        if not self.pieces and excess > 0:
            self._begin_coarser(excess)  # X has more bits above the point
            correction *= 2.0**-excess
        room = _RADIX * len(self._residual) - 3 - _exponent(residual)
        bits = min(self._bits - _exponent(correction), room)
        if bits < 1:
            raise _unsolvable(*self._arguments)
        piece = np.rint(correction * 2.0**bits)
        limbs = _shifted(self._residual, bits)  # now residual 2^bits - (gram + shift I) piece
        for limb, part in zip(limbs, self._system):
            limb[:] -= part @ piece
        self._residual = _carried(limbs)[: len(self._residual)]  # above, nothing is left
        self.exponent -= bits
        self.pieces.append((piece, self.exponent))

    def _begin_coarser(self, bits: int) -> None:
        """Solve (gram + shift I) 2^bits X' = right for X' = X 2^-bits."""
        limbs = [*_shifted(self._system, bits), np.zeros_like(self._system[0])]
        added = len(limbs) - len(self._system)
        self._system = _carried(limbs)
        self._residual += [np.zeros_like(self._residual[0]) for _ in range(added)]
        self._scale_bits = bits
        self.exponent = bits

    def error(self) -> np.ndarray:
        """Bounds on the Euclidean distance of each column from that of X, in units of 2^exponent:
        float64 (K,)."""
        lengths = np.linalg.norm(_floats(self._residual), axis=0)
        return 2.002 * lengths / (self._arguments[1] * 2.0**self._scale_bits)

    def value(self, part=np.asarray) -> np.ndarray:
        """X, or a part of it, in units of 2^exponent: Python's integers."""
        terms = [
            part(piece).astype(np.int64).astype(object) << exponent - self.exponent
            for piece, exponent in self.pieces
        ]
        return np.sum(terms, axis=0)

    def keep(self, columns: np.ndarray) -> None:
        """Go on with these columns only; bool (K,)."""
        self._residual = [limb[:, columns] for limb in self._residual]
        self.pieces = [(piece[:, columns], exponent) for piece, exponent in self.pieces]

    def rounded(self, grid: int) -> tuple[np.ndarray, np.ndarray]:
        """Return X in units of 2^grid, rounded half to even, int64 (n, K), and which entries are
        certain, bool (n, K); grid > exponent."""
        below = grid - self.exponent
        half = 1 << below - 1
        # X = whole 2^grid + rest 2^exponent
        whole = np.zeros(self.pieces[0][0].shape, np.int64)
        rest = np.zeros(whole.shape, np.int64 if below < 60 else object)
        for piece, exponent in self.pieces:
            values = piece.astype(np.int64)
            depth = grid - exponent
            if depth <= 0:
                whole += values << -depth
                continue
            if depth < 32:  # no piece has more bits
                whole += values >> depth
                values &= (1 << depth) - 1
            rest += values.astype(rest.dtype) << exponent - self.exponent
        carry = rest + half >> below
        rest -= carry << below  # now -half <= rest < half
        whole += carry.astype(np.int64)
        distance = (half - abs(rest)).astype(np.float64)  # to the next middle
        error = self.error()
        tolerance = 2.0 ** (below - _TIE)
        tie = distance + error <= tolerance
        odd = tie & (whole % 2 != 0)
        whole[odd] += np.sign(rest[odd]).astype(np.int64)
        return whole, tie | (distance - error > tolerance)


def _unsolvable(gram: np.ndarray, shift: int) -> InputError:
    """The error of a system that float64 cannot steer. Sums of samples that were all learned have
    no eigenvalue below -shift / 2, which v' (2 gram + shift I) v < 0, in integers, disproves."""
    direction = np.linalg.eigh(gram.astype(np.float64))[1][:, 0]
    v = np.rint(direction * (1 << 30)).astype(np.int64).astype(object)
    if 2 * (v @ (gram @ v)) + shift * (v @ v) < 0:
        return InputError(
            'the sums have a negative variance: something was removed that was never added'
        )
    return InputError(
        'these sums are too close to singular for float64: use a larger ridge lambda, or shrinkage'
    )


def grid_for(square: Fraction, bits: int) -> int:
    """Return the grid on which numbers with squares up to `square` have at most `bits` bits."""
    # the least exponent with square <= 4^exponent, or one less
    exponent = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return exponent + int(square > Fraction(4) ** exponent) - bits


def solve(gram: np.ndarray, shift: int, right: np.ndarray, grid: int) -> np.ndarray:
    """Return (gram + shift I)^-1 right in units of 2^grid, rounded half to even: int64 (n, K),
    below 2^62 in size. Arguments and errors as `Refinement`; right: below 2^60 in size."""
    first = Refinement(gram, shift, right[:, :1])
    out = np.zeros(right.shape, np.int64, order='F')
    columns = np.arange(right.shape[1])
    for start in range(0, len(columns), _COLUMNS):
        left = columns[start : start + _COLUMNS]
        refinement = first.of(right[:, left])
        while len(left):
            refinement.step()
            if refinement.exponent < grid:
                values, certain = refinement.rounded(grid)
                done = np.all(certain, axis=0)
                out[:, left[done]] = values[:, done]
                refinement.keep(~done)
                left = left[~done]
    return out


def solved_rows(gram: np.ndarray, shift: int, rows: np.ndarray) -> np.ndarray:
    """Return (gram + shift I)^-1 row of each row, float64 (N, n), to 50 bits or more of the largest
    possible one: the same bits on every machine. Many rows are multiplied by the correctly rounded
    inverse.

    gram, shift: as `Refinement`.
    rows: int (N, n), numbers up to 2^19 in size."""
    size = len(gram)
    direct = len(rows) <= 2 * size
    grid = grid_for(Fraction(size << 38 if direct else 1, shift**2), 54)
    right = rows.T.astype(np.int64) if direct else np.eye(size, dtype=np.int64)
    solution = solve(gram, shift, right, grid)
    out = solution.T.astype(np.float64) if direct else row_products(rows, solution)
    return np.ldexp(out, grid)


def row_products(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return rows @ matrix, float64 (N, K), the same bits on every machine: sums over 4,096 columns
    of 22 bits are exact.

    rows: int (N, n), numbers up to 2^19 in size.
    matrix: int64 (n, K)."""
    limbs = limbs_of(matrix, 3)
    out = np.empty((len(rows), matrix.shape[1]))
    columns = [slice(at, at + _EXACT_SUM) for at in range(0, len(matrix), _EXACT_SUM)]
    for start in range(0, len(rows), _COLUMNS):
        x = rows[start : start + _COLUMNS].astype(np.float64)
        sums = [reduce(np.add, (x[:, part] @ limb[part] for part in columns)) for limb in limbs]
        out[start : start + _COLUMNS] = _floats(sums)
    return out


def _count(largest: int) -> int:
    """Return how many limbs hold integers up to this size."""
    return (largest.bit_length() + 1) // _RADIX + 1


def limbs_of(values: np.ndarray, count: int, radix: int = _RADIX) -> list[np.ndarray]:
    """Integers as limbs, float64 arrays, lowest first; the last has the rest."""
    out = []
    for _ in range(count - 1):
        above = values + (1 << radix - 1) >> radix
        out.append((values - (above << radix)).astype(np.float64))
        values = above
    return [*out, values.astype(np.float64)]


def _shifted(limbs: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """The numbers times 2^bits, in longer limbs."""
    zeros, rest = divmod(bits, _RADIX)
    return [
        *(np.zeros_like(limbs[0]) for _ in range(zeros)),
        *(limb * float(1 << rest) for limb in limbs),
    ]


def _carried(limbs: list[np.ndarray]) -> list[np.ndarray]:
    """The same numbers, with all limbs but the last between -2^21 and 2^21; in place."""
    for limb, above in itertools.pairwise(limbs):
        carry = np.rint(limb / _BASE)
        limb[:] -= carry * _BASE
        above[:] += carry
    return limbs


def _floats(limbs: list[np.ndarray]) -> np.ndarray:
    """The numbers, rounded to float64."""
    *rest, out = limbs
    for limb in reversed(rest):
        out = out * _BASE + limb
    return out


def _exponent(values: np.ndarray) -> int:
    """The least e with |values| < 2^e; 0 for nothing but zeros."""
    return int(np.frexp(np.abs(values).max())[1])
