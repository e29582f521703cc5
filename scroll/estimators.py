"""SCROLL for scikit-learn: pipelines, grid search, data frames; classes may come late.

    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(cross_val_score(ScrollClassifier(scale='standard'), X, y).mean() > .95)
    True

`scroll.Scroll` is the learner of images, too, with a buffer to adapt on, and files.
"""
import contextlib
import copy
import hashlib
import json
import threading
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from scroll.arguments import MAX_COUNT, one_of
from scroll.derived import derive
from scroll.errors import InputError
from scroll.feature_grid import FeatureGrid, Standardised, UnitLength
from scroll.grid import GRID
from scroll.heads.predictors import LinearPredictor
from scroll.heads.registry import empty_statistics, lift_of
from scroll.labels import check_labels
from scroll.settings import DEFAULTS, HEAD_NAMES, SETTINGS, check_settings, constructor
from scroll.state import State
from scroll.statistics import Statistics
from scroll.tables import check_dense, check_names

SCALES = ('unit', 'standard')
STANDARDISED = ('ridge', 'ncc', 'lda')      # linear heads on counts, class sums and one Gram matrix
_OF_BUFFER = ('buffer_size', 'strategy', 'adaptation', 'keep_keys')
_HEAD_SETTINGS = [name for name in SETTINGS if name not in _OF_BUFFER]


class _Fitted(NamedTuple):
    """What fitting adds, replaced as a whole. made: f_T by settings of the head."""
    grid: FeatureGrid | UnitLength
    statistics: Statistics
    made: dict

    def counting(self, statistics: Statistics) -> '_Fitted':
        """With other statistics."""
        return self._replace(statistics=statistics, made={})


