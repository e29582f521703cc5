"""Transforms of whole batches: the same code for the stream and for what a buffer replays.

What Mammoth's module of this name has besides comes from the user's checkout (`core.mammoth`). No
`__all__`: files written for Mammoth take `torch` and `F` from `from utils.augmentations import *`.
"""

import numpy as np
import torch
import torch.nn.functional as F

from scroll.embedding.images import Preprocessing
from scroll.embedding.transforms import random_crop, random_flip


def normalize(x: torch.Tensor, mean, std) -> torch.Tensor:
    """(x - mean) / std per channel, of a batch (B, C, H, W) or an image (C, H, W)."""
    mean, std = (
        torch.as_tensor(v, dtype=x.dtype, device=x.device).view(-1, 1, 1) for v in (mean, std)
    )
    return (x - mean) / std


class BatchTransform:
    """Un-augmented images -> network input: random crop (by up to `padding` pixels, filled with
    black) and flip of each image at its own size, then resizing and normalisation. seed: of the
    transform's own random stream."""

    batched = True  # `apply_transform` hands it whole batches
    contiguous = False  # the layout of what it gives is that of the images

    def __init__(
        self, preprocessing: Preprocessing, padding: int = 0, flip: bool = False, seed: int = 0
    ):
        self.preprocessing = preprocessing
        self.mean = preprocessing.mean
        self.std = preprocessing.std
        self.padding = padding
        self.flip = flip
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or float in [0, 1] (B, C, H, W) or (C, H, W) -> network input."""
        images = torch.as_tensor(images)  # of forks: arrays
        if images.dim() == 3:
            return self(images[None])[0]
        of_bytes = images.dtype == torch.uint8
        batch = images.permute(0, 3, 1, 2) if of_bytes else images
        batch = random_crop(batch, self.padding, self.generator)
        if self.flip:
            batch = random_flip(batch, self.generator)
        batch = batch.float().div_(255) if of_bytes else batch
        batch = self.preprocessing.resized(batch).clamp(0, 1)
        if batch.shape[1] != 3:
            batch = batch.expand(-1, len(self.mean), -1, -1)
        batch = self.preprocessing.normalise(batch)
        return batch.contiguous() if self.contiguous else batch


class BatchedCompose:
    """A `Compose` of torchvision for batches: crops, flips and normalisation of all images at once,
    other steps image by image. Draws from torch's global random stream, as torchvision does.

    steps: transforms of torchvision; those from and to PIL images have nothing to do here.
    transforms: the same, as a `Compose` has them."""

    batched = True

    def __init__(self, steps: list):
        self.transforms = steps

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or float in [0, 1] (B, C, H, W) or (C, H, W) -> network input."""
        if images.dtype == torch.uint8:
            images = images.movedim(-1, -3).float().div_(255)
        batch = images if images.dim() == 4 else images[None]
        for step in self.transforms:
            batch = self._apply(step, batch).contiguous()
        return batch if images.dim() == 4 else batch[0]

    @staticmethod
    def _apply(step, batch: torch.Tensor) -> torch.Tensor:
        kind = type(step).__name__
        if kind in ('ToTensor', 'ToPILImage'):
            return batch
        if kind == 'Normalize':
            return normalize(batch, step.mean, step.std)
        if kind == 'RandomHorizontalFlip' and step.p == 0.5:
            return random_flip(batch)
        if (
            kind == 'RandomCrop'
            and isinstance(step.padding, int)
            and tuple(step.size) == batch.shape[2:]
            and (step.fill, step.padding_mode) == (0, 'constant')
        ):
            return random_crop(batch, step.padding)
        return torch.stack([step(image) for image in batch]) if len(batch) else batch


def for_batches(transform):
    """A transform as `apply_transform` wants it for whole batches: a `Compose` of torchvision's own
    transforms becomes a `BatchedCompose`, all else stays."""
    steps = _flat(transform)
    own = all(type(step).__module__.startswith('torchvision.') for step in steps)
    return BatchedCompose(steps) if own and steps != [transform] else transform


def _flat(transform) -> list:
    """The parts of a `Compose`, and of those among its parts; another transform alone."""
    if type(transform).__name__ != 'Compose':
        return [transform]
    return [step for part in transform.transforms for step in _flat(part)]


def apply_transform(images: torch.Tensor, transform, autosqueeze: bool = False) -> torch.Tensor:
    """Images (B, ...) transformed: at once by a transform with a true attribute `batched`, or by
    kornia's, else one by one on the CPU, as torchvision's expect it. autosqueeze: of one image,
    which may also be given alone, return it alone."""
    if autosqueeze and images.dim() == 3:
        images = images[None]
    if getattr(transform, 'batched', False) or any(
        kind.__module__.startswith('kornia.') for kind in type(transform).__mro__
    ):
        images = transform(images)
    elif transform is not None:
        # no images have a shape, too
        some = images if len(images) else images.new_zeros(1, *images.shape[1:])
        images = torch.stack([transform(image) for image in some.cpu()]).to(images.device)[
            : len(images)
        ]
    return images[0] if autosqueeze and len(images) == 1 else images


def cutmix_data(
    x: torch.Tensor,
    y: torch.Tensor,
    alpha: float = 1.0,
    cutmix_prob: float = 0.5,
    force: bool = False,
    generator: torch.Generator | None = None,
) -> tuple:
    """CutMix (Yun et al. 2019): the same box, a share 1 - Beta(alpha, alpha) of the image, of each
    image (B, C, H, W) is replaced by that of another one, with probability `cutmix_prob`, or always
    with `force`.

    generator: on the CPU; default: seeded from numpy's global one, as Mammoth draws. Returns
    (mixed, y_a, y_b, share): the loss is share * L(y_a) + (1 - share) * L(y_b); share is the area
    left."""
    seed = (
        np.random.randint(2**31)
        if generator is None
        else int(torch.randint(2**31, (1,), generator=generator))
    )
    random = np.random.default_rng(seed)
    if alpha <= 0 or not (force or random.random() < cutmix_prob):
        return x, y, y, 1.0
    size = np.array(x.shape[-2:])
    half = (size * np.sqrt(1 - random.beta(alpha, alpha))).astype(int) // 2
    centre = np.array([random.integers(length) for length in size])
    top, left = np.maximum(centre - half, 0)
    bottom, right = np.minimum(centre + half, size)
    order = torch.from_numpy(random.permutation(len(x))).to(x.device)
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    return mixed, y, y[order], float(1 - (bottom - top) * (right - left) / size.prod())
