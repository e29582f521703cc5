"""Encoded images (JPEG, PNG, ...) -> 8-bit RGB: one reader for image files and for images in Parquet.

Images are turned as their EXIF or TIFF orientation says, transparent ones laid over white; of several frames
the first is taken. Colour profiles (ICC) are not applied. Grey of 16 bits is scaled by 65535, of other depths
(TIFF: 12, 32 or signed bits) by the largest number of its kind; real numbers are grey from 0 to 1. Colours of
16 bits keep their upper 8.

A Parquet file of images has `image`, a column of encoded bytes, or of structs with a field `bytes`, as the
`datasets` library writes them; `y`, `id` and `split` are as in files of features. Images keep their own size.
A digest is of pixels: PNG gives the same everywhere, JPEG, WebP and AVIF may differ between versions of
decoders.
"""
import io
import os
import warnings
from contextlib import ExitStack

import numpy as np

from scroll.arguments import not_installed
from scroll.errors import InputError
from scroll.files.features import Block, FeatureFile
from scroll.labels import by_label

# Without EPS, for which Pillow would run a program.
FORMATS = ('PNG', 'JPEG', 'BMP', 'GIF', 'TIFF', 'WEBP', 'PPM', 'JPEG2000', 'TGA', 'ICO', 'AVIF')
MAX_PIXELS = 178_956_970            # Pillow's own limit, which other libraries switch off
_DECODERS = 'libjpeg_turbo', 'jpg', 'webp', 'avif', 'jpg_2000', 'libtiff'        # as Pillow calls them
_ORIENTATION = 0x0112               # EXIF and TIFF tags
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO, _SIGNED = 0, 2
_SHALLOW_PNG = {'L;2': 85, 'L;4': 17}       # what Pillow has multiplied grey values by
_AT_ONCE = 1 << 20                  # pixels converted at once, where that takes several times their memory
_ROWS, _BYTES = 16, 1 << 28         # encoded images, bytes of decoded ones, in memory at once


def decode(source, name: str) -> tuple:
    """(PIL image of mode RGB, whether there are more frames or pages) of a path or of bytes; `name` is for
    errors. InputError: no image, damaged, of a format not in `FORMATS`, larger than `MAX_PIXELS`, or with
    numbers for which there is no grey; or Pillow is not installed."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise not_installed('reading images', 'pillow', 'images') from None
    try:
        encoded = isinstance(source, bytes)
        if not encoded and os.path.exists(source) and not os.path.isfile(source):
            raise ValueError('expected a regular file')             # a pipe or a device may never end
        with warnings.catch_warnings(), io.BytesIO(source) if encoded else open(source, 'rb') as file:
            warnings.simplefilter('ignore')         # of damaged EXIF, and of sizes below the limit
            with Image.open(file, formats=_formats(file)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ValueError(f'{image.width} x {image.height} pixels: at most {MAX_PIXELS} are read')
                several = getattr(image, 'is_animated', False)
                raw = image.tile[0][3] if image.format == 'PNG' and image.tile else None
                image.load()                        # a PNG may have its EXIF behind its pixels
                return _turned(_rgb(image, raw), image), several
    except Exception as error:              # damaged images raise almost anything
        reason = (f'expected one of {", ".join(FORMATS)}' if type(error).__name__ == 'UnidentifiedImageError'
                  else ' '.join(str(error).split())[:200] or type(error).__name__)
        raise InputError(f'{name}: not a readable image ({reason})') from error


def decoders() -> str:
    """Versions of Pillow and its decoders: with others, the pixels of JPEG, WebP, AVIF may differ."""
    from PIL import __version__, features
    known = {*features.modules, *features.codecs, *features.features}
    found = [name for name in _DECODERS if name in known and features.check(name)]
    return ', '.join([f'Pillow {__version__}', *(f'{name} {features.version(name)}' for name in found)])


def _formats(file) -> list:
    """The formats to try on an open file: those of `FORMATS` that this Pillow has, or HEIC's."""
    from PIL import Image
    head = file.read(32)
    file.seek(0)
    if head[4:8] == b'ftyp' and b'avi' not in head and (b'hei' in head or b'hev' in head or b'mif1' in head):
        try:
            from pillow_heif import register_heif_opener
        except ModuleNotFoundError:
            raise ValueError('HEIC: pip install pillow-heif, or convert it to JPEG') from None
        register_heif_opener()
        return ['HEIF']
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


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
    out, rows = Image.new('RGB', image.size), -(-_AT_ONCE // image.width)
    for top in range(0, image.height, rows):
        part = image.crop((0, top, image.width, min(top + rows, image.height)))
        part = (part.convert('LA') if part.mode == 'La' else part).convert('RGBA')
        out.paste(Image.alpha_composite(Image.new('RGBA', part.size, 'white'), part), (0, top))
    return out


def _grey(image):
    """An image of whole numbers of more than 8 bits, or of real numbers, as 8-bit grey. PNG, PPM and JPEG
    2000 have 16 bits, whatever Pillow holds them in; TIFF's tags say what its numbers are."""
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
    grey, flat = np.empty(values.size, np.uint8), values.reshape(-1)
    for start in range(0, len(flat), _AT_ONCE):
        grey[start:start + _AT_ONCE] = np.rint(flat[start:start + _AT_ONCE].astype(np.float64) * 255 / top)
    grey = grey.reshape(values.shape)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        grey = 255 - grey
    if image.info.get('transparency') is not None:
        grey[values == image.info['transparency']] = 255
    return Image.fromarray(grey)


class ImageFile(FeatureFile):
    """A Parquet file of images and labels; its blocks hold uint8 (n, H, W, 3), each of images of one size."""

    def __init__(self, path: str, columns: dict = None):
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f'{path}: expected a regular file')    # a pipe or a device may never end
        columns = dict(X='image') | (columns or {})
        super().__init__([path], 'parquet', columns, ('X', 'y', *columns))

    def _reader(self, stack: ExitStack):
        from scroll.files.parquet import ImageTable
        return ImageTable(*self._paths, self._columns, stack)

    def blocks(self, size: int):
        """Yield all samples as `Block`s of at most `size`, and of 256 MB of pixels or one image; InputError
        for a damaged image (which sample)."""
        start, held, pixels = 0, [], 0
        for part in super().blocks(min(size, _ROWS)):
            for i, content in enumerate(part.X):
                image = self._decoded(content, start + i)
                held.append(part.part(slice(i, i + 1))._replace(X=image[None]))
                pixels += image.nbytes
                if len(held) == size or pixels >= _BYTES:
                    yield from _by_shape(held)
                    held, pixels = [], 0
            start += len(part.X)
        yield from _by_shape(held)

    def _decoded(self, content, row: int) -> np.ndarray:
        """uint8 (H, W, 3) of bytes, or of a struct with bytes."""
        name, path = f'{self.path}: image of sample {row}', None
        if isinstance(content, dict):
            content, path = content['bytes'], content.get('path')
        if content is None:
            raise InputError(f'{name} is missing' if path is None else
                             f'{name} is the path {path[:200]!r} without bytes: store the bytes, as '
                             'Dataset.to_parquet of datasets does')
        return np.asarray(decode(content, name)[0])


def _by_shape(samples: list):
    """Yield `Block`s of one size of image each, of `Block`s of one sample each."""
    for _, at in by_label(np.array(['{}x{}'.format(*one.X.shape[1:3]) for one in samples], str)):
        yield Block(*(None if column[0] is None else np.concatenate(column)
                      for column in zip(*(samples[i] for i in at))))
