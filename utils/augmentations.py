"""Transforms of whole batches: the same code for the stream and for what a buffer replays.

No `__all__`: files written for Mammoth take `torch` and `F` from `from utils.augmentations import *`.
"""
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from scroll.embedding import transforms
from scroll.embedding.images import Preprocessing
from utils.image_ops import grey, per_channel, random_jitter, random_resized_crop, sides, sometimes


def random_flip(x: torch.Tensor, generator=None) -> torch.Tensor:
    """Each image (B, C, H, W) mirrored left to right with probability one half."""
    return transforms.random_flip(x, generator)


def random_crop(x: torch.Tensor, padding: int, generator=None) -> torch.Tensor:
    """Each image (B, C, H, W) shifted by up to `padding` pixels each way, filled with zeros."""
    return transforms.random_crop(x, padding, generator)


def random_grayscale(x: torch.Tensor, prob: float = 0.2, generator=None) -> torch.Tensor:
    """Each image (B, C, H, W) without its colours with probability `prob`; it keeps its channels."""
    return sometimes(lambda images: grey(images).expand_as(images), x, prob, generator)


def normalize(x: torch.Tensor, mean, std) -> torch.Tensor:
    """(x - mean) / std per channel, of a batch (B, C, H, W) or an image (C, H, W)."""
    return (x - per_channel(mean, x)) / per_channel(std, x)


class PlainTransform:
    """Resizing and normalisation, nothing random: un-augmented images -> network input.

    Args:
        preprocessing: size and normalisation that the network expects.
    """
    batched = True                      # `apply_transform` hands it whole batches

    def __init__(self, preprocessing: Preprocessing):
        self.preprocessing, self.mean, self.std = preprocessing, preprocessing.mean, preprocessing.std

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or float (B, C, H, W) in [0, 1] or one such
        image (C, H, W) -> network input."""
        batch = images if images.dim() == 4 else images[None]
        batch = self.prepare(batch.permute(0, 3, 1, 2) if batch.dtype == torch.uint8 else batch)
        batch = batch.float().div_(255) if batch.dtype == torch.uint8 else batch
        batch = self.preprocessing.resized(batch).clamp(0, 1)
        batch = self.preprocessing.normalise(batch if batch.shape[1] == 3
                                             else batch.expand(-1, len(self.mean), -1, -1))
        return batch if images.dim() == 4 else batch[0]

    def prepare(self, batch: torch.Tensor) -> torch.Tensor:
        """What happens to the images (B, C, H, W) first, at their own size."""
        return batch


class BatchTransform(PlainTransform):
    """Random crop and flip of each image at its own size, then as `PlainTransform`.

    Args:
        padding: pixels by which a crop may shift, filled with black. flip: mirror half of the images.
        seed: of the transform's own random stream.
    """

    def __init__(self, preprocessing: Preprocessing, padding: int, flip: bool, seed: int):
        super().__init__(preprocessing)
        self.padding, self.flip = padding, flip
        self.generator = torch.Generator().manual_seed(seed)

    def prepare(self, batch: torch.Tensor) -> torch.Tensor:
        batch = random_crop(batch, self.padding, self.generator)
        return random_flip(batch, self.generator) if self.flip else batch


class BatchCompose:
    """Steps one after the other, each from a float batch (B, C, H, W) to one; randomness is each image's own.

    Args:
        steps: callables.
    """
    batched = True

    def __init__(self, steps):
        self.steps = list(steps)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or float (B, C, H, W) in [0, 1] or one such image (C, H, W)."""
        batch = images if images.dim() == 4 else images[None]
        batch = batch.permute(0, 3, 1, 2).float().div(255) if batch.dtype == torch.uint8 else batch
        for step in self.steps:
            batch = step(batch)
        return batch if images.dim() == 4 else batch[0]


def soft_aug(mean, std) -> BatchCompose:
    """Flip, shift by up to 4 pixels, normalisation: the usual augmentation of small
    images, of a float batch in [0, 1]."""
    return BatchCompose([random_flip, partial(random_crop, padding=4),
                         partial(normalize, mean=mean, std=std)])


def strong_aug(size, mean, std) -> BatchCompose:
    """SimCLR's views (Chen et al. 2020, appendix A; no blur, as theirs on CIFAR), of
    a float batch in [0, 1]; normalised.

    Args:
        size: of the views, in pixels, or (height, width).
    """
    size = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    jitter = partial(random_jitter, brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4),
                     hue=(-0.1, 0.1))
    return BatchCompose([partial(random_resized_crop, size=size, scale=(0.2, 1.0)), random_flip,
                         partial(sometimes, jitter, prob=0.8), random_grayscale,
                         partial(normalize, mean=mean, std=std)])


class RepeatedTransform:
    """Several views of one batch: a list with the result of each transform.

    Args:
        transform_list: transforms that `apply_transform` takes; the same one may come more than once.
        autosqueeze: as in `apply_transform`.
    """
    batched = True

    def __init__(self, transform_list, autosqueeze: bool = False):
        self.transform_list, self.autosqueeze = list(transform_list), autosqueeze

    def __call__(self, images: torch.Tensor) -> list:
        return [apply_transform(images, transform, self.autosqueeze) for transform in self.transform_list]


class DoubleTransform:
    """A transform of the first of two inputs, for `DoubleCompose`; the
    second, a label map say, is left alone."""

    def __init__(self, transform):
        self.transform = transform

    def __call__(self, first, second) -> tuple:
        return self.transform(first), second


