"""Images as people store them by the million: Parquet files of encoded images, as bytes, and labels.

`image` is a column of bytes, in the formats of `scroll.files.images`, or of structs with a field `bytes`, as
the `datasets` library writes them; `y`, `id` and `split` are as in files of features. Other names:
`X=picture, y=label`. Images become RGB of their own size; the embedder scales them. A digest is of pixels:
PNG gives the same everywhere, JPEG, WebP and AVIF may give others in another version of their decoder.
"""
import os
from contextlib import ExitStack

import numpy as np

from scroll.errors import InputError
from scroll.files.features import Block, FeatureFile
from scroll.files.images import decode
from scroll.files.parquet import Table
from scroll.labels import by_label

_ROWS = 16                          # encoded images in memory at once
_BYTES = 1 << 28                    # of decoded images, with one more image


class _Encoded(Table):
    """A Parquet file whose X is a column of encoded images: (n,) bytes, or None where there are none."""

    def _width(self, kinds: list) -> int:
        from pyarrow import types
        kind = kinds[0]
        if types.is_struct(kind) and kind.get_field_index('bytes') >= 0:
            kind = kind.field('bytes').type
        known = types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind)
        if len(kinds) > 1 or not known:
            raise InputError(f'images are {kind}: expected a column of bytes, or of structs with bytes')
        return 1

    def _matrix(self, parts: list) -> np.ndarray:
        out = np.empty(len(parts[0]), object)
        out[:] = parts[0].to_pylist()
        return out


class ImageFile(FeatureFile):
    """A Parquet file of images and labels; its blocks hold uint8 (n, H, W, 3), each of images of one size."""

    def __init__(self, path: str, columns: dict = None):
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError(f'{path}: expected a regular file')    # a pipe or a device may never end
        columns = dict(X='image') | (columns or {})
        super().__init__([path], 'parquet', columns, ('X', 'y', *columns))

    def _opened(self, stack: ExitStack) -> Table:
        return _Encoded(*self._paths, self._columns, stack)

    def blocks(self, size: int):
        """Yield all samples as `Block`s of at most `size`, and of 256 MB of pixels or one image; InputError
        for what is no image (which sample)."""
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
