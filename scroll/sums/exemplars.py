"""The replay buffer: which samples of each class are kept, and how many.

How many: `quotas`, a pure function of the numbers seen. Which: a strategy ranks a class's
candidates, and shrinking a class cuts the end of its ranking. Candidates are put in order of their
keys (digests of their pixels) first, so a choice depends on the set of candidates, never on their
order; ties go to the lowest key.

- `herding` (paper, section 3.3; iCaRL): greedily keeps the mean of the chosen nearest to the mean
  of *all*
  samples of the class, known from the statistics. With classes that arrive whole it is the same in
  any order.
- `hash`: the samples of lowest key. The same buffer under every schedule; shards can be merged.
- `random`: a reservoir for each class. `nearest`, `outlier`: smallest or largest distance to the
  class mean.
"""

import copy
import hashlib
import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scroll.ground.arguments import MAX_SEED, one_of, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import check_quantised, native
from scroll.ground.labels import by_label, check_labels, label_array
from scroll.ground.randomness import numpy_stream
from scroll.ground.settings import STRATEGIES
from scroll.sums.statistics import Statistics

_TOGETHER = 1 << 12  # candidates of whom all products are held at once
_SPLIT = 20  # bits of the lower part of integers that int64 cannot hold
# names in files and digests, of the fields of `_Kept`
_ARRAYS = ('keys', 'features', 'samples', 'coins')


def quotas(counts, capacity: int) -> np.ndarray:
    """How many samples of each class to keep, int64 (K,), by water-filling: every class gets all it
    has up to a common level; what is left over goes, one each, to the first classes that have more.
    counts: int (K,), samples seen of each class, classes in sorted order."""
    counts = np.asarray(counts, np.int64)
    if counts.sum() <= capacity:
        return counts.copy()
    low, high = 0, capacity  # largest level with sum(min(counts, level)) <= capacity
    while low < high:
        level = (low + high + 1) // 2
        low, high = (
            (level, high) if np.minimum(counts, level).sum() <= capacity else (low, level - 1)
        )
    out = np.minimum(counts, low)
    out[np.flatnonzero(counts > low)[: capacity - out.sum()]] += 1
    return out


class _Kept(NamedTuple):
    """Samples of a class, best first; random_priority: float64 (m,), drawn once for each sample."""

    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray
    random_priority: np.ndarray

    def at(self, positions) -> '_Kept':
        """Those at these positions, in their order."""
        return _Kept(*(array[positions] for array in self))


@dataclass(frozen=True)
class Exemplars:
    """A buffer in canonical order (class, key): labels (m,), keys (m,), features (m, d), samples
    (m, ...).
    """

    labels: np.ndarray
    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, positions) -> 'Exemplars':
        """Those at these positions, in their order."""
        return Exemplars(*(array[positions] for array in vars(self).values()))

    def digest(self) -> str:
        """SHA-256 of labels and keys: of which samples are kept."""
        sha = hashlib.sha256(json.dumps(self.labels.tolist()).encode())
        sha.update(self.keys.astype('<u8').tobytes())
        return sha.hexdigest()


