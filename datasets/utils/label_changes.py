"""What flags do to labels: the order of classes, the validation split, label noise, missing labels.

Pure functions of labels and flags. Each draws from a random stream of its own, class by class in a fixed
order, so that a larger share of the same seed contains the smaller one, and nothing depends on tasks, class
names or worker processes.
"""
import hashlib
import re
from fractions import Fraction
from pathlib import Path

import numpy as np

from scroll.archive import atomic_write
from scroll.errors import InputError
from scroll.grid import sample_keys
from scroll.randomness import numpy_stream


def option(args, name: str, default=None):
    """A flag's value; third-party arguments may lack it."""
    value = getattr(args, name, None)
    return default if value is None else value


def class_order(args, n_classes: int) -> np.ndarray:
    """int64 (N,): the label in the stream of each class of the files.

    `--permute_classes` draws as Mammoth does, so that `--seed 1993` is the order of iCaRL's authors;
    `--custom_class_order` lists the classes in the order of their arrival.
    """
    custom = option(args, 'custom_class_order')
    if custom is not None and option(args, 'permute_classes', False):
        raise InputError('--custom_class_order and --permute_classes both say how classes are ordered: give '
                         'one of them')
    if custom is not None:
        return np.argsort(permutation(custom, n_classes, '--custom_class_order', 'class'))
    if option(args, 'permute_classes', False):
        return np.random.RandomState(option(args, 'seed', 0) % 2 ** 32).permutation(n_classes)
    return np.arange(n_classes)


def task_order(args, n_tasks: int):
    """int64 (T,): the tasks as they arrive (`--custom_task_order`); None where nothing is said."""
    custom = option(args, 'custom_task_order')
    if custom is None:
        return None
    for other in ('custom_class_order', 'permute_classes', 'joint'):
        if option(args, other, False):
            raise InputError(f'--custom_task_order and --{other} both say what comes when: give one of them')
    return permutation(custom, n_tasks, '--custom_task_order', 'task')


def permutation(text: str, count: int, flag: str, what: str) -> np.ndarray:
    """'2-0-1' or '2,0,1' as an array; InputError unless each of 0..count-1 is in it once."""
    items = re.split('[,-]', str(text).replace(' ', ''))
    listed = [int(item) for item in items if re.fullmatch('[0-9]{1,9}', item)]
    if len(listed) != len(items) or sorted(listed) != list(range(count)):
        shown = text if len(str(text)) <= 40 else f'{str(text)[:37]}...'
        plural = 'classes' if what == 'class' else f'{what}s'
        raise InputError(f'{flag} {shown}: expected each of the {count} {plural} 0..{count - 1} once, joined '
                         'by commas or dashes')
    return np.array(listed, np.int64)


def pick(labels: np.ndarray, share: float, random: np.random.Generator, equally: bool = False) -> np.ndarray:
    """bool (N,): a share of the samples of each class, at random, rounded to whole samples.

    equally: of each class the same number, that share of the mean size of a class, or all that it has.
    """
    picked, classes = np.zeros(len(labels), bool), np.unique(labels)
    for label in classes:
        ids = random.permutation(np.flatnonzero(labels == label))
        picked[ids[:round(share * (len(labels) / len(classes) if equally else len(ids)))]] = True
    return picked


def validation_share(args) -> float:
    """`--validation` in [0, 1): it is given in percent, or, below one, as a share."""
    percent = option(args, 'validation', 0)
    share = percent if percent < 1 else percent / 100
    if not 0 <= share < 1:
        raise InputError(f'--validation {percent:g}: expected percent of the training samples of a class, '
                         'above 0 and below 100')
    return share


def held_out(args, labels: np.ndarray, images) -> np.ndarray:
    """bool (N,): the training samples of the files that `--validation` sets aside.

    Drawn by the seed, a share of each class; or with `--validation_by key` about a share p / q of all (in
    lowest terms): those whose key, a digest of the pixels, leaves a remainder below p when divided by q.
    """
    if option(args, 'validation_by', 'seed') == 'key' and validation_share(args):
        share = Fraction(validation_share(args)).limit_denominator(10_000)
        return sample_keys(np.asarray(images)) % np.uint64(share.denominator) < share.numerator
    return pick(labels, validation_share(args), numpy_stream(option(args, 'seed', 0), 'validation'))


