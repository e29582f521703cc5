"""The contract of data sets: Mammoth's `ContinualDataset`; our own build on `scheduled_dataset`.

A file written for Mammoth hands two `torch` data sets to `store_masked_loaders` in
`get_data_loaders`.
"""

import copy
import functools

import numpy as np
import torch.nn.functional as F

from core.forks import inherited
from datasets.transforms.denormalization import DeNormalize
from datasets.utils import label_changes
from datasets.utils.config import build, data_errors
from datasets.utils.masked_loaders import (
    MammothDatasetWrapper,
    fix_class_names_order,
    store_masked_loaders,
)
from scroll.ground.errors import InputError
from utils.evaluate import evaluate

__all__ = [
    'ContinualDataset',
    'MammothDatasetWrapper',
    'fix_class_names_order',
    'store_masked_loaders',
]


class ContinualDataset:
    """Base class of all data sets.

    Class attributes:
        NAME, N_TASKS, SIZE.
        SETTING: 'class-il', 'task-il', 'domain-il', 'general-continual', ...
        N_CLASSES_PER_TASK: int, or list where tasks differ.
        N_CLASSES: by default it follows from these.
        MEAN, STD, TRANSFORM, TEST_TRANSFORM: optional.
        REFUSED_FLAGS: flag -> why it is refused.

    Attributes:
        c_task (current_task): -1 before the first.
        train_loader: of the current task.
        test_loaders: of each task so far.
        class_order: int64 (N_CLASSES,), label in the stream of each class of the files.
        task_order: int64 (N_TASKS,), the tasks of the class in the order of their arrival."""

    NAME: str
    SETTING: str = ''  # '' until a function has built it
    N_CLASSES: int
    N_CLASSES_PER_TASK: int
    N_TASKS: int
    SIZE: tuple
    # returned by `get_epochs`, `get_batch_size`, `get_backbone`
    EPOCHS = 50
    BATCH_SIZE = 32
    BACKBONE = 'resnet18'
    AVAIL_SCHEDS = ['multisteplr', 'cosine']
    DEFAULT_WEIGHTS = 'none'  # of --weights; None: the weights that come with this project
    REFUSED_FLAGS = {}
    class_names = _coming = _preview = None

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if 'get_data_loaders' in vars(cls):
            cls.get_data_loaders = _counted(cls.get_data_loaders)

    def __init__(self, args):
        self.args = args
        self.c_task = -1
        self.train_loader = None
        self.test_loaders = []
        self.eval_fn = self.evaluate
        self._make_stream()

    def __getattr__(self, name: str):
        return inherited(ContinualDataset, self, name)

    def _make_stream(self) -> None:
        """Set classes and tasks from the constants of the class and the flags."""
        per_task = getattr(self, 'N_CLASSES_PER_TASK', getattr(self, 'N_CLASSES', None))
        if per_task is None:
            return
        sizes = self._sizes(per_task)
        if not hasattr(self, 'N_CLASSES'):
            self.N_CLASSES = sum(sizes) if self.has_own_classes() else max(sizes)
        self.class_order = label_changes.class_order(self.args, self.N_CLASSES)
        order = label_changes.task_order(self.args, self.N_TASKS)
        joint = self.args.joint
        if not self.has_own_classes() and (joint or order is not None):
            flag = 'joint' if joint else 'custom_task_order'
            raise InputError(
                f'--{flag}: {self.NAME} is a {self.SETTING} stream; it needs tasks with classes '
                'of their own'
            )
        self.task_order = np.arange(self.N_TASKS) if order is None else order
        if order is not None:
            groups = np.split(np.arange(self.N_CLASSES), np.cumsum(sizes)[:-1])
            self.class_order = np.argsort(np.concatenate([groups[t] for t in order]))
            sizes = [sizes[t] for t in order]
        if joint:
            self.N_TASKS = 1
            sizes = [self.N_CLASSES]
            per_task = None
        self.N_CLASSES_PER_TASK = sizes if isinstance(per_task, (list, tuple)) else sizes[0]

    def _sizes(self, per_task) -> list:
        """Number of classes of each task, from `N_CLASSES_PER_TASK`."""
        return list(per_task) if isinstance(per_task, (list, tuple)) else [per_task] * self.N_TASKS

    def has_own_classes(self) -> bool:
        return self.SETTING in ('class-il', 'task-il')

    @property
    def current_task(self) -> int:
        return self.c_task

    @staticmethod
    def get_parser(parser):
        return parser

    @classmethod
    def is_task_free(cls, args) -> bool:
        return cls.SETTING == 'general-continual'

    @classmethod
    def schedule_spec(cls, args) -> str:
        """The schedule that the arguments ask for, as rows name it."""
        return f'split:{cls.get_n_splits(args)}'

    @classmethod
    def get_n_splits(cls, args):
        """Number of tasks that split the classes, by these arguments; None for other streams."""
        if cls.SETTING not in ('class-il', 'task-il'):
            return None
        return 1 if args.joint else cls.N_TASKS

    def begin_task(self) -> int:
        """Number of the task that `get_data_loaders` gives next; it becomes the current one."""
        self.c_task = self.c_task + 1 if self._coming is None else self._coming
        return self.c_task

    def get_data_loaders(self):
        """Go to the next task: (train loader, test loader)."""
        raise NotImplementedError(f'{type(self).__name__} has no get_data_loaders')

    def test_loader(self, task: int):
        """Test loader of any task, past or future; this stream stays where it is."""
        if task < len(self.test_loaders):
            return self.test_loaders[task]
        self._preview = self._preview or build(type(self), self.args)
        while len(self._preview.test_loaders) <= task:
            self._preview.get_data_loaders()
        return self._preview.test_loaders[task]

    def without_validation(self) -> 'ContinualDataset':
        """The same stream at the same task, with the real test set, where `--validation` ends."""
        real = copy.copy(self)
        real.args = copy.copy(self.args)
        real.test_loaders = []
        real._preview = None
        real.args.validation = 0
        real.test_loaders = [real.test_loader(task) for task in range(self.c_task + 1)]
        return real

    def task_classes(self, task: int) -> np.ndarray:
        return np.arange(*self.get_offsets(task))

    def seen_classes(self, task=None) -> np.ndarray:
        """Labels of the classes of all tasks up to this one, by default the current, each once, as
        they came."""
        last = self.c_task if task is None else task
        classes = {}
        for earlier in range(last + 1):
            classes |= dict.fromkeys(self.task_classes(earlier).tolist())
        return np.array(list(classes), np.int64)

    def get_offsets(self, task=None) -> tuple:
        """First and last + 1 class of a task, by default the current; of all if tasks share."""
        if not self.has_own_classes():
            return 0, self.N_CLASSES
        task = self.c_task if task is None else task
        sizes = self._sizes(self.N_CLASSES_PER_TASK)
        return sum(sizes[:task]), sum(sizes[: task + 1])

    @classmethod
    def get_backbone(cls) -> str:
        return cls.BACKBONE

    def get_loss(self):
        return F.cross_entropy  # a function that accepts reduction=

    def get_transform(self):
        """Training transform of a batch of float images in [0, 1], or None."""

    def get_normalization_transform(self):
        """Normalisation of a float batch, or None."""

    def get_denormalization_transform(self):
        """The inverse of the normalisation by MEAN and STD; None without them."""
        return DeNormalize(self.MEAN, self.STD) if hasattr(self, 'MEAN') else None

    @classmethod
    def get_epochs(cls) -> int:
        return cls.EPOCHS

    @staticmethod
    def get_iters():
        """Default of `--n_iters`."""

    @classmethod
    def get_batch_size(cls) -> int:
        return cls.BATCH_SIZE

    def get_minibatch_size(self) -> int:
        return self.get_batch_size()

    def get_class_names(self) -> list:
        """Names of the classes by label in the stream."""
        if self.class_names is None:
            raise InputError(
                f'--dataset {self.NAME}: it has no class names, which this method needs: define '
                'get_class_names'
            )
        return [self.class_names[i] for i in np.argsort(self.class_order)]

    @staticmethod
    def get_prompt_templates() -> list:
        """Sentences for text encoders, {} for a class name: Mammoth's, from `--mammoth PATH`."""
        from utils.prompt_templates import templates

        return templates['imagenet']

    @staticmethod
    def evaluate(model, dataset, last=False, return_loss=False):
        """Accuracies in percent on the tasks so far, (class-il, task-il), of `utils.evaluate`."""
        return evaluate(model, dataset, last, return_loss=return_loss)


def _counted(function):
    """A subclass's `get_data_loaders` that also counts the task, once, and keeps both loaders."""

    @functools.wraps(function)
    def get_data_loaders(self):
        if self._coming is not None:  # the outermost of a chain of super() calls counts
            return function(self)
        task = self.c_task + 1
        try:
            self._coming = task
            with data_errors(self.NAME):
                train, test = function(self)
        finally:
            self._coming = None
        self.c_task = task
        self.train_loader = train
        if len(self.test_loaders) <= task:
            self.test_loaders.append(test)
        return train, test

    return get_data_loaders
