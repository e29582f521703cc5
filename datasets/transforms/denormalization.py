"""The inverse of a normalisation, to look at network inputs."""

import torch


class DeNormalize:
    """x * std + mean per channel, of an image (C, H, W) or a batch (B, C, H, W); a new tensor."""

    def __init__(self, mean, std):
        self.mean = torch.as_tensor(mean).float().view(-1, 1, 1)
        self.std = torch.as_tensor(std).float().view(-1, 1, 1)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images * self.std.to(images) + self.mean.to(images)
