"""In-memory uint8 images -> batches, each made in one vectorised step, without worker processes.

Batches never cross the end of a segment of the schedule, and shuffling stays within segments.
"""

import numpy as np
import torch

from utils.augmentations import apply_transform


class InMemoryDataset:
    """Images, labels and the transform that turns them into network input.

    Attributes:
        data: uint8 (N, H, W, C) or, grey, (N, H, W), array or tensor; may be reassigned together
            with `targets`, also to float tensors (N, C, H, W) in [0, 1].
        targets: (N,), tensor, array or list.
        transform: of `utils.augmentations`, or, as in Mammoth, of one float image (C, H, W) in
            [0, 1]; for test data of uint8 (B, H, W, C).
        extra_return_fields: names of further attributes, (N, ...) each, that batches end with.
        indexes: int64 (N,), positions of the samples in the files.
        device: the device of the images."""

    def __init__(self, data, targets, transform, train: bool = True, indexes=None):
        self.data = data
        self.targets = targets
        self.transform = transform
        self.train = train
        self.device = torch.device('cpu')
        self.indexes = indexes
        self.extra_return_fields = ()
        self._resident = (None, None)

    @staticmethod
    def not_aug_transform(images: torch.Tensor) -> torch.Tensor:
        """uint8 ([B,] H, W, C), also a PIL image or an array -> float ([B,] C, H, W) in [0, 1]."""
        if not isinstance(images, torch.Tensor):
            images = torch.from_numpy(np.array(images))
        if images.dim() == 2:
            images = images.unsqueeze(-1)
        return images.movedim(-1, -3).float().div_(255)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple:
        """(input, label, un-augmented image, *extra fields) in training, else (input, label)."""
        return tuple(field[0] for field in self.batch(np.array([index])))

    def add_extra_return_field(self, name: str, values) -> None:
        setattr(self, name, values)
        self.extra_return_fields += (name,)

    def raw(self, ids) -> torch.Tensor:
        """The images as they are stored; a slice is a view."""
        if self._resident[0] is not self.data:  # new data since the last call
            self._resident = self.data, torch.as_tensor(self.data).to(self.device)
        images = self._resident[1][ids]
        return images.unsqueeze(-1) if images.dim() == 3 else images

    def batch(self, ids, raw: bool = False, raw_not_aug: bool = False) -> tuple:
        """Stack the fields of `__getitem__` of these samples.

        raw: uint8 images in place of input and un-augmented image.
        raw_not_aug: uint8 images in place of the latter alone."""
        images = self.raw(ids)
        labels = self.labels()[ids]
        if not self.train:
            return images if raw else self.transform(images), labels
        extras = [torch.as_tensor(getattr(self, name))[ids] for name in self.extra_return_fields]
        if raw:
            return images, labels, images, *extras
        plain = images if images.is_floating_point() else self.not_aug_transform(images)
        batched = getattr(self.transform, 'batched', False)
        inputs = self.transform(images) if batched else apply_transform(plain, self.transform)
        return inputs, labels, images if raw_not_aug else plain, *extras

    def labels(self) -> torch.Tensor:
        if not isinstance(self.targets, torch.Tensor):
            self.targets = torch.as_tensor(self.targets, dtype=torch.int64)
        return self.targets


class ImageLoader:
    """Iterator over an `InMemoryDataset` in batches; the last of a segment may be smaller.

    In training, a lone last sample joins the batch before it: by its statistics alone a step may
    ruin the network.

    shuffle: a new order for every pass, within segments.
    segment_ends: int (S,), ends of the schedule's segments; None: one segment.
    drop_last: leave out batches that are not full.
    seed: of the shuffle.

    Attributes:
        raw, raw_not_aug: as of `InMemoryDataset.batch`.
        foreign: for a method that is not of this project: batches are contiguous, even where the
            images are not, and a lone last sample is a batch."""

    def __init__(
        self,
        dataset,
        batch_size: int,
        shuffle: bool = False,
        segment_ends=None,
        drop_last: bool = False,
        seed: int = 0,
    ):
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.segment_ends = None if segment_ends is None else np.asarray(segment_ends)
        self.generator = torch.Generator().manual_seed(seed)
        self.raw = self.raw_not_aug = self.foreign = False

    def serve(self, raw: bool, raw_not_aug: bool, device, foreign: bool = False) -> 'ImageLoader':
        """Give batches as a method wants them, on its device (raw: on the CPU); return itself."""
        self.raw = raw
        self.raw_not_aug = raw_not_aug
        self.foreign = foreign
        if not raw:
            self.dataset.device = torch.device(device)
        return self

    def _segments(self) -> list:
        """(start, end) of each segment; one if the data was replaced by data of another length."""
        ends = [len(self.dataset)]
        if self.segment_ends is not None and self.segment_ends[-1] == ends[0]:
            ends = self.segment_ends.tolist()
        return list(zip([0, *ends], ends))

    def _batches(self) -> list:
        size = self.batch_size
        batches = []
        joins = self.dataset.train and not self.foreign and size > 1
        for start, end in self._segments():
            stop = end - (end - start) % size if self.drop_last else end
            starts = list(range(start, stop, size))
            if joins and starts[1:] and stop - starts[-1] == 1:
                starts.pop()
            batches += zip(starts, [*starts[1:], stop])
        return batches

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self):
        order = []
        if self.shuffle:
            for a, b in self._segments():
                order.append(a + torch.randperm(b - a, generator=self.generator).numpy())
            order = np.concatenate(order)
        for a, b in self._batches():
            ids = order[a:b] if self.shuffle else slice(a, b)
            batch = self.dataset.batch(ids, self.raw, self.raw_not_aug)
            yield tuple(field.contiguous() for field in batch) if self.foreign else batch
