"""Data-set files as users of Mammoth write them."""

PARTS = '''
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset
from torchvision import transforms


class Digits(Dataset):
    """12 training or 6 test images of each digit, HWC, three channels; items through PIL."""
    def __init__(self, train, transform):
        bunch = load_digits()
        images = np.repeat((bunch.images * 15).astype(np.uint8)[..., None], 3, axis=3)
        part = slice(0, 12) if train else slice(12, 18)
        rows = np.concatenate([np.flatnonzero(bunch.target == c)[part] for c in range(10)])
        self.data, self.targets = images[rows], bunch.target[rows].tolist()
        self.train, self.transform = train, transform
        self.not_aug_transform = transforms.Compose([transforms.ToTensor()])

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image, target = Image.fromarray(self.data[index]), self.targets[index]
        plain = self.not_aug_transform(image.copy())
        image = self.transform(image)
        if not self.train:
            return image, target
        if hasattr(self, 'logits'):
            return image, target, plain, self.logits[index]
        return image, target, plain
'''

CLASS_IL = (
    PARTS
    + """
from typing import Literal

import torch.nn.functional as F

from datasets.transforms.denormalization import DeNormalize
from datasets.utils import set_default_from_args
from datasets.utils.continual_dataset import ContinualDataset, fix_class_names_order
from datasets.utils.continual_dataset import store_masked_loaders


class PictureDigits(ContinualDataset):
    NAME = 'picture-digits'
    SETTING = 'class-il'
    N_CLASSES_PER_TASK = 2
    N_TASKS = 5
    N_CLASSES = N_CLASSES_PER_TASK * N_TASKS
    SIZE = (8, 8)
    MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.5, 1.0)
    NORMAL = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    TRANSFORM = transforms.Compose([transforms.RandomCrop(8, padding=1), *NORMAL])
    TEST_TRANSFORM = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])

    def __init__(self, args, transform_type: Literal['weak', 'strong'] = 'weak'):
        super().__init__(args)
        assert transform_type in ('weak', 'strong')
        self.transform_type = transform_type

    def get_data_loaders(self):
        test = Digits(False, self.TEST_TRANSFORM)
        return store_masked_loaders(Digits(True, self.TRANSFORM), test, self)

    def get_class_names(self):
        if self.class_names is None:
            self.class_names = fix_class_names_order([f'digit {i}' for i in range(10)], self.args)
        return self.class_names

    def get_transform(self):
        return transforms.Compose([transforms.ToPILImage(), self.TRANSFORM])

    @staticmethod
    def get_normalization_transform():
        return transforms.Normalize(PictureDigits.MEAN, PictureDigits.STD)

    @staticmethod
    def get_denormalization_transform():
        return DeNormalize(PictureDigits.MEAN, PictureDigits.STD)

    @staticmethod
    def get_loss():
        return F.cross_entropy

    @set_default_from_args('backbone')
    def get_backbone():
        return 'resnet18'

    @set_default_from_args('n_epochs')
    def get_epochs(self):
        return 1

    @set_default_from_args('batch_size')
    def get_batch_size():
        return 16
"""
)

UNEQUAL = (
    PARTS
    + '''
from datasets.utils.continual_dataset import ContinualDataset, store_masked_loaders


class UnequalDigits(ContinualDataset):
    """Older style: static getters, no transform, tensors all the way, a list of class counts."""
    NAME = 'unequal-digits'
    SETTING = 'class-il'
    N_CLASSES_PER_TASK = [3, 1, 4, 2]
    N_TASKS = 4
    SIZE = (8, 8)

    def get_data_loaders(self):
        plain = transforms.ToTensor()
        return store_masked_loaders(Digits(True, plain), Digits(False, plain), self)

    @staticmethod
    def get_backbone():
        return 'resnet18'

    @staticmethod
    def get_transform():
        return None

    @staticmethod
    def get_epochs():
        return 1

    @staticmethod
    def get_batch_size():
        return 20

    @staticmethod
    def get_minibatch_size():
        return UnequalDigits.get_batch_size()
'''
)

STREAM = (
    PARTS
    + '''
from datasets.utils.continual_dataset import ContinualDataset


class Flow:
    """Batches of 16 until the images are used up; no length, no data set."""
    def __init__(self, data):
        self.data, self.at = data, 0

    def __iter__(self):
        return self

    def __next__(self):
        rows = range(self.at, min(self.at + 16, len(self.data)))
        self.at += 16
        if not len(rows):
            raise StopIteration
        x, y, plain = zip(*(self.data[i] for i in rows))
        return torch.stack(x), torch.tensor(y), torch.stack(plain)


class FlowingDigits(ContinualDataset):
    SETTING, N_TASKS, EPOCHS = 'general-continual', 1, 1
    NAME = 'flowing-digits'
    SETTING = 'general-continual'
    N_CLASSES = 10
    N_TASKS = 1

    def get_data_loaders(self):
        plain = transforms.ToTensor()
        test = torch.utils.data.DataLoader(Digits(False, plain), batch_size=16)
        return Flow(Digits(True, plain)), test

    def get_batch_size(self):
        return 16
'''
)

DOMAINS = (
    PARTS
    + """
from datasets.utils.continual_dataset import ContinualDataset, store_masked_loaders


class ShuffledDigits(ContinualDataset):
    NAME = 'shuffled-digits'
    SETTING = 'domain-il'
    N_CLASSES_PER_TASK, N_TASKS = 10, 3

    def get_data_loaders(self):
        self.c_task += 1
        order = torch.from_numpy(np.random.RandomState(self.c_task).permutation(192))
        permute = transforms.Compose(
            [transforms.ToTensor(), lambda x: x.flatten()[order].view_as(x)]
        )
        return store_masked_loaders(Digits(True, permute), Digits(False, permute), self)

    def get_epochs():
        return 1
"""
)

FILES = {
    'foreign_pictures': CLASS_IL,
    'foreign_unequal': UNEQUAL,
    'foreign_flow': STREAM,
    'foreign_domains': DOMAINS,
}
