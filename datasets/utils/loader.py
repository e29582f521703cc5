"""In-memory uint8 images -> batches, made in one vectorised step each; no worker processes, nothing per image.

Batches never cross the end of a segment of the schedule, and shuffling stays within segments: the order of the stream is
the schedule's, and how it is carried in batches is the loader's.
"""
import numpy as np
import torch


class InMemoryDataset:
    """Images, labels and the transform that turns them into network input.

    Attributes:
        data: uint8 (N, H, W, C). targets: int64 tensor (N,). transform: float batch (B, C, H, W) in [0, 1] -> network
            input; for test data (`train=False`) uint8 (B, H, W, C) -> network input.
    """

    def __init__(self, data, targets, transform, train: bool = True):
        self.data, self.targets, self.transform, self.train = data, targets, transform, train

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        """(input, label, un-augmented image) of a training sample, (input, label) of a test sample."""
        return tuple(field[0] for field in self.batch(np.array([index])))

    def raw(self, ids) -> torch.Tensor:
        """The images as they are stored, uint8 (B, H, W, C); a slice is a view."""
        return torch.from_numpy(self.data[ids]) if isinstance(self.data, np.ndarray) else self.data[ids]

    def batch(self, ids):
        """The batch of these samples: as `__getitem__`, stacked."""
        raw = self.raw(ids)
        if not self.train:
            return self.transform(raw), self.targets[ids]
        plain = raw.permute(0, 3, 1, 2).float().div_(255)
        return self.transform(plain), self.targets[ids], plain


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
        raw: if set, batches are uint8 images (B, H, W, C), in place of both network input and un-augmented image.
    """

    def __init__(self, dataset, batch_size: int, shuffle: bool = False, segment_ends=None, drop_last: bool = False,
                 seed: int = 0):
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.segment_ends = None if segment_ends is None else np.asarray(segment_ends)
        self.generator = torch.Generator().manual_seed(seed)
        self.raw = False

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
                yield self.dataset.batch(ids)
            elif self.dataset.train:
                images = self.dataset.raw(ids)
                yield images, self.dataset.targets[ids], images
            else:
                yield self.dataset.raw(ids), self.dataset.targets[ids]
