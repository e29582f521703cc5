"""Regression from exact sums: any number of targets, samples that go again, a rolling window.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ScrollRegressor(limit=1, target_limit=400)
    >>> half = model.partial_fit(X[:300], y[:300]).digest()
    >>> model.partial_fit(X[300:], y[300:]).remove(X[300:], y[300:]).digest() == half
    True

Features and targets are put on a grid (`scroll.learners.grid_learner.FeatureGrid`), and counted
side by side: the Gram matrix of [x; y; 1] has all that ridge regression needs.
"""

import copy
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_X_y

from scroll.ground import archive
from scroll.ground.arguments import whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import GRID_BITS, digest_of
from scroll.ground.settings import AUTO, check_settings
from scroll.ground.tables import check_names, names_of, warn_of_half
from scroll.heads.discriminants import class_means, within_scatter
from scroll.heads.predictors import (
    WEIGHT_BITS,
    System,
    check_seen,
    exact_lambda,
    ridge_weights,
    usable_lambda,
)
from scroll.heads.ridge_lambda import choose_lambda
from scroll.heads.rounded import grid_for, row_products, scaled, solve
from scroll.heads.scaling import row_sums
from scroll.learners.estimators import Learning
from scroll.learners.grid_learner import FeatureGrid, shifted
from scroll.sums.statistics import Statistics

_FILE = 'scroll-regressor-1'
_MOST_BITS = 15
_FEW = 1 << 13  # samples that left a window, before their sums are taken out


@dataclass(frozen=True)
class _Learned:
    """Content of a regressor; edits make another one.

    Attributes:
        grid: of [x; y].
        n_features_in_: d.
        added: sums of [x; y] on the grids; all samples are of class 0.
        gone: of those that have left the window.
        recent: int32 (n, d + m), the samples in the window, oldest first.
        flat: True if y was (N,).
        names: of the columns of a data frame; None: it was an array.
        targets: likewise of y."""

    grid: FeatureGrid
    n_features_in_: int
    added: Statistics
    gone: Statistics
    recent: np.ndarray
    flat: bool
    names: tuple | None
    targets: tuple | None = None

    @property
    def of_x(self) -> FeatureGrid:
        return self.grid.of(slice(self.n_features_in_))

    @property
    def of_y(self) -> FeatureGrid:
        return self.grid.of(slice(self.n_features_in_, None))

    @property
    def feature_names_in_(self) -> np.ndarray:
        if self.names is None:
            raise AttributeError('feature_names_in_: it learned from arrays')
        return np.array(self.names, object)

    @cached_property
    def statistics(self) -> Statistics:
        return copy.copy(self.added).subtract(self.gone)

    @cached_property
    def centred(self) -> '_Centred':
        return _Centred(self.statistics, self.n_features_in_)


