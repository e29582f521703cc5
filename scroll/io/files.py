"""Files of arrays and facts: npz without pickles, written whole or not at all, with a digest of it all."""
import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np

from scroll.errors import InputError
from scroll.grid import little_endian, native

_STOPPED = '.stopped'               # of the names of arrays of text with a full stop behind each


@contextlib.contextmanager
def atomic_write(path):
    """A binary file to write into, which becomes `path` when the block ends: whole and on disk or not at all.

    It lies beside `path` until then, under a name that no other process uses. A missing folder is made.

    Raises:
        OSError: it cannot be written; whatever was there is as it was.
    """
    path = Path(path)
    if not path.name:                                           # '.' or '/'
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    side = path.with_name(f'{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part')    # machines may share ids
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(side, 'wb') as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(side, path)
    finally:
        with contextlib.suppress(OSError):
            side.unlink()
    with contextlib.suppress(OSError):                          # some file systems have no such thing
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)                                    # the new name, too, is on the disk
        finally:
            os.close(folder)


def sha256(path) -> str:
    """Hex, of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write(path, kind: str, facts: dict, arrays: dict) -> None:
    """Write `path` by `atomic_write`.

    Args:
        kind: what the file is, and its version: 'scroll-state-1'.
        facts: whatever JSON holds, and numpy's numbers.
        arrays: of numbers or text, by name; of objects, if they are text.

    Raises:
        InputError: it cannot be written; whatever was there is as it was.
    """
    text = json.dumps(facts, sort_keys=True, default=lambda value: value.item())
    stored = _stored(arrays)
    try:
        with atomic_write(path) as file:
            np.savez(file, format=kind, facts=text, sha256=_digest(kind, text, stored), **stored)
    except OSError as error:
        raise InputError(f'{path} cannot be written ({error.strerror})') from error


def read(path, kind: str) -> tuple:
    """(facts, arrays) that `write` wrote. Runs no code from the file.

    Raises:
        InputError: there is no such file, or it is of another kind or version, or damaged.
    """
    content = _content(path)
    found = str(content.get('format', ''))
    if found != kind:
        name, version = _split(kind)
        other, other_version = _split(found)
        if other == name and other_version:
            raise InputError(f'{path}: is of version {other_version} of the format {name}: expected version '
                             f'{version}')
        is_other = f', this is {found}' if other else ''
        raise InputError(f'{path}: expected a file of the format {name}{is_other}')
    try:
        text, digest = (str(content.pop(name)) for name in ('facts', 'sha256'))
        del content['format']
        sound = digest == _digest(kind, text, content)
        facts, arrays = json.loads(text), _loaded(content)
    except (AttributeError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f'{path}: damaged ({type(error).__name__})') from error
    if not (sound and isinstance(facts, dict)):
        raise InputError(f'{path}: damaged (its content does not match its digest)')
    return facts, arrays


def kind_of(path) -> str:
    """What `path` says it is; '' where it says nothing."""
    return str(_content(path, ('format',)).get('format', ''))


def arrays_of(path) -> dict:
    """The arrays of any npz file, without pickles."""
    return _content(path, most=os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 2)


def _content(path, names=None, most: int = 0) -> dict:
    """Arrays by name. `most`: bytes of memory that a compressed file may take; ours are not compressed."""
    try:
        if not Path(path).is_file():
            raise InputError(f'{path}: there is no such file')
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > max(os.stat(path).st_size, most):             # gigabytes of zeros make a small file
            raise ValueError(f'its content takes {size / 2 ** 30:,.1f} GiB')
        with np.load(path, allow_pickle=False) as file:
            content = {name: native(file[name]) for name in file.files if names is None or name in names}
        for name, array in content.items():
            check_text(name, array)
        return content
    except InputError:
        raise
    except Exception as error:          # damaged archives raise almost anything
        raise InputError(f'{path}: not an npz file, or damaged '
                         f'({" ".join(str(error).split())[:300]})') from error


def check_text(name: str, array: np.ndarray) -> None:
    """ValueError if an array of text holds numbers that stand for no character: numpy would fail later."""
    number = np.dtype('u4').newbyteorder(array.dtype.byteorder)
    points = np.frombuffer(array.tobytes() if array.dtype.kind == 'U' else b'', number)
    if points.max(initial=0) > sys.maxunicode:
        raise ValueError(f'{name} holds characters that are none')


def _stored(arrays: dict) -> dict:
    """Arrays as they are written: those of objects are text that ends in NUL, and get a full stop behind."""
    return {(name + _STOPPED if array.dtype == object else name):
            little_endian([text + '.' for text in array.tolist()] if array.dtype == object else array)
            for name, array in arrays.items()}


def _loaded(arrays: dict) -> dict:
    """Undo `_stored`; ValueError or TypeError if that did not write it."""
    out = {name: array for name, array in arrays.items() if not name.endswith(_STOPPED)}
    for name in arrays.keys() - out.keys():
        plain, texts = name.removesuffix(_STOPPED), arrays[name].tolist()
        if plain in out or not all(text.endswith('.') for text in texts):
            raise ValueError(f'{name} is not as it is written')
        out[plain] = np.array([text[:-1] for text in texts], object)
    return out


def _split(kind: str) -> tuple:
    """'scroll-state-1' -> ('scroll-state', '1'); ('', '') for anything else."""
    found = re.fullmatch(r'(scroll-[a-z]+)-(\d{1,9})', kind)
    return found.groups() if found else ('', '')


def _digest(kind: str, facts: str, arrays: dict) -> str:
    sha = hashlib.sha256(json.dumps([kind, facts]).encode())
    for name, array in sorted(arrays.items()):
        array = np.atleast_1d(little_endian(array))
        sha.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
