"""Sequential digits: scikit-learn's 1,797 handwritten digits, 8x8, five tasks; no download."""

from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset


class SequentialDigits(ScheduledDataset):
    """Optical recognition of digits (UCI; Alpaydin and Kaynak 1998); a fifth of a class tests."""

    NAME = 'seq-digits'
    N_CLASSES = 10
    SIZE = (8, 8)
    DEFAULT_SPLITS = EPOCHS = 5
    PADDING = 1
    FLIP = False
    # digits fill their image; a grey border costs four points on held-out training data
    ADAPT_PADDING = 0.0

    @classmethod
    def read(cls, args):
        return readers.digits()
