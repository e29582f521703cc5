"""The official files of each data set -> `Images`: uint8 images (N, H, W, 3) and int64 labels (N,).

An InputError of one line says what is missing or damaged and where it belongs. `decoded_by` names the
decoders of image files: other versions may give other pixels.
"""
import gzip
import hashlib
import http.client
import math
import zlib
from collections import namedtuple
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
        kind, shape = _kind(pixels)
        if kind != 'uint8' or len(shape) < 3 or 0 in shape[1:] or shape[3:] not in ((), (1,), (3,)):
            raise InputError(f'{name}: its {part} images are {kind} {shape}: expected uint8 (N, H, W, 3), '
                             '(N, H, W, 1) or (N, H, W)')
        kind, shape = _kind(labels)
        if not kind.startswith(('int', 'uint')) or shape != (len(pixels),):
            raise InputError(f'{name}: its {part} labels are {kind} {shape}: expected whole numbers '
                             f'({len(pixels)},), one an image')
        if len(labels) and not 0 <= labels.min() <= labels.max() < count:
            raise InputError(f'{name}: its {part} labels are {labels.min()} to {labels.max()}: expected '
                             f'0..{count - 1}, for its {count} classes')
    check_classes(name, images)


def _kind(values) -> tuple:
    if isinstance(values, np.ndarray):
        return str(values.dtype), values.shape
    return f'a {type(values).__name__}', ()


def check_classes(name: str, images: Images) -> None:
    """InputError if there is a class without training samples."""
    empty = set(range(len(images.class_names))) - set(images.train_labels.tolist())
    if empty:
        first = min(empty)
        raise InputError(f'{name}: there are no training samples of class {first} '
                         f'({images.class_names[first]})')


def mini_split(base_path, split: str) -> tuple:
    """One split of miniImageNet: images (N, 84, 84, 3), labels (N,) and wnids in sorted order.

    From `mini-imagenet-cache-<split>.pkl`, or from `<split>.csv` (columns filename, label) and `images/`, in
    `<base_path>/MINIIMAGENET`. Images keep the order of the file within each class.
    """
    home = Path(base_path) / 'MINIIMAGENET'
    cache, table = home / f'mini-imagenet-cache-{split}.pkl', home / f'{split}.csv'
    if cache.is_file():
        return _mini_pickle(cache)
    if table.is_file():
        return _mini_table(table, home / 'images')
    raise InputError(f'miniImageNet is missing: put mini-imagenet-cache-{split}.pkl, or {split}.csv and '
                     f'images/, into {home}')


def _mini_pickle(path: Path) -> tuple:
    content = safe_pickle.load(path)
    try:
        images, rows = content['image_data'], content['class_dict']
        wnids = sorted(rows)
        if not all(isinstance(i, (int, np.integer)) for w in wnids for i in rows[w]):  # of lists of lists
            raise ValueError('class_dict does not list rows of image_data')
        order = np.concatenate([np.asarray(rows[w]) for w in wnids])
        labels = np.repeat(np.arange(len(wnids)), [len(rows[w]) for w in wnids])
        if order.dtype.kind not in 'iu' or order.ndim != 1 or order.min() < 0:
            raise ValueError('class_dict does not list rows of image_data')
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
            raise ValueError(f'image_data has dtype {images.dtype} and shape {images.shape}')
        return np.ascontiguousarray(images[order]), labels, wnids
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: expected a dict with 'image_data' and 'class_dict' ({error})") from error


def _mini_table(path: Path, home: Path) -> tuple:
    import pandas
    try:
        table = pandas.read_csv(path, dtype=str, na_filter=False, encoding_errors='replace')
        table = table.sort_values('label', kind='stable')
        wnids, files = sorted(set(table.label)), table.filename.tolist()
        if not files or '' in wnids or not all(Path(name).name == name and name.isprintable()
                                               for name in files):
            raise ValueError('an empty label, or a file name with folders or control characters')
        labels = np.searchsorted(wnids, table.label.tolist())
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f'{path}: expected lines with the columns filename and label '
                         f'({" ".join(str(error).split())[:200]})') from error
    return read_images([home / name for name in files], 84, home.parent), labels, wnids


