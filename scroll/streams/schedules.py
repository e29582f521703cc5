"""A schedule S = (sigma, beta): the order in which a data set arrives, and how much at once.

    >>> schedule = make_schedule('split:2', labels=[0, 1, 0, 1], seed=0)
    >>> [sorted(segment.tolist()) for segment in schedule.segments()]
    [[0, 2], [1, 3]]

Paper, section 2: `order` is sigma, `cuts` are the batch boundaries of beta (half-open here). A
segment order[k_t:k_{t+1}] is what a learner may see at once. Pure functions of labels, spec and
seed; the forms are in `scroll.streams.schedule_forms`.
"""

import hashlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scroll.ground.arguments import whole
from scroll.ground.errors import InputError, did_you_mean
from scroll.ground.labels import check_labels
from scroll.ground.randomness import numpy_stream
from scroll.streams.schedule_forms import FORMS, GRAMMAR


@dataclass(frozen=True)
class Schedule:
    """Order and boundaries of a stream over a data set of N samples.

    Attributes:
        order: int64 (M,), sample ids as they arrive, each of 0..N-1.
        cuts: int64 (T + 1,), from 0 to M, increasing: segment t is order[cuts[t]:cuts[t + 1]].
        tasks: int64 (S + 1,), a subset of `cuts` with both ends: where Mammoth's tasks begin and
        end.
        spec: the text it was made from.
        task_free: classes come and go without boundaries; `tasks` is then the whole stream.
        covers: 'all': a permutation, what the paper calls a schedule; 'part': samples are left out;
            'repeats': samples come again, and nothing can be invariant to that.
        samples: N; M where nothing is said."""

    order: np.ndarray
    cuts: np.ndarray
    tasks: np.ndarray
    spec: str
    task_free: bool = False
    covers: str = 'all'
    samples: int | None = None

    def __post_init__(self):
        count = len(self.order)
        samples = count if self.samples is None else self.samples
        inside = count and self.order.min() >= 0 and self.order.max() < samples
        times = np.bincount(self.order, minlength=samples) if inside else np.zeros(1)
        once = {'all': (times == 1).all(), 'part': (times <= 1).all()}.get(self.covers, True)
        if not (inside and once):
            raise InputError(
                f'schedule {self.spec!r}: its order is not a permutation of the {samples} samples, '
                f'ids from 0 to {samples - 1}, each once'
            )
        for cuts in (self.cuts, self.tasks):
            rising = len(cuts) > 1 and (np.diff(cuts) > 0).all()
            if (
                not rising
                or (cuts[0], cuts[-1]) != (0, count)
                or not np.isin(cuts, self.cuts).all()
            ):
                raise InputError(
                    f'schedule {self.spec!r}: its cuts, and tasks among them, must increase '
                    f'from 0 to {count}'
                )

    def segments(self) -> Iterator[np.ndarray]:
        """Yield the sample ids of each segment, in order."""
        yield from np.split(self.order, self.cuts[1:-1])

    def task(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sample ids of task t, and the ends of its segments counted from the task's first
        sample.
        """
        start = self.tasks[t]
        end = self.tasks[t + 1]
        return self.order[start:end], self.cuts[(self.cuts > start) & (self.cuts <= end)] - start

    def digest(self) -> str:
        """Return the SHA-256 of order and cuts."""
        content = self.order.astype('<i8').tobytes() + self.cuts.astype('<i8').tobytes()
        return hashlib.sha256(content).hexdigest()


def make_schedule(spec: str, labels, seed: int = 0) -> Schedule:
    """Build the schedule that `spec` describes over samples with these labels.

    spec: see `GRAMMAR`; `batch=<b>` cuts each segment of a form into pieces of b (the last may be
        smaller); tasks stay. `every=<c>` keeps the first of each c pieces of the stream.
    labels: (N,), whole numbers or text.
    seed: of the run, 0 to 2^63 - 1; the schedule draws from a stream of its own.
    InputError: a malformed spec, or one that does not fit the labels; another seed."""
    whole('seed', seed, 0, 2**63 - 1)
    name, options = _parse(spec)
    form = FORMS[name]
    labels = check_labels(labels)
    random = numpy_stream(seed, 'schedule')
    if not len(labels):
        raise InputError(f'schedule {spec!r}: there are no samples to put in order')
    try:
        values = {
            key: read(options.get(key, default)) for key, (read, default) in form.options.items()
        }
        classes, rank = np.unique(labels, return_inverse=True)
        if 'order' in values:
            rank = np.argsort(_arrival(values.pop('order'), classes, random))[rank]
        batch = values.get('batch') if form.covers == 'repeats' else values.pop('batch')
        every = values.pop('every', 1)
        segments = form.build(rank, random, **values)
        if every > 1:
            segments = _first_of_each(every, segments, batch, rank)
        segments = [part for part in segments if len(part)]
    except InputError as error:
        hint = '' if options.get('path') else f'; {GRAMMAR}'  # a file has a grammar of its own
        raise InputError(f'schedule {spec!r}: {error}{hint}') from None
    if not segments:
        raise InputError(f'schedule {spec!r}: no sample is in it; {GRAMMAR}')
    ends = np.cumsum([0, *map(len, segments)])
    cuts = [np.arange(a, b, batch or b - a) for a, b in itertools.pairwise(ends)]
    return Schedule(
        np.concatenate(segments),
        np.concatenate([*cuts, ends[-1:]]),
        ends[[0, -1]] if form.task_free else ends,
        spec,
        form.task_free,
        'part' if every > 1 else form.covers,
        len(labels),
    )


def _first_of_each(every: int, segments: list, batch: int | None, rank: np.ndarray) -> list:
    """Return what a learner sees of the segments while each piece of `batch` samples takes it as
    long as `every` of them take to come.
    """
    if not batch:
        raise InputError(f'every={every} counts pieces: say how long they are, as in batch=32')
    kept = []
    start = 0
    for segment in segments:
        piece = start + np.arange(len(segment)) // batch
        kept.append(segment[piece % every == 0])
        start += -(-len(segment) // batch)
    lost = np.setdiff1d(rank, rank[np.concatenate(kept)])
    if len(lost):
        raise InputError(f'every={every} leaves no sample of {len(lost)} classes')
    return kept


def is_task_free(spec: str) -> bool:
    """Return whether the schedule that `spec` describes has no task boundaries; looks at no
    data.
    """
    return FORMS[_parse(spec)[0]].task_free


def n_splits(spec: str) -> int | None:
    """Return the number of tasks that a class split asks for, None for other schedules; looks at no
    data.
    """
    name, options = _parse(spec)
    is_split = name == 'split' and re.fullmatch('[0-9]{1,15}', options.get('n', ''))
    return int(options['n']) if is_split else None


def _parse(spec: str) -> tuple[str, dict[str, str]]:
    """Split 'name:argument,key=value' into (name, options); the argument is the option that the
    form names.
    """
    name, colon, rest = str(spec).strip().partition(':')
    if not colon:
        name, colon, rest = name.partition(',')
    options = {}
    form = FORMS.get(name)
    if form is None:
        raise InputError(
            f'schedule {spec!r}: no such form' + (did_you_mean(name, FORMS) or f'; {GRAMMAR}')
        )
    for i, item in enumerate(rest.split(',') if colon else []):
        key, equals, value = (part.strip() for part in item.partition('='))
        if not equals and i == 0 and form.argument and key:
            key, value = form.argument, key
        elif not equals or key not in form.options:
            hint = did_you_mean(key, form.options) if equals else ''
            raise InputError(f'schedule {spec!r}: cannot read {item!r}{hint}; {GRAMMAR}')
        if key in options:
            raise InputError(f'schedule {spec!r}: {key} is given twice; {GRAMMAR}')
        options[key] = value
    return name, options


def _arrival(order: str, classes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return positions in `classes`, sorted, in the order in which the classes arrive."""
    if order in ('label', 'random'):
        return np.arange(len(classes)) if order == 'label' else random.permutation(len(classes))
    items = order.split('-')
    listed = [int(item) for item in items if re.fullmatch('[0-9]{1,15}', item)]
    if len(listed) != len(items) or sorted(listed) != classes.tolist():
        raise InputError(
            f'order must be label, random, or each of the {len(classes)} classes once, joined '
            f'by -{did_you_mean(order, ("label", "random"))}'
        )
    return np.searchsorted(classes, listed)
