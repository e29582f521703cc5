"""Older data-set files split off validation data; newer ones leave it to `store_masked_loaders`."""
import copy

import numpy as np
import torch

from datasets.utils.label_changes import pick
from datasets.utils.masked_loaders import take
from scroll.randomness import numpy_stream


class ValidationDataset(torch.utils.data.Dataset):
    """Held-out training samples as test items (input, label).

    Attributes:
        data: uint8 images (N, H, W, C) or (N, H, W), array or tensor. targets: (N,). transform: of a PIL
            image, or None.
    """

    def __init__(self, data, targets, transform=None):
        self.data, self.targets, self.transform = data, targets, transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple:
        from PIL import Image
        image = Image.fromarray(np.asarray(self.data[index]))
        return image if self.transform is None else self.transform(image), self.targets[index]


def get_train_val(train, test_transform, dataset: str, val_perc: float = 0.1) -> tuple:
    """(training data, `ValidationDataset`): a share of each class set aside, the same in every run.

    Args:
        train: with `data` and `targets`; it is not changed. test_transform: for the validation images.
        dataset: name, which the split is drawn from. val_perc: share of the samples of a class.
    """
    labels = np.asarray(train.targets)
    held = pick(labels, val_perc, numpy_stream(0, f'validation of {dataset}'))
    rest, inside = copy.copy(train), np.flatnonzero(held)
    kept = np.flatnonzero(~held)
    rest.data, rest.targets = take(train.data, kept), take(train.targets, kept)
    return rest, ValidationDataset(take(train.data, inside), take(train.targets, inside), test_transform)
