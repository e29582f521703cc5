"""Streams without tasks, written for Mammoth: the base of its MNIST-360."""
from datasets.utils.continual_dataset import ContinualDataset


class GCLDataset(ContinualDataset):
    """General continual learning: one pass over a stream whose classes and domains change without notice.

    The train loader is any iterable of batches (input, label, un-augmented image), of a length that need not
    be known.
    """
    SETTING = 'general-continual'
    N_TASKS = 1

    @staticmethod
    def get_epochs() -> int:
        return 1
