"""Files of arrays and facts: npz without pickles, written whole or not at all, with a digest."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from scroll.ground.arguments import available_memory, check_memory
from scroll.ground.errors import InputError
from scroll.ground.grid import little_endian, native


@contextlib.contextmanager
def atomic_write(path):
    """Open a binary file to write into, which becomes `path` when the block ends: whole and on disk
    or not at all. Links are followed: their target is replaced, and keeps its mode. A missing
    folder is made. OSError: it cannot be written (`target_of`); whatever was there is as it was."""
    target = target_of(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_part(target) as part, open(part, 'wb') as file:
        yield file
        with contextlib.suppress(OSError):
            before = os.stat(target)
            os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(OSError), _descriptor(target.parent) as folder:
        os.fsync(folder)  # the new name, too, is on the disk; not all file systems can


@contextlib.contextmanager
def new_part(target: Path, folder: bool = False):
    """Make a new file or folder next to `target`, which becomes `target` when the block ends
    without an error, and is gone if not. It is locked: one without a lock was left by a killed
    process, and is removed here."""
    for old in target.parent.glob(f'{glob.escape(target.name)}.[0-9]*-????????.part'):
        with contextlib.suppress(OSError), _descriptor(old, os.O_NONBLOCK | os.O_NOFOLLOW) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(old)
    part = target.with_name(f'{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part')
    try:
        while True:
            part.mkdir() if folder else part.touch()
            with _descriptor(part) as lock:
                with contextlib.suppress(OSError):  # not all file systems have locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.lexists(part):  # else another process has removed it as old
                    yield part
                    os.replace(part, target)
                    # `target` has it now, and an interrupt could
                    with contextlib.suppress(OSError):
                        fcntl.flock(lock, fcntl.LOCK_UN)  # leave it there
                    return
    finally:
        with contextlib.suppress(OSError):
            _remove(part)


@contextlib.contextmanager
def _descriptor(path, flags: int = 0):
    """Open a descriptor to read a file or a folder, closed when the block ends."""
    descriptor = None
    try:  # the guard comes first: an interrupt may come after any line
        descriptor = os.open(path, os.O_RDONLY | flags)
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def target_of(path) -> Path:
    """Return the file that writing to `path` replaces, after all links; it need not exist. OSError:
    it is '-', a folder, a device, a pipe, or a link to itself."""
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


def check_target(path, flag: str = '', folder: bool = False) -> None:
    """InputError, before any work, if the file `path` (`target_of`), or no file in the folder
    `path`, can be written. Nothing is made: of folders on the way the last that is there is
    tried."""
    with write_errors(path, flag):
        home = Path(os.path.realpath(path)) if folder else target_of(path).parent
        tempfile.TemporaryFile(dir=next(filter(Path.exists, (home, *home.parents)))).close()


def check_apart(path, others, flag: str = '-o') -> None:
    """InputError if the file to write, `path`, is one of the others that a command has to do
    with.
    """
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise InputError(
            f'{flag} {path} is named twice, and one of the two would be lost: give another name'
        )


@contextlib.contextmanager
def write_errors(path, flag: str = ''):
    """Turn an OSError in the block into an InputError: `path` cannot be written."""
    try:
        yield
    except BrokenPipeError:  # of standard output, whose reader is gone
        raise
    except OSError as error:
        raise InputError(f'{flag} {path} cannot be written ({error.strerror})'.lstrip()) from error


def write_text(path, text: str) -> None:
    """Write a text file, whole or not at all; InputError if it cannot be written."""
    with write_errors(path), atomic_write(path) as file:
        file.write(text.encode())


def alone(path):
    """Be the only one of all who read and replace `path` so, whether it is there or not, and make
    its folder: `with alone(path): ...`. InputError: it cannot be written."""
    with write_errors(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return take_lock(f'{path}.lock')


def locked(path, on_wait=None):
    """Hold `path`, if it is there, from before it is read until it is replaced: `with locked(path):
    ...`. Of several processes and threads that do, one works at a time.
    `on_wait` is called before a wait."""
    if os.path.isfile(path):
        with contextlib.suppress(OSError):
            # for NFS
            return take_lock(path, 'r+b' if os.access(path, os.W_OK) else 'rb', on_wait)
    return contextlib.nullcontext()


def take_lock(path, mode: str = 'ab', on_wait=None, wait: bool = True):
    """Open the file `path` and take its lock (flock): the file, which has it until it is closed;
    None with
    `wait=False` where another has it. OSError: it cannot be opened. `mode`: of `open`; 'ab' makes a
    file.
    `on_wait` is called before a wait.

    A lock is given back by the file that has it, when it is closed or nobody holds it any more, and
    until it is returned it is guarded here: no interrupt, at whatever line, leaves one that is
    never given back."""
    while True:
        file = open(path, mode)  # noqa: SIM115 (it is returned open)
        try:
            with contextlib.suppress(OSError):  # not all file systems have locks
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if not wait:
                        file.close()
                        return None
                    if on_wait is not None:
                        on_wait()
                    fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):  # else it was replaced meanwhile
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            file.close()
        except BaseException:
            file.close()
            raise


def open_file(path):
    """Open a regular file, to read its bytes. OSError for anything else: a pipe or a device may
    never end.
    """
    file = open(  # noqa: SIM115 (it is returned open)
        path, 'rb', opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, 'it is not a regular file', str(path))
    return file


def read_json(path):
    """The content of a JSON file; OSError if it cannot be read, ValueError if it is something
    else.
    """
    with open_file(path) as file:
        text = file.read()
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError('it is nested too deep') from None


def sha256(path) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write(path, kind: str, facts: dict, arrays: dict) -> None:
    """Write `path` by `atomic_write`; InputError if it cannot be written. kind: the format and its
    version: 'scroll-state-1'. facts: whatever JSON holds, and numpy's numbers. arrays: of numbers
    or text, by name."""
    text = json.dumps(facts, sort_keys=True, default=plain)
    stored = {name: little_endian(array) for name, array in arrays.items()}
    content: dict[str, Any] = dict(
        format=kind, facts=text, sha256=_digest(kind, text, stored), **stored
    )
    with write_errors(path), atomic_write(path) as file:
        np.savez(file, **content)


def plain(value):
    """Return a number, numpy's or of another kind, as one that JSON holds."""
    value = value.item() if hasattr(value, 'item') else value
    return value if isinstance(value, (bool, int)) else float(value)


