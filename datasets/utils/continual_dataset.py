"""The contract every data set fulfils: Mammoth's `ContinualDataset`, and our in-memory kind that any schedule can cut.

A data-set file defines a subclass of `ScheduledDataset` with a few constants and a `read` that returns its arrays.
"""
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F

from backbone import weights
from datasets.utils.loader import ImageLoader, InMemoryDataset
from scroll.errors import InputError
from scroll.images import Preprocessing
from scroll.randomness import numpy_stream, stream_seed
from scroll.schedules import is_task_free, make_schedule
from utils.args import whole
from utils.augmentations import BatchTransform, PlainTransform
from utils.errors import UserError
from utils.evaluate import evaluate


class ContinualDataset:
    """Base class of all data sets.

    Class attributes:
        NAME, SETTING ('class-il', ...), N_CLASSES, N_CLASSES_PER_TASK (int, or list where tasks differ), N_TASKS, SIZE.

    Attributes:
        args; c_task (current_task): -1 before the first; train_loader; test_loaders: one for each task so far.
    """
    NAME: str
    SETTING: str
    N_CLASSES: int
    N_CLASSES_PER_TASK: int
    N_TASKS: int
    SIZE: tuple
    AVAIL_SCHEDS = ['multisteplr', 'cosine']

    def __init__(self, args):
        self.args = args
        self.c_task = -1
        self.train_loader, self.test_loaders = None, []

    @property
    def current_task(self) -> int:
        return self.c_task

    @staticmethod
    def get_parser(parser):
        """Add the data set's flags to `parser` and return it."""
        return parser

    @classmethod
    def is_task_free(cls, args) -> bool:
        """Whether a stream made with these arguments has no task boundaries (Mammoth's general-continual setting)."""
        return cls.SETTING == 'general-continual'

    def get_data_loaders(self):
        """Go to the next task: (train loader, test loader); the latter is also appended to `test_loaders`."""
        raise NotImplementedError(f'{type(self).__name__} has no get_data_loaders')

    def task_classes(self, task: int) -> np.ndarray:
        """Labels of a task's classes."""
        return np.arange(*self.get_offsets(task))

    def seen_classes(self) -> np.ndarray:
        """Labels of the classes of all tasks so far."""
        return np.concatenate([self.task_classes(t) for t in range(self.c_task + 1)])

    def get_offsets(self, task=None) -> tuple:
        """Numbers of classes before and up to the end of a task (the current one by default)."""
        task = self.c_task if task is None else task
        per_task = self.N_CLASSES_PER_TASK
        sizes = per_task if isinstance(per_task, list) else [per_task] * self.N_TASKS
        return sum(sizes[:task]), sum(sizes[:task + 1])

    def get_backbone(self) -> str:
        """Name of the backbone used where neither flag nor weights name one."""
        return 'resnet18'

    def get_loss(self):
        """The loss, a function that accepts `reduction=`."""
        return F.cross_entropy

    def get_transform(self):
        """Training transform of a batch of float images in [0, 1]."""
        return

    def get_normalization_transform(self):
        """Normalisation of a float batch, or None."""
        return

    @staticmethod
    def get_epochs() -> int:
        """Default of `--n_epochs`."""
        return 50

    @staticmethod
    def get_batch_size() -> int:
        """Default of `--batch_size`."""
        return 32

    @staticmethod
    def evaluate(model, dataset, last=False):
        """Accuracies in percent on the tasks so far: (class-il, task-il)."""
        return evaluate(model, dataset, last)


