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
import copy
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import softmax

from scroll.adaptation.settings import Adaptation
from scroll.arguments import instance, need_torch, shown
from scroll.errors import InputError
from scroll.exemplars import STRATEGIES, ExemplarBuffer, Exemplars
from scroll.grid import check_quantised, quantise, sample_keys
from scroll.heads.choice import AUTOMATIC, choose_head
from scroll.heads.lda import OAS
from scroll.heads.predictors import NCC_BIASES, TARGETS, LinearPredictor
from scroll.heads.registry import HEADS, Head, Settings
from scroll.heads.scaling import fit_scale
from scroll.io.saving import Savable
from scroll.io.states import CLASSIFIERS, PARAMS, State, check_params, check_samples, lift_of
from scroll.labels import check_labels
from scroll.learned_keys import LearnedKeys
from scroll.lift import LIFTS
from scroll.revision import Revisable
from scroll.statistics import Statistics

if TYPE_CHECKING:
    from scroll.embedding.embedder import Embedder

_LEFT_OUT = 1 << 13                 # samples of `out_of_sample` at once


class Scroll(Revisable, Savable):
    """Schedule-robust online continual learner (paper, Algorithm 1).

    `partial_fit` counts each sample once, into exact statistics and a buffer; `predictor` is f_T, the same
    under every schedule; `adapt` makes f* from f_T and the buffer, always from the pristine backbone.
    `predict` and its kin use f* if `adapt` was called since the last change, else f_T.

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
        keys_: `LearnedKeys`, or None where they are not kept.
        adapted_: the last `AdaptedPredictor`; None once anything was learned or removed since.
        selection_: of `Adaptation(select='folds')`, what each candidate said of samples held out, or None.
        head_: the head in use, of 'auto' the one chosen. ridge_lambda_: its lambda.
    """

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
        if hasattr(self, '_online'):
            self._online = None
        return self

    def fit(self, X, y) -> 'Scroll':
        """Forget everything, then learn from one segment. Bad input changes nothing."""
        learned = type(self)(**self.get_params()).partial_fit(X, y)
        vars(self).update(vars(learned))
        return self

    def forget(self) -> 'Scroll':
        """Back to before the first sample."""
        for name in ('statistics_', 'buffer_', 'keys_', 'adapted_', 'selection_', 'n_features_in_', '_online',
                     '_counted', '_settings', '_head'):
            self.__dict__.pop(name, None)
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
        return self.learn(*self._embed(X), y)

    def learn(self, samples, features, keys, y) -> 'Scroll':
        """`partial_fit` for a caller that has embedded already, for example many small segments at once.

        Args:
            samples: what the buffer stores: uint8 images (N, H, W, C), or without an embedder the features.
            features: int32 (N, d), quantised. keys: uint64 (N,). y: labels (N,).
        """
        self._check_params()
        self._check_features(features)
        if samples is not features and self.buffer_size != 0:
            check_samples(samples, features.shape[1], images=self.embedder is not None)
        labels = check_labels(y, len(features))
        if len(labels) == 0:
            raise InputError('X has no samples: expected at least one')
        if not hasattr(self, 'statistics_'):
            self._begin(features.shape[1])
        if self.buffer_ is not None:
            self.buffer_.check(samples)
        self.statistics_.add(features, labels)
        if self.buffer_ is not None:
            self.buffer_.update(keys, features, samples, labels, self.statistics_)
        if self.keys_ is not None:
            self.keys_.add(keys, labels)
        return self._changed()

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
        if not hasattr(self, 'statistics_'):
            new = self.new_statistics(statistics.dim).merge(statistics)
            self._begin(statistics.dim)
            self.statistics_ = new
        else:
            self.statistics_.merge(statistics)
        return self._changed()

    def predictor(self) -> LinearPredictor:
        """The online predictor f_T (paper, section 3.1); of `qda` a `QuadraticPredictor`. InputError before
        the first sample."""
        self._check_begun()
        if self._online is None:
            self._check_params()
            settings = Settings(self.ridge_lambda, self.targets, self.ncc_bias, self.shrinkage, self.pooling,
                                self.seed)
            self._counted, name = self.statistics_, self.head
            if name == AUTOMATIC:
                name, self._counted = choose_head(self.statistics_, settings, self._exemplars('head auto'))
            self._check_counted(HEADS[name])
            self._settings = HEADS[name].settled(self._counted, settings)
            self._head, self._online = name, HEADS[name].make(self._counted, self._settings)
        return self._online

    @property
    def head_(self) -> str:
        """The head in use, of 'auto' the one chosen. InputError before the first sample."""
        self.predictor()
        return self._head

    @property
    def ridge_lambda_(self) -> float | None:
        """lambda of f_T: the number given, rounded to a multiple of 2^-36, or what the statistics chose; None
        where f_T has none."""
        self.predictor()
        return self._settings.ridge_lambda if HEADS[self._head].sums_for_lambda else None

    def adapt(self, progress=None) -> 'Scroll':
        """Make f* from f_T and the buffer; kept as `adapted_`. Mode `none` leaves f_T in use, and so does
        `select='folds'` where f* is not surely better on samples held out (`selection_`).

        `progress`, if given, is called with the loss after each update.
        """
        self._check_params()
        online = self.predictor()
        settings = self.adaptation or Adaptation()
        if settings.mode == 'none':
            self.adapted_ = None
        else:
            exemplars = self._exemplars('adaptation')
            need_torch('adaptation')
            from scroll.adaptation import selection, training
            how = self.embedder, online, exemplars, settings, self.seed
            if settings.select == 'folds':
                self.adapted_, self.selection_ = selection.adapt_selected(
                    *how, lambda held: self._had_it_not_seen(exemplars, held), self.strategy == 'herding',
                    progress, self.left_out(exemplars))
            else:
                self.adapted_ = training.adapt(*how, progress, self.left_out(exemplars))
        return self

    def _had_it_not_seen(self, exemplars: Exemplars, held: np.ndarray) -> tuple:
        """(f_T without the samples at these positions, its leave-one-out logits on the others)."""
        counted, head = copy.copy(self._counted), HEADS[self._head]
        counted.remove(exemplars.features[held], exemplars.labels[held])
        rest = np.setdiff1d(np.arange(len(exemplars)), held)
        online = head.make(counted, self._settings)
        return online, head.left_out(online, counted, self._settings, exemplars.features[rest],
                                     exemplars.labels[rest])

    def left_out(self, exemplars: Exemplars) -> np.ndarray:
        """Logits float64 (m, K) on learned samples as if each had not been: what f_T is worth on new ones."""
        online = self.predictor()
        return HEADS[self._head].left_out(online, self._counted, self._settings, exemplars.features,
                                          exemplars.labels)

    def _exemplars(self, what: str) -> Exemplars:
        """What the buffer keeps; InputError where there is none."""
        if self.buffer_ is None:
            raise InputError(f'{what} needs a buffer: buffer_size is 0' + (
                ', use f_T or adaptation mode none' if what == 'adaptation' else ''))
        return self.buffer_.content()

    def _check_counted(self, head: Head) -> None:
        """InputError if what was counted is not what the head needs: it was changed since."""
        asked = lift_of(self.get_params(), self.statistics_.dim)
        if head.by_class and not self.statistics_.by_class or asked != self.statistics_.lift:
            raise InputError(f'head {self.head} with lift {asked}: the samples were counted with lift '
                             f'{self.statistics_.lift}' + ' for each class' * self.statistics_.by_class +
                             ', and another head needs other sums: learn again')

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels seen, sorted."""
        self._check_begun()
        return self.statistics_.classes

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K), columns as `classes_`."""
        online = self.predictor()
        if self.adapted_ is None:
            return online.decision_function(self._embed(X)[1])
        return self.adapted_.decision_function(X if self.embedder is not None else self._embed(X)[1])

    def predict(self, X) -> np.ndarray:
        """Labels (N,). f_T's are those of its exact logits, also where float64 cannot tell them apart."""
        online = self.predictor()
        if self.adapted_ is None:
            return online.predict(self._embed(X)[1])
        return self.classes_[self.decision_function(X).argmax(axis=1)]

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
        self._check_begun()
        samples, features, keys = self._embed(X)
        labels = check_labels(y, len(features))
        if len(labels) == 0:
            raise InputError('X has no samples: expected at least one')
        try:
            replace(self._state(), buffer=None).without(features, keys, labels)
        except InputError as error:
            raise InputError(f'only samples that were learned have out-of-sample scores: {error}') from error
        parts = (slice(start, start + _LEFT_OUT) for start in range(0, len(labels), _LEFT_OUT))
        logits = np.concatenate([self.left_out(Exemplars(labels[at], keys[at], features[at], samples[at]))
                                 for at in parts])
        scale = fit_scale(logits, np.searchsorted(self.classes_, labels))
        return softmax(scale * logits, axis=1)

    def score(self, X, y) -> float:
        """Share of samples predicted right, 0 to 1. X: as for `partial_fit`. y: labels (N,)."""
        return float((self.predict(X) == check_labels(y, len(X))).mean())

    def take(self, state: State) -> 'Scroll':
        """Know what the state holds, and nothing else; its settings are not looked at."""
        self.statistics_, self.buffer_, self.keys_ = state.statistics, state.buffer, state.keys
        self.n_features_in_ = state.statistics.dim
        return self._changed()

    def _state(self) -> State:
        params = {name: value for name, value in self.get_params().items() if name != 'embedder'}
        return State(params, self._backbone(), self.statistics_, self.buffer_, self.keys_)

    def _backbone(self) -> str:
        return '' if self.embedder is None else self.embedder.digest

    def digest(self) -> str:
        """SHA-256 of the statistics: equal for all schedules, batchings and shardings of the same data."""
        self._check_begun()
        return self.statistics_.digest()

    def _embed(self, X, keep: bool = True) -> tuple:
        """(samples to store, quantised features int32 (N, d), keys uint64 (N,)). `keep`: to be cached."""
        if self.embedder is not None:
            features, keys = self.embedder(X, keep=keep)
            return np.asarray(X), features, keys
        features = quantise(X)
        expected = getattr(self, 'n_features_in_', features.shape[1])
        if features.shape[1] != expected:
            raise InputError(f'X has {features.shape[1]} features: expected {expected}, as in the first call')
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

    def _begin(self, dim: int) -> None:
        buffer = ExemplarBuffer(self.buffer_size, self.strategy, self.seed) if self.buffer_size != 0 else None
        self.statistics_ = self.new_statistics(dim)
        self.buffer_, self.n_features_in_ = buffer, dim
        self.keys_ = LearnedKeys() if self.keep_keys else None

    def _changed(self) -> 'Scroll':
        self._online = self.adapted_ = self.selection_ = None
        return self

    def _check_begun(self) -> None:
        if not hasattr(self, 'statistics_'):
            raise InputError('this Scroll has learned nothing yet: call partial_fit first')

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.get_params().items() if k != 'embedder'}
        return f"Scroll({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
