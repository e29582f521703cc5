"""Exact leave-one-out: logits of f_T on samples that it has learned from, had it not seen each.

f* is calibrated on them, `out_of_sample` finds wrong labels by them. They are float64, made of
correctly rounded solutions and sums in order: the same bits on every machine. Functions take what a
head made of the statistics, the statistics, its settings (`scroll.heads.registry.Settings`),
quantised features (N, d) and labels (N,), and return float64 (N, K). x is [h; 1] or h, and v is x
less its class mean.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from scroll.ground.grid import GRID, GRID_BITS
from scroll.heads import discriminants, predictors
from scroll.heads.discriminants import QuadraticPredictor
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
    weights: float | np.ndarray = 1.0,
) -> np.ndarray:
    """Use leverage l = w x' (A + alpha I)^-1 x and target t, leaving x out turns its logit f into
    (f - l t) / (1 - l). weights: w, how often each sample is counted, a number or float64 (N,
    1)."""
    x = np.column_stack([lifted(statistics, features), np.full(len(features), GRID)])
    shift = predictors.usable_lambda(statistics.gram, settings.ridge_lambda)
    weights = np.broadcast_to(weights, (len(x), 1))
    leverage = weights * row_sums(x * solved_rows(statistics.gram, shift, x))[:, None]  # (N, 1)
    is_class = np.asarray(labels)[:, None] == online.classes
    target = np.where(is_class, 1.0, -1.0 if settings.targets == 'pm1' else 0.0)
    rest = 1 - leverage
    least = x.shape[1] / (16 * shift)  # l is off by up to 2^-13 of that
    logits = (online.decision_function(features) - leverage * target) / np.maximum(rest, least)
    right = predictors.target_sums(statistics, settings.targets)
    close = np.flatnonzero(rest < least)
    for start in range(0, len(close), _ROWS):
        rows = close[start : start + _ROWS]
        system = Refinement(statistics.gram, shift, np.hstack([right, x[rows].T]))
        logits[rows] = _to_more_bits(system, x[rows], target[rows], weights[rows])
    return logits


def _to_more_bits(
    system: Refinement, x: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """(f - l t) / (1 - l), t - (t - f) / (1 - l), where float64 has little of 1 - l. system: of
    target sums, then x."""
    while system.error().max() * 2.0 ** (system.exponent + 30) > 2.0**-80:
        system.step()
    solutions, inverse_rows = np.split(system.value(), [target.shape[1]], axis=1)
    one = 1 << -system.exponent
    exact = x.astype(object)
    leverage = (exact * inverse_rows.T).sum(axis=1) * [Fraction(w) for w in weights[:, 0]]
    error = target.astype(int).astype(object) * one - exact @ solutions
    return target - (error / (one - leverage)[:, None]).astype(np.float64)


def balanced_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """`ridge_left_out`, each class counted as often as before."""
    even = predictors.evened(statistics)
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
    """Logits of `ncc`: only the centroid of a sample's class changes."""
    logits = online.decision_function(features)
    u = lifted(statistics, features)
    rows = np.searchsorted(online.classes, labels)
    others = np.maximum(statistics.counts[rows] - 1, 1)[:, None]
    centroids = (statistics.sums[rows, :-1] - u) / (others * float(GRID))
    biases = predictors.NCC_FACTOR[settings.ncc_bias] * row_sums(centroids**2)
    logits[np.arange(len(u)), rows] = row_sums(u / GRID * centroids) + biases
    return logits


def lda_left_out(
    online: LinearPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """Logits of `lda`: without x its class has the mean m_c - v / (n_c - 1) and the scatter W - v
    v' n_c / (n_c - 1), whose inverse P follows from that of W (Sherman and Morrison 1950). The
    multiple of the identity stays. Means are those rounded to the grid."""
    means, scatter, shift, freedom = discriminants.lda_system(statistics, settings.shrinkage)
    rows = np.searchsorted(statistics.classes, labels)
    each = np.arange(len(features))
    count = statistics.counts[rows]
    others = np.maximum(count, 2) - 1.0  # n_c - 1, (N,)
    v = np.where(count[:, None] > 1, lifted(statistics, features) - means[rows], 0)
    a = row_sums(v * solved_rows(scatter, shift, v))  # v'Pv
    share = 1 + 1 / others
    # of 1 - share a, which rounding may make 0
    least = shift / (shift + share * row_sums(v * v * 1.0))
    weights = online.units.copy()
    weights[:, -1] = 0  # without biases
    slopes = replace(online, units=weights)
    xm = slopes.decision_function(features) / freedom  # x'Pm, (N, K)
    mean_mm = replace(slopes, lift=None).decision_function(means) / freedom  # m'Pm, (K, K)
    b = xm - mean_mm[rows]  # v'Pm
    mm = np.tile(np.diagonal(mean_mm), (len(v), 1))
    e = a + b[each, rows]  # x'Pv
    xm[each, rows] -= e / others  # the mean of its own class moves
    mm[each, rows] += (a / others - 2 * b[each, rows]) / others
    b[each, rows] -= a / others
    step = share / np.maximum(1 - share * a, least / 2)  # P' = P + step P v v'P
    logits = xm + (step * e)[:, None] * b - (mm + step[:, None] * b * b) / 2
    return np.where(count > 1, max(freedom - 1, 1), freedom)[:, None] * logits


def qda_left_out(
    online: QuadraticPredictor,
    statistics: Statistics,
    settings,
    features: np.ndarray,
    labels: np.ndarray,
) -> np.ndarray:
    """Logits of `qda`: the covariance of every class changes by a matrix of rank one. The factors
    of the scatters and the multiple of the identity stay. Products with the forms P are exact, as
    in `QuadraticPredictor`."""
    rows = np.searchsorted(statistics.classes, labels)
    counts = statistics.counts[rows]
    factor = np.where(counts > 1, counts / np.maximum(counts - 1.0, 1), 0)  # n / (n - 1)
    common = round(settings.pooling * discriminants.POOLING) / discriminants.POOLING
    freedom = max(statistics.total - len(statistics.classes), 1)
    unit = 2.0 ** (online.exponent - 2 * GRID_BITS)
    logits = online.decision_function(features)
    x = lifted(statistics, features)
    v = (x - online.means[rows]).astype(np.float64)
    for k, (mean, form) in enumerate(zip(online.means, online.forms)):
        in_class = rows == k
        pv = v @ form.astype(np.float64)
        lost = common / freedom + in_class * (1 - common) / max(int(statistics.counts[k]) - 1, 1)
        lost = lost * factor  # C' = C - lost v v'
        step = lost / (1 - lost * unit * row_sums(v * pv))
        logits[:, k] -= step * (unit * row_sums((x - mean) * pv)) ** 2
        # the mean of its class moves
        logits[in_class, k] *= np.where(factor > 0, factor, 1)[in_class] ** 2
    return logits


def lifted(statistics: Statistics, features: np.ndarray) -> np.ndarray:
    """h, whole numbers (N, D) in units of 2^-18, of quantised features (N, d)."""
    return features if statistics.lift is None else statistics.lift(features)
