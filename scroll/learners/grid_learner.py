"""The learner below `ScrollClassifier`: `Scroll` on features of a grid of their own, with probabilities.

Probabilities are calibrated on what the head has not seen: the buffer's samples are taken out of the sums in
turns, a twentieth of all samples at most, and the head is made of the rest, with all that it is made of.

Neither grid nor standardised features depend on an order: a feature x becomes the integer nearest to
2^18 (x - centre) / 2^p, with centre and p fixed before the first sample is counted. Mean and variance follow
from the sums: `Standardised` is a function of these alone.

    >>> grid = FeatureGrid.covering(3.0, 2, common=True)        # 2^p = 4
    >>> grid.on_it(np.array([[1.0, -4.0]])).tolist()
    [[65536, -262144]]
"""

import copy
import hashlib
import json
from dataclasses import dataclass, replace
from math import fsum, isqrt

import numpy as np

from scroll.ground.arguments import shown
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, intake, sample_keys
from scroll.ground.settings import AUTO
from scroll.heads.discriminants import class_means
from scroll.heads.predictors import WEIGHT_BITS, LinearPredictor
from scroll.heads.scaling import fit_scale, row_sums
from scroll.learners.learner import Derived, Scroll
from scroll.learners.state import State
from scroll.sums.statistics import Statistics, Sums

_MARGIN = 4  # a grid made from data reaches this many times as far
_POINT = 96  # bits of a factor of `Standardised` below the point
_EXTRA = 24  # bits of class sums below the grid
_ROWS = 256  # of a Gram matrix at once
_SHARE = 20  # a turn takes at most one in 20 of all samples
_SCALES = 1e-3, 1e5  # of a standard deviation of the logits


@dataclass(frozen=True)
class FeatureGrid:
    """Features (N, d) -> whole numbers. centres: float64 (d,); exponents: int64 (d,), p."""

    centres: np.ndarray
    exponents: np.ndarray

    @classmethod
    def covering(cls, limit, dim: int, common: bool) -> 'FeatureGrid':
        """Up to `limit` in size, a positive number or one for each of d features; `common`: one p
        for all.
        """
        try:
            limits = np.broadcast_to(np.asarray(limit, np.float64), (dim,))
        except (TypeError, ValueError):
            limits = np.zeros(1)
        if isinstance(limit, (bool, str)) or not (np.isfinite(limits) & (limits > 0)).all():
            raise InputError(
                f'limit {shown(limit)}: expected a positive number, the largest absolute value '
                f'of a feature, or one for each of {dim} features'
            )
        return cls(np.zeros(dim), _exponents(limits, common))

    @classmethod
    def between(cls, low: np.ndarray, high: np.ndarray, centred: bool) -> 'FeatureGrid':
        """Four times as far as from the least to the largest values of features, float64 (d,) each.
        `centred`: from the middle between them; else from zero, with one p for all."""
        centres = low / 2 + high / 2 + 0.0 if centred else np.zeros(len(low))  # never -0.0
        reach = high / 2 - low / 2 if centred else np.maximum(-low, high)
        reach = _MARGIN * np.minimum(reach, np.finfo(float).max / _MARGIN)
        reach = np.where(reach > 0, reach, np.where(centres != 0, np.abs(centres), 1.0))
        return cls(centres, _exponents(reach, not centred))

    def _rounds(self) -> bool:
        """Whether features are taken in as float32: not where that would move them by a unit of the
        grid or more, since their centre is far off or the grid is beyond float32."""
        coarse = np.abs(self.centres) >= np.ldexp(1.0, self.exponents + 24 - GRID_BITS)
        beyond = (self.exponents > 127) | (self.exponents < GRID_BITS - 126)
        return not (coarse | beyond).any()

    def _place(self, X: np.ndarray) -> np.ndarray:
        """float64 (N, d), whole numbers, also beyond the grid. What is beyond float32 is clipped."""
        most = float(np.finfo(np.float32).max)
        X = intake(np.clip(X, -most, most)) if self._rounds() else np.asarray(X)
        with np.errstate(over='ignore'):
            return np.rint(
                np.ldexp(X.astype(np.float64) - self.centres, GRID_BITS - self.exponents)
            )

    def within(self, X: np.ndarray) -> np.ndarray:
        """int32 (N, d); what is beyond the grid is taken to its edge."""
        return np.clip(self._place(X), -GRID, GRID).astype(np.int32)

    def on_it(self, X: np.ndarray) -> np.ndarray:
        """int32 (N, d); InputError names the first value that is beyond the grid."""
        out = self._place(X)
        beyond = np.argwhere(np.abs(out) > GRID)
        if len(beyond):
            row, column = beyond[0].tolist()
            far, centre = 2.0 ** self.exponents[column], self.centres[column]
            where = f' from {centre:g}' if centre else ''
            raise InputError(
                f'X[{row}, {column}] is {X[row, column]:g}: the grid reaches {far:g}{where}; '
                'begin again with a larger limit, the largest absolute value expected'
            )
        return out.astype(np.int32)

    def digest(self) -> str:
        """SHA-256 of centres and exponents."""
        text = json.dumps([self.centres.tolist(), self.exponents.tolist()])
        return hashlib.sha256(text.encode()).hexdigest()


