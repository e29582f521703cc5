"""The learner below `ScrollClassifier`: `Scroll` on features of another grid, with probabilities.

Probabilities are calibrated on samples that the head has not seen: the buffer's samples are taken
out of the sums in turns, a twentieth of all samples at most, and the head is made of the rest.

Neither grid nor standardised features depend on an order: a feature x becomes the integer nearest
to 2^18 (x - centre) / 2^p, with centre and p fixed before the first sample is counted. Mean and
variance follow from the sums: `Standardised` is a function of these alone.

    >>> grid = FeatureGrid.covering(3.0, 2, common=True)        # 2^p = 4
    >>> grid.on_it(np.array([[1.0, -4.0]])).tolist()
    [[65536, -262144]]
"""

import copy
from dataclasses import dataclass, replace
from math import fsum, isqrt

import numpy as np

from scroll.ground.arguments import shown
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, digest_of, intake
from scroll.ground.labels import typed_labels
from scroll.heads.discriminants import class_means
from scroll.heads.predictors import WEIGHT_BITS, LinearPredictor
from scroll.heads.scaling import fit_scale, row_sums
from scroll.learners.fitted_head import FittedHead, Predictor
from scroll.learners.learner import Scroll
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
    """Map of features (N, d) to whole numbers. centres: float64 (d,); exponents: int64 (d,), p."""

    centres: np.ndarray
    exponents: np.ndarray

    @classmethod
    def covering(cls, limit, dim: int, common: bool, name: str = 'limit') -> 'FeatureGrid':
        """Return the grid that reaches `limit`, a positive number or one for each of d features.
        `common`: one p for all. name: of the limit, for errors."""
        try:
            limits = np.broadcast_to(np.asarray(limit, np.float64), (dim,))
        except (TypeError, ValueError):
            limits = np.zeros(1)
        if isinstance(limit, (bool, str)) or not (np.isfinite(limits) & (limits > 0)).all():
            raise InputError(
                f'{name} {shown(limit)}: expected a positive number, the largest absolute value '
                f'of a feature, or one for each of {dim} features'
            )
        return cls(np.zeros(dim), _exponents(limits, common))

    @classmethod
    def between(cls, low: np.ndarray, high: np.ndarray, centred: bool) -> 'FeatureGrid':
        """Return the grid that reaches four times as far as these least and largest values of
        features, float64 (d,) each. `centred`: from the middle between them; else from zero, with
        one p for all."""
        centres = low / 2 + high / 2 + 0.0 if centred else np.zeros(len(low))  # never -0.0
        reach = high / 2 - low / 2 if centred else np.maximum(-low, high)
        reach = _MARGIN * np.minimum(reach, np.finfo(float).max / _MARGIN)
        reach = np.where(reach > 0, reach, np.where(centres != 0, np.abs(centres), 1.0))
        return cls(centres, _exponents(reach, not centred))

    def _rounds(self) -> bool:
        """True if features are taken in as float32: not where that would move them by a unit of the
        grid or more, since their centre is far off or the grid is beyond float32."""
        coarse = np.abs(self.centres) >= np.ldexp(1.0, self.exponents + 24 - GRID_BITS)
        beyond = (self.exponents > 127) | (self.exponents < GRID_BITS - 126)
        return not (coarse | beyond).any()

    def _place(self, X: np.ndarray) -> np.ndarray:
        """Whole numbers float64 (N, d), also beyond the grid; values beyond float32 are clipped."""
        largest = float(np.finfo(np.float32).max)
        X = intake(np.clip(X, -largest, largest)) if self._rounds() else np.asarray(X)
        with np.errstate(over='ignore'):
            return np.rint(
                np.ldexp(X.astype(np.float64) - self.centres, GRID_BITS - self.exponents)
            )

    def within(self, X: np.ndarray) -> np.ndarray:
        """Return int32 (N, d); values beyond the grid are taken to its edge."""
        return np.clip(self._place(X), -GRID, GRID).astype(np.int32)

    def on_it(self, X: np.ndarray, first: int = 0) -> np.ndarray:
        """Return int32 (N, d); InputError names the first value that is beyond the grid. first:
        number of the first row."""
        out = self._place(X)
        beyond = np.argwhere(np.abs(out) > GRID)
        if len(beyond):
            row, column = beyond[0].tolist()
            far = 2.0 ** self.exponents[column]
            centre = self.centres[column]
            where = f' from {centre:g}' if centre else ''
            raise InputError(
                f'X[{first + row}, {column}] is {X[row, column]:g}: the grid reaches {far:g}'
                f'{where}; begin again with a larger limit, the largest absolute value expected'
            )
        return out.astype(np.int32)

    def of(self, columns: slice) -> 'FeatureGrid':
        """Return the grid of some of the features."""
        return FeatureGrid(self.centres[columns], self.exponents[columns])

    def digest(self) -> str:
        """Return the SHA-256 of centres and exponents."""
        return digest_of([self.centres.tolist(), self.exponents.tolist()])


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
        dim = statistics.dim
        count = statistics.counts
        total = statistics.total
        sums = statistics.sums[:, :-1].astype(object)  # Python's integers: none wraps
        self._total = total
        self._sums = sums.sum(axis=0)
        # N^2 s^2
        squares = total * np.diagonal(statistics.gram)[:-1].astype(object) - self._sums**2
        one = 1 << 2 * (GRID_BITS + _POINT)
        self._factors = np.array([isqrt(one // (dim * v)) if v else 0 for v in squares], object)
        centred = total * sums - count[:, None].astype(object) * self._sums
        fine = shifted(centred * self._factors, _POINT - _EXTRA)
        rounded = statistics.sums.copy()
        rounded[:, :-1] = shifted(fine, _EXTRA).astype(np.int64)
        moved = (rounded[:, :-1].astype(object) * (1 << _EXTRA) - fine).astype(np.int64)
        means = class_means(Sums(statistics.classes, count, rounded))
        change = moved.T @ means
        gram = shifted(np.pad(change + change.T, (0, 1)), _EXTRA)
        for start in range(0, dim, _ROWS):  # Python's integers take memory
            rows = slice(start, min(start + _ROWS, dim))
            cross = total * statistics.gram[rows, :-1].astype(object) - np.outer(
                self._sums[rows], self._sums
            )
            scaled = total * cross * np.outer(self._factors[rows], self._factors)
            gram[rows, :-1] += shifted(scaled, 2 * _POINT).astype(np.int64)
        # of an entry: 1/2 and 1/2 by these roundings; of each class 1/2 by its mean's, 1/4 by a
        # square left out, and 2^-24 of the mean by its sum's
        off = len(count) + 2 + (int(np.abs(means).sum(axis=0).max()) >> _EXTRA)
        np.einsum('ii->i', gram)[:] += dim * off
        gram[-1] = gram[:, -1] = GRID * rounded.sum(axis=0)
        self.statistics = Statistics(dim).assign(statistics.classes, count, rounded, gram)

    def of_raw(self, predictor: LinearPredictor) -> LinearPredictor:
        """Return the same predictor for u instead of z: weights are rounded once more, to 47 bits
        of the largest."""
        units = predictor.units.astype(object)
        slopes = units[:, :-1] * self._factors  # of N u - sum u, in 2^-96
        biases = units[:, -1] * (1 << _POINT) - shifted(slopes @ self._sums, GRID_BITS)
        raw = np.column_stack([slopes * self._total, biases])
        shift = max(0, int(np.abs(raw).max()).bit_length() - WEIGHT_BITS)
        return LinearPredictor(
            predictor.classes,
            shifted(raw, shift).astype(np.int64),
            predictor.exponent - _POINT + shift,
        )


def shifted(values: np.ndarray, bits: int) -> np.ndarray:
    """values / 2^bits, to the nearest integers."""
    return values + (1 << bits - 1) >> bits if bits else values


class GridLearner(Scroll):
    """`Scroll` of feature vectors on a grid; `predictor` is for features on the grid.

    Attributes:
        grid: set before it learns; None: unit rows, as `Scroll` takes them.
        standard: True if heads see standardised features.
        declared: labels that were named before they came, if they come.
    """

    grid: FeatureGrid | None = None
    standard: bool = False
    declared: frozenset = frozenset()
    _calibrated: tuple[Predictor, float] | None = None  # f_T, its scale of probabilities

    def psi(self) -> str:
        return '' if self.grid is None else self.grid.digest()

    def labels(self) -> np.ndarray:
        """Return all labels, seen or declared, sorted, as `typed_labels` gives them."""
        return typed_labels(sorted({*self.classes_.tolist(), *self.declared}))

    def in_columns(self, values: np.ndarray, unseen: float) -> np.ndarray:
        """Return values (N, K) with columns for classes that were only declared."""
        labels = self.labels()
        out = np.full((len(values), len(labels)), unseen)
        out[:, np.isin(labels, self.classes_)] = values
        return out

    def _fit_head(self, values: dict, state: State) -> FittedHead:
        if not self.standard:
            return super()._fit_head(values, state)
        standardised = Standardised(state.statistics)
        fitted = super()._fit_head(values, replace(state, statistics=standardised.statistics))
        return replace(fitted, online=standardised.of_raw(fitted.online))

    def probability_scale(self) -> float:
        """Return the factor of logits with which their softmax has the least cross-entropy on
        samples left out; 1 where none are kept, or of one class. Each kept sample stands for its
        share of its class. One more, of every class equally, keeps the factor finite where nothing
        is misclassified (as Platt 1999 does)."""
        state = self._require_state()
        online = self._fitted(state).online
        last = self._calibrated
        if last is None or last[0] is not online:
            last = self._calibrated = online, self._calibrate(state)
        return last[1]

    def _calibrate(self, state: State) -> float:
        classes = state.statistics.classes
        counts = state.statistics.counts
        if state.buffer is None or not len(state.buffer) or len(classes) < 2:
            return 1.0
        held = state.buffer.content()
        columns = np.searchsorted(classes, held.labels)
        kept = np.bincount(columns)[columns]
        turns = max(-(-_SHARE * len(held) // state.statistics.total), 2)
        turn = np.arange(len(held)) % turns  # class after class: none is left without samples
        turn[counts[columns] == 1] = -1
        logits = np.empty((len(held), len(counts)))
        state = replace(state, buffer=None)
        for i in range(turns):
            out = held.at(turn == i)
            if len(out):
                rest = copy.copy(self).set_state(state.without(out.features, out.keys, out.labels))
                logits[turn == i] = rest.predictor().decision_function(out.features)
        used = turn >= 0
        logits, columns, weights = logits[used], columns[used], (counts[columns] / kept)[used]
        centred = logits - row_sums(logits)[:, None] / len(counts)
        spread = fsum(np.sqrt(row_sums(centred * centred) / len(counts))) / max(len(columns), 1)
        if not spread:
            return 1.0
        scales = [scale / spread for scale in _SCALES]
        return fit_scale(logits, columns, scales, weights, 1 / (len(columns) + 1))

    def _quantised(self, X: np.ndarray, first: int = 0) -> np.ndarray:
        return super()._quantised(X, first) if self.grid is None else self.grid.on_it(X, first)

    def _placed(self, X: np.ndarray) -> np.ndarray:
        return super()._placed(X) if self.grid is None else self.grid.within(X)
