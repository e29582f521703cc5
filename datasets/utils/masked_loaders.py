"""Third-party data sets under Mammoth's contract, with `data` and `targets`, cut into tasks."""

import copy

import numpy as np
import torch

from core.seeded_loader import create_seeded_dataloader
from datasets.utils import label_changes
from scroll.ground.errors import InputError

_PER_SAMPLE = ('data', 'targets', 'indexes', 'task_ids')
_TEST_BATCH = 256


def take(values, rows: np.ndarray):
    """Select these rows of an array, a tensor or a list."""
    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return values[rows] if isinstance(values, np.ndarray) else [values[i] for i in rows]


class MammothDatasetWrapper(torch.utils.data.Dataset):
    """A third-party data set with the additional fields that methods hang on samples.

    Items are (input, label, un-augmented image, *extra fields) in training, else (input, label).
    Attributes of the wrapped data set (`data`, `targets`, `transform`, ...) are read from and
    written to it.

    Attributes:
        indexes: int64 (N,), positions of the samples in the wrapped data set as it was given.
        extra_return_fields: names of attributes, (N, ...) each, that items end with."""

    def __init__(self, dataset, train: bool = True):
        vars(self).update(
            dataset=dataset,
            train=train,
            indexes=torch.arange(len(dataset.targets)),
            extra_return_fields=(),
        )

    def __getattr__(self, name: str):
        # copies ask before they are filled
        if name.startswith('__') or 'dataset' not in vars(self):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value) -> None:
        if name in vars(self) or not hasattr(self.dataset, name):
            vars(self)[name] = value
        else:
            setattr(self.dataset, name, value)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple:
        item = self.dataset[index]
        if not self.train:
            return tuple(item[:2])
        if len(item) < 3:
            raise InputError(
                f'{type(self.dataset).__name__}: training items must be (input, label, '
                f'un-augmented image), not {len(item)} values'
            )
        return *item[:3], *(getattr(self, name)[index] for name in self.extra_return_fields)

    def add_extra_return_field(self, name: str, values) -> None:
        if len(values) != len(self):
            raise ValueError(f'{name}: {len(values)} values for {len(self)} samples')
        vars(self)[name] = values
        self.extra_return_fields += (name,)

    def keep(self, mask: np.ndarray) -> None:
        """Keep only the samples of a bool mask (N,)."""
        for name in (*_PER_SAMPLE, *self.extra_return_fields):
            if hasattr(self, name):
                setattr(self, name, take(getattr(self, name), np.flatnonzero(mask)))


def store_masked_loaders(train_dataset, test_dataset, setting, *of_forks) -> tuple:
    """(train loader, test loader) of the next task, also kept in `setting`.

    In this order: validation split, label noise, order of classes, the task's samples, missing
    labels. The data sets themselves stay as they were.

    train_dataset, test_dataset: with `data` (N, ...), an array, tensor or list, and `targets` (N,),
        labels of the files; `task_ids` (N,), if present, assign samples to tasks instead of the
        labels.
    setting: the `ContinualDataset`.
    of_forks: options of a fork's own, without effect."""
    task = setting.begin_task()
    args = setting.args
    train = copy.copy(train_dataset)
    test = copy.copy(test_dataset)
    labels = _labels(train, setting)
    validation = label_changes.validation_share(args) > 0
    held = np.zeros(len(labels), bool)
    if validation and type(test).__name__ != 'ValidationDataset':  # the file's own split
        held = label_changes.held_out(args, labels, train.data)
        for name in ('data', 'targets', 'task_ids'):
            if hasattr(train, name):
                setattr(test, name, take(getattr(train, name), np.flatnonzero(held)))
    order = setting.class_order
    true = labels[~held]
    test_labels = _labels(test, setting)
    noisy = label_changes.noisy_labels(args, true, setting.N_CLASSES)
    train = MammothDatasetWrapper(train)
    test = MammothDatasetWrapper(test, train=False)
    train.keep(~held)
    train.targets = torch.from_numpy(order[noisy])
    test.targets = torch.from_numpy(order[test_labels])
    if noisy is not true:
        train.add_extra_return_field('true_labels', torch.from_numpy(order[true]))
    train.keep(_belongs(train, setting, task))
    test.keep(_belongs(test, setting, task, validation and args.validation_mode == 'complete'))
    for part, kind in (train, 'training'), (test, 'test'):
        if not len(part):
            raise InputError(f'{setting.NAME}: task {task + 1} has no {kind} samples')
    train.targets[label_changes.unlabelled(args, train.targets.numpy(), task)] = -1
    setting.train_loader = create_seeded_dataloader(
        args,
        train,
        concern=f'train {task}',
        shuffle=True,
        batch_size=args.batch_size,
        drop_last=args.drop_last,
    )
    setting.test_loaders.append(
        create_seeded_dataloader(
            args,
            test,
            concern=f'test {task}',
            shuffle=False,
            batch_size=max(_TEST_BATCH, args.batch_size),
        )
    )
    return setting.train_loader, setting.test_loaders[-1]


def _labels(dataset, setting) -> np.ndarray:
    """int64 (N,): labels of the files."""
    labels = torch.as_tensor(dataset.targets).cpu().long().reshape(-1).numpy()
    wrong = labels[(labels < 0) | (labels >= setting.N_CLASSES)]
    if len(wrong):
        raise InputError(
            f'{setting.NAME}: a sample has label {wrong[0]}, but N_CLASSES is {setting.N_CLASSES}'
        )
    return labels


def _belongs(dataset, setting, task: int, and_before: bool = False) -> np.ndarray:
    """bool (N,): the samples of a task, or also of those before it."""
    joint = setting.args.joint
    if hasattr(dataset, 'task_ids') and not joint:
        first = 0 if and_before else task
        return np.isin(np.asarray(dataset.task_ids), setting.task_order[first : task + 1])
    if joint or not setting.has_own_classes():
        return np.ones(len(dataset), bool)
    first, end = setting.get_offsets(task)
    labels = dataset.targets.numpy()
    return (labels < end) & ((labels >= first) | and_before)


def fix_class_names_order(class_names: list, args) -> list:
    """Names by label in the stream; given: by label in the files."""
    order = getattr(args, 'class_order', None)
    if order is None:
        order = label_changes.class_order(args, len(class_names))
    return [class_names[i] for i in np.argsort(order)]