def mini_imagenet(base_path) -> Images:
    """The 20 test classes of miniImageNet; of each class the first 100 images test, the other 500 train."""
    images, labels, wnids = mini_split(base_path, 'test')
    test = rank(labels) < _MINI_TEST_PER_CLASS
    from_pickle = (Path(base_path) / 'MINIIMAGENET' / 'mini-imagenet-cache-test.pkl').is_file()
    return Images(images[~test], labels[~test], images[test], labels[test], wnids,
                  '' if from_pickle else decoders())


def rank(labels: np.ndarray) -> np.ndarray:
    """int64 (N,): how many samples of its class come before each sample."""
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        ids = np.flatnonzero(labels == label)
        rank[ids] = np.arange(len(ids))
    return rank


def digits() -> Images:
    """scikit-learn's 1,797 real handwritten digits, 8x8 grey, in 8 bits; every fifth of a class tests."""
    from sklearn.datasets import load_digits
    content = load_digits()
    images = np.repeat((content.images * (255 / 16)).round().astype(np.uint8)[..., None], 3, axis=3)
    labels = content.target.astype(np.int64)
    test = rank(labels) % 5 == 4
    return Images(images[~test], labels[~test], images[test], labels[test], [str(y) for y in range(10)])


def mnist(base_path, n_classes: int = 10) -> Images:
    """MNIST from its four files, grey images (N, 28, 28); of its classes the first `n_classes`.

    They lie, compressed or not, in `<base_path>/MNIST` or its `raw` or `MNIST/raw`, as torchvision has them.
    """
    home, parts = Path(base_path) / 'MNIST', []
    for part in ('train', 't10k'):
        images, labels = (_read_idx(home, f'{part}-{kind}-ubyte') for kind in ('images-idx3', 'labels-idx1'))
        if len(images) != len(labels) or not len(labels) or labels.max() > 9:
            raise InputError(f'{home}: {len(images)} images and {len(labels)} labels ({part}): expected the '
                             'same number, labels 0..9; fetch the files again')
        kept = labels < n_classes
        parts += [images[kept], labels[kept].astype(np.int64)]
    return Images(*parts, [str(y) for y in range(n_classes)])


def _read_idx(home: Path, name: str) -> np.ndarray:
    """uint8 array of an IDX file, plain or .gz: two zero bytes, type (8: uint8), number of dimensions, each
    dimension as a big-endian int32, values."""
    path = next((path for folder in (home, home / 'raw', home / 'MNIST' / 'raw')
                 for path in (folder / name, folder / f'{name}.gz') if path.is_file()), None)
    if path is None:
        raise InputError(f'{home / name}.gz is missing: put the four files of MNIST there ({{train,t10k}}-'
                         '{images-idx3,labels-idx1}-ubyte.gz), as they are or unpacked')
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == '.gz' else content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f'{path}: cannot be read ({error}); fetch it again') from error
    dimensions = 3 if 'idx3' in name else 1
    head = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:head].ljust(head - 4, b'\xff'), '>i4').tolist()
    if (content[:4] != bytes((0, 0, 8, dimensions)) or min(shape) < 0
            or len(content) != head + math.prod(shape)):
        raise InputError(f'{path}: no IDX file of {dimensions} dimensions, or damaged; fetch it again')
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def folder(data_dir, size: int) -> Images:
    """A user's own images, `<data_dir>/{train,test}/<class>/` at any depth, each resized to `size` x `size`.

    One line says how many files were left out: no images, hidden, or outside the class folders.
    """
    home, left_out, paths, labels = Path(data_dir), 0, [], []
    classes = class_folders(home / 'train')
    if not classes:
        raise InputError(f'--data_dir {data_dir}: expected folders train/<class>/ and test/<class>/ with '
                         'images in them')
    for part in ('train', 'test'):
        if extra := [name for name in class_folders(home / part) if name not in classes]:
            raise InputError(f'{home / part / extra[0]}: no such class in train/; classes are '
                             f'{", ".join(classes[:5])} ...')
        left_out += sum(path.is_file() for path in (home / part).glob('*'))
        train = len(paths)              # in the end: where the test images begin
        for y, name in enumerate(classes):
            files, others = image_files(home / part / name)
            if not files:
                raise InputError(f'{home / part / name}: no images; every class needs at least one in train/ '
                                 'and in test/')
            paths += files
            labels += [y] * len(files)
            left_out += others
    if left_out:
        warn_once(f'{home}: {left_out} files were left out: no images, hidden, or outside the class folders')
    images, labels = read_images(paths, size, home), np.array(labels, np.int64)
    return Images(images[:train], labels[:train], images[train:], labels[train:], classes, decoders())