def read(path, kind: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return (facts, arrays) that `write` wrote. Runs no code from the file. InputError if there is
    no such file, or it is of another kind or version, or damaged."""
    content = _content(path)
    actual = str(content.pop('format', ''))
    if actual != kind:
        other = f', this is {actual}' if re.fullmatch(r'scroll-[a-z]+-\d{1,9}', actual) else ''
        raise InputError(
            f'{path}: expected a file of the format {kind}{other} (`learn` or `save` makes it)'
        )
    with read_errors(path):
        text, digest = (str(content.pop(name)) for name in ('facts', 'sha256'))
        if digest != _digest(kind, text, content):
            raise ValueError('its content does not match its digest')
        return dict(json.loads(text)), content


def kind_of(path) -> str:
    """Return the format that `path` names; '' where it names none."""
    return str(_content(path, ('format',)).get('format', ''))


def arrays_of(path, names=None) -> dict[str, np.ndarray]:
    """Return the arrays of any npz file, or those of these names, without pickles."""
    return _content(path, names, available_memory() // 2)


def _content(path, names=None, most: int = 0) -> dict[str, np.ndarray]:
    """Return arrays by name, all of them, or those of `names`. `most`: bytes of memory that a
    compressed file may take; ours are not compressed."""
    with read_errors(path), open_file(path) as file, zipfile.ZipFile(file) as archive:
        sizes = {
            entry.filename.removesuffix('.npy'): entry.file_size for entry in archive.infolist()
        }
        wanted = [name for name in sizes if names is None or name in names]
        size = sum(sizes[name] for name in wanted)
        if size > max(os.stat(path).st_size, most):  # gigabytes of zeros make a small file
            raise ValueError(f'its content takes {size / 2**30:,.1f} GiB')
        check_memory('its content', size)
        with np.load(file, allow_pickle=False) as arrays:
            content = {name: native(arrays[name]) for name in wanted}
        for array in content.values():
            if array.dtype.kind == 'U':
                array.tolist()  # fails here, not later, if a number stands for no character
        return content


@contextlib.contextmanager
def read_errors(path):
    """Turn any error in the block into an InputError that names `path`: damaged files raise almost
    anything.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        text = ' '.join(str(error).split())[:300]
        if isinstance(error, InputError):
            reason = error
        elif isinstance(error, FileNotFoundError):
            reason = 'there is no such file'
        elif isinstance(error, OSError):
            reason = f'cannot be read ({error.strerror or text})'
        else:
            reason = f'damaged, or not what is expected here ({text})'
        raise InputError(f'{path}: {reason}') from error


def _digest(kind: str, facts: str, arrays: dict) -> str:
    sha = hashlib.sha256(json.dumps([kind, facts]).encode())
    for name in sorted(arrays):
        array = np.atleast_1d(little_endian(arrays[name]))
        sha.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        sha.update(array.reshape(-1).view(np.uint8))
    return sha.hexdigest()
