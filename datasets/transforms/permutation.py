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

    It is settled here and not at the first image, which another process may see.
    """

    def __init__(self):
        super().__init__(np.random.randint(2 ** 31))
