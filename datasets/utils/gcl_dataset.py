"""Streams without tasks, as files written for Mammoth have them."""
from datasets.utils.continual_dataset import ContinualDataset


class GCLDataset(ContinualDataset):
    """One pass over a stream whose classes and domains change without notice.

    The train loader is any iterable of batches (input, label, un-augmented image), of any length.
    """
    SETTING = 'general-continual'
    N_TASKS = EPOCHS = 1
