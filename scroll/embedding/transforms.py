"""Changes of image tensors, vectorised over a batch: resampling, and the random ones of training.

Resampling is two small matrix products (rows, columns) with Lanczos-3 weights, widened when shrinking:
Pillow's `LANCZOS` without its two roundings to 8 bits. The weights are multiples of 2^-15, so that on 8-bit
images in float64 every product and sum is exact: the result has the same bits on any device, for any batch.
"""
from functools import lru_cache

import numpy as np
import torch

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


def random_crop(images: torch.Tensor, padding: int, generator: torch.Generator) -> torch.Tensor:
    """Shift each image (B, C, H, W) by up to `padding` pixels each way, each its own way; fill with 0."""
    if padding == 0:
        return images
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4).permute(0, 2, 3, 1).contiguous()
    shifts = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator).to(images.device)
    row, column = shifts[..., 0]
    windows = padded.unfold(1, height, 1).unfold(2, width, 1)           # view (B, rows, columns, C, H, W)
    windows = windows.permute(0, 1, 2, 4, 5, 3)
    return windows[torch.arange(count, device=images.device), row, column].permute(0, 3, 1, 2)


def random_flip(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirror each image (B, C, H, W) left to right with probability one half."""
    flip = (torch.rand(len(images), generator=generator) < 0.5).to(images.device)
    which, images = flip.nonzero()[:, 0], images.clone()
    images[which] = images[which].flip(-1)
    return images


def colour_jitter(images: torch.Tensor, strength: float, generator: torch.Generator) -> torch.Tensor:
    """Brightness, contrast, saturation of each image (B, 3, H, W) in [0, 1], by factors in 1 +- strength."""
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
