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
import importlib.util
import threading
import warnings
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from scroll.adaptation.settings import Adaptation
from scroll.ground import archive
from scroll.ground.arguments import instance, not_installed, shown
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import check_quantised, intake, quantise, sample_keys
from scroll.ground.labels import check_kind, check_labels, label_array, typed_labels
from scroll.ground.settings import (
    AUTO,
    DEFAULTS,
    SETTINGS,
    check_settings,
    class_weight_hint,
    constructor,
)
from scroll.ground.tables import names_of, numbers_of, warn_of_half
from scroll.heads.predictors import LinearPredictor
from scroll.heads.registry import (
    HEADS,
    Settings,
    choose_head,
    choose_pooling,
    empty_statistics,
    lift_of,
)
from scroll.heads.scaling import fit_scale
from scroll.learners.state import State, check_samples
from scroll.sums.exemplars import ExemplarBuffer, Exemplars
from scroll.sums.learned_keys import LearnedKeys
from scroll.sums.statistics import Statistics

if TYPE_CHECKING:
    from scroll.embedding.embedder import Embedder

_UNEVEN = 1000  # times the samples of the rarest class
_LEFT_OUT = 1 << 13  # samples of `out_of_sample` at once


@dataclass(frozen=True)
class Derived:
    """f_T (`online`), the statistics that it was made of (`counted`), head, and settings in
    numbers: lambda, rounded to a multiple of 2^-36, and pooling, or None where the head has
    none."""

    online: LinearPredictor
    counted: Statistics
    settings: Settings
    head: str

    def left_out(self, exemplars: Exemplars) -> np.ndarray:
        """Logits float64 (m, K) on learned samples as if each had not been."""
        return HEADS[self.head].left_out(
            self.online, self.counted, self.settings, exemplars.features, exemplars.labels
        )

    def without_held_out(self, exemplars: Exemplars, held: np.ndarray) -> tuple:
        """(f_T without the samples at these positions, its leave-one-out logits on the others)."""
        counted = copy.copy(self.counted).remove(exemplars.features[held], exemplars.labels[held])
        rest = np.setdiff1d(np.arange(len(exemplars)), held)
        out = replace(self, online=HEADS[self.head].make(counted, self.settings), counted=counted)
        return out.online, out.left_out(exemplars.at(rest))


def derive(values: dict, state: State) -> Derived:
    """f_T of a state; values: all of `scroll.ground.settings.SETTINGS`."""
    check_settings(values)
    settings = Settings(**{field.name: values[field.name] for field in fields(Settings)})
    counted, head = state.statistics, values['head']
    if head == AUTO:
        held = exemplars_of(state, 'head auto')
        head, counted = choose_head(counted, settings, held.features, held.labels)
    own, lift = state.statistics, lift_of(values, state.statistics.dim)
    if (HEADS[head].by_class and not own.by_class) or lift != own.lift:
        raise InputError(
            f'head {values["head"]} with lift {lift}: the samples were counted with lift '
            f'{own.lift}'
            + ' for each class' * own.by_class
            + ', and another head needs other sums: learn again'
        )
    _warn_of_uneven_classes(counted, head)
    if HEADS[head].make is not HEADS['qda'].make:
        settings = replace(settings, pooling=None)
    elif settings.pooling == AUTO:
        held = exemplars_of(state, 'pooling auto')
        settings = choose_pooling(counted, settings, held.features, held.labels)
    settings = HEADS[head].settled(counted, settings)
    return Derived(HEADS[head].make(counted, settings), counted, settings, head)


def exemplars_of(state: State, what: str) -> Exemplars:
    """What the buffer keeps; InputError where there is none."""
    if state.buffer is None:
        raise InputError(
            f'{what} needs a buffer: buffer_size is 0'
            + (', use f_T or adaptation mode none' if what == 'adaptation' else '')
        )
    return state.buffer.content()


def _warn_of_uneven_classes(statistics: Statistics, head: str) -> None:
    """UserWarning where ridge would find a rare class hardly ever."""
    counts = statistics.counts
    if (
        HEADS[head].make is HEADS['ridge'].make
        and len(counts) > 1
        and counts.max() >= _UNEVEN * counts.min()
    ):
        warnings.warn(
            f'a class has {_UNEVEN} times the samples of another, or more: head={head!r} hardly '
            "ever finds the rare one; head='balanced' counts each class alike",
            stacklevel=6,
        )


