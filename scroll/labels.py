"""Labels: what is taken for one, and which samples have it."""
import numpy as np

from scroll.arguments import shown
from scroll.errors import InputError


def check_labels(labels, count: int) -> np.ndarray:
    """Labels as an array (N,) of int64, or of text (`label_array`); anything else is an InputError.

    Lists, object arrays, categoricals and other columns of a data frame are taken if all their labels are
    integers, or all are strings.
    """
    try:
        array = np.asarray(labels)
        if array.dtype.kind in 'OT' or (array.dtype.kind == 'U' and not isinstance(labels, np.ndarray)):
            array = np.asarray(labels, object)          # of a list with text numpy makes text throughout
    except ValueError as error:
        raise InputError(f'y is not a list of labels: {" ".join(str(error).split())}') from error
    if array.shape != (count,):
        raise InputError(f'y has shape {array.shape}: expected ({count},), one label a sample')
    if count == 0 and array.dtype.kind in 'fO':             # what numpy makes of []
        return array.astype(np.int64)
    if array.dtype.kind in 'bi' or (array.dtype.kind == 'u' and (array <= np.iinfo(np.int64).max).all()):
        return array.astype(np.int64)
    if array.dtype.kind == 'U':
        return array
    if array.dtype.kind == 'O':
        for place, label in enumerate(array.tolist()):
            if not isinstance(label, str):
                raise InputError(f'y[{place}] is {shown(label)}: labels must be all integers or all strings')
        return label_array(array.tolist())
    raise InputError(f'y has dtype {array.dtype}: labels must be integers or strings')


def label_array(labels: list) -> np.ndarray:
    """Labels (K,) of one kind: int64; text; or objects if one ends in NUL, which numpy takes for padding."""
    if not labels or not isinstance(labels[0], str):
        return np.array(labels, np.int64)
    ends = any(label.endswith('\0') for label in labels)
    return np.array([str.__str__(label) for label in labels], object if ends else str)


def by_label(labels: np.ndarray):
    """Yield (label, its positions) of checked labels (N,), labels in ascending order.

    (Comparing an array with one string will not do: numpy makes text of the string, and drops a NUL at its
    end.)
    """
    found, rows = np.unique(labels, return_inverse=True)
    for row, label in enumerate(found.tolist()):
        yield label, np.flatnonzero(rows == row)
