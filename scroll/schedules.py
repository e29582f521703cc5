"""A schedule S = (sigma, beta): the order in which a data set arrives, and how much of it arrives at once.

    >>> schedule = make_schedule('split:2', labels=[0, 1, 0, 1], seed=0)
    >>> [sorted(segment.tolist()) for segment in schedule.segments()]
    [[0, 2], [1, 3]]

Paper, section 2: `order` is sigma, `cuts` are the batch boundaries of beta (half-open here; the paper's inclusive bounds
would make neighbours overlap by one). A segment order[k_t:k_{t+1}] is what a learner may see at once. Pure functions of
labels, spec and seed.
"""
import hashlib
import re
from dataclasses import dataclass

import numpy as np

from scroll.errors import InputError
from scroll.randomness import numpy_stream

GRAMMAR = ("a schedule is split:<n>[,order=label|random|<class>-<class>-...] or iid, each with an optional ,batch=<b>; "
           "for example split:50  split:10,order=random  iid,batch=32")


@dataclass(frozen=True)
class Schedule:
    """Order and boundaries of a stream over a data set of N samples.

    Attributes:
        order: int64 (N,), sample ids as they arrive; a permutation of 0..N-1.
        cuts: int64 (T + 1,), from 0 to N, increasing: segment t is order[cuts[t]:cuts[t + 1]].
        tasks: int64 (S + 1,), a subset of `cuts` with both ends: where Mammoth's tasks begin and end.
        spec: the text it was made from.
    """
    order: np.ndarray
    cuts: np.ndarray
    tasks: np.ndarray
    spec: str

    def __post_init__(self):
        count = len(self.order)
        if not np.array_equal(np.sort(self.order), np.arange(count)):
            raise InputError(f'schedule {self.spec!r}: its order is not a permutation of the {count} samples')
        for name, cuts in (('cuts', self.cuts), ('tasks', self.tasks)):
            if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != count or (np.diff(cuts) <= 0).any():
                raise InputError(f'schedule {self.spec!r}: its {name} must increase from 0 to {count}')
        if not np.isin(self.tasks, self.cuts).all():
            raise InputError(f'schedule {self.spec!r}: a task ends inside a segment')

    def segments(self):
        """Yield the sample ids of each segment, in order."""
        for start, end in zip(self.cuts[:-1], self.cuts[1:]):
            yield self.order[start:end]

    def task(self, t: int):
        """Sample ids of task t, and the ends of its segments counted from the task's first sample."""
        start, end = self.tasks[t], self.tasks[t + 1]
        return self.order[start:end], self.cuts[(self.cuts > start) & (self.cuts <= end)] - start

    def digest(self) -> str:
        """SHA-256 of order and cuts."""
        return hashlib.sha256(self.order.astype('<i8').tobytes() + self.cuts.astype('<i8').tobytes()).hexdigest()


def class_splits(n_classes: int, n_splits: int) -> list:
    """Classes per split: sizes that differ by at most one, larger ones first."""
    if not 1 <= n_splits <= n_classes:
        raise InputError(f'{n_splits} splits: there are {n_classes} classes; use 1..{n_classes}')
    return [n_classes // n_splits + (i < n_classes % n_splits) for i in range(n_splits)]


def make_schedule(spec: str, labels, seed: int = 0) -> Schedule:
    """The schedule that `spec` describes over samples with these labels.

    Args:
        spec: see `GRAMMAR`. `split:<n>`: n segments of whole classes, in label order, in a seeded order or as listed;
            samples of a segment in random order. `iid`: one segment, random order. `batch=<b>` cuts each segment into
            pieces of b (the last may be smaller); tasks stay as they were.
        labels: int (N,).
        seed: of the run; the schedule draws from a stream of its own.

    Raises:
        InputError: the spec cannot be read or does not fit the labels.
    """
    labels = np.asarray(labels)
    name, argument, options = _parse(spec)
    random = numpy_stream(seed, 'schedule')
    classes = np.unique(labels)
    if name == 'split':
        sizes = class_splits(len(classes), _whole(spec, 'the number of splits', argument))
        ordered = _class_order(spec, options.pop('order', 'label'), classes, random)
        groups = np.split(ordered, np.cumsum(sizes)[:-1])
        parts = [random.permutation(np.flatnonzero(np.isin(labels, group))) for group in groups]
    elif name == 'iid' and argument is None:
        parts = [random.permutation(len(labels))]
    else:
        raise InputError(f'schedule {spec!r}: {GRAMMAR}')
    batch = options.pop('batch', None)
    if options:
        raise InputError(f'schedule {spec!r}: unknown option {next(iter(options))!r}; {GRAMMAR}')
    tasks = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    cuts = tasks
    if batch is not None:
        step = _whole(spec, 'batch', batch)
        cuts = np.unique(np.concatenate([tasks, *(np.arange(a, b, step) for a, b in zip(tasks[:-1], tasks[1:]))]))
    return Schedule(np.concatenate(parts), cuts, tasks, spec)


def _parse(spec: str):
    """'name:argument,key=value' -> (name, argument or None, options)."""
    head, *rest = str(spec).replace(' ', '').split(',')
    name, colon, argument = head.partition(':')
    options = {}
    for item in rest:
        key, equals, value = item.partition('=')
        if not equals or key in options:
            raise InputError(f'schedule {spec!r}: cannot read {item!r}; {GRAMMAR}')
        options[key] = value
    return name, argument if colon else None, options


def _whole(spec: str, what: str, text) -> int:
    """A positive whole number out of a spec."""
    if text is None or not re.fullmatch('[0-9]{1,15}', str(text)) or int(text) == 0:
        raise InputError(f'schedule {spec!r}: {what} must be a positive whole number; {GRAMMAR}')
    return int(text)


def _class_order(spec: str, order: str, classes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The classes in order of arrival."""
    if order == 'label':
        return classes
    if order == 'random':
        return random.permutation(classes)
    items = order.split('-')
    listed = [int(item) for item in items if re.fullmatch('[0-9]{1,15}', item)]
    if len(listed) != len(items) or sorted(listed) != classes.tolist():
        raise InputError(f'schedule {spec!r}: order must be label, random, or each of the {len(classes)} classes once, '
                         'joined by -')
    return np.array(listed, dtype=classes.dtype)
