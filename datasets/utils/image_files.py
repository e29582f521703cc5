"""Which files of a folder are images, and their pixels in one size; formats: `scroll.files.images`."""
import os
from collections import Counter
from pathlib import Path

import numpy as np

from core.environment import warn_once
from scroll.errors import InputError
from scroll.files.images import decode

# Made by storage devices and archivers: previews, what was deleted, what an archive says of its files.
_SYSTEM_FOLDERS = {'@eadir', '@recycle', '__macosx', '#recycle', '#snapshot', '$recycle.bin', 'lost+found',
                   'system volume information'}
_NO_IMAGES = {
    '.7z', '.aae', '.avi', '.bak', '.cfg', '.csv', '.db', '.doc', '.docx', '.gz', '.h5', '.htm', '.html',
    '.ini', '.json', '.jsonl', '.lnk', '.log', '.mat', '.md', '.mov', '.mp3', '.mp4', '.npy', '.npz',
    '.parquet', '.pdf', '.pkl', '.py', '.pt', '.rar', '.sh', '.tar', '.tex', '.toml', '.tsv', '.txt',
    '.url', '.wav', '.xls', '.xlsx', '.xml', '.yaml', '.yml', '.zip'}


def class_folders(home) -> tuple:
    """(names of the folders in `home` that may be classes, sorted; Counter of the files in the others)."""
    folders = sorted(path for path in Path(home).glob('*') if path.is_dir())
    others = sum((image_files(path)[1] for path in folders if _system(path.name)), Counter())
    return [path.name for path in folders if not _system(path.name)], others


def _system(folder: str) -> str:
    """'hidden', 'in @eaDir' or the like for the name of a folder that holds nobody's images; else ''."""
    return 'hidden' if folder.startswith('.') else f'in {folder}' if folder.lower() in _SYSTEM_FOLDERS else ''


def image_files(folder) -> tuple:
    """The files below a folder, at any depth, links followed.

    Returns:
        (paths that may be images, sorted; Counter of the kinds of those that are not: 'hidden', '.txt',
        'in @eaDir', ...)

    Raises:
        InputError: a folder in it cannot be read.
    """
    def stop(error):
        if not isinstance(error, FileNotFoundError):            # what is not there has no files
            raise InputError(f'{error.filename} cannot be read ({error.strerror})') from error
    found, others, seen = [], Counter(), set()
    for folder_path, folders, names in os.walk(folder, onerror=stop, followlinks=True):
        real = os.path.realpath(folder_path)
        if real in seen:                                        # a link that leads back
            folders.clear()
        for name in names if real not in seen else ():
            path = Path(folder_path, name)
            inside = Path(folder).name, *path.relative_to(folder).parts[:-1]
            system = next(filter(None, map(_system, inside)), 'hidden' if name.startswith('.') else '')
            if system:
                others[system] += 1
            elif path.suffix.lower() in _NO_IMAGES:
                others[path.suffix.lower()] += 1
            elif path.exists() and not path.is_file():
                others['special'] += 1               # to open one would wait for its writer
            else:
                found.append(path)
        seen.add(real)
    return sorted(found), others


def read_images(paths, size: int, where) -> np.ndarray:
    """Image files as uint8 (N, size, size, 3); one line says how many, below `where`, have several frames."""
    images, several = zip(*(_read(path, size) for path in paths))
    if any(several):
        warn_once(f'{where}: {sum(several)} of {len(several)} images have several frames or pages, the first '
                  f'of each is used ({paths[several.index(True)]}{", ..." * (sum(several) > 1)})')
    return np.stack(images)


def read_image(path, size: int) -> np.ndarray:
    """One image file as uint8 (size, size, 3); InputError as of `scroll.files.images.decode`."""
    return _read(path, size)[0]


def _read(path, size: int) -> tuple:
    """(uint8 (size, size, 3), whether there are more frames)."""
    image, several = decode(path, path)
    if image.size != (size, size):
        from PIL import Image
        image = image.resize((size, size), Image.Resampling.LANCZOS)
    return np.asarray(image), several
