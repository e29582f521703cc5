"""`uint8` images: what they are, what a network expects of them, and what training may change.

This file needs no torch until an image is touched, so that settings can be read, compared and saved without
it.
"""
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scroll.arguments import number, on_off, shown, whole
from scroll.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Preprocessing:
    """What a network expects of its input; belongs to the weights and is part of every feature-cache key.

    Attributes:
        input_size: height and width in pixels.
        mean, std: per channel, of values in [0, 1]; one number each, if the network takes grey images as they
            are.
    """
    input_size: int
    mean: tuple = (0.5, 0.5, 0.5)
    std: tuple = (0.5, 0.5, 0.5)

    def __post_init__(self):
        whole('preprocessing input_size', self.input_size, 1, 1 << 16)
        for name in ('mean', 'std'):
            values = getattr(self, name)
            listed = isinstance(values, (tuple, list))
            if not listed or len(values) not in (1, 3) or len(values) != len(self.mean):
                raise InputError(f'preprocessing {name} {shown(values)}: expected a number a channel, three '
                                 '(grey: one) of each')
            for value in values:
                number(f'preprocessing {name}', value, positive=name == 'std')

    def to_unit_range(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """uint8 (B, H, W, C), or grey (B, H, W), -> float32 (B, 3, input_size, input_size) in [0, 1]; grey is
        repeated for each channel that there is a mean of."""
        from scroll.embedding.transforms import resize
        images = images if images.dim() == 4 else images.unsqueeze(-1)
        images = resize(images.permute(0, 3, 1, 2).double(), self.input_size)        # exact
        images = (images / 255).clamp_(0, 1).float()
        return images.expand(-1, len(self.mean), -1, -1) if images.shape[1] == 1 else images

    def normalise(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """float (B, 3, H, W) in [0, 1] -> zero-centred, in a new tensor."""
        mean, std = self._moments(images)
        return (images - mean).div_(std)

    def restore(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """The inverse of `normalise`, to its rounding."""
        mean, std = self._moments(images, images.dtype)
        return images * std + mean

    def _moments(self, images, dtype=None):
        """`mean` and `std` beside (B, C, H, W); of torch's default type unless one is given."""
        import torch
        return (torch.tensor(values, dtype=dtype, device=images.device).view(1, -1, 1, 1)
                for values in (self.mean, self.std))

    def __call__(self, images: 'torch.Tensor') -> 'torch.Tensor':
        """uint8 (B, H, W, C) -> float32 (B, 3, input_size, input_size), normalised."""
        return self.normalise(self.to_unit_range(images))


@dataclass(frozen=True)
class Augmentation:
    """Random crop, flip and colour jitter, drawn per image.

    Attributes:
        padding: largest shift of the crop, as a share of the image size (0.0715 is 6 of 84 pixels, 4 of 56).
        flip: mirror half of the images.
        jitter: strength of brightness, contrast and saturation changes.
    """
    padding: float = 6 / 84
    flip: bool = True
    jitter: float = 0.0

    def __post_init__(self):
        number('augmentation padding', self.padding)
        number('augmentation jitter', self.jitter)
        on_off('augmentation flip', self.flip)

    def __call__(self, images: 'torch.Tensor', preprocessing: Preprocessing,
                 generator: 'torch.Generator') -> 'torch.Tensor':
        """uint8 (B, H, W, C) -> augmented input float32 (B, 3, S, S), padded with zeros once normalised."""
        from scroll.embedding.transforms import colour_jitter, random_crop, random_flip
        images = colour_jitter(preprocessing.to_unit_range(images), self.jitter, generator)
        images = preprocessing.normalise(images)
        images = random_crop(images, round(self.padding * preprocessing.input_size), generator)
        return random_flip(images, generator) if self.flip else images


def check_images(images, name: str = 'X') -> np.ndarray:
    """uint8 images (N, H, W, C) or (N, H, W), an array or a CPU tensor, as an array, C-contiguous.

    Raises:
        InputError: they are something else, or H, W or C is 0, or C neither 1 nor 3. `name` is what it calls
            them.
    """
    try:
        images = np.asarray(images, order='C')
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f'{name} is not an array of images: {error}') from error
    grey_or_colour = images.ndim == 3 or images.ndim == 4 and images.shape[3] in (1, 3)
    if images.dtype != np.uint8 or not grey_or_colour or 0 in images.shape[1:]:
        raise InputError(f'{name} has dtype {images.dtype} and shape {images.shape}: '
                         'images must be uint8 (N, H, W, 3), (N, H, W, 1) or (N, H, W)')
    return images