def noisy_labels(args, labels: np.ndarray, n_classes: int, confused_with: dict = None) -> np.ndarray:
    """int64 (N,): labels of the files, of which `--noise_rate` in each class are wrong.

    `symmetric`: any other class, uniformly (van Rooyen et al. 2015). `asymmetric`: the class that this one is
    confused with (Patrini et al. 2017), `confused_with[c]`; where the data set names none at all, the next
    one, in a circle.

    Unless `--disable_noisy_labels_cache 1`, they are kept below `<base_path>/<cache_path_noisy_labels>`, and
    taken from there.
    """
    rate, kind = option(args, 'noise_rate', 0), option(args, 'noise_type', 'symmetric')
    seed = option(args, 'seed', 0)
    if not 0 <= rate <= 1:
        raise InputError(f'--noise_rate {rate:g}: expected a share of the labels, 0..1')
    if not rate:
        return labels
    if n_classes < 2:
        raise InputError(f'--noise_rate {rate:g}: there is one class only, no label can be wrong')
    path = None
    if not option(args, 'disable_noisy_labels_cache', False):
        digest = hashlib.sha256(labels.astype('<i8').tobytes()).hexdigest()[:16]
        name = f'{option(args, "dataset", "data")}-{kind}-{rate:g}-seed{seed}-{digest}.npy'
        path = Path(args.base_path) / option(args, 'cache_path_noisy_labels', 'noisy_labels') / name
        if path.is_file():
            return _load(path, labels, n_classes)
    changed = pick(labels, rate, numpy_stream(seed, 'label noise'))
    if kind.startswith('asym'):
        other = (np.arange(n_classes) + 1) % n_classes
        if confused_with:
            other = np.array([confused_with.get(c, c) for c in range(n_classes)])
        wrong = other[labels]
    else:
        wrong = (labels + numpy_stream(seed, 'wrong labels').integers(1, n_classes, len(labels))) % n_classes
    noisy = np.where(changed, wrong, labels)
    if path is not None:
        _save(path, noisy)
    return noisy


def _load(path: Path, labels: np.ndarray, n_classes: int) -> np.ndarray:
    try:
        noisy = np.load(path, allow_pickle=False)
    except Exception as error:              # damaged headers raise almost anything
        raise InputError(f'{path}: cannot be read ({" ".join(str(error).split())[:300]}); delete it, or give '
                         '--disable_noisy_labels_cache 1') from error
    fits = isinstance(noisy, np.ndarray) and noisy.shape == labels.shape and noisy.dtype == np.int64
    if not fits or noisy.min() < 0 or noisy.max() >= n_classes:
        raise InputError(f'{path}: does not hold the labels of this data set: delete it')
    return noisy


def _save(path: Path, noisy: np.ndarray) -> None:
    try:
        with atomic_write(path) as file:
            np.save(file, noisy)
    except OSError as error:
        raise InputError(f'{path}: cannot be written ({error.strerror}); give another --base_path, or '
                         '--disable_noisy_labels_cache 1') from error


def unlabelled(args, labels: np.ndarray, task: int) -> np.ndarray:
    """bool (N,): the samples of a task whose label is withheld.

    `--label_perc` keeps the same number of labels of each class, together that share of the task (all of a
    class that has fewer); `--label_perc_by_class` keeps that share of each class.
    """
    by_task, by_class = option(args, 'label_perc', 1), option(args, 'label_perc_by_class', 1)
    for flag, share in (('label_perc', by_task), ('label_perc_by_class', by_class)):
        if not 0 < share <= 1:
            raise InputError(f'--{flag} {share:g}: expected a share of the samples, above 0 and up to 1')
    if by_task < 1 and by_class < 1:
        raise InputError('--label_perc and --label_perc_by_class both say how many labels there are: give '
                         'one of them')
    random = numpy_stream(option(args, 'seed', 0), f'unlabelled {task}')
    if by_task < 1:
        return ~pick(labels, by_task, random, equally=True)
    return ~pick(labels, by_class, random)


def check_labelled(args, tasks) -> None:
    """InputError if the shares of labelled samples, rounded to whole samples, leave no label at all.

    Args:
        tasks: iterable of the labels (N_t,) of each task; read up to the first in which a label is left.
    """
    if all(unlabelled(args, labels, task).all() for task, labels in enumerate(tasks)):
        flag = next(name for name in ('label_perc', 'label_perc_by_class') if option(args, name, 1) < 1)
        raise InputError(f'--{flag} {option(args, flag):g}: rounded to whole samples that is no label in any '
                         'task; give more')
