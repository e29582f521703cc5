"""Ridge's lambda without a validation set: generalised cross-validation (GCV), from the statistics alone.

GCV(lambda) = (RSS / N) / (1 - df / N)^2 (Golub, Heath and Wahba 1979) needs the Gram matrix, the class sums
and the counts and nothing else, so its choice is the same, to the last bit, under every schedule, batching
and sharding, and no sample has to be kept for it. `left_out` is what GCV approximates, exact leave-one-out;
it needs one pass over the features.

    >>> import numpy as np
    >>> from scroll.grid import quantise
    >>> u, y = quantise(np.random.default_rng(0).normal(size=(300, 4))), np.arange(300) % 3
    >>> easy = u[:, :3].argmax(axis=1)                  # while of the labels y the features know nothing
    >>> choose_lambda(Statistics(4).add(u, easy)) < 1 < 30 < choose_lambda(Statistics(4).add(u, y))
    True
"""
from dataclasses import dataclass
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
_BLOCK = 4096                       # samples of `left_out` at once


@dataclass(frozen=True)
class Spectrum:
    """Ridge on [u; 1] for every lambda at once: W = Q diag(1 / (s + lambda)) (Q' R), A = Q diag(s) Q'.

    Attributes:
        classes: (K,) sorted labels. targets: 'pm1' or 'onehot'. total: N.
        values: float64 (r,), the eigenvalues s that are not zero to rounding. vectors: float64 (d + 1, r), Q.
        projected: float64 (r, K), Q' R. target_squares: sum of the squares of all targets, tr(Y'Y).
    """
    classes: np.ndarray
    targets: str
    total: int
    values: np.ndarray
    vectors: np.ndarray
    projected: np.ndarray
    target_squares: float


def spectrum(statistics: Statistics, targets: str = 'pm1') -> Spectrum:
    """Eigen-decomposition of the Gram matrix, in float64. InputError: nothing seen, or other targets."""
    check_seen(statistics)
    sums = target_sums(statistics, targets) / float(GRID)
    values, vectors = np.linalg.eigh(statistics.gram / float(GRID) ** 2)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    return Spectrum(statistics.classes, targets, statistics.total, values, vectors, vectors.T @ sums,
                    float(_target_squares(statistics, targets)))


def gcv(of: Spectrum, lambdas) -> np.ndarray:
    """Generalised cross-validation's estimate of the squared error on a new sample, summed over classes.

    RSS(lambda) = RSS(0) + sum_i |c_i|^2 / s_i (lambda / (s_i + lambda))^2 with c = Q' R, and df = sum_i s_i /
    (s_i + lambda). Both are written so that nothing cancels where the features can fit every sample (N = r).

    Args:
        lambdas: positive (L,).

    Returns:
        float64 (L,); infinite for a lambda that is as good as zero beside the largest eigenvalue.
    """
    s, rank = of.values, len(of.values)
    lambdas = np.asarray(lambdas, np.float64)[:, None]
    explained = (of.projected ** 2).sum(axis=1) / s
    unexplained = 0.0 if of.total == rank else max(of.target_squares - explained.sum(), 0.0)
    shrunk = lambdas / (s + lambdas)                                        # (L, r)
    rss = unexplained + (explained * shrunk ** 2).sum(axis=1)
    freedom = of.total - rank + shrunk.sum(axis=1)                          # N - df
    too_small = lambdas[:, 0] < len(of.vectors) * np.finfo(np.float64).eps * s[-1]
    return np.where(too_small, np.inf, of.total * rss / freedom ** 2)


def grid_lambda(k: int) -> float:
    """2^(k / 4), |k| <= 80, rounded to a multiple of 2^-36 in integers: the same number on any machine."""
    return (isqrt(isqrt(1 << 4 * (2 * GRID_BITS + 1) + k)) + 1) // 2 / GRID ** 2


def search(criterion) -> float:
    """The lambda with the least criterion; ties (to 2^-30) go to the largest.

    From 2^-20 to 2^20: first every sixteenth of the numbers 2^(k / 4), then every fourth, then each between
    the best one's neighbours.

    Args:
        criterion: float64 (L,) of lambdas -> (L,), not negative.
    """
    def best(exponents):
        values = criterion(np.array([grid_lambda(k) for k in exponents]))
        return exponents[np.flatnonzero(values <= values.min() * (1 + float(_TIE)))[-1]]
    return grid_lambda(_descend(best))


def _descend(best) -> int:
    """The k left when `best` has chosen among every 16th, then 4th, then each near its last choice."""
    at, reach = 0, _LIMIT
    for step in _STEPS:
        at, reach = best(range(max(at - reach, -_LIMIT), min(at + reach, _LIMIT) + 1, step)), step
    return at


