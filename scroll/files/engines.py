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
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from scroll.embedding.named import embedder_of
from scroll.files import features
from scroll.files.learning import learn_file, open_for
from scroll.ground.archive import read_errors
from scroll.ground.arguments import whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import Progress
from scroll.learners.learner import Scroll
from scroll.learners.state import State
from scroll.sums.parts import one_part


class Count(NamedTuple):
    """Sums of files: a `State` of statistics, and the files (sources) that were counted."""

    state: State
    sources: tuple[str, ...]


def find(patterns: list[str]) -> list[str]:
    """Return paths and URLs that match any of these patterns (`dir/*.parquet`,
    `s3://bucket/**/*.npz`), each once, sorted; InputError where none matches."""
    paths = set()
    for pattern in patterns:
        if '://' in pattern:
            with _file_system(pattern) as fsspec:
                files, path = fsspec.core.url_to_fs(pattern)
                matching = [files.unstrip_protocol(file) for file in files.glob(path)]
        else:
            matching = [os.path.abspath(path) for path in glob.glob(pattern, recursive=True)]
        if not matching:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(matching)
    return sorted(paths)


@contextmanager
def _file_system(url: str) -> Iterator:
    """Give fsspec to the block; any error there is an InputError, since each kind of store has its
    own errors."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise InputError(
            f'{url}: URLs need fsspec, which is not installed: pip install fsspec'
        ) from None
    with read_errors(url):
        yield fsspec


@contextmanager
def _local_copy(source: str) -> Iterator[str]:
    """Give a path on this machine to the block: for a URL that of a copy, deleted afterwards."""
    if '://' not in source:
        yield source
        return
    with tempfile.TemporaryDirectory() as folder, prefixed(source):
        cache = {'cache_storage': folder}
        with _file_system(source) as fsspec:
            path = fsspec.open_local(f'simplecache::{source}', simplecache=cache)
        yield path


@dataclass(frozen=True)
class Counter:
    """Counts a file of features; plain data, so that any process can be given it.

    Attributes:
        params: those of `Scroll` but for its embedder, without buffer and keys.
        columns: other names of columns, as of `scroll.files.learning.learn`.
        split: the samples to take, as there.
        size: the samples of a block, as there.
        names: names of the columns of features, in order (`names_in`).
        embedder: backbone for files of images, as `embedder_of` takes it; '' for features.
    """

    params: dict
    columns: dict | None = None
    split: str | None = None
    size: int = features.BLOCK
    names: tuple | None = None
    embedder: str = ''

    def __call__(self, source: str) -> Count | InputError:
        """Count a file. An InputError is returned, so that no engine takes it for a failure to be
        tried again, or wraps it."""
        try:
            return self._counted(source)
        except InputError as error:
            return error

    def _counted(self, source: str) -> Count:
        learner = Scroll(embedder_of(self.embedder), **self.params)
        with _local_copy(source) as path:
            (file,) = open_for(learner, [path], self.columns, self.names)
            # there may be nothing to learn
            learner.set_state(learner.empty_state(file.dim, file.names))
            learn_file(learner, file, self.split, self.size)
        statistics = learner.statistics_
        params = learner.get_params()
        del params['embedder']
        state = State(
            params,
            learner.psi(),
            statistics,
            parts=one_part(statistics),
            names=self.names,
            boolean=learner.classes_.dtype == bool,
        )
        return Count(state, (source,))


def names_in(source: str, columns: dict | None = None) -> tuple | None:
    """Return the names of the columns of X in a file of features; None where it is one column."""
    with _local_copy(source) as path:
        return features.open_files([path], columns)[0].names


def merge(one: Count | InputError, two: Count | InputError) -> Count | InputError:
    """Add two counts; neither is changed, since a cluster may use them again. The first error
    stays, and an error of the sum is returned, too."""
    if isinstance(one, InputError):
        return one
    if isinstance(two, InputError):
        return two
    try:
        with prefixed(f'{one.sources[0]}, {two.sources[0]}'):
            return Count(one.state.merged(two.state), one.sources + two.sources)
    except InputError as error:
        return error


def sum_of(counts: Iterable) -> Count | InputError:
    """Add counts."""
    return functools.reduce(merge, counts)


def state_of(count: Count | InputError, sources: list) -> State:
    """Return the sums of all files, as `State.write` writes them. InputError: a file cannot be
    counted (which), or not each was counted once."""
    if isinstance(count, InputError):
        raise count
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
    `state_of`, or if a process was killed."""
    from joblib import Parallel, delayed

    whole('workers', workers, 1)
    counts = Parallel(workers, return_as='generator')(map(delayed(counter), sources))
    try:
        return state_of(sum_of(Progress('Learning, files', len(sources)).over(counts)), sources)
    except BrokenProcessPool as error:
        raise InputError(
            f'--workers {workers}: a process was killed, perhaps for lack of memory; nothing was '
            'written'
        ) from error
