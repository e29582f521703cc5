"""Pixels in another order: the tasks of permuted MNIST (Goodfellow et al. 2013; Kirkpatrick et al. 2017)."""
import numpy as np
import torch


class FixedPermutation:
    """The same permutation of all values of an image, drawn from `seed`."""

    def __init__(self, seed: int):
        self.seed, self.permutation = seed, None

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        if self.permutation is None or len(self.permutation) != image.numel():
            self.permutation = torch.from_numpy(np.random.RandomState(self.seed).permutation(image.numel()))
        return image.reshape(-1)[self.permutation].view(image.shape)


class Permutation(FixedPermutation):
    """As `FixedPermutation`; each instance has its own, from numpy's global stream.

    What is random is settled here and not at the first image, which another process may see.

    Args:
        size: number of values of an image, or its shape; images of another number are then refused. None:
            any.
    """

    def __init__(self, size=None):
        super().__init__(np.random.randint(2 ** 31))
        self.size = None if size is None else int(np.prod(size))

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        if self.size is not None and image.numel() != self.size:
            raise ValueError(f'Permutation({self.size}): an image has {image.numel()} values, '
                             f'{tuple(image.shape)}')
        return super().__call__(image)
