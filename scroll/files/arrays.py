"""npz and npy files of features, for `scroll.files.features`."""
import os
import zipfile

import numpy as np

from scroll.archive import arrays_of, open_file
from scroll.errors import InputError
from scroll.files.columns import MAX_WIDTH, check_shape, found_in

_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Arrays:
    """Arrays of an npz file, read whole when they are asked for.

    Attributes:
        names: of its arrays. has: those of X, y, id and split that it has. rows: N. dim: d.
    """
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
        found = arrays_of(self._path, set(self._columns.values()))
        for start in range(0, self.rows, size):
            yield {name: found[column][start:start + size] for name, column in self._columns.items()}


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
    """The file of an npy file's labels: `labels.npy` of `features.npy`, `y.npy` of `X.npy`; '' of others."""
    folder, name = os.path.split(path)
    other = name.replace('features', 'labels') if 'features' in name else name.replace('X', 'y')
    return os.path.join(folder, other) if other != name and name.endswith('.npy') else ''
