"""The official files of each data set -> uint8 images (N, H, W, 3) and int64 labels (N,).

Schedules and transforms come later. Every reader returns `Images(train, train_labels, test, test_labels,
class_names)` or raises an InputError of one line that says what is missing or damaged and where it belongs.
Where pixels come from image files, `decoded_by` names the decoders: with other versions they may differ.
"""
import csv
import gzip
import hashlib
import http.client
import math
import zlib
from collections import Counter, namedtuple
from pathlib import Path

import numpy as np

from core import safe_pickle
from core.environment import warn_once
from datasets.utils.image_files import class_folders, image_files, read_images
from scroll.errors import InputError
from scroll.files.images import decoders

Images = namedtuple('Images', 'train train_labels test test_labels class_names decoded_by feature_names',
                    defaults=('', None))

_CIFAR = {
    'CIFAR10': dict(folder='cifar-10-batches-py', archive='cifar-10-python.tar.gz', names='label_names',
                    label='labels', md5='c58f30108f718f92721af3b95e74349a',
                    meta=('batches.meta', '5ff9c542aee3614f3951f8cda6e48888'),
                    train=(('data_batch_1', 'c99cafc152244af753f735de768cd75f'),
                           ('data_batch_2', 'd4bba439e000b95fd0a9bffe97cbabec'),
                           ('data_batch_3', '54ebc095f3ab1f0389bbae665268c751'),
                           ('data_batch_4', '634d18415352ddfa80567beed471001a'),
                           ('data_batch_5', '482c414d41f54cd18b22e5b47cb7c3cb')),
                    test=(('test_batch', '40351d587109b95175f43aff81a1287e'),)),
    'CIFAR100': dict(folder='cifar-100-python', archive='cifar-100-python.tar.gz', names='fine_label_names',
                     label='fine_labels', md5='eb9058c3a382ffc7106e4002c42a8d85',
                     meta=('meta', '7973b15100ade9c7d40fb424638fde48'),
                     train=(('train', '16019d7e3df5f24257cddd939b257f8d'),),
                     test=(('test', 'f0ef6b0ae62326f3e7ffdfab6717acfc'),)),
}
_CIFAR_URL = 'https://www.cs.toronto.edu/~kriz/'
_IDX = {'train': ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte'),
        'test': ('t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')}
_MINI_TEST_PER_CLASS = 100  # of 600; the paper does not say, 500 to learn from is what the ER-AML code takes