class ScrollClassifier(ClassifierMixin, BaseEstimator):
    """Classifier from exact integer sums: the same bits under every order, batching and sharding of the data.

    Any number of `partial_fit`, with classes that nobody has named before, ends where `fit` on all of it does
    (standardised: given `limit`). `a + b` has learned the data of both; `remove` takes samples out.
    Head and its parameters may be changed at any time, since sums are those of all; the others affect `fit`.
    Bad input is an `InputError` of one line, and changes nothing.

    Args:
        head, ridge_lambda, targets, ncc_bias, shrinkage, pooling, seed: as of `Scroll`, for scaled features.
        lift, lift_dim, lift_seed, lift_bandwidth: as of `Scroll`; affect `fit`, and need unit length.
        scale: 'unit': each sample has its length scaled to one, as embeddings want it. 'standard', for tables
            of measured quantities and the heads ridge, ncc and lda: each feature less its mean, over its
            standard deviation and sqrt(d), both from the sums (`scroll.feature_grid.Standardised`).
        limit: of 'standard', the largest absolute value that a feature will have, a number or one for each
            feature. Values beyond cannot be learned, and are predicted in float64. None: `fit` makes a grid
            that reaches four times as far as its data; `partial_fit` cannot begin, since its first batch
            would decide.

    Attributes:
        classes_: (K,) labels seen, sorted. n_features_in_: d. feature_names_in_: (d,) of a data frame.
        statistics_: the sums, of features on the grid.
    """
    __init__ = constructor(dict(head=DEFAULTS['head'], scale='unit', limit=None) |
                           {name: DEFAULTS[name] for name in _HEAD_SETTINGS}, positional=1)

    def fit(self, X, y, sample_weight=None) -> 'ScrollClassifier':
        """Forget everything, then learn. X: numbers (N, d): array or data frame. y: labels (N,), whole
        numbers or text. sample_weight: whole numbers (N,): copies of each sample, exactly."""
        fresh = clone(self)
        fresh._learn(X, y, sample_weight, whole_data=True)
        with self._writing():
            vars(self).pop('feature_names_in_', None)
            learned = vars(fresh).keys() - self.get_params().keys() - {'_lock'}
            vars(self).update({name: vars(fresh)[name] for name in learned})
        return self

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> 'ScrollClassifier':
        """Learn more; arguments as `fit`. classes: ignored, since new ones may come at any time."""
        return self._learn(X, y, sample_weight)

    def remove(self, X, y) -> 'ScrollClassifier':
        """Unlearn samples that were learned: `digest` is then that of never having seen them. InputError:
        they cannot all have been learned."""
        check_is_fitted(self)
        X, y = self._checked(X, y)
        with self._writing():
            features = self._fitted.grid.on_it(X)
            self._fitted = self._fitted.counting(copy.copy(self._fitted.statistics).remove(features, y))
        return self

    def __add__(self, other: 'ScrollClassifier') -> 'ScrollClassifier':
        """A new classifier, with these parameters, that has learned what both have; they stay as they are."""
        if not isinstance(other, ScrollClassifier):
            return NotImplemented
        check_is_fitted(self)
        check_is_fitted(other)
        one, two, out = self._fitted, other._fitted, copy.copy(self)
        if one.grid.digest() != two.grid.digest():
            raise InputError('cannot add classifiers whose features are on different grids: make both with '
                             'the same scale and limit')
        names = [getattr(part, 'feature_names_in_', None) for part in (other, self)]
        check_names(*(own if own is None else tuple(own) for own in names), 'cannot add: the second')
        out._fitted = one.counting(copy.copy(one.statistics).merge(two.statistics))
        return out

    def digest(self) -> str:
        """SHA-256 of the sums and of the grid they are on; with unit length, that of `Scroll.digest`."""
        check_is_fitted(self)
        sums, grid = self._fitted.statistics.digest(), self._fitted.grid.digest()
        return hashlib.sha256(json.dumps([sums, grid]).encode()).hexdigest() if grid else sums

    def predict(self, X) -> np.ndarray:
        """Labels (N,). Uses exact logits, so ties in float64 are resolved."""
        online, placed, beyond, far = self._placed(X)
        labels = online.predict(placed)
        labels[beyond] = online.classes[far.argmax(axis=1)]
        return labels

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K), columns as `classes_`; of two classes (N,), those of the second less the
        first."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X) -> np.ndarray:
        """Softmax of the logits, float64 (N, K): not calibrated, as `CalibratedClassifierCV` makes them."""
        return softmax(self._logits(X), axis=1)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of samples predicted right, 0 to 1."""
        return super().score(X, _plain(y), sample_weight)

    @property
    def statistics_(self) -> Statistics:
        """What was counted, of features on the grid."""
        return copy.copy(self._known().statistics)

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels, sorted, int64 or text."""
        return self._known().statistics.classes

    def _known(self) -> _Fitted:
        if not self.__sklearn_is_fitted__():
            raise AttributeError('nothing was learned yet')
        return self._fitted

    def __sklearn_is_fitted__(self) -> bool:
        return '_fitted' in vars(self)

    def __getstate__(self) -> dict:
        return {name: value for name, value in super().__getstate__().items() if name != '_lock'}

    def _writing(self):
        """A lock that those who change what was learned hold."""
        return vars(self).setdefault('_lock', threading.RLock())

    def _of_head(self) -> dict:
        return {name: getattr(self, name) for name in _HEAD_SETTINGS}

    # learning

    def _learn(self, X, y, sample_weight, whole_data: bool = False) -> 'ScrollClassifier':
        """`partial_fit`. `whole_data`: there is no more to come, so a grid may be made of it."""
        self._check_params()
        with self._writing():
            first = not self.__sklearn_is_fitted__()
            X, y = self._checked(X, y, first)
            if sample_weight is not None:
                weights = _weights(sample_weight, len(y))
                X, y, weights = (part[weights > 0] for part in (X, y, weights))
            old = self._begun(X, whole_data) if first else self._fitted
            statistics, features = copy.copy(old.statistics), old.grid.on_it(X)
            if sample_weight is None:
                statistics.add(features, y)
            else:
                copies = statistics.empty_like()
                for bit in reversed(range(int(weights.max()).bit_length())):
                    rows = weights >> bit & 1 == 1
                    copies.merge(copy.copy(copies)).add(features[rows], y[rows])
                statistics.merge(copies)
            self._fitted = old.counting(statistics)
        return self

    def _check_params(self) -> None:
        one_of('scale', self.scale, SCALES)
        check_settings(self._of_head())
        one_of(f'scale={self.scale!r} with head', self.head,
               STANDARDISED if self.scale == 'standard' else HEAD_NAMES)
        if self.scale == 'standard' and lift_of(self._of_head(), 1) is not None:
            raise InputError(f"head {self.head!r}, lift {self.lift!r}: a lift needs features of unit length, "
                             "scale='unit'")

    def _checked(self, X, y, first: bool = False) -> tuple:
        """X float64 (N, d) and checked labels (N,)."""
        check_dense(X)
        with _one_line():
            X, y = validate_data(self, X, _plain(y), reset=first, dtype=np.float64)
            check_classification_targets(y)
        return X, check_labels(y, len(y))

    def _begun(self, X, whole_data: bool) -> _Fitted:
        """Nothing learned, on the grid that these parameters ask for, made of X if nothing else says it."""
        dim = X.shape[1]
        if self.scale == 'unit':
            grid = UnitLength()
        elif self.limit is not None:
            grid = FeatureGrid.covering(self.limit, dim)
        elif whole_data:
            grid = FeatureGrid.between(X.min(axis=0), X.max(axis=0))
        else:
            raise InputError("scale='standard', limit=None: give limit, the largest absolute value of a "
                             'feature; the first batch of partial_fit may not decide on the grid')
        return _Fitted(grid, empty_statistics(self._of_head(), dim), {})

    # predicting

    def _online(self, fitted: _Fitted) -> LinearPredictor:
        """f_T, for features on the grid: made once for the head that is asked for now."""
        values = DEFAULTS | self._of_head()
        if repr(values) not in fitted.made:
            statistics, standardised = fitted.statistics, None
            if isinstance(fitted.grid, FeatureGrid):
                standardised = Standardised(statistics)
                statistics = standardised.statistics
            online = derive(values, State({}, '', statistics)).online
            fitted.made[repr(values)] = standardised.of_raw(online) if standardised else online
        return fitted.made[repr(values)]

    def _placed(self, X) -> tuple:
        """(f_T, int32 (N, d) on the grid, positions of samples beyond it, their logits)."""
        check_is_fitted(self)
        check_dense(X)
        fitted = self._fitted
        with _one_line():
            X = validate_data(self, X, reset=False, dtype=np.float64)
        online, placed = self._online(fitted), fitted.grid.place(X)
        beyond = np.flatnonzero((np.abs(placed) > GRID).any(axis=1))
        far = np.zeros((0, len(online.classes)))
        if len(beyond):
            far = placed[beyond] / GRID @ online.weight.T + online.bias
            placed[beyond] = 0
        return online, placed.astype(np.int32), beyond, far

    def _logits(self, X) -> np.ndarray:
        """float64 (N, K)."""
        online, placed, beyond, far = self._placed(X)
        logits = online.decision_function(placed)
        logits[beyond] = far
        return logits


@contextlib.contextmanager
def _one_line():
    """What scikit-learn finds wrong with the input, as an `InputError`."""
    try:
        yield
    except ValueError as error:
        raise InputError(' '.join(str(error).split())) from error


def _plain(y):
    """Labels in lists and arrays of objects as numbers or text; others are as scikit-learn takes them."""
    listed = isinstance(y, (list, tuple)) or getattr(getattr(y, 'dtype', None), 'kind', '') == 'O'
    return check_labels(y, len(y)) if listed and np.asarray(y, object).ndim == 1 else y


def _weights(sample_weight, count: int) -> np.ndarray:
    """int64 (N,); InputError unless they are whole numbers of 0 or more, and not all 0."""
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    if weights.shape != (count,) or not weights.any() or not ((weights >= 0) & (weights % 1 == 0)).all():
        raise InputError(f'sample_weight: expected ({count},) whole numbers of 0 or more, not all zero')
    return np.minimum(weights, MAX_COUNT).astype(np.int64)
