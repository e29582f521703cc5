"""The kinds of schedules, one function each: from the class of each sample to segments of a stream.

A form is given `rank`, int64 (N,), the place of each sample's class among the classes in order of
arrival, and never the labels: how classes are numbered cannot matter. It returns segments, arrays
of sample ids.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scroll.ground.errors import InputError

# more is a slip, and would cost hours or all memory
MAX_PARTS = 100_000
MAX_DRAWS = 50_000_000


def _reader(kind: type, least: float, most: float, meaning: str) -> Callable:
    """Return a function text -> number from `least` to `most`; InputError for another text."""
    pattern = '[0-9]{1,15}' if kind is int else r'[0-9]{1,9}(\.[0-9]{1,9})?'

    def read(text):
        if not re.fullmatch(pattern, str(text)) or not least <= kind(text) <= most:
            raise InputError(f'{text!r} is not {meaning}')
        return kind(text)

    return read


whole = _reader(int, 1, 10**15, 'a positive whole number')
parts = _reader(int, 1, MAX_PARTS, f'a whole number from 1 to {MAX_PARTS}')
from_zero = _reader(int, 0, 10**15, 'a whole number')
positive = _reader(float, 1e-9, 10**9, 'a number above 0')
_percentage = _reader(float, 0, 100, 'a percentage')


def optional(text):
    """Return a positive whole number, or None."""
    return None if text is None else whole(text)


def percent(text) -> float:
    """Return a number from 0 to 100, as a share."""
    return _percentage(text) / 100


def class_splits(n_classes: int, n_splits: int) -> list:
    """Return numbers of classes per split, which differ by at most one, larger ones first."""
    if not 1 <= n_splits <= n_classes:
        raise InputError(f'{n_splits} splits: there are {n_classes} classes; use 1..{n_classes}')
    return [n_classes // n_splits + (i < n_classes % n_splits) for i in range(n_splits)]


def _groups(rank, n) -> np.ndarray:
    """Return the group of each class, one of n, int64 (K,)."""
    sizes = class_splits(rank.max() + 1, n)  # refuses more groups than classes
    return np.repeat(np.arange(n), sizes)


def split(rank, random, n) -> list:
    """n tasks of whole classes, in order of arrival; samples of a task in random order."""
    return _shuffled(_groups(rank, n)[rank], n, random)


def inc(rank, random, n, b) -> list:
    """B<b>-Inc<n>: b classes, then n a task, the rest in the last; b=0: n from the beginning."""
    first = b or n
    n_classes = rank.max() + 1
    if first > n_classes or n > n_classes:
        raise InputError(f'B{b}-Inc{n}: there are {n_classes} classes')
    return _shuffled(np.maximum(rank - first, -1) // n + 1, 1 - (first - n_classes) // n, random)


def iid(rank, random) -> list:
    """Everything in random order, at once. `single`: one sample at a time."""
    return [random.permutation(len(rank))]


def gaussian(rank, random, sigma) -> list:
    """A Gaussian schedule that is a permutation: classes rise and fall one after the other. Each
    sample draws its time of arrival from the bell of its class, N(mu_j, s^2) with mu_j = (j + 1/2)
    / K for the j-th class and s = sigma / K. So the share of class j around time t is proportional
    to N_j exp(-(t - mu_j)^2 / (2 s^2)), from the first sample to the last; every sample comes
    once."""
    n_classes = rank.max() + 1
    times = (rank + 0.5) / n_classes + sigma / n_classes * random.standard_normal(len(rank))
    return [np.argsort(times, kind='stable')]


def gaussian_resample(rank, random, batch, batches, width) -> list:
    """The Gaussian schedule as published (Shanahan et al. 2021), with repetition. L batches in
    episodes of 5. The j-th of K classes peaks at batch floor(D / 2) + j D, D = floor(L / K), and
    takes part in the episode that starts at batch t with probability exp(-(t - peak)^2 / (2 w^2));
    an empty set is drawn again. Each episode draws its images from all those of its classes."""
    n_classes = rank.max() + 1
    spacing = batches // n_classes
    segments = []
    if not spacing:
        raise InputError(
            f'{batches} batches for {n_classes} classes: expected at least one a class'
        )
    if batches * batch > MAX_DRAWS:
        raise InputError(f'{batches} batches of {batch}: use at most {MAX_DRAWS} samples in all')
    peaks = spacing // 2 + spacing * np.arange(n_classes)
    for start in range(0, batches, 5):
        log_p = -((start - peaks) ** 2) / (2 * width**2)
        present = random.random(n_classes) < np.exp(log_p)
        while not present.any():
            # as thousands of draws would end: with one class, up to a thousandth
            if log_p.max() < -7:
                weights = np.exp(log_p - log_p.max())
                present[random.choice(n_classes, p=weights / weights.sum())] = True
            else:
                present = random.random(n_classes) < np.exp(log_p)
        pool = np.flatnonzero(present[rank])
        size = min(5, batches - start) * batch
        drawn = random.choice(pool, size, replace=size > len(pool))
        segments += np.split(drawn, range(batch, size, batch))
    return segments


def blurry(rank, random, tasks, major, minor) -> list:
    """i-Blurry (Koh et al. 2022): a share `major` of the classes belongs to one task each; of every
    other class a share `minor` comes outside its main task, evenly over the other tasks."""
    n_classes = rank.max() + 1
    main, blurred = _main_tasks(n_classes, major, random, lambda count: np.arange(count) % tasks)
    task_of = main[rank]
    for j in blurred:
        samples = random.permutation(np.flatnonzero(rank == j))
        away = samples[: round(len(samples) * minor)]
        others = np.delete(np.arange(tasks), main[j])
        if len(others):
            turn = np.arange(len(away)) + random.integers(len(others))
            task_of[away] = others[turn % len(others)]
    return _shuffled(task_of, tasks, random)


def siblurry(rank, random, tasks, major, minor) -> list:
    """Si-Blurry (Moon et al. 2023): as `blurry`, but the numbers of classes of the tasks are
    random, and the share `minor` of all samples of the other classes is cut at random places into
    parts for the tasks. No sample is lost."""
    n_classes = rank.max() + 1
    main, blurred = _main_tasks(
        n_classes, major, random, lambda count: _random_parts(count, tasks, random)
    )
    task_of = main[rank]
    away = random.permutation(np.flatnonzero(np.isin(rank, blurred)))
    away = away[: round(len(away) * minor)]
    task_of[away] = _random_parts(len(away), tasks, random)
    return _shuffled(task_of, tasks, random)


def recurring(rank, random, n, times) -> list:
    """n groups of classes come one after the other, `times` times in all, each time with other
    samples.
    """
    groups = _groups(rank, n)[rank]
    parts(n * times)
    visit = np.empty(len(rank), np.int64)
    for j in range(rank.max() + 1):
        samples = random.permutation(np.flatnonzero(rank == j))
        visit[samples] = np.arange(len(samples)) * times // len(samples)
    return _shuffled(visit * n + groups, n * times, random)


def imbalanced(rank, random, n, ratio) -> list:
    """A class split of part of the data: the j-th of K classes keeps N_j ratio^(-j / (K - 1))
    samples, at least one (Cui et al. 2019), so the first to arrive is the largest."""
    n_classes = rank.max() + 1
    chosen = []
    for j in range(n_classes):
        samples = random.permutation(np.flatnonzero(rank == j))
        share = ratio ** (-j / max(n_classes - 1, 1))
        chosen.extend(samples[: max(1, round(len(samples) * share))])
    chosen = np.array(chosen)
    segments = _shuffled(_groups(rank, n)[rank[chosen]], n, random)
    return [chosen[segment] for segment in segments]


def from_file(rank, random, path) -> list:
    """Segments of a text file: on each line the ids of one, with blanks between, each once, which
    `Schedule` checks."""
    count = len(rank)
    try:
        file = Path(path)
        if file.stat().st_size > 64 * (count + 64) or not file.is_file():
            raise ValueError(f'expected a file of {count} ids')
        lines = file.read_text(encoding='ascii').splitlines()
        segments = [np.array(line.split(), np.int64) for line in lines]
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f'{" ".join(str(path).split())} is no list of sample ids, a segment a line '
            f'({str(error)[:200]})'
        ) from error
    return segments


def _main_tasks(n_classes, major, random, deal) -> tuple[np.ndarray, np.ndarray]:
    """Return (main task of each class, classes that are not major); `deal(count)` gives tasks to
    `count` classes.
    """
    groups = np.split(random.permutation(n_classes), [round(n_classes * major)])
    main = np.empty(n_classes, np.int64)
    for group in groups:
        main[group] = deal(len(group))
    return main, np.sort(groups[1])


def _random_parts(count: int, tasks: int, random) -> np.ndarray:
    """Return 0, 0, 1, 1, 1, ..., cut at random places, int64 (count,)."""
    return np.searchsorted(
        np.sort(random.integers(0, count + 1, tasks - 1)), np.arange(count), side='right'
    )


def _shuffled(segment_of: np.ndarray, count: int, random) -> list:
    """Return the samples of each segment, in random order."""
    return [random.permutation(np.flatnonzero(segment_of == t)) for t in range(count)]


class Form(NamedTuple):
    """A kind of schedule.

    Attributes:
        build: (rank, random generator, **options) -> segments.
        options: name -> (reader, default as text or None). `order`, of the classes, `every` and
            `batch` are not given to `build`, except `batch` to forms that repeat samples.
        argument: the option that stands behind the colon by itself.
        task_free: no task boundaries; otherwise each segment is a task, before `batch` cuts it.
        covers: see `scroll.streams.schedules.Schedule`."""

    build: Callable
    options: dict
    argument: str | None = None
    task_free: bool = False
    covers: str = 'all'


_ORDER = {'order': (str, 'label')}
_BATCH = {'batch': (optional, None), 'every': (whole, '1')}
_PIECES = _BATCH | {'batch': (optional, '32')}
_BLURRY = {'tasks': (parts, '5'), 'major': (percent, '50'), 'minor': (percent, '10')} | _PIECES
FORMS = {
    'split': Form(split, {'n': (whole, None)} | _ORDER | _BATCH, 'n'),
    'inc': Form(inc, {'n': (whole, None), 'b': (from_zero, '0')} | _ORDER | _BATCH, 'n'),
    'iid': Form(iid, _BATCH),
    'single': Form(iid, _BATCH | {'batch': (optional, '1')}),
    'gaussian': Form(gaussian, {'sigma': (positive, '0.5')} | _PIECES | _ORDER, task_free=True),
    'gaussian-resample': Form(
        gaussian_resample,
        {
            'batches': (parts, '1000'),
            'width': (positive, '50'),
            'batch': (whole, '60'),
            'order': (str, 'random'),
        },
        task_free=True,
        covers='repeats',
    ),
    'blurry': Form(blurry, _BLURRY, task_free=True),
    'siblurry': Form(siblurry, _BLURRY, task_free=True),
    'recurring': Form(
        recurring,
        {'n': (whole, None), 'times': (parts, '2')} | _PIECES | _ORDER,
        'n',
        task_free=True,
    ),
    'imbalanced': Form(
        imbalanced,
        {'n': (whole, None), 'ratio': (positive, '100')} | _ORDER | _BATCH,
        'n',
        covers='part',
    ),
    'file': Form(from_file, {'path': (str, '')} | _BATCH, 'path', task_free=True),
}
GRAMMAR = (
    'a schedule is split:<n>[,order=label|random|<class>-<class>-...], '
    'inc:<n>[,b=<first>][,order=..], iid, single, gaussian[:sigma=<s>][,order=..], '
    'gaussian-resample, blurry[:tasks=<t>][,major=<%>][,minor=<%>], '
    'siblurry[:..], recurring:<n>[,times=<r>][,order=..], imbalanced:<n>[,ratio=<r>][,order=..] or '
    'file:<path>, each with an optional ,batch=<b>[,every=<c>]; for example split:50  '
    'split:10,order=random  iid,batch=32  gaussian:sigma=0.5  blurry:major=50,minor=10'
)
