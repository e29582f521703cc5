"""SCROLL for scikit-learn: pipelines, grid search, data frames, sample weights, late classes.

    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(cross_val_score(ScrollClassifier(scale='standard'), X, y).mean() > .95)
    True

`scroll.Scroll` is the learner below it: of images, too, with a buffer to adapt on, and files.
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

from scroll.ground.arguments import one_of, shown, whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import digest_of, widened
from scroll.ground.labels import check_kind, check_labels, label_array, typed_labels
from scroll.ground.settings import SETTINGS, check_settings, class_weight_hint
from scroll.ground.tables import Columns, names_of, numbers_of, warn_of_half
from scroll.heads.registry import HEADS, lift_of
from scroll.heads.scaling import probabilities, row_sums
from scroll.learners.grid_learner import FeatureGrid, GridLearner
from scroll.learners.learner import Locked
from scroll.sums.statistics import MAX_SAMPLES

SCALES = ('unit', 'standard', None)
STANDARDISED = ('ridge', 'ncc', 'lda')  # linear heads on counts, class sums and one Gram matrix
_OF_BUFFER = ('buffer_size', 'strategy', 'adaptation', 'keep_keys')
_HEAD_SETTINGS = [name for name in SETTINGS if name not in _OF_BUFFER]
_UNEVEN = 30  # times the usual root mean square is another scale


def _labelled(estimator, X, y) -> tuple[np.ndarray, np.ndarray]:
    """X and the labels of a classifier, checked."""
    X, y = check_X_y(X, _plain(y), dtype='float64', estimator=estimator)
    check_classification_targets(y)
    return X, y


class Learning(Locked, BaseEstimator):
    """A base of the estimators: input as scikit-learn takes it, and a state, `_fitted`, with
    `n_features_in_` and `feature_names_in_`, that is replaced at once by what has learned more."""

    _fitted: Any

    def __sklearn_is_fitted__(self) -> bool:
        return '_fitted' in vars(self)

    def _require_fitted(self):
        check_is_fitted(self)
        return self._fitted

    @property
    def n_features_in_(self) -> int:
        """d."""
        return self._require_fitted().n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """(d,) names of the columns of a data frame, as text; AttributeError: it had none."""
        return self._require_fitted().feature_names_in_

    def _checked(self, X, learner, y=..., check=_labelled) -> tuple[Columns, Any]:
        """Return `Columns` of X float64 (N, d), in the order that was learned, and y where it is
        given. learner: None if nothing was learned. check: y of X and y, by scikit-learn's
        functions. InputError: scikit-learn raised an error."""
        learned = None
        if learner is not None:
            learned = tuple(getattr(learner, 'feature_names_in_', ()))
        try:
            names = names_of(X) if learned is None else learned or None
            X = numbers_of(X, learned)
            if y is ...:
                X = check_array(X, dtype='float64', estimator=self)
            else:
                X, y = check(self, X, y)
        except InputError:
            raise
        except (OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(' '.join(str(error).split())) from error
        if learner is not None and X.shape[1] != learner.n_features_in_:
            raise InputError(
                f'X has {X.shape[1]} features, but {type(self).__name__} is expecting '
                f'{learner.n_features_in_} features as input'
            )
        return Columns(X, names), y


class ScrollClassifier(ClassifierMixin, Learning):
    """Classifier from exact integer sums: the same bits under every order, batching and sharding of
    the data.

    Any number of `partial_fit`, with classes that nobody has named before, ends where `fit` on all
    of it does (without unit length: given `limit`). `a + b` has learned the data of both; `remove`
    takes samples out. Head and its parameters may be changed at any time. Bad input is an
    `InputError`, and changes nothing.

    Args:
        head: as of `Scroll`, for scaled features.
        scale: 'unit': each sample has its length scaled to one, as embeddings want it. None:
            features as they are, in units of the power of two at or above `limit`. 'standard', for
            tables of measured quantities and the heads ridge, ncc and lda: each feature less its
            mean, over its standard deviation and sqrt(d), both from the sums
            (`scroll.learners.grid_learner.Standardised`).
        limit: without unit length, the largest absolute value that a feature will have, a number or
            (with 'standard') one for each feature. Values beyond cannot be learned, and are
            predicted as those at the edge of the grid. None: `fit` makes a grid that reaches four
            times as far as its data; `partial_fit` cannot begin, since its first batch would
            decide.
        calibration_size: samples to keep, drawn by hash and shared among the classes, to calibrate
            `predict_proba` on. 0: none, and probabilities are the softmax of plain logits.
        ridge_lambda: as of `Scroll`.
        targets: as of `Scroll`.
        ncc_bias: as of `Scroll`.
        seed: as of `Scroll`.
        shrinkage: as of `Scroll`.
        pooling: as of `Scroll`.
        lift: as of `Scroll`; this and the next three affect `fit`, and need unit length.
        lift_dim: as of `Scroll`.
        lift_seed: as of `Scroll`.
        lift_bandwidth: as of `Scroll`.

    Attributes:
        classes_: (K,) labels, with those that were named as `classes` and not yet seen.
        n_features_in_: d.
        feature_names_in_: (d,) names of the columns of a data frame.
        learner_: the `Scroll` below; `learner_.statistics_` are its sums, of features on the grid.
    """

    def __init__(
        self,
        head: str = 'ridge',
        *,
        scale: str | None = 'unit',
        limit: float | Sequence[float] | None = None,
        calibration_size: int = 500,
        ridge_lambda: float | str = 0.1,
        targets: str = 'pm1',
        ncc_bias: str = 'exact',
        seed: int = 0,
        shrinkage: float | str = 'oas',
        pooling: float = 0.5,
        lift: str = 'auto',
        lift_dim: int = 2000,
        lift_seed: int = 0,
        lift_bandwidth: float = 1.0,
    ):
        self.head = head
        self.scale = scale
        self.limit = limit
        self.calibration_size = calibration_size
        self.ridge_lambda = ridge_lambda
        self.targets = targets
        self.ncc_bias = ncc_bias
        self.seed = seed
        self.shrinkage = shrinkage
        self.pooling = pooling
        self.lift = lift
        self.lift_dim = lift_dim
        self.lift_seed = lift_seed
        self.lift_bandwidth = lift_bandwidth

    def set_params(self, **params) -> 'ScrollClassifier':
        """Change constructor arguments by name; takes effect where they are next used."""
        try:
            return super().set_params(**params)
        except ValueError as error:
            raise InputError(str(error).rstrip('.') + class_weight_hint(params)) from error

    def fit(self, X, y, sample_weight=None) -> 'ScrollClassifier':
        """Forget everything, then learn.

        Args:
            X: numbers (N, d): array or data frame.
            y: labels (N,), whole numbers or text.
            sample_weight: whole numbers (N,), 0 or more: exact copies of each.
        """
        fresh = type(self)(**self.get_params(deep=False))
        fresh._learn(X, y, None, sample_weight, whole_data=True)
        with self._lock:
            self._fitted = fresh._fitted  # at once: a fit may be interrupted
        return self

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> 'ScrollClassifier':
        """Learn more; arguments as `fit`. classes: labels that will come. Not needed: new ones may
        come at any time. Those named and not yet seen have probability 0."""
        return self._learn(X, y, classes, sample_weight)

    def remove(self, X, y) -> 'ScrollClassifier':
        """Unlearn samples that were learned: `digest` and labels are then those of never having
        seen them, and so are probabilities while `learner_.buffer_.complete` (of samples to
        calibrate on, those that were let go do not come back). InputError: they cannot all have
        been learned."""
        warn_of_half(X)
        X, y = self._checked(X, self._require_fitted(), y)
        with self._lock:
            learner = copy.copy(self.learner_)
            learner.remove(X, check_labels(y, len(y)))
            self._fitted = learner
        return self

    def __add__(self, other: 'ScrollClassifier') -> 'ScrollClassifier':
        """Return a new classifier, with these parameters, that has learned the data of both."""
        if not isinstance(other, ScrollClassifier):
            return NotImplemented
        more = other._require_fitted()
        learner = copy.copy(self._require_fitted())
        learner.merge(more)
        learner.declared |= more.declared
        out = copy.copy(self)
        out._fitted = learner
        return out

    def digest(self) -> str:
        """Return the SHA-256 of the sums and of the grid they are on; with unit length, that of
        `Scroll.digest`."""
        learner = self._require_fitted()
        sums = learner.digest()
        grid = learner.psi()
        return digest_of([sums, grid]) if grid else sums

    def save(self, path) -> None:
        """Write the sums to `path`, whole or not at all, for `Scroll.load` and `python -m scroll`:
        labels are int64 or text there. InputError: it cannot be written, or scale is not 'unit'."""
        self.learner_.save(path)

    @property
    def learner_(self) -> GridLearner:
        """The `Scroll` below, with the head that is asked for now."""
        learner = self._require_fitted()
        settings = self._of_head()
        if settings != {name: getattr(learner, name) for name in _HEAD_SETTINGS}:
            # copies of this classifier, and other threads, may use that learner
            with self._lock:
                learner = copy.copy(self._require_fitted())
                learner.set_params(**settings)
                self._fitted = learner
        return learner

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels, sorted: int64, text, or bool where all are True or False."""
        return self._require_fitted().labels()

    def predict(self, X) -> np.ndarray:
        """Return labels (N,). Uses exact logits, so ties in float64 are resolved."""
        learner = self.learner_
        labels = learner.predict(self._checked(X, learner)[0])
        return labels.astype(learner.labels().dtype) if learner.declared else labels

    def decision_function(self, X) -> np.ndarray:
        """Return logits float64 (N, K), columns as `classes_`; of two classes (N,), second less
        first.

        Those of lda, qda and ncc (`Head.relative`) are less the mean of each sample, so that a
        column can be read by itself, as calibration and ranking do. `learner_.predictor()` has them
        as they are."""
        learner = self.learner_
        logits = learner.decision_function(self._checked(X, learner)[0])
        if HEADS[learner.head].relative and len(learner.labels()) > 2:
            logits = logits - row_sums(logits)[:, None] / logits.shape[1]
        logits = learner.in_columns(logits, -np.inf)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X) -> np.ndarray:
        """Return probabilities float64 (N, K): softmax of logits times
        `GridLearner.probability_scale`."""
        learner = self.learner_
        logits = learner.decision_function(self._checked(X, learner)[0])
        return learner.in_columns(probabilities(logits, learner.probability_scale()), 0.0)

    def score(self, X, y, sample_weight=None) -> float:
        """Return the share of samples predicted right, 0 to 1."""
        learner = self.learner_
        _, y = self._checked(X, learner, y)
        check_kind(check_labels(y), learner.classes_)
        return super().score(X, y, sample_weight)

    def _learn(self, X, y, classes, sample_weight, whole_data: bool = False) -> 'ScrollClassifier':
        """Learn as `partial_fit`. `whole_data`: no more comes, so a grid may be made of it."""
        self._check_params()
        with self._lock:
            first = not self.__sklearn_is_fitted__()
            (X, names), y = self._checked(X, None if first else self._fitted, y)
            labels = typed_labels(y)
            declared = labels[:0]
            if classes is not None:
                with prefixed('classes'):
                    declared = typed_labels(classes)
                    check_kind(declared, labels)
            weights = None
            if sample_weight is not None:
                weights = _weights(sample_weight, len(labels), least=int(whole_data))
                counted = weights > 0
                X = X[counted]
                labels = labels[counted]
                weights = weights[counted]
            if first and not len(labels):
                return self
            learner = self._new_learner(X, whole_data) if first else copy.copy(self.learner_)
            made = learner.grid is not None, learner.standard
            if made != (self.scale != 'unit', self.scale == 'standard'):
                raise InputError(f'scale={self.scale!r}: what was learned has another: fit again')
            if learner.declared:
                check_kind(labels, label_array(list(learner.declared)))
            if weights is None:
                learner.partial_fit(Columns(X, names), labels)
            elif len(labels):
                copies = copy.copy(learner)
                copies.forget()
                _learn_copies(copies, Columns(X, names), labels, weights)
                if first:
                    learner = copies
                else:
                    learner.merge(copies, of_parts=False)
            learner.declared |= set(declared.tolist())
            self._fitted = learner
        return self

    def _check_params(self) -> None:
        if self.scale not in SCALES:
            raise InputError(f"scale {shown(self.scale)}: expected 'unit', 'standard' or None")
        check_settings(self._of_head())
        if self.scale == 'standard':
            one_of("scale='standard' with head", self.head, STANDARDISED)
        if self.scale != 'unit' and lift_of(self._of_head(), 1) is not None:
            raise InputError(
                f'head {self.head!r}, lift {self.lift!r}: a lift needs features of unit length, '
                "scale='unit'"
            )
        whole('calibration_size', self.calibration_size)

    def _of_head(self) -> dict:
        return {name: getattr(self, name) for name in _HEAD_SETTINGS}

    def _new_learner(self, X, whole_data: bool) -> GridLearner:
        """A learner with the grid that these parameters ask for, made of X if nothing else says
        what it is."""
        out = GridLearner(buffer_size=self.calibration_size, strategy='hash', **self._of_head())
        out.standard = self.scale == 'standard'
        if self.scale == 'unit':
            if whole_data:
                _warn_of_scales(X)
        elif self.limit is not None:
            out.grid = FeatureGrid.covering(self.limit, X.shape[1], common=not out.standard)
        elif whole_data:
            out.grid = FeatureGrid.between(X.min(axis=0), X.max(axis=0), centred=out.standard)
        else:
            raise InputError(
                f'scale={self.scale!r}, limit=None: give limit, the largest absolute value of a '
                'feature; the first batch of partial_fit may not decide on the grid'
            )
        return out


