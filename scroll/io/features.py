"""Features as people have them: npz, npy and Parquet files of any size, read one block after the other.

    X      numbers (N, d): embeddings of anything; each becomes a unit vector on the grid (`scroll.grid`)
    y      labels (N,), all integers or all text
    id     names of samples (N,), integers or text          split  'train' or 'test' (N,)

An npz file has arrays of these names, and needs X alone. `X.npy y.npy`, one after the other, are a pair: what
is 1-D belongs to what is 2-D before it. In a Parquet file (which needs pyarrow) X is a column of lists, or,
as a pattern like `X=f*`, all columns of numbers that match, in the file's order. Other names: `X=embedding,
y=label`. What kind a file is, its first bytes say, not its name. Nothing in a file is run, and no more of it
is in memory than a block (of Parquet, a row group; an npz array in Fortran's order is read whole).
"""
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from typing import NamedTuple

import numpy as np

from scroll.arguments import one_of, shown, whole
from scroll.errors import InputError
from scroll.io.files import check_text
from scroll.statistics import by_label, check_labels

BLOCK = 1 << 13                     # samples
SPLITS = ('train', 'test')
ALL = 'all'
NAMES = dict(X=('X', 'features'), y=('y', 'labels'), id=('id',), split=('split',))     # the latter: our own
_MOST = 1 << 16                     # features of a sample, and bytes of a label
_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Block(NamedTuple):
    """Some samples: X (n, d), finite; y, id, split (n,), or None where the file has none."""
    X: np.ndarray
    y: np.ndarray = None
    id: np.ndarray = None
    split: np.ndarray = None

    def part(self, at) -> 'Block':
        """The samples at these positions, or of this mask."""
        return Block(*(None if column is None else column[at] for column in self))


def columns_of(text: str) -> dict:
    """'X=embedding,y=label' as a dict; InputError if it is something else."""
    pairs = [item.partition('=') for item in text.split(',')]
    for name, equals, column in pairs:
        if name not in NAMES or not equals or not column:
            raise InputError(f'columns {text!r}: expected X=<name>, joined by commas, also of '
                             f'{", ".join(list(NAMES)[1:])}')
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise InputError(f'columns {text!r}: a column is named twice')
    return {name: column for name, _, column in pairs}


def open_files(paths, columns: dict = None, need: tuple = ('X',)) -> list:
    """A `FeatureFile` for each file, or pair of npy files.

    Args:
        paths: of files. columns: other names of columns, by 'X', 'y', 'id' and 'split'. need: of these, what
            each file must have.

    Raises:
        InputError: there is no such file, it is none of these kinds or damaged, or has not what is needed or
            named; or files that differ in their number of features, or of which some have y or split.
    """
    groups = []
    for path in map(str, paths):
        kind = _kind(path)
        alone = groups and kind == groups[-1][1] == 'npy' and len(groups[-1][0]) == 1
        if alone and _is_column(path):
            groups[-1][0].append(path)
        else:
            groups.append(([path], kind))
    found = [FeatureFile(group, kind, columns or {}, (*need, *(columns or {}))) for group, kind in groups]
    for file in found[1:]:
        if file.dim != found[0].dim:
            raise InputError(f'{file.path}: X has {file.dim} features: {found[0].path} has {found[0].dim}')
        for name in ('y', 'split'):
            if (name in file.has) != (name in found[0].has):
                one, other = (file, found[0])[::1 if name in file.has else -1]
                raise InputError(f'{other.path}: there is no {name}, but in {one.path} there is')
    return found


