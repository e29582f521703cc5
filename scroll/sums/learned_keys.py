"""Learned keys: a multiset of keys of samples (`scroll.ground.grid.sample_keys`), by class.

Sums cannot tell a sample that was never added from one that was; keys can. A learner that keeps
them refuses to unlearn what it never learned, or has unlearned already.

    >>> import numpy as np
    >>> known = LearnedKeys().add(np.array([7, 9, 7], np.uint64), ['ant', 'bee', 'ant'])
    >>> known.remove(np.array([7], np.uint64), ['ant'])
    >>> known.lacks(np.array([7, 7, 9], np.uint64), ['ant', 'ant', 'bee']).tolist()
    [1]
"""

from itertools import chain

import numpy as np

from scroll.ground.errors import InputError
from scroll.ground.labels import by_label, check_labels, label_array
from scroll.sums.statistics import Statistics

_NONE = np.zeros(0, np.uint64)
_MAX_PARTS = 128  # of a class that wait to be sorted together


class LearnedKeys:
    """Multiset of (key, label). `copy.copy` copies it: its content is replaced, never changed."""

    def __init__(self):
        self._parts = {}  # label -> uint64 arrays, each sorted

    def add(self, keys, labels) -> 'LearnedKeys':
        """Add samples. keys: uint64 (N,). labels: (N,)."""
        parts = dict(self._parts)
        for label, at in by_label(check_labels(labels, len(keys))):
            more = (*parts.get(label, ()), np.sort(keys[at]))
            parts[label] = more if len(more) < _MAX_PARTS else (np.sort(np.concatenate(more)),)
        self._parts = parts
        return self

    def samples(self) -> tuple[np.ndarray, np.ndarray]:
        """Return keys uint64 (N,) and labels (N,) of all samples."""
        arrays = self.state_dict()
        return arrays['keys'], np.repeat(arrays['labels'], arrays['sizes'])

    def lacks(self, keys, labels) -> np.ndarray:
        """Return positions of the samples that are not in it, or not as often as they are given,
        int64, ascending.
        """
        return self._without(keys, labels)[1]

    def remove(self, keys, labels) -> None:
        """Remove samples, each once; InputError, with nothing changed, if one is not in it."""
        left, lacking = self._without(keys, labels)
        if len(lacking):
            raise InputError(
                f'{len(lacking)} of {len(keys)} samples were never learned with these labels, '
                f'or have been removed already: the first is at {lacking[0]}'
            )
        self._parts = left

    def _without(self, keys, labels) -> tuple[dict, np.ndarray]:
        """Return the parts without these samples, and positions of those that are not there."""
        left = dict(self._parts)
        missing = np.zeros(len(keys), bool)
        for label, at in by_label(check_labels(labels, len(keys))):
            # its parts are sorted
            learned = np.sort(np.concatenate([_NONE, *left.pop(label, ())]), kind='stable')
            order = at[np.argsort(keys[at], kind='stable')]
            asked = keys[order]
            # of equal keys one after the other
            places = np.arange(len(asked)) - np.searchsorted(asked, asked)
            places += np.searchsorted(learned, asked)
            missing[order] = places >= np.searchsorted(learned, asked, 'right')
            rest = np.delete(learned, places[~missing[order]])
            if len(rest):
                left[label] = (rest,)
        return left, np.flatnonzero(missing)

    def drop(self, classes: np.ndarray) -> None:
        """Remove whole classes."""
        gone = classes.tolist()
        self._parts = {label: parts for label, parts in self._parts.items() if label not in gone}

    def rename(self, names: dict) -> None:
        """Rename each class by `names`."""
        self._parts = {names[label]: parts for label, parts in self._parts.items()}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return arrays by name: labels (K,), sorted; sizes int64 (K,); keys uint64 (N,), class
        after class, each sorted.
        """
        content = dict(sorted(self._parts.items()))
        sizes = np.array([sum(map(len, parts)) for parts in content.values()], np.int64)
        keys = np.concatenate([_NONE, *chain(*content.values())])
        for of_class in np.split(keys, np.cumsum(sizes)[:-1]):
            of_class.sort()
        return {'labels': label_array(list(content)), 'sizes': sizes, 'keys': keys}

    @classmethod
    def from_arrays(cls, arrays: dict, statistics: Statistics) -> 'LearnedKeys':
        """Build the keys of `state_dict`; InputError unless they can be those of the samples that
        `statistics` count.
        """
        if not (
            arrays['keys'].dtype == np.uint64
            and arrays['keys'].shape == (statistics.total,)
            and arrays['labels'].tolist() == statistics.classes.tolist()
            and arrays['sizes'].tolist() == statistics.counts.tolist()
        ):
            raise InputError('the keys are not those of the samples that the statistics count')
        return cls().add(arrays['keys'], np.repeat(arrays['labels'], arrays['sizes']))
