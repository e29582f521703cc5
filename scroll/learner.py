"""SCROLL as an estimator like those of scikit-learn: learn from a stream in pieces, predict at any time.

    >>> from sklearn.datasets import load_digits
    >>> from scroll import Scroll
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = Scroll(buffer_size=0)
    >>> for label in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7):                    # one class after the other
    ...     learner = learner.partial_fit(X[y == label][::2], y[y == label][::2])
    >>> learner.score(X[1::2], y[1::2]) > 0.9                           # as if all had come at once
    True
"""
import contextlib
import copy
import inspect
import threading
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import softmax

from scroll.adaptation.settings import Adaptation
from scroll.arguments import instance, need_torch, shown
from scroll.errors import InputError
from scroll.exemplars import STRATEGIES, ExemplarBuffer, Exemplars
from scroll.grid import as_learned, check_quantised, intake, quantise, sample_keys
from scroll.heads.choice import AUTOMATIC, choose_head
from scroll.heads.lda import OAS
from scroll.heads.predictors import NCC_BIASES, TARGETS, LinearPredictor
from scroll.heads.registry import HEADS, Head, Settings
from scroll.heads.scaling import fit_scale
from scroll.labels import check_labels
from scroll.learned_keys import LearnedKeys
from scroll.lift import LIFTS
from scroll.revision import Revisable
from scroll.saving import Savable
from scroll.state import CLASSIFIERS, PARAMS, State, check_params, check_samples, lift_of
from scroll.statistics import Statistics
from scroll.tables import names_of, numbers_of

if TYPE_CHECKING:
    from scroll.embedding.embedder import Embedder

_LEFT_OUT = 1 << 13                 # samples of `out_of_sample` at once
_UNEVEN = 1000                      # times the samples of the rarest class, beyond which it is hardly found


@dataclass(frozen=True)
class Derived:
    """What follows from a state and settings.

    Attributes:
        asked: the settings, as text. online: f_T. counted: the statistics that it was made of. settings: in
            numbers. head: its name.
    """
    asked: str
    online: LinearPredictor
    counted: Statistics
    settings: Settings
    head: str


class _Known:
    """What was learned up to some sample, with f* and what cross-validation said of it; never changed.

    Attributes:
        derived: the last `Derived` that was made of it.
    """

    def __init__(self, state: State, adapted=None, selection=None, derived: Derived = None):
        self.state, self.adapted, self.selection, self.derived = state, adapted, selection, derived


