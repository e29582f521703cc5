"""Transforms of whole batches: the same code for the stream and for what a buffer replays."""
import numpy as np
import torch

from scroll.images import Preprocessing, random_crop, random_flip, resize


class PlainTransform:
    """Resizing and normalisation, nothing random: un-augmented images -> network input.

    Args:
        preprocessing: size and normalisation that the network expects.
    """
    batched = True                      # `apply_transform` hands it whole batches

    def __init__(self, preprocessing: Preprocessing):
        self.preprocessing, self.mean, self.std = preprocessing, preprocessing.mean, preprocessing.std

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C), or float (B, C, H, W) in [0, 1] or one such image (C, H, W) -> network input."""
        batch = images if images.dim() == 4 else images[None]
        batch = self.prepare(batch.permute(0, 3, 1, 2) if batch.dtype == torch.uint8 else batch)
        batch = batch.float().div_(255) if batch.dtype == torch.uint8 else batch
        batch = resize(batch, self.preprocessing.input_size).clamp(0, 1)
        batch = self.preprocessing.normalise(batch if batch.shape[1] == 3 else batch.expand(-1, 3, -1, -1))
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


def apply_transform(images: torch.Tensor, transform) -> torch.Tensor:
    """A transform of a batch: at once if it is one of ours, else image by image on the CPU, as torchvision's expect it."""
    if transform is None:
        return images
    if getattr(transform, 'batched', False):
        return transform(images)
    return torch.stack([transform(image) for image in images.cpu()]).to(images.device)


def cutmix_data(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0, cutmix_prob: float = 0.5, force: bool = False,
                generator: torch.Generator = None) -> tuple:
    """CutMix (Yun et al. 2019): a box of each image is replaced by that of another one of the batch.

    The box has the same place and size, a share 1 - Beta(alpha, alpha) of the image, in the whole batch.

    Args:
        x: (B, C, H, W). y: (B,). cutmix_prob: how often it happens; always with `force`.
        generator: torch generator on the CPU; default: seeded from numpy's global one, as Mammoth draws.

    Returns:
        (mixed, y_a, y_b, share): the loss is share * L(y_a) + (1 - share) * L(y_b); share is the area that was left, 1 if nothing
        was mixed.
    """
    seed = np.random.randint(2 ** 31) if generator is None else int(torch.randint(2 ** 31, (1,), generator=generator))
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
