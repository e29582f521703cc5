"""Count a file; merge two counts; which files there are."""
import functools
import glob
import os
import tempfile
from collections import Counter as Times
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from scroll.embedding.named import embedder_of
from scroll.errors import InputError, naming
from scroll.files import features
from scroll.files.learning import learn_file, open_for
from scroll.learner import Scroll
from scroll.parts import one_part
from scroll.state import State


class Count(NamedTuple):
    """What was counted: a `State` of statistics, and the sources that it is of."""
    state: State
    sources: tuple


def find(patterns: list) -> list:
    """Paths and URLs that match any of these patterns (`dir/*.parquet`, `s3://bucket/**/*.npz`), each once,
    sorted; InputError where none matches."""
    paths = set()
    for pattern in patterns:
        if '://' in pattern:
            found = _at_url(pattern, _matching)
        else:
            found = [os.path.abspath(path) for path in glob.glob(pattern, recursive=True)]
        if not found:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(found)
    return sorted(paths)


def _at_url(url: str, use):
    """use(fsspec, url); InputError for whatever goes wrong, since each kind of store has its own errors."""
    try:
        import fsspec
    except ModuleNotFoundError:
        raise InputError(f'{url}: URLs need fsspec, which is not installed: pip install fsspec') from None
    try:
        return use(fsspec, url)
    except Exception as error:
        raise InputError(f'{url}: cannot be read ({" ".join(str(error).split())[:300]})') from error


def _matching(fsspec, url: str) -> list:
    files, path = fsspec.core.url_to_fs(url)
    return [files.unstrip_protocol(found) for found in files.glob(path)]


@contextmanager
def _here(source: str) -> Iterator[str]:
    """A path on this machine: of what a URL names a copy, for as long as it is needed."""
    if '://' not in source:
        yield source
        return
    with tempfile.TemporaryDirectory() as folder, naming(source):
        yield _at_url(source, lambda fsspec, url: fsspec.open_local(
            f'simplecache::{url}', simplecache=dict(cache_storage=folder)))


@dataclass(frozen=True)
class Counter:
    """Counts a file of features; plain data, so that any process can be given it.

    Attributes:
        params: of `Scroll`, without buffer and keys. columns, split, size: as of
            `scroll.files.learning.learn`. names: of the columns of features, in order (`names_in`).
        embedder: of files of images, as `embedder_of` takes it; '' for features.
    """
    params: dict
    columns: dict = None
    split: str = None
    size: int = features.BLOCK
    names: tuple = None
    embedder: str = ''

    def __call__(self, source: str) -> Count:
        """What a file counts; InputError if it cannot be counted."""
        learner = Scroll(embedder_of(self.embedder), **self.params)
        with _here(source) as path:
            file, = open_for(learner, [path], self.columns, self.names)
            learn_file(learner, file, self.split, self.size)
        dim, psi = (file.dim, '') if not self.embedder else (learner.embedder.dim, learner.embedder.digest)
        counted = getattr(learner, 'statistics_', None) or learner.new_statistics(dim)
        return Count(State(None, psi, counted, parts=one_part(counted)), (source,))


def names_in(source: str, columns: dict = None) -> tuple | None:
    """Names of the columns that X of a file of features is made of; None where it is one column."""
    with _here(source) as path:
        return features.open_files([path], columns)[0].names


@dataclass(frozen=True)
class ReturningErrors:
    """A counter that returns its InputError, so that no engine takes it for a failure to be tried again, or
    wraps it."""
    counter: Counter

    def __call__(self, source: str):
        try:
            return self.counter(source)
        except InputError as error:
            return error


def merge(one, two):
    """The sum of two counts; neither is changed, since an engine may use them again. None counts nothing; the
    first error stays."""
    for part, other in ((one, two), (two, one)):
        if part is None or isinstance(other, InputError):
            return other
    return Count(one.state.merged(two.state), one.sources + two.sources)


def sum_of(counts):
    """The sum of any number of counts; None of none."""
    return functools.reduce(merge, counts, None)


def check_complete(counted: Count, sources: list) -> None:
    """InputError unless each source was counted once."""
    times = Times(counted.sources)
    wrong = [source for source in sources if times[source] != 1]
    if wrong:
        raise InputError(f'{wrong[0]}: was counted {times[wrong[0]]} times, expected once, as were '
                         f'{len(wrong) - 1} others of {len(sources)}: the engine has lost or repeated them')
