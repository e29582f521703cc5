"""Shared by methods with a replay buffer."""

import torch

from core.arguments import Flag, add_rehearsal_args, binary_to_boolean_type
from models.utils.continual_model import ContinualModel
from scroll.ground.errors import InputError
from scroll.ground.randomness import stream_seed
from utils.augmentations import apply_transform
from utils.buffer import Buffer


def task_free(default: bool) -> Flag:
    """The flag `--task_free` with this default."""
    about = 'replay from the second batch on; 0: only of earlier tasks, if any'
    return Flag(binary_to_boolean_type, default, about)


class ReplayModel(ContinualModel):
    """A method with a buffer of un-augmented samples: uint8 images, or feature vectors.

    Class attributes:
        ROWS: fields of a sample that it keeps, in the order of `utils.buffer.ATTRIBUTES`.

    Attributes:
        buffer: a `utils.buffer.Buffer`, by default a reservoir, with a random stream of its own."""

    RAW_NOT_AUG = True
    ROWS = ('examples', 'labels')
    add_buffer_flags = staticmethod(add_rehearsal_args)  # also where a `get_parser` leaves them out

    @classmethod
    def get_parser(cls, parser):
        """Add the buffer's flags, and the method's own."""
        add_rehearsal_args(parser)
        return super().get_parser(parser)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.buffer = Buffer(
            args.buffer_size,
            self.device,
            getattr(args, 'sampler', 'reservoir'),
            raw=True,
            seed=stream_seed(args.seed, 'buffer'),
        )

    @property
    def task_free(self) -> bool:
        """True if replay ignores tasks: `--task_free 1`, or a stream without tasks."""
        return getattr(self.args, 'task_free', False) or self.SETTING == 'general-continual'

    def replay(self) -> tuple:
        """(inputs, labels, ...) of `--minibatch_size` random samples of the buffer, augmented."""
        return self.buffer.get_data(
            self.args.minibatch_size, transform=self.transform, device=self.device
        )

    def past_samples(self, size: int) -> tuple:
        """(images, labels), un-augmented, of `size` random samples of past tasks.

        Where replay ignores tasks, of earlier batches; fewer, or none, where there are no more. For
        methods that keep task labels."""
        if self.buffer.is_empty():
            return (), ()
        task = None if self.task_free else self.current_task
        return self.buffer.get_data(size, device=self.device, mask_task_out=task)[:2]

    def store(self, images, labels, logits=None) -> None:
        """Offer the buffer un-augmented images (B, H, W, C) of the current task."""
        tasks = torch.full_like(labels, self.current_task)
        rows = {'examples': images, 'labels': labels, 'logits': logits, 'task_labels': tasks}
        self.buffer.add_data(**{name: rows[name] for name in self.ROWS})

    def load_buffer(self, buffer) -> None:
        super().load_buffer(buffer)
        fields = self.buffer.used_attributes
        if fields and fields != list(self.ROWS):
            raise InputError(
                f"the file's buffer has {', '.join(fields)} of each sample; {self.NAME} keeps "
                f'{", ".join(self.ROWS)}: take a file of a method that keeps the same'
            )

    def augment(self, images):
        """Augment stored images; return network input."""
        return apply_transform(images, self.transform)

    def plain(self, images):
        """Normalise stored images; return network input, un-augmented."""
        return apply_transform(images, getattr(self, 'normalization_transform', None))
