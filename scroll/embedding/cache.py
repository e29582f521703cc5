"""Quantised features on disk, by the pixels they were made from."""

import hashlib
import io
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from scroll.ground.archive import atomic_write, open_file, write_errors
from scroll.ground.errors import InputError
from scroll.ground.grid import check_quantised, sample_keys

_WRITING = threading.RLock()  # held by whoever changes a cache


class FeatureCache:
    """Quantised features on disk by sample key, in files written once and never changed, only
    replaced.

    A file holds an int32 array (n, 2 + d), the key in the first two columns, and is named after its
    own SHA-256: one that is damaged, or has what `quantise` never gives, is dropped. Processes and
    threads may share the folder. New features are written every 8,192 samples and by `flush`."""

    _FLUSH = 8192

    def __init__(self, folder: Path, dim: int):
        self.folder = folder
        self.dim = dim
        self._new = []
        tables = [np.zeros((0, 2 + dim), np.int32)]
        for path in sorted(folder.glob('*.npy')):
            try:
                table = _table(path)
                check_quantised(table[:, 2:], dim)
                tables.append(table)
            except (OSError, ValueError):
                with suppress(OSError):  # a folder, or one that is closed to us
                    path.unlink()  # only ever a copy of what can be computed again
        self._index(np.concatenate(tables))

    def _index(self, table: np.ndarray) -> None:
        keys, first = np.unique(keys_in(table), return_index=True)
        self._rows = keys, table[first, 2:]  # replaced together: threads may be reading

    def read(self, keys: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fill the rows of `out` whose key is cached; return the positions of the others."""
        cached, features = self._rows
        if not len(cached):
            return np.arange(len(keys))
        at = np.minimum(np.searchsorted(cached, keys), len(cached) - 1)
        hits = cached[at] == keys
        out[hits] = features[at[hits]]
        return np.flatnonzero(~hits)

    def add(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Take in new features; they reach the disk at the next flush."""
        with _WRITING:
            self._new.append(_joined(keys, features))
            if sum(map(len, self._new)) >= self._FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write what is new. A folder that cannot be written is an InputError."""
        with _WRITING:
            if not self._new:
                return
            table = np.concatenate(self._new)
            self._new = []
            try:
                _write(self.folder, table)
            except OSError as error:
                raise InputError(
                    f'feature cache {self.folder}: {error.strerror}; choose another folder or '
                    'turn it off (main.py: --base_path, --feature_cache 0)'
                ) from error
            self._index(np.concatenate([_joined(*self._rows), table]))

    def remove(self, keys: np.ndarray) -> None:
        """Forget these, here and on disk; what other processes hold in memory they keep until they
        end. A file that has some goes once one without them is there. Damaged files are left to the
        next cache that reads the folder. InputError: a file cannot be replaced; others may have
        been."""
        with _WRITING:
            self.flush()
            for path in sorted(self.folder.rglob('*.npy')):
                try:
                    table = _table(path)
                except (OSError, ValueError):
                    continue
                gone = np.isin(keys_in(table), keys)
                with write_errors(path, 'feature cache'):
                    if gone.any() and not gone.all():
                        _write(path.parent, table[~gone])
                    if gone.any():
                        path.unlink(missing_ok=True)
            table = _joined(*self._rows)
            self._index(table[~np.isin(keys_in(table), keys)])


def _joined(keys: np.ndarray, features: np.ndarray) -> np.ndarray:
    """A table int32 (n, 2 + d) of keys uint64 (n,) and features (n, d)."""
    return np.concatenate([keys[:, None].view(np.int32), features], axis=1)


def keys_in(table: np.ndarray) -> np.ndarray:
    """uint64 (n,): the keys of a cache's table, int32 (n, 2 + d)."""
    return np.ascontiguousarray(table[:, :2]).view(np.uint64).ravel()


def _table(path: Path) -> np.ndarray:
    """The content of a cache's file, int32 (n, 2 + d); ValueError if it is not what was written."""
    with open_file(path) as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest()[:32] != path.stem:
        raise ValueError('it does not match its digest')
    try:
        table = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # damaged headers raise almost anything
        raise ValueError('it is damaged') from error
    if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] < 2:
        raise ValueError('it has another shape')
    return table


def _write(folder: Path, table: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, table)
    with atomic_write(
        folder / f'{hashlib.sha256(content.getbuffer()).hexdigest()[:32]}.npy'
    ) as file:
        file.write(content.getbuffer())


def cache_keys(keys: np.ndarray, images) -> np.ndarray:
    """The keys of images in a feature cache, uint64 (N,). Equal bytes of another shape are another
    image.
    """
    return keys ^ sample_keys(np.array([images.shape[1:]], np.int64))[0]