def choose_lambda(statistics: Statistics, targets: str = 'pm1') -> float:
    """GCV's choice by `search`: a pure function of the statistics, on any machine. Bounds on the criterion
    decide that hold for whatever eigenvalues LAPACK finds, or, where these leave it open, the criterion
    itself to 60 bits."""
    of, exact = spectrum(statistics, targets), {}
    least = _least_units(statistics)

    def best(exponents):
        usable = [k for k in exponents if int(grid_lambda(k) * GRID ** 2) >= least]
        bounds = dict(zip(usable, zip(*gcv_bounds(of, statistics, [grid_lambda(k) for k in usable]))))
        while True:
            bounds |= {k: exact[k] for k in usable if k in exact}
            least_high = min(high for _, high in bounds.values())
            open_ = [k for k in usable if bounds[k][0] <= least_high * (1 + _TIE)]
            others = min((low for k, (low, _) in bounds.items() if k != open_[-1]), default=least_high)
            if bounds[open_[-1]][1] <= others * (1 + _TIE) or all(k in exact for k in open_):
                return open_[-1]
            exact.update((k, (exact_gcv(statistics, targets, grid_lambda(k)),) * 2)
                         for k in open_ if k not in exact)

    return grid_lambda(_descend(best))


def _least_units(statistics: Statistics) -> int:
    """The least lambda that is looked at, in units of 2^-36: 2^-32 of the trace, below which no bound on an
    eigenvalue says much."""
    return sum(np.diagonal(statistics.gram).tolist()) >> 32 or 1


def gcv_bounds(of: Spectrum, statistics: Statistics, lambdas) -> tuple:
    """What `gcv` is at least and at most, float64 (L,) each, whichever LAPACK computed the spectrum.

    Computed eigenpairs are those of a matrix no further from A than e = 4 n 2^-52 tr(A) (in practice a
    thousandth of that). An eigenvalue within e of s changes 1 / (s + lambda) by at most e / (s + lambda - e),
    relatively, and RSS = tr(Y'Y) - sum |c|^2 (s + 2 lambda) / (s + lambda)^2 by less than 5 e |W|^2. Without
    the m pairs that are zero to rounding it is 2 e, and of Y no more than 2 e m / lambda can lie along them.
    """
    size, lambdas = len(of.vectors), np.asarray(lambdas, np.float64)
    rank = min(len(of.values), of.total)
    s, squares = of.values[-rank:], (of.projected[-rank:] ** 2).sum(axis=1)                     # (r,)
    rounding = 4 * size * np.finfo(np.float64).eps
    off = rounding * float(np.trace(statistics.gram / float(GRID) ** 2))
    usable = np.maximum(lambdas, 3 * off)[:, None]
    sums = s + usable                                                                           # (L, r)
    rss = of.target_squares - (squares * (sums + usable) / sums ** 2).sum(axis=1)
    rss_off = 10 * off * (squares / sums ** 2).sum(axis=1) + 4 * of.target_squares * (
        rounding + (size - rank) * off / usable[:, 0])
    freedom = of.total - rank + (usable / sums).sum(axis=1)
    freedom_off = (usable / sums * (off / (sums - off))).sum(axis=1) + rounding * of.total + (
        min(of.total, size) - rank) * 2 * off / usable[:, 0]
    low = of.total * np.maximum(rss - rss_off, 0) / (freedom + freedom_off) ** 2
    with np.errstate(divide='ignore'):
        high = of.total * (rss + rss_off) / np.maximum(freedom - freedom_off, 0) ** 2
    known = lambdas >= 3 * off
    return np.where(known, low, 0.0), np.where(known, high, np.inf)


def exact_gcv(statistics: Statistics, targets: str, alpha: float) -> Fraction:
    """`gcv` of one lambda, to 60 bits: (N RSS) / (N - df)^2 with RSS = tr(Y'Y) - tr(R'W) - lambda |W|^2 and
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


def left_out(of: Spectrum, lambdas, features: np.ndarray, labels: np.ndarray) -> tuple:
    """Exact leave-one-out over samples that were learned: what each gets from ridge that has not seen it.

    The residual of a left-out sample is e = (t - x W) / (1 - h), h = x' (A + lambda I)^-1 x, x = [u; 1].

    Args:
        lambdas: positive (L,). features: int (N, d), quantised: all that the spectrum knows. labels: (N,).

    Returns:
        (squared error summed over classes, mean over samples; share of samples predicted right), float64 (L,)
        each.
    """
    lambdas, labels = np.asarray(lambdas, np.float64), np.asarray(labels)
    squared, right = np.zeros(len(lambdas)), np.zeros(len(lambdas))
    for start in range(0, len(labels), _BLOCK):
        part = slice(start, start + _BLOCK)
        u = np.asarray(features[part], np.float64) / GRID
        z = u @ of.vectors[:-1] + of.vectors[-1]                                # Q' x, (B, r)
        own = labels[part, None] == of.classes
        target = np.where(own, 1.0, -1.0 if of.targets == 'pm1' else 0.0)
        for i, inverse in enumerate(1 / (of.values + lambdas[:, None])):
            leverage = (z * z) @ inverse
            error = (target - (z * inverse) @ of.projected) / (1 - leverage)[:, None]
            squared[i] += (error * error).sum()
            right[i] += own[np.arange(len(own)), (target - error).argmax(axis=1)].sum()
    return squared / len(labels), right / len(labels)
