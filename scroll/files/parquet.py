"""Parquet files of features and of images, through pyarrow."""

import fnmatch
import json

import numpy as np

from scroll.files.arrays import check_shape, match_columns, wanted
from scroll.ground.arguments import not_installed
from scroll.ground.errors import InputError
from scroll.ground.labels import BOOLEANS, INTEGERS

try:
    from pyarrow import array, parquet, types
except ModuleNotFoundError as error:
    raise not_installed('Parquet', 'pyarrow', 'parquet') from error


class Table:
    """A Parquet file.

    Attributes:
        names: names of its columns.
        has: those of X, y, id and split that it has.
        rows: N.
        dim: d.
        x_names: names of the columns of X, None where it is one of lists.
        labels: as of `Arrays`. Where `datasets` of Hugging Face has noted names of the integers of
            y (ClassLabel), these are the labels.
    """

    def __init__(self, path: str, columns: dict, names: tuple | None = None):
        # else all that is read of the file stays in memory until its end
        self._file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
        schema = self._file.schema_arrow
        self.names = schema.names
        self.rows = self._file.metadata.num_rows
        self.dim = 0
        self.x_names: tuple | None = None
        self._read = {name: [column] for name, column in match_columns(self.names, columns).items()}
        # a label that is a feature would be its own prediction
        free = [name for name in self.names if [name] not in self._read.values()]
        matching = fnmatch.filter(free, columns.get('X', ''))
        if matching:  # a column of this very name goes first
            self._read = {'X': matching} | self._read
        if names is not None:
            self._read['X'] = list(names)
        self.has = list(self._read)
        self._columns = columns
        self._where = self._read.pop('where', [])
        if 'X' in self._read:
            kinds = [schema.field(name).type for name in self._read['X']]
            self.dim = self._width(kinds)
            if not types.is_nested(kinds[0]):
                self.x_names = tuple(self._read['X'])
            check_shape('X', (self.rows, self.dim), np.dtype(float), self.rows)
        self.labels = INTEGERS
        self._class_names = np.array([])
        for column in self._read.get('y', ()):
            kind = str(schema.field(column).type)
            self._class_names = np.array(_class_names(schema.metadata or {}, column))
            if 'string' in kind:  # large, view, of a dictionary
                self.labels = 'strings'
            elif kind == 'bool':
                self.labels = BOOLEANS
            elif len(self._class_names):
                self.labels = 'names (of its ClassLabel)'

    def _width(self, kinds: list) -> int:
        """Return d; InputError unless X is a column of lists of numbers, or columns of numbers."""
        for column, kind in zip(self._read['X'], kinds):
            part = getattr(kind, 'value_type', kind) if len(kinds) == 1 else kind
            if not (types.is_floating(part) or types.is_integer(part)):
                raise InputError(
                    f'X: column {column} holds {kind}: expected one list of floats or integers '
                    'a sample, or with a pattern (X=f*) columns of these'
                )
        if not types.is_nested(kinds[0]):
            return len(kinds)
        for batch in filter(len, self._batches(1 << 10, self._read['X'])):
            return batch.column(0).value_lengths()[0].as_py() or 1
        self.rows = 0
        return 1

    def _batches(self, size: int, columns: list):
        """Yield the rows of up to `size` that are samples, of these columns."""
        for batch in self._file.iter_batches(size, columns=[*columns, *self._where]):
            for column in self._where:
                at = wanted(_column('where', batch.column(column)), self._columns)
                batch = batch.filter(array(at))  # noqa: PLW2901
            yield batch

    def blocks(self, size: int):
        """Yield dicts of columns, of up to `size` rows."""
        needed = [column for names in self._read.values() for column in names]
        for batch in self._batches(size, needed):
            block = {}
            for name, columns in self._read.items():
                parts = [batch.column(column) for column in columns]
                block[name] = self._matrix(parts) if name == 'X' else _column(name, parts[0])
            if self.labels.startswith('names'):
                block['y'] = self._named(block['y'])
            yield block

    def _named(self, numbers: np.ndarray) -> np.ndarray:
        """Return names (n,) of classes by number; -1, which stands for no label, has none."""
        unnamed = np.setdiff1d(numbers, np.arange(len(self._class_names)))
        if len(unnamed):
            raise InputError(
                f'y is {unnamed[0]}, which has no name (ClassLabel): leave out samples without '
                'a label'
            )
        return self._class_names[numbers]

    def _matrix(self, parts: list) -> np.ndarray:
        """Return X (n, d)."""
        if not types.is_nested(parts[0].type):
            return np.stack([_column('X', part) for part in parts], axis=1)
        lengths = _column('X', parts[0].value_lengths())
        if (lengths != self.dim).any():
            raise InputError(
                f'X has lists of {lengths[lengths != self.dim][0]} numbers: the first has '
                f'{self.dim}'
            )
        return _column('X', parts[0].flatten()).reshape(-1, self.dim)


class ImageTable(Table):
    """A Parquet file whose X is a column of encoded images: (n,) bytes, structs with `bytes`, or
    None."""

    def _width(self, kinds: list) -> int:
        kind = kinds[0]
        if types.is_struct(kind) and kind.get_field_index('bytes') >= 0:
            kind = kind.field('bytes').type
        if not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise InputError(
                f'images are {kind}: expected a column of bytes, or of structs with bytes'
            )
        return 1

    def _matrix(self, parts: list) -> np.ndarray:
        return np.array(parts[0].to_pylist(), object)


def _class_names(metadata: dict, column: str) -> list:
    """Return names of the integers of a column, as `datasets` notes them in the schema; []: there
    are none, or they are '0', '1', '2'..., as of digits, which say no more than the integers."""
    info = json.loads(metadata.get(b'huggingface', b'{}')).get('info', {})
    about = info.get('features', {}).get(column)
    named = isinstance(about, dict) and about.get('_type') == 'ClassLabel'
    names = about['names'] if named else []
    return names if names != list(map(str, range(len(names)))) else []


def _column(name: str, values) -> np.ndarray:
    """Return values of one column (n,)."""
    if values.null_count:
        raise InputError(f'{name} has missing values')
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.to_numpy(zero_copy_only=False)
