"""Statistics -> linear classifier: nearest centroid (NCC), ridge regression, and a random one for the ablation.

Each is a pure function of the exact statistics, so it is the same, to the last bit, under every schedule. The solver runs
on one thread: its bits do not depend on how many the machine has.
"""
import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch

from scroll.errors import InputError
from scroll.randomness import numpy_stream
from scroll.statistics import GRID, Statistics

_NCC_FACTOR = dict(exact=-0.5, paper=-1.0, zero=0.0)     # of |c|^2
NCC_BIASES = tuple(_NCC_FACTOR)
TARGETS = ('pm1', 'onehot')


@dataclass(frozen=True)
class LinearPredictor:
    """argmax_y w_y . u + b_y over unit features u.

    Attributes:
        classes: (K,) sorted labels. weight: float64 (K, d). bias: float64 (K,).
    """
    classes: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        """Logits float64 (N, K) of quantised features (N, d)."""
        return (np.asarray(features, np.float64) / GRID) @ self.weight.T + self.bias

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Labels (N,) of quantised features (N, d)."""
        return self.classes[self.decision_function(features).argmax(axis=1)]

    def digest(self) -> str:
        """SHA-256 of classes, weights and biases."""
        sha = hashlib.sha256(json.dumps(self.classes.tolist()).encode())
        for array in (self.weight, self.bias):
            sha.update(np.ascontiguousarray(array, '<f8').tobytes())
        return sha.hexdigest()


def ncc(statistics: Statistics, bias: str = 'exact') -> LinearPredictor:
    """Nearest centroid classifier as a linear layer (paper, eq. 5), w_y = c_y.

    |u - c_y|^2 = |u|^2 - 2 (u . c_y - |c_y|^2 / 2), so the exact bias is -|c_y|^2 / 2. `paper` is the -|c_y|^2 of the
    paper's appendix, which lacks the factor; `zero` has no bias. Centroids of unit features are shorter than one.
    """
    check_seen(statistics)
    if bias not in _NCC_FACTOR:
        raise InputError(f'ncc bias {bias!r}: expected one of {", ".join(NCC_BIASES)}')
    centroids = statistics.sums[:, :-1] / (statistics.counts[:, None] * float(GRID))
    return LinearPredictor(statistics.classes, centroids, _NCC_FACTOR[bias] * (centroids * centroids).sum(axis=1))


def ridge(statistics: Statistics, alpha: float, targets: str = 'pm1') -> LinearPredictor:
    """Ridge regression on [u; 1] (paper, eqs. 7 and 8; the constant feature, regularised like the others, is the bias).

    Solves (A + alpha I) W = R with A = sum [u; 1][u; 1]^T over all samples, by Cholesky in float64 with one step of
    refinement. R holds the class sums S (`onehot`), or 2 S - sum_y S_y for targets +-1 (`pm1`), which gives the same
    argmax and logits twice as far apart. The paper's lambda is alpha / N.

    Raises:
        InputError: nothing seen, or alpha too small for a positive definite system.
    """
    check_seen(statistics)
    system, sums = _ridge_system(statistics, alpha), target_sums(statistics, targets)
    with one_thread():
        factor = _cholesky(system, alpha)
        solution = torch.cholesky_solve(sums, factor)
        solution += torch.cholesky_solve(sums - system @ solution, factor)
    weights = solution.T.contiguous().numpy()                                   # (K, d + 1)
    return LinearPredictor(statistics.classes, weights[:, :-1].copy(), weights[:, -1].copy())


def target_sums(statistics: Statistics, targets: str) -> torch.Tensor:
    """R = sum [u; 1] t^T over all samples, float64 (d + 1, K), of the targets t that `ridge` describes."""
    sums = torch.from_numpy(statistics.sums / float(GRID)).T
    if targets == 'pm1':
        return 2 * sums - torch.from_numpy(statistics.gram[:, -1:] / float(GRID) ** 2)      # that column is sum_y S_y
    if targets == 'onehot':
        return sums
    raise InputError(f'targets {targets!r}: expected one of {", ".join(TARGETS)}')


def _ridge_system(statistics: Statistics, alpha: float) -> torch.Tensor:
    """A + alpha I, float64 (d + 1, d + 1)."""
    if not (isinstance(alpha, Real) and np.isfinite(alpha) and alpha > 0):
        raise InputError(f"ridge lambda {alpha!r}: expected a positive number (of `Scroll` also 'auto')")
    gram = torch.from_numpy(statistics.gram / float(GRID) ** 2)
    gram.diagonal().add_(alpha)
    return gram


def _cholesky(system: torch.Tensor, alpha: float) -> torch.Tensor:
    factor, failed = torch.linalg.cholesky_ex(system)
    if failed:
        raise InputError(f'ridge lambda {alpha}: the system is not positive definite; use a larger one')
    return factor


def ridge_left_out(statistics: Statistics, alpha: float, targets: str, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Logits float64 (N, K) that ridge would give to samples it has learned from, had it not seen each.

    Exact, from the statistics: with h = x' (A + alpha I)^-1 x and target t, leaving x out turns its logit f into
    (f - h t) / (1 - h). features: (N, d), quantised. labels: (N,).
    """
    online = ridge(statistics, alpha, targets)
    x = np.concatenate([np.asarray(features, np.float64) / GRID, np.ones((len(features), 1))], axis=1)
    with one_thread():
        solved = torch.cholesky_solve(torch.from_numpy(x).T, _cholesky(_ridge_system(statistics, alpha), alpha)).T.numpy()
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
    centroids = (statistics.sums[rows, :-1] - np.where(count > 1, u, 0)) / (np.maximum(count - 1, 1) * float(GRID))
    logits[np.arange(len(u)), rows] = (u / GRID * centroids).sum(axis=1) + _NCC_FACTOR[bias] * (centroids ** 2).sum(axis=1)
    return logits


def random(statistics: Statistics, seed: int = 0) -> LinearPredictor:
    """Weights that ignore what was seen but the classes: uniform in +-1/sqrt(d), as a fresh linear layer's."""
    check_seen(statistics)
    bound = statistics.dim ** -0.5
    shape = (len(statistics.classes), statistics.dim + 1)
    weights = numpy_stream(seed, 'initialisation').uniform(-bound, bound, shape)
    return LinearPredictor(statistics.classes, weights[:, :-1].copy(), weights[:, -1].copy())


def check_seen(statistics: Statistics) -> None:
    """InputError if the statistics count no sample."""
    if not len(statistics.classes):
        raise InputError('there is no predictor before the first sample')


@contextmanager
def one_thread():
    """Run torch on one thread, so that bits do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