def _fitted(name: str, read) -> property:
    """A property of what fitting adds, `read(learner, state)`; an AttributeError before."""

    def get(self):
        state = self._state
        if state is None:
            raise AttributeError(f'{name}: nothing was learned yet')
        return read(self, state)

    return property(get)


class Scroll:
    """Schedule-robust online continual learner (paper, Algorithm 1).

    `partial_fit` counts each sample once, into exact statistics and a buffer; `predictor` is f_T,
    the same
    under every schedule; `adapt` makes f* from f_T and the buffer, always from the pristine
    backbone.
    `predict` and related methods use f* if `adapt` was called since the last change, else f_T.

    Features (not images) are rounded to float32, so that a sample and its float32 copy are one.
    Columns of a data frame go by their names. Any number of threads may read; writers wait for each
    other, and one that is interrupted, or meets bad input (an `InputError` of one line), leaves
    what was learned as before or as after.

    Args (all but the first stand in `scroll.ground.settings.SETTINGS`):
        embedder: the backbone as an `Embedder` (X is then uint8 images), or None: X is features (N,
        d).
        head: what f_T is: 'ridge'; 'ncc' (nearest class mean); 'lda'; 'rp' and 'rff' (ridge on a
        lift of the
            features); 'balanced' (ridge, each class counted alike) and 'qda' (a covariance for each
            class),
            which keep a Gram matrix for each class; 'random'; a paper's name of these
            (docs/heads.md); or
            'auto': the best of ridge, ncc and lda, with and without the lift, on the buffer,
            leave-one-out.
        ridge_lambda: added to the diagonal of the Gram matrix of [u; 1]; the paper's lambda times
        N. Or
            'auto': chosen by generalised cross-validation from the statistics, whenever f_T is
            made. One too
            small for these sums is refused, by balanced raised (`ridge_lambda_` is the one in use).
        targets: 'pm1' or 'onehot', of ridge. ncc_bias: 'exact', 'paper' or 'zero'.
        shrinkage: of lda and qda, the share of the identity in the covariance within classes, from
        0 up to
            below 1; or 'oas': the best for normal samples, chosen from the statistics whenever f_T
            is made.
        pooling: of qda, the share of the common covariance in that of each class, 0 to 1; or
        'auto': the
            best of .3, .5, .7 and .9 on the buffer, leave-one-out.
        lift: 'relu', 'relu7', 'square' or 'fourier': what lifts the features before they are
        counted
            (`scroll.sums.lift`); 'none'; or 'auto': as the head says, rp and auto relu, rff fourier, the
            others
            none. lift_dim, lift_seed, lift_bandwidth: its width, random matrix, and (fourier)
            length scale.
        buffer_size: |M|; 0: memory-free SCROLL. strategy: 'herding', 'random', 'nearest',
        'outlier', 'hash'.
        adaptation: an `Adaptation`, or None for its defaults. seed: of buffer, adaptation, random
        classifier.
        keep_keys: keep the key of every sample learned (8 bytes each), so that `remove` knows
        exactly what
            was learned. Without, what statistics and buffer show to be wrong is refused.

    Attributes (to read):
        statistics_: `Statistics`. buffer_: `ExemplarBuffer`, or None without memory. keys_:
        `LearnedKeys`, or
            None where they are not kept. n_features_in_: d. feature_names_in_: (d,) of a data
            frame, as text.
        adapted_: the last `AdaptedPredictor`; None once anything was learned or removed since.
        selection_: of
            `Adaptation(select='folds')`, what each candidate said of samples held out.
        head_: the head in use, of 'auto' the one chosen. ridge_lambda_, pooling_: its lambda, its
            pooling, or None."""

    _state: State | None = None  # what is known, replaced as a whole by whoever writes

    __init__ = constructor({'embedder': None} | DEFAULTS)

    def get_params(self, deep: bool = True) -> dict:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in ('embedder', *SETTINGS)}

    def set_params(self, **params) -> 'Scroll':
        """Change constructor arguments by name; takes effect where they are next used."""
        known = self.get_params()
        unknown = [name for name in params if name not in known]
        if unknown:
            raise InputError(
                f'unknown parameter {unknown[0]!r}: expected one of {", ".join(known)}'
                f'{class_weight_hint(params)}'
            )
        new = params.get('embedder', self.embedder)
        if self._state is not None and getattr(new, 'digest', '') != getattr(
            self.embedder, 'digest', ''
        ):
            raise InputError('embedder: what was learned is of another one: call forget first')
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
        if self.embedder is not None and not (
            callable(self.embedder) and hasattr(self.embedder, 'digest')
        ):
            raise InputError(
                f'embedder {shown(self.embedder)}: expected an Embedder, or None for features'
            )
        check_settings(self._settings())

    def __repr__(self) -> str:
        return (
            f'Scroll({", ".join(f"{name}={value!r}" for name, value in self._settings().items())})'
        )

    @property
    def _lock(self) -> threading.RLock:
        """Held by whoever changes what is known; made late, since constructors only store."""
        return vars(self).setdefault('_writers', threading.RLock())

    def __getstate__(self) -> dict:
        return {name: value for name, value in dict(vars(self)).items() if name != '_writers'}

    def _update(self, change) -> 'Scroll':
        """Know what `change` makes of the state (None: nothing was learned); if it fails, nothing
        changes.
        """
        with self._lock:
            self._state = change(self._state)
        return self

    def _edit(self, change) -> 'Scroll':
        """As `_update`; InputError if nothing was learned."""
        return self._update(lambda _: change(self._known()))

    def _known(self) -> State:
        """What is known; InputError if nothing is."""
        state = self._state
        if state is None:
            raise InputError('this Scroll has learned nothing yet: call partial_fit first')
        return state

    def set_state(self, state: State) -> 'Scroll':
        """Know what the state holds, and nothing else; its settings are not looked at."""
        return self._update(lambda _: state)

    def forget(self) -> 'Scroll':
        """Back to before the first sample."""
        return self.set_state(None)

    def new_statistics(self, dim: int) -> Statistics:
        """Statistics of no samples, as the head needs them, of features of `dim` numbers."""
        return empty_statistics(self._settings(), dim)

    def _begun(self, dim: int, names: tuple | None = None) -> State:
        """Of a learner that begins: nothing is counted."""
        if dim != (own := getattr(self.embedder, 'dim', dim)):
            raise InputError(f'there are {dim} features: the embedder gives {own}')
        buffer = (
            ExemplarBuffer(self.buffer_size, self.strategy, self.seed)
            if self.buffer_size != 0
            else None
        )
        return State(
            {},
            self.psi(),
            self.new_statistics(dim),
            buffer,
            LearnedKeys() if self.keep_keys else None,
            names=names,
            boolean=True,
        )

    def psi(self) -> str:
        """Digest of what makes features of X: of the embedder; '' where they are features already."""
        return '' if self.embedder is None else self.embedder.digest

    def fit(self, X, y) -> 'Scroll':
        """Forget everything, then learn from one segment. Bad input changes nothing."""
        return self.set_state(copy.copy(self).forget().partial_fit(X, y)._state)

    def partial_fit(self, X, y) -> 'Scroll':
        """Learn from one segment of the stream: the buffer chooses among its samples at once. X:
        uint8 images (N, H, W, C), or features (N, d) without an embedder. y: integer or string
        labels (N,)."""
        self._check_params()
        with self._lock:  # names of the first columns go for all
            return self.learn(*self._embed(X), y, names_of(X) if self.embedder is None else None)

    def learn(self, samples, features, keys, y, names: tuple | None = None) -> 'Scroll':
        """`partial_fit` for a caller that has embedded already, for example many small segments at
        once.
        samples: what the buffer stores: uint8 images (N, H, W, C), or without an embedder the
        features.
        features: int32 (N, d), quantised. keys: uint64 (N,). names: of d columns; kept if they come
        first."""
        self._check_params()
        self._check_features(features)
        if samples is not features and self.buffer_size != 0:
            check_samples(samples, features.shape[1], images=self.embedder is not None)
        labels, features = _some_labels(y, len(features)), features.astype(np.int32, copy=False)
        if self.embedder is None:
            samples = samples.astype(np.int32, copy=False)
        return self._update(
            lambda state: (state or self._begun(features.shape[1], names)).with_samples(
                samples, features, keys, labels
            )
        )

    def add_statistics(self, statistics: Statistics) -> 'Scroll':
        """Learn samples of which the sums alone are known, made elsewhere with the same backbone.
        Needs buffer_size=0 and keep_keys=False, since buffer and keys would have to see the
        samples."""
        self._check_params()
        instance('statistics', statistics, Statistics)
        return self._update(
            lambda state: (state or self._begun(statistics.dim)).with_statistics(statistics)
        )

    def merge(self, other: 'Scroll', of_parts: bool = True) -> 'Scroll':
        """Add what another learner, with the same backbone, has learned from another part of the
        data.
        `of_parts`: keep account of the parts (`scroll.sums.parts`), also where no file says yet which
        they are."""
        instance('other', other, Scroll)
        given = other._state_for_files()
        return self._edit(
            lambda state: replace(state, psi=self.psi()).merged(
                given, of_parts or state.parts is not None
            )
        )

    def _embed(self, X, keep: bool = True, learned: bool = False) -> tuple:
        """(samples to store, quantised features int32 (N, d), keys uint64 (N,)). `keep`: to be
        cached.
        `learned`: they are to be found among what was learned."""
        if self.embedder is not None:
            features, keys = self.embedder(X, keep=keep)
            return np.asarray(X), features, keys
        features = self._on_grid(X, learned)
        return features, features, sample_keys(features)

    def _on_grid(self, X, learned: bool = False) -> np.ndarray:
        """Quantised features int32 (N, d), for samples that may be new."""
        if self.embedder is not None:
            return self.embedder(X)[0]
        state = self._state
        if learned:
            warn_of_half(X)
        features = quantise(intake(numbers_of(X, (state.names or ()) if state else None)))
        if state and features.shape[1] != state.statistics.dim:
            raise InputError(
                f'X has {features.shape[1]} features: expected {state.statistics.dim}, as in '
                'the first call'
            )
        return features

    def _check_features(self, features: np.ndarray) -> None:
        """InputError unless these are what this learner counts."""
        check_quantised(features, getattr(self, 'n_features_in_', None))

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
        _, features, keys = self._embed(X, keep=False, learned=True)
        labels = check_labels(y, len(features))
        return self._edit(lambda state: self._uncached(state.without(features, keys, labels), X))

    def _uncached(self, rest: State, samples) -> State:
        """A state without these samples, of which the embedder's cache loses the features."""
        if self.embedder is not None:
            self.embedder.forget(samples)
        return rest

    def remove_class(self, label, X=None) -> 'Scroll':
        """Unlearn a whole class: as `remove`, of all its samples. What it has added to the Gram
        matrix must be known, and the matrix of all classes does not tell: give all its samples X;
        not needed where there is a matrix a class (the heads `balanced`, `qda`), or the buffer has
        all its samples."""
        name = check_labels([label], 1).tolist()[0]
        given = None if X is None else self._embed(X, keep=False, learned=True)[1:]

        def without_it(state: State) -> State:
            count = state.count_of(name)
            if given is None:
                held, rest = state.kept_of(name), state.without_class(name)
                return rest if held is None else self._uncached(rest, held.samples)
            if len(given[1]) != count:
                raise InputError(
                    f'{len(given[1])} of {count} samples of class {name!r} are given: expected all'
                )
            return self._uncached(state.without(*given, label_array([name] * count)), X)

        return self._edit(without_it)

    def rename(self, mapping: dict) -> 'Scroll':
        """Call classes by other names: {name: new name}; those left out keep theirs. Two may swap
        theirs. What was learned is that of a stream with these names; so is the buffer, where its
        capacity is shared evenly (what is left over goes to the first classes: one that is now
        later may lose a sample, and one that is now first lacks it: `buffer_.complete`)."""
        instance('mapping', mapping, dict)
        return self._edit(lambda state: state.renamed(mapping))

    def learned(self, X, y) -> np.ndarray:
        """bool (N,): which samples were learned with these labels, each copy by itself
        (`keep_keys`).
        """
        known, keys = self._known().keys, self._embed(X, keep=False)[2]
        if known is None:
            raise InputError('which samples were learned is known with keep_keys=True alone')
        return ~np.isin(np.arange(len(keys)), known.lacks(keys, y))

    def predictor(self) -> LinearPredictor:
        """f_T (paper, section 3.1); of `qda` a `QuadraticPredictor`. InputError before the first
        sample.
        """
        return self._derived(self._known()).online

    def _derived(self, state: State) -> Derived:
        """Made once for a state and these settings."""
        settings = self._settings()
        asked = repr([value for name, value in settings.items() if name != 'adaptation'])
        last = state.derived
        if last is None or last[0] != asked:
            last = state.derived = asked, self._derive(settings, state)
        return last[1]

    def _derive(self, settings: dict, state: State) -> Derived:
        return derive(settings, state)

    def adapt(self, progress=None) -> 'Scroll':
        """Make f* from f_T and the buffer; kept as `adapted_`. Mode `none` leaves f_T in use, and
        so does
        `select='folds'`, the default, where f* is not surely better on held-out exemplars
        (`selection_`).
        `progress` is called with the loss after each update."""
        self._check_params()
        with self._lock:
            state, settings = self._known(), self.adaptation or Adaptation()
            derived, f_star = self._derived(state), (None, None)
            if settings.mode != 'none':
                exemplars = exemplars_of(state, 'adaptation')
                if importlib.util.find_spec('torch') is None:
                    raise not_installed('adaptation', 'torch', 'images')
                f_star = self._adapted(derived, exemplars, settings, progress)
            self._state = state.with_adapted(*f_star)
        return self

    def _adapted(
        self, derived: Derived, exemplars: Exemplars, settings: Adaptation, progress
    ) -> tuple:
        """(f*, or None; what cross-validation said, or None)."""
        import torch

        from scroll.adaptation import selection, training

        how = self.embedder, derived.online, exemplars, settings, self.seed
        left_out = derived.left_out(exemplars)
        # whatever the caller has switched off
        with torch.inference_mode(False), torch.enable_grad():
            if settings.select != 'folds' or not settings.iterations:
                return training.adapt(*how, progress, left_out), None
            return selection.adapt_selected(
                *how,
                lambda held: derived.without_held_out(exemplars, held),
                self.strategy == 'herding',
                progress,
                left_out,
            )

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K), columns as `classes_`; f_T's are the exact ones, rounded, as
        exported graphs give them. Those of lda, qda and ncc only compare the classes of one sample:
        subtract each row's mean, as `ScrollClassifier` does, before a column is read by itself
        (ranking, calibration)."""
        return self._logits(X, self._known())

    def _logits(self, X, state: State) -> np.ndarray:
        if state.adapted is None:
            return self._derived(state).online.decision_function(self._on_grid(X))
        return state.adapted.decision_function(X if self.embedder is not None else self._on_grid(X))

    def predict(self, X) -> np.ndarray:
        """Labels (N,). f_T uses exact logits, so ties in float64 are resolved."""
        state = self._known()
        if state.adapted is None:
            labels = self._derived(state).online.predict(self._on_grid(X))
        else:
            labels = state.classes[self._logits(X, state).argmax(axis=1)]
        return labels.astype(state.classes.dtype)

    def predict_proba(self, X) -> np.ndarray:
        """Probabilities float64 (N, K): softmax of the logits. f*'s are calibrated, f_T's are not."""
        return softmax(self.decision_function(X), axis=1)

    def score(self, X, y) -> float:
        """Share of samples predicted right, 0 to 1. X: as for `partial_fit`. y: labels (N,)."""
        predicted = self.predict(X)
        labels = _some_labels(y, len(predicted))
        check_kind(labels, predicted)
        return float((predicted == labels).mean())

    def out_of_sample(self, X, y) -> np.ndarray:
        """Probabilities float64 (N, K) of samples that were learned, each as if all but it had
        been; columns as `classes_`, rows sum to one.

        Exact leave-one-out of f_T in closed form: one more pass over the features. The only sample
        of a class has probability 0 in it. The one scale of the logits is that of least
        cross-entropy on these samples (Guo et al. 2017). X, y: best all that was learned; others
        are an InputError, as of `remove`. cleanlab's `find_label_issues` takes the result as
        `pred_probs`, with
        `np.searchsorted(learner.classes_, y)` as `labels`."""
        state = self._known()
        derived, (samples, features, keys) = self._derived(state), self._embed(X)
        labels = _some_labels(y, len(features))
        with prefixed('only samples that were learned have out-of-sample scores'):
            replace(state, buffer=None).without(features, keys, labels)
        parts = (slice(start, start + _LEFT_OUT) for start in range(0, len(labels), _LEFT_OUT))
        logits = np.concatenate(
            [
                derived.left_out(Exemplars(labels[at], keys[at], features[at], samples[at]))
                for at in parts
            ]
        )
        scale = fit_scale(logits, np.searchsorted(derived.online.classes, labels))
        return softmax(scale * logits, axis=1)

    @property
    def classes_(self) -> np.ndarray:
        """(K,) labels seen, sorted: int64, text, or bool where all that came were True or False."""
        return self._known().classes

    def digest(self) -> str:
        """SHA-256 of the statistics: equal for all schedules, batchings and shardings of the same
        data.
        """
        return self._known().statistics.digest()

    statistics_ = _fitted('statistics_', lambda self, state: copy.copy(state.statistics))
    buffer_ = _fitted('buffer_', lambda self, state: copy.copy(state.buffer))
    keys_ = _fitted('keys_', lambda self, state: copy.copy(state.keys))
    adapted_ = _fitted('adapted_', lambda self, state: state.adapted)
    selection_ = _fitted('selection_', lambda self, state: state.selection)
    n_features_in_ = _fitted('n_features_in_', lambda self, state: state.statistics.dim)
    feature_names_in_ = _fitted('feature_names_in_', lambda self, state: state.named_columns())
    head_ = _fitted('head_', lambda self, state: self._derived(state).head)
    ridge_lambda_ = _fitted(
        'ridge_lambda_', lambda self, state: self._derived(state).settings.ridge_lambda
    )
    pooling_ = _fitted('pooling_', lambda self, state: self._derived(state).settings.pooling)

    def state_dict(self) -> dict:
        """All that was learned, as nested dicts of arrays and plain values. Of f* only whether
        there is one: it is made again from the rest, with the same bits."""
        if self._state is None:
            return {}
        facts, arrays = self._state_for_files().content()
        return {'facts': facts, 'arrays': arrays, 'adapted': self._state.adapted is not None}

    def load_state_dict(self, state: dict) -> None:
        """Become what `state_dict` described, for a learner made with the same arguments and
        backbone.
        """
        loaded = copy.copy(self).forget()
        # of one part, like a learner that was never interrupted; the caller keeps his arrays
        if state:
            arrays = {name: array.copy() for name, array in state['arrays'].items()}
            loaded.set_state(replace(State.of(state['facts'], arrays), parts=None))
            if state['adapted']:
                loaded.adapt()
        self.set_state(loaded._state)

    def end_part(self) -> dict:
        """What has been learned is a part by itself (`scroll.sums.parts`); what will be is another.
        Gives all.
        """
        return (
            self._edit(
                lambda state: state.with_adapted(
                    state.adapted, state.selection, parts=state.known_parts(), whole=None
                )
            )
            ._known()
            .known_parts()
        )

    def _state_for_files(self) -> State:
        """What is known, with the settings of now."""
        return replace(self._known(), params=self._settings(), psi=self.psi())

    def check_portable(self) -> None:
        """InputError where files and graphs cannot say what features mean."""
        if self.embedder is None and self.psi():
            raise InputError(
                'features that are not of unit length are in no file and no graph: pickle the '
                "classifier, or begin again with scale='unit'"
            )

    def save(self, path) -> None:
        """Write settings, statistics and buffer, but neither backbone nor f*, to `path`, whole or
        not at all; InputError if it cannot be written."""
        with archive.locked(path):
            self.check_portable()
            self.end_part()
            self._state_for_files().write(path)

    @classmethod
    def load(cls, path, embedder: 'Embedder' = None) -> 'Scroll':
        """The learner that `save` wrote, to resume exactly (f*: `adapt` again). embedder: the
        backbone, as when the file was written; None for features of one's own."""
        state = State.read(path)
        out = cls(embedder, **state.params)
        out._check_params()
        with prefixed(path):
            state.check_backbone(out.psi())
        return out.set_state(state)


def _some_labels(y, count: int) -> np.ndarray:
    """Checked labels (N,); InputError if there are none."""
    labels = typed_labels(y, count)
    if len(labels) == 0:
        raise InputError('X has no samples: expected at least one')
    return labels
