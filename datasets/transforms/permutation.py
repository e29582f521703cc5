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
    """A permutation of its own for each instance, drawn from numpy's global stream when it is made: worker
    processes then agree. `size` is Mammoth's, and not needed."""

    def __init__(self, size=None):
        super().__init__(np.random.randint(2 ** 31))
