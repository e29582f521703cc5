"""Image files -> uint8 RGB: which files of a folder are images, and what the pixels of each kind mean.

Of an image only what it looks like is kept: turned as its EXIF or TIFF orientation says, what is transparent
over white, the first of several frames or pages. Colour profiles (ICC) are left alone.
"""
import os
from collections import Counter
from pathlib import Path

import numpy as np

from core.environment import warn_once
from scroll.errors import InputError

# Without EPS, for which Pillow would run a program.
_FORMATS = 'PNG', 'JPEG', 'BMP', 'GIF', 'TIFF', 'WEBP', 'PPM', 'JPEG2000', 'TGA', 'ICO'
_NO_IMAGES = {
    '.7z', '.aae', '.avi', '.bak', '.cfg', '.csv', '.db', '.doc', '.docx', '.gz', '.h5', '.htm', '.html',
    '.ini', '.json', '.jsonl', '.lnk', '.log', '.mat', '.md', '.mov', '.mp3', '.mp4', '.npy', '.npz',
    '.parquet', '.pdf', '.pkl', '.py', '.pt', '.rar', '.sh', '.tar', '.tex', '.toml', '.tsv', '.txt',
    '.url', '.wav', '.xls', '.xlsx', '.xml', '.yaml', '.yml', '.zip'}
_ORIENTATION = 0x0112               # EXIF and TIFF tags
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO, _SIGNED = 0, 2
_SHALLOW_PNG = {'L;2': 85, 'L;4': 17}       # what Pillow has multiplied grey values by


def image_files(folder) -> tuple:
    """The files below a folder, at any depth, links followed.

    Returns:
        (paths that may be images, sorted; Counter of the kinds of those that are not: 'hidden', '.txt', ...)

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
            if any(part.startswith('.') for part in path.relative_to(folder).parts):
                others['hidden'] += 1
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
    """One image file as uint8 (size, size, 3).

    Grey of 16 bits is scaled by 65535, of other depths (TIFF: 12, 32 or signed bits) by the largest number of
    its kind; real numbers are grey from 0 to 1. Colours of 16 bits keep their upper 8.

    Raises:
        InputError: it is no image, or damaged, or has numbers for which there is no grey.
    """
    return _read(path, size)[0]


def _read(path, size: int) -> tuple:
    """(uint8 (size, size, 3), whether there are more frames)."""
    from PIL import Image
    try:
        with Image.open(path, formats=_FORMATS) as image:
            several = getattr(image, 'is_animated', False)
            raw = image.tile[0][3] if image.format == 'PNG' and image.tile else None
            image.load()                                        # a PNG may have its EXIF behind its pixels
            image = _turned(_rgb(image, raw), image)
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.LANCZOS)
            return np.asarray(image), several
    except Exception as error:              # damaged images raise almost anything
        raise InputError(f'{path}: not a readable image ({error})') from error


def _turned(pixels, image):
    """The pixels of an image the right way up; TIFF has been turned by Pillow."""
    from PIL import Image
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:                       # EXIF is damaged in many ways that no viewer minds
        return pixels
    turn = {2: 'FLIP_LEFT_RIGHT', 3: 'ROTATE_180', 4: 'FLIP_TOP_BOTTOM', 5: 'TRANSPOSE', 6: 'ROTATE_270',
            7: 'TRANSVERSE', 8: 'ROTATE_90'}.get(orientation)
    return pixels.transpose(Image.Transpose[turn]) if turn else pixels


def _rgb(image, raw):
    """A loaded image as 8-bit RGB, the transparent over white; `raw`: what a PNG's pixels are to Pillow."""
    from PIL import Image
    if image.mode[0] in 'IF':
        return _grey(image).convert('RGB')
    key = image.info.get('transparency')
    if key is None and image.mode not in ('LA', 'La', 'PA', 'RGBA', 'RGBa') and \
            not (image.mode == 'P' and image.palette.mode.endswith('A')):
        return image if image.mode == 'RGB' else image.convert('RGB')
    if raw == 'RGB;16B' and key is not None:                    # the transparent colour, too, has 16 bits
        image.info['transparency'] = tuple(value >> 8 for value in key)
    elif raw in _SHALLOW_PNG and key is not None:
        image.info['transparency'] = key * _SHALLOW_PNG[raw]
    image = (image.convert('LA') if image.mode == 'La' else image).convert('RGBA')
    return Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image).convert('RGB')


def _grey(image):
    """An image of whole numbers of more than 8 bits, or of real numbers, as 8-bit grey.

    PNG, PPM and JPEG 2000 have 16 bits, whatever Pillow holds them in; TIFF's tags say what its numbers are.
    """
    from PIL import Image
    values, tags = np.asarray(image), getattr(image, 'tag_v2', {})
    low, high, top = values.min(), values.max(), 1.0
    if image.mode == 'F':
        if not (low >= 0 and high <= 1):                        # nor is NaN
            raise ValueError(f'real numbers from {low:g} to {high:g}, expected 0 to 1: scale them')
    else:
        bits, signed = tags.get(_BITS, (16,))[0], tags.get(_SAMPLE_FORMAT, (1,))[0] == _SIGNED
        if bits == 32 and not signed:
            values = values.view(np.uint32)                     # Pillow's own are signed
            low, high = values.min(), values.max()
        top = 2.0 ** (bits - signed) - 1
        if low < 0:
            raise ValueError(f'numbers from {low} to {high}, no grey is below 0: save it with 8 or 16 bits')
        if bits == 32 and 0 < high < 2 ** 16:                   # black, though it cannot be meant
            raise ValueError(f'no number of its 32 bits is above {high}: save it with 8 or 16 bits')
    grey = np.rint(values.astype(np.float64) * 255 / top).astype(np.uint8)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        grey = 255 - grey
    if image.info.get('transparency') is not None:
        grey = np.where(values == image.info['transparency'], 255, grey).astype(np.uint8)
    return Image.fromarray(grey)