class CustomRandomCrop:
    """A random crop of an image and of the maps that belong to it, for `DoubleCompose`.

    Args:
        size: pixels of the crop, or (height, width). padding: of the image, as torchvision's RandomCrop takes
            it; black.
        resize: cut maps to the part of a pixel: they are enlarged to the image's size, cropped like it, and
            made small again. Else the window is rounded to whole pixels of the map.
        min_resize_index: of the maps, only those from this index on are enlarged; None: all.
    """

    def __init__(self, size, padding=0, resize: bool = False, min_resize_index: int = None):
        self.size = (size, size) if isinstance(size, int) else tuple(size)
        self.padding, self.resize, self.first = sides(padding), resize, min_resize_index or 0

    def __call__(self, image, maps) -> tuple:
        """An image, PIL or (C, H, W), and a list of tensors (..., h, w) -> the same,
        changed alike; maps keep their sizes."""
        from torchvision.transforms import functional
        width, height = functional.get_image_size(image)
        left, top, right, bottom = self.padding
        least, most = (-top, -left), (height + bottom - self.size[0], width + right - self.size[1])
        if most[0] < least[0] or most[1] < least[1]:
            padded = height + top + bottom, width + left + right
            raise ValueError(f'CustomRandomCrop to {self.size}: the padded image has {padded} pixels')
        corner = [int(torch.randint(a, b + 1, ())) for a, b in zip(least, most)]
        box = [value / side for value, side in zip((*corner, *self.size), (height, width) * 2)]
        return functional.crop(image, *corner, *self.size), [
            _cropped(m, box, (height, width) if self.resize and i >= self.first else m.shape[-2:])
            for i, m in enumerate(maps)]


def _cropped(m: torch.Tensor, box: list, grid: tuple) -> torch.Tensor:
    """The part of a map (..., h, w) in a box (top, left, height, width, in shares of
    its sides), at its size; zero outside.

    Args:
        grid: (height, width) that it is enlarged to before, so that the box may begin between two of its
            pixels.
    """
    from torchvision.transforms import functional
    flat = m.reshape(1, -1, *m.shape[-2:])
    if flat.shape[2:] != torch.Size(grid):
        flat = F.interpolate(flat, tuple(grid), mode='bilinear')
    flat = functional.crop(flat, *(round(share * side) for share, side in zip(box, tuple(grid) * 2)))
    if flat.shape[2:] != m.shape[-2:]:
        flat = F.interpolate(flat, m.shape[-2:], mode='bilinear', antialias=True)
    return flat.view(m.shape)


class CustomRandomHorizontalFlip:
    """An image and the maps that belong to it mirrored left to right together, with
    probability `p`; for `DoubleCompose`."""

    def __init__(self, p: float = 0.5):
        self.p = p

    def __call__(self, image, maps) -> tuple:
        """An image, PIL or (C, H, W), and a list of tensors (..., h, w)."""
        if torch.rand(1) >= self.p:
            return image, maps
        from torchvision.transforms import functional
        return functional.hflip(image), [m.flip(-1) for m in maps]


class DoubleCompose:
    """Transforms of two inputs at once, one after the other: each takes a pair and returns one."""

    def __init__(self, transforms):
        self.transforms = list(transforms)

    def __call__(self, first, second) -> tuple:
        for transform in self.transforms:
            first, second = transform(first, second)
        return first, second


def apply_transform(images: torch.Tensor, transform, autosqueeze: bool = False) -> torch.Tensor:
    """A transform of a batch: at once if it says so, else image by image on
    the CPU, as torchvision's expect it.

    Args:
        images: (B, ...). transform: those with a true attribute `batched` take whole batches; None changes
            nothing.
        autosqueeze: of a batch of one, return the image alone.
    """
    if transform is not None and getattr(transform, 'batched', False):
        images = transform(images)
    elif transform is not None:
        # an empty batch has a shape, too
        some = images if len(images) else images.new_zeros(1, *images.shape[1:])
        images = torch.stack([transform(image) for image in some.cpu()]).to(images.device)[:len(images)]
    return images[0] if autosqueeze and len(images) == 1 else images


def cutmix_data(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0, cutmix_prob: float = 0.5,
                force: bool = False, generator: torch.Generator = None) -> tuple:
    """CutMix (Yun et al. 2019): a box of each image is replaced by that of another one of the batch.

    The box has the same position and size, a share 1 - Beta(alpha, alpha) of the image, in the whole batch.

    Args:
        x: (B, C, H, W). y: (B,). cutmix_prob: how often it happens; always with `force`.
        generator: torch generator on the CPU; default: seeded from numpy's global one, as Mammoth draws.

    Returns:
        (mixed, y_a, y_b, share): the loss is share * L(y_a) + (1 - share) * L(y_b); share is the area
        that was left, 1 if nothing was mixed.
    """
    if generator is None:
        seed = np.random.randint(2 ** 31)
    else:
        seed = int(torch.randint(2 ** 31, (1,), generator=generator))
    random = np.random.default_rng(seed)
    if alpha <= 0 or not (force or random.random() < cutmix_prob):
        return x, y, y, 1.0
    height, width = x.shape[-2:]
    side = np.sqrt(1 - random.beta(alpha, alpha))
    half_h, half_w = int(height * side) // 2, int(width * side) // 2
    row, column = random.integers(height), random.integers(width)
    top, bottom = max(row - half_h, 0), min(row + half_h, height)
    left, right = max(column - half_w, 0), min(column + half_w, width)
    order = torch.from_numpy(random.permutation(len(x))).to(x.device)
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    return mixed, y, y[order], 1 - (bottom - top) * (right - left) / (height * width)
