"""What thousands of requests to add, merge and remove leave behind: exact sums beside two usual ways.

- Sums in float64, `X.T @ X` and `X.T @ Y`, added to and subtracted from.
- Recursive least squares, as analytic continual learning keeps it (ACIL, Zhuang et al. 2022; merging as in
  AFL, Zhuang et al. 2025): the inverse itself, updated by Woodbury's identity, and the weights.

All three solve ridge regression on [u; 1] with one-hot targets; the first rounds u to its grid, the others
take it as it is. What they should have become is known: what the samples that are left give, and no others.
"""
import hashlib
from typing import NamedTuple

import numpy as np

from bench.speed.timing import clock
from scroll.grid import GRID, quantise
from scroll.heads.predictors import exact_lambda, ridge
from scroll.statistics import Statistics

CLASSES, LAMBDA = 10, exact_lambda(0.1)
_LARGEST, _PART = 32, 256           # samples of a request; of a part of what is learned at once


class Request(NamedTuple):
    """'add', 'merge' (what another has learned) or 'remove', of the samples at these positions."""
    kind: str
    ids: np.ndarray


class ExactSums:
    """The library's: integers."""
    NAME = 'exact sums (SCROLL)'

    def __init__(self, dim: int):
        self.dim, self.sums = dim, Statistics(dim)

    def add(self, features, labels) -> None:
        """features: float64 (N, d), of unit length. labels: (N,)."""
        self.sums.add(quantise(features), labels)

    def merge(self, features, labels) -> None:
        """Add what another has learned from them."""
        self.sums.merge(Statistics(self.dim).add(quantise(features), labels))

    def remove(self, features, labels) -> None:
        """Undo `add`."""
        self.sums.remove(quantise(features), labels)

    def state(self) -> tuple:
        """(what is kept of the products, float64 (d + 1, d + 1); weights of ridge (d + 1, K))."""
        found = ridge(self.sums, LAMBDA, 'onehot')
        return self.sums.gram / float(GRID) ** 2, np.column_stack([found.weight, found.bias]).T

    def truth(self, features, labels) -> tuple:
        """`state` as it should be when these samples are left: exact."""
        alone = ExactSums(self.dim)
        alone.add(features, labels)
        return alone.state()

    def digest(self) -> str:
        """SHA-256 of what is kept."""
        return self.sums.digest()


class _Floats:
    """What learns from rows x = [u; 1] and one-hot targets t in float64; methods as of `ExactSums`."""
    def __init__(self, dim: int):
        self.dim = dim

    def add(self, features, labels) -> None:
        self._add(*_rows(features, labels))

    def merge(self, features, labels) -> None:
        other = type(self)(self.dim)
        other.add(features, labels)
        self._merge(other)

    def remove(self, features, labels) -> None:
        self._add(*_rows(features, labels), sign=-1.0)

    def truth(self, features, labels) -> tuple:
        """With 64 bits behind the point in place of 53, from one pass over the samples."""
        x, t = (part.astype(np.longdouble) for part in _rows(features, labels))
        gram, targets = x.T @ x, x.T @ t
        system = (gram + LAMBDA * np.eye(len(gram))).astype(np.float64)
        weights = np.zeros(targets.shape, np.longdouble)
        for _ in range(4):                                      # iterative refinement
            rest = targets - gram @ weights - LAMBDA * weights
            weights = weights + np.linalg.solve(system, rest.astype(np.float64))
        return gram, weights

    def digest(self) -> str:
        return hashlib.sha256(b''.join(part.tobytes() for part in self.state())).hexdigest()


class FloatSums(_Floats):
    """float64: G = sum x x', B = sum x t'."""
    NAME = 'float64 sums'

    def __init__(self, dim: int):
        super().__init__(dim)
        self.gram, self.targets = np.zeros((dim + 1, dim + 1)), np.zeros((dim + 1, CLASSES))

    def _add(self, x, t, sign: float = 1.0) -> None:
        self.gram, self.targets = self.gram + sign * (x.T @ x), self.targets + sign * (x.T @ t)

    def _merge(self, other) -> None:
        self.gram, self.targets = self.gram + other.gram, self.targets + other.targets

    def state(self) -> tuple:
        return self.gram, np.linalg.solve(self.gram + LAMBDA * np.eye(len(self.gram)), self.targets)


