"""The inverse of a normalisation, to look at network inputs."""

import torch


class DeNormalize:
    """x * std + mean per channel, of an image (C, H, W) or a batch (B, C, H, W); gives a new
    tensor.
    """

    def __init__(self, mean, std):
        self.mean = torch.as_tensor(mean).float()
        self.std = torch.as_tensor(std).float()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        mean, std = (
            x.to(images.device, images.dtype).view(-1, 1, 1) for x in (self.mean, self.std)
        )
        return images * std + mean
