"""npz and npy files of features, for `scroll.files.features`, read block by block."""
import zipfile
from contextlib import ExitStack
from math import prod

import numpy as np

from scroll.archive import check_text, open_file
from scroll.arguments import available_memory
from scroll.errors import InputError
from scroll.files.columns import MAX_WIDTH, check_shape, found_in, rows_at_once

_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """Arrays of an npz file, or npy files of X and y.

    Attributes:
        names: of its arrays. has: those of X, y, id and split that it has. rows: N. dim: d.
    """

    def __init__(self, paths: list, kind: str, columns: dict, stack: ExitStack):
        if kind == 'npy':
            members = {name: stack.enter_context(open_file(path)) for name, path in zip('Xy', paths)}
            self.names = list(members)
        else:
            archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(open_file(paths[0]))))
            self.names = sorted(name.removesuffix('.npy') for name in archive.namelist())
            members = {name: stack.enter_context(archive.open(f'{column}.npy'))
                       for name, column in found_in(self.names, columns).items()}
        self._arrays = {name: _Array(name, file) for name, file in members.items()}
        self.has, self.x_names = list(self._arrays), None
        self.rows, self.dim = self._arrays['X'].shape if 'X' in self._arrays else (0, 0)
        for name, array in self._arrays.items() if 'X' in self._arrays else ():
            check_shape(name, array.shape, array.dtype.kind, self.rows)

    def blocks(self, size: int):
        """Yield dicts of columns, of up to `size` rows; fewer where their labels are very long."""
        size = rows_at_once(size, sum(array.dtype.itemsize for name, array in self._arrays.items()
                                      if name != 'X'))
        for start in range(0, self.rows, size):
            count = min(size, self.rows - start)
            yield {name: array.read(count) for name, array in self._arrays.items()}


class _Array:
    """An npy array in an open file, perhaps compressed: no memory map. `read` gives its next rows."""

    def __init__(self, name: str, file):
        head = _HEADS.get(np.lib.format.read_magic(file))
        if head is None:
            raise InputError(f'{name} is written in a form that is not for numbers or text')
        self.name, self._file, self._whole = name, file, None
        self.shape, fortran, self.dtype = head(file)
        if self.dtype.hasobject:
            raise InputError(f'{name} holds Python objects, as a pickle, which is not opened: expected '
                             f'{"numbers" if name == "X" else "integers or text of a fixed width"}')
        if self.dtype.itemsize > MAX_WIDTH:
            raise InputError(f'{name} has values of {self.dtype.itemsize} bytes: expected at most '
                             f'{MAX_WIDTH}')
        if name == 'X':
            check_shape(name, self.shape, self.dtype.kind, 0)
        if fortran and len(self.shape) == 2:
            size = prod(self.shape) * self.dtype.itemsize
            if size > available_memory() // 2:
                raise InputError(f'{name} lies in Fortran order, and its {size / 2 ** 30:,.1f} GiB are too '
                                 'many to read at once: write it in C order')
            self._whole = self._next(self.shape[::-1]).T

    def read(self, count: int) -> np.ndarray:
        """The next `count` rows; InputError if they are not there."""
        if self._whole is None:
            return self._next((count, *self.shape[1:]))
        rows, self._whole = self._whole[:count], self._whole[count:]
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
    """Whether an npy file is 1-D; a damaged one is reported when it is read."""
    try:
        with open_file(path) as file:
            return len(_HEADS[np.lib.format.read_magic(file)](file)[0]) == 1
    except Exception:               # damaged headers raise almost anything
        return False
