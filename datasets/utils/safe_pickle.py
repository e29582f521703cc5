"""Read pickles of plain data (dicts, lists, strings, numbers, numpy arrays) without ever running code from them.

The official CIFAR and miniImageNet files are pickles. `pickle.load` would call whatever a file names; here only the four
names that rebuild an array are known, and any other ends the reading.
"""
import codecs
import pickle

import numpy as np

from utils.errors import UserError

_reconstruct = np.zeros(0).__reduce__()[0]      # numpy's array builder, wherever this version keeps it


def _latin1(text: str, encoding: str) -> bytes:
    """`_codecs.encode` for the one use that array pickles make of it."""
    if encoding not in ('latin1', 'latin-1'):
        raise pickle.UnpicklingError(f'encoding {encoding!r}')
    return codecs.latin_1_encode(text)[0]


def _plain_array(subtype, shape, kind):
    """`numpy._reconstruct`, for plain arrays only."""
    if subtype is not np.ndarray:
        raise pickle.UnpicklingError('array subclass')
    return _reconstruct(subtype, shape, kind)


def _plain_dtype(name, align=False, copy=False):
    """`numpy.dtype`, without dtypes that hold Python objects."""
    dtype = np.dtype(name, align, copy)
    if dtype.hasobject:
        raise pickle.UnpicklingError('array of objects')
    return dtype


_KNOWN = {(f'numpy.{core}.multiarray', '_reconstruct'): _plain_array for core in ('core', '_core')}
_KNOWN |= {('numpy', 'ndarray'): np.ndarray, ('numpy', 'dtype'): _plain_dtype, ('_codecs', 'encode'): _latin1}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f'it names {module}.{name}, which is not plain data') from None


def load(path, encoding: str = 'latin1'):
    """The plain data in the pickle at `path`.

    Raises:
        UserError: the file is missing, damaged, or holds anything but plain data. Nothing it names has been called.
    """
    try:
        with open(path, 'rb') as file:
            return _PlainUnpickler(file, encoding=encoding).load()
    except OSError as error:
        raise UserError(f'{path}: {error.strerror}') from error
    except Exception as error:      # damaged pickles raise almost anything
        raise UserError(f'{path}: not a pickle of plain arrays ({error}); fetch the file again') from error
