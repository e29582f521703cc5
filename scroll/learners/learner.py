"""SCROLL as an estimator like those of scikit-learn: learn a stream in pieces, predict any time.

>>> from sklearn.datasets import load_digits
>>> from scroll import Scroll
>>> X, y = load_digits(return_X_y=True)
>>> learner = Scroll(buffer_size=0)
>>> for label in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7):                    # one class after the other
...     learner = learner.partial_fit(X[y == label][::2], y[y == label][::2])
>>> learner.score(X[1::2], y[1::2]) > 0.9                           # as if all had come at once
True
"""

import copy
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from scroll.adaptation.settings import Adaptation
from scroll.ground.arguments import instance, shown
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import check_quantised, quantise, sample_keys
from scroll.ground.labels import check_kind, check_labels, label_array, typed_labels
from scroll.ground.settings import SETTINGS, check_settings, class_weight_hint
from scroll.ground.tables import names_of, numbers_of, warn_of_half
from scroll.heads.registry import HEADS, lift_of
from scroll.heads.scaling import fit_scale
from scroll.learners.fitted_head import FittedHead, Predictor, adapt_head, fit_head
from scroll.learners.state import State, check_samples
from scroll.sums.exemplars import ExemplarBuffer
from scroll.sums.learned_keys import LearnedKeys
from scroll.sums.statistics import Statistics

if TYPE_CHECKING:
    from scroll.adaptation.training import AdaptedPredictor
    from scroll.embedding.embedder import Embedder

_BLOCK = 1 << 13  # samples of `out_of_sample` at once
_AT_ONCE = 1 << 16  # samples counted at once


class NotLearned(InputError, AttributeError):
    """A learner that has learned nothing; `hasattr(learner, 'statistics_')` is then False."""


class Locked:
    """An object whose writers wait for each other; neither copies nor pickles have its lock."""

    @property
    def _lock(self) -> threading.RLock:
        """Lock of the writers; made late, since constructors only store."""
        return vars(self).setdefault('_writers', threading.RLock())

    def __getstate__(self) -> dict:
        return {name: value for name, value in dict(vars(self)).items() if name != '_writers'}


