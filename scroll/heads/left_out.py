"""Exact leave-one-out: logits of f_T on samples that it has learned from, had it not seen each.

f* is calibrated on them, `auto` chooses a head by them, `out_of_sample` finds wrong labels by them.
They are float64, made of correctly rounded solutions and sums in order: the same bits on every
machine. Functions take what a head made of the statistics, the statistics, its settings
(`scroll.heads.registry.Settings`), quantised features (N, d) and labels (N,), and return float64
(N, K). x is [h; 1] or h, and v is x less its class mean.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from scroll.ground.grid import GRID, GRID_BITS
from scroll.heads import discriminants, predictors
from scroll.heads.predictors import LinearPredictor
from scroll.heads.rounded import Refinement, solved_rows
from scroll.heads.scaling import row_sums
from scroll.sums.statistics import Statistics

_ROWS = 1 << 9  # solved for at once


def ridge_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
    weights=1.0,
) -> np.ndarray:
    """With leverage l = w x' (A + alpha I)^-1 x and target t, leaving x out turns its logit f into
    (f - l t) / (1 - l). weights: w, how often each sample is counted, a number or float64 (N,
    1)."""
    x = np.column_stack([lifted(statistics, features), np.full(len(features), GRID)])
    units = predictors.usable_lambda(statistics, settings.ridge_lambda)
    weights = np.broadcast_to(weights, (len(x), 1))
    leverage = weights * row_sums(x * solved_rows(statistics.gram, units, x))[:, None]  # (N, 1)
    own = np.asarray(labels)[:, None] == online.classes
    target = np.where(own, 1.0, -1.0 if settings.targets == 'pm1' else 0.0)
    rest, least = 1 - leverage, x.shape[1] / (16 * units)  # l is off by up to 2^-13 of that
    logits = (online.decision_function(features) - leverage * target) / np.maximum(rest, least)
    close, right = (
        np.flatnonzero(rest < least),
        predictors.target_sums(statistics, settings.targets),
    )
    for start in range(0, len(close), _ROWS):
        rows = close[start : start + _ROWS]
        logits[rows] = _to_more_bits(
            statistics.gram, units, right, x[rows], target[rows], weights[rows]
        )
    return logits


def _to_more_bits(gram, units, right, x, target, weights) -> np.ndarray:
    """(f - l t) / (1 - l), t - (t - f) / (1 - l), where float64 has little of 1 - l."""
    system, exact = Refinement(gram, units, np.hstack([right, x.T])), x.astype(object)
    while system.error().max() * 2.0 ** (system.exponent + 30) > 2.0**-80:
        system.step()
    solved, one, K = system.value(), 1 << -system.exponent, right.shape[1]
    leverage = (exact * solved[:, K:].T).sum(axis=1) * [Fraction(w) for w in weights[:, 0]]
    error = target.astype(int).astype(object) * one - exact @ solved[:, :K]
    return target - (error / (one - leverage)[:, None]).astype(np.float64)


def balanced_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """As `ridge_left_out`; each class counts as often as before."""
    even = predictors.evened(statistics)
    least = predictors.least_evened(statistics)
    settings = replace(settings, ridge_lambda=max(settings.ridge_lambda, least))
    rows = np.searchsorted(statistics.classes, labels)
    weights = (even.counts / statistics.counts)[rows][:, None]
    return ridge_left_out(online, even, settings, features, labels, weights)


def ncc_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """Only the own class's centroid changes."""
    logits, u = online.decision_function(features), lifted(statistics, features)
    rows = np.searchsorted(online.classes, labels)
    others = np.maximum(statistics.counts[rows] - 1, 1)[:, None]
    centroids = (statistics.sums[rows, :-1] - u) / (others * float(GRID))
    logits[np.arange(len(u)), rows] = row_sums(u / GRID * centroids) + predictors.NCC_FACTOR[
        settings.ncc_bias
    ] * row_sums(centroids**2)
    return logits


def lda_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """Without x its class has the mean m_c - v / (n_c - 1) and the scatter W - v v' n_c / (n_c -
    1), whose inverse P follows from that of W (Sherman and Morrison 1950). What is added to the
    diagonal stays. Means are those rounded to the grid."""
    means, scatter, units, freedom = discriminants.system(statistics, settings.shrinkage)
    rows, each = np.searchsorted(statistics.classes, labels), np.arange(len(features))
    count = statistics.counts[rows]
    others = np.maximum(count, 2) - 1.0  # n_c - 1, (N,)
    v = np.where(count[:, None] > 1, lifted(statistics, features) - means[rows], 0)
    a = row_sums(v * solved_rows(scatter, units, v))  # v'Pv
    share = 1 + 1 / others
    # of 1 - share a, which rounding may make 0
    least = units / (units + share * row_sums(v * v * 1.0))
    slopes = online.units.copy()
    slopes[:, -1] = 0  # without biases
    slopes = LinearPredictor(online.classes, slopes, online.exponent)
    of_means = slopes.decision_function(means) / freedom  # m'Pm, (K, K)
    xm = replace(slopes, lift=statistics.lift).decision_function(features) / freedom  # x'Pm, (N, K)
    b, mm = xm - of_means[rows], np.tile(np.diagonal(of_means), (len(v), 1))  # v'Pm; m'Pm
    e = a + b[each, rows]  # x'Pv
    xm[each, rows] -= e / others  # the mean of its own class moves
    mm[each, rows] += (a / others - 2 * b[each, rows]) / others
    b[each, rows] -= a / others
    step = share / np.maximum(1 - share * a, least / 2)  # P' = P + step P v v'P
    logits = xm + (step * e)[:, None] * b - (mm + step[:, None] * b * b) / 2
    return np.where(count > 1, max(freedom - 1, 1), freedom)[:, None] * logits


def qda_left_out(
    online, statistics: Statistics, settings, features: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """As `lda_left_out`; the covariance of every class changes by a matrix of rank one. The factors
    of the scatters and the diagonal part stay. Products with the forms P are exact, as in
    `QuadraticPredictor`."""
    rows = np.searchsorted(statistics.classes, labels)
    counts = statistics.counts[rows]
    factor = np.where(counts > 1, counts / np.maximum(counts - 1.0, 1), 0)  # n / (n - 1)
    common = round(settings.pooling * discriminants.POOLING) / discriminants.POOLING
    freedom, unit = (
        max(discriminants.degrees(statistics), 1),
        2.0 ** (online.exponent - 2 * GRID_BITS),
    )
    logits, x = online.decision_function(features), lifted(statistics, features)
    v = (x - online.means[rows]).astype(np.float64)
    for k, (mean, form) in enumerate(zip(online.means, online.forms)):
        own, pv = rows == k, v @ form.astype(np.float64)
        lost = common / freedom + own * (1 - common) / max(int(statistics.counts[k]) - 1, 1)
        lost = lost * factor  # C' = C - lost v v'
        step = lost / (1 - lost * unit * row_sums(v * pv))
        # of x less the mean; the mean
        logits[:, k] -= step * (unit * row_sums((x - mean) * pv)) ** 2
        logits[own, k] *= np.where(factor > 0, factor, 1)[own] ** 2  # of its own class moves
    return logits


def lifted(statistics: Statistics, features: np.ndarray) -> np.ndarray:
    """h, whole numbers (N, D) in units of 2^-18, of quantised features (N, d)."""
    return features if statistics.lift is None else statistics.lift(features)
