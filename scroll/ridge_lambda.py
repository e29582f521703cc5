"""Ridge's lambda without a validation set: generalised cross-validation (GCV), from the statistics alone.

GCV(lambda) = (RSS / N) / (1 - df / N)^2 (Golub, Heath and Wahba 1979) needs the Gram matrix, the class sums and the counts
and nothing else, so its choice is the same, to the last bit, under every schedule, batching and sharding, and no sample has
to be kept for it. `left_out` is what GCV approximates, exact leave-one-out; it needs one pass over the features.

    >>> import numpy as np
    >>> from scroll.embedding import quantise
    >>> u, y = quantise(np.random.default_rng(0).normal(size=(300, 4))), np.arange(300) % 3
    >>> easy = u[:, :3].argmax(axis=1)                          # while of the labels y the features know nothing
    >>> choose_lambda(Statistics(4).add(u, easy)) < 1 < 30 < choose_lambda(Statistics(4).add(u, y))
    True
"""
from dataclasses import dataclass

import numpy as np
import torch

from scroll.predictors import TARGETS, check_seen, one_thread, target_sums
from scroll.statistics import GRID, Statistics

AUTO = 'auto'                       # in the place of a number: let the statistics choose
_LIMIT, _STEPS = 600, (25, 5, 1)    # lambda = 10^(k / 100), |k| <= 600: a quarter of a decade first, then finer about the best
_TIE = 1e-9                         # criteria this close, relatively, are equal: rounding tells nothing apart
_BLOCK = 4096                       # samples of `left_out` at once


@dataclass(frozen=True)
class Spectrum:
    """What ridge on [u; 1] is for every lambda at once: W = Q diag(1 / (s + lambda)) (Q' R), Gram matrix Q diag(s) Q'.

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
    """Eigen-decomposition of the Gram matrix, float64 on one thread. InputError: nothing seen, or other targets."""
    check_seen(statistics)
    sums, total = target_sums(statistics, targets), statistics.total
    with one_thread():
        values, vectors = torch.linalg.eigh(torch.from_numpy(statistics.gram / float(GRID) ** 2))
        kept = values > len(values) * torch.finfo(values.dtype).eps * values[-1]
        values, vectors = values[kept], vectors[:, kept]
        projected = vectors.T @ sums
    squares = total * len(statistics.classes) if targets == TARGETS[0] else total       # each target is +-1, or one of them 1
    return Spectrum(statistics.classes, targets, total, values.numpy(), vectors.numpy(), projected.numpy(), float(squares))


def gcv(of: Spectrum, lambdas) -> np.ndarray:
    """Generalised cross-validation's estimate of the squared error on a new sample, summed over classes.

    RSS(lambda) = RSS(0) + sum_i |c_i|^2 / s_i (lambda / (s_i + lambda))^2 with c = Q' R, and df = sum_i s_i / (s_i + lambda).
    Both are written so that nothing cancels where the features can fit every sample (N = r).

    Args:
        lambdas: positive (L,).

    Returns:
        float64 (L,); infinite for a lambda too small to be told from zero beside the largest eigenvalue.
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


def search(criterion) -> float:
    """The lambda, of three digits, with the least criterion; ties go to the largest.

    From 1e-6 to 1e6, four a decade, then twice five times as fine between the best one's neighbours.

    Args:
        criterion: float64 (L,) of lambdas -> (L,), not negative.
    """
    best, reach = 0, _LIMIT
    for step in _STEPS:
        exponents = np.arange(max(best - reach, -_LIMIT), min(best + reach, _LIMIT) + 1, step)
        values = criterion(_lambdas(exponents))
        best, reach = int(exponents[values <= values.min() * (1 + _TIE)][-1]), step
    return float(_lambdas([best])[0])


def _lambdas(exponents) -> np.ndarray:
    """10^(k / 100), rounded to three digits: the same number on any machine."""
    return np.array([float(f'{10.0 ** (k / 100):.3g}') for k in exponents])


def choose_lambda(statistics: Statistics, targets: str = 'pm1') -> float:
    """GCV's choice: a pure function of the statistics."""
    of = spectrum(statistics, targets)
    return search(lambda lambdas: gcv(of, lambdas))


def left_out(of: Spectrum, lambdas, features: np.ndarray, labels: np.ndarray) -> tuple:
    """Exact leave-one-out over samples that were learned: what each gets from ridge that has not seen it.

    The residual of a left-out sample is e = (t - x W) / (1 - h), h = x' (A + lambda I)^-1 x, x = [u; 1].

    Args:
        lambdas: positive (L,). features: int (N, d), quantised: all that the spectrum knows. labels: (N,).

    Returns:
        (squared error summed over classes, mean over samples; share of samples predicted right), float64 (L,) each.
    """
    lambdas, labels = np.asarray(lambdas, np.float64), np.asarray(labels)
    squared, right = np.zeros(len(lambdas)), np.zeros(len(lambdas))
    for start in range(0, len(labels), _BLOCK):
        part = slice(start, start + _BLOCK)
        z = np.asarray(features[part], np.float64) / GRID @ of.vectors[:-1] + of.vectors[-1]        # Q' x, (B, r)
        own = labels[part, None] == of.classes
        target = np.where(own, 1.0, -1.0 if of.targets == 'pm1' else 0.0)
        for i, inverse in enumerate(1 / (of.values + lambdas[:, None])):
            leverage = (z * z) @ inverse
            error = (target - (z * inverse) @ of.projected) / (1 - leverage)[:, None]
            squared[i] += (error * error).sum()
            right[i] += own[np.arange(len(own)), (target - error).argmax(axis=1)].sum()
    return squared / len(labels), right / len(labels)
