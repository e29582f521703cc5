"""Labels: checks, comparison, and the samples of each."""

import math
import unicodedata
from numbers import Integral, Real
from typing import Any

import numpy as np

from scroll.ground.arguments import shown
from scroll.ground.errors import InputError
from scroll.ground.grid import widened

INTEGERS = 'integers'
BOOLEANS = 'True and False'


def check_labels(labels, count: int | None = None) -> np.ndarray:
    """Return a copy of labels as an array (N,) of int64, or of text (`label_array`); else an
    InputError. One rule for arrays, lists, categoricals and columns of a data frame, whatever their
    dtype: all labels are whole numbers (3, True, 3.0), or all are text. Text is compared in
    Unicode's normal form C, so that a letter and its accent, as one sign or as two, are the same
    label. count: N; None: any."""
    if np.ma.is_masked(labels):
        raise InputError('y has masked labels: leave these samples out')
    try:
        labels = widened(labels)
        array = np.asarray(labels)
        # of a list numpy makes text, or float64, throughout
        if array.dtype.kind in ('OT' if isinstance(labels, np.ndarray) else 'OTUf'):
            array = np.asarray(labels, object)
    except Exception as error:  # torch, polars and DuckDB each have their own
        raise InputError(f'y is not a list of labels: {" ".join(str(error).split())}') from error
    if array.ndim != 1 or count not in (None, len(array)):
        raise InputError(
            f'y has shape {array.shape}: expected ({"N" if count is None else count},), one '
            'label a sample'
        )
    if array.dtype.kind == 'U':
        return label_array(list(map(normal, array.tolist())))
    if array.dtype.kind == 'O':
        return _of_objects(array.tolist())
    if array.dtype.kind not in 'biuf':
        raise InputError(f'y has dtype {array.dtype}: labels must be integers or strings')
    with np.errstate(invalid='ignore', over='ignore'):  # of what int64 or float16 cannot hold
        out = array.astype(np.int64)
        wrong = (
            (out != array) | (np.abs(array) >= 2.0**63)
            if array.dtype.kind == 'f'
            else array > np.iinfo(np.int64).max
        )
    if wrong.any():
        raise InputError(
            f'y[{np.flatnonzero(wrong)[0]}] is {shown(array[wrong][0].item())}: labels must be '
            'whole numbers that int64 holds, or strings'
        )
    return out


def typed_labels(labels, count: int | None = None) -> np.ndarray:
    """Return labels as `check_labels` does; bool (N,) where all are True or False, so that
    predictions are so, too.
    """
    out = check_labels(labels, count)
    if out.dtype.kind != 'i' or not np.isin(out, (0, 1)).all():
        return out
    kinds = {type(label) for label in np.asarray(widened(labels)).tolist()}
    return out.astype(bool) if kinds and kinds <= {bool, np.bool_} else out


def _of_objects(labels: list) -> np.ndarray:
    text = bool(labels) and isinstance(labels[0], str)
    for place, label in enumerate(labels):
        is_label = isinstance(label, str) and label[-1:] != '\0' if text else _is_whole(label)
        if not is_label:
            raise InputError(
                f'y[{place}] is {shown(label)}: labels must be all integers or all strings, '
                'without NUL at their end'
            )
    return label_array([normal(label) if text else int(label) for label in labels])


def _is_whole(label: Any) -> bool:
    """Return whether a Python or numpy object is a whole number that int64 holds."""
    if isinstance(label, np.timedelta64) or not isinstance(label, (Real, np.bool_)):
        return False
    value: Any = label
    finite = isinstance(label, Integral) or math.isfinite(value)  # of huge integers it raises
    return bool(finite and value == int(value) and -1 << 63 <= int(value) < 1 << 63)


def normal(label):
    """Return a label as it is compared: text in Unicode's normal form C."""
    return unicodedata.normalize('NFC', label) if isinstance(label, str) else label


def label_array(labels: list) -> np.ndarray:
    """Return labels (K,) of one kind as an array: int64 or text."""
    if not labels or not isinstance(labels[0], str):
        return np.array(labels, np.int64)
    return np.array([str.__str__(label) for label in labels])


def kind_of(dtype: np.dtype) -> str:
    """Return the kind of labels of a type, for errors."""
    return {'U': 'strings', 'b': BOOLEANS}.get(dtype.kind, INTEGERS)


def check_kind(labels, others, source: str = 'before') -> None:
    """InputError if checked labels are numbers and other ones are text, or the other way round.

    labels, others: arrays, or words of `kind_of`.
    source: place of the others, for the error."""
    kinds = [part if isinstance(part, str) else kind_of(part.dtype) for part in (labels, others)]
    if len({kind in (INTEGERS, BOOLEANS) for kind in kinds}) > 1:
        raise InputError(f'labels are {kinds[0]} here and {kinds[1]} {source}: keep to one kind')


def by_label(labels: np.ndarray):
    """Yield (label, its positions) of checked labels (N,), labels in ascending order."""
    classes, rows, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(rows, kind='stable')
    yield from zip(classes.tolist(), np.split(order, np.cumsum(counts)[:-1]))