class Recursive(_Floats):
    """Recursive least squares: P = (G + lambda I)^-1 and W = P B."""
    NAME = 'recursive least squares'

    def __init__(self, dim: int):
        super().__init__(dim)
        self.inverse, self.weights = np.eye(dim + 1) / LAMBDA, np.zeros((dim + 1, CLASSES))

    def _add(self, x, t, sign: float = 1.0) -> None:
        px = self.inverse @ x.T                                                         # (d + 1, B)
        gain = np.linalg.solve(np.eye(len(x)) + sign * (x @ px), px.T).T
        self.weights = self.weights + sign * (gain @ (t - x @ self.weights))
        self.inverse = self.inverse - sign * (gain @ px.T)

    def _merge(self, other) -> None:
        mine, theirs = np.linalg.inv(self.inverse), np.linalg.inv(other.inverse)
        targets = mine @ self.weights + theirs @ other.weights
        self.inverse = np.linalg.inv(mine + theirs - LAMBDA * np.eye(len(mine)))
        self.weights = self.inverse @ targets

    def state(self) -> tuple:
        return self.inverse, self.weights

    def truth(self, features, labels) -> tuple:
        gram, weights = super().truth(features, labels)
        return np.linalg.inv((gram + LAMBDA * np.eye(len(gram))).astype(np.float64)), weights


KEEPERS = ExactSums, FloatSums, Recursive


def _rows(features, labels) -> tuple:
    """x float64 (N, d + 1) and t float64 (N, K)."""
    return np.concatenate([features, np.ones((len(features), 1))], axis=1), np.eye(CLASSES)[labels]


def random_requests(begun: int, total: int, count: int, random) -> tuple:
    """(list of `Request`, positions that are learned after them), when 0..begun-1 are learned before.

    Adding, merging and removing are equally likely, 1 to 32 samples each.
    """
    order, found = random.permutation(total), []
    learned, others = order[:begun], order[begun:]
    for kind in random.choice(['add', 'merge', 'remove'], count):
        size = int(random.integers(1, _LARGEST + 1))
        if kind == 'remove' and len(learned) > size or len(others) < size:
            at = random.choice(len(learned), size, replace=False)
            found.append(Request('remove', learned[at]))
            learned, others = np.delete(learned, at), np.append(others, learned[at])
        else:
            found.append(Request(str(kind) if kind != 'remove' else 'add', others[:size]))
            learned, others = np.append(learned, others[:size]), others[size:]
    return order[:begun], found, learned


def measure(dim: int, requests: int, downdates: int, left: int = 1000, few: int = 10, seed: int = 0):
    """Yield rows: each keeper after so many random requests; then, when all samples were added, after so many
    down-dates (samples removed one by one), which leave `left`; then after more, which leave `few`.

    A row: stage, keeper, d, samples that are left, relative errors (Frobenius) of what is kept and of the
    weights, whether the digest is that of having learned what is left alone, seconds.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=left + downdates)
    features = random.normal(size=(CLASSES, dim))[labels] + 2 * random.normal(size=(len(labels), dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    first, asked, learned = random_requests(left, len(labels), requests, random)
    others, order = np.setdiff1d(np.arange(len(labels)), learned), random.permutation(len(labels))
    one_by_one = [Request('remove', order[i:i + 1]) for i in range(len(labels) - few)]
    for kind in KEEPERS:
        keeper = _fed(kind(dim), features, labels, first)
        seconds = _time(keeper, features, labels, asked)
        yield _row(f'{requests:,} requests', keeper, features, labels, learned, seconds)
        _fed(keeper, features, labels, others)
        for start, stop in ((0, downdates), (downdates, len(one_by_one))):
            seconds = _time(keeper, features, labels, one_by_one[start:stop])
            yield _row(f'{stop:,} down-dates', keeper, features, labels, order[stop:], seconds)


def _fed(keeper, features, labels, ids):
    """The keeper, which has learned these samples."""
    for start in range(0, len(ids), _PART):
        part = ids[start:start + _PART]
        keeper.add(features[part], labels[part])
    return keeper


def _time(keeper, features, labels, asked) -> float:
    """Seconds of these requests and of the weights after them."""
    began = clock()
    for kind, ids in asked:
        getattr(keeper, kind)(features[ids], labels[ids])
    keeper.state()
    return clock() - began


def _row(stage: str, keeper, features, labels, ids, seconds: float) -> dict:
    ids = np.sort(ids)
    errors = [float(np.linalg.norm((found - wanted).astype(float)) / np.linalg.norm(wanted.astype(float)))
              for found, wanted in zip(keeper.state(), keeper.truth(features[ids], labels[ids]))]
    alone = _fed(type(keeper)(keeper.dim), features, labels, ids)
    return dict(stage=stage, keeper=keeper.NAME, d=keeper.dim, left=len(ids), kept_error=errors[0],
                weights_error=errors[1], same_digest=keeper.digest() == alone.digest(),
                seconds=round(seconds, 2))
