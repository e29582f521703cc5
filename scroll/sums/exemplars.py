"""The replay buffer: which samples of each class are kept, and how many.

How many: `quotas`, a pure function of the numbers seen. Which: a strategy ranks a class's
candidates, and shrinking a class cuts the end of its ranking. Candidates are put in order of their
keys (digests of their pixels) first, so a choice depends on the set of candidates, never on their
order; ties go to the lowest key.

- `herding` (paper, section 3.3; iCaRL): greedily keeps the mean of the chosen nearest to the mean
  of *all* samples of the class, known from the statistics. If classes arrive whole it is the same
  in any order.
- `hash`: the samples of lowest key. The same buffer under every schedule; shards can be merged.
- `random`: a reservoir for each class.
- `nearest`, `outlier`: smallest or largest distance to the class mean.
"""

import bisect
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scroll.ground.arguments import MAX_SEED, one_of, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import check_quantised, digest_of, native
from scroll.ground.labels import by_label, check_labels, label_array
from scroll.ground.randomness import numpy_stream
from scroll.ground.settings import STRATEGIES
from scroll.sums.statistics import Statistics

_MAX_PRODUCTS = 1 << 12  # candidates of whom all products are held at once
_SPLIT = 20  # bits of the lower part of integers that int64 cannot hold
# names in files and digests, of the fields of `_Ranked`
_ARRAYS = ('keys', 'features', 'samples', 'coins')


def quotas(counts, capacity: int) -> np.ndarray:
    """Return how many samples of each class to keep, int64 (K,), by water-filling: every class gets
    all it has up to a common level; what is left over goes, one each, to the first classes that
    have more.

    counts: int (K,), samples seen of each class, classes in sorted order."""
    counts = np.asarray(counts, np.int64)
    if counts.sum() <= capacity:
        return counts.copy()

    def size(level: int) -> int:
        return np.minimum(counts, level).sum()

    level = bisect.bisect_right(range(capacity + 1), capacity, key=size) - 1
    out = np.minimum(counts, level)
    out[np.flatnonzero(counts > level)[: capacity - out.sum()]] += 1
    return out


class _Ranked(NamedTuple):
    """Samples of a class, best first.

    Attributes:
        keys: uint64 (m,).
        features: int32 (m, d).
        samples: (m, ...), as they are stored.
        random_priority: float64 (m,), drawn once for each sample."""

    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray
    random_priority: np.ndarray

    def at(self, positions) -> '_Ranked':
        """Return the samples at these positions, in their order."""
        return _Ranked(*(array[positions] for array in self))


@dataclass(frozen=True)
class Exemplars:
    """Content of a buffer in canonical order (class, key).

    Attributes:
        labels: (m,).
        keys: uint64 (m,).
        features: int32 (m, d).
        samples: (m, ...), as they are stored."""

    labels: np.ndarray
    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, positions) -> 'Exemplars':
        """Return the exemplars at these positions, in their order."""
        return Exemplars(*(array[positions] for array in vars(self).values()))

    def digest(self) -> str:
        """Return the SHA-256 of labels and keys."""
        return digest_of(self.labels.tolist(), self.keys)


