"""Read pickles of plain data (dicts, lists, text, numbers, numpy arrays) without running code from them.

CIFAR's and miniImageNet's files are pickles, and so are some checkpoints. `pickle.load` would call whatever a
file names. Here only the names of which arrays are made may occur, and each stands for a function or a class
below, which makes arrays of numbers or of text of fixed length, checked by numpy, and nothing else.
"""
import pickle
import re

import numpy as np

from scroll.archive import open_file
from scroll.errors import InputError


class _Dtype:
    """Stands for `numpy.dtype`."""

    def __init__(self, name, *_):
        if not re.fullmatch(r'[biufcSUa]\d{1,6}', name):
            raise pickle.UnpicklingError(f'dtype {name!r}')
        self.dtype = np.dtype(name)

    def __setstate__(self, state):
        if any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError('a dtype with parts')
        self.dtype = self.dtype.newbyteorder(state[1])


class _Word:
    """Stands for `numpy.ndarray`, which `_reconstruct` is given and nothing may call."""

    def __init__(self, *_):
        raise pickle.UnpicklingError('an array that is not made by its builder')


class _Array(np.ndarray):
    """An array whose pickled dtype is a `_Dtype`."""

    def __setstate__(self, state):
        version, shape, dtype, columns_first, content = state
        super().__setstate__((version, shape, dtype.dtype, columns_first, content))


class _Record(tuple):
    """Stands for an object of a class that is not ours: what it was made from."""

    def __new__(cls, *parts):
        return super().__new__(cls, parts)


def _reconstruct(kind, shape, code):
    return np.ndarray.__new__(_Array, (0,), 'u1')           # its state has shape, dtype and content


def _from_buffer(content, dtype, shape, order, axis_order=None):
    array = np.frombuffer(bytes(content), dtype.dtype)
    if axis_order is None:
        return array.reshape(shape, order=order).copy()
    return array.reshape(shape).transpose(axis_order).copy()


def _scalar(dtype, content):
    content = content.encode('latin1') if isinstance(content, str) else content
    value, = np.frombuffer(content, dtype.dtype)
    return value.item()


def _latin1(text: str, encoding: str) -> bytes:
    if encoding not in ('latin1', 'latin-1'):
        raise pickle.UnpicklingError(f'encoding {encoding!r}')
    return text.encode('latin1')


_KNOWN = {('numpy', 'ndarray'): _Word, ('numpy', 'dtype'): _Dtype, ('_codecs', 'encode'): _latin1,
          ('collections', 'OrderedDict'): dict}
for _package in ('numpy.core', 'numpy._core'):
    _KNOWN |= {(f'{_package}.multiarray', '_reconstruct'): _reconstruct,
               (f'{_package}.multiarray', 'scalar'): _scalar,
               (f'{_package}.numeric', '_frombuffer'): _from_buffer}


class _Unpickler(pickle._Unpickler):        # that in C allocates memory for any number that a file has in it
    def __init__(self, file, records: tuple):
        super().__init__(file, encoding='latin1')
        self.records = records

    def find_class(self, module, name):
        if module.partition('.')[0] in self.records:
            return _Record
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f'it names {module}.{name}, which is not plain data') from None


def _plain(value, made: dict):
    """The value with arrays and tuples of the usual types. made: id -> what became of a container:
    a few bytes can share a list so often that copies would fill the memory.
    """
    if isinstance(value, _Array):
        return value.view(np.ndarray)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) not in made:
        if isinstance(value, dict):
            made[id(value)] = {key: _plain(part, made) for key, part in value.items()}
        else:
            kind = list if isinstance(value, list) else tuple
            made[id(value)] = kind(_plain(part, made) for part in value)
    return made[id(value)]


def torch_globals() -> list:
    """The same names, as `torch.serialization.safe_globals` takes them."""
    return [_Array, *((stand_in, '.'.join(name)) for name, stand_in in _KNOWN.items()
                      if name[0].startswith('numpy'))]


def load(path, records: tuple = ()):
    """The plain data in the pickle at `path`.

    Args:
        records: top-level packages whose classes may occur; an object of theirs becomes a tuple of what it
            was made from.

    Raises:
        InputError: the file is missing, damaged, or names anything else; none of it has been called.
    """
    try:
        with open_file(path) as file:
            return _plain(_Unpickler(file, records).load(), {})
    except OSError as error:
        raise InputError(f'{path}: {error.strerror}') from error
    except Exception as error:      # damaged pickles raise almost anything
        reason = ' '.join(str(error)[:200].split())
        raise InputError(f'{path}: not a pickle of plain arrays ({reason}); fetch the file again') from error
