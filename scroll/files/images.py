"""Encoded images (JPEG, PNG, ...), in files or in Parquet -> 8-bit RGB.

Images are turned as their EXIF or TIFF orientation says, transparent ones laid over white; of
several frames the first is taken. Colour profiles (ICC) are not applied. Colours of 16 bits keep
their upper 8; grey of more than 8 bits is refused.

A digest is of pixels: PNG gives the same everywhere, JPEG, WebP and AVIF may differ between
versions of decoders.
"""

import io
import warnings
from contextlib import suppress

import numpy as np

from scroll.files.features import FeatureFile
from scroll.ground.archive import open_file
from scroll.ground.arguments import not_installed
from scroll.ground.errors import InputError

# without EPS, for which Pillow would run a program
FORMATS = ('PNG', 'JPEG', 'BMP', 'GIF', 'TIFF', 'WEBP', 'PPM', 'JPEG2000', 'TGA', 'ICO', 'AVIF')
_DECODERS = 'libjpeg_turbo', 'jpg', 'webp', 'avif', 'jpg_2000', 'libtiff'  # as Pillow calls them


def decode(source, name: str | None = None):
    """Read a file, or bytes, as a PIL image of mode RGB, the first of several frames or pages.

    name: its name in errors. InputError: no image, damaged, of a format not in `FORMATS`, larger
    than Pillow reads, or grey of more than 8 bits; or Pillow is not installed."""
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise not_installed('reading images', 'pillow', 'images') from None
    try:
        Image.init()
        formats = [kind for kind in FORMATS if kind in Image.OPEN]
        with (
            warnings.catch_warnings(),
            io.BytesIO(source) if isinstance(source, bytes) else open_file(source) as file,
        ):
            warnings.simplefilter('ignore')  # of damaged EXIF, and of sizes below the limit
            with Image.open(file, formats=formats) as image:
                if image.mode[0] in 'IF':
                    raise ValueError(
                        'its grey has more than 8 bits: convert it, for example with '
                        'ImageMagick, `magick IN -depth 8 OUT.png`'
                    )
                image.load()  # a PNG may have its EXIF behind its pixels
                out = image
                with suppress(Exception):  # EXIF is damaged in many ways that no viewer minds
                    out = ImageOps.exif_transpose(image)
                return _rgb(out)
    except Exception as error:  # damaged images raise almost anything
        reason = ' '.join(str(error).split())[:200] or type(error).__name__
        if type(error).__name__ == 'UnidentifiedImageError':
            reason = f'expected one of {", ".join(FORMATS)}; pillow-heif can convert HEIC'
        raise InputError(f'{name or source}: not a readable image ({reason})') from error


def decoders() -> str:
    """Return the versions of Pillow and its decoders: with others, the pixels of JPEG, WebP, AVIF
    may differ."""
    from PIL import __version__, features

    supported = features.get_supported()
    versions = [f'{name} {features.version(name)}' for name in _DECODERS if name in supported]
    return ', '.join([f'Pillow {__version__}', *versions])


def _rgb(image):
    """Return a loaded image as 8-bit RGB, laid over white where it is transparent."""
    from PIL import Image

    if not image.has_transparency_data:
        return image.convert('RGB')
    white = Image.new('RGBA', image.size, 'white')
    return Image.alpha_composite(white, image.convert('RGBA')).convert('RGB')


class ImageFile(FeatureFile):
    """A Parquet file with columns `image` (bytes, or structs with `bytes`, as `datasets` writes
    them) and y; its blocks hold uint8 (n, H, W, 3), each of images of one size, in no order."""

    block = 64

    def __init__(self, path: str, columns: dict, need: tuple):
        super().__init__(path, {'X': 'image'} | columns, need)
        self.names = None

    def _reader(self):
        if self._kind != 'parquet':
            raise InputError(
                f'it is a file of kind {self._kind}: images are read from Parquet alone'
            )
        from scroll.files.parquet import ImageTable

        return ImageTable(self.path, self._columns)

    def blocks(self):
        """Yield all samples, at most `block` at once; InputError for a damaged image (which
        sample)."""
        start = 0
        for block in super().blocks():
            images = [self._image(row, content) for row, content in enumerate(block.X, start)]
            start += len(images)
            for shape in sorted({image.shape for image in images}):
                at = [i for i, image in enumerate(images) if image.shape == shape]
                yield block.part(at)._replace(X=np.stack([images[i] for i in at]))

    def _image(self, row: int, content) -> np.ndarray:
        """Decode a value of the column."""
        name = f'{self.path}: image of sample {row}'
        encoded = content['bytes'] if isinstance(content, dict) else content
        if encoded is None:
            raise InputError(f'{name} has no bytes: put those of the image file into the column')
        return np.asarray(decode(encoded, name))
