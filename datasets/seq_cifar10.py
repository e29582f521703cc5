"""Sequential CIFAR-10: 50,000 training and 10,000 test images, 10 classes, 32x32, 5 tasks."""

from backbone.checkpoints import CIFAR10
from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset


class SequentialCIFAR10(ScheduledDataset):
    """CIFAR-10 (Krizhevsky 2009).

    MEAN and STD, for runs from scratch, are those of the training images."""

    NAME = 'seq-cifar10'
    N_CLASSES = 10
    SIZE = (32, 32)
    DEFAULT_SPLITS = 5
    MEAN, STD = CIFAR10

    @classmethod
    def read(cls, args):
        return readers.cifar(args.base_path, 'CIFAR10')
