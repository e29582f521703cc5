"""Data sets whose stream has an order of its own, which no schedule can change."""
import numpy as np
import torch

from datasets.utils.label_changes import option
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.errors import InputError
from scroll.randomness import stream_seed
from scroll.schedules import Schedule


class OwnStreamDataset(ScheduledDataset):
    """An in-memory data set; a subclass makes its schedule in `_make_schedule`."""
    FIXED_BY_DATA = (*ScheduledDataset.FIXED_BY_DATA, 'N_CLASSES_PER_TASK')

    def _make_stream(self):
        for flag in ('n_splits', 'schedule', 'joint', 'custom_task_order'):
            if option(self.args, flag):
                raise InputError(f'--{flag}: {self.NAME} is a {self.SETTING} stream with an order of its '
                                 'own; leave it out')
        super()._make_stream()

    @classmethod
    def is_task_free(cls, args) -> bool:
        return cls.SETTING == 'general-continual'

    @classmethod
    def get_n_splits(cls, args) -> None:
        return None


class DomainDataset(OwnStreamDataset):
    """Domain-incremental: every task has all samples and all classes, and changes the images in its own way.

    A subclass defines N_TASKS, which a config file may change, and CHANGE: seed -> a transform that moves the
    pixels of an image (1, H, W) and makes no new values but zero.
    """
    SETTING = 'domain-il'
    N_TASKS: int
    CHANGE: type

    @staticmethod
    def get_batch_size() -> int:
        return 128

    def domain(self, task: int):
        """The transform of a task's images."""
        return self.CHANGE(stream_seed(self.args.seed, f'domain {task}') % 2 ** 32)

    def has_own_classes(self) -> bool:
        return False

    def in_domain(self, images: np.ndarray, task: int) -> np.ndarray:
        """The task's images: uint8 (N, H, W) -> the same shape."""
        count, height, width = images.shape
        pixels = torch.arange(1., height * width + 1).view(1, height, width)
        source = self.domain(task)(pixels).flatten().long().numpy()             # 0: from outside, black
        return np.pad(images.reshape(count, -1), ((0, 0), (1, 0)))[:, source].reshape(images.shape)

    def _make_schedule(self) -> Schedule:
        count, ends = len(self.train_labels), np.arange(self.N_TASKS + 1) * len(self.train_labels)
        return Schedule(np.tile(np.arange(count), self.N_TASKS), ends, ends, f'domains:{self.N_TASKS}',
                        covers='repeats' if self.N_TASKS > 1 else 'all', samples=count)

    def _classes_by_task(self) -> list:
        return [np.arange(self.N_CLASSES)] * self.N_TASKS

    def get_data_loaders(self) -> tuple:
        train, test = super().get_data_loaders()
        train.dataset.data = self.in_domain(train.dataset.data, self.c_task)
        return train, test

    def test_loader(self, task: int):
        loader = super().test_loader(task)
        loader.dataset.data = self.in_domain(loader.dataset.data, task)
        return loader
