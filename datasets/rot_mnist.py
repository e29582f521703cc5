"""Rotated MNIST: 20 tasks with all ten digits, those of a task turned by one angle."""
from datasets.seq_mnist import SequentialMNIST
from datasets.transforms.rotation import FixedRotation
from datasets.utils.own_stream import DomainDataset


class RotatedMNIST(DomainDataset, SequentialMNIST):
    """Lopez-Paz and Ranzato 2017. `--seed` draws an angle in [0, 180) degrees for each task."""
    NAME = 'rot-mnist'
    N_TASKS, N_CLASSES_PER_TASK = 20, 10
    CHANGE = FixedRotation
