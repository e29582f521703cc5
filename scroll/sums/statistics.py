"""What SCROLL keeps of a stream: counts and sums of classes and the Gram matrix of features, as integers.

Unit features lie on a grid of 2^-18 (`scroll.ground.grid.quantise`), so their products are integers below 2^36 and a
float64 matrix product over up to 2^17 of them is exact, whatever the order, blocking or number of threads.
Each such product is added to int64 totals, which hold 2^27 - 1 (134 million) samples. Hence the sums are the
same, to the last bit, for every order, batching and sharding of a stream (paper, eqs. 6 and 8, made exact);
`remove` undoes `add` without trace.

    >>> import numpy as np
    >>> from scroll.ground.grid import quantise
    >>> u, y = quantise(np.random.default_rng(0).normal(size=(6, 4))), np.array([0, 1, 0, 1, 2, 2])
    >>> one, two = Statistics(4).add(u, y), Statistics(4).add(u[3:], y[3:]).add(u[:3], y[:3])
    >>> one.digest() == two.digest()
    True

With a `Lift` it is lifted features that are counted, h for u below; with `by_class` each class has a Gram
matrix of its own. Any number of threads may read; a change is one assignment, so that an interrupt leaves
the sums as before or as after; writers wait for each other.
"""

import copy
import hashlib
import json
import threading
from dataclasses import asdict
from math import prod
from typing import NamedTuple

import numpy as np

from scroll.ground import archive
from scroll.ground.arguments import check_memory, instance, on_off, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, PRECISION, on_grid
from scroll.ground.labels import by_label, check_kind, check_labels, label_array
from scroll.sums.lift import Lift
from scroll.sums.products import add_products, class_sums

_BLOCK = 1 << 13  # samples that wait to be multiplied together
_NUMBERS = 1 << 26  # and numbers of all of them
MAX_SAMPLES = (1 << 27) - 1  # int64 holds this many products of 2^36; one more is 2^63, and wraps
_FORMAT = 'scroll-statistics-1'  # of what is kept; part of every digest
_FILE = 'scroll-statistics-2'  # of files


class Sums(NamedTuple):
    """What is counted of samples, in arrays that nobody changes.

    Attributes:
        classes: (K,), sorted. counts: int64 (K,). sums: int64 (K, D + 1). gram: int64 (D + 1, D +
        1), or one
            for each class, (K, D + 1, D + 1)."""

    classes: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    gram: np.ndarray = None

    def frozen(self) -> 'Sums':
        """These, whose arrays can no longer be written to."""
        for array in filter(lambda array: array is not None, self):
            array.flags.writeable = False
        return self


class _Content(NamedTuple):
    """Sums of all samples, but for the Gram matrix: it lacks `count` samples `waiting`, (features,
    labels) each, that small batches may share a matrix product. `rows`: classes of the matrices of
    `by_class`."""

    sums: Sums
    waiting: tuple
    count: int
    rows: np.ndarray