class _Centred:
    """Sums of differences from the means. Each feature and target is multiplied by the power of
    two, up to 2^15, that brings its standard deviation to more than 1/2 and at most 1, so that
    lambda means the same for all. Entries are then rounded to 2^-36.

    statistics: of [x; y]. dim: d. InputError: they are of no sample.

    Attributes:
        means: int64 (d + m,), rounded to the grid.
        rests: int64 (d + m,), the true means less these, N times.
        powers: int64 (d + m,).
        system: of the ridge regression."""

    def __init__(self, statistics: Statistics, dim: int):
        check_seen(statistics)
        scatter = within_scatter(statistics)
        total = statistics.total
        self.means = class_means(statistics)[0]
        self.rests = statistics.sums[0, :-1] - total * self.means
        squares = np.diagonal(scatter).tolist()
        # the largest k with square 4^k <= N
        powers = [((total << 2 * GRID_BITS) // max(v, 1)).bit_length() - 1 >> 1 for v in squares]
        self.powers = np.minimum(powers, _MOST_BITS)
        both = self.powers[:, None] + self.powers
        scatter = (scatter << both) - scaled(np.outer(self.rests, self.rests), 1 << both, total)
        self._of_targets = np.diagonal(scatter)[dim:].tolist()
        self.system = System(
            scatter[:dim, :dim], scatter[:dim, dim:], sum(self._of_targets), max(total - 1, 1)
        )
        self._slopes = {}

    def alpha(self, ridge_lambda: float | str) -> float:
        """Return the lambda in use."""
        return self._chosen if isinstance(ridge_lambda, str) else exact_lambda(ridge_lambda)

    @cached_property
    def _chosen(self) -> float:
        return choose_lambda(self.system)

    def slopes(self, ridge_lambda: float | str) -> tuple[np.ndarray, np.ndarray]:
        """Return slopes between the grids, int64 (m, d), below 2^62, in units of 2^e,
        e (m,)."""
        if ridge_lambda not in self._slopes:
            dim = len(self.system.gram)
            most = max(self._of_targets)
            units, exponent = ridge_weights(self.system, self.alpha(ridge_lambda), most)
            units = units.astype(object) << self.powers[:dim]
            excess = max(int(np.abs(units).max()).bit_length() - 62, 0)
            units = shifted(units, excess).astype(np.int64)
            exponents = exponent + excess - GRID_BITS - self.powers[dim:]
            self._slopes[ridge_lambda] = units, exponents
        return self._slopes[ridge_lambda]


class ScrollRegressor(MultiOutputMixin, RegressorMixin, Learning):
    """Ridge regression from exact integer sums: the same bits under every order, batching and
    sharding of the data.

    Any number of `partial_fit` ends where `fit` on all of it does, given limits. `a + b` has
    learned the data of both; `remove` takes samples out. The intercept is not shrunk. Bad input is
    an `InputError`, and changes nothing.

    Args:
        ridge_lambda: of sum of squares + lambda |w|^2, for features and targets in units of the
            power of two at or above their standard deviation; 'auto': by generalised
            cross-validation, from the sums alone.
        limit: the largest absolute value that a feature will have, a number or one for each.
            Values beyond cannot be learned, and are predicted as those at the edge of the grid.
            None: `fit` makes a grid that reaches four times as far as its data; `partial_fit`
            cannot begin, since its first batch would decide. Numbers are rounded to 2^-18 of the
            power of two at or above the limit.
        target_limit: the same of the targets.
        window: only the last `window` samples count: each new one takes the oldest out. None: all.

    Attributes:
        coef_: float64 (d,), or (m, d) for y (N, m).
        intercept_: a number, or float64 (m,).
        ridge_lambda_: the lambda in use.
        n_features_in_: d.
        feature_names_in_: (d,) names of the columns of a data frame.
        statistics_: `Statistics` of [x; y] on the grid, all of class 0.
    """

    def __init__(
        self,
        ridge_lambda: float | str = AUTO,
        *,
        limit: float | Sequence[float] | None = None,
        target_limit: float | Sequence[float] | None = None,
        window: int | None = None,
    ):
        self.ridge_lambda = ridge_lambda
        self.limit = limit
        self.target_limit = target_limit
        self.window = window

    def fit(self, X, y) -> 'ScrollRegressor':
        """Forget everything, then learn.

        Args:
            X: numbers (N, d): array or data frame.
            y: numbers (N,) or (N, m).
        """
        with self._lock:
            self._fitted = self._with_more(None, X, y, whole_data=True)
        return self

    def partial_fit(self, X, y) -> 'ScrollRegressor':
        """Learn more; arguments as `fit`."""
        with self._lock:
            self._fitted = self._with_more(vars(self).get('_fitted'), X, y)
        return self

    def remove(self, X, y) -> 'ScrollRegressor':
        """Unlearn samples that were learned: digest and predictions are then those of never having
        seen them. InputError: they cannot all have been learned, or there is a window, which takes
        out its own."""
        warn_of_half(X)
        with self._lock:
            learned = self._require_fitted()
            if len(learned.recent):
                raise InputError('remove: a window takes out samples by itself')
            rows = self._on_grid(X, y, learned)
            added = copy.copy(learned.added).remove(rows, _one_class(rows))
            self._fitted = replace(learned, added=added)
        return self

    def __add__(self, other: 'ScrollRegressor') -> 'ScrollRegressor':
        """Return a new regressor, with these parameters, that has learned the data of both."""
        if not isinstance(other, ScrollRegressor):
            return NotImplemented
        one = self._require_fitted()
        two = other._require_fitted()
        if one.grid.digest() != two.grid.digest() or one.names != two.names:
            raise InputError('the sums of these regressors have other features, or other limits')
        check_names(two.targets, one.targets, 'y of the other')
        if len(one.recent) or len(two.recent):
            raise InputError('a regressor with a window cannot be added: its samples have an order')
        out = copy.copy(self)
        out._fitted = replace(one, added=copy.copy(one.added).merge(two.added))
        return out

    def digest(self) -> str:
        """Return the SHA-256 of the sums and of the grid they are on."""
        learned = self._require_fitted()
        return digest_of([learned.statistics.digest(), learned.grid.digest()])

    @property
    def statistics_(self) -> Statistics:
        """Sums of [x; y] on the grid."""
        return self._require_fitted().statistics

    @property
    def ridge_lambda_(self) -> float:
        """The lambda in use."""
        return self._require_fitted().centred.alpha(self._lambda())

    @property
    def coef_(self) -> np.ndarray:
        """Slopes, float64 (d,) or (m, d)."""
        learned = self._require_fitted()
        units, exponents = learned.centred.slopes(self._lambda())
        powers = learned.of_y.exponents[:, None] - learned.of_x.exponents
        out = np.ldexp(units.astype(np.float64), exponents[:, None] + powers)
        return out[0] if learned.flat else out

    @property
    def intercept_(self) -> float | np.ndarray:
        """Value where all features are 0, a number or float64 (m,)."""
        learned = self._require_fitted()
        means = learned.centred.means[None, : learned.n_features_in_]
        origin = _reals(learned.of_x, means)
        middle = self._values(learned, means)[0]
        out = middle - row_sums(np.atleast_2d(self.coef_) * origin)
        return float(out[0]) if learned.flat else out

    def predict(self, X) -> np.ndarray:
        """Return values float64 (N,), or (N, m): the same bits on every machine."""
        learned = self._require_fitted()
        X = self._checked(X, learned)[0].array
        out = self._values(learned, learned.of_x.within(X))
        return out[:, 0] if learned.flat else out

    def score(self, X, y, sample_weight=None) -> float:
        """Return R2, the mean over targets."""
        check_names(names_of(y), self._require_fitted().targets, 'y')
        return super().score(X, y, sample_weight)

    def left_out(self, X, y) -> np.ndarray:
        """Return predictions as `predict` for samples that were learned, as if each had not been:
        (f - l t) / (1 - l) with leverage l and target t. The features keep their scale."""
        learned = self._require_fitted()
        rows = self._on_grid(X, y, learned)
        dim = learned.n_features_in_
        centred = learned.centred
        differences = rows[:, :dim] - centred.means[:dim]
        total = learned.statistics.total
        right = np.vstack([differences, centred.rests[:dim]]) << centred.powers[:dim]
        gram = centred.system.gram
        shift = usable_lambda(gram, self.ridge_lambda_)
        length = int(1.01 * np.square(right.astype(float)).sum(axis=1).max()) + 1
        grid = grid_for(Fraction(length, shift**2), WEIGHT_BITS)
        solved = np.ldexp(solve(gram, shift, right.T, grid).T.astype(float), grid)
        # x less its mean, and (A + lambda I)^-1 of that
        z, pz = (part[:-1] - part[-1] / total for part in (right, solved))
        leverage = row_sums(z * pz) + 1 / total
        targets = _reals(learned.of_y, rows[:, dim:])
        fitted = self._values(learned, rows[:, :dim])
        rest = np.maximum(1 - leverage, 2.0**-40)[:, None]
        out = (fitted - leverage[:, None] * targets) / rest
        return out[:, 0] if learned.flat else out

    def save(self, path) -> None:
        """Write all that was learned, and the parameters, to `path` (npz, no pickles), whole or not
        at all; InputError: it cannot be written."""
        learned = self._require_fitted()
        params = {name: np.asarray(value).tolist() for name, value in self.get_params().items()}
        facts = {
            'params': params,
            'dim': learned.n_features_in_,
            'flat': learned.flat,
            'names': learned.names,
            'targets': learned.targets,
        }
        arrays = vars(learned.grid) | learned.statistics.state_dict() | {'recent': learned.recent}
        archive.write(path, _FILE, facts, arrays)

    @classmethod
    def load(cls, path) -> 'ScrollRegressor':
        """Read what `save` wrote; InputError: it is damaged, or something else. Runs no code in
        it."""
        facts, arrays = archive.read(path, _FILE)
        with archive.read_errors(path):
            out = cls(**facts['params'])
            grid = FeatureGrid(arrays.pop('centres'), arrays.pop('exponents'))
            recent = arrays.pop('recent')
            added = Statistics.from_arrays(arrays)
            dim = facts['dim']
            of_both = facts['names'], facts.get('targets')  # before 0.5: none
            names, targets = (part and tuple(part) for part in of_both)
            numbers = grid.centres, grid.exponents, recent
            if (
                not grid.centres.shape == grid.exponents.shape == recent.shape[1:] == (added.dim,)
                or dim not in range(1, added.dim)
                or [array.dtype for array in numbers] != [np.float64, np.int64, np.int32]
                or not np.isfinite(grid.centres).all()
                or (names and len(names) != dim)
            ):
                raise InputError('its grid, its window or its names do not go with its sums')
            none = added.empty_like()
            out._fitted = _Learned(grid, dim, added, none, recent, facts['flat'], names, targets)
        return out

    def _with_more(self, learned, X, y, whole_data: bool = False) -> _Learned:
        """Return what was learned with these samples added. learned: None at the beginning."""
        window = self.window
        if window is not None:
            whole('window', window, 1)
            if learned and learned.added.total - learned.gone.total != len(learned.recent):
                raise InputError('window: some samples were learned without one: fit again')
        targets = names_of(y)
        check_names(targets, learned and learned.targets, 'y')
        (X, names), y = self._checked(X, learned, y, _with_targets)
        if learned is None:
            grid = self._new_grid(X, y.reshape(len(y), -1), whole_data)
            sums = Statistics(len(grid.centres))
            none = np.zeros((0, sums.dim), np.int32)
            learned = _Learned(grid, X.shape[1], sums, sums, none, y.ndim == 1, names, targets)
        rows = self._placed(X, y, learned)
        added = copy.copy(learned.added)
        if window is None:
            added.add(rows, _one_class(rows)).subtract(learned.gone)
            none = learned.gone.empty_like()
            return replace(learned, added=added, gone=none, recent=learned.recent[:0])
        both = np.concatenate([learned.recent, rows[-window:]])
        old = both[:-window]
        added.add(rows[-window:], _one_class(rows[-window:]))
        gone = copy.copy(learned.gone).add(old, _one_class(old))
        if gone.total > max(window, _FEW):
            added.subtract(gone)
            gone = gone.empty_like()
        return replace(learned, added=added, gone=gone, recent=both[-window:])

    def _new_grid(self, X: np.ndarray, y: np.ndarray, whole_data: bool) -> FeatureGrid:
        """The grid of [x; y], of these samples unless there are limits."""
        grids = []
        for name, values in ('limit', X), ('target_limit', y):
            limit = getattr(self, name)
            if limit is not None:
                grids.append(FeatureGrid.covering(limit, values.shape[1], common=False, name=name))
            elif whole_data:
                low, high = values.min(axis=0), values.max(axis=0)
                grids.append(FeatureGrid.between(low, high, centred=True))
            else:
                raise InputError(
                    f'{name}=None: give {name}, the largest absolute value; the first batch of '
                    'partial_fit may not decide on the grid'
                )
        return FeatureGrid(*(np.concatenate(part) for part in zip(*map(astuple, grids))))

    def _on_grid(self, X, y, learned: _Learned) -> np.ndarray:
        check_names(names_of(y), learned.targets, 'y')
        (X, _), y = self._checked(X, learned, y, _with_targets)
        return self._placed(X, y, learned)

    def _placed(self, X: np.ndarray, y: np.ndarray, learned: _Learned) -> np.ndarray:
        """[x; y] on the grid, int32 (N, d + m)."""
        y = y.reshape(len(y), -1)
        expected = len(learned.of_y.centres)
        if y.shape[1] != expected:
            raise InputError(f'y has {y.shape[1]} targets, expected {expected}')
        with prefixed('targets'):
            y = learned.of_y.on_it(y)
        return np.hstack([learned.of_x.on_it(X), y])

    def _lambda(self) -> float | str:
        check_settings({'ridge_lambda': self.ridge_lambda})
        return self.ridge_lambda

    def _values(self, learned: _Learned, rows: np.ndarray) -> np.ndarray:
        """Values float64 (N, m) of features on the grid."""
        centred = learned.centred
        units, exponents = centred.slopes(self._lambda())
        dim = rows.shape[1]
        rests = centred.rests / learned.statistics.total
        moved = np.ldexp(row_sums(units * rests[:dim]), exponents)
        out = np.ldexp(row_products(rows - centred.means[:dim], units.T), exponents)
        return _reals(learned.of_y, out + (centred.means + rests)[dim:] - moved)


def _reals(grid: FeatureGrid, rows: np.ndarray) -> np.ndarray:
    """The numbers that stand at these places of a grid, float64."""
    return grid.centres + np.ldexp(rows.astype(np.float64), grid.exponents - GRID_BITS)


def _with_targets(estimator, X, y) -> tuple[np.ndarray, np.ndarray]:
    """X and the targets, checked."""
    X, y = check_X_y(X, y, dtype='float64', multi_output=True, y_numeric=True, estimator=estimator)
    if y.dtype.kind not in 'biuf':
        raise InputError(f'y has dtype {y.dtype}: expected numbers')
    return X, y


def _one_class(rows: np.ndarray) -> np.ndarray:
    return np.zeros(len(rows), int)
