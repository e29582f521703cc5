"""Learn many files, each once, in processes of this machine or where the data are; the sums are the
same.

    python -m scroll learn --from 'day*/*.parquet' --workers 3 -o state.npz

A cluster (Ray, Spark, Dask: docs/engines.md) maps `Counter(file) -> Count` and reduces by
`merge(Count, Count) -> Count`; each of its nodes needs scroll. A file lost, or counted twice, is
noticed (`state_of`).
"""

import functools
import glob
import os
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import NamedTuple

from scroll.embedding.named import embedder_of
from scroll.files.arrays import labels_of
from scroll.files.learning import learn_file, open_for
from scroll.ground.arguments import whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import track
from scroll.learners.learner import Scroll
from scroll.learners.state import State


class Count(NamedTuple):
    """Sums of files: a `State` of statistics, and the files (sources) that were counted."""

    state: State
    sources: tuple[str, ...]


def find(patterns: list[str]) -> list[str]:
    """Return paths that match any of these patterns (`dir/*.parquet`, `days/**/*.npz`), each once,
    sorted; InputError where none matches."""
    paths: set[str] = set()
    for pattern in patterns:
        matching = glob.glob(pattern, recursive=True)
        if not matching:
            raise InputError(
                f'--from {pattern}: no file matches (those at URLs: copy or mount them first)'
            )
        paths.update(map(os.path.abspath, matching))
    return sorted(paths - set(map(labels_of, paths)))


@dataclass(frozen=True)
class Counter:
    """Counts a file of features; plain data, so that any process can be given it.

    Attributes:
        params: those of `Scroll` but for its embedder, without buffer and keys.
        columns: other names of columns, as of `scroll.files.learning.learn`.
        split: the samples to take, as there.
        names: names of the columns of features, in order (`FeatureFile.names`).
        embedder: backbone for files of images, as `embedder_of` takes it; '' for features.
    """

    params: dict
    columns: dict | None = None
    split: str | None = None
    names: tuple | None = None
    embedder: str = ''

    def __call__(self, source: str) -> Count:
        """Count a file; InputError if it cannot be counted."""
        learner = Scroll(embedder_of(self.embedder), **self.params)
        (file,) = open_for(learner, [source], self.columns, self.names)
        # there may be nothing to learn
        learner.set_state(learner.empty_state(file.dim, file.names))
        sum(learn_file(learner, file, self.split))  # which learns as it goes
        learner.end_part()
        return Count(learner.state_for_files(), (source,))


def merge(one: Count, two: Count) -> Count:
    """Add two counts; neither is changed, since a cluster may use them again. InputError: their
    backbones, columns or kinds of labels differ."""
    sources = one.sources + two.sources
    for count, other in (one, two), (two, one):
        if not count.state.statistics.total:  # a file without samples may not know its features
            return Count(other.state, sources)
    with prefixed(f'{one.sources[0]}, {two.sources[0]}'):
        return Count(one.state.merged(two.state), sources)


def sum_of(counts: Iterable) -> Count:
    """Add counts."""
    return functools.reduce(merge, counts)


def state_of(count: Count, sources: list) -> State:
    """Return the sums of all files, as `State.write` writes them; InputError: not each was counted
    once."""
    wrong = [source for source in sources if count.sources.count(source) != 1]
    if wrong:
        times = count.sources.count(wrong[0])
        raise InputError(
            f'{wrong[0]}: was counted {times} times, expected once, as were {len(wrong) - 1} '
            f'others of {len(sources)}: they were lost or repeated'
        )
    return count.state


def total(counter: Counter, sources: list, workers: int = 1) -> State:
    """Count all files, each once, in this many processes, and return the sum; InputError as of
    `Counter`, `merge` and `state_of`, or if a process was killed."""
    from joblib import Parallel, delayed

    whole('workers', workers, 1)
    counts = Parallel(workers, return_as='generator')(map(delayed(counter), sources))
    try:
        return state_of(sum_of(track('Learning, files', counts, len(sources))), sources)
    except BrokenProcessPool as error:
        raise InputError(
            f'--workers {workers}: a process was killed, perhaps for lack of memory; nothing was '
            'written'
        ) from error
