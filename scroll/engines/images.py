"""Images as people store them by the million: Parquet files of encoded pictures, as bytes, and labels.

`image` is a column of bytes (JPEG, PNG, whatever Pillow reads) or of structs with a field `bytes`, as the
`datasets` library writes them; `y`, `id` and `split` are as in files of features. Other names: `X=picture,
y=label`. Pictures become RGB of their own size; the embedder scales them. A digest is of pixels: PNG gives
the same everywhere, of JPEG another version of its decoder may give others in the last bit.
"""
import io
from contextlib import ExitStack

import numpy as np

from scroll.errors import InputError
from scroll.io.features import Block, FeatureFile
from scroll.io.parquet import Table
from scroll.labels import by_label


class _Bytes(Table):
    """A Parquet file whose X is a column of bytes: (n,) objects."""

    def _width(self, kinds: list) -> int:
        from pyarrow import types
        kind = kinds[0]
        if types.is_struct(kind) and kind.get_field_index('bytes') >= 0:
            kind = kind.field('bytes').type
        if len(kinds) > 1 or not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise InputError(f'images are {kind}: expected a column of bytes, or of structs with bytes')
        return 1

    def _matrix(self, parts: list) -> np.ndarray:
        from pyarrow import compute, types
        values = parts[0]
        return self._column('image', compute.struct_field(values, 'bytes') if types.is_struct(values.type)
                            else values)


class ImageFile(FeatureFile):
    """A Parquet file of images and labels; its blocks hold uint8 (n, H, W, 3), each of images of one size."""

    def __init__(self, path: str, columns: dict = None):
        columns = dict(X='image') | (columns or {})
        super().__init__([path], 'parquet', columns, ('X', 'y', *columns))

    def _opened(self, stack: ExitStack) -> Table:
        return _Bytes(*self._paths, self._columns, stack)

    def blocks(self, size: int):
        """Yield all samples as `Block`s of at most `size`; InputError for what is no image (which sample)."""
        start = 0
        for block in super().blocks(size):
            images = [self._decoded(content, start + i) for i, content in enumerate(block.X)]
            start += len(images)
            for _, at in by_label(np.array(['{}x{}'.format(*image.shape) for image in images])):
                yield Block(np.stack([images[i] for i in at]), *block.part(at)[1:])

    def _decoded(self, content: bytes, row: int) -> np.ndarray:
        """uint8 (H, W, 3)."""
        try:
            from PIL import Image
        except ModuleNotFoundError:
            raise InputError('images need Pillow, which is not installed: pip install pillow') from None
        try:
            return np.asarray(Image.open(io.BytesIO(content)).convert('RGB'))
        except Exception as error:      # damaged images raise almost anything
            raise InputError(f'{self.path}: image of sample {row} cannot be read '
                             f'({" ".join(str(error).split())[:200]})') from error
