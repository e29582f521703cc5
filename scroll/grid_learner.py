"""The learner below `ScrollClassifier`: `Scroll` on features of a grid of their own, with probabilities.

Probabilities are calibrated on what the head has not seen. The buffer's samples are taken out of the sums in
turns, exactly, and the head is made of the rest. A turn takes a twentieth of all samples at most: of twenty
samples that is leave-one-out, and of tens of thousands two halves of what is kept are left out.
Whatever the head chooses from the sums (lambda, shrinkage, mean and standard deviation of features) is chosen
without them, too.
"""
import copy
from dataclasses import replace
from math import fsum

import numpy as np

from scroll.errors import InputError
from scroll.feature_grid import FeatureGrid, Standardised
from scroll.grid import GRID, sample_keys
from scroll.heads.choice import AUTOMATIC
from scroll.heads.predictors import LinearPredictor
from scroll.heads.scaling import fit_scale, row_sums
from scroll.io.states import State
from scroll.learner import Scroll

_SHARE = 20                         # a turn takes one in so many of all samples, at most
_SCALES = 1e-3, 1e5                 # of a standard deviation of the logits


class GridLearner(Scroll):
    """`Scroll` of feature vectors whose `grid` and `standard` are set before it learns; `predictor` is for
    features on the grid.

    Attributes:
        grid: a `FeatureGrid`, or None: unit length. standard: whether heads see standardised features.
    """
    grid: FeatureGrid = None
    standard = False

    @property
    def grid_digest(self) -> str:
        """SHA-256 of the grid; '' for unit length."""
        return '' if self.grid is None else self.grid.digest()

    def unlearned(self) -> 'GridLearner':
        """A learner as this one, that has learned nothing."""
        return copy.copy(self).forget()

    def take_in(self, part: 'GridLearner') -> 'GridLearner':
        """`merge`, also into a learner that has learned nothing."""
        return self.merge(part) if hasattr(self, 'statistics_') else self.take(part._state())

    def predictor(self) -> LinearPredictor:
        """f_T, of features on the grid."""
        if not self.standard or getattr(self, '_online', None) is not None:
            return super().predictor()
        self._check_begun()
        standardised = Standardised(self.statistics_)
        below = Scroll(**self.get_params()).take(State({}, '', standardised.statistics))
        self._online = standardised.of_raw(below.predictor())
        self._head, self._settings, self._counted = below._head, below._settings, below._counted
        return self._online

    def decision_function(self, X) -> np.ndarray:
        """Logits float64 (N, K)."""
        if self.grid is None:
            return super().decision_function(X)
        near, beyond, far = self._placed(X)
        logits = self.predictor().decision_function(near)
        logits[beyond] = far
        return logits

    def predict(self, X) -> np.ndarray:
        """Labels (N,), those of exact logits for samples that the grid reaches."""
        if self.grid is None:
            return super().predict(X)
        near, beyond, far = self._placed(X)
        labels = self.predictor().predict(near)
        labels[beyond] = self.classes_[far.argmax(axis=1)]
        return labels

    def probability_scale(self) -> float:
        """The factor of logits with which their softmax has the least cross-entropy on samples left out.

        Each kept sample stands for its share of its class. One more sample, of every class equally, is added
        for all, so that the factor stays finite where nothing is misclassified (as Platt 1999 does with two).
        1 where no samples are kept, or of one class.
        """
        online = self.predictor()
        if getattr(self, '_calibrated', (None,))[0] is not online:
            self._calibrated = online, self._calibrate()
        return self._calibrated[1]

    def _calibrate(self) -> float:
        if self.buffer_ is None or not len(self.buffer_) or len(self.classes_) < 2:
            return 1.0
        held, counts, total = self.buffer_.content(), self.statistics_.counts, self.statistics_.total
        own = np.searchsorted(self.classes_, held.labels)
        kept = np.bincount(own)[own]
        turns = max(-(-_SHARE * len(held) // total), 2)
        turn = np.arange(len(held)) % turns                 # class after class: none is left without samples
        turn[counts[own] == 1] = -1
        logits, state = np.empty((len(held), len(counts))), self._state()
        if self.head != AUTOMATIC:                          # which chooses by the others in the buffer
            state = replace(state, buffer=None)
        for at in filter(len, (np.flatnonzero(turn == i) for i in range(turns))):
            rest = state.without(held.features[at], held.keys[at], held.labels[at])
            logits[at] = copy.copy(self).take(rest).predictor().decision_function(held.features[at])
        out = turn >= 0
        return _best_scale(logits[out], own[out], (counts[own] / kept)[out]) if out.any() else 1.0

    def _placed(self, X) -> tuple:
        """(features int32 (N, d), zero where the grid does not reach; bool (N,): it does not; float64 logits
        of these)."""
        online, placed = self.predictor(), self.grid.place(X)
        beyond = (np.abs(placed) > GRID).any(axis=1)
        if not beyond.any():
            return placed.astype(np.int32), beyond, np.zeros((0, len(online.classes)))
        if not isinstance(online, LinearPredictor):
            raise InputError(f'sample {np.flatnonzero(beyond)[0]} has values beyond the grid: the head '
                             f'{self.head} predicts within limit alone')
        near = np.where(beyond[:, None], 0, placed).astype(np.int32)
        return near, beyond, placed[beyond] / GRID @ online.weight.T + online.bias

    def _embed(self, X, keep: bool = True) -> tuple:
        if self.grid is None:
            return super()._embed(X, keep)
        features = self.grid.on_it(X)
        return features, features, sample_keys(features)

    def _check_features(self, features: np.ndarray) -> None:
        if self.grid is None:
            super()._check_features(features)


def _best_scale(logits: np.ndarray, own: np.ndarray, weights: np.ndarray) -> float:
    """The factor of least cross-entropy. logits: (m, K). own: columns of the true classes. weights: (m,)."""
    centred = logits - row_sums(logits)[:, None] / logits.shape[1]
    spread = fsum(np.sqrt(row_sums(centred * centred) / logits.shape[1])) / len(own)
    if not spread:
        return 1.0
    return fit_scale(logits, own, [scale / spread for scale in _SCALES], weights, 1 / (len(own) + 1))
