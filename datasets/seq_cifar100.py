"""Sequential CIFAR-100: 50,000 training and 10,000 test images of 100 classes, 32x32, 10 tasks by default."""
from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset

SUPERCLASS = [     # the coarse label of each class
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13]


def next_in_group(groups: list) -> dict:
    """class -> the next class of its group, in a circle."""
    members = {g: [c for c, of in enumerate(groups) if of == g] for g in groups}
    return {c: members[g][(members[g].index(c) + 1) % len(members[g])] for c, g in enumerate(groups)}


class SequentialCIFAR100(ScheduledDataset):
    """CIFAR-100 (Krizhevsky 2009); MEAN and STD, for runs from scratch, are those of the training images."""
    NAME = 'seq-cifar100'
    N_CLASSES = 100
    SIZE = (32, 32)
    DEFAULT_SPLITS = 10
    CONFUSED_WITH = next_in_group(SUPERCLASS)           # Patrini et al. 2017
    MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)

    @classmethod
    def read(cls, args):
        return readers.cifar(args.base_path, 'CIFAR100')
