"""`uint8` images -> network input, and the random changes made to images in training, all vectorised over a batch.

Resampling is two small matrix products (rows, columns) with Lanczos-3 weights, widened when shrinking: Pillow's
`LANCZOS` without its two roundings to 8 bits. The weights are multiples of 2^-15, so that on 8-bit images in float64 every
product and sum is exact: the result has the same bits on any device, for any batch.
"""
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from scroll.arguments import number, on_off, shown, whole
from scroll.errors import InputError

_WEIGHT_GRID = 1 << 15


def resize_matrix(size_in: int, size_out: int) -> np.ndarray:
    """(size_out, size_in) float64 Lanczos-3 weights, multiples of 2^-15; each row sums to one."""
    scale = size_in / size_out
    centre = (np.arange(size_out) + 0.5) * scale                             # in input pixels
    distance = (np.arange(size_in) + 0.5 - centre[:, None]) / max(scale, 1.0)
    weights = np.sinc(distance) * np.sinc(distance / 3) * (np.abs(distance) < 3)
    weights = np.rint(weights / weights.sum(axis=1, keepdims=True) * _WEIGHT_GRID)
    weights[np.arange(size_out), weights.argmax(axis=1)] += _WEIGHT_GRID - weights.sum(axis=1)
    return weights / _WEIGHT_GRID


@lru_cache(maxsize=64)
def _resize_tensor(size_in: int, size_out: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.from_numpy(resize_matrix(size_in, size_out)).to(device, dtype)


def resize(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resample float images (B, C, H, W) to (B, C, size, size); ringing may leave the range of the input."""
    height, width = images.shape[-2:]
    if (height, width) == (size, size):
        return images
    rows = _resize_tensor(height, size, images.dtype, str(images.device))            # (size, H)
    columns = _resize_tensor(width, size, images.dtype, str(images.device))          # (size, W)
    return rows @ (images @ columns.T)


@dataclass(frozen=True)
class Preprocessing:
    """What a network expects of its input; belongs to the weights and is part of every feature-cache key.

    Attributes:
        input_size: height and width in pixels.
        mean, std: per channel, of values in [0, 1]; one number each, if the network takes grey images as they are.
    """
    input_size: int
    mean: tuple = (0.5, 0.5, 0.5)
    std: tuple = (0.5, 0.5, 0.5)

    def __post_init__(self):
        whole('preprocessing input_size', self.input_size, 1, 1 << 16)
        for name in ('mean', 'std'):
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)) or len(values) not in (1, 3) or len(values) != len(self.mean):
                raise InputError(f'preprocessing {name} {shown(values)}: expected a number a channel, three (grey: one) of each')
            for value in values:
                number(f'preprocessing {name}', value, positive=name == 'std')

    def to_unit_range(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or grey (B, H, W), -> float32 (B, 3, input_size, input_size) in [0, 1]; grey is repeated for
        each channel that there is a mean of.
        """
        images = images if images.dim() == 4 else images.unsqueeze(-1)
        images = resize(images.permute(0, 3, 1, 2).double(), self.input_size)        # exact
        images = (images / 255).clamp_(0, 1).float()
        return images.expand(-1, len(self.mean), -1, -1) if images.shape[1] == 1 else images

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """float (B, 3, H, W) in [0, 1] -> zero-centred, in a new tensor."""
        mean = torch.tensor(self.mean, device=images.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(1, -1, 1, 1)
        return (images - mean).div_(std)

    def restore(self, images: torch.Tensor) -> torch.Tensor:
        """The inverse of `normalise`, to its rounding."""
        mean, std = (torch.tensor(v, dtype=images.dtype, device=images.device).view(1, -1, 1, 1) for v in (self.mean, self.std))
        return images * std + mean

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C) -> float32 (B, 3, input_size, input_size), normalised."""
        return self.normalise(self.to_unit_range(images))


def check_images(images, name: str = 'X') -> torch.Tensor:
    """uint8 array or tensor (N, H, W, C) or (N, H, W) as a CPU tensor; anything else is an InputError."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'The given NumPy array is not writable')      # it is only read
        try:
            images = torch.as_tensor(np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f'{name} is not an array of images: {error}') from error
    if images.dtype != torch.uint8 or images.dim() not in (3, 4) or (images.dim() == 4 and images.shape[3] not in (1, 3)) \
            or 0 in images.shape[1:]:
        raise InputError(f'{name} has dtype {images.dtype} and shape {tuple(images.shape)}: '
                         'images must be uint8 (N, H, W, 3), (N, H, W, 1) or (N, H, W)')
    return images


def random_crop(images: torch.Tensor, padding: int, generator: torch.Generator) -> torch.Tensor:
    """Shift each image (B, C, H, W) by up to `padding` pixels each way, filling with zeros: its own shift for each."""
    if padding == 0:
        return images
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4).permute(0, 2, 3, 1).contiguous()
    row, column = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator).to(images.device)[..., 0]
    windows = padded.unfold(1, height, 1).unfold(2, width, 1).permute(0, 1, 2, 4, 5, 3)     # view (B, rows, columns, H, W, C)
    return windows[torch.arange(count, device=images.device), row, column].permute(0, 3, 1, 2)


def random_flip(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirror each image (B, C, H, W) left to right with probability one half."""
    flip = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    which, images = flip.nonzero()[:, 0], images.clone()
    images[which] = images[which].flip(-1)
    return images


def colour_jitter(images: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
    """Brightness, contrast and saturation of each image (B, 3, H, W) in [0, 1], each by a factor in 1 +- strength."""
    if strength == 0:
        return images
    factors = 1 + strength * (2 * torch.rand(3, len(images), generator=generator) - 1)
    brightness, contrast, saturation = factors.to(images.device).view(3, -1, 1, 1, 1)
    luma = torch.tensor((0.299, 0.587, 0.114), device=images.device).view(1, 3, 1, 1)
    images = (images * brightness).clamp_(0, 1)
    grey = (images * luma).sum(1, keepdim=True)
    mean = grey.mean(dim=(2, 3), keepdim=True)
    images = (mean + (images - mean) * contrast).clamp_(0, 1)
    grey = (images * luma).sum(1, keepdim=True)
    return (grey + (images - grey) * saturation).clamp_(0, 1)


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

    def __call__(self, images: torch.Tensor, preprocessing: Preprocessing, generator: torch.Generator) -> torch.Tensor:
        """uint8 (B, H, W, C) -> augmented network input (B, 3, S, S), float32; padding is zero after normalisation."""
        images = colour_jitter(preprocessing.to_unit_range(images), self.jitter, generator)
        images = preprocessing.normalise(images)
        images = random_crop(images, round(self.padding * preprocessing.input_size), generator)
        return random_flip(images, generator) if self.flip else images
