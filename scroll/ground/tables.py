"""Data frames and arrays as features: names of columns, and numbers in the order learned."""

import re
import warnings
from numbers import Integral
from typing import NamedTuple

import numpy as np
from scipy.sparse import issparse

from scroll.ground.arguments import shown
from scroll.ground.errors import InputError, WrongType
from scroll.ground.grid import widened


class Columns(NamedTuple):
    """An array (N, d) whose columns have names, as a data frame says it; None: it is an array."""

    array: np.ndarray
    columns: tuple | None

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self.array


def _columns_of(X) -> tuple:
    """Return the names of the columns of a table (pandas, polars, pyarrow) as they are; () for
    arrays.
    """
    columns = X.column_names if hasattr(type(X), 'column_names') else getattr(X, 'columns', None)
    return () if columns is None else tuple(columns)


def _are_places(columns: tuple) -> bool:
    """Return whether columns are numbered from 0, in any order: such a number is a place, not a
    name.
    """
    numbers = all(isinstance(name, Integral) for name in columns)
    return numbers and sorted(columns) == list(range(len(columns)))


def names_of(X) -> tuple | None:
    """Return names of the columns of a table as text, as files have them: 2020, None, ('x', 1) as
    2020, None, ('x', 1). None for arrays, and for columns that are numbered from 0. InputError: two
    have one name."""
    columns = _columns_of(X)
    return None if _are_places(columns) else _texts(columns)


def _texts(columns: tuple) -> tuple:
    names = tuple(map(str, columns))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f'X has column {shown(twice)} twice: give each a name of its own')
    return names


def check_names(given, learned, what: str) -> None:
    """InputError if both are known and differ: sums of other columns do not mean the same."""
    if given is not None and learned is not None and given != learned:
        raise InputError(
            f'{what} has other columns, or in another order: {_difference(given, learned)}'
        )


def places(given: tuple, learned: tuple) -> np.ndarray:
    """Return the place of each learned name among the given ones, each of its own, int64 (d,);
    InputError: names are missing or unknown.
    """
    if set(given) != set(learned):
        raise InputError(f'X has other columns than those learned: {_difference(given, learned)}')
    place = {name: i for i, name in enumerate(given)}
    return np.array([place[name] for name in learned])


def _difference(given: tuple, learned: tuple) -> str:
    parts = {
        'missing': [name for name in learned if name not in given],
        'unknown': [name for name in given if name not in learned],
    }
    return (
        '; '.join(f'{what} {_few(names)}' for what, names in parts.items() if names)
        or f'{_few(given)}, expected {_few(learned)}'
    )


def _few(names) -> str:
    return ', '.join(map(shown, names[:3])) + (', ...' if len(names) > 3 else '')


def check_dense(X) -> None:
    """InputError for a sparse matrix, a masked array of which something is masked, or dates and
    times.
    """
    if issparse(X):
        raise InputError('X is a sparse matrix: give X.toarray()')
    if np.ma.is_masked(X):
        raise InputError('X has masked values: fill them, or leave these samples out')
    kinds = np.ravel(getattr(X, 'dtypes', getattr(X, 'dtype', ())))
    if any(getattr(kind, 'kind', None) in ('m', 'M') for kind in kinds):
        raise InputError('X has dates or times: expected numbers')


def warn_of_half(X) -> None:
    """UserWarning where samples that must be among those learned have half precision, or less."""
    kinds = ' '.join(map(str, np.ravel(getattr(X, 'dtypes', getattr(X, 'dtype', ())))))
    if half := re.search(r'b?float(8|16)\w*', kinds, re.IGNORECASE):
        warnings.warn(
            f'X has dtype {half[0]}: these are samples that were learned only if they were learned '
            'in that precision',
            stacklevel=4,
        )


def numbers_of(X, learned: tuple | None) -> np.ndarray:
    """Return X as an array, its columns in the order that was learned. InputError: other names,
    missing values, a sparse matrix, or no table of numbers.

    learned: names of the columns that were learned; (): they had none; None: nothing was learned.
    Columns that are numbered from 0 go by their numbers. UserWarning where only one of the two has
    names."""
    check_dense(X)
    columns = _columns_of(X)
    order = slice(None)
    names = _texts(columns)
    if _are_places(columns) and set(names) != set(learned or ()):
        names = ()
        order = np.argsort(columns) if columns else order
    if learned is not None and bool(names) != bool(learned):
        which = ('what was learned', 'X') if learned else ('X', 'what was learned')
        warnings.warn(
            f'{which[0]} has names of columns ({_few(learned or names)}), {which[1]} has no names '
            'of columns: X is taken to be in the order that was learned',
            UserWarning,
            stacklevel=4,
        )
    elif names and learned and names != learned:
        order = places(names, learned)
    try:
        X = np.asarray(X)[:, order] if columns else np.asarray(widened(X))
        if X.dtype == object and X.ndim == 1:  # a column of lists: rows
            X = np.array(X.tolist())
        if X.dtype == bool:
            raise TypeError('True and False: X.astype(float) has numbers')
        if X.dtype.kind in 'SUT' or (
            X.dtype == object and any(isinstance(value, (str, bytes)) for value in X.flat)
        ):
            raise TypeError('text')
        return X.astype(np.float64) if X.dtype == object else X  # of a data frame of several types
    except Exception as error:  # each library that makes tables has its own
        raise WrongType(
            'X has missing values or columns that are no numbers, or is not a table of numbers '
            f'({" ".join(str(error).split())})'
        ) from error
