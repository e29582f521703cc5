"""SCROLL for scikit-learn: pipelines, grid search, data frames, sample weights; classes may come late.

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
import warnings
from dataclasses import replace
from math import fsum
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from scroll.arguments import one_of, shown, whole
from scroll.derived import Derived, derive
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.feature_grid import FeatureGrid, Standardised, UnitLength
from scroll.grid import GRID, sample_keys
from scroll.heads.predictors import LinearPredictor
from scroll.heads.registry import empty_statistics, lift_of
from scroll.heads.scaling import fit_scale, row_sums
from scroll.labels import check_labels
from scroll.settings import AUTO, DEFAULTS, SETTINGS, check_settings, constructor
from scroll.state import State
from scroll.statistics import MAX_SAMPLES, Statistics
from scroll.tables import check_dense, check_names

SCALES = ('unit', 'standard', None)
STANDARDISED = ('ridge', 'ncc', 'lda')      # linear heads on counts, class sums and one Gram matrix
_OF_BUFFER = ('buffer_size', 'strategy', 'adaptation', 'keep_keys')
_HEAD_SETTINGS = [name for name in SETTINGS if name not in _OF_BUFFER]
_UNEVEN = 30                        # times the usual root mean square is another scale
_SHARE = 20                         # calibration takes out at most one in 20 of all samples at once
_SCALES = 1e-3, 1e5                 # of a standard deviation of the logits


class _Fitted(NamedTuple):
    """What fitting adds, replaced as a whole. standard: whether heads see standardised features. made: f_T
    and scale of probabilities, by settings of the head."""
    grid: FeatureGrid | UnitLength
    standard: bool
    state: State
    made: dict

    def knowing(self, state: State) -> '_Fitted':
        """With another state."""
        return self._replace(state=state, made={})


class ScrollClassifier(ClassifierMixin, BaseEstimator):
    """Classifier from exact integer sums: the same bits under every order, batching and sharding of the data.

    Any number of `partial_fit`, with classes that nobody has named before, ends where `fit` on all of it does
    (without unit length: given `limit`). `a + b` has learned the data of both; `remove` takes samples out.
    Head and its parameters may be changed at any time, since sums are those of all; the others affect `fit`.
    Bad input is an `InputError` of one line, and changes nothing.

    Args:
        head, ridge_lambda, targets, ncc_bias, shrinkage, pooling, seed: as of `Scroll`, for scaled features.
        lift, lift_dim, lift_seed, lift_bandwidth: as of `Scroll`; affect `fit`, and need unit length.
        scale: 'unit': each sample has its length scaled to one, as embeddings want it. None: features as they
            are, in units of the power of two at or above `limit`. 'standard', for tables of measured
            quantities and the heads ridge, ncc and lda: each feature less its mean, over its standard
            deviation and sqrt(d), both from the sums (`scroll.feature_grid.Standardised`).
        limit: without unit length, the largest absolute value that a feature will have, a number or (with
            'standard') one for each feature. Values beyond cannot be learned; linear heads predict them, in
            float64. None: `fit` makes a grid that reaches four times as far as its data; `partial_fit` cannot
            begin, since its first batch would decide.
        calibration_size: samples to keep, drawn by hash and shared among the classes, to calibrate
            `predict_proba` on. 0: none, and probabilities are the softmax of plain logits.

    Attributes:
        classes_: (K,) labels seen, sorted. head_: the head in use. n_features_in_: d. feature_names_in_:
            (d,) of a data frame. statistics_: the sums, of features on the grid.
    """
    __init__ = constructor(dict(head=DEFAULTS['head'], scale='unit', limit=None, calibration_size=500) |
                           {name: DEFAULTS[name] for name in _HEAD_SETTINGS}, positional=1)

    def fit(self, X, y, sample_weight=None) -> 'ScrollClassifier':
        """Forget everything, then learn. X: numbers (N, d): array or data frame. y: labels (N,), whole
        numbers or text. sample_weight: whole numbers (N,), 0 or more: copies of each sample, exactly."""
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
            rest = self._fitted.state.without(features, sample_keys(features), y)
            self._fitted = self._fitted.knowing(rest)
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
        out._fitted = one.knowing(one.state.merged(two.state, False))
        return out

    def digest(self) -> str:
        """SHA-256 of the sums and of the grid they are on; with unit length, that of `Scroll.digest`."""
        check_is_fitted(self)
        sums, grid = self._fitted.state.statistics.digest(), self._fitted.grid.digest()
        return hashlib.sha256(json.dumps([sums, grid]).encode()).hexdigest() if grid else sums

    def predict(self, X) -> np.ndarray:
        """Labels (N,). Uses exact logits, so ties in float64 are resolved."""
        _, online, placed, beyond, far = self._placed(X)
        labels = online.predict(placed)
        labels[beyond] = online.classes[far.argmax(axis=1)]
        return labels

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K), columns as `classes_`; of two classes (N,), those of the second less the
        first."""
        logits = self._logits(X)[1]
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities float64 (N, K): softmax of logits times the factor of least cross-entropy on samples
        that the head has not seen."""
        fitted, logits = self._logits(X)
        return softmax(self._made(fitted, 'scale', self._probability_scale) * logits, axis=1)

    def score(self, X, y, sample_weight=None) -> float:
        """Share of samples predicted right, 0 to 1."""
        return super().score(X, _plain(y), sample_weight)

    @property
    def statistics_(self) -> Statistics:
        """What was counted, of features on the grid."""
        return copy.copy(self._known().state.statistics)

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels, sorted, int64 or text."""
        return self._known().state.statistics.classes

    @property
    def head_(self) -> str:
        """The head in use, of 'auto' the one chosen."""
        return self._made(self._known(), 'f_T', self._derive).head

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
                copies = _copies(sample_weight, len(y), least=int(whole_data))
                X, y = X.repeat(copies, axis=0), y.repeat(copies)
                if not len(y):
                    return self
            old = self._begun(X, whole_data) if first else self._fitted
            features = old.grid.on_it(X)
            self._fitted = old.knowing(old.state.with_samples(features, features, sample_keys(features), y))
        return self

    def _check_params(self) -> None:
        if self.scale is not None and self.scale not in SCALES:
            raise InputError(f"scale {shown(self.scale)}: expected 'unit', 'standard' or None")
        check_settings(self._of_head())
        if self.scale == 'standard':
            one_of("scale='standard' with head", self.head, STANDARDISED)
        if self.scale != 'unit' and lift_of(self._of_head(), 1) is not None:
            raise InputError(f"head {self.head!r}, lift {self.lift!r}: a lift needs features of unit length, "
                             "scale='unit'")
        whole('calibration_size', self.calibration_size)

    def _checked(self, X, y, first: bool = False) -> tuple:
        """X float64 (N, d) and checked labels (N,)."""
        check_dense(X)
        with _one_line():
            X, y = validate_data(self, X, _plain(y), reset=first, dtype=np.float64)
            check_classification_targets(y)
        return X, check_labels(y, len(y))

    def _begun(self, X, whole_data: bool) -> _Fitted:
        """Nothing learned, on the grid that these parameters ask for, made of X if nothing else says it."""
        dim, standard = X.shape[1], self.scale == 'standard'
        if self.scale == 'unit':
            grid = UnitLength()
            if whole_data:
                _warn_of_scales(X)
        elif self.limit is not None:
            grid = FeatureGrid.covering(self.limit, dim, common=not standard)
        elif whole_data:
            grid = FeatureGrid.between(X.min(axis=0), X.max(axis=0), centred=standard)
        else:
            raise InputError(f'scale={self.scale!r}, limit=None: give limit, the largest absolute value of a '
                             'feature; the first batch of partial_fit may not decide on the grid')
        buffer = ExemplarBuffer(self.calibration_size, 'hash', self.seed) if self.calibration_size else None
        state = State({}, '', empty_statistics(self._of_head(), dim), buffer)
        return _Fitted(grid, standard, state, {})

    # predicting

    def _made(self, fitted: _Fitted, what: str, make):
        """make(fitted), once for the head that is asked for now."""
        key = what, repr(self._of_head())
        if key not in fitted.made:
            fitted.made[key] = make(fitted)
        return fitted.made[key]

    def _derive(self, fitted: _Fitted) -> Derived:
        """f_T, for features on the grid."""
        values, state = DEFAULTS | self._of_head(), fitted.state
        if not fitted.standard:
            return derive(values, state)
        standardised = Standardised(state.statistics)
        below = derive(values, replace(state, statistics=standardised.statistics))
        return replace(below, online=standardised.of_raw(below.online))

    def _placed(self, X) -> tuple:
        """(what was fitted, f_T, int32 (N, d) on the grid, positions of samples beyond it, their logits)."""
        check_is_fitted(self)
        check_dense(X)
        fitted = self._fitted
        with _one_line():
            X = validate_data(self, X, reset=False, dtype=np.float64)
        online, placed = self._made(fitted, 'f_T', self._derive).online, fitted.grid.place(X)
        beyond = np.flatnonzero((np.abs(placed) > GRID).any(axis=1))
        far = np.zeros((0, len(online.classes)))
        if len(beyond):
            if not isinstance(online, LinearPredictor):
                raise InputError(f'sample {beyond[0]} has values beyond the grid: the head {self.head} '
                                 'predicts within limit alone')
            far = placed[beyond] / GRID @ online.weight.T + online.bias
            placed[beyond] = 0
        return fitted, online, placed.astype(np.int32), beyond, far

    def _logits(self, X) -> tuple:
        """(what was fitted, logits float64 (N, K))."""
        fitted, online, placed, beyond, far = self._placed(X)
        logits = online.decision_function(placed)
        logits[beyond] = far
        return fitted, logits

    def _probability_scale(self, fitted: _Fitted) -> float:
        """The factor of logits with which their softmax has the least cross-entropy on samples left out; 1
        where none are kept, or of one class.

        The buffer's samples are taken out of the sums in turns, exactly, and the head is made of the rest,
        with lambda, shrinkage, mean and standard deviation. A turn takes a twentieth of all samples at most:
        of twenty samples that is leave-one-out. Each kept sample stands for its share of its class. One
        more, of every class equally, keeps the factor finite where nothing is misclassified (Platt 1999).
        """
        state, counted = fitted.state, fitted.state.statistics
        if state.buffer is None or not len(state.buffer) or len(counted.classes) < 2:
            return 1.0
        held, counts = state.buffer.content(), counted.counts
        own = np.searchsorted(counted.classes, held.labels)
        turns = max(-(-_SHARE * len(held) // counted.total), 2)
        turn = np.arange(len(held)) % turns                 # class after class: none is left without samples
        turn[counts[own] == 1] = -1
        logits = np.empty((len(held), len(counts)))
        if self.head != AUTO:                               # which chooses by the others in the buffer
            state = replace(state, buffer=None)
        for at in filter(len, (np.flatnonzero(turn == i) for i in range(turns))):
            rest = state.without(held.features[at], held.keys[at], held.labels[at])
            online = self._derive(fitted._replace(state=rest)).online
            logits[at] = online.decision_function(held.features[at])
        out, weights = turn >= 0, counts[own] / np.bincount(own)[own]
        return _best_scale(logits[out], own[out], weights[out]) if out.any() else 1.0


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


def _copies(sample_weight, count: int, least: int) -> np.ndarray:
    """int64 (N,): how many times each sample is learned; InputError unless they are whole numbers, 0 or
    more, `least` or more in all."""
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    sound = np.isfinite(weights) & (weights >= 0) & (weights == np.rint(weights))
    if weights.shape != (count,) or not sound.all() or not least <= weights.sum() <= MAX_SAMPLES:
        raise InputError(f'sample_weight {shown(sample_weight)}: expected ({count},) whole numbers, 0 or '
                         f'more, not all zero: copies of each sample, at most {MAX_SAMPLES} in all')
    return weights.astype(np.int64)


def _warn_of_scales(X: np.ndarray) -> None:
    """UserWarning where one feature leaves nothing of the others' share of unit length."""
    largest = np.abs(X).max()
    sizes = np.sqrt(np.square(X / (largest or 1)).mean(axis=0))
    usual = np.median(sizes[sizes > 0]) if largest else 0
    if sizes.max() > _UNEVEN * usual:
        warnings.warn(f'feature {sizes.argmax()} is {sizes.max() / usual:.0f} times as large as the usual '
                      'one, and all but fills samples of unit length: for features of different scale take '
                      "scale='standard'", UserWarning, stacklevel=5)


def _best_scale(logits: np.ndarray, own: np.ndarray, weights: np.ndarray) -> float:
    """The factor of least cross-entropy. logits: (m, K). own: columns of the true classes. weights: (m,)."""
    centred = logits - row_sums(logits)[:, None] / logits.shape[1]
    spread = fsum(np.sqrt(row_sums(centred * centred) / logits.shape[1])) / len(own)
    if not spread:
        return 1.0
    return fit_scale(logits, own, [scale / spread for scale in _SCALES], weights, 1 / (len(own) + 1))
