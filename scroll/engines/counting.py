"""Count a file once, by name and content; merge two counts.

A block is a file: what an engine gives to a worker, loses, or runs twice. Its name has three parts:

    4a9d...c13e day1/part-3.parquet[0:65536]

the digest of its statistics, which does not depend on order, kind of file or who counts it; the file's name
below the folder where the patterns begin; and its rows. Equal name and content: the same block, which counts
once. Another name or other content: another block, which counts, since two files may well hold equal samples;
so a copy of a file under a new name is not recognised.
"""
import copy
import functools
import glob
import importlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from scroll.errors import InputError
from scroll.files import features
from scroll.files.learning import learn_blocks
from scroll.files.statistics import StatisticsFile
from scroll.learner import Scroll
from scroll.parts import clash


class Source(NamedTuple):
    """A file: where it is, a path or a URL, and what it is called in names of blocks."""
    path: str
    name: str


def rows_of(block: str) -> int:
    """How many rows a block's file has."""
    return int(block.rpartition(':')[2].rstrip(']'))


def find(patterns: list) -> list:
    """`Source`s: the files that match any of these patterns (`dir/*.parquet`, `s3://bucket/**/*.npz`), each
    once, in the order of their names; InputError where none matches."""
    paths, starts = set(), []
    for pattern in patterns:
        folder = os.path.dirname(re.split(r'[*?[]', pattern)[0])
        if '://' in pattern:
            files, path = _file_system(pattern)
            with _one_line(f'--from {pattern}'):
                found = [files.unstrip_protocol(found) for found in files.glob(path)]
        else:
            found = [os.path.abspath(path) for path in glob.glob(pattern, recursive=True)]
            folder = os.path.abspath(folder)
        if not found:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(found)
        starts.append(f"{folder.rstrip('/')}/")
    start = os.path.commonprefix(starts).rpartition('/')[0]
    return [Source(path, path[len(start) + 1:]) for path in sorted(paths)]


@contextmanager
def _one_line(what: str):
    """Any error in the block as an InputError: each kind of store has errors of its own."""
    try:
        yield
    except Exception as error:
        raise InputError(f'{what}: {" ".join(str(error).split())[:300]}') from error


def _file_system(url: str) -> tuple:
    """(file system, path in it) of a URL."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise InputError(f'{url}: URLs need fsspec, which is not installed: pip install fsspec') from None
    try:
        return url_to_fs(url)
    except (ImportError, ValueError) as error:          # says which package has its protocol
        raise InputError(f'{url}: {error}') from error


@contextmanager
def _here(path: str) -> Iterator[str]:
    """A path on this machine: of what a URL names a copy, for as long as it is needed."""
    if '://' not in path:
        yield path
        return
    files, remote = _file_system(path)
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, 'file')
        with _one_line(f'{path} cannot be read'):
            files.get(remote, local)
        try:
            yield local
        except InputError as error:
            raise InputError(str(error).replace(local, path)) from error


@dataclass(frozen=True)
class Counter:
    """Counts a file of features, or of images; plain data, so that any process can be given it.

    Attributes:
        params: of `Scroll`, without buffer, keys and embedder. columns, split, size, shard: as of
            `scroll.files.learning.learn`. names: of the columns of features, in order (`names_in`). embedder:
            'MODULE:NAME' of what makes an `Embedder`, once in each process: the files then hold images. ''
            for features. device: given to it, unless it is cpu.
    """
    params: dict
    columns: dict = None
    split: str = None
    size: int = features.BLOCK
    shard: str = None
    embedder: str = ''
    device: str = 'cpu'
    names: tuple = None

    def __call__(self, source: Source) -> StatisticsFile:
        """The statistics of a file, and its block as their one part; InputError if it cannot be counted."""
        embedder = embedder_of(self.embedder, self.device) if self.embedder else None
        learner = Scroll(embedder, **self.params)
        with _here(source.path) as path:
            if embedder is None:
                file, = features.open_files([path], self.columns, ('X', 'y'), self.names)
            else:
                from scroll.files.images import ImageFile
                file = ImageFile(path, self.columns)
            learn_blocks(learner, [file], self.split, self.size, self.shard)
        dim = file.dim if embedder is None else embedder.dim
        statistics = learner.statistics_ if hasattr(learner, 'statistics_') else learner.new_statistics(dim)
        block = f'{statistics.digest()} {source.name}[0:{file.rows}]'
        return StatisticsFile(source.path, statistics, embedder.digest if embedder else '', {block: 1})


def names_in(source: Source, columns: dict = None) -> tuple | None:
    """Names of the columns that X of a file of features is made of; None where it is one column."""
    with _here(source.path) as path:
        return features.open_files([path], columns)[0].names


@functools.cache
def embedder_of(name: str, device: str = 'cpu'):
    """The `Embedder` that 'MODULE:NAME' makes, one for the process; InputError if it makes none."""
    module, _, attribute = name.partition(':')
    try:
        make = getattr(importlib.import_module(module), attribute)
        out = make() if device == 'cpu' else make(device=device)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(f'--embedder {name}: expected MODULE:NAME of a function that makes an Embedder '
                         f'({" ".join(str(error).split())[:300]})') from error
    if not (callable(out) and hasattr(out, 'digest')):
        raise InputError(f'--embedder {name}: makes a {type(out).__name__}: expected an Embedder')
    return out


@dataclass(frozen=True)
class ReturningErrors:
    """A counter that returns its InputError, so that no engine takes it for a failure to be tried again, or
    wraps it."""
    counter: Counter

    def __call__(self, source: Source):
        try:
            return self.counter(source)
        except InputError as error:
            return error


def merge_counts(one, two):
    """The sum of two counts; neither is changed, since an engine may use them again. None counts nothing. A
    count whose blocks are all in the other comes from a task that was run twice: it adds nothing. The
    first error stays. InputError: they have some blocks in common, and each has others, too; or other
    backbones."""
    for part, other in ((one, two), (two, one)):
        if part is None:
            return other
        if isinstance(part, InputError):
            return part
    for part, other in ((one, two), (two, one)):
        if other.parts.keys() <= part.parts.keys():
            return part
    again = clash(one.parts, two.parts)
    if again:
        raise InputError(f'{again}: counted in two parts of which each has other blocks, too')
    out = StatisticsFile(one.path, copy.copy(one.statistics), one.psi, one.parts)
    return out.merge(two, repeated=True)                # equal content under two names is two blocks


def check_complete(counted: StatisticsFile, sources: list) -> None:
    """InputError unless each source was counted once: which was lost, or changed between two times that it
    was read."""
    names = sorted(block.partition(' ')[2].rpartition('[')[0] for block in counted.parts)
    twice = [name for name, after in zip(names, names[1:]) if name == after]
    if twice:
        raise InputError(f'{twice[0]}: was read twice, with different content: it was changed meanwhile')
    lost = sorted({source.name for source in sources} - set(names))
    if lost:
        raise InputError(f'{lost[0]}: was not counted, nor were {len(lost) - 1} others of {len(sources)}: '
                         'the engine has lost them')
