"""Ridge's lambda without a validation set: generalised cross-validation (GCV), from the statistics alone.

GCV(lambda) = (RSS / N) / (1 - df / N)^2 (Golub, Heath and Wahba 1979) needs the Gram matrix, the class sums
and the counts and nothing else, so its choice is the same, to the last bit, under every schedule, batching
and sharding, and no sample has to be kept for it. On every machine, too: float64 bounds decide that hold for
whatever eigenvalues LAPACK finds, and where these leave it open, the criterion itself to 60 bits.
"""
from fractions import Fraction
from math import isqrt

import numpy as np

from scroll.grid import GRID, GRID_BITS
from scroll.heads.predictors import check_seen, target_sums, usable_lambda
from scroll.heads.rounded import Refinement
from scroll.settings import TARGETS
from scroll.statistics import Statistics

_LIMIT, _STEPS = 80, (16, 4, 1)     # lambda = 2^(k / 4), |k| <= 80: factors of 16 first, then finer
_TIE = Fraction(1, 1 << 30)         # criteria this close, relatively, are equal
_PRECISION = Fraction(1, 1 << 62)   # of the parts of an exact criterion


def choose_lambda(statistics: Statistics, targets: str = 'pm1') -> float:
    """The lambda of least GCV, from 2^-20 to 2^20; of equals the largest. First every sixteenth of the
    numbers 2^(k / 4), then every fourth, then each between the best one's neighbours.

    Raises:
        InputError: nothing seen, or other targets.
    """
    bounds_of, exact = gcv_bounds(statistics, targets), {}
    # no bound on an eigenvalue says much below 2^-32 of the trace
    least = sum(np.diagonal(statistics.gram).tolist()) >> 32 or 1
    best, reach = 0, _LIMIT
    for step in _STEPS:
        near = range(max(best - reach, -_LIMIT), min(best + reach, _LIMIT) + 1, step)
        usable = [k for k in near if int(grid_lambda(k) * GRID ** 2) >= least]
        bounds, best = {k: bounds_of(grid_lambda(k)) for k in usable}, None
        while best is None:
            bounds |= {k: (exact[k], exact[k]) for k in usable if k in exact}
            smallest = min(high for _, high in bounds.values())
            open_ = [k for k in usable if bounds[k][0] <= smallest * (1 + _TIE)]
            last = open_[-1]
            others = min((low for k, (low, _) in bounds.items() if k != last), default=smallest)
            if bounds[last][1] <= others * (1 + _TIE) or all(k in exact for k in open_):
                best, reach = last, step
            else:
                exact |= {k: exact_gcv(statistics, targets, grid_lambda(k)) for k in open_ if k not in exact}
    return grid_lambda(best)


def grid_lambda(k: int) -> float:
    """2^(k / 4), |k| <= 80, rounded to a multiple of 2^-36 in integers: the same number on any machine."""
    return (isqrt(isqrt(1 << 4 * (2 * GRID_BITS + 1) + k)) + 1) // 2 / GRID ** 2


def gcv_bounds(statistics: Statistics, targets: str):
    """lambda -> (the least, the most) that GCV can be, whichever LAPACK computed the spectrum.

    With A = Q diag(s) Q' and c = Q'R, RSS = tr(Y'Y) - sum |c|^2 (s + 2 lambda) / (s + lambda)^2 and df = sum
    s / (s + lambda). Computed eigenpairs are those of a matrix no further from A than e = 4 n 2^-52 tr(A) (in
    practice a thousandth of that). An eigenvalue within e of s changes 1 / (s + lambda) by at most
    e / (s + lambda - e), relatively, and RSS by less than 5 e |W|^2. Without the m pairs that are zero to
    rounding it is 2 e, and of Y no more than 2 e m / lambda can lie along them.
    """
    check_seen(statistics)
    gram, total = statistics.gram / float(GRID) ** 2, statistics.total
    right, most = target_sums(statistics, targets) / float(GRID), float(_target_squares(statistics, targets))
    values, vectors = np.linalg.eigh(gram)
    size = len(values)
    kept = values > size * np.finfo(np.float64).eps * values[-1]
    s, projected = values[kept], vectors[:, kept].T @ right
    rank = min(len(s), total)
    s, squares = s[-rank:], (projected[-rank:] ** 2).sum(axis=1)                            # (r,)
    rounding = 4 * size * np.finfo(np.float64).eps
    off = rounding * float(np.trace(gram))

    def bounds(alpha: float) -> tuple:
        if alpha < 3 * off:
            return 0.0, np.inf
        sums = s + alpha
        rss = most - (squares * (sums + alpha) / sums ** 2).sum()
        rss_off = 10 * off * (squares / sums ** 2).sum() + 4 * most * (rounding + (size - rank) * off / alpha)
        freedom = total - rank + (alpha / sums).sum()
        freedom_off = ((alpha / sums * (off / (sums - off))).sum() + rounding * total
                       + (min(total, size) - rank) * 2 * off / alpha)
        low = total * max(rss - rss_off, 0) / (freedom + freedom_off) ** 2
        least = freedom - freedom_off
        return low, total * (rss + rss_off) / least ** 2 if least > 0 else np.inf
    return bounds


def exact_gcv(statistics: Statistics, targets: str, alpha: float) -> Fraction:
    """GCV of one lambda, to 60 bits: (N RSS) / (N - df)^2 with RSS = tr(Y'Y) - tr(R'W) - lambda |W|^2 and
    N - df = N - n + lambda tr((A + lambda I)^-1), from solutions with exact residuals."""
    gram, right, units = statistics.gram, target_sums(statistics, targets), usable_lambda(statistics, alpha)
    weights = Refinement(gram, units, right)
    inverse = Refinement(gram, units, np.eye(len(gram), dtype=np.int64))
    length, rss, freedom, rss_off, freedom_off = Fraction(1.01 * np.linalg.norm(right)), 0, 0, 1, 1
    while rss_off > _PRECISION * rss:
        weights.step()
        unit, x = Fraction(2) ** weights.unit, weights.value()
        error = Fraction(np.linalg.norm(weights.error()))
        square, fitted = int((x * x).sum()), unit * int((right * x).sum())
        rss = _target_squares(statistics, targets) - fitted - units * unit ** 2 * square
        rss_off = unit * error * (length + units * unit * (2 * (isqrt(square) + 1) + error))
    while freedom_off > _PRECISION * freedom:
        inverse.step()
        unit, trace = Fraction(2) ** inverse.unit, int(inverse.value(np.diagonal).sum())
        freedom = statistics.total - len(gram) + units * unit * trace
        freedom_off = units * unit * Fraction(inverse.error().sum())
    return statistics.total * rss / freedom ** 2


def _target_squares(statistics: Statistics, targets: str) -> int:
    """tr(Y'Y): each target is +-1, or one of a sample's is 1."""
    return statistics.total * (len(statistics.classes) if targets == TARGETS[0] else 1)