class ExemplarBuffer:
    """Buffer of samples, shared among the classes seen. Its content is replaced, never changed, so
    `copy.copy` copies it.

    capacity: |M|, the largest number of samples, at least 1.
    strategy: one of `STRATEGIES`.
    seed: of strategy `random`.
    InputError: an invalid value.

    Attributes:
        complete: True if every class has its quota, and always had. False once an edit has left
            free places whose next samples had been let go, and cannot come back: from then on a
            `hash` buffer, and f* with it, may be another than that of a stream without what was
            removed. True again where all is kept."""

    complete = True  # of the class: pickles of earlier versions have none

    def __init__(self, capacity: int, strategy: str = 'herding', seed: int = 0):
        one_of('buffer strategy', strategy, STRATEGIES)
        whole('buffer size', capacity, 1)
        whole('seed', seed, 0, MAX_SEED)
        self.capacity = int(capacity)
        self.strategy = strategy
        self._random = numpy_stream(seed, 'buffer')
        self._kept: dict = {}  # label -> `_Ranked`, never empty

    def __len__(self) -> int:
        return sum(len(kept.keys) for kept in self._kept.values())

    def check(self, samples: np.ndarray) -> None:
        """InputError if samples have another shape or dtype than those that are kept."""
        kind = samples.dtype.newbyteorder('=')
        for kept in self._kept.values():
            if kept.samples.shape[1:] != samples.shape[1:] or kept.samples.dtype != kind:
                raise InputError(
                    f'samples have shape {samples.shape[1:]} and dtype {samples.dtype}: the '
                    f'buffer holds {kept.samples.shape[1:]}, {kept.samples.dtype}'
                )

    def update(self, keys, features, samples, labels, statistics: Statistics) -> None:
        """Offer one segment, which `statistics` must count already: its sums are the herding
        target.

        keys: uint64 (N,).
        features: int32 (N, d).
        samples: (N, ...), as they are to be stored.
        labels: (N,)."""
        labels = check_labels(labels, len(keys))
        random = copy.deepcopy(self._random)

        def candidates(at: np.ndarray) -> _Ranked:
            own = native(features[at])
            stored = own if samples is features else native(samples[at])
            return _Ranked(native(keys[at]), own, stored, random.random(len(at)))

        self._kept = self._chosen(self._kept, dict(by_label(labels)), statistics, candidates)
        self._random = random

    def merge(self, other: 'ExemplarBuffer | None', statistics: Statistics) -> None:
        """Add another stream's buffer, if it has one; `statistics` are the merged ones. Exact for
        `hash`, and for classes in one shard."""
        self.complete = (
            self.complete
            and other is not None
            and other.complete
            and other.strategy == self.strategy
            and other.capacity >= self.capacity
        )
        self._kept = self._chosen(self._kept, {} if other is None else other._kept, statistics)
        self._check_complete(statistics)

    def _quota_of(self, statistics: Statistics) -> dict:
        """Return label -> quota."""
        allowed = quotas(statistics.counts, self.capacity)
        return dict(zip(statistics.classes.tolist(), allowed.tolist()))

    def _check_complete(self, statistics: Statistics) -> None:
        """Find out whether an edit has left free places, where samples have been let go."""
        quota_of = self._quota_of(statistics)
        full = all(
            (len(self._kept[label].keys) if label in self._kept else 0) == quota
            for label, quota in quota_of.items()
        )
        self.complete = full and (self.complete or len(self) == statistics.total)

    def remove(self, keys, labels, statistics: Statistics) -> None:
        """Drop these samples, which `statistics` no longer count, if they are kept. Their places
        are free until new samples come."""
        left = dict(self._kept)
        labels = check_labels(labels, len(keys)).tolist()
        for key, label in zip(np.asarray(keys, np.uint64), labels):
            if label in left:
                first = np.flatnonzero(left[label].keys == key)[:1]
                if len(first):  # else arrays would be copied for nothing
                    left[label] = _Ranked(*(np.delete(a, first, axis=0) for a in left[label]))
        self._kept = {label: ranked for label, ranked in left.items() if len(ranked.keys)}
        self._check_complete(statistics)

    def drop(self, classes, statistics: Statistics) -> None:
        """Drop whole classes, as `remove`."""
        dropped = np.asarray(classes).tolist()
        self._kept = {label: ranked for label, ranked in self._kept.items() if label not in dropped}
        self._check_complete(statistics)

    def rename(self, names: dict, statistics: Statistics) -> None:
        """Rename each class by `names`; `statistics` have the new names. Spare places of a shared
        capacity go to the first classes: a class that is now later may lose a sample."""
        renamed = {names[label]: ranked for label, ranked in self._kept.items()}
        self._kept = self._chosen(renamed, {}, statistics)
        self._check_complete(statistics)

    def _chosen(
        self, kept: dict, offered: dict, statistics: Statistics, candidates=lambda ranked: ranked
    ) -> dict:
        """Return the content when classes that have new candidates are ranked, and each is cut to
        its quota. candidates: what is offered of a class -> `_Ranked`; called for one class after
        the other, so that not all are in memory at once.
        """
        quota_of = self._quota_of(statistics)
        classes = statistics.classes
        counts = statistics.counts
        sums = statistics.sums
        out = {}
        for label in sorted(kept.keys() | offered.keys()):
            quota = quota_of[label]
            if label in offered:
                row = np.searchsorted(classes, label_array([label]))[0]
                ranked = _joined(kept.get(label), candidates(offered[label]))
                target = sums[row, : statistics.dim]
                ranked = ranked.at(self._best(ranked, target, int(counts[row]), quota))
            else:
                ranked = kept[label]
            if quota:
                out[label] = ranked.at(slice(quota))
        return out

    def _best(self, kept: _Ranked, class_sum: np.ndarray, count: int, k: int) -> np.ndarray:
        """Return positions of the first k of the candidates of a class, in order of key, best
        first. class_sum: int64 (d,), over all its `count` samples."""
        if self.strategy == 'herding':
            return herding_order(kept.features, class_sum, count, k)
        if self.strategy == 'random':
            return np.argsort(kept.random_priority, kind='stable')[:k]
        if self.strategy == 'hash':
            return np.arange(len(kept.keys))[:k]
        f = kept.features.astype(np.float64)
        sign = 1 if self.strategy == 'nearest' else -1
        high, low = _distances((f * f).sum(axis=1), *_dot_in_two_parts(f, class_sum), 1, count)
        return np.lexsort((sign * low, sign * high))[:k]

    def state_dict(self) -> dict:
        """Return all samples as arrays by name, the best of a class first, and the random
        stream.
        """
        parts = dict(sorted(self._kept.items()))
        arrays = dict(zip(_ARRAYS, map(np.concatenate, zip(*parts.values()))))
        return dict(
            labels=label_array(list(parts)),
            sizes=np.array([len(ranked.keys) for ranked in parts.values()], np.int64),
            **arrays,
            random=self._random.bit_generator.state,
        )

    @classmethod
    def from_arrays(
        cls,
        arrays: dict,
        facts: dict,
        statistics: Statistics,
        check_samples: Callable[[np.ndarray], None],
    ) -> 'ExemplarBuffer':
        """Build the buffer of `state_dict`; one of several errors if no buffer can be like this.

        arrays: of `state_dict`.
        facts: capacity, strategy, random state, complete.
        statistics: of all samples seen.
        check_samples: raises an InputError for samples that cannot be stored."""
        out = cls(facts['capacity'], facts['strategy'])
        sizes = arrays['sizes']
        labels = check_labels(arrays['labels'].tolist(), len(arrays['labels']))
        if (
            sizes.shape != labels.shape
            or sizes.dtype != np.int64
            or (labels[1:] <= labels[:-1]).any()
            or arrays.keys() != {'labels', 'sizes', *(_ARRAYS if len(sizes) else ())}
        ):
            raise InputError('the arrays of the buffer are not those that a buffer has')
        quota_of = out._quota_of(statistics)
        for label, size in zip(labels.tolist(), sizes.tolist()):
            quota = quota_of.get(label, 0)
            if not 0 < size <= quota:
                raise InputError(
                    f'the buffer has {size} samples of class {label!r}: its quota is {quota}'
                )
        if len(sizes):
            ranked = _Ranked(*(arrays[name] for name in _ARRAYS))
            if (
                {len(array) for array in ranked} != {sum(sizes.tolist())}
                or ranked.keys.dtype != np.uint64
                or ranked.features.dtype != np.int32
                or ranked.random_priority.dtype != np.float64
                or ranked.random_priority.ndim != 1
            ):
                raise InputError('the arrays of the buffer do not go together')
            check_quantised(ranked.features, statistics.dim)
            check_samples(ranked.samples)
            starts = np.cumsum(sizes) - sizes
            for label, start, size in zip(labels.tolist(), starts, sizes):
                out._kept[label] = ranked.at(slice(start, start + size))
        out._random.bit_generator.state = facts['random']
        out.complete = facts.get('complete', True) is True
        out._check_complete(statistics)
        return out

    def content(self) -> Exemplars:
        """Return the samples, in canonical order. InputError: the buffer is empty."""
        if not self._kept:
            raise InputError('the buffer is empty')
        parts = dict(sorted(self._kept.items()))
        labels = [label for label, ranked in parts.items() for _ in ranked.keys]
        keys, features, samples, _ = map(
            np.concatenate, zip(*(_joined(None, ranked) for ranked in parts.values()))
        )
        return Exemplars(label_array(labels), keys, features, samples)


