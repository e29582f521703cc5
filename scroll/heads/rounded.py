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

import itertools
from fractions import Fraction

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from scroll.ground.errors import InputError

_RADIX = 22  # bits of a limb: numbers are sums of limbs l_i 2^(22 i), |l_i| <= 2^21
_HALF = 1 << _RADIX - 1
_TIE = 64  # within 2^-64 of a unit of the middle counts as the middle: to even
_ENOUGH = 512  # bits below the grid after which what is undecided is rounded as it is
_COLUMNS = 1 << 10  # solved for at once
_CONDITION = 40  # l is at least 2^-40 of G's trace: then float64 steers it well


def scaled(array: np.ndarray, times, over) -> np.ndarray:
    """array times / over, rounded to integers, half to even: int64. times and over: whole, 1 to
    2^31; results must be below 2^62."""
    whole, rest = np.divmod(array, over)
    more, rest = np.divmod(rest * times, over)
    out = whole * times + more
    return out + (2 * rest + out % 2 > over)


def smallest_units(gram: np.ndarray) -> int:
    """The least l with which (gram + l I) X = R can be solved: 2^-40 of the trace, rounded up."""
    return -(-sum(np.diagonal(gram).tolist()) >> _CONDITION) or 1


class Refinement:
    """X = (gram + units I)^-1 right, to more bits with every step.

    gram: int64 (n, n), no eigenvalue below -units / 2, n < 2^16. units: int, `smallest_units` or
    more. right: int64 (n, K).

    Attributes:
        unit: X is known in units of 2^unit.
        pieces: [(float64 (n, K), whole numbers, unit), ...]: X is the sum of pieces 2^unit, up to
        `error`.

    InputError: float64 cannot steer the solution; says so if `gram` has another eigenvalue than it
    may."""

    def __init__(self, gram: np.ndarray, units: int, right: np.ndarray):
        size, top = len(gram), int(np.abs(gram).max())
        # of a correction: sums stay below 2^53
        self._bits = 52 - (_RADIX - 1) - (size + 1).bit_length()
        count = (max(top, units).bit_length() + 1) // _RADIX + 1  # rounded ones reach 2^21 only
        self._system = _limbs(gram, count)
        for limb, digit in zip(self._system, _limbs(np.array([units], object), count)):
            np.einsum('ii->i', limb)[:] += digit  # its diagonal
        system = gram + np.diag(np.full(size, float(units)))
        try:
            self._factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise _unsolvable(gram, units) from error
        largest = int(np.abs(right).max(initial=0))
        bits = max((size * top + units).bit_length(), largest.bit_length()) + self._bits + 3
        self._residual = _limbs(right, -(-bits // _RADIX))
        self._given = gram, units
        self._units, self._spare = float(units), 0  # in 2^(unit - spare): right - (gram +
        self.unit, self.pieces = 0, []  # units I) X, the residual

    def step(self) -> None:
        """One more correction: of up to 21 bits for n = 512, of fewer where the matrix is
        ill-conditioned.
        """
        residual = _floats(self._residual)
        correction = cho_solve(self._factor, residual, check_finite=False) * 2.0**-self._spare
        if not self.pieces and (spare := _exponent(correction) - self._bits + 1) > 0:
            self._begin_coarser(spare)  # X has more bits above the point
            correction *= 2.0**-spare
        shift = min(
            self._bits - _exponent(correction),
            _RADIX * len(self._residual) - 3 - _exponent(residual),
        )
        if shift < 1:
            raise _unsolvable(*self._given)
        piece = np.rint(correction * 2.0**shift)
        zeros, rest = divmod(shift, _RADIX)  # now residual 2^shift - (gram + units I) piece
        limbs = [np.zeros_like(piece) for _ in range(zeros)]
        limbs += [limb * float(1 << rest) for limb in self._residual]
        for limb, part in zip(limbs, self._system):
            limb -= part @ piece
        self._residual = _carried(limbs)[: len(self._residual)]  # above, nothing is left: `bits`
        self.unit -= shift
        self.pieces.append((piece, self.unit))

    def _begin_coarser(self, spare: int) -> None:
        """Solve (gram + units I) 2^spare X' = right for X' = X 2^-spare."""
        zeros, rest = divmod(spare, _RADIX)
        empty = np.zeros_like(self._system[0])
        shifted = (
            [empty] * zeros + [limb * float(1 << rest) for limb in self._system] + [empty.copy()]
        )
        self._system = _carried(shifted)
        self._residual += [np.zeros_like(self._residual[0]) for _ in range(zeros + 1)]
        self._units, self._spare, self.unit = self._units * 2.0**spare, spare, spare

    def error(self) -> np.ndarray:
        """float64 (K,): no column is further from that of X than this (Euclidean), in units of
        2^unit.
        """
        residual = _floats(self._residual)
        scale = max(np.abs(residual).max(), 1.0)  # so that no square is too large
        return 2.002 * scale / self._units * np.linalg.norm(residual / scale, axis=0)

    def value(self, part=lambda piece: piece) -> np.ndarray:
        """X, or a part of it, in units of 2^unit: Python's integers."""
        return sum(
            part(piece).astype(np.int64).astype(object) << unit - self.unit
            for piece, unit in self.pieces
        )

    def keep(self, columns: np.ndarray) -> None:
        """Go on with these columns only; bool (K,)."""
        self._residual = [limb[:, columns] for limb in self._residual]
        self.pieces = [(piece[:, columns], unit) for piece, unit in self.pieces]

    def rounded(self, grid: int) -> tuple:
        """(X in units of 2^grid, rounded half to even: int64 (n, K); which entries are sure: bool
        (n, K)); grid > unit."""
        below = grid - self.unit
        half, whole, part = 1 << below - 1, 0, 0  # X = whole 2^grid + part 2^unit
        for piece, unit in self.pieces:
            piece, depth = piece.astype(np.int64), grid - unit
            if depth <= 0:
                whole = whole + (piece << -depth)
                continue
            if depth < 32:  # no piece has more bits
                whole, piece = whole + (piece >> depth), piece & (1 << depth) - 1
            part = part + (piece.astype(np.int64 if below < 60 else object) << unit - self.unit)
        carry = part + half >> below
        # -half <= part < half
        part, whole = part - (carry << below), whole + carry.astype(np.int64)
        distance, error = (half - abs(part)).astype(np.float64), self.error()  # to the next middle
        on_it = 2.0 ** (below - _TIE)
        tie = distance + error <= on_it
        odd = tie & (whole % 2 != 0)
        whole[odd] += np.where(part[odd] < 0, -1, 1)
        return whole, tie | (distance - error > on_it) | (below > _ENOUGH)


def _unsolvable(gram: np.ndarray, units: int) -> InputError:
    """The error of a system that float64 cannot steer. Sums of samples that were all learned have
    no eigenvalue below -units / 2, which v' (2 gram + units I) v < 0, in integers, disproves."""
    direction = np.linalg.eigh(gram.astype(np.float64))[1][:, 0]
    v = np.rint(direction * (1 << 30)).astype(np.int64).astype(object)
    if 2 * (v @ (gram @ v)) + units * (v @ v) < 0:
        return InputError(
            'the sums have a negative variance: something was removed that was never added'
        )
    return InputError(
        'these sums are too close to singular for float64: use a larger ridge lambda, or shrinkage'
    )


def grid_for(square: Fraction, bits: int) -> int:
    """The grid on which numbers whose squares are at most `square` have no more than `bits` bits."""
    # or one too few
    exponent = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    return exponent + int(square > Fraction(4) ** exponent) - bits


def solve(gram: np.ndarray, units: int, right: np.ndarray, grid: int) -> np.ndarray:
    """(gram + units I)^-1 right in units of 2^grid, rounded half to even: int64 (n, K), below 2^62
    in size. Arguments and errors as `Refinement`."""
    refinement, columns = Refinement(gram, units, right), np.arange(right.shape[1])
    out = np.zeros(right.shape, np.int64)
    while len(columns):
        refinement.step()
        if refinement.unit >= grid or refinement.error().max() >= 2.0 ** (
            grid - refinement.unit - 8
        ):
            continue  # hardly anything could be sure yet
        values, sure = refinement.rounded(grid)
        done = sure.all(axis=0)
        out[:, columns[done]] = values[:, done]
        refinement.keep(~done)
        columns = columns[~done]
    return out


def solved_rows(gram: np.ndarray, units: int, rows: np.ndarray) -> np.ndarray:
    """(gram + units I)^-1 row of each row, float64 (N, n), to 50 bits or more of the largest
    possible one. The bits are the same on every machine. Many rows are multiplied by the correctly
    rounded inverse. gram,
    units: as `Refinement`. rows: int (N, n), numbers up to 2^19 in size."""
    size, out = len(gram), np.empty(rows.shape)
    if len(rows) <= 2 * size:
        grid = grid_for(Fraction(size << 38, units**2), 54)
        for start in range(0, len(rows), _COLUMNS):
            right = rows[start : start + _COLUMNS].T.astype(np.int64)
            out[start : start + _COLUMNS] = np.ldexp(
                solve(gram, units, right, grid).T.astype(np.float64), grid
            )
        return out
    grid, one = grid_for(Fraction(1, units**2), 54), np.eye(size, dtype=np.int64)
    inverse = np.concatenate(
        [
            solve(gram, units, one[:, start : start + _COLUMNS], grid)
            for start in range(0, size, _COLUMNS)
        ],
        axis=1,
    )
    limbs = _limbs(inverse, 3)
    for start in range(0, len(rows), _COLUMNS):  # sums over 2^12 columns are below 2^53
        x = rows[start : start + _COLUMNS].astype(np.float64)
        parts = [
            sum(x[:, at : at + 4096] @ limb[at : at + 4096] for at in range(0, size, 4096))
            for limb in limbs
        ]
        out[start : start + _COLUMNS] = np.ldexp(_floats(parts), grid)
    return out


def _limbs(values: np.ndarray, count: int) -> list:
    """Integers as limbs, float64 arrays, lowest first."""
    out = []
    for _ in range(count):
        above = values + _HALF >> _RADIX
        out.append((values - (above << _RADIX)).astype(np.float64))
        values = above
    return out


def _carried(limbs: list) -> list:
    """The same number, with all limbs but the last between -2^21 and 2^21; in place."""
    for limb, above in itertools.pairwise(limbs):
        carry = np.rint(limb * 2.0**-_RADIX)
        limb -= carry * float(1 << _RADIX)
        above += carry
    return limbs


def _floats(limbs: list) -> np.ndarray:
    """The numbers, rounded to float64."""
    out = limbs[-1].copy()
    for limb in limbs[-2::-1]:
        out = out * float(1 << _RADIX) + limb
    return out


def _exponent(values: np.ndarray) -> int:
    """The least e with |values| < 2^e; 0 for nothing but zeros."""
    return int(np.frexp(np.abs(values).max())[1])
