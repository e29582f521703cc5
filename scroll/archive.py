"""Files of arrays and facts: npz without pickles, written whole or not at all, with a digest of it all."""
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np

from scroll.arguments import available_memory, check_memory
from scroll.errors import InputError
from scroll.grid import little_endian, native

_held = threading.local()
_STOPPED = '.stopped'               # of the names of arrays of text with a full stop behind each


@contextlib.contextmanager
def atomic_write(path):
    """A binary file to write into, which becomes `path` when the block ends: whole and on disk or not at all.

    Links are followed: what they point to is replaced, and keeps its mode. Until then the new file lies next
    to it, under a name that no other process uses, and locked: what is not locked is left of a killed
    process, and the next write of `path` removes it. A missing folder is made.

    Raises:
        OSError: it cannot be written (`target_of`); whatever was there is as it was.
    """
    target = target_of(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_parts(target)
    side = part_of(target)
    try:
        with _locked_new(side) as file:
            yield file
            with contextlib.suppress(OSError):
                before = os.stat(target)
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.flush()
            os.fsync(file.fileno())
            os.replace(side, target)                            # while it is locked
    finally:
        with contextlib.suppress(OSError):
            side.unlink()
    with contextlib.suppress(OSError):                          # some file systems have no such thing
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)                                    # the new name, too, is on the disk
        finally:
            os.close(folder)


@contextlib.contextmanager
def output(path):
    """`atomic_write`, or, for '-', standard output in bytes."""
    if os.fspath(path) == '-':
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as file:
            yield file


def target_of(path) -> Path:
    """The file that writing to `path` replaces, after all links; it need not exist.

    Raises:
        OSError: `path` is '-', a folder, a device, a pipe, or a link to itself.
    """
    path = os.fspath(path) or '.'
    if path == '-':
        raise OSError(errno.EINVAL, 'standard output is for text; a file of this name is ./-', '-')
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, 'it is there, and not a regular file', str(path))
    return Path(os.path.realpath(path))


def check_target(path, flag: str = '') -> None:
    """InputError, before any work, if `path` cannot be written whatever is written to it (`target_of`)."""
    try:
        target_of(path)
    except OSError as error:
        raise InputError(f'{flag} {path} cannot be written ({error.strerror})'.lstrip()) from error


def part_of(target: Path) -> Path:
    """A name for what is to become `target`, that no other process uses; machines may share process ids."""
    return target.with_name(f'{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part')


def remove_parts(target: Path) -> None:
    """Remove what killed processes left of writing `target`, file or folder: parts that nobody has locked."""
    name = re.compile(re.escape(target.name) + r'\.\d+-[0-9a-f]{8}\.part')
    with contextlib.suppress(OSError):
        for part in [entry for entry in os.scandir(target.parent) if name.fullmatch(entry.name)]:
            with contextlib.suppress(OSError), locked_part(part.path):
                shutil.rmtree(part.path) if part.is_dir(follow_symlinks=False) else os.unlink(part.path)


@contextlib.contextmanager
def locked_part(path):
    """Hold the lock of a part; OSError if another process has it."""
    part = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(part)


def _locked_new(side: Path):
    """A new file, locked; again if another process took it for an old one before it was."""
    while True:
        file = open(side, 'xb')                                 # noqa: SIM115  the caller closes it
        with contextlib.suppress(OSError):                      # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.lexists(side):
            return file
        file.close()


@contextlib.contextmanager
def locked(path, on_wait=None):
    """Hold `path`, if it is there, from before it is read until it is replaced: of several processes and
    threads that do, one works at a time. Within the block it may be held again.

    The lock is that of the file (flock), and goes when its process ends. `on_wait` is called before a wait.
    """
    target, held = os.path.realpath(path), vars(_held).setdefault('paths', set())
    if target in held:
        yield
        return
    lock = _lock(target, on_wait)
    held.add(target)
    try:
        yield
    finally:
        held.discard(target)
        if lock is not None:
            os.close(lock)