def _plain(y):
    """Return labels in lists, arrays of objects and pandas' own types, which may have gaps, as
    numbers or text; others as scikit-learn takes them."""
    dtype = getattr(y, 'dtype', None)
    objects = (
        isinstance(y, (list, tuple))
        or getattr(dtype, 'kind', '') in ('O', 'T')
        or getattr(dtype, 'na_value', None) is not None
    )
    return typed_labels(y, len(y)) if objects and np.asarray(y, object).ndim == 1 else widened(y)


def _weights(sample_weight, count: int, least: int) -> np.ndarray:
    """Return weights int64 (N,), whole numbers of at least 0; `least` or more in all."""
    try:
        weights = np.ma.masked_array(sample_weight, dtype=np.float64).filled(np.nan)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    if weights.shape != (count,):
        raise InputError(f'sample_weight has shape {weights.shape}: expected ({count},), numbers')
    wrong = ~np.isfinite(weights) | (weights < 0) | (weights != np.rint(weights))
    if wrong.any():
        raise InputError(
            f'sample_weight[{np.flatnonzero(wrong)[0]}] is {weights[wrong][0]:g}: expected '
            "whole numbers, 0 or more: copies of the sample; head='balanced' counts each "
            'class alike'
        )
    if not least <= weights.sum() <= MAX_SAMPLES:
        raise InputError(
            f'sample_weight adds up to {weights.sum():g}: expected more than zero, and no more '
            f'than {MAX_SAMPLES}'
        )
    return weights.astype(np.int64)


def _learn_copies(learner: GridLearner, X: Columns, labels, weights) -> None:
    """Teach a learner that has learned nothing `weights` copies of each sample: bit by bit of the
    weights, from the highest, all that was learned is doubled and the samples whose bit is set are
    added."""
    for bit in reversed(range(int(weights.max()).bit_length())):
        if hasattr(learner, 'statistics_'):
            learner.merge(learner, of_parts=False)
        counted = weights >> bit & 1 == 1
        if counted.any():
            learner.partial_fit(Columns(X.array[counted], X.columns), labels[counted])


def _warn_of_scales(X: np.ndarray) -> None:
    """Warn where one feature leaves nothing of the others' share of unit length."""
    largest = np.abs(X).max()
    sizes = np.sqrt(np.square(X / (largest or 1)).mean(axis=0))
    usual = np.median(sizes[sizes > 0]) if largest else 0
    if sizes.max() > _UNEVEN * usual:
        warnings.warn(
            f'feature {sizes.argmax()} is {sizes.max() / usual:.0f} times as large as the usual '
            'one, and all but fills samples of unit length: for features of different scale take '
            "scale='standard'",
            UserWarning,
            stacklevel=5,
        )
