"""Learned keys: a multiset of keys of samples (`scroll.ground.grid.sample_keys`), by class.

Sums cannot tell a sample that was never added from one that was; keys can. A learner that keeps
them refuses to unlearn what it never learned, or has unlearned already.

    >>> import numpy as np
    >>> known = LearnedKeys().add(np.array([7, 9, 7], np.uint64), ['ant', 'bee', 'ant'])
    >>> known = known.remove(np.array([7], np.uint64), ['ant'])
    >>> known.lacks(np.array([7, 7, 9], np.uint64), ['ant', 'ant', 'bee']).tolist()
    [1]
"""

import numpy as np

from scroll.ground.errors import InputError
from scroll.ground.labels import by_label, check_labels, label_array
from scroll.sums.statistics import Statistics

_MAX_UNSORTED = 1000  # segments that wait to be sorted together


class LearnedKeys:
    """Multiset of (key, label). `copy.copy` copies it: its content is replaced, never changed."""

    def __init__(self):
        # label -> sorted uint64 (n,); and more (keys, label), not sorted in yet
        self._content = {}, ()

    def add(self, keys, labels) -> 'LearnedKeys':
        """Add samples. keys: uint64 (N,). labels: (N,)."""
        labels = check_labels(labels, len(keys))
        return self._extend([(keys[at], label) for label, at in by_label(labels)])

    def merge(self, other: 'LearnedKeys') -> 'LearnedKeys':
        """Add another learner's keys."""
        return self._extend([(keys, label) for label, keys in other._by_class().items()])

    def _extend(self, new: list) -> 'LearnedKeys':
        by_class, unsorted = self._content
        self._content = by_class, (*unsorted, *new)
        if len(self._content[1]) > _MAX_UNSORTED:
            self._by_class()
        return self

    def lacks(self, keys, labels) -> np.ndarray:
        """Return positions of the samples that are not in it, or not as often as they are given,
        int64, ascending.
        """
        labels = check_labels(labels, len(keys))
        missing = np.zeros(len(keys), bool)
        for label, at in by_label(labels):
            learned = self._by_class().get(label, np.zeros(0, np.uint64))
            missing[at] = _places(learned, keys[at]) >= np.searchsorted(learned, keys[at], 'right')
        return np.flatnonzero(missing)

    def remove(self, keys, labels) -> 'LearnedKeys':
        """Remove samples, each once; InputError, with nothing changed, if one is not in it."""
        lacking = self.lacks(keys, labels)
        if len(lacking):
            dots = ', ...' if len(lacking) > 3 else ''
            raise InputError(
                f'{len(lacking)} of {len(keys)} samples were never learned with these labels, '
                f'or have been removed already: those at {", ".join(map(str, lacking[:3]))}{dots}'
            )
        left = dict(self._by_class())
        for label, at in by_label(check_labels(labels, len(keys))):
            left[label] = np.delete(left[label], _places(left[label], keys[at]))
        self._content = {label: learned for label, learned in left.items() if len(learned)}, ()
        return self

    def drop(self, classes) -> 'LearnedKeys':
        """Remove whole classes."""
        left = dict(self._by_class())
        for label in np.asarray(classes).tolist():
            left.pop(label, None)
        self._content = left, ()
        return self

    def rename(self, names: dict) -> 'LearnedKeys':
        """Rename each class by `names`."""
        renamed = {names[label]: learned for label, learned in self._by_class().items()}
        self._content = renamed, ()
        return self

    def _by_class(self) -> dict:
        """Return label -> sorted keys; whichever thread sorts first, the content is the same."""
        by_class, unsorted = self._content
        if unsorted:
            parts = {label: [learned] for label, learned in by_class.items()}
            for keys, label in unsorted:
                parts.setdefault(label, []).append(keys)
            new = {label: np.sort(np.concatenate(parts[label])) for _, label in unsorted}
            by_class = by_class | new
            self._content = by_class, ()
        return by_class

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return arrays by name: labels (K,), sorted; sizes int64 (K,); keys uint64 (N,), class
        after class.
        """
        parts = dict(sorted(self._by_class().items()))
        return {
            'labels': label_array(list(parts)),
            'sizes': np.array(list(map(len, parts.values())), np.int64),
            'keys': np.concatenate([np.zeros(0, np.uint64), *parts.values()]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict, statistics: Statistics) -> 'LearnedKeys':
        """Build the keys of `state_dict`; InputError unless they can be those of the samples that
        `statistics` count.
        """
        if not (
            arrays['keys'].dtype == np.uint64
            and arrays['keys'].shape == (statistics.total,)
            and arrays['labels'].dtype.kind == statistics.classes.dtype.kind
            and arrays['labels'].tolist() == statistics.classes.tolist()
            and arrays['sizes'].tolist() == statistics.counts.tolist()
        ):
            raise InputError('the keys are not those of the samples that the statistics count')
        return cls().add(arrays['keys'], np.repeat(arrays['labels'], arrays['sizes']))


def _places(learned: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return where in the sorted `learned` each key is, or the next larger, int64 (N,); of equal
    keys one after the other.
    """
    order = np.argsort(keys, kind='stable')
    copy = np.empty(len(keys), np.int64)  # 0, 1, ... for samples of equal pixels
    copy[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order], 'left')
    return np.searchsorted(learned, keys, 'left') + copy