class Statistics:
    """Exact sufficient statistics of a labelled stream of features; a commutative monoid under
    `merge`. dim: d, numbers of a feature. lift: what makes h of u before it is counted
    (`scroll.sums.lift.Lift`); None: h is u.
    by_class: keep a Gram matrix for each class, 8 (d + 1)^2 bytes each, and not only their sum.
    Copies share what they hold; what is given out cannot be written to."""

    def __init__(self, dim: int, lift: Lift = None, by_class: bool = False):
        whole('dim', dim, 1)
        on_off('by_class', by_class)
        if lift is not None:
            instance('lift', lift, Lift)
            if lift.dim != dim:
                raise InputError(f'the lift takes features of {lift.dim} numbers, not {dim}')
        self.dim, self.lift, self.by_class = int(dim), lift, bool(by_class)
        check_memory(f'the Gram matrix of {self.size} features', 8 * (self.size + 1) ** 2)
        self._lock = threading.RLock()
        self.assign(
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros((0, self.size + 1), np.int64),
            np.zeros((0,) * by_class + (self.size + 1,) * 2, np.int64),
        )

    def __getstate__(self) -> tuple:
        return self.dim, self.lift, self.by_class, self._complete()

    def __setstate__(self, state: tuple) -> None:
        self.dim, self.lift, self.by_class, sums = state  # that there is memory for them is known
        self._lock = threading.RLock()
        self.assign(*sums)

    def __copy__(self) -> 'Statistics':
        out = Statistics.__new__(Statistics)
        vars(out).update(vars(self), _lock=threading.RLock())
        return out

    def empty_like(self) -> 'Statistics':
        """Statistics of the same kind, of no samples."""
        return Statistics(self.dim, self.lift, self.by_class)

    def assign(self, classes, counts, sums, gram) -> 'Statistics':
        """Replace what was counted by these (see `Sums`). The arrays can no longer be written to."""
        # a list of one, shared with copies: readers may put the same sums into another form
        self._cell = [_Content(Sums(classes, counts, sums, gram).frozen(), (), 0, classes)]
        return self

    @property
    def size(self) -> int:
        """D, numbers of h."""
        return self.dim if self.lift is None else self.lift.size

    @property
    def classes(self) -> np.ndarray:
        """(K,) sorted labels seen, int64 or text (`scroll.ground.labels.label_array`)."""
        return self._cell[0].sums.classes

    @property
    def counts(self) -> np.ndarray:
        """int64 (K,), samples of each class."""
        return self._cell[0].sums.counts

    @property
    def sums(self) -> np.ndarray:
        """int64 (K, D + 1), sum of [h; 1] over each class, in units of 2^-18."""
        return self._cell[0].sums.sums

    @property
    def gram(self) -> np.ndarray:
        """G = sum [h; 1] [h; 1]^T, int64 (D + 1, D + 1), in units of 2^-36 (paper, eq. 8)."""
        gram = self._complete().gram
        return gram.sum(axis=0) if self.by_class else gram

    @property
    def grams(self) -> np.ndarray:
        """Of each class, int64 (K, D + 1, D + 1); InputError where only their sum is kept."""
        if not self.by_class:
            raise InputError('these statistics keep one Gram matrix, and not one for each class')
        return self._complete().gram

    @property
    def total(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    def _complete(self) -> Sums:
        """All that is counted, with the Gram matrix of all samples."""
        cell = self._cell
        if cell[0].count:
            with self._lock:  # several readers need not all do it
                cell[0] = self._folded(cell[0])  # the same sums, whoever comes first
        return cell[0].sums

    def _folded(self, content: _Content) -> _Content:
        """The same content, in which no sample waits."""
        if not content.count:
            return content
        sums = content.sums
        features, labels = (np.concatenate(parts) for parts in zip(*content.waiting))
        if self.by_class:
            gram = _in_rows(sums.gram, content.rows, sums.classes)
            for label, at in by_label(labels):
                row = np.searchsorted(sums.classes, label_array([label]))[0]
                add_products(gram[row], features[at], self.lift)
        else:
            gram = sums.gram.copy()
            add_products(gram, features, self.lift)
        return _Content(sums._replace(gram=gram).frozen(), (), 0, sums.classes)

    def add(self, features: np.ndarray, labels) -> 'Statistics':
        """Count samples. features: integers (N, d) on the grid; labels: (N,). InputError, with
        nothing
        changed: another shape or dtype, values off the grid, or more than 2^27 - 1 samples in
        all."""
        features, labels, part = self._part(features, labels)
        if not len(labels):
            return self
        with self._lock:
            sums, waiting, count, rows = self._cell[0]
            new = _joined(sums, part)
            if self.by_class:
                check_memory(
                    f'a Gram matrix for each of {len(new.classes)} classes',
                    8 * (self.size + 1) ** 2 * len(new.classes),
                )
            content = _Content(
                new._replace(gram=sums.gram).frozen(),
                (*waiting, (features, labels)),
                count + len(labels),
                rows,
            )
            if content.count >= min(_BLOCK, _NUMBERS // self.dim):
                content = self._folded(content)
            self._cell = [content]
        return self

    def _part(self, features, labels) -> tuple:
        """Checked features int32 and labels, and their `Sums` (without Gram matrix)."""
        # a copy: the caller may write to his own
        features = on_grid(features, self.dim).astype(np.int32)
        labels = check_labels(labels, len(features))
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        sums = np.zeros((len(classes), self.size + 1), np.int64)
        sums[:, -1] = counts << GRID_BITS
        sums[:, :-1] = class_sums(features, index, len(classes), self.lift)
        return features, labels, Sums(classes, counts, sums)

    def remove(self, features: np.ndarray, labels) -> 'Statistics':
        """Undo `add` for samples that were added before: as if they had never been seen. InputError
        as of
        `subtract`. (Samples that were never added, but are much like those that were, may pass.)"""
        return self.subtract(self.empty_like().add(features, labels))

    def merge(self, other: 'Statistics') -> 'Statistics':
        """Add the statistics of another stream, for example another worker's. `other` is not
        changed.
        """
        self._check_kind(other)
        given = other._complete()
        with self._lock:
            kept = self._complete()
            out = _joined(kept, given)
            gram = (
                kept.gram + given.gram
                if not self.by_class
                else (
                    _in_rows(kept.gram, kept.classes, out.classes)
                    + _in_rows(given.gram, given.classes, out.classes)
                )
            )
            return self.assign(*out[:3], gram)

    def subtract(self, other: 'Statistics') -> 'Statistics':
        """Undo `merge`: as if the other's samples had never been seen. `other` is not changed.
        InputError, with nothing changed, if no samples could have left what would be left
        (`contradiction`)."""
        self._check_kind(other)
        given = other._complete()
        with self._lock:
            kept = self._complete()
            classes = _all_classes(kept, given)
            (had, sums), (gone, less) = _in_classes(kept, classes), _in_classes(given, classes)
            for place in np.flatnonzero(had < gone):
                raise InputError(
                    f'class {classes[place]} has {had[place]} samples, fewer than the '
                    f'{gone[place]} given'
                )
            gram = kept.gram - (
                _in_rows(given.gram, given.classes, classes) if self.by_class else given.gram
            )
            counts, sums = had - gone, sums - less
            wrong, left = contradiction(counts, sums, gram), counts > 0
            if wrong:
                raise InputError(
                    f'what is given is no part of these statistics: without it, {wrong} would '
                    'be left'
                )
            classes = classes[left]
            return self.assign(
                label_array(classes.tolist()),
                counts[left],
                sums[left],
                gram[left] if self.by_class else gram,
            )

    def _check_kind(self, other: 'Statistics') -> None:
        """InputError unless the other's sums mean what these mean."""
        instance('statistics', other, Statistics)
        if (self.dim, self.lift, self.by_class) != (other.dim, other.lift, other.by_class):
            own, given = (
                f'{s.dim} features, lift {s.lift}' + ', a Gram matrix for each class' * s.by_class
                for s in (self, other)
            )
            raise InputError(
                f'statistics of {given} do not go with those of {own}: learn both with the same '
                'head and lift'
            )

    def without_lift(self) -> 'Statistics':
        """The statistics of the same samples had they not been lifted: u comes first in h."""
        u, own = np.r_[: self.dim, self.size], self._complete()
        return Statistics(self.dim, by_class=self.by_class).assign(
            own.classes, own.counts, own.sums[:, u], own.gram[..., u[:, None], u]
        )

    def of_class(self, label) -> 'Statistics':
        """Those of one class; InputError where there is no Gram matrix for each."""
        own, _ = self._complete(), self.grams
        row = own.classes.tolist().index(label)
        return copy.copy(self).assign(*(array[row : row + 1] for array in own))

    def relabel(self, mapping) -> 'Statistics':
        """A copy whose class c is called mapping[c], an integer or text, as all the others.
        InputError: a class has no name, or one that is no label or that another class has."""
        own = self._complete()
        lacking = [label for label in own.classes.tolist() if label not in mapping]
        if lacking:
            raise InputError(f'relabel: no name for class {lacking[0]!r}')
        names = check_labels([mapping[label] for label in own.classes.tolist()], len(own.classes))
        if len(np.unique(names)) != len(names):
            raise InputError('relabel: two classes would get the same name')
        order = np.argsort(names)
        return copy.copy(self).assign(
            names[order],
            own.counts[order],
            own.sums[order],
            own.gram[order] if self.by_class else own.gram,
        )

    def digest(self) -> str:
        """SHA-256 of all that is kept: equal for two streams exactly if their sums are."""
        own = self._complete()
        kind = (
            [_FORMAT, self.size]
            + ([self.lift.digest] if self.lift else [])
            + ['by class'] * self.by_class
        )
        sha = hashlib.sha256(json.dumps([*kind, GRID_BITS, own.classes.tolist()]).encode())
        for array in own[1:]:
            sha.update(np.ascontiguousarray(array, '<i8').tobytes())
        return sha.hexdigest()

    def __eq__(self, other) -> bool:
        return isinstance(other, Statistics) and self.digest() == other.digest()

    __hash__ = None

    def state_dict(self) -> dict:
        """All that is kept, as arrays by name; they cannot be written to."""
        return self._complete()._asdict()

    def save(self, path, psi: str = '', parts: dict | None = None) -> None:
        """Write to `path` (npz, no pickles), whole or not at all. psi: digest of the embedder that
        made the features; '' where they are features of one's own. parts: what these statistics are
        made of (`scroll.sums.parts`); None: one part, these."""
        parts = ({self.digest(): 1} if self.total else {}) if parts is None else parts
        archive.write(path, _FILE, self.facts(psi, parts), self.state_dict())

    def facts(self, psi: str, parts: dict) -> dict:
        """What files say of these apart from their arrays."""
        lift = {} if self.lift is None else {'lift': asdict(self.lift)}
        return dict(psi=psi, parts=parts, precision=PRECISION, **lift)

    @classmethod
    def load(cls, path) -> 'Statistics':
        """Read what `save` wrote; InputError if it is damaged or something else. Runs no code in
        it.
        """
        return cls.load_with_facts(path)[0]

    @classmethod
    def load_with_facts(cls, path) -> tuple:
        """(statistics, psi, parts) as they were given to `save`."""
        facts, arrays = archive.read(path, _FILE)
        with archive.readable(path):
            out, psi, parts = cls.from_content(facts, arrays)
            if list(parts.values()) == [1] and out.digest() not in parts:
                raise InputError('the statistics are not those of their parts')
            return out, psi, parts

    @classmethod
    def from_content(cls, facts: dict, arrays: dict) -> tuple:
        """(statistics, psi, parts) of `facts` and the arrays of `state_dict`. InputError: they
        cannot be, or are of a version before 0.3, whose features were not rounded to float32 on
        intake."""
        if facts.get('precision') != PRECISION:
            raise InputError(
                'of a version before 0.3, which rounded features otherwise: learn again'
            )
        out = cls.from_arrays(arrays, Lift(**facts['lift']) if 'lift' in facts else None)
        psi, parts = facts['psi'], facts['parts']
        if (
            not isinstance(psi, str)
            or not all(type(times) is int for times in parts.values())
            or (out.total and max(parts.values(), default=0) < 1)
        ):
            raise InputError('its backbone or its parts are not as they are written')
        return out, psi, parts

    @classmethod
    def from_arrays(cls, arrays: dict, lift: Lift = None) -> 'Statistics':
        """What `state_dict` described; InputError if the arrays are the statistics of no samples."""
        classes, counts, sums, gram = (arrays[name] for name in Sums._fields)
        K, size = len(classes) if classes.ndim else -1, gram.shape[-1] if gram.ndim in (2, 3) else 0
        lifted = size - 1 if lift is None else lift.size  # D
        shapes = (counts.shape, sums.shape, gram.shape) == (
            (K,),
            (K, size),
            (K,) * (gram.ndim == 3) + (size, size),
        )
        types = {array.dtype for array in (counts, sums, gram)} == {np.dtype(np.int64)}
        if not (
            shapes
            and size == lifted + 1 > 1
            and types
            and classes.dtype.kind in 'iU'
            and len(arrays) == 4
        ):
            raise InputError('the arrays of these statistics have other shapes or types')
        classes = check_labels(classes.tolist(), K)
        if not (((counts > 0) & (counts <= MAX_SAMPLES)).all() and counts.sum() <= MAX_SAMPLES):
            raise InputError(
                f'these statistics have classes without samples, or more than {MAX_SAMPLES} samples'
            )
        sorted_ = (classes[1:] > classes[:-1]).all()
        wrong = contradiction(counts, sums, gram) if sorted_ else 'classes out of order'
        if wrong:
            raise InputError(f'the arrays of these statistics contradict each other ({wrong})')
        out, dim = cls.__new__(cls), lifted if lift is None else lift.dim
        out.__setstate__((dim, lift, gram.ndim == 3, (classes, counts, sums, gram)))
        return out


def _all_classes(one: Sums, two: Sums) -> np.ndarray:
    """The classes of both, sorted; InputError unless their labels are of one kind."""
    if not len(one.classes) or not len(two.classes):
        return one.classes if len(one.classes) else two.classes
    check_kind(two.classes, one.classes)
    at = np.minimum(np.searchsorted(one.classes, two.classes), len(one.classes) - 1)
    return (
        one.classes
        if (one.classes[at] == two.classes).all()
        else np.union1d(one.classes, two.classes)
    )


def _joined(one: Sums, two: Sums) -> Sums:
    """Classes, counts and sums of both; InputError if labels are of two kinds, or there are too
    many.
    """
    classes = _all_classes(one, two)
    (counts, sums), rows = _in_classes(one, classes), np.searchsorted(classes, two.classes)
    counts[rows] += two.counts
    sums[rows] += two.sums
    if counts.sum() > MAX_SAMPLES:
        raise InputError(f'{counts.sum()} samples: exact sums hold at most {MAX_SAMPLES}')
    return Sums(classes, counts, sums)


def _in_classes(part: Sums, classes: np.ndarray) -> tuple:
    """(counts, sums) with rows for these classes: zeros for those that the part lacks."""
    return tuple(_in_rows(array, part.classes, classes) for array in (part.counts, part.sums))


def _in_rows(array: np.ndarray, classes: np.ndarray, all_classes: np.ndarray) -> np.ndarray:
    """A copy of an array (K, ...) of `classes` with rows for `all_classes`: zeros for others."""
    if all_classes is classes:
        return array.copy()
    check_memory(
        f'an array of {len(all_classes)} classes, {array.shape[1:]} each,',
        array.itemsize * prod(array.shape[1:]) * len(all_classes),
    )
    out = np.zeros((len(all_classes), *array.shape[1:]), array.dtype)
    out[np.searchsorted(all_classes, classes)] = array
    return out


def contradiction(counts: np.ndarray, sums: np.ndarray, gram: np.ndarray) -> str:
    """Why no samples on the grid can have these statistics (see `Sums`), in short; '' where nothing
    says so.

    Checked in integers, none of which wraps: each sum and product is within its bound, the constant
    feature has the sums that follow from the others, and each diagonal entry is at least the least
    sum of squares of integers with the sums of the classes. Then the scatter within classes, G -
    sum_c s_c s_c^T / n_c, must be positive semidefinite: its Cholesky decomposition, scaled to a
    diagonal of at most 1, may not fail after more than the largest rounding error (Higham 2002,
    theorem 10.7) was added: what is refused is certain."""
    if gram.ndim == 3:
        each = (
            contradiction(counts[k : k + 1], sums[k : k + 1], gram[k]) for k in range(len(counts))
        )
        return next(filter(None, each), '')
    if not _within(sums, GRID * counts[:, None]) or (sums[:, -1] != GRID * counts).any():
        return 'class sums that samples on the grid cannot have'
    constant = (gram[-1] == GRID * sums.sum(axis=0)).all()
    if not _within(gram, GRID * GRID * counts.sum()) or (gram != gram.T).any() or not constant:
        return 'a Gram matrix that does not go with the sums'
    some, diagonal = np.maximum(counts, 1)[:, None], gram.diagonal()
    mean, rest = np.divmod(sums, some)  # the squares are least where all are one of mean, mean + 1
    least = (some * mean * mean + rest * (2 * mean + 1)).sum(axis=0)
    if (diagonal < least).any() or gram[diagonal == 0].any():
        return 'a Gram matrix too small for the sums'
    scale = 1 / np.sqrt(np.maximum(diagonal, 1))
    between = sums / np.sqrt(some) * scale
    rounding = 2 * len(gram) * (len(gram) + len(counts) + 20) * np.finfo(float).eps
    try:
        np.linalg.cholesky(
            gram * scale * scale[:, None] - between.T @ between + rounding * np.eye(len(gram))
        )
    except np.linalg.LinAlgError:
        return 'a Gram matrix too small for the sums'
    return ''


def _within(array: np.ndarray, bound) -> bool:
    """Whether -bound <= array <= bound; the absolute value of the least int64 would be negative."""
    return bool(((array >= -bound) & (array <= bound)).all())
