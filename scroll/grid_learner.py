"""The learner below `ScrollClassifier`: `Scroll` on features of a grid of their own, with probabilities.

Probabilities are calibrated on what the head has not seen. The buffer's samples are taken out of the sums in
turns, exactly, and the head is made of the rest, lambda, shrinkage, mean and standard deviation of features
with it. A turn takes a twentieth of all samples at most: of twenty samples that is leave-one-out.
"""
import copy
from dataclasses import replace
from math import fsum

import numpy as np

from scroll.derived import Derived
from scroll.feature_grid import Standardised
from scroll.grid import sample_keys
from scroll.heads.scaling import fit_scale, row_sums
from scroll.learner import Scroll
from scroll.settings import AUTO
from scroll.state import State

_SHARE = 20                         # a turn takes at most one in 20 of all samples
_SCALES = 1e-3, 1e5                 # of a standard deviation of the logits


class GridLearner(Scroll):
    """`Scroll` of feature vectors whose `grid` (a `FeatureGrid` or `UnitLength`) is set before it learns, and
    `standard`: whether heads see standardised features. `predictor` is for features on the grid."""
    grid = None
    standard = False
    _KEEPS_PARTS = False                # it has no files

    def unlearned(self) -> 'GridLearner':
        """A learner as this one, that has learned nothing."""
        return copy.copy(self).forget()

    def merge(self, other: 'GridLearner') -> 'GridLearner':
        """Add what another has learned, also to one that has learned nothing."""
        given = other._state_for_files()
        return self._edit(lambda state: given if state is None else state.merged(given, False))

    def _derive(self, state: State) -> Derived:
        if not self.standard:
            return super()._derive(state)
        standardised = Standardised(state.statistics)
        below = super()._derive(replace(state, statistics=standardised.statistics))
        return replace(below, online=standardised.of_raw(below.online))

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K)."""
        return self.predictor().decision_function(self.grid.within(X))

    def predict(self, X) -> np.ndarray:
        """Labels (N,), those of exact logits."""
        return self.predictor().predict(self.grid.within(X))

    def probability_scale(self) -> float:
        """The factor of logits with which their softmax has the least cross-entropy on samples left out; 1
        where none are kept, or of one class. Each kept sample stands for its share of its class. One more, of
        every class equally, keeps the factor finite where nothing is misclassified (as Platt 1999 does)."""
        online, last = self.predictor(), getattr(self, '_calibrated', (None,))
        if last[0] is not online:
            last = self._calibrated = online, self._calibrate(self._learned())
        return last[1]

    def _calibrate(self, state: State) -> float:
        classes, counts, total = state.statistics.classes, state.statistics.counts, state.statistics.total
        if state.buffer is None or not len(state.buffer) or len(classes) < 2:
            return 1.0
        held = state.buffer.content()
        own = np.searchsorted(classes, held.labels)
        kept = np.bincount(own)[own]
        turns = max(-(-_SHARE * len(held) // total), 2)
        turn = np.arange(len(held)) % turns                 # class after class: none is left without samples
        turn[counts[own] == 1] = -1
        logits = np.empty((len(held), len(counts)))
        if self.head != AUTO:                               # which chooses by the others in the buffer
            state = replace(state, buffer=None)
        for at in filter(len, (np.flatnonzero(turn == i) for i in range(turns))):
            rest = state.without(held.features[at], held.keys[at], held.labels[at])
            logits[at] = copy.copy(self).set_state(rest).predictor().decision_function(held.features[at])
        out = turn >= 0
        return _best_scale(logits[out], own[out], (counts[own] / kept)[out]) if out.any() else 1.0

    def _embed(self, X, keep: bool = True) -> tuple:
        features = self.grid.on_it(X)
        return features, features, sample_keys(features)

    def _check_features(self, features: np.ndarray) -> None:
        """Nothing: they are as the grid made them."""


def _best_scale(logits: np.ndarray, own: np.ndarray, weights: np.ndarray) -> float:
    """The factor of least cross-entropy. logits: (m, K). own: columns of the true classes. weights: (m,)."""
    centred = logits - row_sums(logits)[:, None] / logits.shape[1]
    spread = fsum(np.sqrt(row_sums(centred * centred) / logits.shape[1])) / len(own)
    if not spread:
        return 1.0
    return fit_scale(logits, own, [scale / spread for scale in _SCALES], weights, 1 / (len(own) + 1))
