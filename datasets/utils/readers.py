"""The official files of each data set -> `Images`: uint8 images (N, H, W, 3) and int64 labels (N,).

An InputError of one line says what is missing or damaged and where it belongs. `decoded_by` names
the decoders of image files: other versions may give other pixels.
"""

import http.client
from collections import namedtuple
from pathlib import Path

import numpy as np

from core import safe_pickle
from core.environment import warn_once
from datasets.utils.image_files import class_folders, image_files, read_images
from scroll.embedding.images import check_images
from scroll.files.images import decoders
from scroll.ground.errors import InputError

# labels: those of the files, where they are other than 0..K-1
Images = namedtuple(
    'Images',
    'train train_labels test test_labels class_names decoded_by feature_names labels',
    defaults=('', None, None),
)
# of 600; the paper does not say, the ER-AML code learns from 500
_MINI_TEST_PER_CLASS = 100


def cifar(base_path, name: str) -> Images:
    """CIFAR-10 or CIFAR-100 from `<base_path>/<name>/`, or downloaded.

    torchvision reads only files whose MD5 is that of the official ones.
    name: 'CIFAR10' or 'CIFAR100'."""
    from torchvision import datasets  # takes a second to import

    kind = getattr(datasets, name)
    home = Path(base_path) / name
    try:
        train = kind(home, True, download=True)
        test = kind(home, False)
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        raise InputError(
            f'{home / kind.base_folder} is missing or damaged, and cannot be downloaded '
            f'({error}): unpack {kind.filename} from {kind.url} into {home}'
        ) from error
    arrays = []
    for part in (train, test):
        arrays += [np.ascontiguousarray(part.data), np.array(part.targets, np.int64)]
    return Images(*arrays, list(train.classes))


def check(name: str, images) -> None:
    """InputError unless `read` of the data set `name` returned `Images` that can be learned."""
    if not isinstance(images, Images):
        raise InputError(f'{name}: read must return datasets.utils.readers.Images')
    count = len(images.class_names)
    for part, pixels, labels in (('training', *images[:2]), ('test', *images[2:4])):
        if not isinstance(pixels, np.ndarray) or not isinstance(labels, np.ndarray):
            raise InputError(f'{name}: its {part} images and labels must be arrays of numpy')
        check_images(pixels, f'{name}: {part} images')
        if (
            labels.dtype.kind not in 'iu'
            or labels.shape != (len(pixels),)
            or not np.isin(labels, np.arange(count)).all()
        ):
            raise InputError(
                f'{name}: its {part} labels are {labels.dtype} {labels.shape}: expected whole '
                f'numbers ({len(pixels)},), one an image, 0..{count - 1} for its {count} classes'
            )
    check_classes(name, images)


def check_classes(name: str, images: Images) -> None:
    """InputError if there is a class without training samples."""
    empty = set(range(len(images.class_names))) - set(images.train_labels.tolist())
    if empty:
        first = min(empty)
        label = images.class_names[first]
        raise InputError(f'{name}: there are no training samples of class {first} ({label})')


def mini_split(base_path, split: str) -> tuple:
    """One split of miniImageNet: images (N, 84, 84, 3), labels (N,), wnids in sorted order.

    From `<base_path>/MINIIMAGENET/mini-imagenet-cache-<split>.pkl`. Images keep the order of the
    file within each class."""
    path = Path(base_path) / 'MINIIMAGENET' / f'mini-imagenet-cache-{split}.pkl'
    if not path.is_file():
        raise InputError(
            f'miniImageNet is missing: put {path.name} into {path.parent}: docs/own-data.md'
        )
    content = safe_pickle.load(path)
    try:
        images = content['image_data']
        rows = content['class_dict']
        wnids = sorted(rows)
        if not all(isinstance(i, (int, np.integer)) and i >= 0 for w in wnids for i in rows[w]):
            raise ValueError('class_dict does not list rows of image_data')
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f'image_data has dtype {images.dtype} and shape {images.shape}')
        order = np.concatenate([np.asarray(rows[w]) for w in wnids])
        labels = np.repeat(np.arange(len(wnids)), [len(rows[w]) for w in wnids])
        return np.ascontiguousarray(images[order]), labels, wnids
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(
            f"{path}: expected a dict with 'image_data' and 'class_dict' ({error})"
        ) from error


def mini_imagenet(base_path) -> Images:
    """The 20 test classes of miniImageNet: of each, 100 images to test and 500 to train."""
    images, labels, wnids = mini_split(base_path, 'test')
    test = rank(labels) < _MINI_TEST_PER_CLASS
    return Images(images[~test], labels[~test], images[test], labels[test], wnids)


def rank(labels: np.ndarray) -> np.ndarray:
    """int64 (N,): how many samples of its class come before each sample."""
    import pandas as pd

    return pd.Series(labels).groupby(labels).cumcount().to_numpy()


def digits() -> Images:
    """scikit-learn's 1,797 handwritten digits, 8x8, grey, 8 bits; every fifth of a class tests."""
    from sklearn.datasets import load_digits

    content = load_digits()
    grey = (content.images * (255 / 16)).round().astype(np.uint8)
    images = np.repeat(grey[..., None], 3, axis=3)
    labels = content.target.astype(np.int64)
    test = rank(labels) % 5 == 4
    names = [str(y) for y in range(10)]
    return Images(images[~test], labels[~test], images[test], labels[test], names)


def folder(data_dir, size: int) -> Images:
    """A user's own images, `<data_dir>/{train,test}/<class>/` at any depth, of `size` x `size`.

    A warning counts the files left out: no images, hidden, or outside the class folders."""
    home = Path(data_dir)
    left_out = 0
    paths = []
    labels = []
    classes = class_folders(home / 'train')
    if not classes:
        raise InputError(
            f'--data_dir {data_dir}: expected folders train/<class>/ and test/<class>/ with '
            'images in them'
        )
    for part in ('train', 'test'):
        for name in class_folders(home / part):
            if name not in classes:
                raise InputError(
                    f'{home / part / name}: no such class in train/; classes are '
                    f'{", ".join(classes[:5])} ...'
                )
        left_out += sum(path.is_file() for path in (home / part).glob('*'))
        train = len(paths)  # in the end: where the test images begin
        for y, name in enumerate(classes):
            files, others = image_files(home / part / name)
            if not files:
                raise InputError(
                    f'{home / part / name}: no images; every class needs at least one in train/ '
                    'and in test/'
                )
            paths += files
            labels += [y] * len(files)
            left_out += others
    if left_out:
        warn_once(
            f'{home}: {left_out} files were left out: no images, hidden, or outside the class '
            'folders'
        )
    images = read_images(paths, size)
    labels = np.array(labels, np.int64)
    parts = images[:train], labels[:train], images[train:], labels[train:]
    return Images(*parts, classes, decoders(), labels=classes)
