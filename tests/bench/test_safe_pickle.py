"""Pickles of plain data are read; nothing that a pickle names is ever called."""

import builtins
import codecs
import io
import os
import pickle
import struct
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core import safe_pickle
from tests.conftest import quick, refused


class Calls:
    """Pickles as a call of `what` with these arguments (and a state to set)."""

    def __init__(self, what, *args, state=None):
        self.parts = (what, args) if state is None else (what, args, state)

    def __reduce__(self):
        return self.parts


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes alike as Python 2 wrote its `str`."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_old_string(self, value):
        data = value.encode('latin1') if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack('<i', len(data)) + data)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_old_string


def dump(path, content, protocol: int = 2, python2: bool = False):
    """Write a pickle; `python2` as Python 2 and an old numpy did, which is how the official CIFAR
    files are made.
    """
    raw = pickle.dumps(content, protocol)
    if python2:
        file = io.BytesIO()
        Python2Pickler(file, 2).dump(content)
        raw = file.getvalue().replace(b'numpy._core.multiarray', b'numpy.core.multiarray')
    path.write_bytes(raw)
    return path


def loaded(path, content, *args, **kwargs):
    return safe_pickle.load(dump(path, content, *args, **kwargs))


ARRAYS = {
    'bytes': np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    'all bytes': np.arange(256, dtype=np.uint8),
    'columns first': np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    'a number': np.array(5),
    'words': np.array(['x', 'yz']),
    'axes moved': np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(0, 2, 1),
}


@pytest.mark.parametrize('protocol', [0, 2, 4])
def test_arrays_come_back_in_every_protocol(tmp_path, protocol):
    content = {
        **ARRAYS,
        'labels': [1, 2, 3],
        'name': 'm\u00fc',
        'more': (None, True, 1.5, {'a': []}),
        'half': np.float32(0.5),
        'three': np.int64(3),
        'ordered': OrderedDict(b=1, a=np.arange(2)),
    }
    back = loaded(tmp_path / 'p', content, protocol)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
        assert type(back[name]) is np.ndarray
    assert all(
        back[name] == content[name] and type(back[name]) is type(content[name])
        for name in ('labels', 'name', 'more')
    )
    assert type(back['half']) is float
    assert type(back['three']) is int
    assert (back['half'], back['three']) == (0.5, 3)
    assert type(back['ordered']) is dict
    assert list(back['ordered']) == ['b', 'a']


Pair = namedtuple('Pair', 'first second')


@pytest.mark.parametrize('protocol', [2, 4])
def test_records_are_what_they_were_made_from(tmp_path, protocol):
    """Namedtuples, nested and with arrays, and calls of functions; none of them is made or
    called.
    """
    sign = tmp_path / 'sign'
    package = __name__.partition('.')[0]
    content = {'pair': Pair(1, Pair(np.arange(3), 'x')), 'call': Calls(mark, str(sign))}
    path = dump(tmp_path / 'p', content, protocol)
    back = safe_pickle.load(path, records=('another', package))
    assert back['pair'][0] == 1
    assert back['pair'][1][0].tolist() == [0, 1, 2]
    assert type(back['pair']) is tuple
    assert back['call'] == (str(sign),)
    assert not sign.exists()
    for records in ((), ('another', package[:-1])):
        with refused(str(path), f'{__name__}.Pair'):
            safe_pickle.load(path, records=records)


def mark(path):
    Path(path).write_text('ran')


def test_payloads_are_refused_before_anything_runs(tmp_path):
    sign = str(tmp_path / 'it ran')
    payloads = [
        Calls(os.system, f'touch {sign}'),
        Calls(builtins.eval, f'open({sign!r}, "w")'),
        Calls(mark, sign),
        Calls(np.load, sign, None, True),
        Calls(codecs.encode, 'abc', 'rot13'),
        np.array([1, 'a', None], dtype=object),
        np.array([Calls(mark, sign)], dtype=object),
        np.zeros(2, [('a', 'O')]),
        np.zeros(2).view(np.matrix),
        Calls(dict, state={'x': 1}),
        np.array([1, 2], '>i4'),
    ]
    for payload in payloads:
        for protocol in (0, 2, 4):
            path = dump(tmp_path / 'p', {'data': np.zeros(2), 'evil': payload}, protocol)
            with refused(str(path), 'fetch the file again'):
                safe_pickle.load(path)
    assert not os.path.exists(sign)


FORGED = {
    'memory of our choice as a Python object': Calls(
        np.ndarray, (1,), 'O', np.array([id('victim')])
    ),
    'a number that is an address': Calls(
        np.float64(1).__reduce__()[0], np.dtype('O'), id('victim').to_bytes(8, 'little')
    ),
    'a number of too many bytes': Calls(np.float64(1).__reduce__()[0], np.dtype('f8'), b'x' * 16),
    'an array never filled': Calls(np.ndarray, (1 << 20,), 'u1'),
}


@pytest.mark.parametrize('content', FORGED.values(), ids=FORGED)
def test_numpys_own_names_cannot_be_used_to_reach_memory(tmp_path, content):
    """`numpy.ndarray` must be a word that the array builder knows, never something that is
    called.
    """
    with refused(str(tmp_path / 'p')):
        loaded(tmp_path / 'p', content)


@quick
@given(rubbish=st.binary(max_size=60))
@example(rubbish=b'P')  # unpickling it is an error of two lines
def test_any_rubbish_is_refused_or_plain(tmp_path_factory, rubbish):
    path = tmp_path_factory.getbasetemp() / 'rubbish'
    path.write_bytes(rubbish)
    if pickle.STOP not in rubbish:
        with refused(str(path)):
            safe_pickle.load(path)
    with refused('none', 'No such file'):
        safe_pickle.load(path.with_name('none'))
