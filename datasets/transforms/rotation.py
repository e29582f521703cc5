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
    """An angle of its own for each instance, from numpy's global stream."""

    def __init__(self, deg_min: float = 0, deg_max: float = 180):
        super().__init__(np.random.randint(2 ** 31), deg_min, deg_max)


def turned(images: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """uint8 (N, H, W), each turned counter-clockwise by an angle of its own (N,).

    Pixels are the nearest ones, and black where they come from outside.
    """
    count, height, width = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))  # a black frame, for what lies outside
    y, x = np.mgrid[:height, :width].reshape(2, 1, -1) - np.array([[[height - 1]], [[width - 1]]]) / 2
    result = np.empty_like(images)
    for a in range(0, count, 1024):
        angle = np.deg2rad(degrees[a:a + 1024])[:, None]
        rows = np.rint(np.cos(angle) * y + np.sin(angle) * x + (height - 1) / 2)
        columns = np.rint(np.cos(angle) * x - np.sin(angle) * y + (width - 1) / 2)
        rows, columns = (at.clip(-1, side).astype(int) + 1 for at, side in ((rows, height), (columns, width)))
        pixels = padded[np.arange(a, a + len(rows))[:, None], rows, columns]
        result[a:a + 1024] = pixels.reshape(-1, height, width)
    return result
