"""Ridge's lambda without a validation set: generalised cross-validation (GCV), from the statistics
alone.

GCV(lambda) = (RSS / N) / (1 - df / N)^2 (Golub, Heath and Wahba 1979) needs the Gram matrix, the
class sums and the counts and nothing else, so its choice is the same, to the last bit, under every
schedule, batching and sharding, and no sample has to be kept for it. On every machine, too: float64
bounds decide that hold for whatever eigenvalues LAPACK finds, and where these leave it open, the
criterion itself to 60 bits.

I - H, H the matrix that turns targets into fitted values, has no eigenvalue below q = lambda /
(tr(A) + lambda): so N - df is N q or more, and RSS q^2 times that of the targets. Sums that were
rounded (`evened`, `scroll.learners.grid_learner.Standardised`) can say less, even nothing or below;
then these bounds stand for it.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from math import isqrt

import numpy as np

from scroll.ground.grid import GRID, GRID_BITS
from scroll.heads.predictors import System, usable_lambda
from scroll.heads.rounded import Refinement, exact_trace

_LIMIT = 80  # lambda = 2^(k / 4), |k| <= 80
_STEPS = (16, 4, 1)  # of k: factors of 16 first, then finer
_TIE = Fraction(1, 1 << 30)  # criteria this close, relatively, are equal
_PRECISION = Fraction(1, 1 << 62)  # of the parts of an exact criterion


def choose_lambda(system: System, least: float = 0.0) -> float:
    """Return the lambda of least GCV, from 2^-20, or `least`, to 2^20; of equals the largest. First
    every sixteenth of the numbers 2^(k / 4) is tried, then every fourth, then each between the best
    one's neighbours."""
    gcv_range = gcv_bounds(system)
    exact = cache(partial(exact_gcv, system))
    # no bound on an eigenvalue says much below 2^-32 of the trace
    smallest = max((exact_trace(system.gram) >> 32) / GRID**2, least, 1 / GRID**2)
    best = 0
    reach = _LIMIT
    for step in _STEPS:
        near = range(max(best - reach, -_LIMIT), min(best + reach, _LIMIT) + 1, step)
        ranges = {k: gcv_range(grid_lambda(k)) for k in near if grid_lambda(k) >= smallest}
        limit = min(high for _, high in ranges.values()) * (1 + _TIE)
        open_ones = [k for k, (low, _) in ranges.items() if low <= limit]
        if len(open_ones) > 1:
            criteria = {k: exact(grid_lambda(k)) for k in open_ones}
            limit = min(criteria.values()) * (1 + _TIE)
            open_ones = [k for k in open_ones if criteria[k] <= limit]
        best = open_ones[-1]
        reach = step
    return grid_lambda(best)


def grid_lambda(k: int) -> float:
    """2^(k / 4), |k| <= 80, rounded to a multiple of 2^-36 in integers: the same number on any
    machine.
    """
    return (isqrt(isqrt(1 << 4 * (2 * GRID_BITS + 1) + k)) + 1) // 2 / GRID**2


def gcv_bounds(system: System) -> Callable[[float], tuple[float, float]]:
    """Return lambda -> (the least, the most) that GCV can be, whichever LAPACK computed the
    spectrum.

    With A = Q diag(s) Q' and c = Q'R, RSS = tr(Y'Y) - sum |c|^2 (s + 2 lambda) / (s + lambda)^2 and
    N - df = N - n + sum lambda / (s + lambda). Computed eigenpairs are those of a matrix no further
    from A than e = 4 n 2^-52 tr(A) (in practice a thousandth of that). An eigenvalue within e of s
    changes 1 / (s + lambda) by at most e / (s + lambda - e), relatively, and RSS by less than 12 e
    |W|^2, since s >= -lambda / 2."""
    gram = system.gram / float(GRID) ** 2
    total = system.total
    right = system.right / float(GRID)
    most = float(system.squares)
    s, vectors = np.linalg.eigh(gram)
    squares = ((vectors.T @ right) ** 2).sum(axis=1)  # (n,)
    rounding = 4 * len(s) * np.finfo(np.float64).eps
    trace = float(np.trace(gram))
    off = rounding * trace

    def bounds(alpha: float) -> tuple[float, float]:
        if s[0] + alpha < 3 * off:
            return 0.0, np.inf
        sums = s + alpha
        rss = most - (squares * (sums + alpha) / sums**2).sum()
        rss_off = 12 * off * (squares / sums**2).sum() + 4 * most * rounding
        freedom = total - len(s) + (alpha / sums).sum()
        freedom_off = (alpha / sums * (off / (sums - off))).sum() + rounding * (total + len(s))
        share = alpha / (trace + alpha)  # q
        low = share * (1 - rounding)
        high = share * (1 + rounding)
        most_freedom = max(freedom + freedom_off, total * high)
        least_freedom = max(freedom - freedom_off, total * low)
        return (
            total * max(rss - rss_off, most * low**2) / most_freedom**2,
            total * max(rss + rss_off, most * high**2) / least_freedom**2,
        )

    return bounds


def exact_gcv(system: System, alpha: float) -> Fraction:
    """GCV for one lambda, to 60 bits: (N RSS) / (N - df)^2 with RSS = tr(Y'Y) - tr(R'W) - lambda
    |W|^2 and N - df = N - n + lambda tr((A + lambda I)^-1), from solutions with exact residuals."""
    gram, right, most, total = system
    shift = usable_lambda(gram, alpha)
    weights = Refinement(gram, shift, right)
    inverse = Refinement(gram, shift, np.eye(len(gram), dtype=np.int64))
    share = Fraction(shift, exact_trace(gram) + shift)  # q
    length = Fraction(1.01 * float(np.linalg.norm(right)))
    rss = Fraction(0)
    rss_off = Fraction(1)
    while rss_off > _PRECISION * rss:
        weights.step()
        unit = Fraction(2) ** weights.exponent
        x = weights.value()
        error = Fraction(float(np.linalg.norm(weights.error())))
        square = int((x * x).sum())
        rss = most - unit * int((right * x).sum()) - shift * unit**2 * square
        rss = max(most * share**2, rss)
        rss_off = unit * error * (length + shift * unit * (2 * (isqrt(square) + 1) + error))
    freedom = Fraction(0)
    freedom_off = Fraction(1)
    while freedom_off > _PRECISION * freedom:
        inverse.step()
        unit = shift * Fraction(2) ** inverse.exponent
        trace = int(inverse.value(np.diagonal).sum())
        freedom = max(total * share, total - len(gram) + unit * trace)
        freedom_off = unit * Fraction(float(inverse.error().sum()))
    return total * rss / freedom**2
