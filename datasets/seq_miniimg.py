"""Sequential miniImageNet: 20 classes of 500 training and 100 test images, 84x84, ten tasks."""

from backbone import weights
from backbone.checkpoints import MINI_IMAGENET
from datasets.utils import readers
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.ground.errors import InputError


class SequentialMiniImageNet(ScheduledDataset):
    """The meta-test classes of miniImageNet (Vinyals et al. 2016).

    MEAN and STD are those of Tian et al. 2020."""

    NAME = 'seq-miniimg'
    N_CLASSES = 20
    SIZE = (84, 84)
    DEFAULT_SPLITS = 10
    PADDING = 8
    MEAN, STD = MINI_IMAGENET

    @staticmethod
    def check_args(args):
        if args.weights in (None, 'none'):
            return
        if weights.load(args.weights, tensors=False).info.get('saw') == 'ImageNet':
            raise InputError(
                f'--weights {args.weights}: they were trained on all classes of ImageNet, so on '
                'the 20 test classes of seq-miniimg, too; use weights that have not seen them '
                '(compact, wide), or another data set'
            )

    @classmethod
    def read(cls, args):
        return readers.mini_imagenet(args.base_path)
