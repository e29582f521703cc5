"""Official files -> arrays: tiny imitations of each layout, whole and damaged."""

import numpy as np
import pytest
import torchvision

from datasets.utils import readers
from tests.bench.test_safe_pickle import dump
from tests.conftest import refused

# -- CIFAR


class Cifar:
    """A stand-in for torchvision's, of four training and two test images."""

    base_folder = 'cifar-batches'
    filename = 'cifar.tar.gz'
    url = 'https://example.org/cifar.tar.gz'
    classes = ['cat', 'dog']

    def __init__(self, root, train=True, download=False):
        count = 4 if train else 2
        self.data = np.full((count, 32, 32, 3), count, np.uint8)
        self.targets = [i % 2 for i in range(count)]


def test_cifar(monkeypatch, tmp_path):
    monkeypatch.setattr(torchvision.datasets, 'CIFAR10', Cifar)
    images = readers.cifar(tmp_path, 'CIFAR10')
    assert images.train.tolist() == np.full((4, 32, 32, 3), 4).tolist()
    assert images.test.tolist() == np.full((2, 32, 32, 3), 2).tolist()
    assert images.train_labels.tolist() == [0, 1, 0, 1]
    assert images.test_labels.tolist() == images.test_labels.astype(np.int64).tolist() == [0, 1]
    assert images.class_names == ['cat', 'dog']
    readers.check('cifar', images)

    def fail(*_, **__):
        raise RuntimeError('Dataset not found or corrupted')

    monkeypatch.setattr(Cifar, '__init__', fail)
    home = tmp_path / 'CIFAR10'
    with refused(
        str(home / 'cifar-batches'), 'corrupted', f'cifar.tar.gz from {Cifar.url}', f'into {home}'
    ):
        readers.cifar(tmp_path, 'CIFAR10')


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


def test_a_split_that_is_missing_is_named(mini_home):
    with refused('mini-imagenet-cache-train.pkl', str(mini_home)):
        readers.mini_split(mini_home.parent, 'train')