def cifar(base_path, name: str) -> Images:
    """CIFAR-10 or CIFAR-100 (`name` 'CIFAR10' or 'CIFAR100') from `<base_path>/<name>/`, or downloaded."""
    facts = _CIFAR[name]
    home = Path(base_path) / name
    folder = home / facts['folder']
    if not folder.is_dir():
        _download_cifar(home, facts)
    parts = {}
    for part in ('train', 'test'):
        batches = [_checked_pickle(folder / file, md5) for file, md5 in facts[part]]
        images = np.concatenate([b['data'] for b in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = np.concatenate([b[facts['label']] for b in batches]).astype(np.int64)
        parts[part] = np.ascontiguousarray(images), labels
    names = _checked_pickle(folder / facts['meta'][0], facts['meta'][1])[facts['names']]
    return Images(*parts['train'], *parts['test'], list(names))


def _checked_pickle(path: Path, md5: str):
    """The plain data of an official file whose MD5 is known."""
    if not path.is_file():
        raise InputError(f'{path} is missing: put the official file there, or delete {path.parent} to '
                         'download it again')
    if hashlib.md5(path.read_bytes()).hexdigest() != md5:
        raise InputError(f'{path} is damaged (its MD5 is not {md5}): delete {path.parent} and fetch it again')
    return safe_pickle.load(path)


def _download_cifar(home: Path, facts: dict) -> None:
    """Fetch the official archive into `home`, unless it is there whole, and unpack it."""
    from torchvision.datasets.utils import download_and_extract_archive  # takes a second to import
    try:
        download_and_extract_archive(_CIFAR_URL + facts['archive'], home, md5=facts['md5'])
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        raise InputError(f"{home / facts['folder']} is missing and cannot be downloaded ({error}): unpack "
                         f"{facts['archive']} from {_CIFAR_URL} into {home}") from error


def check(name: str, images) -> None:
    """InputError unless `read` of the data set `name` has returned `Images` that can be learned from."""
    if not isinstance(images, tuple) or not 5 <= len(images) <= len(Images._fields):
        raise InputError(f'{name}: read must return datasets.utils.readers.Images')
    count = len(images[4])
    for part, pixels, labels in (('training', *images[:2]), ('test', *images[2:4])):
        if (not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim not in (3, 4)
                or 0 in pixels.shape[1:] or pixels.ndim == 4 and pixels.shape[3] not in (1, 3)):
            raise InputError(f'{name}: its {part} images are {_shown(pixels)}: expected uint8 (N, H, W, 3), '
                             '(N, H, W, 1) or (N, H, W)')
        if (not isinstance(labels, np.ndarray) or labels.dtype.kind not in 'iu'
                or labels.shape != pixels.shape[:1]):
            raise InputError(f'{name}: its {part} labels are {_shown(labels)}: expected whole numbers '
                             f'({len(pixels)},), one an image')
        if len(labels) and not 0 <= labels.min() <= labels.max() < count:
            raise InputError(f'{name}: its {part} labels are {labels.min()} to {labels.max()}: expected '
                             f'0..{count - 1}, for its {count} classes')
    check_classes(name, images)


def check_classes(name: str, images: Images) -> None:
    """InputError if there is a class without training samples."""
    count = len(images.class_names)
    empty = np.flatnonzero(np.bincount(images.train_labels.astype(np.int64), minlength=count) == 0)
    if len(empty):
        raise InputError(f'{name}: there are no training samples of class {empty[0]} '
                         f'({images.class_names[empty[0]]})')


def _shown(value) -> str:
    return f'{value.dtype} {value.shape}' if isinstance(value, np.ndarray) else f'a {type(value).__name__}'


def mini_split(base_path, split: str):
    """One split of miniImageNet: images (N, 84, 84, 3), labels (N,) and wnids in sorted order.

    Reads `mini-imagenet-cache-<split>.pkl`, or `<split>.csv` (columns filename, label) beside an `images`
    folder; both below `<base_path>/MINIIMAGENET`. Images keep the order of the file within each class.
    """
    home = Path(base_path) / 'MINIIMAGENET'
    cache, table = home / f'mini-imagenet-cache-{split}.pkl', home / f'{split}.csv'
    if cache.is_file():
        content = safe_pickle.load(cache)
        try:
            images, rows = content['image_data'], content['class_dict']
            wnids = sorted(rows)
            if not all(isinstance(i, (int, np.integer)) and i >= 0 for w in wnids for i in rows[w]):
                raise ValueError('class_dict does not list rows of image_data')
            order = np.concatenate([np.asarray(rows[w], np.int64) for w in wnids])
            labels = np.repeat(np.arange(len(wnids)), [len(rows[w]) for w in wnids])
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
                raise ValueError(f'image_data has dtype {images.dtype} and shape {images.shape}')
            return np.ascontiguousarray(images[order]), labels, wnids
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise InputError(f"{cache}: expected a dict with 'image_data' and 'class_dict' "
                             f"({error})") from error
    if table.is_file():
        try:
            with open(table, newline='', encoding='utf-8', errors='replace') as file:
                lines = [(row.get('label'), row.get('filename')) for row in csv.DictReader(file)]
        except (OSError, csv.Error) as error:
            raise InputError(f'{table}: not a readable table ({error})') from error
        if not lines or not all(label and name and name not in ('.', '..') and '/' not in name
                                for label, name in lines):
            raise InputError(f'{table}: expected lines with the columns filename and label')
        lines = [(label, home / 'images' / name) for label, name in lines]
        wnids = sorted({label for label, _ in lines})
        lines.sort(key=lambda line: line[0])
        images = read_images([path for _, path in lines], 84, home)
        return images, np.array([wnids.index(label) for label, _ in lines], np.int64), wnids
    raise InputError(f'miniImageNet is missing: put mini-imagenet-cache-{split}.pkl, or {split}.csv and '
                     f'images/, into {home}')


def mini_imagenet(base_path) -> Images:
    """The 20 test classes of miniImageNet; of each class the first 100 images test, the other 500 train."""
    images, labels, wnids = mini_split(base_path, 'test')
    rank = np.concatenate([np.arange(n) for n in np.bincount(labels)])
    test = rank < _MINI_TEST_PER_CLASS
    pixels = Path(base_path) / 'MINIIMAGENET' / 'mini-imagenet-cache-test.pkl'
    decoded_by = '' if pixels.is_file() else decoders()
    return Images(images[~test], labels[~test], images[test], labels[test], wnids, decoded_by)


def digits() -> Images:
    """scikit-learn's 1,797 real handwritten digits, 8x8 grey, in 8 bits; every fifth of a class tests."""
    from sklearn.datasets import load_digits
    content = load_digits()
    images = np.repeat((content.images * (255 / 16)).round().astype(np.uint8)[..., None], 3, axis=3)
    labels = content.target.astype(np.int64)
    rank = np.zeros(len(labels), np.int64)
    for y in range(10):
        rank[labels == y] = np.arange((labels == y).sum())
    test = rank % 5 == 4
    return Images(images[~test], labels[~test], images[test], labels[test], [str(y) for y in range(10)])


def mnist(base_path, n_classes: int = 10) -> Images:
    """MNIST from its four files, grey images (N, 28, 28); of its classes the first `n_classes`.

    They lie, compressed or not, in `<base_path>/MNIST`, or where torchvision puts them below it
    (`MNIST/raw`).
    """
    home = Path(base_path) / 'MNIST'
    parts = []
    for part, names in _IDX.items():
        images, labels = (_read_idx(_idx_file(home, name), dimensions)
                          for name, dimensions in zip(names, (3, 1)))
        if len(images) != len(labels) or not len(labels) or labels.max() > 9:
            raise InputError(f'{home}: {len(images)} images and {len(labels)} labels ({part}): expected as '
                             'many, labels 0..9; fetch the files again')
        kept = labels < n_classes
        parts += [images[kept], labels[kept].astype(np.int64)]
    return Images(*parts, [str(y) for y in range(n_classes)])


def _idx_file(home: Path, name: str) -> Path:
    """Where one of MNIST's files is; InputError if it is nowhere."""
    found = [path for folder in (home, home / 'raw', home / 'MNIST' / 'raw')
             for path in (folder / name, folder / f'{name}.gz') if path.is_file()]
    if not found:
        every = ', '.join(f'{n}.gz' for names in _IDX.values() for n in names)
        raise InputError(f'{home / name}.gz is missing: put the four files of MNIST there ({every}), as they '
                         'are or unpacked')
    return found[0]


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """uint8 array of an IDX file: two zero bytes, type (8: uint8), number of dimensions, each dimension as a
    big-endian int32, values."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == '.gz' else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f'{path}: cannot be read ({error}); fetch it again') from error
    head = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:head].ljust(head - 4, b'\xff'), '>i4').tolist()
    if (content[:4] != bytes((0, 0, 8, dimensions)) or min(shape) < 0
            or len(content) != head + math.prod(shape)):
        raise InputError(f'{path}: not an IDX file of {dimensions} dimension{"s" * (dimensions > 1)}, or '
                         'damaged; fetch it again')
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def folder(data_dir, size: int) -> Images:
    """A user's own images, `<data_dir>/{train,test}/<class>/` at any depth, each resized to `size` x `size`.

    One line says how many files were left out: no images, in system folders, or outside the class folders.
    """
    home, left_out, parts = Path(data_dir), Counter(), []
    classes, _ = class_folders(home / 'train')
    if not classes:
        raise InputError(f'--data_dir {data_dir}: expected folders train/<class>/ and test/<class>/ with '
                         'images in them')
    for part in ('train', 'test'):
        names, others = class_folders(home / part)
        extra = [name for name in names if name not in classes]
        if extra:
            raise InputError(f'{home / part / extra[0]}: no such class in train/; classes are '
                             f'{", ".join(classes[:5])} ...')
        left_out += others
        left_out['outside the class folders'] += sum(p.is_file() for p in (home / part).glob('*'))
        paths, labels = [], []
        for y, name in enumerate(classes):
            files, others = image_files(home / part / name)
            if not files:
                raise InputError(f'{home / part / name}: no images; every class needs at least one in train/ '
                                 'and in test/')
            paths += files
            labels += [y] * len(files)
            left_out += others
        parts += [paths, np.array(labels, np.int64)]
    if count := left_out.total():
        kinds = ', '.join(f'{n} {kind}' for kind, n in sorted(left_out.items()) if n)
        warn_once(f'{home}: {count} files were left out: {kinds}')
    images = read_images(parts[0] + parts[2], size, home)
    train = len(parts[0])
    return Images(images[:train], parts[1], images[train:], parts[3], classes, decoders())
