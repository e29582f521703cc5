"""In-memory image data sets that any schedule can cut: a few constants and a `read` make one."""

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import torch

from backbone import weights
from core.arguments import whole
from core.environment import warn_once
from core.plugins import FOLDERS, is_shipped
from datasets.transforms.denormalization import DeNormalize
from datasets.utils import label_changes, readers
from datasets.utils.continual_dataset import ContinualDataset
from datasets.utils.loader import ImageLoader, InMemoryDataset
from scroll.embedding.images import Preprocessing
from scroll.ground.errors import InputError, prefixed
from scroll.ground.randomness import stream_seed
from scroll.streams.schedule_forms import GRAMMAR
from scroll.streams.schedules import Schedule, is_task_free, make_schedule, n_splits
from utils.augmentations import BatchTransform, for_batches

_SMALLEST = 8  # pixels that a network can take


class ScheduledDataset(ContinualDataset):
    """An in-memory data set as a class-incremental stream under any schedule.

    A subclass defines NAME, N_CLASSES, SIZE, DEFAULT_SPLITS, PADDING (pixels of the training crop),
    FLIP and `read`, which gets the flags of READ_FLAGS.

    Attributes:
        schedule: `scroll.streams.schedules.Schedule` over the training samples.
        train_ids: int64 (N,), positions in the files of the training samples, without
            `--validation`.
        train_labels, true_labels: int64 (N,), labels in the stream, with and without
            `--noise_rate`.
        decoded_by: decoders of image files, which pixels depend on; '' where there were none.
        preprocessing: size and normalisation of network input, of the weights, or without any of
            the data set."""

    SETTING = 'class-il'
    MEAN = (0.5, 0.5, 0.5)
    STD = (0.5, 0.5, 0.5)
    DEFAULT_SPLITS = 10
    BACKBONE = 'resnet18-md'  # the architecture of the pre-trained weights
    DEFAULT_WEIGHTS = None
    PADDING = 4
    FLIP = True
    # SCROLL's crop when it adapts, as a share of the image; filled with grey
    ADAPT_PADDING = 6 / 84
    READ_FLAGS = ('base_path', 'data_dir')
    FIXED_BY_DATA = ('SETTING', 'SIZE', 'N_CLASSES')  # no config file may set them

    @staticmethod
    def get_parser(parser):
        group = parser.add_argument_group(
            'stream', 'example: --schedule gaussian:sigma=0.5,batch=32'
        )
        group.add_argument(
            '--n_splits',
            affects='stream',
            type=whole(1),
            help='tasks of whole classes, short for --schedule split:<n>',
        )
        group.add_argument('--schedule', affects='stream', help=GRAMMAR.replace('%', '%%'))
        group.add_argument(
            '--inc',
            affects='stream',
            type=whole(1),
            help='classes a task: B0-Inc<n>, short for --schedule inc:<n>',
        )
        group.add_argument(
            '--b',
            affects='stream',
            type=whole(0),
            help='with --inc: classes in the first task; 0: as many as in others (B50-Inc10)',
        )
        group.add_argument(
            '--input_size',
            type=whole(_SMALLEST, 2048),
            help='pixels the network gets (default: what the backbone was trained at)',
        )
        return parser

    @classmethod
    def read(cls, args):
        """The data as `datasets.utils.readers.Images`."""
        raise NotImplementedError(f'{cls.__name__} has no read')

    @classmethod
    def check(cls, images) -> None:
        readers.check(cls.NAME, images)

    def _make_stream(self) -> None:
        flags = {}
        for name in self.READ_FLAGS:
            value = getattr(self.args, name, None)
            flags[name] = tuple(value) if isinstance(value, list) else value
        self.images = _read_once(type(self), **flags)
        self.decoded_by = self.images.decoded_by
        self.class_names = self.images.class_names
        self.N_CLASSES = len(self.class_names)
        self.SIZE = self.images.train.shape[1:3]
        if (self.args.n_splits or 1) > self.N_CLASSES:
            raise InputError(
                f'--n_splits {self.args.n_splits}: {self.NAME} has {self.N_CLASSES} classes; '
                f'use 1..{self.N_CLASSES}'
            )
        self._label()
        if self.schedule.task_free:
            self.SETTING = 'general-continual'
        self._task_classes = self._classes_by_task()
        for t, classes in enumerate(self._task_classes, 1):
            if not np.isin(self.test_labels, classes).any():
                raise InputError(
                    f'{self.NAME}: there are no test images of the classes of task {t}'
                )
        sizes = [len(classes) for classes in self._task_classes]
        self.N_TASKS = len(sizes)
        by_task = (self.train_labels[self.schedule.task(t)[0]] for t in range(self.N_TASKS))
        label_changes.check_labelled(self.args, by_task)
        self.N_CLASSES_PER_TASK = sizes[0] if len(set(sizes)) == 1 else sizes
        self.preprocessing = self._make_preprocessing()

    def _label(self) -> None:
        """The labels of the stream, of training and test, and its schedule."""
        args = self.args
        images = self.images
        held = label_changes.held_out(args, images.train_labels, images.train)
        self.train_ids = np.flatnonzero(~held)
        self.test_images = images.test
        test_labels = images.test_labels
        if label_changes.validation_share(args):
            self.test_images = images.train[held]
            test_labels = images.train_labels[held]
        true = images.train_labels[self.train_ids]
        noisy = label_changes.noisy_labels(args, true, self.N_CLASSES)
        self._noise = noisy is not true
        self.class_order = label_changes.class_order(args, self.N_CLASSES)
        self.train_labels = self.class_order[noisy]
        self._check_cuts()
        with prefixed('--schedule'):
            self.schedule = make_schedule(_schedule_of(self, args), self.train_labels, args.seed)
        order = label_changes.task_order(args, len(self.schedule.tasks) - 1)
        if order is not None:
            if self.schedule.task_free:
                raise InputError(f'--custom_task_order: {self.schedule.spec} has no tasks')
            self.schedule = reordered(self.schedule, order)
        # methods that are not of this project may take the classes of a task for a range, as
        # Mammoth's may: labels count up as classes come
        counts_up = not (self.schedule.task_free or is_shipped(FOLDERS['models'].get(args)))
        if order is not None or counts_up:
            came = np.concatenate(self._classes_by_task())
            came = np.append(came, np.setdiff1d(np.arange(self.N_CLASSES), came))
            self.class_order = np.argsort(came)[self.class_order]
            self.train_labels = self.class_order[noisy]
        self.true_labels = self.class_order[true]
        self.test_labels = self.class_order[test_labels]

    @classmethod
    def schedule_spec(cls, args) -> str:
        return _schedule_of(cls, args)

    @classmethod
    def is_task_free(cls, args) -> bool:
        with prefixed('--schedule'):
            return is_task_free(_schedule_of(cls, args))

    @classmethod
    def get_n_splits(cls, args):
        with prefixed('--schedule'):
            return n_splits(_schedule_of(cls, args))

    def has_own_classes(self) -> bool:
        return True

    def _check_cuts(self) -> None:
        flags = 'joint', 'n_splits', 'schedule', 'inc'
        cuts = [f'--{flag}' for flag in flags if getattr(self.args, flag)]
        if cuts[1:]:
            raise InputError(f'{cuts[0]} and {cuts[1]} both cut the stream: give one of them')
        if self.args.b is not None and not self.args.inc:
            raise InputError('--b has no effect in this run: it needs --inc')

    def _classes_by_task(self) -> list:
        """Sorted labels of the classes first seen in each task."""
        seen = np.zeros(0, np.int64)
        by_task = []
        for t in range(len(self.schedule.tasks) - 1):
            new = np.setdiff1d(self.train_labels[self.schedule.task(t)[0]], seen)
            seen = np.append(seen, new)
            by_task.append(new)
        return by_task

    def _make_preprocessing(self) -> Preprocessing:
        if self.args.weights in (None, 'none'):
            return Preprocessing(
                self.args.input_size or max(_SMALLEST, *self.SIZE), self.MEAN, self.STD
            )
        if 'MEAN' in vars(self) or 'STD' in vars(self):
            warn_once(
                'MEAN and STD of the config file are not used: --weights '
                f'{self.args.weights} have their own'
            )
        return weights.load(self.args.weights, tensors=False).preprocessing(self.args.input_size)

    def task_classes(self, task: int) -> np.ndarray:
        return self._task_classes[task]

    def get_data_loaders(self) -> tuple:
        task = self.begin_task()
        ids, ends = self.schedule.task(task)
        labels = self.train_labels[ids]
        files = self.train_ids[ids]
        labels = np.where(label_changes.unlabelled(self.args, labels, task), -1, labels)
        train = InMemoryDataset(
            self.images.train[files], torch.from_numpy(labels), self.get_transform(), indexes=files
        )
        if self._noise:
            train.add_extra_return_field('true_labels', torch.from_numpy(self.true_labels[ids]))
        loader = ImageLoader(
            train,
            self.args.batch_size,
            shuffle=True,
            segment_ends=ends,
            drop_last=self.args.drop_last,
            seed=stream_seed(self.args.seed, f'shuffle {task}'),
        )
        return loader, self.test_loader(task)

    def test_loader(self, task: int) -> ImageLoader:
        """Test samples of a task's classes; with `--validation_mode complete` of all so far."""
        images = self.test_images
        labels = self.test_labels
        first = task
        if not label_changes.validation_share(self.args):  # any more: `without_validation`
            images = self.images.test
            labels = self.class_order[self.images.test_labels]
        elif self.args.validation_mode == 'complete':
            first = 0
        chosen = np.isin(labels, np.concatenate(self._task_classes[first : task + 1]))
        test = InMemoryDataset(
            images[chosen], torch.from_numpy(labels[chosen]), self._test_transform(), train=False
        )
        return ImageLoader(test, max(256, self.args.batch_size))

    def get_transform(self):
        if hasattr(self, 'TRANSFORM'):
            return _from_pil(self.TRANSFORM)
        seed = stream_seed(self.args.seed, f'augmentation {self.c_task}')
        return BatchTransform(self.preprocessing, self.PADDING, self.FLIP, seed)

    def _test_transform(self):
        if hasattr(self, 'TEST_TRANSFORM'):
            return _from_pil(self.TEST_TRANSFORM)
        return self.preprocessing

    def get_normalization_transform(self):
        return BatchTransform(self.preprocessing)

    def get_denormalization_transform(self):
        return DeNormalize(self.preprocessing.mean, self.preprocessing.std)


