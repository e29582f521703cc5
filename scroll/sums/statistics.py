"""Statistics of a stream: counts and sums of classes, Gram matrix of features, in exact integers.

Unit features lie on a grid of 2^-18 (`scroll.ground.grid.quantise`), so their products are integers
below 2^36 and a float64 matrix product over up to 2^17 of them is exact, whatever the order,
blocking or number of threads. Each such product is added to int64 totals, which hold 2^27 - 1 (134
million) samples. Hence the sums are the same, to the last bit, for every order, batching and
sharding of a stream (paper, eqs. 6 and 8, made exact); `remove` undoes `add` without trace.

    >>> import numpy as np
    >>> from scroll.ground.grid import quantise
    >>> u, y = quantise(np.random.default_rng(0).normal(size=(6, 4))), np.array([0, 1, 0, 1, 2, 2])
    >>> one, two = Statistics(4).add(u, y), Statistics(4).add(u[3:], y[3:]).add(u[:3], y[:3])
    >>> one.digest() == two.digest()
    True

With a `Lift` lifted features are counted, h for u below; with `by_class` each class has a Gram
matrix of its own. Any number of threads may read; a change is one assignment, so that an interrupt
leaves the sums as before or as after; writers wait for each other.
"""

import copy
import threading
from dataclasses import asdict
from math import prod
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf

from scroll.ground import archive
from scroll.ground.arguments import check_memory, instance, on_off, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, PRECISION, digest_of, on_grid
from scroll.ground.labels import by_label, check_kind, check_labels, label_array
from scroll.sums.lift import Lift
from scroll.sums.products import add_products, class_sums

_BLOCK = 1 << 13  # samples that wait to be multiplied together
_NUMBERS = 1 << 26  # and numbers of all of them
MAX_SAMPLES = (1 << 27) - 1  # int64 holds this many products of 2^36; one more is 2^63, and wraps
_FORMAT = 'scroll-statistics-1'  # of what is kept; part of every digest
_FILE = 'scroll-statistics-2'  # of files


class Sums(NamedTuple):
    """Sums over samples, in arrays that nobody changes.

    Attributes:
        classes: (K,), sorted.
        counts: int64 (K,).
        sums: int64 (K, D + 1).
        gram: int64 (D + 1, D + 1), or one for each class, (K, D + 1, D + 1); empty where it is not
            known."""

    classes: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    gram: np.ndarray = np.zeros(0, np.int64)

    def frozen(self) -> 'Sums':
        """Return these sums after making their arrays read-only."""
        for array in self:
            array.flags.writeable = False
        return self

    def at(self, rows) -> 'Sums':
        """Return the sums of the classes in these rows, in their order."""
        return Sums(
            label_array(self.classes[rows].tolist()),
            self.counts[rows],
            self.sums[rows],
            self.gram[rows] if self.gram.ndim == 3 else self.gram,
        )


class _Content(NamedTuple):
    """Sums of all samples, but for those that wait: small batches share a matrix product, and are
    counted without a copy of all class sums.

    Attributes:
        sums: of all samples; the Gram matrix lacks those that wait, class sums the last of them.
        waiting: (features, labels) of each batch that waits.
        n_waiting: number of samples that wait.
        unsummed: number of the last batches that class sums lack.
        rows: classes of the matrices of `by_class`.
        sum_rows: classes of the class sums."""

    sums: Sums
    waiting: tuple[tuple[np.ndarray, np.ndarray], ...]
    n_waiting: int
    unsummed: int
    rows: np.ndarray
    sum_rows: np.ndarray


