"""What SCROLL keeps of a stream: counts and sums of classes and the Gram matrix of features, as integers.

Features have unit length and lie on a grid of 2^-18 (`scroll.grid.quantise`), so their products are integers
below 2^36 and a float64 matrix product over up to 2^17 of them is exact whatever the order, blocking or
number of threads. Each such product is added to int64 totals, which hold 2^27 - 1 (134 million) samples.
Hence the sums are the same, to the last bit, for every order, batching and sharding of a stream (paper, eqs.
6 and 8, made exact); `remove` undoes `add` without trace.

    >>> import numpy as np
    >>> from scroll.grid import quantise
    >>> u, y = quantise(np.random.default_rng(0).normal(size=(6, 4))), np.array([0, 1, 0, 1, 2, 2])
    >>> one, two = Statistics(4).add(u, y), Statistics(4).add(u[3:], y[3:]).add(u[:3], y[:3])
    >>> one.digest() == two.digest()
    True

With a `Lift` it is lifted features that are counted, h for u below; with `by_class` each class has a Gram
matrix of its own. Both are as exact.

`python -m scroll` shows, merges and subtracts saved ones (`scroll.io.statistics_files`).
"""
import hashlib
import json
from math import prod

import numpy as np
from scipy.sparse import csr_array

from scroll.arguments import check_memory
from scroll.errors import InputError
from scroll.grid import GRID, GRID_BITS
from scroll.io import files
from scroll.labels import by_label, check_labels, label_array
from scroll.lift import Lift
from scroll.sums import add_products, contradiction, lifted_blocks

_BLOCK = 1 << 13                     # rows that wait to be multiplied together
MAX_SAMPLES = (1 << 27) - 1          # int64 holds this many products of 2^36; one more is 2^63, and wraps
_FORMAT = 'scroll-statistics-1'      # of what is kept; part of every digest
_FILE = 'scroll-statistics-2'        # of files