class FeatureFile:
    """A file, or a pair of npy files, whose form has been looked at and whose samples have not.

    Attributes:
        path: what errors call it. rows: N. dim: d. has: those of X, y, id and split that it has.
    """

    def __init__(self, paths: list, kind: str, columns: dict, need: tuple):
        self.path, self._paths, self._kind, self._columns = ' '.join(paths), paths, kind, columns
        with self._source() as source:
            self.has, self.rows, self.dim = tuple(source.has), source.rows, source.dim
            if not set(need) <= set(self.has):
                wanted = ', '.join(' or '.join([columns[name]] if name in columns else NAMES[name])
                                   for name in dict.fromkeys(need))
                raise InputError(f'expected {wanted}: it has {", ".join(source.names) or "nothing"}')
            if not self.rows:
                raise InputError('there are no samples')

    @contextmanager
    def _source(self):
        """What reads it; whatever goes wrong there is an InputError that names the file."""
        try:
            with ExitStack() as stack:
                yield self._opened(stack)
        except InputError as error:
            raise InputError(f'{self.path}: {error}') from error
        except Exception as error:          # damaged archives raise almost anything
            raise InputError(f'{self.path}: cannot be read as {self._kind}, or damaged '
                             f'({" ".join(str(error).split())[:300]})') from error

    def _opened(self, stack: ExitStack):
        if self._kind != 'parquet':
            return _Arrays(self._paths, self._columns, stack)
        from scroll.io.parquet import Table
        return Table(*self._paths, self._columns, stack)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Yield all samples, in the file's order, `size` at once.

        Raises:
            InputError: values that are not finite, labels that are none, another split than train and test
                (which sample it is), or the file is damaged.
        """
        with self._source() as source:
            start = 0
            for columns in source.blocks(size):
                try:
                    block = _checked(Block(**columns), start)
                except InputError as error:
                    last = start + len(columns['X']) - 1
                    raise InputError(f'samples {start} to {last}: {error}') from error
                start += len(block.X)
                yield block


def read_blocks(files: list, split: str = None, size: int = BLOCK, usual: str = 'train') -> Iterator[tuple]:
    """Yield (file, `Block`) for the samples of a split, of files that have the same columns.

    Samples without an id are called by their number, counted from 0 through all files.

    Args:
        split: 'train', 'test' or 'all'; None: `usual` where the files have splits, else all.

    Raises:
        InputError: a split of files that have none, or what `FeatureFile.blocks` refuses.
    """
    known = 'split' in files[0].has
    split = split or (usual if known else ALL)
    one_of('split', split, (*SPLITS, ALL))
    whole('block size', size, 1)
    if split != ALL and not known:
        raise InputError(f'{files[0].path}: there is no split, so there is no part {split}')
    start = 0
    for file in files:
        for block in file.blocks(size):
            if block.id is None:
                block = block._replace(id=np.arange(start, start + len(block.X)))
            start += len(block.X)
            if split != ALL:
                block = block.part(block.split == split)
            if len(block.X):
                yield file, block


def show(files: list) -> None:
    """Print what there is in files of features, after reading them through."""
    counts, splits = {}, {}
    for _, block in read_blocks(files, ALL):
        for column, known in ((block.y, counts), (block.split, splits)):
            for value, at in by_label(column) if column is not None else ():
                known[value] = known.get(value, 0) + len(at)
    facts = dict(samples=sum(file.rows for file in files), dim=files[0].dim, columns=', '.join(files[0].has))
    if splits:
        facts['split'] = ', '.join(f'{count} {split}' for split, count in sorted(splits.items()))
    for name, value in (facts | dict(classes=len(counts)) if counts else facts).items():
        print(f'{name:<8} {value}')
    if counts:
        print(f"\n{'samples':>8}  class")
    for label, count in sorted(counts.items()):
        print(f'{count:>8}  {label if str(label).isprintable() else repr(label)}')


def _kind(path: str) -> str:
    try:
        with open(path, 'rb') as file:
            head = file.read(6)
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error
    for kind, magic in (('npz', b'PK\x03\x04'), ('npy', b'\x93NUMPY'), ('parquet', b'PAR1')):
        if head.startswith(magic):
            return kind
    raise InputError(f'{path}: expected features in a file of kind npz, npy or Parquet')


def _checked(block: Block, start: int) -> Block:
    """The block, its labels as `check_labels` gives them."""
    X = block.X
    if X.dtype.kind == 'f' and not np.isfinite(X).all():
        row = start + int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise InputError(f'X of sample {row} is not finite')
    y = None if block.y is None else check_labels(block.y, len(X))
    for name in ('id', 'split'):
        column = getattr(block, name)
        if column is not None:
            try:
                check_labels(column, len(X))
            except InputError as error:
                raise InputError(f'{name} is to be integers or text, one a sample') from error
    split = None if block.split is None else np.asarray(block.split).astype(str)
    wrong = np.flatnonzero(~np.isin(split, SPLITS)) if split is not None else ()
    if len(wrong):
        raise InputError(f'split of sample {start + int(wrong[0])} is {shown(str(split[wrong[0]]))}: '
                         'expected train or test')
    return Block(X, y, block.id, split)


def check_shape(name: str, shape: tuple, kind: str, rows: int) -> None:
    """InputError unless X is (N, d), d at least 1, of numbers, and another column (N,) of what X has N of."""
    if name == 'X' and (len(shape) != 2 or not 0 < shape[1] < _MOST or kind not in 'fiu'):
        raise InputError(f'X has shape {shape} and holds {_WORDS.get(kind, "something else")}: expected '
                         f'numbers (N, d), d from 1 to {_MOST - 1}')
    if name != 'X' and shape != (rows,):
        raise InputError(f'{name} has shape {shape}: expected ({rows},), one a sample of X')


_WORDS = dict(f='numbers', i='numbers', u='numbers', U='text', S='bytes', b='yes or no', O='Python objects',
              c='complex numbers')


class _Arrays:
    """Arrays of an npz file, or npy files of X and y."""

    def __init__(self, paths: list, columns: dict, stack: ExitStack):
        if _kind(paths[0]) == 'npy':
            members = {name: stack.enter_context(open(path, 'rb'))             # noqa: SIM115  the stack closes
                       for name, path in zip('Xy', paths)}
            self.names = list(members)
        else:
            archive = stack.enter_context(zipfile.ZipFile(paths[0]))
            self.names = sorted(name.removesuffix('.npy') for name in archive.namelist())
            wanted = {name: [columns[name]] if name in columns else own for name, own in NAMES.items()}
            members = {name: stack.enter_context(archive.open(f'{found}.npy')) for name, own in wanted.items()
                       for found in [next((n for n in own if n in self.names), None)] if found is not None}
        self._rows = {name: _Rows(name, member) for name, member in members.items()}
        self.has = list(self._rows)
        self.rows, self.dim = self._rows['X'].shape if 'X' in self._rows else (0, 0)
        for name, array in self._rows.items():
            if 'X' in self._rows:
                check_shape(name, array.shape, array.dtype.kind, self.rows)

    def blocks(self, size: int):
        for start in range(0, self.rows, size):
            count = min(size, self.rows - start)
            yield {name: array.read(count) for name, array in self._rows.items()}


class _Rows:
    """An npy array, from the file that it is in: `read` gives its next rows.

    Attributes:
        shape, dtype: as its header says.
    """

    def __init__(self, name: str, file):
        head = _HEADS.get(np.lib.format.read_magic(file))
        if head is None:
            raise InputError(f'{name} is written in a form that is not for numbers or text')
        self.name, self._file, self._left = name, file, None
        self.shape, transposed, self.dtype = head(file)
        if self.dtype.hasobject:
            raise InputError(f'{name} holds Python objects, as a pickle, which is not opened: expected '
                             f'{"numbers" if name == "X" else "integers or text of a fixed width"}')
        if self.dtype.itemsize > _MOST:
            raise InputError(f'{name} has values of {self.dtype.itemsize} bytes: expected at most {_MOST}')
        if name == 'X':
            check_shape(name, self.shape, self.dtype.kind, 0)
        if transposed and len(self.shape) == 2:
            size = prod(self.shape) * self.dtype.itemsize
            if size > os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 2:
                raise InputError(f'{name} lies in Fortran order, and its {size / 2 ** 30:,.1f} GiB are too '
                                 'many to read at once: write it in C order')
            self._left = self._next(self.shape[::-1]).T

    def read(self, count: int) -> np.ndarray:
        """The next `count` rows; InputError if they are not there."""
        if self._left is None:
            return self._next((count, *self.shape[1:]))
        rows, self._left = self._left[:count], self._left[count:]
        return rows

    def _next(self, shape: tuple) -> np.ndarray:
        size = prod(shape) * self.dtype.itemsize
        content = self._file.read(size)
        if len(content) < size:
            raise InputError(f'{self.name} ends before its {self.shape[0]} rows do')
        array = np.frombuffer(content, self.dtype).reshape(shape)
        check_text(self.name, array)
        return array


def _is_column(path: str) -> bool:
    """Whether an npy file is 1-D; what is wrong with it shows when it is read."""
    try:
        with open(path, 'rb') as file:
            return len(_HEADS[np.lib.format.read_magic(file)](file)[0]) == 1
    except Exception:               # damaged headers raise almost anything
        return False