class Statistics:
    """Exact sufficient statistics of a labelled stream of features; a commutative monoid under
    `merge`. Copies share their arrays, all of which are read-only.

    dim: d, numbers of a feature.
    lift: random features h of u (`scroll.sums.lift.Lift`), counted instead of u; None: h is u.
    by_class: keep a Gram matrix for each class, 8 (d + 1)^2 bytes each, and not only their sum.
    InputError: an invalid value, or too little memory."""

    def __init__(self, dim: int, lift: Lift | None = None, by_class: bool = False):
        whole('dim', dim, 1)
        on_off('by_class', by_class)
        if lift is not None:
            instance('lift', lift, Lift)
            if lift.dim != dim:
                raise InputError(f'the lift takes features of {lift.dim} numbers, not {dim}')
        self.dim = int(dim)
        self.lift = lift
        self.by_class = bool(by_class)
        check_memory(f'the Gram matrix of {self.size} features', 8 * (self.size + 1) ** 2)
        self._lock = threading.RLock()
        size = self.size + 1
        shape = (0, size, size) if by_class else (size, size)
        none = np.zeros(0, np.int64)
        self.assign(none, none, np.zeros((0, size), np.int64), np.zeros(shape, np.int64))

    def __getstate__(self) -> tuple:
        return self.dim, self.lift, self.by_class, self._complete()

    def __setstate__(self, state: tuple) -> None:
        self.dim, self.lift, self.by_class, sums = state
        self._lock = threading.RLock()
        self.assign(*sums)

    def __copy__(self) -> 'Statistics':
        out = Statistics.__new__(Statistics)
        vars(out).update(vars(self), _lock=threading.RLock())
        return out

    def empty_like(self) -> 'Statistics':
        """Return statistics of the same kind, of no samples."""
        return Statistics(self.dim, self.lift, self.by_class)

    def assign(self, classes, counts, sums, gram) -> 'Statistics':
        """Replace the sums by these (see `Sums`), whose arrays become read-only."""
        # a list of one, shared with copies: readers may put the same sums into another form
        content = Sums(classes, counts, sums, gram).frozen()
        self._cell = [_Content(content, (), 0, 0, classes, classes)]
        return self

    @property
    def size(self) -> int:
        """Number of features of h, D."""
        return self.dim if self.lift is None else self.lift.size

    @property
    def classes(self) -> np.ndarray:
        """Labels seen, sorted, (K,) int64 or text (`scroll.ground.labels.label_array`)."""
        return self._cell[0].sums.classes

    @property
    def counts(self) -> np.ndarray:
        """Number of samples of each class, int64 (K,)."""
        return self._cell[0].sums.counts

    @property
    def sums(self) -> np.ndarray:
        """Sum of [h; 1] over each class, int64 (K, D + 1), in units of 2^-18."""
        return self._settled(self._summed).sums

    @property
    def gram(self) -> np.ndarray:
        """Gram matrix G = sum [h; 1] [h; 1]^T, int64 (D + 1, D + 1), in units of 2^-36 (eq. 8)."""
        gram = self._complete().gram
        return gram.sum(axis=0) if self.by_class else gram

    @property
    def grams(self) -> np.ndarray:
        """Gram matrix of each class, int64 (K, D + 1, D + 1); InputError unless `by_class`."""
        if not self.by_class:
            raise InputError('these statistics keep one Gram matrix, and not one for each class')
        return self._complete().gram

    @property
    def total(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    def _complete(self) -> Sums:
        """Return the sums, with the Gram matrix of all samples."""
        return self._settled(self._folded)

    def _settled(self, form) -> Sums:
        """Return the sums after `form` has changed the form of the content."""
        cell = self._cell
        content = cell[0]
        if content.waiting:
            with self._lock:  # several readers need not all do it
                content = cell[0] = form(cell[0])  # the same sums, whoever comes first
        return content.sums

    def _summed(self, content: _Content) -> _Content:
        """Return the same content, with class sums of all samples."""
        if not content.unsummed:
            return content
        features, labels = _joined(content.waiting[-content.unsummed :])
        of_all = content.sums
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        sums = in_rows(of_all.sums, content.sum_rows, of_all.classes)
        rows = np.searchsorted(of_all.classes, classes)
        sums[rows, :-1] += class_sums(features, index, len(classes), self.lift)
        sums[rows, -1] += counts << GRID_BITS
        return content._replace(
            sums=of_all._replace(sums=sums).frozen(), unsummed=0, sum_rows=of_all.classes
        )

    def _folded(self, content: _Content) -> _Content:
        """Return the same content, in which no sample waits."""
        if not content.waiting:
            return content
        sums = self._summed(content).sums
        features, labels = _joined(content.waiting)
        if self.by_class:
            gram = in_rows(sums.gram, content.rows, sums.classes)
            for label, at in by_label(labels):
                row = np.searchsorted(sums.classes, label_array([label]))[0]
                add_products(gram[row], features[at], self.lift)
        else:
            gram = sums.gram.copy()
            add_products(gram, features, self.lift)
        return _Content(sums._replace(gram=gram).frozen(), (), 0, 0, sums.classes, sums.classes)

    def add(self, features: np.ndarray, labels) -> 'Statistics':
        """Count samples.

        features: integers (N, d) on the grid.
        labels: (N,).
        InputError, with nothing changed: another shape or dtype, values off the grid, or more than
        2^27 - 1 samples in all."""
        features = on_grid(features, self.dim)
        labels = check_labels(labels, len(features))
        if not len(labels):
            return self
        limit = min(_BLOCK, _NUMBERS // self.dim)
        with self._lock:
            content = self._cell[0]
            few = len(labels) < limit
            # a copy of what waits: the caller may write to his own
            features = features.astype(np.int32, copy=few)
            if not few:
                content = self._folded(content)  # many are counted where they are
            classes, counts = np.unique(labels, return_counts=True)
            all_classes = _all_classes(content.sums.classes, classes)
            count = len(all_classes)
            numbers = count * (self.size + 1) ** (2 if self.by_class else 1)
            check_memory(f'what is summed for each of {count} classes', 8 * numbers)
            sums = content.sums._replace(
                classes=all_classes,
                counts=_total(
                    content.sums.counts, content.sums.classes, counts, classes, all_classes
                ),
            )
            _check_count(sums.counts)
            content = content._replace(
                sums=sums.frozen(),
                waiting=(*content.waiting, (features, labels)),
                n_waiting=content.n_waiting + len(labels),
                unsummed=content.unsummed + 1,
            )
            if content.n_waiting >= limit:
                content = self._folded(content)
            elif self.lift is not None:
                content = self._summed(content)  # a lift may refuse the features
            self._cell = [content]
        return self

    def remove(self, features: np.ndarray, labels) -> 'Statistics':
        """Undo `add` for samples that were added before: as if they had never been seen. InputError
        as in `subtract`. (Samples that were never added, but resemble those that were, may
        pass.)"""
        return self.subtract(self.empty_like().add(features, labels))

    def merge(self, other: 'Statistics') -> 'Statistics':
        """Add the statistics of another stream, for example another worker's. `other` is not
        changed.
        """
        self._check_kind(other)
        more = other._complete()
        with self._lock:
            return self.assign(*_combined(self._complete(), more))

    def subtract(self, other: 'Statistics') -> 'Statistics':
        """Undo `merge`: as if the other's samples had never been seen. `other` is not changed.
        InputError, with nothing changed, if no samples could have the sums that would be left
        (`contradiction`)."""
        self._check_kind(other)
        removed = other._complete()
        with self._lock:
            left = _combined(self._complete(), removed, -1)
            for row in np.flatnonzero(left.counts < 0):
                raise InputError(
                    f'class {left.classes[row]} has {-left.counts[row]} samples fewer than are to '
                    'be removed'
                )
            wrong = contradiction(left.counts, left.sums, left.gram)
            if wrong:
                raise InputError(f'these statistics do not contain what is removed: {wrong}')
            return self.assign(*left.at(left.counts > 0))

    def _check_kind(self, other: 'Statistics') -> None:
        """InputError unless the other's sums mean the same."""
        instance('statistics', other, Statistics)
        if (self.dim, self.lift, self.by_class) != (other.dim, other.lift, other.by_class):
            mine, theirs = (
                f'{s.dim} features, lift {s.lift}, by_class {s.by_class}' for s in (self, other)
            )
            raise InputError(
                f'statistics of {theirs} do not go with those of {mine}: learn both with the same '
                'head and lift'
            )

    def of_class(self, label) -> 'Statistics':
        """Return the statistics of one class; InputError unless it is there, `by_class`."""
        sums = self._complete()._replace(gram=self.grams)
        labels = sums.classes.tolist()
        if label not in labels:
            raise InputError(f'there is no class {label!r}')
        return copy.copy(self).assign(*sums.at([labels.index(label)]))

    def relabel(self, mapping) -> 'Statistics':
        """Return a copy whose class c is called mapping[c], an integer or text, as all the others.
        InputError: a class has no name, or one that is no label or that another class has."""
        sums = self._complete()
        labels = sums.classes.tolist()
        for label in labels:
            if label not in mapping:
                raise InputError(f'relabel: no name for class {label!r}')
        names = check_labels([mapping[label] for label in labels], len(labels))
        if len(np.unique(names)) != len(names):
            raise InputError('relabel: two classes would get the same name')
        return copy.copy(self).assign(*sums._replace(classes=names).at(np.argsort(names)))

    def digest(self) -> str:
        """Return the SHA-256 of all sums: equal for two streams exactly if their sums are."""
        classes, *arrays = self._complete()
        kind = [_FORMAT, self.size]
        if self.lift:
            kind.append(self.lift.digest)
        if self.by_class:
            kind.append('by class')
        return digest_of([*kind, GRID_BITS, classes.tolist()], *arrays)

    def __eq__(self, other) -> bool:
        return isinstance(other, Statistics) and self.digest() == other.digest()

    __hash__ = None  # pyright: ignore[reportAssignmentType]  (Python's way to say unhashable)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return all sums as read-only arrays by name."""
        return self._complete()._asdict()

    def save(self, path, psi: str = '', parts: dict | None = None) -> None:
        """Write to `path` (npz, no pickles), whole or not at all.

        psi: digest of the embedder that made the features; '' of feature vectors.
        parts: the parts that these statistics add up to (`scroll.sums.parts`); None: one part."""
        parts = self.as_part() if parts is None else parts
        archive.write(path, _FILE, self.facts(psi, parts), self.state_dict())

    def as_part(self) -> dict[str, int]:
        """Return the parts of statistics that are one part (`scroll.sums.parts`)."""
        return {self.digest(): 1} if self.total else {}

    def facts(self, psi: str, parts: dict) -> dict:
        """Return the facts that files hold next to the arrays."""
        lift = {} if self.lift is None else {'lift': asdict(self.lift)}
        return dict(psi=psi, parts=parts, precision=PRECISION, **lift)

    @classmethod
    def load(cls, path) -> 'Statistics':
        """Read a file that `save` wrote; InputError if it is damaged or something else. Runs no
        code in it.
        """
        return cls.load_with_facts(path)[0]

    @classmethod
    def load_with_facts(cls, path) -> tuple['Statistics', str, dict[str, int]]:
        """Read statistics, psi and parts from a file that `save` wrote."""
        facts, arrays = archive.read(path, _FILE)
        with archive.read_errors(path):
            statistics, psi, parts = cls.from_content(facts, arrays)
            if list(parts.values()) == [1] and statistics.digest() not in parts:
                raise InputError('the statistics are not those of their parts')
            return statistics, psi, parts

    @classmethod
    def from_content(cls, facts: dict, arrays: dict) -> tuple['Statistics', str, dict[str, int]]:
        """Build statistics from `facts` and the arrays of `state_dict`; return psi and parts, too.
        InputError: they are invalid, or of a version before 0.3, whose features were not rounded
        to float32 on intake."""
        if facts.get('precision') != PRECISION:
            raise InputError(
                'of a version before 0.3, which rounded features otherwise: learn again'
            )
        lift = Lift(**facts['lift']) if 'lift' in facts else None
        statistics = cls.from_arrays(arrays, lift)
        psi = facts['psi']
        parts = facts['parts']
        if (
            not isinstance(psi, str)
            or not all(type(times) is int for times in parts.values())
            or (statistics.total and max(parts.values(), default=0) < 1)
        ):
            raise InputError('its backbone or its parts are invalid')
        return statistics, psi, parts

    @classmethod
    def from_arrays(cls, arrays: dict, lift: Lift | None = None) -> 'Statistics':
        """Build statistics from the arrays of `state_dict`; InputError if no samples can have
        them.
        """
        classes, counts, sums, gram = (arrays[name] for name in Sums._fields)
        n_classes = classes.size
        size = gram.shape[-1] if gram.ndim else 0  # D + 1
        matrix = (size, size)
        if not (
            len(arrays) == 4
            and size > 1
            and classes.shape == counts.shape == (n_classes,)
            and sums.shape == (n_classes, size)
            and gram.shape in (matrix, (n_classes, *matrix))
            and counts.dtype == sums.dtype == gram.dtype == np.int64
            and classes.dtype.kind in 'iU'
            and (lift is None or lift.size == size - 1)
        ):
            raise InputError('the arrays of these statistics have other shapes or types')
        classes = check_labels(classes.tolist(), n_classes)
        if not (((counts > 0) & (counts <= MAX_SAMPLES)).all() and counts.sum() <= MAX_SAMPLES):
            raise InputError(
                f'these statistics have classes without samples, or more than {MAX_SAMPLES} samples'
            )
        is_sorted = (classes[1:] > classes[:-1]).all()
        wrong = contradiction(counts, sums, gram) if is_sorted else 'classes out of order'
        if wrong:
            raise InputError(f'the arrays of these statistics contradict each other ({wrong})')
        out = cls.__new__(cls)  # there is memory for them
        dim = size - 1 if lift is None else lift.dim
        out.__setstate__((dim, lift, gram.ndim == 3, (classes, counts, sums, gram)))
        return out


def _joined(batches) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of batches; of one without a copy."""
    if len(batches) == 1:
        return batches[0]
    features, labels = map(np.concatenate, zip(*batches))
    return features, labels


def _all_classes(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the classes of both, sorted; InputError unless their labels are of one kind."""
    if not len(one) or not len(two):
        return one if len(one) else two
    check_kind(two, one)
    places = np.minimum(np.searchsorted(one, two), len(one) - 1)
    return one if (one[places] == two).all() else np.union1d(one, two)


def _combined(one: Sums, two: Sums, sign: int = 1) -> Sums:
    """Return the sums of both, or, where `sign` is -1, of the first without the second. InputError:
    labels of two kinds, or too many samples."""
    classes = _all_classes(one.classes, two.classes)

    def total(array: np.ndarray, more: np.ndarray) -> np.ndarray:
        return _total(array, one.classes, sign * more, two.classes, classes)

    counts = total(one.counts, two.counts)
    _check_count(counts)
    by_class = one.gram.ndim == 3
    gram = total(one.gram, two.gram) if by_class else one.gram + sign * two.gram
    return Sums(classes, counts, total(one.sums, two.sums), gram)


def _check_count(counts: np.ndarray) -> None:
    if counts.sum() > MAX_SAMPLES:
        raise InputError(f'{counts.sum()} samples: exact sums hold at most {MAX_SAMPLES}')


def _total(
    array: np.ndarray, classes: np.ndarray, more: np.ndarray, others: np.ndarray, both: np.ndarray
) -> np.ndarray:
    """Return the sum of two arrays, a row for each of `classes` and `others`, with rows for
    `both`."""
    out = in_rows(array, classes, both)
    out[np.searchsorted(both, others)] += more
    return out


def in_rows(array: np.ndarray, classes: np.ndarray, all_classes: np.ndarray) -> np.ndarray:
    """Return a copy of an array (K, ...) of `classes` with rows for `all_classes`: zeros for
    others."""
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
    """Return why no samples on the grid can have these statistics (see `Sums`), in short; '' where
    they may.

    Checked in integers, none of which wraps: each sum and product is within its bound, the constant
    feature has the sums that follow from the others, and each diagonal entry is at least the least
    sum of squares of integers with the sums of the classes. Then the scatter within classes, G -
    sum_c s_c s_c^T / n_c, must be positive semidefinite: its Cholesky decomposition, scaled to a
    diagonal of at most 1, may not fail after more than the largest rounding error (Higham 2002,
    theorem 10.7) was added: what is refused is certain."""
    if gram.ndim == 3:
        each = map(contradiction, counts[:, None], sums[:, None], gram)
        return next(filter(None, each), '')
    if not _within(sums, GRID * counts[:, None]) or (sums[:, -1] != GRID * counts).any():
        return 'class sums that samples on the grid cannot have'
    if (
        not _within(gram, GRID * GRID * counts.sum())
        or (gram != gram.T).any()
        or (gram[-1] != GRID * sums.sum(axis=0)).any()
    ):
        return 'a Gram matrix that does not go with the sums'
    some = np.maximum(counts, 1)[:, None]
    diagonal = gram.diagonal()
    # the squares are least where each number is mean or mean + 1
    mean, rest = np.divmod(sums, some)
    least = (some * mean * mean + rest * (2 * mean + 1)).sum(axis=0)
    if (diagonal < least).any() or gram[diagonal == 0].any():
        return 'a Gram matrix too small for the sums'
    scale = 1 / np.sqrt(np.maximum(diagonal, 1))
    between = sums / np.sqrt(some) * scale
    rounding = 2 * len(gram) * (len(gram) + len(counts) + 20) * np.finfo(float).eps
    scatter = gram * scale
    scatter *= scale[:, None]
    scatter = dsyrk(-1.0, between.T, 1.0, scatter.T, overwrite_c=True)
    np.einsum('ii->i', scatter)[:] += rounding
    if dpotrf(scatter, overwrite_a=True, clean=False)[1] > 0:
        return 'a Gram matrix too small for the sums'
    return ''


def _within(array: np.ndarray, bound) -> bool:
    """Return whether -bound <= array <= bound: the least int64 is -abs of itself."""
    return bool(((array >= -bound) & (array <= bound)).all())
