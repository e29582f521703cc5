"""Ridge's lambda without a validation set: generalised cross-validation (GCV), from the statistics
alone.

GCV(lambda) = (RSS / N) / (1 - df / N)^2 (Golub, Heath and Wahba 1979) needs the Gram matrix, the
class sums and the counts and nothing else, so its choice is the same, to the last bit, under every
schedule, batching and sharding, and no sample has to be kept for it. On every machine, too: float64
bounds decide that hold for whatever eigenvalues LAPACK finds, and where these leave it open, the
criterion itself to 60 bits.

I - H, H the matrix that turns targets into fitted values, has no eigenvalue below q = lambda /
(tr(A) + lambda): so N - df is N q or more, and RSS q^2 times that of the targets. Sums that were
rounded (`evened`,
`scroll.learners.grid_learner.Standardised`) can say less, even nothing or below; then these bounds stand for
it.
"""

from fractions import Fraction
from math import isqrt

import numpy as np

from scroll.ground.grid import GRID, GRID_BITS
from scroll.heads.predictors import check_seen, target_sums, usable_lambda
from scroll.heads.rounded import Refinement
from scroll.sums.statistics import Statistics

_LIMIT, _STEPS = 80, (16, 4, 1)  # lambda = 2^(k / 4), |k| <= 80: factors of 16 first, then finer
_TIE = Fraction(1, 1 << 30)  # criteria this close, relatively, are equal
_PRECISION = Fraction(1, 1 << 62)  # of the parts of an exact criterion


def choose_lambda(statistics: Statistics, targets: str = 'pm1', least: float = 0.0) -> float:
    """The lambda of least GCV, from 2^-20, or `least`, to 2^20; of equals the largest. First every
    sixteenth of the numbers 2^(k / 4), then every fourth, then each between the best one's
    neighbours. InputError: nothing seen."""
    bounds_of, exact = gcv_bounds(statistics, targets), {}
    # no bound on an eigenvalue says much below 2^-32 of the trace
    least = max(_trace(statistics.gram) >> 32, int(least * GRID**2), 1)
    best, reach = 0, _LIMIT
    for step in _STEPS:
        near = range(max(best - reach, -_LIMIT), min(best + reach, _LIMIT) + 1, step)
        bounds = {
            k: bounds_of(grid_lambda(k)) for k in near if int(grid_lambda(k) * GRID**2) >= least
        }
        smallest = min(high for _, high in bounds.values())
        best_ones = [k for k, (low, _) in bounds.items() if low <= smallest * (1 + _TIE)]
        if len(best_ones) > 1:  # the bounds leave it open
            exact |= {
                k: exact_gcv(statistics, targets, grid_lambda(k))
                for k in best_ones
                if k not in exact
            }
            smallest = min(exact[k] for k in best_ones)
            best_ones = [k for k in best_ones if exact[k] <= smallest * (1 + _TIE)]
        best, reach = best_ones[-1], step
    return grid_lambda(best)


def grid_lambda(k: int) -> float:
    """2^(k / 4), |k| <= 80, rounded to a multiple of 2^-36 in integers: the same number on any
    machine.
    """
    return (isqrt(isqrt(1 << 4 * (2 * GRID_BITS + 1) + k)) + 1) // 2 / GRID**2


def gcv_bounds(statistics: Statistics, targets: str):
    """lambda -> (the least, the most) that GCV can be, whichever LAPACK computed the spectrum.

    With A = Q diag(s) Q' and c = Q'R, RSS = tr(Y'Y) - sum |c|^2 (s + 2 lambda) / (s + lambda)^2 and
    N - df = N - n + sum lambda / (s + lambda). Computed eigenpairs are those of a matrix no further
    from A than e = 4 n 2^-52 tr(A) (in practice a thousandth of that). An eigenvalue within e of s
    changes 1 / (s + lambda) by at most e / (s + lambda - e), relatively, and RSS by less than 12 e
    |W|^2, since s >= -lambda / 2."""
    check_seen(statistics)
    gram, total = statistics.gram / float(GRID) ** 2, statistics.total
    right, most = (
        target_sums(statistics, targets) / float(GRID),
        float(_target_squares(statistics, targets)),
    )
    s, vectors = np.linalg.eigh(gram)
    squares = ((vectors.T @ right) ** 2).sum(axis=1)  # (n,)
    rounding = 4 * len(s) * np.finfo(np.float64).eps
    trace = float(np.trace(gram))
    off = rounding * trace

    def bounds(alpha: float) -> tuple:
        if s[0] + alpha < 3 * off:
            return 0.0, np.inf
        sums = s + alpha
        rss = most - (squares * (sums + alpha) / sums**2).sum()
        rss_off = 12 * off * (squares / sums**2).sum() + 4 * most * rounding
        freedom = total - len(s) + (alpha / sums).sum()
        freedom_off = (alpha / sums * (off / (sums - off))).sum() + rounding * (total + len(s))
        share = alpha / (trace + alpha)  # q
        low, high = share * (1 - rounding), share * (1 + rounding)
        most_freedom = max(freedom + freedom_off, total * high)
        least_freedom = max(freedom - freedom_off, total * low)
        return (
            total * max(rss - rss_off, most * low**2) / most_freedom**2,
            total * max(rss + rss_off, most * high**2) / least_freedom**2,
        )

    return bounds


def exact_gcv(statistics: Statistics, targets: str, alpha: float) -> Fraction:
    """GCV of one lambda, to 60 bits: (N RSS) / (N - df)^2 with RSS = tr(Y'Y) - tr(R'W) - lambda
    |W|^2 and N - df = N - n + lambda tr((A + lambda I)^-1), from solutions with exact residuals."""
    gram, right, units = (
        statistics.gram,
        target_sums(statistics, targets),
        usable_lambda(statistics, alpha),
    )
    weights = Refinement(gram, units, right)
    inverse = Refinement(gram, units, np.eye(len(gram), dtype=np.int64))
    most, share = _target_squares(statistics, targets), Fraction(units, _trace(gram) + units)
    least_rss, least_freedom = most * share**2, statistics.total * share
    length, rss, freedom, rss_off, freedom_off = Fraction(1.01 * np.linalg.norm(right)), 0, 0, 1, 1
    while rss_off > _PRECISION * rss:
        weights.step()
        unit, x = Fraction(2) ** weights.exponent, weights.value()
        error = Fraction(np.linalg.norm(weights.error()))
        square, fitted = int((x * x).sum()), unit * int((right * x).sum())
        rss = max(least_rss, most - fitted - units * unit**2 * square)
        rss_off = unit * error * (length + units * unit * (2 * (isqrt(square) + 1) + error))
    while freedom_off > _PRECISION * freedom:
        inverse.step()
        unit, trace = Fraction(2) ** inverse.exponent, int(inverse.value(np.diagonal).sum())
        freedom = max(least_freedom, statistics.total - len(gram) + units * unit * trace)
        freedom_off = units * unit * Fraction(inverse.error().sum())
    return statistics.total * rss / freedom**2


def _trace(gram: np.ndarray) -> int:
    return sum(np.diagonal(gram).tolist())


def _target_squares(statistics: Statistics, targets: str) -> int:
    """tr(Y'Y): each target is +-1, or one of a sample's is 1."""
    return statistics.total * (len(statistics.classes) if targets == 'pm1' else 1)
