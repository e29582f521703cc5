"""Read pickles of plain data (dicts, lists, text, numbers, numpy arrays) without running code from
them.

CIFAR's and miniImageNet's files are pickles, and so are some checkpoints. Only the names of which
arrays are made may occur; each stands for a function that makes arrays of numbers or of text of
fixed length.
"""

import pickle
import re

import numpy as np

from scroll.ground.archive import open_file
from scroll.ground.errors import InputError


def _dtype(name, *_):
    if not re.fullmatch(r'[biufcSU]\d{1,6}', name):
        raise pickle.UnpicklingError(f'dtype {name!r}')
    return np.dtype(name)


def _scalar(dtype, content):
    content = content.encode('latin1') if isinstance(content, str) else content
    (value,) = np.frombuffer(content, dtype)
    return value.item()


_KNOWN = {
    'numpy.dtype': _dtype,
    'numpy.ndarray': None,
    'collections.OrderedDict': dict,
    '_codecs.encode': str.encode,
}
for _package in ('numpy.core', 'numpy._core'):
    _KNOWN |= {
        f'{_package}.multiarray._reconstruct': lambda kind, shape, code: np.zeros(0, 'u1'),
        f'{_package}.multiarray.scalar': _scalar,
    }


class _Record:
    """Stands for a class of `records`: an object of it becomes a tuple."""

    def __new__(cls, *parts):
        return parts


# that in C allocates memory for any number that a file has in it
class _Unpickler(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module, name):
        if module.partition('.')[0] in self.records:
            return _Record
        if f'{module}.{name}' not in _KNOWN:
            raise pickle.UnpicklingError(f'it names {module}.{name}, which is not plain data')
        return _KNOWN[f'{module}.{name}']

    def load_build(self):
        """Fill an array; a state of a dtype must say nothing, that of a record is left out."""
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, np.ndarray):
            made.__setstate__(state)
        elif isinstance(made, np.dtype) and (
            state[1] == '>' or any(part is not None for part in state[2:5])
        ):
            raise pickle.UnpicklingError('a dtype with parts, or big-endian')
        elif not isinstance(made, (np.dtype, tuple)):
            raise pickle.UnpicklingError('an object with a state')

    dispatch[pickle.BUILD[0]] = load_build


def load(path, records: tuple = ()):
    """The plain data in the pickle at `path`.

    records: top-level packages whose classes may occur; an object of theirs becomes a tuple of what
    it was made from. InputError: the file is missing, damaged, or names anything else; none of it
    is called."""
    try:
        with open_file(path) as file:
            unpickler = _Unpickler(file, encoding='latin1')
            unpickler.records = records
            return unpickler.load()
    except OSError as error:
        raise InputError(f'{path}: {error.strerror}') from error
    except Exception as error:  # damaged pickles raise almost anything
        reason = ' '.join(str(error)[:200].split())
        raise InputError(
            f'{path}: not a pickle of plain arrays ({reason}); fetch the file again'
        ) from error