def _joined(ranked: _Ranked | None, offered: _Ranked) -> _Ranked:
    """Return the candidates of a class, in order of key."""
    both = offered if ranked is None else _Ranked(*map(np.concatenate, zip(ranked, offered)))
    return both.at(np.argsort(both.keys, kind='stable'))


def herding_order(features: np.ndarray, class_sum: np.ndarray, count: int, k: int) -> np.ndarray:
    """Greedy herding: positions of the first k of the candidates, in order of choice. Step i takes
    argmin_j |mu - (f_j + sum of the chosen) / (i + 1)|, mu = class_sum / count; ties to the first
    position. float64 decides where distances are further apart than its rounding, integers where
    they are not.

    features: int (n, d) on the grid.
    class_sum: int64 (d,), over all `count` samples of the class."""
    f = features.astype(np.float64)
    k = min(k, len(features))
    high_dot, low_dot = _dot_in_two_parts(f, class_sum)
    squares = np.einsum('nd,nd->n', f, f)
    rounded = 2 * (high_dot * float(1 << _SPLIT) + low_dot)
    off = 2.0**-52 * (2 * count * squares.max(initial=0) + np.abs(rounded).max(initial=0))
    # or those of one after the other
    all_at_once = len(f) <= min(2 * k, _MAX_PRODUCTS)
    changes = 2 * count * (f @ f.T) - rounded if all_at_once else None
    # count (|f + s|^2 - |s|^2) - 2 size f . class_sum, s the sum of the chosen
    distances = count * squares - rounded
    chosen = np.zeros(k, np.int64)
    for size in range(1, k + 1):
        best = distances.argmin()
        least = distances[best]
        distances[best] = np.inf  # not again
        # each distance is off by less than half of that: 4 roundings of a change, and one of each
        # sum, which grows with size
        limit = least + size * (size + 8) * off
        if distances[distances.argmin()] <= limit:
            distances[best] = least
            near = np.flatnonzero(distances <= limit)
            exact = squares[near] + 2 * f[near] @ f[chosen[: size - 1]].sum(axis=0)
            high, low = _distances(exact, high_dot[near], low_dot[near], size, count)
            nearest = np.flatnonzero(high == high.min())
            best = near[nearest[low[nearest].argmin()]]
            distances[best] = np.inf
        chosen[size - 1] = best
        distances += 2 * count * (f @ f[best]) - rounded if changes is None else changes[best]
    return chosen


def _dot_in_two_parts(f: np.ndarray, class_sum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return f . class_sum, of rows f (n, d), as (high, low), int64 (n,) each, in units of 2^20 and
    1; exact, since all is < 2^53.
    """
    parts = np.array([class_sum >> _SPLIT, class_sum & (1 << _SPLIT) - 1], np.float64)
    high, low = (parts @ f.T).astype(np.int64)
    return high, low


def _distances(
    squares: np.ndarray, high_dot: np.ndarray, low_dot: np.ndarray, size: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return count squares - 2 size f . class_sum as (high, low), 0 <= low < 2^20: with squares =
    |f + s|^2 - |s|^2 the order of the distances of (f + s) / size from the class mean, s the sum of
    size - 1 others. int64 is enough for 2^27 samples of a class, 2^16 of them kept, and unit
    features of up to 2^14 numbers."""
    squares = squares.astype(np.int64)
    ones = (1 << _SPLIT) - 1
    low = count * (squares & ones) - 2 * size * low_dot
    high = count * (squares >> _SPLIT) - 2 * size * high_dot
    return high + (low >> _SPLIT), low & ones
