"""In-memory uint8 images -> batches, each made in one vectorised step: no worker processes, no image alone.

Batches never cross the end of a segment of the schedule, and shuffling stays within segments: the order of
the stream is the schedule's, and how it is carried in batches is the loader's.
"""
import numpy as np
import torch

from utils.augmentations import apply_transform


class InMemoryDataset:
    """Images, labels and the transform that turns them into network input.

    Attributes:
        data: uint8 (N, H, W, C) or, grey, (N, H, W), array or tensor; may be reassigned together with
            `targets`, also to float tensors (N, C, H, W) in [0, 1]. targets: int64 tensor (N,); reassigned
            ones may be an array or a list.
        transform: a transform of `utils.augmentations`, or, as in Mammoth, of one float image (C, H, W) in
            [0, 1]; for test data of uint8 (B, H, W, C).
        not_aug_transform: the un-augmented image as methods see it; its presence says that `data` holds uint8
            images.
        extra_return_fields: names of further attributes, (N, ...) each, that batches end with.
        indexes: int64 (N,), positions of the samples in the data set's files.
        device: where images lie while batches are made of them.
    """

    TRANSIENT = ('_resident',)

    def __init__(self, data, targets, transform, train: bool = True, device='cpu', indexes=None):
        self.data, self.targets, self.transform, self.train = data, targets, transform, train
        self.device, self.indexes = torch.device(device), indexes
        self.extra_return_fields, self._resident = (), (None, None)

    @staticmethod
    def not_aug_transform(images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C) or (H, W, C), or an image of PIL or numpy -> float (B, C, H, W) or (C, H, W) in
        [0, 1]."""
        if not isinstance(images, torch.Tensor):
            images = torch.from_numpy(np.array(images))
        images = images.unsqueeze(-1) if images.dim() == 2 else images
        return images.movedim(-1, -3).float().div_(255)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        """(input, label, un-augmented image, *extra fields) of a training sample, (input, label) of a test
        sample."""
        return tuple(field[0] for field in self.batch(np.array([index])))

    def add_extra_return_field(self, name: str, values) -> None:
        """Let batches end with the samples' rows of `values` (N, ...)."""
        setattr(self, name, values)
        self.extra_return_fields += (name,)

    def raw(self, ids) -> torch.Tensor:
        """The images as they are stored; a slice is a view."""
        if self._resident[0] is not self.data:          # new data since the last call
            self._resident = self.data, torch.as_tensor(self.data).to(self.device)
        images = self._resident[1][ids]
        return images.unsqueeze(-1) if images.dim() == 3 else images

    def batch(self, ids, raw_not_aug: bool = False):
        """The batch of these samples, as `__getitem__`, stacked; `raw_not_aug`: un-augmented as uint8."""
        raw = self.raw(ids)
        if not self.train:
            return self.transform(raw), self.labels()[ids]
        plain = raw if raw.is_floating_point() else self.not_aug_transform(raw)
        ours = getattr(self.transform, 'batched', False)
        inputs = self.transform(raw) if ours else apply_transform(plain, self.transform)
        return inputs, self.labels()[ids], raw if raw_not_aug else plain, *self.extras(ids)

    def labels(self) -> torch.Tensor:
        """`targets` as an int64 tensor, whatever was assigned."""
        if not isinstance(self.targets, torch.Tensor):
            self.targets = torch.as_tensor(self.targets, dtype=torch.int64)
        return self.targets

    def extras(self, ids) -> list:
        """Rows of the extra fields."""
        return [torch.as_tensor(getattr(self, name))[ids] for name in self.extra_return_fields]


class ImageLoader:
    """Iterates over a data set in batches.

    Args:
        dataset: an `InMemoryDataset`.
        batch_size: samples a batch; the last of a segment may be smaller.
        shuffle: a new order for every pass, within segments.
        segment_ends: int (S,), ends of the schedule's segments; None: one segment.
        drop_last: leave out batches that are not full.
        seed: of the shuffle.

    Attributes:
        raw: if set, batches are uint8 images (B, H, W, C), instead of both network input and un-augmented
            image.
        raw_not_aug: if set, un-augmented images are uint8 (B, H, W, C).
    """

    def __init__(self, dataset, batch_size: int, shuffle: bool = False, segment_ends=None,
                 drop_last: bool = False,
                 seed: int = 0):
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.segment_ends = None if segment_ends is None else np.asarray(segment_ends)
        self.generator = torch.Generator().manual_seed(seed)
        self.raw = self.raw_not_aug = False

    def serve(self, raw: bool, raw_not_aug: bool, device) -> 'ImageLoader':
        """Give batches as a method wants them, on its device (raw ones on the CPU); returns itself."""
        self.raw, self.raw_not_aug = raw, raw_not_aug
        if not raw:
            self.dataset.device = torch.device(device)
        return self

    def _ends(self) -> np.ndarray:
        """Segment ends, or the whole where the data has been replaced by data of another length."""
        if self.segment_ends is None or self.segment_ends[-1] != len(self.dataset):
            return np.array([len(self.dataset)])
        return self.segment_ends

    def _batches(self):
        """Yield (start, end) of each batch in the sequence of the pass."""
        start = 0
        for end in self._ends().tolist():
            for a in range(start, end, self.batch_size):
                if not self.drop_last or a + self.batch_size <= end:
                    yield a, min(a + self.batch_size, end)
            start = end

    def __len__(self) -> int:
        ends = self._ends()
        sizes = np.diff(ends, prepend=0)
        return int((sizes // self.batch_size if self.drop_last else -(-sizes // self.batch_size)).sum())

    def __iter__(self):
        order = None
        if self.shuffle:
            starts = np.concatenate([[0], self._ends()[:-1]]).tolist()
            order = torch.cat([a + torch.randperm(b - a, generator=self.generator)
                               for a, b in zip(starts, self._ends().tolist())]).numpy()
        for a, b in self._batches():
            ids = slice(a, b) if order is None else order[a:b]
            if not self.raw:
                yield self.dataset.batch(ids, self.raw_not_aug)
            elif self.dataset.train:
                images = self.dataset.raw(ids)
                yield images, self.dataset.labels()[ids], images, *self.dataset.extras(ids)
            else:
                yield self.dataset.raw(ids), self.dataset.labels()[ids]
