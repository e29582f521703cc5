"""Certificates in JSON: digests that hold on any machine, and those that hold on one kind of
machine.

    {"format": "schedule-certificate-2", "model": "scroll", "dataset": "seq-cifar100",
     "command": "python ...",
     "verdict": {"sentence": "the same predictor, bit for bit, under 1005 schedules", ...},
     "anywhere": {"data": "<SHA-256>", "statistics": "<SHA-256>", ...},
     "here": {"machine": "x86_64 25 17 AMD EPYC AVX512, 1 thread, torch 2.15.0", "f*": "<SHA-256>"},
     ...}

Each line follows from some of those above it, so the first that differs says where to look.
"""

import json
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from scroll.ground.archive import read_errors, read_json, write_text
from scroll.ground.errors import InputError
from scroll.heads.predictors import LinearPredictor
from scroll.learners.learner import Scroll
from scroll.sums.exemplars import Exemplars
from scroll.sums.lift import Lift

FORMAT = 'schedule-certificate-2'
_PARTS = {
    'model': str,
    'dataset': str,
    'command': str,
    'flags': list,
    'verdict': dict,
    'anywhere': dict,
    'here': dict,
    'settings': dict,
    'options': dict,
}


def write(path, certificate: dict) -> None:
    """Write it whole or not at all, with its folder; InputError if it cannot be written."""
    write_text(path, f'{json.dumps(certificate, indent=1)}\n')


def read(path) -> dict:
    """Read what `write` wrote. InputError: there is no such file, or it is no certificate of this
    format.
    """
    with read_errors(path):
        content = read_json(path)
        form = content['format']
        if form != FORMAT:
            raise InputError(
                f'expected a certificate of the format {FORMAT}, this is {form}: run its command '
                'again'
            )
        if not (
            all(isinstance(content[name], kind) for name, kind in _PARTS.items())
            and all(isinstance(word, str) for word in content['flags'])
            and 'sentence' in content['verdict']
            and {'data', 'backbone'} <= content['anywhere'].keys()
        ):
            raise ValueError('a part of the certificate is missing')
    settings = content['settings']
    if 'adaptation' in settings and 'adapt_prior' not in settings:  # of before 0.4
        for name in ('adapt_select', 'adapt_select_folds', 'adapt_select_held_out'):
            settings.pop(name, None)
        settings |= {'adapt_prior': 0, 'adapt_averaging': False}
    return content


def compare(certificate: dict, made: dict, unasked: dict) -> tuple[list[str], bool]:
    """(lines of text, whether all that could be compared agree) of a certificate and what was made
    here (its parts `anywhere` and `here`). unasked: name -> why it was not computed."""
    there = certificate['here'].get('machine')
    here = made['here']['machine']
    values = made['anywhere'] | made['here']
    texts = certificate['anywhere'] | certificate['here']
    texts.pop('machine', None)
    width = max(map(len, texts), default=0)
    lines = []
    differing = []
    skipped = 0
    for name, text in texts.items():
        value = values.get(name, 'nothing')
        if there != here and name in certificate['here']:
            verdict = f'skipped: holds on {there}; this is {here}'
            skipped += 1
        elif name in unasked:
            verdict = f'skipped: {unasked[name]}'
            skipped += 1
        elif value == text:
            verdict = 'the same'
        else:
            verdict = f'DIFFERS: {value:.16} here'
            differing.append(name)
        lines.append(f'{name:{width}}  {str(text)[:16]:16}  {verdict}')
    if differing:
        first, *others = differing
        following = f', and what follows from it: {", ".join(others)}' if others else ''
        return [*lines, f'not the same: {first}{following}'], False
    more = f'; {skipped} skipped' if skipped else ''
    return [*lines, f'the same: {len(lines) - skipped} lines{more}'], True


def class_segments(schedule, ranks: np.ndarray) -> tuple[np.ndarray, bool]:
    """(segment in which each class is first seen, int64 (K,); whether each comes in one alone).
    ranks: int64 (N,), place of each sample's class among the sorted classes."""
    segment = np.repeat(np.arange(len(schedule.cuts) - 1), np.diff(schedule.cuts))
    first = segment[np.unique(ranks[schedule.order], return_index=True)[1]]
    return first, bool((first[ranks[schedule.order]] == segment).all())


