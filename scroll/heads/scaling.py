"""The scale of logits: the factor with which their softmax has the least cross-entropy (Guo et al.
2017).

Equal logits give equal bits on every machine: exponentials and logarithms, which differ between
libraries and processors, are polynomials here, and sums are taken in order.
"""

from math import factorial, fsum

import numpy as np
from scipy.optimize import minimize_scalar

_LOG2 = 0.6931471805599453
_MAX = 700.0  # beyond, exponentials leave float64's normal numbers


def fit_scale(
    logits: np.ndarray,
    targets: np.ndarray,
    bounds=(1e-2, 1e3),
    weights=None,
    smoothing: float = 0.0,
) -> float:
    """Return the s within `bounds` with the least mean cross-entropy of softmax(s * logits).
    Samples whose true class has the logit -inf, an unknown class, are left out; 1 if none is left.

    logits: float64 (N, K).
    targets: int (N,), columns of the true classes.
    weights: (N,), or None: all count alike.
    smoothing: share of each target that goes to all classes equally."""
    finite = np.isfinite(logits[np.arange(len(targets)), targets])
    if not finite.any():
        return 1.0
    logits = logits[finite]
    targets = targets[finite]
    weights = np.ones(len(targets)) if weights is None else weights[finite]

    def mean(exponent: float) -> float:
        losses = cross_entropies(logits, targets, float(_exp(exponent)), smoothing)
        return fsum(losses * weights) / fsum(weights)

    best = minimize_scalar(mean, bounds=_log(np.array(bounds)).tolist(), method='bounded')
    return float(_exp(best.x))


def cross_entropies(
    logits: np.ndarray, targets: np.ndarray, scale: float, smoothing: float
) -> np.ndarray:
    """Cross-entropy of each sample with softmax(scale * logits), float64 (N,), in nats. Arguments
    as `fit_scale`."""
    z = np.asarray(logits, np.float64)
    z = scale * (z - z.max(axis=1, keepdims=True))
    target_logits = z[np.arange(len(z)), targets]
    if smoothing:
        mean = row_sums(z) / z.shape[1]
        target_logits = (1 - smoothing) * target_logits + smoothing * mean
    return _log(row_sums(_exp(z))) - target_logits


def probabilities(logits: np.ndarray, scale: float) -> np.ndarray:
    """softmax(scale * logits), float64 (N, K)."""
    powers = _exp(scale * (logits - logits.max(axis=1, keepdims=True)))
    return powers / row_sums(powers)[:, None]


def better_than_guessing(logits: np.ndarray, targets: np.ndarray) -> bool:
    """True if softmax(s * logits) has a smaller mean cross-entropy for some s > 0 than for s = 0.
    The cross-entropy is convex in s, so its slope at 0 decides: the mean over samples of the
    logits' mean less the true class's. Arguments, and samples that are left out, as `fit_scale`."""
    target_logits = logits[np.arange(len(targets)), targets]
    finite = np.isfinite(target_logits)
    gains = target_logits[finite] - row_sums(logits[finite]) / logits.shape[1]
    return fsum(gains) > 0


def row_sums(values: np.ndarray) -> np.ndarray:
    """Sums (N,) of float64 (N, K), added from left to right, as `np.sum` may not do."""
    return np.cumsum(values, axis=1)[:, -1]


def _exp(t) -> np.ndarray:
    """e^t to within 2^-40 of its size, for t up to 700; e^-700 for all below."""
    t = np.maximum(t, -_MAX)
    power = np.rint(t * (1 / _LOG2))
    rest = (t - power * _LOG2) * (1 / 16)
    out = rest * (1 / factorial(7))
    for k in range(6, 0, -1):
        out += 1 / factorial(k)
        out *= rest
    out += 1
    for _ in range(4):  # (e^rest)^16
        out *= out
    return np.ldexp(out, power.astype(np.int32))


def _log(x: np.ndarray) -> np.ndarray:
    """log x of normal numbers, to within 2^-50 of its size."""
    share, power = np.frexp(x)  # x = share 2^power, share from 1/2 up to 1
    small = share < 0.5**0.5
    share = np.where(small, 2 * share, share)
    power = power - small
    z = (share - 1) / (share + 1)
    square = z * z
    out = 0.0
    for k in range(21, 0, -2):
        out = out * square + 1 / k
    return 2 * z * out + power * _LOG2
