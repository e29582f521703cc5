"""Transforms of whole batches: the same code for the stream and for what a buffer replays."""
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
