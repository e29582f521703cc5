"""Many schedules over the same samples: the learner after any segment, fast where classes arrive whole.

Where each class arrives in one segment, the statistics after a segment are the sum of those of its classes so
far. Sums of integers are exact, so this short cut (`SummedStream`) gives the same bits as learning the stream
(`learn_stream`), and a thousand schedules of CIFAR-100 in minutes. Each schedule's predictor is still solved
from that schedule's own sums.
"""
import numpy as np

from scroll.exemplars import Exemplars
from scroll.grid import GRID
from scroll.heads.predictors import LinearPredictor
from scroll.learner import Scroll
from scroll.lift import Lift
from scroll.state import State
from scroll.statistics import Statistics


def first_segments(schedule, ranks: np.ndarray) -> np.ndarray:
    """int64 (K,): the segment in which a class is first seen; ranks: int64 (N,), place of each sample's class
    among the sorted classes."""
    segment = np.repeat(np.arange(len(schedule.cuts) - 1), np.diff(schedule.cuts))
    return segment[np.unique(ranks[schedule.order], return_index=True)[1]]


def class_segments(schedule, ranks: np.ndarray):
    """`first_segments`; None if a class arrives in several."""
    first = first_segments(schedule, ranks)
    segment = np.repeat(np.arange(len(schedule.cuts) - 1), np.diff(schedule.cuts))
    return first if (first[ranks[schedule.order]] == segment).all() else None


def curve_points(cuts: np.ndarray, most: int) -> np.ndarray:
    """Segments after which the predictor is evaluated: those that end next to N/P, 2N/P, ..., N; P = 0: all.
    """
    ends = cuts[1:]
    if most == 0:
        return np.arange(len(ends))
    wanted = ends[-1] * np.arange(1, most + 1) / most
    after = np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)
    before = np.maximum(after - 1, 0)
    return np.unique(np.where(wanted - ends[before] < ends[after] - wanted, before, after))


class SummedStream:
    """What a learner without memory has learned after segments of a stream of whole classes, from sums.
    parts: of all samples, `by_class`."""

    def __init__(self, learner: Scroll, parts: Statistics):
        self.params, self.parts = {**learner.get_params(), 'buffer_size': 0, 'keep_keys': False}, parts
        self.by_class = learner.new_statistics(parts.dim).by_class

    def __call__(self, segments: np.ndarray, points: np.ndarray):
        """Yield a `Scroll` after each of `points`; `segments`: that of each class (`class_segments`)."""
        parts, order, done = self.parts, np.argsort(segments, kind='stable'), 0
        grams, gram = parts.grams, np.zeros_like(parts.grams[0])
        for point in points:
            upto = int(np.searchsorted(segments[order], point, side='right'))
            for k in () if self.by_class else order[done:upto]:
                gram += grams[k]
            seen, done = np.sort(order[:upto]), upto
            statistics = Statistics(parts.dim, parts.lift, self.by_class).assign(
                parts.classes[seen], parts.counts[seen], parts.sums[seen],
                grams[seen] if self.by_class else gram.copy())
            yield Scroll(**self.params).set_state(State({}, '', statistics))


def learn_stream(learner: Scroll, samples: Exemplars, schedule, points: np.ndarray):
    """Learn segment by segment; yield the learner, one and the same, after each of `points`."""
    learner.forget()
    wanted = set(points.tolist())
    for t, ids in enumerate(schedule.segments()):
        learner.learn(samples.samples[ids], samples.features[ids], samples.keys[ids], samples.labels[ids])
        if t in wanted:
            yield learner


class TestSet:
    """Embedded test samples, sorted by class, on which linear predictors are evaluated fast, and exactly.

    Attributes:
        order: int64 (N,), where the samples were. size: D, numbers of a lifted feature. sizes: int64 (K,),
            samples of each class."""
    __test__ = False                    # not a test case of pytest

    def __init__(self, features: np.ndarray, labels: np.ndarray, lift: Lift = None):
        self.order = np.argsort(labels, kind='stable')
        self.features, self.labels = features[self.order], np.asarray(labels)[self.order]
        self.classes, self.sizes = np.unique(self.labels, return_counts=True)
        self._starts = np.cumsum(self.sizes) - self.sizes
        lifted = self.features if lift is None else lift(self.features)
        self.size = lifted.shape[1]
        self._single = lifted.astype(np.float32) / np.float32(GRID)             # exact: 19 bits a number

    def predictions(self, predictor) -> np.ndarray:
        """`predictor.predict` of all samples: (N,) labels.

        Logits are taken in float32 first. Rounding moves each by at most gamma (|w| |u| + |b|), gamma = n e /
        (1 - n e) with n = d + 4 roundings of e = 2^-24 (Higham 2002, section 3.1); where the second is nearer
        to the largest than twice that, the predictor's exact logits decide."""
        if not isinstance(predictor, LinearPredictor):
            return predictor.predict(self.features)
        logits = predictor.weight.astype(np.float32) @ self._single.T  # (K, N): maxima over K are contiguous
        logits += predictor.bias.astype(np.float32)[:, None]
        roundings = (self.size + 4) * 2.0 ** -24
        largest = float((1.01 * np.linalg.norm(predictor.weight, axis=1) + abs(predictor.bias)).max())
        error = roundings / (1 - roundings) * largest
        near = logits >= logits.max(axis=0) - np.float32(2.01 * error)
        out = predictor.classes[near.argmax(axis=0)]
        unsure = np.flatnonzero(near.sum(axis=0) != 1)
        if len(unsure):
            out[unsure] = predictor.predict(self.features[unsure])
        return out

    def class_hits(self, predictions: np.ndarray) -> np.ndarray:
        """int64 (K,): samples of each class that predictions (N,) get right."""
        return np.add.reduceat((predictions == self.labels).astype(np.int64), self._starts)