def _lock(target: str, on_wait) -> int | None:
    """A descriptor that has the lock of the file that is there now; None without a file, or without locks."""
    while True:
        try:
            if not os.path.isfile(target):
                return None
            try:
                lock = os.open(target, os.O_RDWR)               # NFS locks for writers alone
            except PermissionError:
                lock = os.open(target, os.O_RDONLY)
        except OSError:
            return None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is not None:
                    on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(target)):
                    return lock
        except OSError:                                         # a file system without locks
            os.close(lock)
            return None
        os.close(lock)                                          # it was replaced meanwhile


def open_file(path):
    """A regular file, to read its bytes. OSError for anything else: a pipe or a device may never end."""
    file = open(path, 'rb', opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))    # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, 'it is not a regular file', str(path))
    return file


def read_json(path):
    """The content of a JSON file; OSError if it cannot be read, ValueError if it is something else."""
    with open_file(path) as file:
        text = file.read()
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError('it is nested too deep') from None


def sha256(path) -> str:
    """Hex, of a file, which is read in pieces."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write(path, kind: str, facts: dict, arrays: dict) -> str:
    """Write `path` by `atomic_write`; returns its `stamp_of`.

    Args:
        kind: what the file is, and its version: 'scroll-state-1'.
        facts: whatever JSON holds, and numpy's numbers.
        arrays: of numbers or text, by name; of objects, if they are text.

    Raises:
        InputError: it cannot be written; whatever was there is as it was.
    """
    text = json.dumps(facts, sort_keys=True, default=lambda value: value.item())
    stored = _stored(arrays)
    digest = _digest(kind, text, stored)
    try:
        with atomic_write(path) as file:
            np.savez(file, format=kind, facts=text, sha256=digest, **stored)
    except OSError as error:
        raise InputError(f'{path} cannot be written ({error.strerror})') from error
    return digest


def stamp_of(path) -> str:
    """The digest that `write` has put into a file, not checked; '' of something else."""
    try:
        return str(_content(path, ('sha256',)).get('sha256', ''))
    except InputError:
        return ''


def check_unchanged(path, stamp: str | None) -> None:
    """InputError if another process has written `path` since it had this digest; None: it was not read."""
    if stamp is not None and os.path.exists(path) and stamp_of(path) != stamp:
        raise InputError(f'{path}: was written by another process since this learner has read it, which '
                         'would be lost: save to another file, and merge the two')


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


def is_npz(path) -> bool:
    """Whether `path` is a zip archive, as npz files are; InputError if it cannot be read."""
    try:
        with open_file(path) as file:
            return zipfile.is_zipfile(file)
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror})') from error


def names_of(path) -> list:
    """Names of the arrays of any npz file; InputError if it is none."""
    return list(_content(path, ()))


def arrays_of(path) -> dict:
    """The arrays of any npz file, without pickles."""
    return _content(path, most=available_memory() // 2)


def _content(path, names=None, most: int = 0) -> dict:
    """Arrays by name, all of them, or those of `names`: of () names alone. `most`: bytes of memory that a
    compressed file may take; ours are not compressed."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if names == ():
                return {name.removesuffix('.npy'): None for name in archive.namelist()}
            if size > max(os.stat(path).st_size, most):         # gigabytes of zeros make a small file
                raise ValueError(f'its content takes {size / 2 ** 30:,.1f} GiB')
            if names is None:
                check_memory('its content', size)
            with np.load(file, allow_pickle=False) as found:
                content = {name: native(found[name]) for name in found.files
                           if names is None or name in names}
        for name, array in content.items():
            check_text(name, array)
        return content
    except FileNotFoundError:
        raise InputError(f'{path}: there is no such file') from None
    except OSError as error:
        raise InputError(f'{path}: cannot be read ({error.strerror or error})') from error
    except InputError as error:
        raise InputError(f'{path}: {error}') from error
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