class Scroll(Revisable, Savable):
    """Schedule-robust online continual learner (paper, Algorithm 1).

    `partial_fit` counts each sample once, into exact statistics and a buffer; `predictor` is f_T, the same
    under every schedule; `adapt` makes f* from f_T and the buffer, always from the pristine backbone.
    `predict` and related methods use f* if `adapt` was called since the last change, else f_T.

    Features (not images) are rounded to float32, so that a sample and its float32 copy are one. Columns of a
    data frame go by their names. Any number of threads may read; those that write wait for each other, and
    one that is interrupted leaves what was learned as before or as after.

    Args:
        embedder: the backbone as an `Embedder` (X is then uint8 images), or None: X is feature vectors (N,
            d).
        head: what f_T is: 'ridge'; 'ncc' (nearest class mean); 'lda' (linear discriminant analysis); 'rp' and
            'rff' (ridge on a lift of the features: `relu`, `fourier`); 'balanced' (ridge, each class counted
            alike) and 'qda' (a covariance for each class), which keep a Gram matrix for each class; 'random';
            or 'auto': of ridge, ncc and lda, with and without the lift, the one that is best on the buffer's
            samples, each left out.
        ridge_lambda: added to the diagonal of the Gram matrix of [u; 1]; the paper's lambda times N. Or
            'auto': chosen by generalised cross-validation from the statistics, whenever f_T is made.
        targets: 'pm1' or 'onehot', of ridge. ncc_bias: 'exact', 'paper' or 'zero'.
        shrinkage: of lda, the share of the identity in the covariance within classes, from 0 up to below 1;
            or 'oas': the best for normal samples, chosen from the statistics whenever f_T is made. Of qda,
            too.
        pooling: of qda, the share of the common covariance in that of each class, 0 to 1.
        lift: 'relu', 'square' or 'fourier': what lifts the features before they are counted (`scroll.lift`);
            'none'; or 'auto': as the head says, rp and auto relu, rff fourier, the others none.
        lift_dim, lift_seed, lift_bandwidth: the lift's width, random matrix, and (fourier) length scale.
        buffer_size: |M|; 0 keeps no samples (memory-free SCROLL).
        strategy: 'herding', 'random', 'nearest', 'outlier' or 'hash'.
        adaptation: an `Adaptation`, or None for its defaults.
        seed: of the buffer, the adaptation and the random classifier.
        keep_keys: keep the key of every sample learned (8 bytes each, in memory and in files), so that
            `remove` and `refill` know exactly what was learned. Without, what statistics and buffer show to
            be wrong is refused, and no more.

    Attributes:
        statistics_: `Statistics`. buffer_: `ExemplarBuffer`, or None without memory. n_features_in_: d.
        feature_names_in_: (d,) of a data frame.
        keys_: `LearnedKeys`, or None where they are not kept.
        adapted_: the last `AdaptedPredictor`; None once anything was learned or removed since.
        selection_: of `Adaptation(select='folds')`, what each candidate said of samples held out, or None.
        head_: the head in use, of 'auto' the one chosen. ridge_lambda_: its lambda.
    """
    _known: _Known | None = None        # replaced as a whole by whoever learns

    def __init__(self, embedder: 'Embedder' = None, head: Literal[CLASSIFIERS] = 'ridge',
                 ridge_lambda: float | str = 0.1, targets: Literal[TARGETS] = 'pm1',
                 ncc_bias: Literal[NCC_BIASES] = 'exact', buffer_size: int = 500,
                 strategy: Literal[STRATEGIES] = 'herding',
                 adaptation: Adaptation = None, seed: int = 0, keep_keys: bool = False,
                 shrinkage: float | str = OAS, pooling: float = 0.5,
                 lift: Literal[('auto', 'none', *LIFTS)] = 'auto', lift_dim: int = 2000, lift_seed: int = 0,
                 lift_bandwidth: float = 1.0, *, classifier: str = None):
        self.embedder = embedder
        self.head = head if classifier is None else classifier          # what it was called before
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

    @property
    def _lock(self) -> threading.RLock:
        """What those who change what is known hold."""
        return vars(self).setdefault('_writers', threading.RLock())

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != '_writers'}

    @property
    def classifier(self) -> str:
        """What `head` was called before."""
        return self.head

    def get_params(self, deep: bool = True) -> dict:
        """The constructor's arguments."""
        names = [name for name in inspect.signature(type(self)).parameters if name != 'classifier']
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params) -> 'Scroll':
        """Change constructor arguments by name; takes effect where they are next used."""
        if 'classifier' in params:
            params['head'] = params.pop('classifier')
        known = self.get_params()
        unknown = [name for name in params if name not in known]
        if unknown:
            raise InputError(f'unknown parameter {unknown[0]!r}: expected one of {", ".join(known)}')
        vars(self).update(params)
        return self

    def fit(self, X, y) -> 'Scroll':
        """Forget everything, then learn from one segment. Bad input changes nothing."""
        learned = type(self)(**self.get_params()).partial_fit(X, y)
        with self._lock:
            self._known = learned._known
        return self

    def forget(self) -> 'Scroll':
        """Back to before the first sample."""
        with self._lock:
            self._known, self._stamps = None, {}
        return self

    def partial_fit(self, X, y) -> 'Scroll':
        """Learn from one segment of the stream: the buffer chooses among its samples at once.

        Args:
            X: uint8 images (N, H, W, C), or features (N, d) without an embedder. y: integer or string labels
                (N,).

        Raises:
            InputError: the input cannot be used (the reason in one line). Nothing is changed then.
        """
        self._check_params()
        first = self._known is None                             # whose names of columns go for all
        with self._lock if first else contextlib.nullcontext():
            return self.learn(*self._embed(X), y, names_of(X) if self.embedder is None else None)

    def learn(self, samples, features, keys, y, names: tuple = None) -> 'Scroll':
        """`partial_fit` for a caller that has embedded already, for example many small segments at once.

        Args:
            samples: what the buffer stores: uint8 images (N, H, W, C), or without an embedder the features.
            features: int32 (N, d), quantised. keys: uint64 (N,). y: labels (N,).
            names: of d columns, of features; kept if these are the first samples.
        """
        self._check_params()
        self._check_features(features)
        if samples is not features and self.buffer_size != 0:
            check_samples(samples, features.shape[1], images=self.embedder is not None)
        labels = check_labels(y, len(features))
        if len(labels) == 0:
            raise InputError('X has no samples: expected at least one')
        return self._edit(lambda state: (state or self._begun(features.shape[1], names)).with_samples(
            samples, features, keys, labels))

    def count(self, statistics: Statistics) -> 'Scroll':
        """Learn samples of which the statistics are known, and no more: their sums, made elsewhere with the
        same backbone. `statistics` is not changed.

        Raises:
            InputError: there is a buffer, or keys are kept, which would have to see samples; or statistics of
                another kind. Nothing is changed then.
        """
        self._check_params()
        instance('statistics', statistics, Statistics)
        if self.buffer_size or self.keep_keys:
            raise InputError('statistics alone can be learned with buffer_size=0 and keep_keys=False')

        def add(state: State | None) -> State:
            state = state or self._begun(statistics.dim)
            return replace(state, counted=state.accounted_for(),
                           statistics=copy.copy(state.statistics).merge(statistics))
        return self._edit(add)

    def predictor(self) -> LinearPredictor:
        """The online predictor f_T (paper, section 3.1); of `qda` a `QuadraticPredictor`. InputError before
        the first sample."""
        return self._derived().online

    def _derived(self, known: _Known = None) -> Derived:
        """Of what is known now, or was; made once for these settings."""
        known = known or self._learned()
        asked = repr([getattr(self, name) for name in PARAMS if name != 'adaptation'])
        out = known.derived
        if out is None or out.asked != asked:
            self._check_params()
            out = known.derived = self._derive(known.state, asked)
        return out

    def _derive(self, state: State, asked: str) -> Derived:
        settings = Settings(self.ridge_lambda, self.targets, self.ncc_bias, self.shrinkage, self.pooling,
                            self.seed)
        counted, name = state.statistics, self.head
        if name == AUTOMATIC:
            name, counted = choose_head(counted, settings, _exemplars(state, 'head auto'))
        self._check_counted(state.statistics, HEADS[name])
        _warn_of_uneven_classes(counted, name)
        settings = HEADS[name].settled(counted, settings)
        return Derived(asked, HEADS[name].make(counted, settings), counted, settings, name)

    @property
    def head_(self) -> str:
        """The head in use; of 'auto' the one chosen."""
        self._must_have('head_')
        return self._derived().head

    @property
    def ridge_lambda_(self) -> float | None:
        """lambda of f_T: the number given, rounded to a multiple of 2^-36, or what the statistics chose; None
        where f_T has none."""
        self._must_have('ridge_lambda_')
        derived = self._derived()
        return derived.settings.ridge_lambda if HEADS[derived.head].sums_for_lambda else None

    def adapt(self, progress=None) -> 'Scroll':
        """Make f* from f_T and the buffer; kept as `adapted_`. Mode `none` leaves f_T in use, and so does
        `select='folds'`, the default, where f* is not surely better on held-out exemplars (`selection_`).

        `progress`, if given, is called with the loss after each update.
        """
        self._check_params()
        with self._lock:
            known, settings = self._learned(), self.adaptation or Adaptation()
            derived, f_star, selection = self._derived(known), None, None
            if settings.mode != 'none':
                exemplars = _exemplars(known.state, 'adaptation')
                need_torch('adaptation')
                f_star, selection = self._adapted(derived, exemplars, settings, progress)
            self._known = _Known(known.state, f_star, selection, derived)
        return self

    def _adapted(self, derived: Derived, exemplars: Exemplars, settings: Adaptation, progress) -> tuple:
        """(f*, or None; what cross-validation said, or None)."""
        from scroll.adaptation import selection, training
        how = self.embedder, derived.online, exemplars, settings, self.seed
        left_out = _left_out(derived, exemplars)
        if settings.select != 'folds' or not settings.iterations:
            return training.adapt(*how, progress, left_out), None
        return selection.adapt_selected(*how, lambda held: _without_held_out(derived, exemplars, held),
                                        self.strategy == 'herding', progress, left_out)

    def use_adapted(self, f_star) -> 'Scroll':
        """Predict with an f* that was made elsewhere of what this learner knows."""
        with self._lock:
            known = self._learned()
            self._known = _Known(known.state, f_star, known.selection, known.derived)
        return self

    def left_out(self, exemplars: Exemplars) -> np.ndarray:
        """Logits float64 (m, K) on learned samples as if each had not been: what f_T is worth on new ones."""
        return _left_out(self._derived(), exemplars)

    def _check_counted(self, statistics: Statistics, head: Head) -> None:
        """InputError if what was counted is not what the head needs: it was changed since."""
        asked = lift_of(self.get_params(), statistics.dim)
        if head.by_class and not statistics.by_class or asked != statistics.lift:
            raise InputError(f'head {self.head} with lift {asked}: the samples were counted with lift '
                             f'{statistics.lift}' + ' for each class' * statistics.by_class +
                             ', and another head needs other sums: learn again')

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels seen, sorted."""
        return self._learned().state.statistics.classes

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K), columns as `classes_`."""
        return self._logits_of(X, self._learned())

    def _logits_of(self, X, known: _Known) -> np.ndarray:
        if known.adapted is None:
            return self._derived(known).online.decision_function(self._embed(X)[1])
        return known.adapted.decision_function(X if self.embedder is not None else self._embed(X)[1])

    def predict(self, X) -> np.ndarray:
        """Labels (N,). f_T uses exact logits, so ties in float64 are resolved."""
        known = self._learned()
        if known.adapted is None:
            return self._derived(known).online.predict(self._embed(X)[1])
        return known.state.statistics.classes[self._logits_of(X, known).argmax(axis=1)]

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities float64 (N, K): softmax of the logits. f*'s are calibrated, f_T's are not."""
        return softmax(self.decision_function(X), axis=1)

    def out_of_sample(self, X, y) -> np.ndarray:
        """Probabilities float64 (N, K) of samples that were learned, each as if all but it had been; columns
        as `classes_`, rows sum to one.

        Exact leave-one-out of f_T in closed form (`left_out`): one more pass over the features, and nothing
        is learned again. The only sample of a class has probability 0 in it: without it the class is unknown.
        The one scale of the logits is that of least cross-entropy on these samples (Guo et
        al. 2017). cleanlab's `find_label_issues` takes them as `pred_probs`, with
        `np.searchsorted(learner.classes_, y)` as `labels`.

        Args:
            X, y: as for `partial_fit`, of samples that were learned; best all of them.

        Raises:
            InputError: they cannot all have been learned (`remove` says how far that is known), or other bad
                input.
        """
        known, derived = self._learned(), self._derived()
        samples, features, keys = self._embed(X)
        labels = check_labels(y, len(features))
        if len(labels) == 0:
            raise InputError('X has no samples: expected at least one')
        try:
            replace(known.state, buffer=None).without(features, keys, labels)
        except InputError as error:
            raise InputError(f'only samples that were learned have out-of-sample scores: {error}') from error
        parts = (slice(start, start + _LEFT_OUT) for start in range(0, len(labels), _LEFT_OUT))
        logits = np.concatenate([_left_out(derived, Exemplars(labels[at], keys[at], features[at],
                                                              samples[at])) for at in parts])
        scale = fit_scale(logits, np.searchsorted(derived.online.classes, labels))
        return softmax(scale * logits, axis=1)

    def score(self, X, y) -> float:
        """Share of samples predicted right, 0 to 1. X: as for `partial_fit`. y: labels (N,)."""
        return float((self.predict(X) == check_labels(y, len(X))).mean())

    def take(self, state: State) -> 'Scroll':
        """Know what the state holds, and nothing else; its settings are not looked at."""
        return self._edit(lambda _: state)

    def _edit(self, change) -> 'Scroll':
        """Know what `change` makes of the state (None: nothing was learned); if it fails, nothing changes."""
        with self._lock:
            self._known = _Known(change(self._known and self._known.state))
        return self

    def end_part(self) -> 'Scroll':
        """What has been learned is a part by itself (`scroll.files.parts`); what will be is another."""
        with self._lock:
            known = self._learned()
            self._known = _Known(replace(known.state, parts=known.state.known_parts(), counted=None),
                                 known.adapted, known.selection, known.derived)
        return self

    def _state(self) -> State:
        """What is known, with the settings of now."""
        params = {name: value for name, value in self.get_params().items() if name != 'embedder'}
        return replace(self._learned().state, params=params, psi=self._backbone())

    def _backbone(self) -> str:
        return '' if self.embedder is None else self.embedder.digest

    def digest(self) -> str:
        """SHA-256 of the statistics: equal for all schedules, batchings and shardings of the same data."""
        return self._learned().state.statistics.digest()

    @property
    def statistics_(self) -> Statistics:
        """The sums: a copy, which shares what it holds."""
        return copy.copy(self._must_have('statistics_').state.statistics)

    @property
    def buffer_(self) -> ExemplarBuffer | None:
        """The buffer, to read; None without memory."""
        return self._must_have('buffer_').state.buffer

    @property
    def keys_(self) -> LearnedKeys | None:
        """Keys of what was learned, to read; None where they are not kept."""
        return self._must_have('keys_').state.keys

    @property
    def adapted_(self):
        """f*, an `AdaptedPredictor`; None where `adapt` was not called since the last change."""
        return self._must_have('adapted_').adapted

    @property
    def selection_(self) -> list | None:
        """What each candidate of `select='folds'` said of samples held out."""
        return self._must_have('selection_').selection

    @property
    def n_features_in_(self) -> int:
        """d."""
        return self._must_have('n_features_in_').state.statistics.dim

    @property
    def feature_names_in_(self) -> np.ndarray:
        """(d,) names of columns; an AttributeError where the first samples had none."""
        names = self._must_have('feature_names_in_').state.names
        if names is None:
            raise AttributeError('feature_names_in_: what was learned has no names of columns')
        return np.array(names, object)

    def _must_have(self, name: str) -> _Known:
        """What is known; AttributeError if nothing is, as scikit-learn has it of what fitting adds."""
        if self._known is None:
            raise AttributeError(f'{name}: nothing was learned yet')
        return self._known

    def _learned(self) -> _Known:
        """What is known; InputError if nothing is."""
        known = self._known
        if known is None:
            raise InputError('this Scroll has learned nothing yet: call partial_fit first')
        return known

    def _embed(self, X, keep: bool = True, learned: bool = False) -> tuple:
        """(samples to store, quantised features int32 (N, d), keys uint64 (N,)). `keep`: to be cached.
        `learned`: they are to be found among what was learned."""
        if self.embedder is not None:
            features, keys = self.embedder(X, keep=keep)
            return np.asarray(X), features, keys
        state = self._known.state if self._known else State({}, '', None)
        take_in = as_learned if learned else intake
        features = quantise(take_in(numbers_of(X, state.names), state.precision))
        if state.statistics is not None and features.shape[1] != state.statistics.dim:
            raise InputError(f'X has {features.shape[1]} features: expected {state.statistics.dim}, as in '
                             'the first call')
        return features, features, sample_keys(features)

    def _check_features(self, features: np.ndarray) -> None:
        """InputError unless these are what this learner counts."""
        check_quantised(features, getattr(self, 'n_features_in_', None))

    def _check_params(self) -> None:
        """InputError for an argument of the constructor that cannot be; it only stores them."""
        if self.embedder is not None and not (callable(self.embedder) and hasattr(self.embedder, 'digest')):
            raise InputError(f'embedder {shown(self.embedder)}: expected an Embedder, or None for features')
        check_params({name: getattr(self, name) for name in PARAMS})

    def new_statistics(self, dim: int) -> Statistics:
        """Statistics of no samples, as the head needs them, of features of `dim` numbers."""
        by_class = self.head != AUTOMATIC and HEADS[self.head].by_class
        return Statistics(dim, lift_of(self.get_params(), dim), by_class)

    def dim_of(self, size: int) -> int:
        """d, of statistics that count `size` numbers a sample."""
        return size - (self.lift_dim if lift_of(self.get_params(), 1) else 0)

    def _begun(self, dim: int, names: tuple = None) -> State:
        """Of a learner that begins: nothing is counted."""
        buffer = ExemplarBuffer(self.buffer_size, self.strategy, self.seed) if self.buffer_size != 0 else None
        return State({}, self._backbone(), self.new_statistics(dim), buffer,
                     LearnedKeys() if self.keep_keys else None, names=names)

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.get_params().items() if k != 'embedder'}
        return f"Scroll({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def _exemplars(state: State, what: str) -> Exemplars:
    """What the buffer keeps; InputError where there is none."""
    if state.buffer is None:
        raise InputError(f'{what} needs a buffer: buffer_size is 0' + (
            ', use f_T or adaptation mode none' if what == 'adaptation' else ''))
    return state.buffer.content()


def _left_out(derived: Derived, exemplars: Exemplars) -> np.ndarray:
    """Logits float64 (m, K) on learned samples as if each had not been."""
    return HEADS[derived.head].left_out(derived.online, derived.counted, derived.settings, exemplars.features,
                                        exemplars.labels)


def _without_held_out(derived: Derived, exemplars: Exemplars, held: np.ndarray) -> tuple:
    """(f_T without the samples at these positions, its leave-one-out logits on the others)."""
    counted, head = copy.copy(derived.counted), HEADS[derived.head]
    counted.remove(exemplars.features[held], exemplars.labels[held])
    rest = np.setdiff1d(np.arange(len(exemplars)), held)
    online = head.make(counted, derived.settings)
    return online, head.left_out(online, counted, derived.settings, exemplars.features[rest],
                                 exemplars.labels[rest])


def _warn_of_uneven_classes(statistics: Statistics, head: str) -> None:
    """UserWarning where ridge would find a rare class hardly ever."""
    counts = statistics.counts
    if head not in ('ridge', 'rp', 'rff') or len(counts) < 2 or counts.max() < _UNEVEN * counts.min():
        return
    # the same text every time, so that Python shows it once
    warnings.warn(f'a class has {_UNEVEN} times the samples of another, or more: head={head!r} hardly ever '
                  "finds the rare one; head='balanced' counts each class alike", UserWarning, stacklevel=5)
