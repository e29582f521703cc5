"""Linear discriminant analysis from the exact sums: class means, and one covariance within classes.

Ridge and nearest centroids see the covariance of all samples, or none; this head sees the one within classes
(Fisher 1936; for streams, Hayes and Kanan 2020). It needs no more than they do: counts, sums, Gram matrix.
"""
from fractions import Fraction

import numpy as np

from scroll.grid import GRID_BITS
from scroll.heads.predictors import WEIGHT_BITS, LinearPredictor, check_seen
from scroll.heads.rounded import grid_for, scaled, smallest_units, solve
from scroll.settings import OAS
from scroll.statistics import Statistics

_SHARE_BITS = 30                    # shrinkage is a multiple of 2^-30


def lda(statistics: Statistics, shrinkage: float | str = OAS) -> LinearPredictor:
    """argmax_c x' S^-1 m_c - m_c' S^-1 m_c / 2 with exact weights, rounded; classes have equal priors.

    S = (1 - a) W / (N - K) + a t I with the scatter W within classes (`within_scatter`), its mean variance
    t = tr(W) / (d (N - K)) and class means m_c. Means are rounded to the grid first, 2^-18: then W and m_c
    are integers, and S^-1 m_c is the solution of an integer system, rounded correctly
    (`scroll.heads.rounded`). Logits are multiplied by 1 - a. Where nothing varies within classes, S = I:
    nearest centroids.

    shrinkage: a, from 0 up to below 1, or 'oas' (`oas`).

    InputError: nothing seen, or another shrinkage."""
    means, scatter, units, freedom = system(statistics, shrinkage)
    longest = max(sum(v * v for v in row) for row in means.tolist()) or 1       # in 2^-36
    bound = Fraction(longest * freedom ** 2 << 2 * GRID_BITS, units ** 2)       # of a weight's squared length
    exponent = grid_for(bound, WEIGHT_BITS)
    weights = solve(scatter, units, freedom * means.T, exponent - GRID_BITS).T  # (K, d)
    ends = [round(Fraction(-sum(w * m for w, m in zip(ws, ms)), 2 << GRID_BITS))
            for ws, ms in zip(weights.tolist(), means.tolist())]
    weights = np.column_stack([weights, np.array(ends, np.int64)])
    return LinearPredictor(statistics.classes, weights, exponent, statistics.lift)


def system(statistics: Statistics, shrinkage) -> tuple:
    """(means, scatter, what is added to its diagonal in units of 2^-36, N - K), of `lda`."""
    check_seen(statistics)
    means, scatter = class_means(statistics), within_scatter(statistics)
    share = oas(scatter, degrees(statistics)) if shrinkage == OAS else exact_share(shrinkage)
    trace = sum(np.diagonal(scatter).tolist())
    if not trace:
        return means, scatter, 1 << 2 * GRID_BITS, 1
    units = round(Fraction(trace, len(scatter)) * share / (1 - share))
    return means, scatter, max(units, smallest_units(scatter)), max(degrees(statistics), 1)


def class_means(statistics: Statistics) -> np.ndarray:
    """int64 (K, d), s_c / n_c in units of 2^-18, rounded half to even."""
    return scaled(statistics.sums[:, :-1], 1, statistics.counts[:, None])


def within_scatter(statistics: Statistics) -> np.ndarray:
    """W = sum_i (u_i - m)(u_i - m)', m the rounded mean of each sample's class: int64 (d, d), in 2^-36.

    From the sums, G - sum_c (s_c m_c' + m_c s_c' - n_c m_c m_c'). What int64 wraps on the way comes back: the
    result is below 2^65 times the share of the samples that it holds."""
    means, sums = class_means(statistics), statistics.sums[:, :-1]
    cross = sums.T @ means
    scatter = statistics.gram[:-1, :-1] - (cross + cross.T)
    return scatter + (statistics.counts[:, None] * means).T @ means


def degrees(statistics: Statistics) -> int:
    """N - K, of the scatter within classes."""
    return statistics.total - len(statistics.classes)


def oas(scatter: np.ndarray, freedom: int) -> Fraction:
    """The share a of the identity that is best for normal samples, a multiple of 2^-30, at most 1 - 2^-30.

    Oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero 2010, eq. 23), from tr(W) and tr(W^2) in
    integers.

    scatter: int64 (d, d). freedom: n, of samples less classes."""
    dim, trace = len(scatter), sum(np.diagonal(scatter).tolist())
    squares = sum(sum(value * value for value in row) for row in scatter.tolist())         # exactly
    above = (1 - Fraction(2, dim)) * squares + trace ** 2
    below = (freedom + 1 - Fraction(2, dim)) * (squares - Fraction(trace ** 2, dim))
    return exact_share(above / below if below > 0 else 1)


def exact_share(share: float | Fraction) -> Fraction:
    """The multiple of 2^-30, below 1, that `lda` takes for this share."""
    one = 1 << _SHARE_BITS
    return Fraction(min(round(share * one), one - 1), one)
