"""The replay buffer: which samples of each class are kept, and how many.

How many: `quotas`, a pure function of the numbers seen. Which: one of the strategies below, each a ranking of
a class's candidates; shrinking a class means cutting the end of its ranking. Candidates are put in order of
their keys (digests of their pixels) first, so a choice depends on the set of candidates, never on their
order; ties go to the lowest key.

- `herding` (paper, section 3.3; iCaRL): greedily keeps the mean of the chosen nearest to the mean of *all*
  samples of the class seen so far, known exactly from the statistics. With classes that arrive whole the
  buffer is the same in any order.
- `hash`: the samples of lowest key. The same buffer under every schedule; shards can be merged.
- `random`: a reservoir for each class. `nearest`, `outlier`: smallest or largest distance to the class mean.
"""
import copy
import hashlib
import json
from dataclasses import dataclass

import numpy as np

from scroll.arguments import MOST_SEED, one_of, whole
from scroll.errors import InputError
from scroll.grid import little_endian, native
from scroll.labels import by_label, check_labels, label_array
from scroll.learned_keys import LearnedKeys
from scroll.randomness import numpy_stream
from scroll.rankings import by_distance, herding_orders
from scroll.statistics import Statistics

STRATEGIES = ('herding', 'random', 'nearest', 'outlier', 'hash')


def quotas(counts, capacity: int) -> np.ndarray:
    """How many samples of each class to keep: water-filling.

    Every class gets all it has up to a common level; what is left over goes, one each, to the first classes
    that have more. Independent of the order of arrival.

    Args:
        counts: int (K,), samples seen of each class, classes in sorted order.

    Returns:
        int64 (K,); sums to min(capacity, counts.sum()).
    """
    counts = np.asarray(counts, np.int64)
    if counts.sum() <= capacity:
        return counts.copy()
    low, high = 0, capacity                     # largest level with sum(min(counts, level)) <= capacity
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.minimum(counts, level).sum() <= capacity else (low, level - 1)
    out = np.minimum(counts, low)
    out[np.flatnonzero(counts > low)[:capacity - out.sum()]] += 1
    return out


@dataclass
class _Kept:
    """A class, best first: keys uint64 (m,), features int32 (m, d), samples (m, ...), coins float64 (m,)."""
    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray
    coins: np.ndarray

    def take(self, positions) -> '_Kept':
        """Those at these positions, in their order."""
        return _Kept(*(a[positions] for a in (self.keys, self.features, self.samples, self.coins)))

    def join(self, other: '_Kept') -> '_Kept':
        """These, then the other's."""
        return _Kept(*(np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values())))


@dataclass(frozen=True)
class Exemplars:
    """A buffer in canonical order (class, key): labels (m,), keys (m,), features (m, d), samples (m, ...)."""
    labels: np.ndarray
    keys: np.ndarray
    features: np.ndarray
    samples: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self) -> str:
        """SHA-256 of labels and keys: of which samples are kept, from which f_T makes f*.

        Not of what becomes of it when more samples come: that is `ExemplarBuffer.state_digest`.
        """
        sha = hashlib.sha256(json.dumps(self.labels.tolist()).encode())
        sha.update(self.keys.astype('<u8').tobytes())
        return sha.hexdigest()


