"""Column names and types of files of features, and npz and npy files, for `scroll.files.features`."""
import os
import zipfile
from contextlib import ExitStack
from math import prod

import numpy as np

from scroll.archive import arrays_of, open_file
from scroll.errors import InputError
from scroll.grid import native

NAMES = dict(X=('X', 'features'), y=('y', 'labels'), id=('id',), split=('split',))     # the latter: our own
MAX_WIDTH = 1 << 16                 # features of a sample, and bytes of a label
BLOCK_BYTES = 1 << 27               # of the samples that are in memory at once, as float64
_WORDS = dict(f='numbers', i='numbers', u='numbers', U='text', S='bytes', O='Python objects')
_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def columns_of(text: str) -> dict:
    """'X=embedding,y=label' as a dict; InputError if it is something else."""
    pairs = [item.partition('=') for item in text.split(',')]
    columns = {name: column for name, _, column in pairs}
    if not all(columns.values()) or not columns.keys() <= NAMES.keys() or len(columns) < len(pairs):
        raise InputError(f'columns {text!r}: expected X=<name>, joined by commas, also of '
                         f'{", ".join(list(NAMES)[1:])}, each once')
    return columns


def found_in(known: list, columns: dict) -> dict:
    """name -> its column among the known ones, of X, y, id and split."""
    wanted = {name: [columns[name]] if name in columns else own for name, own in NAMES.items()}
    found = {name: next((column for column in own if column in known), None) for name, own in wanted.items()}
    return {name: column for name, column in found.items() if column is not None}


def check_shape(name: str, shape: tuple, kind: str, rows: int) -> None:
    """InputError unless X is (N, d), d at least 1, of numbers, and another column (N,), as long as X."""
    if name == 'X' and (len(shape) != 2 or not 0 < shape[1] < MAX_WIDTH or kind not in 'fiu'):
        raise InputError(f'X has shape {shape} and holds {_WORDS.get(kind, "something else")}: expected '
                         f'numbers (N, d), d from 1 to {MAX_WIDTH - 1}')
    if name != 'X' and shape != (rows,):
        raise InputError(f'{name} has shape {shape}: expected ({rows},), one a sample of X')


class Arrays:
    """Arrays of an npz file, read as they are asked for: a small archive may hold more than memory does.

    Attributes:
        names: of its arrays. has: those of X, y, id and split that it has. rows: N. dim: d."""
    x_names = None

    def __init__(self, path: str, columns: dict):
        self._path, self.names, self.rows, self.dim = path, [], 0, 0
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            self.names = sorted(name.removesuffix('.npy') for name in archive.namelist())
            self._columns = found_in(self.names, columns)
            self.has = list(self._columns)
            for name, column in self._columns.items() if 'X' in self.has else ():
                with archive.open(f'{column}.npy') as member:
                    shape, _, dtype = _HEADS[np.lib.format.read_magic(member)](member)
                if dtype.hasobject or dtype.itemsize > MAX_WIDTH:
                    raise InputError(f'{name} holds Python objects, as a pickle, which is not opened, or '
                                     f'values of more than {MAX_WIDTH} bytes: expected numbers or text')
                check_shape(name, shape, dtype.kind, self.rows)
                self.rows, self.dim = shape if name == 'X' else (self.rows, self.dim)

    def blocks(self, size: int):
        """Yield dicts of columns, of up to `size` rows."""
        with open_file(self._path) as file, zipfile.ZipFile(file) as archive, ExitStack() as opened:
            members = {column: opened.enter_context(archive.open(f'{column}.npy'))
                       for column in self._columns.values()}
            read = {name: self._reader(column, members[column]) for name, column in self._columns.items()}
            for start in range(0, self.rows, size):
                yield {name: rows(start, min(size, self.rows - start)) for name, rows in read.items()}
            for member in members.values():
                member.read(1)                                  # past its end, where its checksum is compared

    def _reader(self, column: str, member):
        """`rows(start, count)` of an array, one call after the other; one stored by columns is read whole."""
        shape, by_column, dtype = _HEADS[np.lib.format.read_magic(member)](member)
        if by_column:
            array = arrays_of(self._path, [column])[column]
            return lambda start, count: array[start:start + count]
        size, row = dtype.itemsize * prod(shape[1:]), shape[1:]
        return lambda _, count: native(np.frombuffer(member.read(size * count), dtype)).reshape(count, *row)


class Mapped(Arrays):
    """X in an npy file, memory-mapped, and y in that of `labels_of`, where it is."""

    def __init__(self, path: str, columns: dict):
        paths = dict(X=path, y=labels_of(path))
        self._arrays = {name: np.load(path, 'r') for name, path in paths.items() if os.path.isfile(path)}
        self.rows, self.dim = (self._arrays['X'].shape + (0, 0))[:2]
        self.names = self.has = list(self._arrays)
        for name, array in self._arrays.items():
            check_shape(name, array.shape, array.dtype.kind, self.rows)

    def blocks(self, size: int):
        for start in range(0, self.rows, size):
            yield {name: np.array(array[start:start + size]) for name, array in self._arrays.items()}


def labels_of(path: str) -> str:
    """The file of labels of `features.npy`, `X.npy`, `*_x.npy`: `labels`, `y`, `*_y.npy`; '' of others."""
    folder, name = os.path.split(path)
    other = name.replace('features', 'labels') if 'features' in name else name.replace('X', 'y')
    other = f'{name[:-5]}y.npy' if name.endswith('_x.npy') else other
    return os.path.join(folder, other) if other != name and name.endswith('.npy') else ''
