"""Column names and types of files of features; npz, npy, safetensors and torch files, for
`features`.
"""

import os
import pickle
import zipfile
from contextlib import ExitStack, suppress
from math import prod

import numpy as np

from scroll.ground import labels
from scroll.ground.archive import arrays_of, open_file
from scroll.ground.errors import InputError
from scroll.ground.grid import native, widened

# our own name, and those of others
NAMES = {
    'X': ('X', 'x', 'features', 'embeddings', 'embedding'),
    'y': ('y', 'labels', 'label', 'targets', 'target'),
    'id': ('id',),
    'split': ('split',),
}
MAX_WIDTH = 1 << 16  # features of a sample, and bytes of a label
BLOCK_BYTES = 1 << 27  # of the samples that are in memory at once, as float64
_KINDS = {'npz': b'PK\x03\x04', 'npy': b'\x93NUMPY', 'parquet': b'PAR1'}
_HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def columns_of(text: str) -> dict:
    """'X=embedding,y=label' as a dict; InputError if it is something else."""
    pairs = [item.partition('=') for item in text.split(',')]
    columns = {name: column for name, _, column in pairs}
    if not all(columns.values()) or not columns.keys() <= NAMES.keys() or len(columns) < len(pairs):
        raise InputError(
            f'columns {text!r}: expected X=<name>, joined by commas, also of '
            f'{", ".join(list(NAMES)[1:])}, each once'
        )
    return columns


def found_in(known: list, columns: dict) -> dict:
    """name -> its column among the known ones, of X, y, id and split. InputError: several could be
    meant.
    """
    out = {}
    for name, own in NAMES.items():
        found = [
            column for column in ([columns[name]] if name in columns else own) if column in known
        ]
        if len(found) > 1 and found[0] != name:
            raise InputError(
                f'{name} may be {" or ".join(found)}: say which, as --columns {name}={found[0]}'
            )
        if found:
            out[name] = found[0]
    return out


def check_shape(name: str, shape: tuple, dtype: np.dtype, rows: int) -> None:
    """InputError unless X is (N, d), d at least 1, of numbers, and another column (N,), as long as
    X.
    """
    if dtype.hasobject or dtype.itemsize > MAX_WIDTH:
        raise InputError(
            f'{name} holds Python objects, as a pickle, which is not opened, or values of more '
            f'than {MAX_WIDTH} bytes: expected numbers or text'
        )
    if name == 'X' and (len(shape) != 2 or not 0 < shape[1] < MAX_WIDTH or dtype.kind not in 'fiu'):
        hint = '; bfloat16 has no name in numpy: save it as float32' * (dtype.str[1:] == 'V2')
        raise InputError(
            f'X has shape {shape} and dtype {dtype}: expected numbers (N, d), d from 1 to '
            f'{MAX_WIDTH - 1}{hint}'
        )
    if name != 'X' and shape != (rows,):
        raise InputError(f'{name} has shape {shape}: expected ({rows},), one a sample of X')


class Arrays:
    """Arrays of an npz file, read as they are asked for: a small archive may hold more than memory
    does.

    Attributes:
        names: of its arrays. has: those of X, y, id and split that it has. rows: N. dim: d. labels:
        as of
            `scroll.ground.labels.check_kind`."""

    x_names, labels = None, labels.INTEGERS

    def __init__(self, path: str, columns: dict):
        self._path, forms = path, {}
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            self.names = sorted(name.removesuffix('.npy') for name in archive.namelist())
            self._columns = found_in(self.names, columns)
            for name, column in self._columns.items() if 'X' in self._columns else ():
                with archive.open(f'{column}.npy') as member:
                    forms[name] = _HEADS[np.lib.format.read_magic(member)](member)[::2]
        self._check(forms)

    def _check(self, forms: dict) -> None:
        """Set attributes from (shape, dtype) by name; InputError if the arrays are none of
        features.
        """
        self.has, self.rows, self.dim = list(forms), 0, 0
        for name, (shape, dtype) in forms.items() if 'X' in forms else ():
            check_shape(name, shape, dtype, self.rows)
            self.rows, self.dim = shape if name == 'X' else (self.rows, self.dim)
            if name == 'y':
                self.labels = labels.kind_of(dtype)

    def blocks(self, size: int):
        """Yield dicts of columns, of up to `size` rows."""
        with open_file(self._path) as file, zipfile.ZipFile(file) as archive, ExitStack() as opened:
            members = {
                column: opened.enter_context(archive.open(f'{column}.npy'))
                for column in self._columns.values()
            }
            read = {
                name: self._reader(column, members[column])
                for name, column in self._columns.items()
            }
            for start in range(0, self.rows, size):
                yield {
                    name: rows(start, min(size, self.rows - start)) for name, rows in read.items()
                }
            for member in members.values():
                member.read(1)  # past its end, where its checksum is compared

    def _reader(self, column: str, member):
        """`rows(start, count)` of an array, one call after the other; one stored by columns is read
        whole.
        """
        shape, by_column, dtype = _HEADS[np.lib.format.read_magic(member)](member)
        if by_column:
            array = arrays_of(self._path, [column])[column]
            return lambda start, count: array[start : start + count]
        size, row = dtype.itemsize * prod(shape[1:]), shape[1:]
        return lambda _, count: native(np.frombuffer(member.read(size * count), dtype)).reshape(
            count, *row
        )


