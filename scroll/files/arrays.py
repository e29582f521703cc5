"""Column names and types of files of features; npz, npy, safetensors and torch files."""

import os
import pickle
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from scroll.ground.archive import arrays_of, open_file, read_errors
from scroll.ground.errors import InputError
from scroll.ground.grid import widened
from scroll.ground.labels import INTEGERS
from scroll.ground.labels import kind_of as label_kind

# our own name, and those of others
NAMES = {
    'X': ('X', 'x', 'features', 'embeddings', 'embedding'),
    'y': ('y', 'labels', 'label', 'targets', 'target'),
    'id': ('id',),
    'split': ('split',),
    'where': (),  # <column>=<value>: of the rows with this value
}
MAX_WIDTH = 1 << 16  # features of a sample are fewer
_KINDS = {'npz': b'PK\x03\x04', 'npy': b'\x93NUMPY', 'parquet': b'PAR1'}


def columns_of(text: str) -> dict:
    """Return 'X=embedding,where=language=en' as a dict, {'X': 'embedding', 'where':
    'language=en'}; InputError if it is something else."""
    pairs = [item.partition('=') for item in text.split(',')]
    columns = {name: column for name, _, column in pairs}
    if (
        not all(columns.values())
        or not columns.keys() <= NAMES.keys()
        or len(columns) < len(pairs)
        or '=' not in columns.get('where', '=')
    ):
        raise InputError(
            f'columns {text!r}: expected X=<name>, joined by commas, also of '
            f'{", ".join(list(NAMES)[1:-1])}, and where=<column>=<value>, each once'
        )
    return columns


def match_columns(names: list, columns: dict) -> dict:
    """Return the column of X, y, id, split and where among these names. columns: as the user says.
    InputError: several could be meant."""
    out = {}
    for name, usual in NAMES.items():
        candidates = [columns[name]] if name in columns else usual
        if name == 'where':
            candidates = [text.partition('=')[0] for text in candidates]
        present = [column for column in candidates if column in names]
        if len(present) > 1 and present[0] != name:
            raise InputError(
                f'{name} may be {" or ".join(present)}: say which, as --columns {name}={present[0]}'
            )
        if present:
            out[name] = present[0]
    return out


def wanted(values: np.ndarray, columns: dict) -> np.ndarray:
    """Return which rows `where` takes, bool (n,), of the values of its column."""
    return values.astype(str) == columns['where'].partition('=')[2]


def check_shape(name: str, shape: tuple, dtype: np.dtype, rows: int) -> None:
    """InputError unless X is (N, d), d at least 1, of numbers, and another column (N,)."""
    if name == 'X' and (len(shape) != 2 or not 0 < shape[1] < MAX_WIDTH or dtype.kind not in 'fiu'):
        raise InputError(
            f'X has shape {shape} and dtype {dtype}: expected numbers (N, d), d from 1 to '
            f'{MAX_WIDTH - 1}'
        )
    if name != 'X' and shape != (rows,):
        raise InputError(f'{name} has shape {shape}: expected ({rows},), one a sample of X')


class Arrays:
    """Columns of a file that is no Parquet: in memory, or mapped into it.

    Attributes:
        names: names of its arrays.
        has: those of X, y, id and split that it has.
        rows: N.
        dim: d.
        x_names: None: X is one column.
        labels: kind of labels, as of `scroll.ground.labels.check_kind`.
    """

    x_names = None
    labels = INTEGERS
    rows = 0
    dim = 0

    def __init__(self, path: str, columns: dict):
        kind = kind_of(path)
        self._columns = columns
        arrays = np.load(path) if kind == 'npz' else _load(path, kind)
        self.names = sorted(map(str, arrays))
        self.has = match_columns(self.names, columns)
        if kind == 'npz':  # not read before its size is checked
            arrays = arrays_of(path, self.has.values())
        self._arrays = {name: _array(arrays[column]) for name, column in self.has.items()}
        for name, array in self._arrays.items() if 'X' in self.has else ():
            check_shape(name, array.shape, array.dtype, self.rows)
            if name == 'X':
                self.rows, self.dim = array.shape
            elif name == 'y':
                self.labels = label_kind(array.dtype)

    def blocks(self, size: int) -> Iterator[dict]:
        """Yield dicts of columns, of up to `size` rows."""
        for start in range(0, self.rows, size):
            end = start + size
            block = {name: np.array(array[start:end]) for name, array in self._arrays.items()}
            if 'where' in block:
                at = wanted(block.pop('where'), self._columns)
                block = {name: array[at] for name, array in block.items()}
            yield block


def _array(values) -> np.ndarray:
    return np.asarray(widened(values.detach() if hasattr(values, 'detach') else values))


def labels_of(path: str) -> str:
    """Return the file of labels of `features.npy`, `X.npy`, `*_x.npy`: `labels`, `y`, `*_y.npy`; ''
    for others."""
    folder, name = os.path.split(path)
    for of_x, of_y in (('_x.npy', '_y.npy'), ('features', 'labels'), ('X', 'y')):
        if of_x in name and name.endswith('.npy'):
            return os.path.join(folder, name.replace(of_x, of_y))
    return ''


def kind_of(path: str) -> str:
    """Return the kind of a file, as its first bytes say it; InputError: it is none of ours, or
    cannot be read."""
    with read_errors(path), open_file(path) as file:
        head = file.read(128)
    if b'/data.pkl' in head:  # torch's are zip archives, too
        return 'torch'
    if head[8:10] == b'{"':  # behind the length of its header
        return 'safetensors'
    for kind, magic in _KINDS.items():
        if head.startswith(magic):
            return kind
    raise InputError(
        f'{path}: expected features in a file of kind npz, npy, Parquet, safetensors '
        'or torch; numpy.savez(FILE, X=numbers, y=labels) makes one'
    )


def _load(path: str, kind: str) -> dict:
    """Load arrays or tensors by name; runs nothing that is in the file."""
    if kind == 'npy':
        paths = {'X': path, 'y': labels_of(path)}
        return {name: np.load(path, 'r') for name, path in paths.items() if os.path.isfile(path)}
    import torch

    if kind == 'safetensors':
        from safetensors.torch import load_file

        return load_file(path)
    content = None
    with suppress(pickle.UnpicklingError):
        content = torch.load(path, 'cpu', weights_only=True, mmap=True)
    if isinstance(content, torch.Tensor):
        return {'X': content}
    if not isinstance(content, dict):
        raise InputError(
            'expected tensors by name in a dict, or one tensor: more is not read from files of '
            'torch.save, since it may run code'
        )
    return content
