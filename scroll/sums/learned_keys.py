"""Which samples were learned: a multiset of their keys (`scroll.ground.grid.sample_keys`), by class.

Sums cannot tell a sample that was never added from one that was; keys can. A learner that keeps them refuses
to unlearn what it never learned, or has unlearned already.

    >>> import numpy as np
    >>> known = LearnedKeys().add(np.array([7, 9, 7], np.uint64), ['ant', 'bee', 'ant'])
    >>> known = known.remove(np.array([7], np.uint64), ['ant'])
    >>> known.lacks(np.array([7, 7, 9], np.uint64), ['ant', 'ant', 'bee']).tolist()
    [1]
"""

import numpy as np

from scroll.ground.errors import InputError
from scroll.ground.labels import by_label, check_labels, label_array

_MAX_UNSORTED = 1000  # segments that wait to be sorted together


class LearnedKeys:
    """A multiset of (key, label). `copy.copy` copies it: what it holds is replaced, never changed."""

    def __init__(self):
        # label -> sorted uint64 (n,); and more (keys, label), not sorted in yet
        self._kept = {}, ()

    def add(self, keys, labels) -> 'LearnedKeys':
        """Keep these. keys: uint64 (N,). labels: (N,)."""
        labels, (known, new) = check_labels(labels, len(keys)), self._kept
        self._kept = known, (*new, *((keys[at], label) for label, at in by_label(labels)))
        if len(self._kept[1]) > _MAX_UNSORTED:
            self._by_class()
        return self

    def merge(self, other: 'LearnedKeys') -> 'LearnedKeys':
        """Add another learner's."""
        known, new = self._kept
        self._kept = known, (*new, *((keys, label) for label, keys in other._by_class().items()))
        return self

    def lacks(self, keys, labels) -> np.ndarray:
        """int64, ascending: positions of those that are not here, or not as often as they are
        given.
        """
        labels, missing = check_labels(labels, len(keys)), np.zeros(len(keys), bool)
        for label, at in by_label(labels):
            own = self._by_class().get(label, np.zeros(0, np.uint64))
            missing[at] = _places(own, keys[at]) >= np.searchsorted(own, keys[at], 'right')
        return np.flatnonzero(missing)

    def remove(self, keys, labels) -> 'LearnedKeys':
        """Forget these, each once; InputError, with nothing changed, if one is not here."""
        lacking = self.lacks(keys, labels)
        if len(lacking):
            shown = ', '.join(map(str, lacking[:3].tolist())) + ', ...' * (len(lacking) > 3)
            raise InputError(
                f'{len(lacking)} of {len(keys)} samples were never learned with these labels, '
                f'or have been removed already: those at {shown}'
            )
        labels, known = check_labels(labels, len(keys)), dict(self._by_class())
        for label, at in by_label(labels):
            known[label] = np.delete(known[label], _places(known[label], keys[at]))
        self._kept = {label: own for label, own in known.items() if len(own)}, ()
        return self

    def drop(self, classes) -> 'LearnedKeys':
        """Forget whole classes."""
        gone = set(np.asarray(classes).tolist())
        self._kept = (
            {label: own for label, own in self._by_class().items() if label not in gone},
            (),
        )
        return self

    def rename(self, names: dict) -> 'LearnedKeys':
        """Call each class as `names` says."""
        self._kept = {names[label]: own for label, own in self._by_class().items()}, ()
        return self

    def _by_class(self) -> dict:
        """All, sorted; whichever thread sorts first, the content is the same."""
        known, new = self._kept
        if new:
            parts = {label: [own] for label, own in known.items()}
            for keys, label in new:
                parts.setdefault(label, []).append(keys)
            known = known | {label: np.sort(np.concatenate(parts[label])) for _, label in new}
            self._kept = known, ()
        return known

    def state_dict(self) -> dict:
        """Arrays by name: labels (K,), sorted; sizes int64 (K,); keys uint64 (N,), class after
        class.
        """
        parts = dict(sorted(self._by_class().items()))
        return {
            'labels': label_array(list(parts)),
            'sizes': np.array(list(map(len, parts.values())), np.int64),
            'keys': np.concatenate([np.zeros(0, np.uint64), *parts.values()]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict, statistics) -> 'LearnedKeys':
        """What `state_dict` described; InputError unless these can be the keys of what `statistics`
        count.
        """
        if not (
            arrays['keys'].dtype == np.uint64
            and arrays['keys'].shape == (statistics.total,)
            and arrays['labels'].dtype.kind == statistics.classes.dtype.kind
            and arrays['labels'].tolist() == statistics.classes.tolist()
            and arrays['sizes'].tolist() == statistics.counts.tolist()
        ):
            raise InputError('the keys are not those of the samples that the statistics count')
        parts, out = np.split(arrays['keys'], np.cumsum(arrays['sizes'])[:-1]), cls()
        out._kept = dict(zip(arrays['labels'].tolist(), map(np.sort, parts))), ()
        return out


def _places(own: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where in the sorted `own` each key is, or the next larger; of equal keys one after the other."""
    order = np.argsort(keys, kind='stable')
    copy = np.empty(len(keys), np.int64)  # 0, 1, ... for samples of equal pixels
    copy[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order], 'left')
    return np.searchsorted(own, keys, 'left') + copy
