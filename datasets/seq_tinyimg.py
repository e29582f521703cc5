"""Sequential TinyImageNet: 100,000 training and 10,000 test images of 200 classes, 64x64, 10 tasks."""
from datasets.utils.scheduled_dataset import ScheduledDataset
from datasets.utils.tiny_imagenet import tiny_imagenet


class SequentialTinyImageNet(ScheduledDataset):
    """TinyImageNet (Le and Yang 2015); the validation images test, since test labels are not public."""
    NAME = 'seq-tinyimg'
    N_CLASSES = 200
    SIZE = (64, 64)
    DEFAULT_SPLITS = 10
    MEAN, STD = (0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821)

    @classmethod
    def read(cls, args):
        return tiny_imagenet(args.base_path)
