"""Sequential CIFAR-100: 50,000 training and 10,000 test images, 100 classes, 32x32, 10 tasks."""

from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset


class SequentialCIFAR100(ScheduledDataset):
    """CIFAR-100 (Krizhevsky 2009).

    MEAN and STD, for runs from scratch, are those of the training images."""

    NAME = 'seq-cifar100'
    N_CLASSES = 100
    SIZE = (32, 32)
    DEFAULT_SPLITS = 10
    MEAN = (0.5071, 0.4867, 0.4408)
    STD = (0.2675, 0.2565, 0.2761)

    @classmethod
    def read(cls, args):
        return readers.cifar(args.base_path, 'CIFAR100')