class Mapped(Arrays):
    """Arrays that are mapped into memory, or in it: X in an npy file, and y in that of `labels_of`,
    where it is; tensors by name in a safetensors file; a tensor (X), or a dict of them, that
    `torch.save` wrote."""

    def __init__(self, path: str, columns: dict):
        arrays = _load(path)
        self.names = sorted(map(str, arrays))
        columns = found_in(self.names, columns)
        self._arrays = {name: _array(arrays[column]) for name, column in columns.items()}
        self._check({name: (array.shape, array.dtype) for name, array in self._arrays.items()})

    def blocks(self, size: int):
        for start in range(0, self.rows, size):
            yield {
                name: np.array(array[start : start + size]) for name, array in self._arrays.items()
            }


def _array(values) -> np.ndarray:
    return np.asarray(widened(values.detach() if hasattr(values, 'detach') else values))


def _load(path: str) -> dict:
    """Arrays or tensors by name. Runs nothing that is in the file."""
    if kind_of(path) == 'npy':
        paths = {'X': path, 'y': labels_of(path)}
        return {name: np.load(path, 'r') for name, path in paths.items() if os.path.isfile(path)}
    import torch

    if kind_of(path) == 'safetensors':
        from safetensors.torch import load_file

        return load_file(path)
    content = None
    with suppress(pickle.UnpicklingError):
        content = torch.load(path, 'cpu', weights_only=True, mmap=True)
    content = {'X': content} if isinstance(content, torch.Tensor) else content
    if not isinstance(content, dict):
        raise InputError(
            'expected tensors by name in a dict, or one tensor: more is not read from files of '
            'torch.save, since it may run code'
        )
    return content


def labels_of(path: str) -> str:
    """The file of labels of `features.npy`, `X.npy`, `*_x.npy`: `labels`, `y`, `*_y.npy`; '' of
    others.
    """
    folder, name = os.path.split(path)
    other = name.replace('features', 'labels') if 'features' in name else name.replace('X', 'y')
    other = f'{name[:-5]}y.npy' if name.endswith('_x.npy') else other
    return os.path.join(folder, other) if other != name and name.endswith('.npy') else ''


def kind_of(path: str) -> str:
    """The kind of a file, as its first bytes say it; InputError: it is none of ours, or cannot be
    read.
    """
    try:
        with open_file(path) as file:
            head = file.read(128)
    except OSError as error:
        files = f'; name files in it, such as {path}/*.npz' * isinstance(error, IsADirectoryError)
        raise InputError(f'{path}: cannot be read ({error.strerror}){files}') from error
    if b'/data.pkl' in head:  # torch's are zip archives, too
        return 'torch'
    if head[8:10] == b'{"':  # behind the length of its header
        return 'safetensors'
    for kind, magic in _KINDS.items():
        if head.startswith(magic):
            return kind
    pickled = 'a pickle is not opened, since it may run code: ' * head.startswith(b'\x80')
    raise InputError(
        f'{path}: {pickled}expected features in a file of kind npz, npy, Parquet, safetensors '
        'or torch; numpy.savez(FILE, X=numbers, y=labels) makes one'
    )