class ScheduledDataset(ContinualDataset):
    """An in-memory image-classification data set as a class-incremental stream under any schedule.

    A subclass defines NAME, N_CLASSES, SIZE, DEFAULT_SPLITS, PADDING (pixels of the training crop), FLIP and `read`.

    Attributes:
        schedule: `scroll.schedules.Schedule` over the training samples.
        class_order: int64 (N_CLASSES,), label in the stream of each class of the files (`--permute_classes`).
        preprocessing: what the network gets; size and normalisation belong to the weights, or to the data set without.
    """
    SETTING = 'class-il'
    MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    DEFAULT_SPLITS = 10
    PADDING, FLIP = 4, True
    ADAPT_PADDING = 6 / 84              # SCROLL's crop when it adapts, as a share of the image; filled with grey

    @staticmethod
    def get_parser(parser):
        group = parser.add_argument_group('stream')
        group.add_argument('--n_splits', type=whole(1), help='tasks of whole classes, short for --schedule split:<n>')
        group.add_argument('--schedule', help='split:<n>[,order=label|random|0-1-2..], iid or '
                                               'gaussian[:sigma=<s>], and [,batch=<b>]')
        group.add_argument('--input_size', type=whole(8), help='pixels the network gets (default: what psi was trained at)')
        return parser

    @classmethod
    def read(cls, args):
        """The data as `datasets.utils.readers.Images`."""
        raise NotImplementedError(f'{cls.__name__} has no read')

    def __init__(self, args):
        super().__init__(args)
        self._check_splits(self.N_CLASSES)
        self.images = _read_once(type(self), args.base_path, getattr(args, 'data_dir', None))
        self.N_CLASSES = len(self.images.class_names)
        self._check_splits(self.N_CLASSES)
        self.class_order = np.arange(self.N_CLASSES)
        if args.permute_classes:
            self.class_order = numpy_stream(args.seed, 'class order').permutation(self.N_CLASSES)
        self.train_labels = self.class_order[self.images.train_labels]
        self.test_labels = self.class_order[self.images.test_labels]
        self.schedule = self._make_schedule()
        if self.schedule.task_free:
            self.SETTING = 'general-continual'
        self._task_classes = self._classes_by_task()
        sizes = [len(classes) for classes in self._task_classes]
        self.N_TASKS = len(sizes)
        self.N_CLASSES_PER_TASK = sizes[0] if len(set(sizes)) == 1 else sizes
        self.preprocessing = self._make_preprocessing()
        self.SIZE = self.images.train.shape[1:3]

    @classmethod
    def is_task_free(cls, args) -> bool:
        try:
            return args.schedule is not None and is_task_free(args.schedule)
        except InputError as error:
            raise UserError(f'--schedule: {error}') from error

    def _spec(self) -> str:
        if self.args.schedule is not None and self.args.n_splits:
            raise UserError('--n_splits and --schedule both say how the stream is cut: give one of them')
        if self.args.schedule is not None:
            return self.args.schedule
        return f'split:{self.args.n_splits or min(self.DEFAULT_SPLITS, self.N_CLASSES)}'

    def _check_splits(self, n_classes) -> None:
        if n_classes and self.args.n_splits and self.args.n_splits > n_classes:
            raise UserError(f'--n_splits {self.args.n_splits}: {self.NAME} has {n_classes} classes; use 1..{n_classes}')

    def _make_schedule(self):
        try:
            return make_schedule(self._spec(), self.train_labels, self.args.seed)
        except InputError as error:
            raise UserError(f'--schedule: {error}') from error

    def _classes_by_task(self) -> list:
        """Labels of the classes first seen in each task, sorted. A schedule of class splits gives each task its own."""
        seen, by_task = set(), []
        for t in range(len(self.schedule.tasks) - 1):
            new = set(self.train_labels[self.schedule.task(t)[0]].tolist()) - seen
            seen |= new
            by_task.append(np.array(sorted(new), np.int64))
        return by_task

    def _make_preprocessing(self) -> Preprocessing:
        if self.args.weights in (None, 'none'):
            return Preprocessing(self.args.input_size or max(self.images.train.shape[1:3]), self.MEAN, self.STD)
        about = weights.load(self.args.weights, tensors=False)
        return Preprocessing(self.args.input_size or about.input_size, about.mean, about.std)

    def task_classes(self, task: int) -> np.ndarray:
        return self._task_classes[task]

    def get_data_loaders(self):
        self.c_task += 1
        ids, ends = self.schedule.task(self.c_task)
        train = InMemoryDataset(self.images.train[ids], torch.from_numpy(self.train_labels[ids]), self.get_transform(),
                                indexes=ids)
        self.train_loader = ImageLoader(train, self.args.batch_size, shuffle=True, segment_ends=ends,
                                        drop_last=self.args.drop_last, seed=stream_seed(self.args.seed, f'shuffle {self.c_task}'))
        self.test_loaders.append(self.test_loader(self.c_task))
        return self.train_loader, self.test_loaders[-1]

    def test_loader(self, task: int) -> ImageLoader:
        """Test samples of the classes of one task."""
        ids = np.flatnonzero(np.isin(self.test_labels, self._task_classes[task]))
        test = InMemoryDataset(self.images.test[ids], torch.from_numpy(self.test_labels[ids]), self.preprocessing, train=False)
        return ImageLoader(test, max(256, self.args.batch_size))

    def get_transform(self):
        seed = stream_seed(self.args.seed, f'augmentation {self.c_task}')
        return BatchTransform(self.preprocessing, self.PADDING, self.FLIP, seed)

    def get_normalization_transform(self):
        return PlainTransform(self.preprocessing)

    def get_class_names(self) -> list:
        """Names of the classes by label in the stream."""
        return [self.images.class_names[i] for i in np.argsort(self.class_order)]


@lru_cache(maxsize=2)
def _read_once(dataset_class, base_path, data_dir):
    """The arrays of a data set, shared by all instances in a process; they are never written to."""
    from types import SimpleNamespace
    images = dataset_class.read(SimpleNamespace(base_path=base_path, data_dir=data_dir))
    for array in images[:4]:
        array.setflags(write=False)
    return images
