"""`uint8` images: what they are, what a network expects of them, and what training may change.

Imports no torch until an image is touched: settings can be read, compared and saved without it.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from scroll.ground.arguments import number, on_off, one_of, shown, whole
from scroll.ground.errors import InputError
from scroll.ground.tables import check_dense

if TYPE_CHECKING:
    import torch


INTERPOLATIONS = ('lanczos', 'bicubic', 'bilinear')


@dataclass(frozen=True, repr=False)
class Preprocessing:
    """The input that a network expects; belongs to the weights and is part of every feature-cache
    key.

    Attributes:
        input_size: height and width in pixels.
        mean, std: per channel, of values in [0, 1]; one number each, if the network takes grey
            images.
        interpolation: how images are resampled, one of `INTERPOLATIONS`.
        crop: share of the resampled image's side that is kept, the middle; 1: all of it.
        keep_ratio: resample the shorter side to input_size / crop, and the longer in proportion,
            not also to that."""

    input_size: int
    mean: tuple = (0.5, 0.5, 0.5)
    std: tuple = (0.5, 0.5, 0.5)
    interpolation: str = 'lanczos'
    crop: float = 1.0
    keep_ratio: bool = False

    def __repr__(self):
        """The text in digests: fields that were added later appear where they differ from their
        default.
        """
        parts = [
            f'{field.name}={getattr(self, field.name)!r}'
            for i, field in enumerate(fields(self))
            if i < 3 or getattr(self, field.name) != field.default
        ]
        return f'Preprocessing({", ".join(parts)})'

    def __post_init__(self):
        whole('preprocessing input_size', self.input_size, 1, 1 << 16)
        one_of('preprocessing interpolation', self.interpolation, INTERPOLATIONS)
        on_off('preprocessing keep_ratio', self.keep_ratio)
        number('preprocessing crop', self.crop)
        if not 0.01 <= self.crop <= 1:
            raise InputError(f'preprocessing crop {self.crop}: expected a share of 0.01 to 1')
        for name in ('mean', 'std'):
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)) or not len(values) == len(self.mean) in (1, 3):
                raise InputError(
                    f'preprocessing {name} {shown(values)}: expected a number a channel, three '
                    '(grey: one) of each'
                )
            for value in values:
                number(f'preprocessing {name}', value, positive=name == 'std')
            vars(self)[name] = tuple(v if isinstance(v, int) else float(v) for v in values)
        for name, kind in {'input_size': int, 'crop': float, 'keep_ratio': bool}.items():
            vars(self)[name] = kind(getattr(self, name))

    def to_unit_range(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """uint8 (B, H, W, C), or grey (B, H, W), -> float32 (B, 3, input_size, input_size) in [0,
        1].
        """
        images = self.in_double(images)
        # no number: CUDA would invert it
        return (images / images.new_tensor(255)).clamp_(0, 1).float()

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) in pixels of such images once they are resampled, before the middle is
        cut out.
        """
        side = int(self.input_size / self.crop + 1e-6)  # `crop` may be a rounded share
        if not self.keep_ratio:
            return side, side
        shorter = min(height, width)
        return side * height // shorter, side * width // shorter

    def in_double(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """uint8 images -> float64 (B, 3, input_size, input_size), exact; ringing may leave 0 to
        255.
        """
        images = images if images.dim() == 4 else images.unsqueeze(-1)
        if images.shape[3] > len(self.mean):
            raise InputError('these are colour images, and the network takes grey ones')
        images = self.resized(images.permute(0, 3, 1, 2).contiguous().double())
        return images.expand(-1, len(self.mean), -1, -1) if images.shape[1] == 1 else images

    def resized(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """float (B, C, H, W) -> (B, C, input_size, input_size); ringing may leave the range of the
        input.
        """
        from scroll.embedding.transforms import resize

        return resize(images, self.input_size, self.interpolation, self.scaled(*images.shape[-2:]))

    def normalise(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """float (B, 3, H, W) in [0, 1] -> zero-centred, in a new tensor."""
        mean, std = self.moments(images)
        return (images - mean).div_(std)

    def moments(self, images, dtype=None):
        """`mean` and `std` as (2, 1, C, 1, 1), of the images' type unless one is given."""
        import torch

        options = {'dtype': dtype or images.dtype, 'device': images.device}
        return torch.tensor([self.mean, self.std], **options).view(2, 1, -1, 1, 1)

    def __call__(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """uint8 (B, H, W, C) -> float32 (B, 3, input_size, input_size), normalised."""
        return self.normalise(self.to_unit_range(images))


@dataclass(frozen=True)
class Augmentation:
    """Random crop, flip and colour jitter, drawn per image.

    Attributes:
        padding: largest shift of the crop, as a share of the image size.
        flip: mirror half of the images.
        jitter: strength of brightness, contrast and saturation changes."""

    padding: float = 6 / 84
    flip: bool = True
    jitter: float = 0.0

    def __post_init__(self):
        number('augmentation padding', self.padding)
        number('augmentation jitter', self.jitter)
        on_off('augmentation flip', self.flip)

    def __call__(
        self, images: 'torch.Tensor', preprocessing: Preprocessing, generator: 'torch.Generator'
    ) -> 'torch.Tensor':
        """uint8 (B, H, W, C) -> augmented input float32 (B, 3, S, S), padded with zeros once
        normalised.
        """
        from scroll.embedding.transforms import colour_jitter, random_crop, random_flip

        images = colour_jitter(preprocessing.to_unit_range(images), self.jitter, generator)
        images = preprocessing.normalise(images)
        images = random_crop(images, round(self.padding * preprocessing.input_size), generator)
        return random_flip(images, generator) if self.flip else images


def check_images(images, name: str = 'X') -> np.ndarray:
    """uint8 images (N, H, W, C) or (N, H, W), an array or a tensor of any device, as an array,
    C-contiguous. InputError: they are something else, or H or W is 0, or C neither 1 nor 3; without
    C, W is not 1 or 3."""
    check_dense(images)
    try:
        images = np.asarray(images.cpu() if hasattr(images, 'cpu') else images, order='C')
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f'{name} is not an array of images: {error}') from error
    # of one image without N, H would be taken for the number of grey ones
    axes = 4 if images.shape[-1:] in ((1,), (3,)) else 3
    if images.dtype != np.uint8 or images.ndim != axes or 0 in images.shape[1:]:
        raise InputError(
            f'{name} has dtype {images.dtype} and shape {images.shape}: '
            'images must be uint8 (N, H, W, 3), (N, H, W, 1) or (N, H, W); one is X[None]'
        )
    return images
