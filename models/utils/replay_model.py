"""Shared by methods with a replay buffer."""
import torch

from core.arguments import add_rehearsal_args
from models.utils.continual_model import ContinualModel
from scroll.randomness import stream_seed
from utils.augmentations import apply_transform
from utils.buffer import Buffer


class ReplayModel(ContinualModel):
    """A method with a buffer of un-augmented uint8 images.

    Class attributes:
        SELECTION: how the buffer chooses what it keeps (`utils.sample_selection`).

    Attributes:
        buffer: `utils.buffer.Buffer`, with a random stream of its own."""
    RAW_NOT_AUG = True
    SELECTION = 'reservoir'

    @staticmethod
    def get_parser(parser):
        add_rehearsal_args(parser)
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.buffer = Buffer(args.buffer_size, self.device, self.SELECTION, raw=True,
                             seed=stream_seed(args.seed, 'buffer'))

    @property
    def task_free(self) -> bool:
        """Whether replay ignores tasks: `--task_free 1`, or a stream without tasks."""
        return getattr(self.args, 'task_free', False) or getattr(self, 'SETTING', None) == 'general-continual'

    def replay(self, size=None, **options) -> tuple:
        """(inputs, labels, ...) of `size` (`--minibatch_size`) random samples of the buffer, augmented."""
        return self.buffer.get_data(size or self.args.minibatch_size, transform=self.transform,
                                    device=self.device, **options)

    def store(self, images, labels) -> None:
        """Offer the buffer un-augmented images (B, H, W, C) and labels (B,), as of the current task."""
        tasks = torch.full_like(labels, self.current_task)
        self.buffer.add_data(examples=images, labels=labels, task_labels=tasks)

    def augment(self, images):
        """Network input of stored images, freshly augmented."""
        return apply_transform(images, self.transform)

    def plain(self, images):
        """Network input of stored images, un-augmented."""
        return apply_transform(images, getattr(self, 'normalization_transform', None))