def _exponents(limits: np.ndarray, common: bool) -> np.ndarray:
    """The least p with limit <= 2^p, int64 (d,)."""
    share, exponents = np.frexp(limits)
    exponents = exponents.astype(np.int64) - (share == 0.5)
    return np.full_like(exponents, exponents.max()) if common else exponents


class Standardised:
    """Statistics of z = (u - m) / (s sqrt(d)): each feature u has mean m and standard deviation s.

    So z has a mean squared length of one, as unit features have. Features that do not vary become
    zero. What is rounded: factors 1 / (s sqrt(d)) to 96 bits below the point, class sums and the
    Gram matrix to the units of `Statistics`. A class's features are moved by less than a unit / n_c
    for its sum to be whole, and some d (K + 2) units, 2^-36 each, go to the diagonal of the Gram
    matrix: what rounding can take from an eigenvalue at most, so that it stays positive
    semidefinite. `statistics`: those of z."""

    def __init__(self, statistics: Statistics):
        dim, count, total = statistics.dim, statistics.counts, statistics.total
        sums = statistics.sums[:, :-1].astype(object)  # Python's integers: none wraps
        self._total, self._sums = total, sums.sum(axis=0)
        # N^2 s^2
        squares = total * np.diagonal(statistics.gram)[:-1].astype(object) - self._sums**2
        one = 1 << 2 * (GRID_BITS + _POINT)
        self._factors = np.array([isqrt(one // (dim * v)) if v else 0 for v in squares], object)
        centred = total * sums - count[:, None].astype(object) * self._sums
        fine = _shifted(centred * self._factors, _POINT - _EXTRA)
        rounded = statistics.sums.copy()
        rounded[:, :-1] = _shifted(fine, _EXTRA).astype(np.int64)
        moved = (rounded[:, :-1].astype(object) * (1 << _EXTRA) - fine).astype(np.int64)
        means = class_means(Sums(statistics.classes, count, rounded))
        change = moved.T @ means
        gram = _shifted(np.pad(change + change.T, (0, 1)), _EXTRA)
        for start in range(0, dim, _ROWS):  # Python's integers take memory
            rows = slice(start, min(start + _ROWS, dim))
            cross = total * statistics.gram[rows, :-1].astype(object) - np.outer(
                self._sums[rows], self._sums
            )
            scaled = total * cross * np.outer(self._factors[rows], self._factors)
            gram[rows, :-1] += _shifted(scaled, 2 * _POINT).astype(np.int64)
        # of an entry: 1/2 and 1/2 by these roundings; of each class 1/2 by its mean's, 1/4 by a
        # square left out, and 2^-24 of the mean by its sum's
        off = len(count) + 2 + (int(np.abs(means).sum(axis=0).max()) >> _EXTRA)
        np.einsum('ii->i', gram)[:] += dim * off
        gram[-1] = gram[:, -1] = GRID * rounded.sum(axis=0)
        self.statistics = Statistics(dim).assign(statistics.classes, count, rounded, gram)

    def of_raw(self, predictor: LinearPredictor) -> LinearPredictor:
        """The same predictor, of u instead of z: weights rounded once more, to 47 bits of the
        largest.
        """
        units = predictor.units.astype(object)
        slopes = units[:, :-1] * self._factors  # of N u - sum u, in 2^-96
        weights = slopes * self._total
        ends = units[:, -1] * (1 << _POINT) - _shifted(slopes @ self._sums, GRID_BITS)
        both = np.column_stack([weights, ends])
        shift = max(0, max(int(abs(value)).bit_length() for value in both.ravel()) - WEIGHT_BITS)
        return LinearPredictor(
            predictor.classes,
            _shifted(both, shift).astype(np.int64),
            predictor.exponent - _POINT + shift,
        )


def _shifted(values: np.ndarray, bits: int) -> np.ndarray:
    """values / 2^bits, to the nearest integers."""
    return values + (1 << bits - 1) >> bits if bits else values


class GridLearner(Scroll):
    """`Scroll` of feature vectors whose `grid` is set before it learns (None: unit rows, as of
    `Scroll`), and
    `standard`: whether heads see standardised features. `predictor` is for features on the grid."""

    grid: FeatureGrid | None = None
    standard = False

    def psi(self) -> str:
        return '' if self.grid is None else self.grid.digest()

    def _derive(self, settings: dict, state: State) -> Derived:
        if not self.standard:
            return super()._derive(settings, state)
        standardised = Standardised(state.statistics)
        below = super()._derive(settings, replace(state, statistics=standardised.statistics))
        return replace(below, online=standardised.of_raw(below.online))

    def probability_scale(self) -> float:
        """The factor of logits with which their softmax has the least cross-entropy on samples left
        out; 1 where none are kept, or of one class. Each kept sample stands for its share of its
        class. One more, of every class equally, keeps the factor finite where nothing is
        misclassified (as Platt 1999 does)."""
        state, last = self._known(), getattr(self, '_calibrated', (None,))
        online = self._derived(state).online
        if last[0] is not online:
            last = self._calibrated = online, self._calibrate(state)
        return last[1]

    def _calibrate(self, state: State) -> float:
        classes, counts, total = (
            state.statistics.classes,
            state.statistics.counts,
            state.statistics.total,
        )
        if state.buffer is None or not len(state.buffer) or len(classes) < 2:
            return 1.0
        held = state.buffer.content()
        own = np.searchsorted(classes, held.labels)
        kept = np.bincount(own)[own]
        turns = max(-(-_SHARE * len(held) // total), 2)
        turn = np.arange(len(held)) % turns  # class after class: none is left without samples
        turn[counts[own] == 1] = -1
        logits = np.empty((len(held), len(counts)))
        if AUTO not in (self.head, self.pooling):  # which chooses by the others in the buffer
            state = replace(state, buffer=None)
        for at in filter(len, (np.flatnonzero(turn == i) for i in range(turns))):
            rest = state.without(held.features[at], held.keys[at], held.labels[at])
            logits[at] = (
                copy.copy(self).set_state(rest).predictor().decision_function(held.features[at])
            )
        out = turn >= 0
        logits, own, weights = logits[out], own[out], (counts[own] / kept)[out]
        centred = logits - row_sums(logits)[:, None] / len(counts)
        spread = fsum(np.sqrt(row_sums(centred * centred) / len(counts))) / max(len(own), 1)
        return (
            fit_scale(
                logits, own, [scale / spread for scale in _SCALES], weights, 1 / (len(own) + 1)
            )
            if spread
            else 1.0
        )

    def _embed(self, X, keep: bool = True, learned: bool = False) -> tuple:
        if self.grid is None:
            return super()._embed(X, keep, learned)
        features = self.grid.on_it(np.asarray(X))
        return features, features, sample_keys(features)

    def _on_grid(self, X, learned: bool = False) -> np.ndarray:
        return (
            super()._on_grid(X, learned) if self.grid is None else self.grid.within(np.asarray(X))
        )

    def _check_features(self, features: np.ndarray) -> None:
        """Nothing: they are as the grid made them."""
