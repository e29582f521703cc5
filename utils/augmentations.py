"""Training transforms of whole batches: the same for the stream and for what a buffer replays."""
import torch

from scroll.images import Preprocessing, random_crop, random_flip, resize


class BatchTransform:
    """Random crop and flip of each image of a batch at its own size, then resizing and normalisation.

    Args:
        preprocessing: size and normalisation that the network expects.
        padding: pixels by which a crop may shift, filled with black. flip: mirror half of the images.
        seed: of the transform's own random stream.
    """

    def __init__(self, preprocessing: Preprocessing, padding: int, flip: bool, seed: int):
        self.preprocessing, self.padding, self.flip = preprocessing, padding, flip
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """float (B, C, H, W), or one image (C, H, W), in [0, 1] -> network input, same number of dimensions."""
        batch = images if images.dim() == 4 else images[None]
        batch = random_crop(batch, self.padding, self.generator)
        batch = random_flip(batch, self.generator) if self.flip else batch
        batch = resize(batch, self.preprocessing.input_size).clamp(0, 1)
        batch = self.preprocessing.normalise(batch if batch.shape[1] == 3 else batch.expand(-1, 3, -1, -1))
        return batch if images.dim() == 4 else batch[0]
