"""Permuted MNIST: 20 tasks with all ten digits, the pixels of each task in an order of its own."""
from datasets.seq_mnist import SequentialMNIST
from datasets.transforms.permutation import FixedPermutation
from datasets.utils.own_stream import DomainDataset


class PermutedMNIST(DomainDataset, SequentialMNIST):
    """Goodfellow et al. 2013; Kirkpatrick et al. 2017. `--seed` draws the orders, the first task's too."""
    NAME = 'perm-mnist'
    N_TASKS, N_CLASSES_PER_TASK = 20, 10
    CHANGE = FixedPermutation
