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

GRAMMAR = ("a schedule is split:<n>[,order=label|random|<class>-<class>-...], iid, or gaussian[:sigma=<s>][,order=...], each "
           "with an optional ,batch=<b>; for example split:50  split:10,order=random  iid,batch=32  gaussian:sigma=0.5")
_TASK_FREE = ('gaussian',)


@dataclass(frozen=True)
class Schedule:
    """Order and boundaries of a stream over a data set of N samples.

    Attributes:
        order: int64 (N,), sample ids as they arrive; a permutation of 0..N-1.
        cuts: int64 (T + 1,), from 0 to N, increasing: segment t is order[cuts[t]:cuts[t + 1]].
        tasks: int64 (S + 1,), a subset of `cuts` with both ends: where Mammoth's tasks begin and end.
        spec: the text it was made from.
        task_free: classes come and go without boundaries; `tasks` is then the whole stream.
    """
    order: np.ndarray
    cuts: np.ndarray
    tasks: np.ndarray
    spec: str
    task_free: bool = False

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
            samples of a segment in random order. `iid`: one segment, random order. `gaussian`: see `gaussian_order`; no
            tasks. `batch=<b>` cuts each segment into pieces of b (the last may be smaller; 32 for `gaussian` where
            nothing is said); tasks stay as they were.
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
    elif name == 'gaussian' and argument is None:
        ordered = _class_order(spec, options.pop('order', 'label'), classes, random)
        parts = [gaussian_order(labels, ordered, _positive(spec, 'sigma', options.pop('sigma', '0.5')), random)]
        options.setdefault('batch', '32')
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
    return Schedule(np.concatenate(parts), cuts, tasks, spec, is_task_free(spec))


def is_task_free(spec: str) -> bool:
    """Whether the schedule that `spec` describes has no task boundaries; looks at no data."""
    return _parse(spec)[0] in _TASK_FREE


def gaussian_order(labels: np.ndarray, classes: np.ndarray, sigma: float, random: np.random.Generator) -> np.ndarray:
    """The Gaussian schedule of Shanahan et al. 2021, as a permutation: classes rise and fall one after the other.

    At stream time u in [0, 1) the next sample's class is drawn, among those with samples left, with weights
    exp(-(u - mu_j)^2 / (2 s^2)), mu_j = (j + 1/2) / K for the j-th of `classes`, s = sigma / K; the sample at random.

    Returns:
        int64 (N,), a permutation of the samples.
    """
    count, width = len(labels), sigma / len(classes)
    peaks = (np.arange(len(classes)) + 0.5) / len(classes)
    waiting = [random.permutation(np.flatnonzero(labels == c)) for c in classes]
    left = np.array([len(samples) for samples in waiting])
    uniform, order = random.random(count), np.empty(count, np.int64)
    for i in range(count):
        closeness = np.where(left > 0, -((i / count - peaks) / width) ** 2 / 2, -np.inf)
        cumulative = np.exp(closeness - closeness.max()).cumsum()          # the nearest peak with samples left has weight 1
        j = int(np.searchsorted(cumulative, uniform[i] * cumulative[-1], side='right'))
        if j == len(classes):                                               # rounding
            j = int(closeness.argmax())
        left[j] -= 1
        order[i] = waiting[j][left[j]]
    return order


def _parse(spec: str):
    """'name:argument,key=value' -> (name, argument or None, options)."""
    name, colon, rest = str(spec).replace(' ', '').partition(':')
    comma = colon
    if not colon:
        name, comma, rest = name.partition(',')
    items, argument, options = rest.split(',') if comma else [], None, {}
    if colon and '=' not in items[0]:
        argument = items.pop(0)
    for item in items:
        key, equals, value = item.partition('=')
        if not equals or key in options:
            raise InputError(f'schedule {spec!r}: cannot read {item!r}; {GRAMMAR}')
        options[key] = value
    return name, argument, options


def _whole(spec: str, what: str, text) -> int:
    """A positive whole number out of a spec."""
    if text is None or not re.fullmatch('[0-9]{1,15}', str(text)) or int(text) == 0:
        raise InputError(f'schedule {spec!r}: {what} must be a positive whole number; {GRAMMAR}')
    return int(text)


def _positive(spec: str, what: str, text: str) -> float:
    """A positive number out of a spec."""
    if not re.fullmatch(r'[0-9]{1,9}(\.[0-9]{1,9})?', text) or float(text) == 0:
        raise InputError(f'schedule {spec!r}: {what} must be a positive number; {GRAMMAR}')
    return float(text)


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