def _schedule_of(owner, args) -> str:
    """The schedule that the flags ask for, or the config file, or the default.

    owner: a data set, or its class; its `vars` have the constants of the config file."""
    if args.joint:
        return 'split:1'
    if args.inc:
        return f'inc:{args.inc},b={args.b or 0}'
    if args.schedule is not None:
        return args.schedule
    constants = vars(owner)
    splits = args.n_splits or constants.get('N_TASKS')
    per_task = constants.get('N_CLASSES_PER_TASK')
    if not splits and per_task:
        splits = len(per_task) if isinstance(per_task, list) else -(-owner.N_CLASSES // per_task)
    return f'split:{splits or min(owner.DEFAULT_SPLITS, owner.N_CLASSES or owner.DEFAULT_SPLITS)}'


def reordered(schedule: Schedule, order: np.ndarray) -> Schedule:
    """The schedule with its tasks in another order, each as it was."""
    parts = []
    cuts = [0]
    tasks = [0]
    for ids, ends in map(schedule.task, order):
        parts.append(ids)
        cuts += (tasks[-1] + ends).tolist()
        tasks.append(cuts[-1])
    order = np.concatenate(parts)
    return replace(schedule, order=order, cuts=np.array(cuts), tasks=np.array(tasks))


def _from_pil(transform):
    """A config file's transform of PIL images, for batches."""
    from torchvision.transforms import Compose, ToPILImage

    return for_batches(Compose([ToPILImage(), transform]))


@lru_cache(maxsize=2)
def _read_once(dataset_class, **flags):
    """The arrays of a data set, shared by all instances in a process; they are never written to."""
    images = dataset_class.read(SimpleNamespace(**flags))
    dataset_class.check(images)
    for array in images[:4]:
        array.setflags(write=False)
    return images
