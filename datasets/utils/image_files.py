"""The images of a folder, and their pixels in one size; `scroll.files.images` decodes them."""

import functools
import os
from pathlib import Path

import numpy as np

from core.environment import warn_once
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

    known = Image.registered_extensions().items()
    return {suffix for suffix, kind in known if kind in FORMATS} | {'.heic', '.heif', ''}


def image_files(folder) -> tuple:
    """(paths of the images below a folder, sorted; number of other files), at any depth, links
    followed. Files are images by their suffix, or where they have none. InputError: a folder cannot
    be read."""

    def stop(error):
        if not isinstance(error, FileNotFoundError):  # an absent folder has no files
            raise InputError(f'{error.filename} cannot be read ({error.strerror})') from error

    found = []
    others = 0
    seen = set()
    for place, folders, names in os.walk(folder, onerror=stop, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads back
            folders.clear()
            continue
        seen.add(real)
        folders[:] = filter(_may_hold_images, folders)
        images = [
            path
            for path in (Path(place, name) for name in names if not name.startswith('.'))
            if path.suffix.lower() in _suffixes()
        ]
        found += images
        others += len(names) - len(images)
    return sorted(found), others


def read_images(paths, size: int, where) -> np.ndarray:
    """Image files as uint8 (N, size, size, 3); one line says how many, below `where`, have several
    frames. InputError as of `scroll.files.images.decode`."""
    from PIL import Image

    images = []
    several = []
    for path in paths:
        image, more_frames = decode(path)
        images.append(np.asarray(image.resize((size, size), Image.Resampling.LANCZOS)))
        several += [path] * more_frames
    if several:
        warn_once(
            f'{where}: {len(several)} of {len(images)} images have several frames or pages, the first '
            f'of each is used ({several[0]}{", ..." * (len(several) > 1)})'
        )
    return np.stack(images)
