"""Flags that change labels: order of classes, validation split, label noise, missing labels.

Pure functions of labels and flags, each with a random stream of its own: a larger share of the same
seed contains the smaller one, and nothing depends on tasks, class names or worker processes.
"""

import re
from fractions import Fraction

import numpy as np

from scroll.ground.errors import InputError
from scroll.ground.grid import sample_keys
from scroll.ground.randomness import numpy_stream


def class_order(args, n_classes: int) -> np.ndarray:
    """int64 (N,): the label in the stream of each class of the files.

    `--permute_classes` draws as Mammoth does, so that `--seed 1993` is the order of iCaRL's
    authors; `--custom_class_order` lists the classes in the order of their arrival."""
    custom = _custom_order(args, 'custom_class_order', n_classes, 'permute_classes')
    if custom is not None:
        return np.argsort(custom)
    if args.permute_classes:
        return np.random.RandomState(args.seed % 2**32).permutation(n_classes)
    return np.arange(n_classes)


def task_order(args, n_tasks: int):
    """int64 (T,): the tasks as they arrive (`--custom_task_order`); None without that flag."""
    others = 'custom_class_order', 'permute_classes', 'joint'
    return _custom_order(args, 'custom_task_order', n_tasks, *others)


def _custom_order(args, flag: str, count: int, *others: str):
    """int64 (count,) of the flag's '2-0-1' or '2,0,1'; None without the flag.

    InputError unless each of 0..count-1 is in it once, or if one of the other flags is given."""
    text = getattr(args, flag)
    if text is None:
        return None
    for other in others:
        if getattr(args, other):
            raise InputError(f'--{flag} and --{other} both set an order: give one of them')
    items = re.split('[,-]', str(text).replace(' ', ''))
    if sorted(items) != sorted(map(str, range(count))):
        kind = 'tasks' if 'task' in flag else 'classes'
        raise InputError(
            f'--{flag} {str(text)[:40]}: expected each of the {count} {kind} 0..{count - 1} '
            'once, joined by commas or dashes'
        )
    return np.array(list(map(int, items)), np.int64)


def pick(
    labels: np.ndarray, share: float, random: np.random.Generator, equally: bool = False
) -> np.ndarray:
    """bool (N,): a share of the samples of each class, at random, rounded to whole samples.

    equally: the same number of each class: the share of the mean size of a class, or all of it."""
    picked = np.zeros(len(labels), bool)
    classes = np.unique(labels)
    for label in classes:
        ids = random.permutation(np.flatnonzero(labels == label))
        size = len(labels) / len(classes) if equally else len(ids)
        picked[ids[: round(share * size)]] = True
    return picked


def validation_share(args) -> float:
    """`--validation` in [0, 1): it is given in percent, or, below one, as a share."""
    percent = args.validation
    if percent >= 100:
        raise InputError(
            f'--validation {percent:g}: expected percent of the training samples of a class, '
            'above 0 and below 100'
        )
    return percent if percent < 1 else percent / 100


def held_out(args, labels: np.ndarray, images) -> np.ndarray:
    """bool (N,): the training samples of the files that `--validation` sets aside.

    Drawn by the seed, a share of each class; or with `--validation_by key` about a share p / q of
    all: the samples whose key, a digest of the pixels, leaves a remainder below p when divided by
    q."""
    share = validation_share(args)
    if share and args.validation_by == 'key':
        part = Fraction(share).limit_denominator(10_000)
        return sample_keys(np.asarray(images)) % np.uint64(part.denominator) < part.numerator
    return pick(labels, share, numpy_stream(args.seed, 'validation'))


def noisy_labels(args, labels: np.ndarray, n_classes: int) -> np.ndarray:
    """int64 (N,): labels of the files, a share `--noise_rate` in each class made wrong.

    symmetric: any other class, uniformly (van Rooyen et al. 2015).
    asymmetric: the next class, in a circle (Han et al. 2018, pair flip)."""
    rate = args.noise_rate
    if not rate:
        return labels
    if n_classes < 2:
        raise InputError(f'--noise_rate {rate:g}: there is one class only, no label can be wrong')
    changed = pick(labels, rate, numpy_stream(args.seed, 'label noise'))
    shift = 1
    if args.noise_type == 'symmetric':
        shift = numpy_stream(args.seed, 'wrong labels').integers(1, n_classes, len(labels))
    return np.where(changed, (labels + shift) % n_classes, labels)


def unlabelled(args, labels: np.ndarray, task: int) -> np.ndarray:
    """bool (N,): the samples of a task whose label is withheld.

    `--label_perc` keeps the same number of labels of each class, together that share of the task
    (all of a class that has fewer); `--label_perc_by_class` keeps that share of each class."""
    by_task = args.label_perc
    by_class = args.label_perc_by_class
    if by_task < 1 and by_class < 1:
        raise InputError(
            '--label_perc and --label_perc_by_class both set the number of labels: give one'
        )
    random = numpy_stream(args.seed, f'unlabelled {task}')
    return ~pick(labels, min(by_task, by_class), random, equally=by_task < 1)


def check_labelled(args, tasks) -> None:
    """InputError if the shares of labels, rounded to whole samples, leave none in any task.

    tasks: iterable of the labels (N_t,) of each task; read up to the first that keeps a label."""
    if all(unlabelled(args, labels, task).all() for task, labels in enumerate(tasks)):
        flag = 'label_perc' if args.label_perc < 1 else 'label_perc_by_class'
        raise InputError(
            f'--{flag} {getattr(args, flag):g}: rounded to whole samples that is no '
            'label in any task; give more'
        )