class Scroll(Locked):
    """Schedule-robust online continual learner (paper, Algorithm 1).

    `partial_fit` counts each sample once, into exact statistics and a buffer; `predictor` is f_T,
    the same under every schedule; `adapt` makes f* from f_T and the buffer, always from the
    pristine backbone. `predict` and related methods use f* if `adapt` was called since the last
    change, else f_T.

    Features (not images) are rounded to float32, so that a sample and its float32 copy are one.
    Columns of a data frame go by their names. Any number of threads may read; writers wait for each
    other, and one that is interrupted, or meets bad input (an `InputError` of one line), leaves
    the learner as before or as after.

    Args:
        embedder: the backbone as an `Embedder` (X is then uint8 images), or None: X is features
            (N, d).
        head: the head of f_T: 'ridge'; 'ncc' (nearest class mean); 'lda'; 'rp' and 'rff' (ridge on
            a lift of the features); 'balanced' (ridge, each class counted alike, as `class_weight`
            does elsewhere) and 'qda' (a covariance for each class), which keep a Gram matrix for
            each class; 'random'; or a paper's name of these (docs/heads.md).
        ridge_lambda: added to the diagonal of the Gram matrix of [u; 1]; the paper's lambda times
            N. Or 'auto': chosen by generalised cross-validation from the statistics, whenever f_T
            is made. A value too small for these sums is refused, by 'balanced' raised
            (`ridge_lambda_` is the one in use).
        targets: targets of ridge: 'pm1' or 'onehot'.
        ncc_bias: bias of ncc: 'exact', 'paper' or 'zero'.
        buffer_size: |M|; 0: memory-free SCROLL.
        strategy: samples to keep in the buffer: 'herding', 'random', 'nearest', 'outlier', 'hash'.
        adaptation: an `Adaptation`, or None for its defaults.
        seed: seed of buffer, adaptation and random classifier.
        keep_keys: keep the key of every sample learned (8 bytes each), so that `remove` knows
            exactly what was learned. Without, `remove` refuses what statistics and buffer show to
            be wrong.
        shrinkage: share of the identity in the covariance within classes, for lda and qda, from 0
            up to below 1; or 'oas': the best for normal samples, chosen from the statistics
            whenever f_T is made.
        pooling: share of the common covariance in that of each class, for qda, 0 to 1.
        lift: lift of the features before they are counted (`scroll.sums.lift`): 'relu', 'square'
            or 'fourier'; 'none'; or 'auto': as the head says, rp relu, rff fourier, the others
            none.
        lift_dim: width of the lift.
        lift_seed: seed of its random matrix.
        lift_bandwidth: length scale of the lift 'fourier'.

    Attributes:
        statistics_: `Statistics`.
        buffer_: `ExemplarBuffer`, or None without memory.
        keys_: `LearnedKeys`, or None where they are not kept.
        n_features_in_: d.
        feature_names_in_: (d,) names of the columns of a data frame, as text.
        adapted_: the last `AdaptedPredictor`; None once anything was learned or removed since.
        ridge_lambda_: lambda in use, or None.
    """

    _state: State | None = None  # replaced as a whole by each writer
    _last_fit: tuple[Statistics, str, FittedHead] | None = None  # sums, settings, f_T

    def __init__(
        self,
        embedder: 'Embedder | None' = None,
        head: str = 'ridge',
        ridge_lambda: float | str = 0.1,
        targets: str = 'pm1',
        ncc_bias: str = 'exact',
        buffer_size: int = 500,
        strategy: str = 'herding',
        adaptation: Adaptation | None = None,
        seed: int = 0,
        keep_keys: bool = False,
        shrinkage: float | str = 'oas',
        pooling: float = 0.5,
        lift: str = 'auto',
        lift_dim: int = 2000,
        lift_seed: int = 0,
        lift_bandwidth: float = 1.0,
    ):
        self.embedder = embedder
        self.head = head
        self.ridge_lambda = ridge_lambda
        self.targets = targets
        self.ncc_bias = ncc_bias
        self.buffer_size = buffer_size
        self.strategy = strategy
        self.adaptation = adaptation
        self.seed = seed
        self.keep_keys = keep_keys
        self.shrinkage = shrinkage
        self.pooling = pooling
        self.lift = lift
        self.lift_dim = lift_dim
        self.lift_seed = lift_seed
        self.lift_bandwidth = lift_bandwidth

    def get_params(self, deep: bool = True) -> dict:
        """Return the constructor's arguments."""
        return {'embedder': self.embedder} | self._settings()

    def set_params(self, **params) -> 'Scroll':
        """Change constructor arguments by name; takes effect where they are next used. Of
        `buffer_size` and `keep_keys` that is the next `fit`: others than it began with are an
        InputError of `partial_fit`."""
        names = self.get_params().keys()
        unknown = [name for name in params if name not in names]
        if unknown:
            raise InputError(
                f'unknown parameter {unknown[0]!r}: expected one of {", ".join(names)}'
                f'{class_weight_hint(params)}'
            )
        digest = getattr(params.get('embedder', self.embedder), 'digest', '')
        if self._state is not None and digest != getattr(self.embedder, 'digest', ''):
            raise InputError('embedder: another one made the features learned: call forget first')
        vars(self).update(params)
        return self

    def __sklearn_tags__(self):
        """Tags of a classifier, for pipelines, searches and cross-validation of scikit-learn."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags('classifier', TargetTags(required=True), classifier_tags=ClassifierTags())

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None

    def _settings(self) -> dict:
        return {name: getattr(self, name) for name in SETTINGS}

    def _check_params(self) -> None:
        """InputError for an invalid argument of the constructor, which only stores them."""
        embedder = self.embedder
        if embedder is not None and not (callable(embedder) and hasattr(embedder, 'digest')):
            raise InputError(
                f'embedder {shown(embedder)}: expected an Embedder, or None for features'
            )
        check_settings(self._settings())

    def _check_before_learning(self) -> None:
        """InputError for an invalid argument, or one that what was learned has otherwise."""
        self._check_params()
        state = self._state
        if state is None:
            return
        buffer_size = getattr(state.buffer, 'capacity', 0)
        keep_keys = state.keys is not None
        if (buffer_size, keep_keys) != (self.buffer_size, self.keep_keys):
            raise InputError(
                f'what was learned has buffer_size={buffer_size} and keep_keys={keep_keys}: give '
                'these, or call forget or fit'
            )

    def __repr__(self) -> str:
        settings = [f'{name}={value!r}' for name, value in self._settings().items()]
        return f'Scroll({", ".join(settings)})'

    def _update(self, change) -> 'Scroll':
        """Replace the state by `change(state)`, where None is no state; if it fails, nothing
        changes."""
        with self._lock:
            self._state = change(self._state)
            self._last_fit = None
        return self

    def _edit(self, change) -> 'Scroll':
        """Update the state; InputError if nothing was learned."""
        return self._update(lambda _: change(self._require_state()))

    def _require_state(self) -> State:
        """The state; InputError before the first sample."""
        state = self._state
        if state is None:
            raise NotLearned('this Scroll has learned nothing yet: call partial_fit first')
        return state

    def set_state(self, state: State | None) -> 'Scroll':
        """Replace all that was learned by a state; its settings are ignored."""
        return self._update(lambda _: state)

    def forget(self) -> 'Scroll':
        """Go back to before the first sample."""
        return self.set_state(None)

    def new_statistics(self, dim: int) -> Statistics:
        """Return empty statistics of features of `dim` numbers, of the kind that the head needs."""
        return Statistics(dim, lift_of(self._settings(), dim), HEADS[self.head].by_class)

    def empty_state(self, dim: int, names: tuple | None = None) -> State:
        """Return a state without samples, of features of `dim` numbers, or of the embedder's."""
        self._check_params()
        dim = dim if self.embedder is None else self.embedder.dim
        return State(
            {},
            self.psi(),
            self.new_statistics(dim),
            ExemplarBuffer(self.buffer_size, self.strategy, self.seed)
            if self.buffer_size
            else None,
            LearnedKeys() if self.keep_keys else None,
            names=names,
            boolean=True,
        )

    def psi(self) -> str:
        """Return the digest of the embedder; '' for features."""
        return '' if self.embedder is None else self.embedder.digest

    def fit(self, X, y) -> 'Scroll':
        """Forget everything, then learn from one segment. Bad input changes nothing."""
        return self.set_state(copy.copy(self).forget().partial_fit(X, y)._state)

    def partial_fit(self, X, y) -> 'Scroll':
        """Learn from one segment of the stream: the buffer chooses among its samples at once.

        Args:
            X: uint8 images (N, H, W, C), or features (N, d) without an embedder.
            y: integer or string labels (N,).
        """
        self._check_before_learning()
        with self._lock:  # names of the first columns go for all
            if self.embedder is not None:
                features, keys = self.embedder(X)
                X = X.cpu() if hasattr(X, 'cpu') else X  # from a GPU
                return self.learn(np.asarray(X), features, keys, y)
            names = names_of(X)
            X = self._numbers(X, self._state)
            labels = _some_labels(y, len(X))
            state = self._state or self.empty_state(X.shape[1], names)
            # a buffer chooses among all of them; sums take blocks, and less memory
            size = _AT_ONCE if state.buffer is None else len(X)
            for start in range(0, len(X), size):
                block = slice(start, start + size)
                rows = self._quantised(X[block], start)
                keys = sample_keys(rows) if state.knows_keys else None
                state = state.with_samples(rows, rows, keys, labels[block])
            return self.set_state(state)

    def learn(self, samples, features, keys, y, names: tuple | None = None) -> 'Scroll':
        """Learn samples that the caller has embedded, for example many small segments at once.

        Args:
            samples: for the buffer: uint8 images (N, H, W, C), or without an embedder the features.
            features: int32 (N, d), quantised.
            keys: uint64 (N,).
            y: labels (N,).
            names: names of d columns; kept if they come first.
        """
        self._check_before_learning()
        state = self._state
        check_quantised(features, state and state.statistics.dim)
        if samples is not features and self.buffer_size != 0:
            check_samples(samples, features.shape[1], images=self.embedder is not None)
        labels = _some_labels(y, len(features))
        features = features.astype(np.int32, copy=False)
        if self.embedder is None:
            samples = samples.astype(np.int32, copy=False)

        def with_samples(state: State | None) -> State:
            state = state or self.empty_state(features.shape[1], names)
            return state.with_samples(samples, features, keys, labels)

        return self._update(with_samples)

    def add_statistics(self, statistics: Statistics) -> 'Scroll':
        """Learn samples whose sums alone are known, made elsewhere with the same backbone.

        Needs buffer_size=0 and keep_keys=False, since buffer and keys would have to see the
        samples."""
        self._check_before_learning()
        instance('statistics', statistics, Statistics)
        return self._update(
            lambda state: (state or self.empty_state(statistics.dim)).with_statistics(statistics)
        )

    def merge(self, other: 'Scroll', of_parts: bool = True) -> 'Scroll':
        """Add the samples of another learner, with the same backbone, of another part of the data.
        One that has learned nothing adds nothing, and may be added to: `functools.reduce` works.

        `of_parts`: keep account of the parts (`scroll.sums.parts`), also where no file says yet
        which they are."""
        instance('other', other, Scroll)
        if other._state is None:
            return self
        added = other.state_for_files()

        def merged(state: State | None) -> State:
            state = state or self.empty_state(added.statistics.dim, added.names)
            state = replace(state, psi=self.psi())
            return state.merged(added, of_parts or state.parts is not None)

        return self._update(merged)

    def _embed(self, X, state: State, keep: bool = True) -> tuple[np.ndarray, np.ndarray | None]:
        """Embed samples, for a state: features int32 (N, d) as of `learn`, and keys uint64 (N,), or
        None where it needs none. `keep`: cache the features."""
        if self.embedder is not None:
            return self.embedder(X, keep=keep)
        features = self._quantised(self._numbers(X, state))
        return features, sample_keys(features) if state.knows_keys else None

    def _on_grid(self, X, state: State) -> np.ndarray:
        """Quantised features int32 (N, d), for samples that may be new."""
        if self.embedder is not None:
            return self.embedder(X)[0]
        return self._placed(self._numbers(X, state))

    def _numbers(self, X, state: State | None) -> np.ndarray:
        """Features (N, d), in the order of columns of a state, which another thread may replace."""
        X = numbers_of(X, (state.names or ()) if state else None)
        if X.ndim != 2:
            quantise(X)  # which refuses it
        if state and X.shape[1] != state.statistics.dim:
            raise InputError(
                f'X has {X.shape[1]} features: expected {state.statistics.dim}, as in '
                'the first call'
            )
        return X

    def _quantised(self, X: np.ndarray, first: int = 0) -> np.ndarray:
        """Features on the grid, to be learned."""
        return quantise(X, as_float32=True, first=first)

    def _placed(self, X: np.ndarray) -> np.ndarray:
        """Features on the grid, to be predicted."""
        return self._quantised(X)

    def remove(self, X, y) -> 'Scroll':
        """Unlearn samples that were learned, each once: statistics and f_T are those of never
        having seen them, the buffer drops them, f* is dropped, and the embedder's cache loses their
        features. Files that were written before still hold what they held.

        A buffer cannot know what it has let go. With strategy `hash` it, and the f* that `adapt`
        makes of it, are those of never having seen the samples while `buffer_.complete`; after that
        their places are free until new samples come. Other strategies choose with the samples in
        view that were removed later.

        Samples that cannot all have been learned are an InputError. (Without `keep_keys`, samples
        that were never learned and are much like those that were may pass.)"""
        warn_of_half(X)
        features, keys = self._embed(X, self._require_state(), keep=False)
        labels = check_labels(y, len(features))
        return self._edit(
            lambda state: self._drop_from_cache(X, state.without(features, keys, labels))
        )

    def _drop_from_cache(self, samples, rest: State) -> State:
        """Drop the features of samples from the embedder's cache; return the rest."""
        if self.embedder is not None:
            self.embedder.forget(samples)
        return rest

    def remove_class(self, label, X=None) -> 'Scroll':
        """Unlearn a whole class, all its samples as `remove` does.

        The share of the class in the Gram matrix must be known, and the matrix of all classes does
        not tell: give all its samples X; not needed where there is a matrix a class (the heads
        `balanced`, `qda`), or the buffer has all its samples. Without X the embedder's cache loses
        the features of those in the buffer alone."""
        name = check_labels([label], 1).tolist()[0]

        def without_class(state: State) -> State:
            held = state.exemplars_of(name)
            rest = state.without_class(name)
            return rest if held is None else self._drop_from_cache(held.samples, rest)

        if X is None:
            return self._edit(without_class)
        with self._lock:
            count = self._require_state().count_of(name)
            # a list of images may be ragged, and a number has no length
            given = len(X) if isinstance(X, list) else [*np.shape(X), 0][0]
            if given != count:
                raise InputError(
                    f'{given} of {count} samples of class {name!r} are given: expected all'
                )
            return self.remove(X, label_array([name] * count))

    def rename(self, mapping: dict) -> 'Scroll':
        """Give classes other names: {name: new name}; the others keep theirs. Two may swap theirs.

        The learner is then that of a stream with these names; so is the buffer, where its capacity
        is shared evenly (the surplus goes to the first classes: one that is now later may lose a
        sample, and one that is now first lacks it: `buffer_.complete`)."""
        instance('mapping', mapping, dict)
        return self._edit(lambda state: state.renamed(mapping))

    def predictor(self) -> Predictor:
        """Return f_T (paper, section 3.1), for `qda` a `QuadraticPredictor`; InputError before the
        first sample."""
        return self._fitted(self._require_state()).online

    def _fitted(self, state: State) -> FittedHead:
        """f_T of a state, made once for its sums and these settings."""
        values = self._settings()
        key = repr([value for name, value in values.items() if name != 'adaptation'])
        last = self._last_fit
        if last is None or last[0] is not state.statistics or last[1] != key:
            last = self._last_fit = state.statistics, key, self._fit_head(values, state)
        return last[2]

    def _fit_head(self, values: dict, state: State) -> FittedHead:
        return fit_head(values, state)

    def adapt(self, progress=None) -> 'Scroll':
        """Make f* from f_T and the buffer; kept as `adapted_`.

        Mode `none` leaves f_T in use. `progress` is called with the loss after each update."""
        self._check_params()
        self.check_portable()
        with self._lock:
            state = self._require_state()
            settings = self.adaptation or Adaptation()
            fitted = self._fitted(state)
            f_star = None
            if settings.mode != 'none':
                f_star = adapt_head(fitted, state, self.embedder, settings, self.seed, progress)
            self._state = replace(state, adapted=f_star)
        return self

    def decision_function(self, X) -> np.ndarray:
        """Return logits float64 (N, K), columns as `classes_`; those of f_T are the exact ones,
        rounded, as exported graphs give them. Those of lda, qda and ncc only compare the classes of
        one sample: subtract each row's mean, as `ScrollClassifier` does, before a column is read by
        itself (ranking, calibration)."""
        return self._logits(X, self._require_state())

    def _logits(self, X, state: State) -> np.ndarray:
        if state.adapted is None:
            return self._fitted(state).online.decision_function(self._on_grid(X, state))
        images = self.embedder is not None
        return state.adapted.decision_function(X if images else self._on_grid(X, state))

    def predict(self, X) -> np.ndarray:
        """Return labels (N,). f_T uses exact logits, so ties in float64 are resolved."""
        state = self._require_state()
        if state.adapted is None:
            online = self._fitted(state).online
            if self.psi() or online.quadratic is not None:
                labels = online.predict(self._on_grid(X, state))
            else:
                labels = online.predict_vectors(self._numbers(X, state))
        else:
            labels = state.classes[self._logits(X, state).argmax(axis=1)]
        return labels.astype(state.classes.dtype)

    def predict_proba(self, X) -> np.ndarray:
        """Return probabilities float64 (N, K): softmax of the logits. Those of f* are calibrated,
        those of f_T are not."""
        return softmax(self.decision_function(X), axis=1)

    def score(self, X, y) -> float:
        """Return the share of samples predicted right, 0 to 1. X: as for `partial_fit`. y: labels
        (N,)."""
        predicted = self.predict(X)
        labels = _some_labels(y, len(predicted))
        check_kind(labels, predicted)
        return float((predicted == labels).mean())

    def out_of_sample(self, X, y) -> np.ndarray:
        """Return probabilities float64 (N, K) of samples that were learned, each as if all others
        had been; columns as `classes_`, rows sum to one.

        Exact leave-one-out of f_T in closed form: one more pass over the features. The only sample
        of a class has probability 0 in it. The one scale of the logits is that of least
        cross-entropy on these samples (Guo et al. 2017). X, y: best all that was learned; others
        are an InputError, as of `remove`. cleanlab's `find_label_issues` takes the result as
        `pred_probs`, with `np.searchsorted(learner.classes_, y)` as `labels`."""
        self.check_portable()
        state = self._require_state()
        fitted, (features, keys) = self._fitted(state), self._embed(X, state)
        labels = _some_labels(y, len(features))
        with prefixed('only samples that were learned have out-of-sample scores'):
            replace(state, buffer=None).without(features, keys, labels)
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(labels), _BLOCK)]
        logits = np.concatenate([fitted.left_out(features[at], labels[at]) for at in blocks])
        scale = fit_scale(logits, np.searchsorted(fitted.online.classes, labels))
        return softmax(scale * logits, axis=1)

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels seen, sorted: int64, text, or bool where all labels were True or False."""
        return self._require_state().classes

    def digest(self) -> str:
        """Return the SHA-256 of the statistics: equal for all schedules, batchings and shardings of
        the same data."""
        return self._require_state().statistics.digest()

    @property
    def statistics_(self) -> Statistics:
        return copy.copy(self._require_state().statistics)

    @property
    def buffer_(self) -> ExemplarBuffer | None:
        return copy.copy(self._require_state().buffer)

    @property
    def keys_(self) -> LearnedKeys | None:
        return copy.copy(self._require_state().keys)

    @property
    def adapted_(self) -> 'AdaptedPredictor | None':
        return self._require_state().adapted

    @property
    def n_features_in_(self) -> int:
        return self._require_state().statistics.dim

    @property
    def feature_names_in_(self) -> np.ndarray:
        names = self._require_state().names
        if names is None:
            raise AttributeError('feature_names_in_: the columns that were learned have no names')
        return np.array(names, object)

    @property
    def ridge_lambda_(self) -> float | None:
        return self._fitted(self._require_state()).settings.ridge_lambda

    def state_dict(self) -> dict:
        """Return all that was learned, as nested dicts of arrays and plain values; for f* only
        whether there is one: it is made again from the rest, with the same bits."""
        if self._state is None:
            return {}
        facts, arrays = self.state_for_files().content()
        return {'facts': facts, 'arrays': arrays, 'adapted': self._state.adapted is not None}

    def load_state_dict(self, state: dict) -> None:
        """Take over a `state_dict`, in a learner made with the same arguments and backbone."""
        loaded = copy.copy(self).forget()
        # of one part, like a learner that was never interrupted; the caller keeps his arrays
        if state:
            arrays = {name: array.copy() for name, array in state['arrays'].items()}
            loaded.set_state(replace(State.from_content(state['facts'], arrays), parts=None))
            if state['adapted']:
                loaded.adapt()
        self.set_state(loaded._state)

    def end_part(self) -> dict:
        """Close the current part (`scroll.sums.parts`), and write what is new in the cache;
        return all parts."""
        with self._lock:
            state = self._require_state()
            parts = state.known_parts()
            self._state = replace(state, parts=parts, whole=None)
            if self.embedder is not None:
                self.embedder.flush()
        return dict(parts)

    def state_for_files(self) -> State:
        """Return the state, with the settings of now."""
        return replace(self._require_state(), params=self._settings(), psi=self.psi())

    def check_portable(self) -> None:
        """InputError where features mean nothing in files and graphs, to f* and leave-one-out."""
        if self.embedder is None and self.psi():
            raise InputError(
                'features that are not of unit length are in no file and no graph, and have no f* '
                'and no out-of-sample scores: pickle the classifier, or begin again with '
                "scale='unit'"
            )

    def save(self, path) -> None:
        """Write settings, statistics and buffer, but neither backbone nor f*, to `path`, whole or
        not at all; InputError if it cannot be written."""
        self.check_portable()
        self.end_part()
        self.state_for_files().write(path)

    @classmethod
    def load(cls, path, embedder: 'Embedder | None' = None) -> 'Scroll':
        """Return the learner that `save` wrote, to resume exactly (f*: `adapt` again).

        Args:
            path: the file.
            embedder: the backbone, as when the file was written; None for features.
        """
        state = State.read(path)
        out = cls(embedder, **state.params or {})
        out._check_params()
        with prefixed(path):
            state.check_backbone(out.psi())
        return out.set_state(state)


def _some_labels(y, count: int) -> np.ndarray:
    """Checked labels (N,); InputError if there are none."""
    labels = typed_labels(y, count)
    if not len(labels):
        raise InputError('X has no samples: expected at least one')
    return labels