class ExemplarBuffer:
    """At most `capacity` samples (|M|, at least one), shared among the classes seen. What it holds
    is replaced, never changed, so `copy.copy` copies it. `strategy`: of `STRATEGIES`; `seed`: for
    `random`.

    Attributes:
        complete: whether every class has its quota, and always had. False once an edit has left
        places whose
            next samples had been let go, and cannot come back: from then on a `hash` buffer, and f*
            with it,
            may be another than that of a stream without what was removed. True again where all is
            kept."""

    complete = True  # of the class: pickles of earlier versions have none

    def __init__(self, capacity: int, strategy: str = 'herding', seed: int = 0):
        one_of('buffer strategy', strategy, STRATEGIES)
        whole('buffer size', capacity, 1)
        whole('seed', seed, 0, MAX_SEED)
        self.capacity, self.strategy = int(capacity), strategy
        self._random, self._kept = numpy_stream(seed, 'buffer'), {}

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
        target. keys: uint64 (N,). features: int32 (N, d). samples: (N, ...), what is stored.
        labels: (N,)."""
        labels = check_labels(labels, len(keys))
        keys, features, samples = map(native, (keys, features, samples))
        offered, random = {}, copy.deepcopy(self._random)
        for label, at in by_label(labels):
            offered[label] = _Kept(keys[at], features[at], samples[at], random.random(len(at)))
        self._kept, self._random = self._chosen(self._kept, offered, statistics), random

    def merge(self, other: 'ExemplarBuffer | None', statistics: Statistics) -> None:
        """Add another stream's buffer, if it has one; `statistics` are the merged ones. Exact for
        `hash`, and for classes in one shard."""
        alike = (
            other is not None
            and other.strategy == self.strategy
            and other.capacity >= self.capacity
        )
        self.complete = self.complete and alike and other.complete
        self._kept = self._chosen(self._kept, {} if other is None else other._kept, statistics)
        self._check_complete(statistics)

    def _check_complete(self, statistics: Statistics) -> None:
        """Find out whether an edit has left free places, where samples have been let go."""
        sizes = [
            len(self._kept[label].keys) if label in self._kept else 0
            for label in statistics.classes.tolist()
        ]
        full = sizes == quotas(statistics.counts, self.capacity).tolist()
        self.complete = full and (self.complete or len(self) == statistics.total)

    def remove(self, keys, labels, statistics: Statistics) -> None:
        """Drop these samples, which `statistics` no longer count, if they are kept. Their places
        are free until new samples come."""
        left = dict(self._kept)
        for key, label in zip(
            np.asarray(keys, np.uint64), check_labels(labels, len(keys)).tolist()
        ):
            if label in left:
                own = left[label].keys
                left[label] = left[label].at(
                    np.delete(np.arange(len(own)), np.flatnonzero(own == key)[:1])
                )
        self._kept = {label: kept for label, kept in left.items() if len(kept.keys)}
        self._check_complete(statistics)

    def drop(self, classes, statistics: Statistics) -> None:
        """Drop whole classes, as `remove`."""
        gone = set(np.asarray(classes).tolist())
        self._kept = {label: kept for label, kept in self._kept.items() if label not in gone}
        self._check_complete(statistics)

    def rename(self, names: dict, statistics: Statistics) -> None:
        """Call each class as `names` says; `statistics` do so already. What is left over of a
        shared capacity goes to the first classes: one that is now later may lose a sample."""
        self._kept = self._chosen(
            {names[label]: kept for label, kept in self._kept.items()}, {}, statistics
        )
        self._check_complete(statistics)

    def _chosen(self, kept: dict, offered: dict, statistics: Statistics) -> dict:
        """What is kept when classes that have new candidates are ranked, and each is cut to its
        quota.
        """
        labels = sorted(kept.keys() | offered.keys())
        rows = np.searchsorted(statistics.classes, label_array(labels)) if labels else []
        sums, counts, allowed = (
            statistics.sums,
            statistics.counts,
            quotas(statistics.counts, self.capacity),
        )
        out = {}
        for label, row in zip(labels, rows):
            own, quota = kept.get(label), int(allowed[row])
            if label in offered:
                own = _joined(own, offered[label])
                own = own.at(self._best(own, sums[row, : statistics.dim], int(counts[row]), quota))
            own = own if len(own.keys) <= quota else own.at(slice(quota))
            if len(own.keys):
                out[label] = own
        return out

    def _best(self, kept: _Kept, class_sum: np.ndarray, count: int, k: int) -> np.ndarray:
        """Positions of the first k of the candidates of a class, in order of key, best first.
        class_sum: int64 (d,), of all its `count` samples."""
        if self.strategy == 'herding':
            return herding_order(kept.features, class_sum, count, k)
        if self.strategy == 'random':
            return np.argsort(kept.random_priority, kind='stable')[:k]
        if self.strategy == 'hash':
            return np.arange(len(kept.keys))[:k]
        f, sign = kept.features.astype(np.float64), 1 if self.strategy == 'nearest' else -1
        high, low = _distances((f * f).sum(axis=1), _towards(f, class_sum), 1, count)
        return np.lexsort((sign * low, sign * high))[:k]

    def state_dict(self) -> dict:
        """All that is kept, as arrays by name, the best of a class first, and the random stream."""
        parts = dict(sorted(self._kept.items()))
        arrays = dict(zip(_ARRAYS, map(np.concatenate, zip(*parts.values()))))
        return dict(
            labels=label_array(list(parts)),
            sizes=np.array([len(kept.keys) for kept in parts.values()], np.int64),
            **arrays,
            random=self._random.bit_generator.state,
        )

    @classmethod
    def from_arrays(
        cls, arrays: dict, facts: dict, statistics: Statistics, check_samples
    ) -> 'ExemplarBuffer':
        """What `state_dict` described, next to these statistics; one of several errors if no buffer
        can be like this. facts: capacity, strategy, random state, complete. check_samples:
        InputError for others."""
        out, sizes = cls(facts['capacity'], facts['strategy']), arrays['sizes']
        labels = check_labels(arrays['labels'].tolist(), len(arrays['labels']))
        if (
            sizes.shape != labels.shape
            or sizes.dtype != np.int64
            or (labels[1:] <= labels[:-1]).any()
            or arrays.keys() != {'labels', 'sizes', *(_ARRAYS if len(sizes) else ())}
        ):
            raise InputError('the arrays of the buffer are not those that a buffer has')
        quota = dict(
            zip(statistics.classes.tolist(), quotas(statistics.counts, out.capacity).tolist())
        )
        for label, size in zip(labels.tolist(), sizes.tolist()):
            if not 0 < size <= quota.get(label, 0):
                raise InputError(
                    f'the buffer has {size} samples of class {label!r}: its quota is '
                    f'{quota.get(label, 0)}'
                )
        if len(sizes):
            kept = _Kept(*(arrays[name] for name in _ARRAYS))
            types = kept.keys.dtype, kept.features.dtype, kept.random_priority.dtype
            if (
                {len(array) for array in kept} != {sum(sizes.tolist())}
                or types != (np.uint64, np.int32, np.float64)
                or kept.random_priority.ndim != 1
            ):
                raise InputError('the arrays of the buffer do not go together')
            check_quantised(kept.features, statistics.dim)
            check_samples(kept.samples)
            out._kept = {
                label: _Kept(*own)
                for label, *own in zip(
                    labels.tolist(), *(np.split(array, np.cumsum(sizes)[:-1]) for array in kept)
                )
            }
        out._random.bit_generator.state = facts['random']
        out.complete = facts.get('complete', True) is True
        out._check_complete(statistics)
        return out

    def content(self) -> Exemplars:
        """What is kept, in canonical order. An empty buffer is an InputError."""
        if not self._kept:
            raise InputError('the buffer is empty')
        parts = [
            (label, kept.at(np.argsort(kept.keys, kind='stable')))
            for label, kept in sorted(self._kept.items())
        ]
        labels = label_array([label for label, kept in parts for _ in kept.keys])
        return Exemplars(labels, *map(np.concatenate, list(zip(*(kept for _, kept in parts)))[:3]))


def _joined(kept: _Kept | None, offered: _Kept) -> _Kept:
    """The candidates of a class, in order of key."""
    both = offered if kept is None else _Kept(*map(np.concatenate, zip(kept, offered)))
    return both.at(np.argsort(both.keys, kind='stable'))


def herding_order(features: np.ndarray, class_sum: np.ndarray, count: int, k: int) -> np.ndarray:
    """Greedy herding: positions of the first k of the candidates, in order of choice. Step i takes argmin_j
    |mu - (f_j + sum of the chosen) / (i + 1)|, mu = class_sum / count; ties to the first position. float64
    decides where distances are further apart than its rounding, integers where they are not. features: int
    (n, d) on the grid. class_sum: int64 (d,), of all `count` samples of the class."""
    f, k = features.astype(np.float64), min(k, len(features))
    towards, squares = _towards(f, class_sum), np.einsum('nd,nd->n', f, f)
    rounded = 2 * (towards[0] * float(1 << _SPLIT) + towards[1])
    off = 2.0**-49 * (2 * count * squares.max(initial=0) + np.abs(rounded).max(initial=0))
    # or those of one after the other
    products = f @ f.T if len(f) <= min(2 * k, _TOGETHER) else None
    chosen = np.zeros(k, np.int64)
    for size in range(1, k + 1):  # squares: |f + s|^2 - |s|^2, s the sum of the chosen
        distances = count * squares - size * rounded  # each is off by less than half of size off
        best = distances.argmin()
        near = np.flatnonzero(distances <= distances[best] + size * off)
        if len(near) > 1:
            high, low = _distances(squares[near], [part[near] for part in towards], size, count)
            nearest = np.flatnonzero(high == high.min())
            best = near[nearest[low[nearest].argmin()]]
        chosen[size - 1] = best
        squares += 2 * (f @ f[best] if products is None else products[best])
        squares[best] = np.inf  # not again
    return chosen


def _towards(f: np.ndarray, class_sum: np.ndarray) -> tuple:
    """f . class_sum as (high, low), int64 (..., n) each, in units of 2^20 and 1; exact, all is <
    2^53.
    """
    parts = class_sum >> _SPLIT, class_sum & (1 << _SPLIT) - 1
    return tuple(
        (f @ part.astype(np.float64)[..., None])[..., 0].astype(np.int64) for part in parts
    )


def _distances(squares: np.ndarray, towards: tuple, size: int, count: int) -> tuple:
    """count squares - 2 size f . class_sum as (high, low), 0 <= low < 2^20: with squares = |f +
    s|^2 - |s|^2 the order of the distances of (f + s) / size from the class mean, s the sum of size
    - 1 others. int64 is enough for 2^27 samples of a class, 2^16 of them kept, and unit features of
      up to 2^14 numbers."""
    squares = squares.astype(np.int64)
    low = count * (squares & (1 << _SPLIT) - 1) - 2 * size * towards[1]
    return count * (squares >> _SPLIT) - 2 * size * towards[0] + (low >> _SPLIT), low & (
        1 << _SPLIT
    ) - 1
