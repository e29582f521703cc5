"""Shared by tests of several modules."""

import torch

from tests.models.conftest import seeded

MEAN = (0.1, 0.2, 0.3)
STD = (0.5, 1.0, 2.0)


def images(count=6, height=16, width=None, channels=3) -> torch.Tensor:
    """(B, C, H, W) in [0, 1], multiples of 1 / 255."""
    return (
        torch.randint(0, 256, (count, channels, height, width or height), generator=seeded()) / 255
    )


def bytes_of(x) -> torch.Tensor:
    """uint8 (B, H, W, C)."""
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1)


def moved(image, padding, mirrored=True) -> torch.Tensor:
    """Every shift of an image (C, H, W), padded with black, and their mirror images."""
    size = image.shape[-1]
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    crops = [
        padded[:, r : r + size, c : c + size]
        for r in range(2 * padding + 1)
        for c in range(2 * padding + 1)
    ]
    return torch.stack([*crops, *(crop.flip(-1) for crop in crops if mirrored)])


def match(candidates, image) -> int:
    """Return which of the candidates it is: one and no other."""
    found = ((candidates - image).abs().amax(dim=(1, 2, 3)) < 1e-6).nonzero().flatten().tolist()
    assert len(found) == 1
    return found[0]