class ExemplarBuffer:
    """At most `capacity` samples, shared among the classes seen.

    Args:
        capacity: |M|, at least one.
        strategy: one of `STRATEGIES`.
        seed: for `random`.
    """

    def __init__(self, capacity: int, strategy: str = 'herding', seed: int = 0):
        one_of('buffer strategy', strategy, STRATEGIES)
        whole('buffer size', capacity, 1)
        whole('seed', seed, 0, MOST_SEED)
        self.capacity, self.strategy = int(capacity), strategy
        self._random = numpy_stream(seed, 'buffer')
        self._kept = {}

    def __len__(self) -> int:
        return sum(len(kept.keys) for kept in self._kept.values())

    def check(self, samples: np.ndarray) -> None:
        """InputError if these samples cannot be kept beside those that are: another shape or dtype."""
        kind = samples.dtype.newbyteorder('=')
        for kept in self._kept.values():
            if kept.samples.shape[1:] != samples.shape[1:] or kept.samples.dtype != kind:
                raise InputError(f'samples have shape {samples.shape[1:]} and dtype {samples.dtype}: the '
                                 f'buffer holds {kept.samples.shape[1:]}, {kept.samples.dtype}')

    def update(self, keys, features, samples, labels, statistics: Statistics) -> None:
        """Offer one segment. `statistics` must count it already: its sums are the herding target.

        Args:
            keys: uint64 (N,). features: int32 (N, d). samples: (N, ...), what is stored. labels: (N,).
        """
        labels = check_labels(labels, len(keys))
        keys, features, samples = map(native, (keys, features, samples))
        offered, chance = {}, copy.deepcopy(self._random)
        for label, at in by_label(labels):
            offered[label] = _Kept(keys[at], features[at], samples[at], chance.random(len(at)))
        self._kept, self._random = self._settled(self._kept, offered, statistics), chance

    def merge(self, other: 'ExemplarBuffer | None', statistics: Statistics) -> None:
        """Take in another stream's buffer, if it has one; `statistics` are the merged ones. Exact for `hash`,
        and for classes in one shard."""
        self._kept = self._settled(self._kept, {} if other is None else other._kept, statistics)

    def remove(self, keys, labels) -> None:
        """Drop these samples if they are kept. Their share of the capacity is free until new samples come."""
        left = dict(self._kept)
        for key, label in zip(np.asarray(keys, np.uint64), check_labels(labels, len(keys)).tolist()):
            if label in left:
                kept = left[label]
                others = np.delete(np.arange(len(kept.keys)), np.flatnonzero(kept.keys == key)[:1])
                left[label] = kept.take(others)
        self._kept = {label: kept for label, kept in left.items() if len(kept.keys)}

    def drop(self, classes) -> None:
        """Drop whole classes. Their share of the capacity is free until new samples come."""
        gone = set(np.asarray(classes).tolist())
        self._kept = {label: kept for label, kept in self._kept.items() if label not in gone}

    def rename(self, names: dict, statistics: Statistics) -> None:
        """Call each class as `names` says; `statistics` do so already. What is left over of a shared capacity
        goes to the first classes: one that is now later may lose a sample."""
        kept = {names[label]: kept for label, kept in self._kept.items()}
        self._kept = self._settled(kept, {}, statistics)

    def refill(self, keys, features, samples, labels, statistics: Statistics) -> None:
        """Offer samples that `statistics` count already; none is taken twice. Arguments as `update`.

        With all samples of a class at once, it is chosen as if it had just come.
        """
        new = self.keys().lacks(keys, labels)
        self.update(keys[new], features[new], samples[new], check_labels(labels, len(keys))[new], statistics)

    def keys(self) -> LearnedKeys:
        """Which samples are kept."""
        out = LearnedKeys()
        for label, kept in self._kept.items():
            out.add(kept.keys, label_array([label] * len(kept.keys)))
        return out

    def _settled(self, kept: dict, offered: dict, statistics: Statistics) -> dict:
        """What is kept when classes that have new candidates are ranked, and each is cut to its quota."""
        labels = sorted(kept.keys() | offered.keys())
        if not labels:
            return {}
        rows, sums = statistics.class_sums(labels)
        counts = statistics.counts[rows]
        allowed, out = quotas(statistics.counts, self.capacity)[rows], {}
        for label in labels:
            own = kept.get(label)
            if label in offered:
                own = offered[label] if own is None else own.join(offered[label])
                own = own.take(np.argsort(own.keys, kind='stable'))
            out[label] = own
        new = [place for place, label in enumerate(labels) if label in offered]
        candidates = [out[labels[place]] for place in new]
        ranked = self._rank(candidates, sums[new, :statistics.dim], counts[new], allowed[new])
        for place, own, best in zip(new, candidates, ranked):
            out[labels[place]] = own.take(best)
        cut = ((label, own, quota) for (label, own), quota in zip(out.items(), allowed.tolist()))
        return {label: own if len(own.keys) <= quota else own.take(slice(quota))
                for label, own, quota in cut if quota and len(own.keys)}

    def _rank(self, classes: list, sums: np.ndarray, counts: np.ndarray, allowed: np.ndarray):
        """Yield for each class the positions of its best candidates, best first: those allowed, or more.

        Args:
            classes: [`_Kept`, ...] in order of key. sums: int64 (C, d). counts, allowed: int64 (C,).
        """
        if self.strategy == 'herding':
            yield from herding_orders([kept.features for kept in classes], sums, counts, allowed)
            return
        for kept, class_sum, count, k in zip(classes, sums, counts.tolist(), allowed.tolist()):
            if self.strategy == 'random':
                yield np.argsort(kept.coins, kind='stable')[:k]
            elif self.strategy == 'hash':
                yield np.arange(len(kept.keys))[:k]
            else:
                sign = 1 if self.strategy == 'nearest' else -1
                yield by_distance(kept.features, class_sum, count, sign)[:k]

    def state_dict(self) -> dict:
        """All that is kept, as arrays by name, the best of a class first, and the random stream."""
        parts = {label: vars(kept) for label, kept in sorted(self._kept.items())}
        names = next(iter(parts.values()), ())
        arrays = {name: np.concatenate([part[name] for part in parts.values()]) for name in names}
        sizes = [len(part['keys']) for part in parts.values()]
        return dict(labels=label_array(list(parts)), sizes=np.array(sizes, np.int64), **arrays,
                    random=self._random.bit_generator.state)

    def load_state_dict(self, state: dict) -> None:
        """Become what `state_dict` described."""
        chance = copy.deepcopy(self._random)                # copies of this buffer may hold the same one
        chance.bit_generator.state = state['random']
        self._random = chance
        labels, cuts = np.asarray(state['labels']).tolist(), np.cumsum(state['sizes'])[:-1]
        names = ('keys', 'features', 'samples', 'coins') if labels else ()
        columns = [np.split(state[name], cuts) for name in names]
        self._kept = {label: _Kept(*arrays) for label, *arrays in zip(labels, *columns)}

    def state_digest(self) -> str:
        """SHA-256 of all that later choices depend on: equal buffers stay equal under equal input.

        Capacity, strategy, and the kept samples of each class in the order in which they would be dropped; of
        `random` their coins, too, and the state of the random stream, which the other strategies do not look
        at. Equal content (`Exemplars.digest`) promises less: of two buffers with the same samples, ranked
        otherwise, other ones go first.
        """
        chance = self._random.bit_generator.state if self.strategy == 'random' else None
        sha = hashlib.sha256(json.dumps([self.capacity, self.strategy, chance], sort_keys=True).encode())
        for label, kept in sorted(self._kept.items()):
            arrays = {name: little_endian(array) for name, array in vars(kept).items()
                      if name != 'coins' or self.strategy == 'random'}
            about = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
            sha.update(json.dumps([label, about]).encode())
            for array in arrays.values():
                sha.update(array.tobytes())
        return sha.hexdigest()

    def check_quotas(self, statistics: Statistics) -> None:
        """InputError if more samples of a class are kept than its quota is."""
        allowed = dict(zip(statistics.classes.tolist(), quotas(statistics.counts, self.capacity).tolist()))
        for label, kept in self._kept.items():
            if len(kept.keys) > allowed.get(label, 0):
                raise InputError(f'the buffer has {len(kept.keys)} samples of class {label!r}: its quota is '
                                 f'{allowed.get(label, 0)}')

    def content(self) -> Exemplars:
        """What is kept, in canonical order. An empty buffer is an InputError."""
        if not self._kept:
            raise InputError('the buffer is empty')
        parts = [(label, kept.take(np.argsort(kept.keys, kind='stable')))
                 for label, kept in sorted(self._kept.items())]
        labels = label_array([label for label, kept in parts for _ in kept.keys])
        return Exemplars(labels, *(np.concatenate([getattr(kept, name) for _, kept in parts])
                                   for name in ('keys', 'features', 'samples')))
