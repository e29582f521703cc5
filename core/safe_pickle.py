"""Read pickles of plain data (dicts, lists, strings, numbers, numpy arrays)
without ever running code from them.

The official CIFAR and miniImageNet files are pickles, and so are checkpoints. `pickle.load` would call
whatever a file names, numpy's own builders among it, some of which reach any memory. Here a file's known
names stand for shells of our own that only take down what they are given; arrays are made from that
afterwards, checked, by copying bytes. Nor can a small file ask for much time or memory: the reader is the one
that is written in Python (that in C allocates memory for any number by which a file calls its parts), keys
are plain, and what is in a file once is looked at once.
"""
import pickle
import re

import numpy as np

from scroll.archive import open_file
from scroll.errors import InputError


class _Name:
    """A name that may occur in a pickle but is never called."""

    def __init__(self, *args):
        raise pickle.UnpicklingError('an array that is not made by its builder')


class _Dtype:
    """Stands for `numpy.dtype`: numbers and fixed-length strings only."""

    def __init__(self, name, align=False, copy=False):
        if not re.fullmatch(r'[biufcSUa]\d{1,6}', _text(name)):
            raise pickle.UnpicklingError(f'dtype {name!r}')
        self.dtype = np.dtype(_text(name))

    def __setstate__(self, state):
        order, parts = _text(state[1]), state[2:5]
        if order not in '<>|=' or any(part is not None for part in parts):
            raise pickle.UnpicklingError('a dtype with parts')
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands for an array: filled by the pickle's state, made by `_plain`."""
    array = None

    def __setstate__(self, state):
        _, shape, dtype, columns_first, content = state
        self.array = _filled(content, dtype, shape, 'F' if columns_first else 'C')


class _Record:
    """Stands for an object of a class that is none of ours: what it was made from, as a tuple."""

    def __new__(cls, *args):
        made = super().__new__(cls)
        made.parts = args
        return made

    def __setstate__(self, state):
        self.parts += (state,)


def _text(value) -> str:
    if not isinstance(value, (bytes, str)):
        raise pickle.UnpicklingError(f'a {type(value).__name__} where a name was expected')
    return value.decode('latin1') if isinstance(value, bytes) else value


def _filled(content, dtype, shape, order) -> np.ndarray:
    """An array from raw bytes (Python 2 pickles bring them as latin-1 text)."""
    content = content.encode('latin1') if isinstance(content, str) else content
    plain = isinstance(dtype, _Dtype) and isinstance(content, (bytes, bytearray))
    if not plain or order not in ('C', 'F', 'A'):
        raise pickle.UnpicklingError('an array of objects')
    order = 'C' if order == 'A' else order
    return np.frombuffer(bytes(content), dtype.dtype).reshape(shape, order=order).copy()


def _reconstruct(subtype, shape, kind):
    if subtype is not _Name:
        raise pickle.UnpicklingError('a subclass of arrays')
    if kind not in (b'b', 'b'):
        raise pickle.UnpicklingError('an array builder with other arguments')
    return _Array()


def _from_buffer(content, dtype, shape, order, axis_order=None):
    made = _Array()
    if order == 'K' and axis_order is not None:
        made.array = _filled(content, dtype, shape, 'C').transpose(axis_order)
    else:
        made.array = _filled(content, dtype, shape, order)
    return made


def _scalar(dtype, content):
    """A number or text of numpy's, as one of Python's."""
    return _filled(content, dtype, (), 'C').item()


def _latin1(text: str, encoding: str) -> bytes:
    """`_codecs.encode` for the one use that array pickles make of it."""
    if _text(encoding) not in ('latin1', 'latin-1'):
        raise pickle.UnpicklingError(f'encoding {encoding!r}')
    return text.encode('latin1')


_KNOWN = {(f'numpy.{core}.multiarray', '_reconstruct'): _reconstruct for core in ('core', '_core')}
_KNOWN |= {(f'numpy.{core}.numeric', '_frombuffer'): _from_buffer for core in ('core', '_core')}
_KNOWN |= {(f'numpy.{core}.multiarray', 'scalar'): _scalar for core in ('core', '_core')}
_KNOWN |= {('numpy', 'ndarray'): _Name, ('numpy', 'dtype'): _Dtype, ('_codecs', 'encode'): _latin1,
           ('collections', 'OrderedDict'): dict}


class _PlainUnpickler(pickle._Unpickler):
    dispatch = {code: act for code, act in pickle._Unpickler.dispatch.items()
                if bytes([code]) not in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)}

    def __init__(self, file, encoding: str, records: tuple):
        super().__init__(file, encoding=encoding)
        self.records = records

    def find_class(self, module, name):
        if module.partition('.')[0] in self.records:
            return _Record
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f'it names {module}.{name}, which is not plain data') from None

    def load_setitem(self):
        _check_keys(self.stack[-2:])
        super().load_setitem()
    dispatch[pickle.SETITEM[0]] = load_setitem

    def load_setitems(self):
        _check_keys(self.stack)
        super().load_setitems()
    dispatch[pickle.SETITEMS[0]] = load_setitems

    def load_dict(self):
        _check_keys(self.stack)
        super().load_dict()
    dispatch[pickle.DICT[0]] = load_dict


def _check_keys(items: list) -> None:
    """A tuple of tuples may take for ever to be hashed."""
    for key in items[::2]:
        if not isinstance(key, (str, bytes, int, float, type(None))):
            raise pickle.UnpicklingError(f'a key that is a {type(key).__name__}')


def _plain(value, known: dict):
    """The data with arrays for what stood for them; `known`: id -> (value, data)
    of lists, tuples and dicts so far."""
    if isinstance(value, _Array) and value.array is not None:
        return value.array
    if isinstance(value, _Record):
        value = value.parts
    if type(value) in (dict, list, tuple):
        if id(value) not in known:
            if type(value) is dict:
                plain = {k: _plain(v, known) for k, v in value.items()}
            else:
                plain = type(value)(_plain(v, known) for v in value)
            known[id(value)] = value, plain                  # the value is kept, so that no other gets its id
        return known[id(value)][1]
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, bytearray)):
        return value
    raise pickle.UnpicklingError(f'a {type(value).__name__.strip("_")} where data was expected')


def torch_globals() -> list:
    """The shells, as `torch.serialization.safe_globals` takes them, so that `torch.load`
    calls nothing of numpy's either."""
    return [_Array, *((shell, f'{module}.{name}') for (module, name), shell in _KNOWN.items()
                      if module.startswith('numpy'))]


def load(path, encoding: str = 'latin1', records: tuple = ()):
    """The plain data in the pickle at `path`.

    Args:
        records: top-level packages whose classes may occur; an object of theirs becomes a tuple of what it
            was made from.

    Raises:
        InputError: the file is missing, damaged, or holds anything but plain data. Nothing it names has been
            called.
    """
    try:
        with open_file(path) as file:
            return _plain(_PlainUnpickler(file, encoding=encoding, records=records).load(), {})
    except OSError as error:
        raise InputError(f'{path}: {error.strerror}') from error
    except Exception as error:      # damaged pickles raise almost anything
        reason = ' '.join(str(error)[:200].split())
        raise InputError(f'{path}: not a pickle of plain arrays ({reason}); fetch the file again') from error
