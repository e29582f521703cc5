"""Official files -> arrays: tiny imitations of each layout, whole and damaged."""

import hashlib
import shutil
import tarfile

import numpy as np
import pytest
import torchvision
from PIL import Image

from datasets.utils import readers
from scroll.files.images import decoders
from tests.bench.test_safe_pickle import dump
from tests.conftest import refused

# -- CIFAR


def md5(path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture(params=['CIFAR10', 'CIFAR100'])
def cifar_home(request, tmp_path, monkeypatch):
    """<base>/<name> with a tiny data set in the official layout; the MD5 sums are those of its
    files.

    Sample i's pixel (channel, row, column) is (i + channel * 7 + row * 3 + column) % 256."""
    kind = getattr(torchvision.datasets, request.param)
    folder = tmp_path / request.param / kind.base_folder
    folder.mkdir(parents=True)
    channel, row, column = np.ogrid[:3, :32, :32]
    label = 'labels' if request.param == 'CIFAR10' else 'fine_labels'
    count = 0
    for part in ('train_list', 'test_list'):
        files = []
        for file, _ in getattr(kind, part):
            ids = np.arange(count, count + 4)
            count += 4
            data = ids[:, None, None, None] + channel * 7 + row * 3 + column
            content = {label: (ids % 10).tolist(), 'data': data.astype(np.uint8).reshape(4, 3072)}
            dump(folder / file, content, python2=True)
            files.append([file, md5(folder / file)])
        monkeypatch.setattr(kind, part, files)
    file = folder / kind.meta['filename']
    dump(file, {kind.meta['key']: [f'class {i}' for i in range(10)]}, python2=True)
    monkeypatch.setattr(kind, 'meta', kind.meta | {'md5': md5(file)})
    monkeypatch.setattr(kind, 'url', (tmp_path / 'nowhere').as_uri())
    return tmp_path / request.param


@pytest.mark.parametrize('by_hand', [False, True], ids=['unpacked', 'archive put there by hand'])
def test_cifar_files_are_read_in_order_with_colours_last(cifar_home, by_hand, monkeypatch):
    kind = getattr(torchvision.datasets, cifar_home.name)
    if by_hand:
        with tarfile.open(cifar_home / kind.filename, 'w:gz') as tar:
            tar.add(cifar_home / kind.base_folder, kind.base_folder)
        shutil.rmtree(cifar_home / kind.base_folder)
        monkeypatch.setattr(kind, 'tgz_md5', md5(cifar_home / kind.filename))
    images = readers.cifar(cifar_home.parent, cifar_home.name)
    count = 20 if cifar_home.name == 'CIFAR10' else 4
    assert images.train.shape == (count, 32, 32, 3)
    assert images.train.dtype == np.uint8
    ids = np.arange(count + 4)
    labels = np.concatenate([images.train_labels, images.test_labels])
    np.testing.assert_array_equal(labels, ids % 10)
    row, column, channel = np.ogrid[:32, :32, :3]
    expected = (ids[:, None, None, None] + channel * 7 + row * 3 + column) % 256
    np.testing.assert_array_equal(np.concatenate([images.train, images.test]), expected)
    assert images.class_names == [f'class {i}' for i in range(10)]


def test_cifar_that_is_damaged_or_missing_is_named(cifar_home):
    kind = getattr(torchvision.datasets, cifar_home.name)
    folder = cifar_home / kind.base_folder
    for file, damage in (
        (kind.train_list[-1][0], b'!'),
        (kind.meta['filename'], b'?'),
        (kind.test_list[0][0], None),
    ):
        path = folder / file
        whole = (folder / file).read_bytes()
        path.write_bytes(whole[:-1] + damage) if damage else path.unlink()
        with refused(str(folder), kind.filename, f'into {cifar_home}'):
            readers.cifar(cifar_home.parent, cifar_home.name)
        path.write_bytes(whole)


# -- miniImageNet

WNIDS = ['n03', 'n01', 'n02']  # not sorted, as in the official dict
SIZES = [103, 101, 102]


def flat(values) -> np.ndarray:
    return np.broadcast_to(
        np.asarray(values, np.uint8)[:, None, None, None], (len(values), 84, 84, 3)
    )


@pytest.fixture
def mini_home(tmp_path):
    """The pickle layout: the samples of a class are spread over the file; a sample's value is its
    rank in its class.
    """
    owner = np.random.default_rng(0).permutation(np.repeat(np.arange(3), SIZES))
    values = np.zeros(len(owner), np.uint8)
    rows = {}
    for i, wnid in enumerate(WNIDS):
        rows[wnid] = np.flatnonzero(owner == i).tolist()
        values[rows[wnid]] = np.arange(len(rows[wnid])) + 10 * i
    home = tmp_path / 'MINIIMAGENET'
    home.mkdir()
    content = {'image_data': np.ascontiguousarray(flat(values)), 'class_dict': rows}
    dump(home / 'mini-imagenet-cache-test.pkl', content)
    return home


def test_the_first_hundred_of_a_class_test_and_the_rest_train(mini_home):
    images = readers.mini_imagenet(mini_home.parent)
    assert images.class_names == ['n01', 'n02', 'n03']
    np.testing.assert_array_equal(images.test_labels, np.repeat([0, 1, 2], 100))
    np.testing.assert_array_equal(images.train_labels, [0, 1, 1, 2, 2, 2])
    tested = np.concatenate([np.arange(100) + base for base in (10, 20, 0)])
    np.testing.assert_array_equal(images.test, flat(tested))
    np.testing.assert_array_equal(images.train, flat([110, 120, 121, 100, 101, 102]))
    assert images.train.dtype == np.uint8


def test_a_split_is_read_by_its_name_or_named(tmp_path):
    home = tmp_path / 'MINIIMAGENET'
    home.mkdir()
    images = np.ascontiguousarray(flat([5, 1, 6, 2]))
    content = {'image_data': images, 'class_dict': {'n02': [0, 2], 'n01': [1, 3]}}
    dump(home / 'mini-imagenet-cache-train.pkl', content)
    images, labels, wnids = readers.mini_split(tmp_path, 'train')
    assert wnids == ['n01', 'n02']
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(images, flat([1, 2, 5, 6]))
    with refused('mini-imagenet-cache-test.pkl', str(home)):
        readers.mini_imagenet(tmp_path)


# -- digits


def test_digits():
    from sklearn.datasets import load_digits

    images = readers.digits()
    for y in range(10):
        tested = (images.test_labels == y).sum()
        assert tested == (tested + (images.train_labels == y).sum()) // 5
    every = np.concatenate([images.train, images.test])
    assert every.shape == (1797, 8, 8, 3)
    assert every.max() == 255
    assert (every == every[..., :1]).all()
    original = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    expected = sorted(image.tobytes() for image in original)
    assert sorted(image[..., 0].tobytes() for image in every) == expected


# -- a user's folder


@pytest.fixture
def home(tmp_path):
    """train and test of two classes, in four kinds of images."""
    colours = {
        'b/1.png': ('RGB', (10, 20, 30)),
        'b/2.png': ('L', 77),
        'a/3.png': ('RGBA', (1, 2, 3, 128)),
        'a/4.gif': ('P', 0),
        'a/5.bmp': ('1', 1),
    }
    for part in ('train', 'test'):
        for name, (mode, colour) in colours.items():
            path = tmp_path / 'own' / part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new(mode, (84, 84), colour).save(path)
        (tmp_path / 'own' / part / 'a' / '.hidden').write_text('not an image')
    return tmp_path / 'own'


def test_a_folder_of_grey_and_coloured_images(home):
    images = readers.folder(home, 84)
    assert images.class_names == ['a', 'b']
    assert images.train_labels.tolist() == images.test_labels.tolist() == [0, 0, 0, 1, 1]
    assert images.train.shape == (5, 84, 84, 3)
    assert images.train.dtype == np.uint8
    assert images.decoded_by == decoders()
    assert [image[40, 40].tolist() for image in images.train] == [
        [128, 128, 129],
        [0, 0, 0],
        [255] * 3,
        [10, 20, 30],
        [77] * 3,
    ]
    with refused(str(home / 'none'), 'train/<class>/'):
        readers.folder(home / 'none', 84)


def file_for_folder(home):
    (home / 'test').rename(home / 'x')
    (home / 'test').write_text('')


def unknown_class(home):
    (home / 'test' / 'b').rename(home / 'test' / 'c')


def empty_in_test(home):
    for path in (home / 'test' / 'b').iterdir():
        path.unlink()


def empty_in_train(home):
    (home / 'train' / 'empty').mkdir()


def no_train(home):
    (home / 'train').rename(home / 'training')


@pytest.mark.parametrize(
    'damage, words',
    [
        (file_for_folder, ['test']),
        (unknown_class, ['test/c', 'no such class in train/']),
        (empty_in_test, ['test/b', 'no images']),
        (empty_in_train, ['train/empty', 'no images']),
        (no_train, ['train/<class>/', '--data_dir']),
    ],
)
def test_damage_to_a_folder_is_named(home, damage, words):
    damage(home)
    with refused(*words):
        readers.folder(home, 84)