def curve_points(cuts: np.ndarray, most: int) -> np.ndarray:
    """Segments after which the predictor is evaluated: those that end next to N/P, 2N/P, ..., N;
    P=0: all.
    """
    ends = cuts[1:]
    if most == 0:
        return np.arange(len(ends))
    wanted = ends[-1] * np.arange(1, most + 1) / most
    distances = abs(ends[::-1, None] - wanted)  # of two that are as near, the later one
    return np.unique(len(ends) - 1 - distances.argmin(axis=0))


def summed_stream(learner: Scroll, parts: list, segments: np.ndarray, points: np.ndarray):
    """Do as `learn_stream` does for a stream of whole classes, from sums: the same bits, and a
    thousand schedules of CIFAR-100 in minutes. learner: without memory. parts: `Statistics` of each
    class.
    segments: that of each class (`class_segments`)."""
    learner.forget()
    before = -1
    for point in points:
        for rank in np.flatnonzero((segments > before) & (segments <= point)):
            learner.add_statistics(parts[rank])
        before = point
        yield learner


def learn(learner: Scroll, samples: Exemplars, ids) -> Scroll:
    """Let a learner learn the samples at these positions."""
    return learner.learn(
        samples.samples[ids], samples.features[ids], samples.keys[ids], samples.labels[ids]
    )


def learn_stream(learner: Scroll, samples: Exemplars, schedule, points: np.ndarray):
    """Learn segment by segment; yield the learner, one and the same, after each of `points`."""
    learner.forget()
    ends = set(points.tolist())
    for t, ids in enumerate(schedule.segments()):
        learn(learner, samples, ids)
        if t in ends:
            yield learner


class TestSet:
    """Embedded test samples, sorted by class, lifted once.

    Attributes:
        size: D, numbers of a lifted feature.
        sizes: int64 (K,), samples of each class."""

    __test__ = False  # not a test case of pytest

    def __init__(self, features: np.ndarray, labels: np.ndarray, lift: Lift = None):
        order = np.argsort(labels, kind='stable')
        self.features = features[order]
        self.labels = np.asarray(labels)[order]
        self.classes, self.sizes = np.unique(self.labels, return_counts=True)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._lifted = self.features if lift is None else lift(self.features)
        self.size = self._lifted.shape[1]

    def predictions(self, predictor) -> np.ndarray:
        """`predictor.predict` of all samples: (N,) labels."""
        if isinstance(predictor, LinearPredictor):
            return replace(predictor, lift=None).predict(self._lifted)
        return predictor.predict(self.features)

    def class_hits(self, predictions: np.ndarray) -> np.ndarray:
        """int64 (K,): samples of each class that predictions (N,) get right."""
        return np.add.reduceat((predictions == self.labels).astype(np.int64), self._starts)


