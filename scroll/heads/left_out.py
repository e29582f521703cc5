"""Exact leave-one-out: what f_T says of samples that it has learned from, as if it had not.

f* is calibrated on these logits, and `auto` chooses a head by them. They are float64, from torch's solves on
one thread, and the bits of f* follow theirs. In all of them x = [h; 1] or h, and v is x less its class mean.
"""
from contextlib import contextmanager

import numpy as np
import torch

from scroll.grid import GRID
from scroll.heads import lda, quadratic
from scroll.heads.balanced import evened
from scroll.heads.predictors import NCC_FACTOR, LinearPredictor, exact_lambda
from scroll.statistics import Statistics


def ridge_left_out(online: LinearPredictor, statistics: Statistics, settings, features: np.ndarray,
                   labels: np.ndarray, weights=1.0) -> np.ndarray:
    """Logits float64 (N, K) that ridge would give to samples it has learned from, had it not seen each.

    Exact, from the statistics: with leverage l = w x' (A + alpha I)^-1 x and target t, leaving x out turns
    its logit f into (f - l t) / (1 - l).

    Args:
        online: what `ridge` made of the statistics with these settings (`scroll.heads.registry.Settings`).
        features: (N, d), quantised. labels: (N,).
        weights: w, how often each sample is counted, a number or float64 (N, 1).
    """
    gram = torch.from_numpy(statistics.gram / float(GRID) ** 2)
    gram.diagonal().add_(exact_lambda(settings.ridge_lambda))
    x = np.concatenate([lifted(statistics, features), np.ones((len(features), 1))], axis=1)
    with one_thread():
        solved = torch.cholesky_solve(torch.from_numpy(x).T, torch.linalg.cholesky(gram)).T.numpy()
    leverage = weights * (x * solved).sum(axis=1, keepdims=True)                # (N, 1)
    own = np.asarray(labels)[:, None] == online.classes
    target = np.where(own, 1.0, -1.0 if settings.targets == 'pm1' else 0.0)
    return (online.decision_function(features) - leverage * target) / (1 - leverage)


def balanced_left_out(online: LinearPredictor, statistics: Statistics, settings, features: np.ndarray,
                      labels: np.ndarray) -> np.ndarray:
    """As `ridge_left_out`, of `balanced`; each class counts as often as before."""
    even = evened(statistics)
    rows = np.searchsorted(statistics.classes, labels)
    weights = (even.counts / statistics.counts)[rows][:, None]
    return ridge_left_out(online, even, settings, features, labels, weights)


