"""Turned images: the tasks of rotated MNIST (Lopez-Paz and Ranzato 2017)."""
import numpy as np
from torchvision.transforms import functional


class FixedRotation:
    """Turns images by one angle in degrees, drawn from `seed` uniformly between the bounds."""

    def __init__(self, seed: int, deg_min: float = 0, deg_max: float = 180):
        self.degrees = float(np.random.RandomState(seed).uniform(deg_min, deg_max))

    def __call__(self, image):
        return functional.rotate(image, self.degrees)


class Rotation(FixedRotation):
    """As `FixedRotation`; each instance has its own angle, from numpy's global stream."""

    def __init__(self, deg_min: float = 0, deg_max: float = 180):
        super().__init__(np.random.randint(2 ** 31), deg_min, deg_max)


class IncrementalRotation:
    """Turns each next image a little further.

    Args:
        init_deg: angle of the first image. increase_per_iteration: degrees from one image to the next.
    """

    def __init__(self, init_deg: float = 0, increase_per_iteration: float = 0.006):
        self.degrees, self.increase_per_iteration = init_deg, increase_per_iteration

    def __call__(self, image):
        turned = functional.rotate(image, self.degrees)
        self.degrees = (self.degrees + self.increase_per_iteration) % 360
        return turned
