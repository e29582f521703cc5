"""The inverse of a normalisation, to look at network inputs."""

import torch


class DeNormalize:
    """x * std + mean per channel, of an image (C, H, W) or a batch (B, C, H, W); a new tensor."""

    def __init__(self, mean, std):
        self.mean = torch.as_tensor(mean).float()  # (C,), as X-DER of Mammoth takes it
        self.std = torch.as_tensor(std).float()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.movedim(-3, -1) * self.std.to(images) + self.mean.to(images)
        return pixels.movedim(-1, -3).contiguous()
