"""What is counted, once: a file, by name and content; and how two counts are put together.

A block is a file: what an engine gives to a worker, loses, or runs twice. It goes by three things:

    4a9d...c13e day1/part-3.parquet[0:65536]

the digest of its statistics, the file's name, and its rows. The digest is that of the content as far as it
counts: it does not depend on the order of the rows, on the kind of the file or on who counts it, and it is
what a part of a statistics file goes by, too (`scroll.files.statistics`). The name is that below the
folder where the patterns begin, so that the same data mounted elsewhere have the same blocks. Equal name and
content: the same block, which counts once. Another name, or the same name with other content (another site's
`part-0.parquet`): another block, which counts, also where its content is equal to another's: two files may
well hold equal samples. A copy of a file under a new name is therefore not known for one.
"""
import copy
import functools
import glob
import importlib
import os
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


def block_name(digest: str, name: str, rows: int) -> str:
    """What a block goes by."""
    return f'{digest} {name}[0:{rows}]'


def rows_of(block: str) -> int:
    """How many rows a block's file has."""
    return int(block.rpartition(':')[2].rstrip(']'))


def find(patterns: list) -> list:
    """`Source`s: the files that match any of these patterns (`dir/*.parquet`, `s3://bucket/**/*.npz`), each
    once, in the order of their names; InputError where none matches."""
    paths, starts = set(), []
    for pattern in patterns:
        first = min((pattern.find(c) for c in '*?[' if c in pattern), default=len(pattern))
        folder = os.path.dirname(pattern[:first])
        if '://' in pattern:
            found = _remote(pattern)
        else:
            found, folder = glob.glob(pattern, recursive=True), os.path.abspath(folder)
        if not found:
            raise InputError(f'--from {pattern}: no file matches')
        paths.update(found if '://' in pattern else map(os.path.abspath, found))
        starts.append(f"{folder.rstrip('/')}/")
    start = os.path.commonprefix(starts).rpartition('/')[0]
    return [Source(path, path[len(start) + 1:]) for path in sorted(paths)]


def _remote(pattern: str) -> list:
    files, path = _file_system(pattern)
    try:
        return [files.unstrip_protocol(found) for found in files.glob(path)]
    except Exception as error:          # each kind of store has errors of its own
        raise InputError(f'--from {pattern}: {" ".join(str(error).split())[:300]}') from error


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
        try:
            files.get(remote, local)
        except Exception as error:      # each kind of store has errors of its own
            raise InputError(f'{path}: cannot be read ({" ".join(str(error).split())[:300]})') from error
        try:
            yield local
        except InputError as error:
            raise InputError(str(error).replace(local, path)) from error


@dataclass(frozen=True)
class Counter:
    """Counts a file of features, or of images; plain data, so that any process can be given it.

    Attributes:
        params: of `Scroll`, but for the embedder; there is no buffer, and keys are not kept.
        columns, split, size, shard: as of `scroll.files.learning.learn`.
        embedder: 'MODULE:NAME' of what makes an `Embedder`, once in each process: the files then hold images
            (`scroll.engines.images`). '' for features.
        device: what it is called with, as `device=`, unless it is cpu.
        names: of the columns of features, in the order in which they are counted (`names_in`).
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
                from scroll.engines.images import ImageFile
                file = ImageFile(path, self.columns)
            learn_blocks(learner, [file], self.split, self.size, self.shard)
        dim = file.dim if embedder is None else embedder.dim
        statistics = learner.statistics_ if hasattr(learner, 'statistics_') else learner.new_statistics(dim)
        block = block_name(statistics.digest(), source.name, file.rows)
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
class Careful:
    """A counter whose InputError is what it returns, so that no engine takes it for a failure to be tried
    again, or wraps it."""
    counter: Counter

    def __call__(self, source: Source):
        try:
            return self.counter(source)
        except InputError as error:
            return error


def together(one, two):
    """What two counts come to; neither is changed, since an engine may use them again. None counts nothing.

    A count all of whose blocks are in the other comes from a task that was run twice: it adds nothing. The
    first error stays.

    Raises:
        InputError: they have some blocks in common, and each has others, too; or of other backbones.
    """
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
