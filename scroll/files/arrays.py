"""npz and npy files of features, for `scroll.files.features`, of which no more is read than is asked for."""
import zipfile
from contextlib import ExitStack
from math import prod

import numpy as np

from scroll.archive import check_text, open_file
from scroll.arguments import available_memory
from scroll.errors import InputError
from scroll.files.columns import MOST, NAMES, check_shape, rows_at_once

_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """Arrays of an npz file, or npy files of X and y.

    Attributes:
        names: of its arrays. has: those of X, y, id and split that it has. rows: N. dim: d.
    """

    def __init__(self, paths: list, kind: str, columns: dict, stack: ExitStack):
        if kind == 'npy':
            members = {name: stack.enter_context(open_file(path))
                       for name, path in zip('Xy', paths)}
            self.names = list(members)
        else:
            file = stack.enter_context(open_file(paths[0]))
            archive = stack.enter_context(zipfile.ZipFile(file))
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
        """Yield dicts of columns, of up to `size` rows; fewer where their labels are very long."""
        size = rows_at_once(size, sum(array.dtype.itemsize for array in self._rows.values()
                                      if array.name != 'X'))
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
        if self.dtype.itemsize > MOST:
            raise InputError(f'{name} has values of {self.dtype.itemsize} bytes: expected at most {MOST}')
        if name == 'X':
            check_shape(name, self.shape, self.dtype.kind, 0)
        if transposed and len(self.shape) == 2:
            size = prod(self.shape) * self.dtype.itemsize
            if size > available_memory() // 2:
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


def is_column(path: str) -> bool:
    """Whether an npy file is 1-D; what is wrong with it shows when it is read."""
    try:
        with open_file(path) as file:
            return len(_HEADS[np.lib.format.read_magic(file)](file)[0]) == 1
    except Exception:               # damaged headers raise almost anything
        return False
