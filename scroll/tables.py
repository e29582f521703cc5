"""Data frames and arrays as features: names of columns, and numbers in the order that was learned."""
import re
import warnings
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

from scroll.arguments import shown
from scroll.errors import InputError
from scroll.grid import widened


class Columns(NamedTuple):
    """An array (N, d) whose columns have names, as a data frame says it."""
    array: np.ndarray
    columns: tuple

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.array


def names_of(X) -> tuple | None:
    """Names of the columns of a table (pandas, polars, pyarrow); None for arrays, and where none is text."""
    columns = X.column_names if hasattr(type(X), 'column_names') else getattr(X, 'columns', None)
    names = () if columns is None else tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_names(given, learned, what: str) -> None:
    """InputError if both are known and differ: sums of other columns do not mean the same."""
    if given is not None and learned is not None and given != learned:
        raise InputError(f'{what} has other columns, or in another order: {_difference(given, learned)}')


def places(given: tuple, learned: tuple) -> np.ndarray:
    """int64 (d,): where among the given names each learned one is; InputError: missing, unknown, twice."""
    if len(set(given)) < len(given) or set(given) != set(learned):
        raise InputError(f'X has other columns than those learned: {_difference(given, learned)}')
    return np.array([given.index(name) for name in learned])


def _difference(given: tuple, learned: tuple) -> str:
    parts = dict(missing=[name for name in learned if name not in given],
                 unknown=[name for name in given if name not in learned],
                 twice=[name for name in given if given.count(name) > 1][:1])
    return '; '.join(f'{what} {_few(names)}' for what, names in parts.items() if names) or \
        f'{_few(given)}, expected {_few(learned)}'


def _few(names) -> str:
    return ', '.join(map(shown, names[:3])) + ', ...' * (len(names) > 3)


def check_dense(X) -> None:
    """InputError for a sparse matrix, a masked array of which something is masked, or dates and times."""
    if issparse(X):
        raise InputError('X is a sparse matrix: give X.toarray()')
    if np.ma.is_masked(X):
        raise InputError('X has masked values: fill them, or leave these samples out')
    kinds = np.ravel(getattr(X, 'dtypes', getattr(X, 'dtype', ())))
    if any(getattr(kind, 'kind', None) in ('m', 'M') for kind in kinds):
        raise InputError('X has dates or times: expected numbers')


def rows_of(X) -> np.ndarray:
    """X, which has no names of columns, as an array; a column of lists or arrays of equal length (pandas,
    pyarrow, polars) as rows."""
    X = np.asarray(widened(X))
    return np.array(X.tolist()) if X.dtype == object and X.ndim == 1 else X


def warn_of_half(X) -> None:
    """UserWarning where samples that must be among those learned have half precision, or less."""
    kinds = ' '.join(map(str, np.ravel(getattr(X, 'dtypes', getattr(X, 'dtype', ())))))
    if half := re.search(r'b?float(8|16)\w*', kinds, re.IGNORECASE):
        warnings.warn(f'X has dtype {half[0]}: these are samples that were learned only if they were learned '
                      'in that precision', stacklevel=4)


def numbers_of(X, learned: tuple = None) -> np.ndarray:
    """X as an array, its columns in the order of the names that were learned, if both have names. InputError:
    other names, missing values, a sparse matrix, or no table of numbers."""
    check_dense(X)
    names, order = names_of(X), slice(None)
    if learned is not None and names is None:
        warnings.warn(f'X has no names of columns, and what was learned has ({_few(learned)}): they are '
                      'taken to stand in that order', UserWarning, stacklevel=4)
    elif learned is not None and names != learned:
        order = places(names, learned)
    try:
        X = rows_of(X) if names is None else np.asarray(X)[:, order]
        if X.dtype != object:
            return X
        if any(isinstance(value, (str, bytes)) for value in X.flat):
            raise TypeError('text')
        return X.astype(np.float64)                             # of a data frame of several types
    except Exception as error:          # each library that makes tables has its own
        raise InputError('X has missing values or columns that are no numbers, or is not a table of numbers '
                         f'({" ".join(str(error).split())})') from error