class Statistics:
    """Exact sufficient statistics of a labelled stream of features; a commutative monoid under `merge`.

    Args:
        dim: d, numbers of a feature.
        lift: what makes h of u before it is counted (`scroll.lift.Lift`); None: h is u.
        by_class: keep a Gram matrix for each class, 8 (d + 1)^2 bytes each, and not only their sum.

    Attributes:
        classes: (K,) sorted labels seen, int64 or text (`scroll.labels.label_array`).
        counts: int64 (K,), samples of each class.
        sums: int64 (K, D + 1), sum of [h; 1] over each class, in units of 2^-18; D is d, or the lift's size.
    """

    def __init__(self, dim: int, lift: Lift = None, by_class: bool = False):
        if lift is not None and lift.dim != dim:
            raise InputError(f'the lift takes features of {lift.dim} numbers, not {dim}')
        self.dim, self.lift, self.by_class = int(dim), lift, by_class
        self.classes = np.zeros(0, np.int64)
        self.counts = np.zeros(0, np.int64)
        check_memory(f'the Gram matrix of {self.size} features', 8 * (self.size + 1) ** 2)
        self.sums = np.zeros((0, self.size + 1), np.int64)
        self._gram = np.zeros((0,) * by_class + (self.size + 1,) * 2, np.int64)
        self._shared = False                        # whether others hold _gram, too
        self._pending, self._n_pending = [], 0      # samples not yet in _gram: small batches share a product

    @property
    def size(self) -> int:
        """D, numbers of h."""
        return self.dim if self.lift is None else self.lift.size

    @property
    def gram(self) -> np.ndarray:
        """G = sum [h; 1] [h; 1]^T over all samples, int64 (D + 1, D + 1), in units of 2^-36 (paper, eq.
        8)."""
        return self._shown().sum(axis=0) if self.by_class else self._shown()

    @property
    def grams(self) -> np.ndarray:
        """Of each class, int64 (K, D + 1, D + 1); InputError where only their sum is kept."""
        if not self.by_class:
            raise InputError('these statistics keep one Gram matrix, and not one for each class')
        return self._shown()

    def _shown(self) -> np.ndarray:
        """What is kept, for others to see: from now on it stays as it is."""
        self._settle()
        self._shared = True
        return self._gram

    def _settle(self) -> None:
        """Count what is pending into the Gram matrix, or into those of all classes."""
        if not self._pending:
            return
        if self._shared or not self._gram.flags.writeable:
            self._gram, self._shared = self._gram.copy(), False
        features, labels = (np.concatenate(parts) for parts in zip(*self._pending))
        if self.by_class:
            rows = {label: row for row, label in enumerate(self.classes.tolist())}
            for label, at in by_label(labels):
                add_products(self._gram[rows[label]], features[at], self.lift)
        else:
            add_products(self._gram, features, self.lift)
        self._pending, self._n_pending = [], 0

    def __copy__(self) -> 'Statistics':
        self._shown()
        out = self.like()
        vars(out).update(vars(self) | dict(_pending=[]))           # else what one counts waits in both
        return out

    def like(self) -> 'Statistics':
        """Statistics of the same kind, of no samples."""
        return Statistics(self.dim, self.lift, self.by_class)

    @property
    def total(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    def add(self, features: np.ndarray, labels) -> 'Statistics':
        """Count samples in. features: integers (N, d) on the grid; labels: (N,). Returns self.

        Raises:
            InputError: wrong shape or dtype, values off the grid, or more than 2^27 - 1 samples in all.
                Nothing is changed.
        """
        features, labels, part = self._part(features, labels)
        classes, counts, sums = self._combined(part, +1)
        if self.by_class and len(classes) > len(self.classes):
            self._settle()
            self._gram, self._shared = _in_rows(self._gram, self.classes, classes), False
        self.classes, self.counts, self.sums = classes, counts, sums
        self._pending.append((features.astype(np.int32), labels))
        self._n_pending += len(features)
        if self._n_pending >= _BLOCK:
            self._settle()
        return self

    def remove(self, features: np.ndarray, labels) -> 'Statistics':
        """Undo `add` for samples that were added before: the state is that of never having seen them.

        Raises:
            InputError: no samples could have left what would be left (`contradiction`). Nothing is changed
                then. (Samples that were never added, but are much like those that were, may pass.)
        """
        return self.subtract(self.like().add(features, labels))

    def merge(self, other: 'Statistics') -> 'Statistics':
        """Add the statistics of another stream, for example another worker's. `other` is not changed."""
        self._check_kind(other, 'merge', 'into')
        classes, counts, sums = self._combined(other, +1)
        self._gram, self._shared = self._combined_grams(other, +1, classes), False
        self.classes, self.counts, self.sums = classes, counts, sums
        return self

    def subtract(self, other: 'Statistics') -> 'Statistics':
        """Undo `merge`: the state is that of never having seen the other's samples. `other` is not changed.

        Raises:
            InputError: `other` cannot be a part of this. Nothing is changed then. (Not every wrong part is
                noticed.)
        """
        self._check_kind(other, 'subtract', 'from')
        classes, counts, sums = self._combined(other, -1)
        kept, gram = counts > 0, self._combined_grams(other, -1, classes)
        wrong = contradiction(counts, sums, gram)
        if wrong:
            raise InputError(f'what is given is no part of these statistics: without it, {wrong} would be '
                             'left')
        self.classes, self.counts, self.sums = classes[kept], counts[kept], sums[kept]
        self._gram, self._shared = gram[kept] if self.by_class else gram, False
        if self.classes.dtype == object:
            self.classes = label_array(self.classes.tolist())
        return self

    def _check_kind(self, other: 'Statistics', what: str, where: str) -> None:
        """InputError unless the other's sums mean what these mean."""
        if other.dim != self.dim:
            raise InputError(f'cannot {what} statistics of {other.dim}-dimensional features {where} '
                             f'{self.dim}-dimensional ones')
        if other.lift != self.lift:
            raise InputError(f'cannot {what} statistics with lift {other.lift} {where} those with lift '
                             f'{self.lift}')
        if other.by_class != self.by_class:
            with_, without = ('a Gram matrix for each class', 'one for all')
            first, second = (with_, without) if other.by_class else (without, with_)
            raise InputError(f'cannot {what} statistics with {first} {where} those with {second}')

    def _combined(self, other: 'Statistics', sign: int) -> tuple:
        """Classes, counts and sums of self + sign * other, also of classes that end without samples."""
        kinds = ['integers' if part.classes.dtype.kind == 'i' else 'strings' for part in (other, self)]
        if len(self.classes) and len(other.classes) and kinds[0] != kinds[1]:
            raise InputError(f'labels are {kinds[0]} here and {kinds[1]} before: keep to integers or to '
                             'strings')
        classes = np.union1d(self.classes, other.classes) if len(self.classes) else other.classes
        counts, given = (_in_rows(part.counts, part.classes, classes) for part in (self, other))
        if sign < 0 and (counts < given).any():
            place = np.flatnonzero(counts < given)[0]
            raise InputError(f'class {classes[place]} has {counts[place]} samples, fewer than the '
                             f'{given[place]} given')
        counts = counts + sign * given
        if counts.sum() > MAX_SAMPLES:
            raise InputError(f'{counts.sum()} samples: exact sums hold at most {MAX_SAMPLES}')
        sums, more = (_in_rows(part.sums, part.classes, classes) for part in (self, other))
        return classes, counts, sums + sign * more

    def _combined_grams(self, other: 'Statistics', sign: int, classes: np.ndarray) -> np.ndarray:
        """What `_gram` is of self + sign * other, a new array."""
        kept, given = self._shown(), other._shown()
        if self.by_class:
            kept, given = _in_rows(kept, self.classes, classes), _in_rows(given, other.classes, classes)
        return kept + given if sign > 0 else kept - given

    def summed(self, classes: np.ndarray, total) -> 'Statistics':
        """The sum of the statistics of several processes, each of which calls this on its own.

        Args:
            classes: sorted labels of all that any of them has counted. total: array int64 -> the sum of what
                all processes give.
        """
        counts, sums = (_in_rows(array, self.classes, classes) for array in (self.counts, self.sums))
        gram = _in_rows(self._shown(), self.classes, classes) if self.by_class else self._shown()
        return self.like().become(classes, *map(total, (counts, sums, gram)))

    def without_lift(self) -> 'Statistics':
        """The statistics of the same samples had they not been lifted: u comes first in h."""
        u = np.r_[:self.dim, self.size]
        out = Statistics(self.dim, by_class=self.by_class)
        return out.become(self.classes, self.counts, self.sums[:, u], self._shown()[..., u[:, None], u])

    def of_class(self, label) -> 'Statistics':
        """Those of one class; InputError where there is no Gram matrix for each."""
        row = self.classes.tolist().index(label)
        part = slice(row, row + 1)
        return self.like().become(self.classes[part], self.counts[part], self.sums[part], self.grams[part])

    def pooled(self) -> 'Statistics':
        """The same with one Gram matrix for all classes."""
        return Statistics(self.dim, self.lift).become(self.classes, self.counts, self.sums, self.gram)

    def become(self, classes, counts, sums, gram) -> 'Statistics':
        """Take these, as `classes`, `counts`, `sums` and `gram` have them, in place of what was counted."""
        self.classes, self.counts, self.sums = classes, counts, sums
        self._gram, self._shared, self._pending, self._n_pending = gram, True, [], 0
        return self

    def relabel(self, mapping) -> 'Statistics':
        """A copy whose class c is called mapping[c], an integer or text, as all the others.

        Raises:
            InputError: a class has no name, or one that is no label or that another class has.
        """
        missing = [c for c in self.classes.tolist() if c not in mapping]
        if missing:
            raise InputError(f'relabel: no name for class {missing[0]!r}')
        names = check_labels([mapping[c] for c in self.classes.tolist()], len(self.classes))
        order = np.argsort(names)
        if len(np.unique(names)) != len(names):
            raise InputError('relabel: two classes would get the same name')
        gram = self._shown()
        return self.like().become(names[order], self.counts[order], self.sums[order],
                                   gram[order] if self.by_class else gram.copy())

    def digest(self) -> str:
        """SHA-256 of all that is kept: equal for two streams exactly if their sums are."""
        kind = [_FORMAT, self.size] + ([self.lift.digest] if self.lift else []) + ['by class'] * self.by_class
        sha = hashlib.sha256(json.dumps([*kind, GRID_BITS, self.classes.tolist()]).encode())
        for array in (self.counts, self.sums, self._shown()):
            sha.update(np.ascontiguousarray(array, '<i8').tobytes())
        return sha.hexdigest()

    def __eq__(self, other) -> bool:
        return isinstance(other, Statistics) and self.digest() == other.digest()

    __hash__ = None

    def state_dict(self) -> dict:
        """All that is kept, as arrays by name."""
        return dict(classes=self.classes, counts=self.counts, sums=self.sums, gram=self._shown())

    def load_state_dict(self, state: dict) -> None:
        """Become what `state_dict` of statistics with this lift described."""
        self.become(*(np.asarray(state[name]) for name in ('classes', 'counts', 'sums', 'gram')))
        self.by_class = self._gram.ndim == 3
        if self.lift is None:
            self.dim = self._gram.shape[-1] - 1

    def save(self, path, psi: str = '', parts: dict = None) -> None:
        """Write to `path` (npz, no pickles), whole or not at all.

        Args:
            psi: digest of the embedder that made the features; '' where they are features of one's own.
            parts: what these statistics are made of (`scroll.io.statistics_files`); None: one part, these.

        Raises:
            InputError: it cannot be written; whatever was there is as it was.
        """
        parts = ({self.digest(): 1} if self.total else {}) if parts is None else parts
        lift = {} if self.lift is None else dict(lift=self.lift.facts())
        files.write(path, _FILE, dict(psi=psi, parts=parts, **lift), self.state_dict())

    @classmethod
    def load(cls, path) -> 'Statistics':
        """Read what `save` wrote; InputError if it is damaged or something else. Runs no code in it."""
        return cls.load_with_facts(path)[0]

    @classmethod
    def load_with_facts(cls, path) -> tuple:
        """(statistics, psi, parts) as they were given to `save`."""
        facts, arrays = files.read(path, _FILE)
        try:
            lift = Lift(**facts['lift']) if 'lift' in facts else None
            psi, parts, out = facts['psi'], facts['parts'], cls.from_arrays(arrays, lift)
            if not (isinstance(psi, str) and all(type(times) is int for times in parts.values())):
                raise ValueError('backbone or parts are not as they are written')
            if list(parts.values()) == [1] and out.digest() not in parts or (
                    out.total and max(parts.values(), default=0) < 1):
                raise ValueError('the statistics are not those of their parts')
            return out, psi, parts
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f'{path}: damaged ({error})') from error

    @classmethod
    def from_arrays(cls, arrays: dict, lift: Lift = None) -> 'Statistics':
        """What `state_dict` described; InputError if the arrays are the statistics of no samples."""
        classes, counts, sums, gram = (arrays[name] for name in ('classes', 'counts', 'sums', 'gram'))
        K, size = len(classes) if classes.ndim else -1, gram.shape[-1] if gram.ndim in (2, 3) else 0
        lifted = size - 1 if lift is None else lift.size                # D
        shapes = (counts.shape, sums.shape, gram.shape) == \
            ((K,), (K, size), (K,) * (gram.ndim == 3) + (size, size))
        types = {array.dtype.str for array in (counts, sums, gram)} == {'<i8'}
        if not (shapes and size == lifted + 1 > 1 and types and classes.dtype.str[:2] in ('<i', '<U', '|O')
                and len(arrays) == 4):
            raise InputError('the arrays of these statistics have other shapes or types')
        classes = check_labels(classes.tolist(), K)
        if not (((counts > 0) & (counts <= MAX_SAMPLES)).all() and counts.sum() <= MAX_SAMPLES):
            raise InputError(f'these statistics have classes without samples, or more than {MAX_SAMPLES} '
                             'samples')
        sorted_ = (classes[1:] > classes[:-1]).all()
        wrong = contradiction(counts, sums, gram) if sorted_ else 'classes out of order'
        if wrong:
            raise InputError(f'the arrays of these statistics contradict each other ({wrong})')
        out = cls(lifted if lift is None else lift.dim, lift, gram.ndim == 3)
        return out.become(classes, counts, sums, gram)

    def _part(self, features, labels) -> tuple:
        """Checked features and labels, and their counts and sums as `Statistics` (without Gram matrix)."""
        features = np.asarray(features)
        if features.ndim != 2 or features.shape[1] != self.dim or features.dtype.kind not in 'iu':
            raise InputError(f'features have shape {features.shape} and dtype {features.dtype}: expected '
                             f'integers (N, {self.dim})')
        labels = check_labels(labels, len(features))
        if len(features) and max(int(features.max()), -int(features.min())) > GRID:
            raise InputError(f'features exceed the grid: {features.min()}..{features.max()}, expected '
                             f'-{GRID}..{GRID}')
        out = self.like()
        out.classes, index, out.counts = np.unique(labels, return_inverse=True, return_counts=True)
        out.sums = np.zeros((len(out.classes), self.size + 1), np.int64)
        out.sums[:, -1] = out.counts << GRID_BITS
        for rows, part in lifted_blocks(features, self.lift):
            members = csr_array((np.ones(len(part), np.int64), (index[rows], np.arange(len(part)))),
                                (len(out.classes), len(part)))
            out.sums[:, :-1] += members @ part
        return features, labels, out


def _in_rows(array: np.ndarray, classes: np.ndarray, all_classes: np.ndarray) -> np.ndarray:
    """An array (K, ...) of `classes` with rows for `all_classes`: zeros for others."""
    check_memory(f'an array of {len(all_classes)} classes, {array.shape[1:]} each,',
                 array.itemsize * prod(array.shape[1:]) * len(all_classes))
    out = np.zeros((len(all_classes), *array.shape[1:]), array.dtype)
    out[np.searchsorted(all_classes, classes)] = array
    return out


if __name__ == '__main__':
    import runpy
    runpy.run_module('scroll', run_name='__main__')         # what the command was renamed to
