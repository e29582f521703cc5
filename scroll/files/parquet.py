"""Parquet files of features, for `scroll.files.features`, through pyarrow."""
from contextlib import ExitStack
from fnmatch import fnmatchcase

import numpy as np

from scroll.arguments import not_installed
from scroll.errors import InputError
from scroll.files.columns import MOST, NAMES, check_shape

try:
    import pyarrow
    from pyarrow import parquet
except ModuleNotFoundError as error:
    raise not_installed('Parquet', 'pyarrow', 'parquet') from error


class Table:
    """A Parquet file.

    Attributes:
        names: of its columns. has: those of X, y, id and split that it has. rows: N. dim: d.
        x_names: of the columns that X is made of, `names` if they are given; None where X is one column of
            lists. no_labels: whether it has a column y without a single label, which counts for none.
    """

    def __init__(self, path: str, columns: dict, stack: ExitStack, names: tuple = None):
        # else all that is read of the file stays in memory until its end
        self._file = stack.enter_context(parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20))
        schema = self._file.schema_arrow
        self.names, self.rows, self.dim = schema.names, self._file.metadata.num_rows, 0
        if len(set(self.names)) < len(self.names):
            raise InputError('two columns have one name')
        self._read = {}                 # X, y, id, split -> names of columns
        for name, own in NAMES.items():
            found = [column for column in ([columns[name]] if name in columns else own)
                     if column in self.names][:1]
            if name == 'X' and not found and '*' in columns.get(name, ''):
                found = [column for column in self.names if fnmatchcase(column, columns[name])]
            if found:
                self._read[name] = found
        if names is not None:
            self._read['X'] = list(names)
        labels = self._read.get('y')
        self.no_labels = bool(labels and self.rows and self._is_empty(schema.get_field_index(labels[0])))
        if self.no_labels:
            del self._read['y']
        self.has, self.x_names = list(self._read), None
        if 'X' in self._read:
            if not pyarrow.types.is_nested(schema.field(self._read['X'][0]).type):
                self.x_names = tuple(self._read['X'])
            self.dim = self._width([schema.field(name).type for name in self._read['X']])
            check_shape('X', (self.rows, self.dim), 'f', self.rows)
            self._check_values(self._file.metadata)

    def _check_values(self, metadata) -> None:
        """InputError, before they are read, if lists have more numbers than the first."""
        most = self.dim if self.dim > 1 else MOST       # 1: the first may be missing
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        for rows, column in ((group.num_rows, group.column(j)) for group in groups
                             for j in range(group.num_columns)):
            inside = column.path_in_schema.partition('.')
            if inside[0] == self._read['X'][0] and inside[1] and column.num_values > rows * most:
                raise InputError(f'X has lists of {column.num_values} numbers in {rows} rows: the first has '
                                 f'{self.dim}')

    def _is_empty(self, column: int) -> bool:
        """Whether a column has missing values alone, as far as the file says so."""
        if pyarrow.types.is_null(self._file.schema_arrow.field(column).type):
            return True
        groups = [self._file.metadata.row_group(i) for i in range(self._file.num_row_groups)]
        known = [group.column(column).statistics for group in groups if group.num_columns ==
                 len(self._file.schema_arrow)]                          # nested columns count more than once
        return len(known) == len(groups) and all(
            found is not None and found.null_count == group.num_rows for found, group in zip(known, groups))

    def _width(self, kinds: list) -> int:
        """d; InputError unless X is a column of lists of numbers, or of numbers each."""
        kind = kinds[0]
        if pyarrow.types.is_fixed_size_list(kind):
            self._check_numbers(kind.value_type)
            return kind.list_size
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            self._check_numbers(kind.value_type)
            first = next(self._file.iter_batches(1, columns=self._read['X']), None)
            return 1 if first is None or first.column(0)[0].as_py() is None else len(first.column(0)[0])
        for kind in kinds:
            self._check_numbers(kind)
        return len(kinds)

    def _check_numbers(self, kind) -> None:
        if not (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind)):
            raise InputError(f'X holds {kind}: expected lists of numbers, or with a pattern (X=f*) columns '
                             'of numbers')

    def blocks(self, size: int):
        """Yield dicts of columns, of up to `size` rows."""
        wanted = [column for names in self._read.values() for column in names]
        for batch in self._file.iter_batches(size, columns=wanted):
            columns = {name: [batch.column(n) for n in names] for name, names in self._read.items()}
            yield {name: self._matrix(parts) if name == 'X' else self._column(name, *parts)
                   for name, parts in columns.items()}

    def _matrix(self, parts: list) -> np.ndarray:
        """X (n, d)."""
        if any(part.null_count for part in parts):
            raise InputError('X has missing values')
        if not pyarrow.types.is_nested(parts[0].type):
            return np.stack([part.to_numpy(zero_copy_only=False) for part in parts], axis=1)
        values = parts[0].flatten()
        lengths = parts[0].value_lengths().to_numpy(zero_copy_only=False)
        if (lengths != self.dim).any():
            raise InputError(f'X has lists of {lengths[lengths != self.dim][0]} numbers: the first has '
                             f'{self.dim}')
        if values.null_count:
            raise InputError('X has missing values')
        return values.to_numpy(zero_copy_only=False).reshape(-1, self.dim)

    def _column(self, name: str, values) -> np.ndarray:
        """y, id or split (n,)."""
        if values.null_count:
            raise InputError(f'{name} has missing values')
        if pyarrow.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return values.to_numpy(zero_copy_only=False)
