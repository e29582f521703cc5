"""Changes of image tensors, vectorised over a batch: resampling, and the random ones of training.

Resampling is two small matrix products (rows, columns) with the weights of a kernel, widened when
shrinking: Pillow's `LANCZOS`, `BICUBIC` and `BILINEAR` without their two roundings to 8 bits. The
weights are multiples of 2^-15, made of operations that IEEE 754 rounds correctly and of exactly
rounded sums, so that on 8-bit images in float64 every product and sum is exact: the result has the
same bits on any machine, for any batch.
"""

from functools import lru_cache
from math import fsum

import numpy as np
import torch

_WEIGHT_GRID = 1 << 15
DRAWN = {'dtype': torch.float32, 'device': 'cpu'}  # whatever torch's defaults are


def _sinc(x: np.ndarray) -> np.ndarray:
    """sin(pi x) / (pi x) by Taylor's series: last bits of `np.sin` differ with the processor."""
    turns = np.rint(x)
    series = np.ones_like(x)
    angle = np.pi * (x - turns)  # -pi/2 to pi/2
    for k in range(21, 1, -2):
        series = 1 - series * angle * angle / (k * (k - 1))
    sign = 1 - 2 * (turns % 2)
    return np.where(x == 0, 1, sign * angle * series / np.where(x == 0, 1, np.pi * x))


def _lanczos(x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    near = np.abs(x) < 3
    out[near] = _sinc(x[near]) * _sinc(x[near] / 3)
    return out


def _bicubic(x: np.ndarray) -> np.ndarray:
    """Keys 1981, a = -1/2."""
    x = np.abs(x)
    return np.where(
        x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, ((2.5 - 0.5 * x) * x - 4) * x + 2, 0)
    )


KERNELS = {
    'lanczos': _lanczos,
    'bicubic': _bicubic,
    'bilinear': lambda x: np.maximum(1 - np.abs(x), 0),
}


def resize_matrix(
    size_in: int, size_out: int, count: int | None = None, interpolation: str = 'lanczos'
) -> np.ndarray:
    """(count, size_in) float64 weights, multiples of 2^-15, of the middle of `size_out` pixels
    (default: all; the middle is that of torchvision's `CenterCrop`). Each row sums to one."""
    count = count or size_out
    scale = size_in / size_out
    place = round((size_out - count) / 2) + np.arange(count)
    centre = (place + 0.5) * scale  # in input pixels
    distance = (np.arange(size_in) + 0.5 - centre[:, None]) / max(scale, 1.0)
    weights = KERNELS[interpolation](distance)
    sums = np.array([fsum(row[row != 0]) for row in weights])  # in any order: bits decide ties
    weights = np.rint(weights / sums[:, None] * _WEIGHT_GRID)
    weights[np.arange(count), weights.argmax(axis=1)] += _WEIGHT_GRID - weights.sum(axis=1)
    return weights / _WEIGHT_GRID


@lru_cache(maxsize=64)
def _resize_tensor(
    side: int, new: int, size: int, interpolation: str, dtype: torch.dtype, device: str
) -> torch.Tensor:
    return torch.from_numpy(resize_matrix(side, new, size, interpolation)).to(device, dtype)


def resize(
    images: torch.Tensor, size: int, interpolation: str = 'lanczos', scaled: tuple | None = None
) -> torch.Tensor:
    """Resample float images (B, C, H, W) to (B, C, size, size), the middle of images of `scaled`
    (height, width; default: `size` each); ringing may leave the range of the input."""
    sides = tuple(images.shape[-2:])
    scaled = scaled or (size, size)
    if sides == scaled == (size, size):
        return images
    rows, columns = (
        _resize_tensor(side, new, size, interpolation, images.dtype, str(images.device))
        for side, new in zip(sides, scaled)
    )  # (size, H), (size, W)
    return rows @ (images @ columns.T)


def random_crop(
    images: torch.Tensor, padding: int, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Shift each image (B, C, H, W) by up to `padding` pixels each way, each its own way; fill with
    0.
    """
    if padding == 0:
        return images
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4).permute(0, 2, 3, 1).contiguous()
    shifts = torch.randint(0, 2 * padding + 1, (2, count), generator=generator, device='cpu')
    row, column = shifts.to(images.device)
    windows = padded.unfold(1, height, 1).unfold(2, width, 1)  # view (B, rows, columns, C, H, W)
    windows = windows.permute(0, 1, 2, 4, 5, 3)
    return windows[torch.arange(count, device=images.device), row, column].permute(0, 3, 1, 2)


def random_flip(images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Mirror each image (B, C, H, W) left to right with probability one half."""
    flip = (torch.rand(len(images), generator=generator, **DRAWN) < 0.5).to(images.device)
    return torch.where(flip.view(-1, 1, 1, 1), images.flip(-1), images)


def colour_jitter(
    images: torch.Tensor, strength: float, generator: torch.Generator
) -> torch.Tensor:
    """Brightness, contrast, saturation of each image (B, 3, H, W) in [0, 1], by factors in 1 +-
    strength.
    """
    if strength == 0:
        return images
    factors = 1 + strength * (2 * torch.rand(3, len(images), generator=generator, **DRAWN) - 1)
    brightness, contrast, saturation = factors.to(images.device).view(3, -1, 1, 1, 1)
    luma = torch.tensor((0.299, 0.587, 0.114), dtype=images.dtype, device=images.device)
    luma = luma.view(1, 3, 1, 1)
    images = (images * brightness).clamp_(0, 1)
    grey = (images * luma).sum(1, keepdim=True)
    mean = grey.mean(dim=(2, 3), keepdim=True)
    images = (mean + (images - mean) * contrast).clamp_(0, 1)
    grey = (images * luma).sum(1, keepdim=True)
    return (grey + (images - grey) * saturation).clamp_(0, 1)
