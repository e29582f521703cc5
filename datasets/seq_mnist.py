"""Sequential MNIST: 60,000 training and 10,000 test images of digits, 28x28, grey, 5 tasks by default."""
from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset


class SequentialMNIST(ScheduledDataset):
    """MNIST (LeCun et al. 1998), in [0, 1] and without augmentation, for a perceptron from scratch."""
    NAME = 'seq-mnist'
    N_CLASSES = 10
    SIZE = (28, 28)
    DEFAULT_SPLITS = 5
    DEFAULT_WEIGHTS = 'none'
    EPOCHS, BATCH_SIZE, BACKBONE = 1, 64, 'mnistmlp'
    PADDING, FLIP = 0, False
    ADAPT_PADDING = 0.0
    MEAN, STD = (0.0,), (1.0,)              # one channel

    @classmethod
    def read(cls, args):
        return readers.mnist(args.base_path, cls.N_CLASSES)