def ncc_left_out(online: LinearPredictor, statistics: Statistics, settings, features: np.ndarray,
                 labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that NCC would give to samples it has learned from, had it not seen each.

    Only the own class's centroid changes; that of a class with one sample stays.
    """
    logits, u = online.decision_function(features), lifted(statistics, features) * GRID
    rows = np.searchsorted(online.classes, labels)
    count = statistics.counts[rows][:, None]
    sums = statistics.sums[rows, :-1] - np.where(count > 1, u, 0)
    centroids = sums / (np.maximum(count - 1, 1) * float(GRID))
    own = (u / GRID * centroids).sum(axis=1) + NCC_FACTOR[settings.ncc_bias] * (centroids ** 2).sum(axis=1)
    logits[np.arange(len(u)), rows] = own
    return logits


def lda_left_out(online, statistics: Statistics, settings, features: np.ndarray,
                 labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that `lda` would give to samples it has learned from, had it not seen each.

    Without x its class has the mean m_c - v / (n_c - 1) and the scatter W - v v' n_c / (n_c - 1), whose
    inverse follows from that of W (Sherman and Morrison 1950). What is added to the diagonal stays; so does
    the class of one sample. Means are not rounded to the grid here.
    """
    means, scatter, units, freedom = lda.system(statistics, settings.shrinkage)
    rows, each = np.searchsorted(statistics.classes, labels), np.arange(len(features))
    others = torch.from_numpy(np.maximum(statistics.counts[rows], 2) - 1.0)         # n_c - 1, (N,)
    with one_thread():
        x = torch.from_numpy(lifted(statistics, features))                          # (N, D)
        means = torch.from_numpy(means / float(GRID))                               # (K, D)
        v = torch.where(torch.from_numpy(statistics.counts[rows] > 1)[:, None], x - means[rows], 0)
        system = torch.from_numpy(scatter / float(GRID) ** 2)
        system.diagonal().add_(units / float(GRID) ** 2)
        solved = torch.cholesky_solve(torch.cat([v, means]).T, torch.linalg.cholesky(system)).T
        pv, pm = solved[:len(x)], solved[len(x):]                                   # P v, P m
        a, b, e = (v * pv).sum(dim=1), v @ pm.T, (x * pv).sum(dim=1)                # v'Pv; v'Pm; x'Pv
        xm, mm = x @ pm.T, (means * pm).sum(dim=1).repeat(len(x), 1)                # x'Pm; m'Pm, (N, K)
    xm[each, rows] -= e / others                                    # the mean of its own class moves
    mm[each, rows] += (a / others - 2 * b[each, rows]) / others
    b[each, rows] -= a / others
    step = (1 + 1 / others) / (1 - (1 + 1 / others) * a)            # P' = P + step P v v'P
    logits = xm + (step * e)[:, None] * b - (mm + step[:, None] * b * b) / 2
    return max(freedom - 1, 1) * logits.numpy()


def qda_left_out(online, statistics: Statistics, settings, features: np.ndarray,
                 labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that `qda` would give to samples it has learned from, had it not seen each.

    Without x the mean and the scatter of its class change as in `lda_left_out`, and with them, by a matrix of
    rank one, the covariance of every class. The factors of the scatters and the diagonal part stay; so does
    the class of one sample. Means are not rounded to the grid here.
    """
    means = lda.class_means(statistics)
    systems, units = quadratic.covariances(statistics, means, settings.pooling, settings.shrinkage)
    rows = np.searchsorted(statistics.classes, labels)
    counts = statistics.counts[rows]
    factor = torch.from_numpy(np.where(counts > 1, counts / np.maximum(counts - 1.0, 1), 0))    # n / (n - 1)
    common = quadratic.exact_pooling(settings.pooling) / quadratic.POOLING
    freedom = max(lda.degrees(statistics), 1)
    logits = torch.empty(len(features), len(means), dtype=torch.float64)
    with one_thread():
        x, m = torch.from_numpy(lifted(statistics, features)), torch.from_numpy(means / float(GRID))
        v = x - m[rows]
        for k, system in enumerate(systems):
            own = torch.from_numpy(rows == k)
            matrix = torch.from_numpy(system / float(GRID) ** 2)
            matrix.diagonal().add_(units / float(GRID) ** 2)
            z = torch.where(own[:, None], torch.where(factor > 0, factor, 1.)[:, None] * v, x - m[k])
            solved = torch.cholesky_solve(torch.cat([v, z]).T, torch.linalg.cholesky(matrix)).T
            pv, pz = solved[:len(x)], solved[len(x):]
            lost = common + own * (1 - common) * freedom / max(int(statistics.counts[k]) - 1, 1)
            lost = lost * factor                                                # C' = C - lost v v'
            step = lost / (1 - lost * (v * pv).sum(dim=1))
            logits[:, k] = -((z * pz).sum(dim=1) + step * (z * pv).sum(dim=1) ** 2)
    return freedom * logits.numpy()


def nothing_left_out(online, statistics: Statistics, settings, features: np.ndarray,
                     labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) of a predictor that looks at no sample."""
    return online.decision_function(features)


def lifted(statistics: Statistics, features: np.ndarray) -> np.ndarray:
    """h, float64 (N, D), of quantised features (N, d)."""
    return (features if statistics.lift is None else statistics.lift(features)) / float(GRID)


@contextmanager
def one_thread():
    """Run torch on one thread, so that bits do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
