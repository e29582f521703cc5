"""The images of a folder, and their pixels in one size; `scroll.files.images` decodes them."""

import functools
import os
from pathlib import Path

import numpy as np

from scroll.files.images import FORMATS, decode
from scroll.ground.errors import InputError

# Made by storage devices and archivers: previews, deleted files, notes of an archive.
_SYSTEM_FOLDERS = {
    '@eadir',
    '@recycle',
    '__macosx',
    '#recycle',
    '#snapshot',
    '$recycle.bin',
    'lost+found',
    'system volume information',
}


def class_folders(home) -> list:
    """Names of the folders in `home` that may be classes, sorted."""
    return sorted(p.name for p in Path(home).glob('*') if p.is_dir() and _may_hold_images(p.name))


def _may_hold_images(name: str) -> bool:
    return not name.startswith('.') and name.lower() not in _SYSTEM_FOLDERS


@functools.cache
def _suffixes() -> set:
    from PIL import Image

    suffixes = Image.registered_extensions().items()
    return {suffix for suffix, kind in suffixes if kind in FORMATS} | {'.heic', '.heif', ''}


def image_files(folder) -> tuple:
    """(paths of the images below a folder, sorted; number of other files), at any depth.

    Links are followed. A file is an image by its suffix, or if it has none. InputError: a folder
    cannot be read."""

    def stop(error):
        if not isinstance(error, FileNotFoundError):  # an absent folder has no files
            raise InputError(f'{error.filename} cannot be read ({error.strerror})') from error

    images = []
    others = 0
    seen = set()
    for place, folders, names in os.walk(folder, onerror=stop, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = filter(_may_hold_images, folders)
        for name in names:
            path = Path(place, name)
            if not name.startswith('.') and path.suffix.lower() in _suffixes():
                images.append(path)
            else:
                others += 1
    return sorted(images), others


def read_images(paths, size: int) -> np.ndarray:
    """Image files as uint8 (N, size, size, 3); InputError as of `scroll.files.images.decode`."""
    from PIL import Image

    return np.stack(
        [np.asarray(decode(path).resize((size, size), Image.Resampling.LANCZOS)) for path in paths]
    )