def anytime_accuracy(hits: np.ndarray, sizes: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """float (P,), percent: a(n), accuracy over all test samples of the classes seen (Koh et al.
    2022), of hits int (P, K), sizes int (K,) and seen bool (P, K)."""
    return 100 * (hits * seen).sum(axis=1) / (sizes * seen).sum(axis=1)


def average_incremental_accuracy(
    hits: np.ndarray, sizes: np.ndarray, tasks: np.ndarray, points: np.ndarray
) -> float:
    """Percent: mean_i mean_{j <= i} R[i, j] (Rebuffi et al. 2017), accuracy on task j after task i.
    hits: int (P, K), test samples of each class predicted right after each of `points` int (P,),
    tasks i. sizes: int (K,), test samples. tasks: int (K,), the task that brings each class."""
    means = []
    for row, point in zip(hits, points):
        seen = tasks <= point
        right, count = (np.bincount(tasks[seen], weights=x[seen]) for x in (row, sizes))
        means.append(100 * (right[count > 0] / count[count > 0]).mean())
    return float(np.mean(means))


@dataclass(frozen=True)
class Summary:
    """Accuracies of R schedules; deviation over R - 1."""

    mean: float
    deviation: float
    worst: float
    best: float
    range: float


def summary(accuracies) -> Summary:
    """How accuracies (R,), R > 0, differ."""
    a = np.asarray(accuracies, np.float64)
    worst = float(a.min())
    best = float(a.max())
    mean = float(np.clip(a.mean(), worst, best))  # rounding must not make equal ones differ
    deviation = float(np.std(a, ddof=1)) if best > worst else 0.0
    return Summary(mean, deviation, worst, best, best - worst)


def disagreement(predictions: np.ndarray, times: np.ndarray) -> float:
    """Percent of samples that two schedules' predictors label differently, mean over pairs of
    schedules: with n_c of R predictors saying c for a sample, sum_c n_c (n_c - 1) of its R (R - 1)
    ordered pairs agree.
    predictions: (D, N), distinct rows. times: int (D,), how many schedules gave each."""
    total = int(times.sum())
    if total < 2:
        return 0.0
    votes = (times @ (predictions == label) for label in np.unique(predictions))
    agreeing = sum(int((n * (n - 1)).sum()) for n in votes)
    return 100 * (1 - agreeing / (predictions.shape[1] * total * (total - 1)))


def largest_weight_difference(weights: list) -> float:
    """max over pairs of schedules and over weights of |w_r - w_s|; infinite if not finite, or of
    different numbers of weights. weights: arrays (P,)."""
    if len({len(row) for row in weights}) > 1:
        return float('inf')
    high = reduce(np.maximum, weights).astype(np.float64)
    gap = float((high - reduce(np.minimum, weights)).max(initial=0))
    return gap if np.isfinite(gap) else float('inf')


@dataclass(frozen=True)
class Verdict:
    """The effect of R schedules on one method: whether digests claimed to be equal are, how many
    different ones there are by name, the largest difference of weights, percent of disagreement,
    and accuracies in percent."""

    schedules: int
    identical: bool
    distinct: dict
    weight_difference: float
    disagreement: float
    final: Summary
    incremental: Summary

    def report(self) -> str:
        """The verdict in lines."""
        counts = [f'{name} {count}' for name, count in self.distinct.items() if count]
        lines = [self.sentence(), f'number of different digests: {", ".join(counts)}']
        if self.identical and max(self.distinct.values()) > 1:
            made = '' if self.distinct.get('f*') else ', which was not made'
            lines.append(f'the stored samples (buffer) differed; only f* depends on them{made}')
        for name, values in (
            ('final accuracy', self.final),
            ('average incremental accuracy, on the way there', self.incremental),
        ):
            lines.append(
                f'{name}: {values.mean:.2f} +- {values.deviation:.2f} %, worst {values.worst:.2f}'
            )
        return '\n  '.join(lines)

    def sentence(self) -> str:
        """The verdict in a line."""
        if self.identical:
            return f'the same predictor, bit for bit, under {self.schedules} schedules'
        return (
            f'not identical under {self.schedules} schedules: weights up to '
            f'{self.weight_difference:.3g} apart, two predictors disagree on '
            f'{self.disagreement:.2f} % of the test samples, accuracy '
            f'{self.final.worst:.2f} to {self.final.best:.2f} %'
        )


def judge(digests: dict, claimed: dict, outcomes: dict, final, incremental) -> Verdict:
    """The verdict over R schedules. digests: name -> R digests, None where there is none. claimed:
    name -> those that are claimed equal. outcomes: digest of an outcome -> (times, weights (P,),
    predictions (N,)); times add up to R. final, incremental: R accuracies, percent."""
    distinct = {name: len({*values} - {None}) for name, values in digests.items()}
    identical = all(len({*values} - {None}) <= 1 for values in claimed.values())
    times, weights, predictions = zip(*outcomes.values())
    return Verdict(
        len(final),
        identical,
        distinct,
        largest_weight_difference(weights),
        disagreement(np.stack(predictions), np.array(times)),
        summary(final),
        summary(incremental),
    )
