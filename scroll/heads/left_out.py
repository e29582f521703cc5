"""Exact leave-one-out: what f_T says of samples that it has learned from, as if it had not.

f* is calibrated on these logits. They are float64, from torch's solves on one thread, and the bits of f*
follow theirs.
"""
from contextlib import contextmanager

import numpy as np
import torch

from scroll.grid import GRID
from scroll.heads import lda
from scroll.heads.predictors import NCC_FACTOR, exact_lambda, ncc, ridge
from scroll.statistics import Statistics


def _ridge_factor(statistics: Statistics, alpha: float) -> torch.Tensor:
    """Cholesky factor of A + alpha I, float64 (d + 1, d + 1)."""
    gram = torch.from_numpy(statistics.gram / float(GRID) ** 2)
    gram.diagonal().add_(exact_lambda(alpha))
    return torch.linalg.cholesky(gram)


def ridge_left_out(statistics: Statistics, alpha: float, targets: str, features: np.ndarray,
                   labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that ridge would give to samples it has learned from, had it not seen each.

    Exact, from the statistics: with h = x' (A + alpha I)^-1 x and target t, leaving x out turns its logit f
    into (f - h t) / (1 - h). features: (N, d), quantised. labels: (N,).
    """
    online = ridge(statistics, alpha, targets)
    x = np.concatenate([np.asarray(features, np.float64) / GRID, np.ones((len(features), 1))], axis=1)
    with one_thread():
        solved = torch.cholesky_solve(torch.from_numpy(x).T, _ridge_factor(statistics, alpha)).T.numpy()
    leverage = (x * solved).sum(axis=1, keepdims=True)                          # (N, 1)
    own = np.asarray(labels)[:, None] == online.classes
    target = np.where(own, 1.0, -1.0 if targets == 'pm1' else 0.0)
    return (online.decision_function(features) - leverage * target) / (1 - leverage)


def ncc_left_out(statistics: Statistics, bias: str, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that NCC would give to samples it has learned from, had it not seen each.

    Only the own class's centroid changes; that of a class with one sample stays.
    """
    online = ncc(statistics, bias)
    logits, u = online.decision_function(features), np.asarray(features, np.float64)
    rows = np.searchsorted(online.classes, labels)
    count = statistics.counts[rows][:, None]
    sums = statistics.sums[rows, :-1] - np.where(count > 1, u, 0)
    centroids = sums / (np.maximum(count - 1, 1) * float(GRID))
    own = (u / GRID * centroids).sum(axis=1) + NCC_FACTOR[bias] * (centroids ** 2).sum(axis=1)
    logits[np.arange(len(u)), rows] = own
    return logits


def lda_left_out(statistics: Statistics, shrinkage, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that `lda` would give to samples it has learned from, had it not seen each.

    Without x, with v = x - m_c, its class has the mean m_c - v / (n_c - 1) and the scatter W - v v' n_c /
    (n_c - 1), whose inverse follows from that of W (Sherman and Morrison 1950). What is added to the diagonal
    stays; so does the class of one sample. Means are not rounded to the grid here.
    """
    means, scatter, units, freedom = lda.system(statistics, shrinkage)
    rows, each = np.searchsorted(statistics.classes, labels), np.arange(len(features))
    others = torch.from_numpy(np.maximum(statistics.counts[rows], 2) - 1.0)         # n_c - 1, (N,)
    with one_thread():
        x = torch.from_numpy(np.asarray(features, np.float64) / GRID)               # (N, d)
        means = torch.from_numpy(means / float(GRID))                               # (K, d)
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


@contextmanager
def one_thread():
    """Run torch on one thread, so that bits do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
