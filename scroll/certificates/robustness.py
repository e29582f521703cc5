"""How far apart schedules of one data set lead a learner: formulas over a set of schedules, and the verdict.

    >>> summary([40.0, 36.0, 44.0, 40.0]).worst, order_disparity([[50, 80], [70, 80]])
    (36.0, (10.0, 20.0))
"""
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scroll.errors import InputError


def anytime_accuracy(hits: np.ndarray, sizes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """float (P,), percent: a(n), accuracy over all test samples of the classes seen (Koh et al. 2022), of
    hits int (P, K), sizes int (K,) and seen bool (P, K)."""
    return 100 * (hits * seen).sum(axis=1) / (sizes * seen).sum(axis=1)


def anytime_area(samples: np.ndarray, accuracies: np.ndarray) -> float:
    """A_AUC = sum_k a(n_k) (n_k - n_{k-1}) / N (Koh et al. 2022, whose steps are equal), of n int (P,) and a
    (P,)."""
    return float((np.asarray(accuracies) * np.diff(samples, prepend=0)).sum() / samples[-1])


def average_incremental_accuracy(hits: np.ndarray, sizes: np.ndarray, tasks: np.ndarray,
                                 points: np.ndarray) -> float:
    """Percent: mean_i mean_{j <= i} R[i, j] (Rebuffi et al. 2017), accuracy on task j after task i.

    hits: int (P, K), test samples of each class predicted right after each of `points` int (P,), tasks i.
    sizes: int (K,), test samples. tasks: int (K,), the task that brings each class."""
    means = []
    for row, point in zip(hits, points):
        seen = tasks <= point
        right, count = (np.bincount(tasks[seen], weights=x[seen]) for x in (row, sizes))
        means.append(100 * (right[count > 0] / count[count > 0]).mean())
    return float(np.mean(means))


class Summary(NamedTuple):
    """Accuracies of R schedules; deviation over R - 1."""
    mean: float
    deviation: float
    worst: float
    best: float
    range: float
    cvar10: float


def summary(accuracies) -> Summary:
    """How accuracies (R,) differ; InputError of none."""
    a = np.asarray(accuracies, np.float64)
    if not len(a):
        raise InputError('there are no accuracies to compare')
    worst, best = float(a.min()), float(a.max())
    mean = min(max(float(a.mean()), worst), best)       # rounding must not make equal ones differ
    deviation = float(np.std(a, ddof=1)) if best > worst else 0.0
    return Summary(mean, deviation, worst, best, best - worst, cvar(a, 0.1))


def cvar(accuracies, share: float) -> float:
    """Conditional value at risk, the mean of the worst `share` of accuracies (R,): with m = share R, at least
    1, the floor(m) worst and m - floor(m) of the next, over m (Rockafellar and Uryasev 2000)."""
    a = np.sort(np.asarray(accuracies, np.float64))
    m = max(1.0, round(share * len(a), 9))                                      # 0.1 * 30 is not 3
    weights = np.clip(m - np.arange(len(a)), 0, 1)
    return float(np.clip((a * weights).sum() / m, a[0], a[-1]))


def order_disparity(accuracies) -> tuple:
    """(AOPD, MOPD) of accuracies (R, K), of K classes under R schedules (Yoon et al. 2020): mean and maximum
    over k of max_r P_k^r - min_r P_k^r."""
    opd = np.ptp(np.asarray(accuracies, np.float64), axis=0)
    return float(opd.mean()), float(opd.max())


def class_accuracies(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """float (R, K), percent: accuracy on the samples of each class. predictions: (R, N). labels: (N,)."""
    right = np.asarray(predictions) == labels
    return np.stack([100 * right[:, labels == c].mean(axis=1) for c in np.unique(labels)], axis=1)


def disagreement(predictions: np.ndarray, times=None) -> float:
    """Percent of samples that two schedules' predictors label differently, mean over pairs of schedules: with
    n_c of R predictors saying c for a sample, sum_c n_c (n_c - 1) of its R (R - 1) ordered pairs agree.

    predictions: (D, N), distinct rows. times: int (D,), how many schedules gave each; None: one."""
    predictions = np.asarray(predictions)
    times = np.ones(len(predictions), np.int64) if times is None else np.asarray(times, np.int64)
    total = int(times.sum())
    if total < 2:
        return 0.0
    votes = (times @ (predictions == label) for label in np.unique(predictions))
    agreeing = sum(int((n * (n - 1)).sum()) for n in votes)
    return 100 * (1 - agreeing / (predictions.shape[1] * total * (total - 1)))


def largest_weight_difference(weights) -> float:
    """max over pairs of schedules and over weights of |w_r - w_s|; infinite if not finite, or of different
    numbers of weights. weights: an iterable of arrays (P,)."""
    low = high = None
    for row in weights:
        row = np.asarray(row, np.float64)
        if low is not None and row.shape != low.shape:
            return float('inf')
        low, high = (row, row) if low is None else (np.minimum(low, row), np.maximum(high, row))
    gap = float((high - low).max(initial=0))
    return gap if np.isfinite(gap) else float('inf')


def variance_shares(accuracies) -> tuple:
    """(schedule, seed, rest), percent of the sum of squares of accuracies (R, S), of R schedules and S seeds:
    Fisher's two-way layout without replication; zeros where nothing varies."""
    a = np.asarray(accuracies, np.float64)
    rows, columns = a.mean(axis=1) - a.mean(), a.mean(axis=0) - a.mean()
    rest = a - a.mean() - rows[:, None] - columns
    squares = np.array([a.shape[1] * (rows ** 2).sum(), a.shape[0] * (columns ** 2).sum(), (rest ** 2).sum()])
    squares[squares < 1e-18 * max(1.0, (a ** 2).sum())] = 0             # rounding errors
    return tuple((100 * squares / max(squares.sum(), 1e-300)).tolist())


@dataclass(frozen=True)
class Verdict:
    """The effect of R schedules on one method: whether digests claimed to be equal are, how many different
    ones there are by name, the largest difference of weights, percent of disagreement, accuracies in
    percent, and order-normalised disparity of classes in points."""
    schedules: int
    identical: bool
    distinct: dict
    weight_difference: float
    disagreement: float
    final: Summary
    incremental: Summary
    aopd: float
    mopd: float

    def sentence(self) -> str:
        """The verdict in a line."""
        if self.identical:
            return f'bit-identical under {self.schedules} schedules'
        return (f'not identical under {self.schedules} schedules: weights up to {self.weight_difference:.3g} '
                f'apart, two predictors disagree on {self.disagreement:.2f} % of the test samples, accuracy '
                f'{self.final.worst:.2f} to {self.final.best:.2f} %')


def judge(digests: dict, claimed: dict, outcomes: dict, labels: np.ndarray, final, incremental) -> Verdict:
    """The verdict over R schedules.

    digests: name -> R digests, None where there is none. claimed: name -> R bools: whose are claimed equal.
    outcomes: digest of an outcome -> (times, weights (P,), predictions (N,)); times add up to R. labels:
    (N,), of the test samples. final, incremental: R accuracies, percent."""
    distinct = {name: len({*values} - {None}) for name, values in digests.items()}
    identical = all(len({d for d, c in zip(digests[name], claims) if c} - {None}) <= 1
                    for name, claims in claimed.items())
    times, weights, predictions = zip(*outcomes.values())
    predictions = np.stack(predictions)
    return Verdict(len(final), identical, distinct, largest_weight_difference(weights),
                   disagreement(predictions, times), summary(final), summary(incremental),
                   *order_disparity(class_accuracies(predictions, labels)))
