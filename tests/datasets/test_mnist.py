"""The four streams of MNIST, made from tiny files in its format, and what is said where files are missing or damaged."""
import gzip

import numpy as np
import pytest
import torch
from torchvision.transforms.functional import rotate

from bench.run.building import initialize
from bench.run.training import train
from datasets import get_dataset
from datasets.mnist_360 import in_pairs, progress
from datasets.utils import readers
from tests.conftest import refused


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, '>i4').tobytes() + array.astype(np.uint8).tobytes()


def write_mnist(folder, sizes=(300, 100), packed=True):
    """A bar whose height says the digit, on noise."""
    folder.mkdir(parents=True, exist_ok=True)
    random, parts = np.random.default_rng(0), []
    for split, count in zip(('train', 't10k'), sizes):
        labels = np.arange(count) % 10
        images = random.integers(0, 60, (count, 28, 28))
        for image, y in zip(images, labels):
            image[6 + y:9 + y, 4:22] = 255
        for name, array in ((f'{split}-images-idx3-ubyte', images), (f'{split}-labels-idx1-ubyte', labels)):
            if packed:
                (folder / f'{name}.gz').write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
        parts += [images.astype(np.uint8), labels]
    return parts


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp('data')
    write_mnist(folder / 'MNIST')
    return folder


@pytest.fixture
def arguments(parse, base):
    def build(dataset, *flags, model='sgd'):
        lr = [] if model == 'scroll' else ['--lr', '0.1']
        return parse(model, '--weights', 'none', '--device', 'cpu', *lr, *flags, dataset=dataset, base_path=base)
    return build


@pytest.mark.parametrize('below, packed', [('.', True), ('raw', True), ('MNIST/raw', False)])
def test_files_are_found_packed_or_not_and_where_torchvision_puts_them(tmp_path, below, packed):
    parts = write_mnist(tmp_path / 'MNIST' / below, (50, 20), packed)
    for mine, theirs in zip(readers.mnist(tmp_path), parts):
        np.testing.assert_array_equal(mine, theirs)
    few = readers.mnist(tmp_path, 9)
    assert set(few.train_labels) == set(range(9)) and len(few.train) == 45


def test_missing_and_damaged_files_are_named(tmp_path):
    home = tmp_path / 'MNIST'
    with refused(str(home / 'train-images-idx3-ubyte.gz'), 'missing'):
        readers.mnist(tmp_path)
    write_mnist(home, (50, 20), packed=False)
    path = home / 'train-labels-idx1-ubyte'
    good = path.read_bytes()
    for bad in (good[:-1], good + b'0', good[:6], b'\x00\x00\x0d\x01' + good[4:], b''):
        path.write_bytes(bad)
        with refused(str(path), 'damaged'):
            readers.mnist(tmp_path)
    path.write_bytes(idx(np.arange(49) % 10))
    with refused(str(home), '50 images and 49 labels'):
        readers.mnist(tmp_path)


@pytest.mark.parametrize('dataset, batch, tasks, setting', [
    ('seq-mnist', 64, 5, 'class-il'), ('perm-mnist', 128, 20, 'domain-il'), ('rot-mnist', 128, 20, 'domain-il'),
    ('mnist-360', 16, 1, 'general-continual')])
def test_settings_are_mammoths(arguments, dataset, batch, tasks, setting):
    args = arguments(dataset)
    assert (args.batch_size, args.n_epochs, args.backbone, args.weights) == (batch, 1, 'mnistmlp', 'none')
    stream = get_dataset(args)
    assert (tasks, setting, 9 if dataset == 'mnist-360' else 10) == (stream.N_TASKS, stream.SETTING, stream.N_CLASSES)
    loader = stream.get_data_loaders()[0]
    inputs, labels, plain = next(iter(loader))
    assert inputs.shape == plain.shape == (min(batch, len(loader.dataset)), 1, 28, 28)
    assert torch.equal(inputs, plain) and inputs.min() >= 0 and inputs.max() == 1        # neither normalised nor augmented


@pytest.mark.parametrize('dataset, column, at_least', [('seq-mnist', 'task5', 60), ('perm-mnist', 'task2', 60),
                                                       ('rot-mnist', 'task2', 60), ('mnist-360', 'task1', 0)])
def test_a_run(arguments, dataset, column, at_least):
    """The stand-in has too few images to learn MNIST-360 in one pass, where digits stand on their heads."""
    stop = ['--stop_after', '2'] if column == 'task2' else []
    row = train(*initialize(arguments(dataset, '--buffer_size', '50', '--batch_size', '4', *stop, model='er')))
    assert at_least <= row[column] <= 100


def test_scroll_learns_from_a_network_for_grey_images(arguments):
    row = train(*initialize(arguments('seq-mnist', '--buffer_size', '0', model='scroll')))
    assert row['task5'] > 60


@pytest.mark.parametrize('dataset', ['perm-mnist', 'rot-mnist'])
def test_every_domain_has_all_images_each_changed_alike(arguments, base, dataset):
    stream, files = get_dataset(arguments(dataset)), readers.mnist(base)

    def first_domain(*flags):
        loader, _ = get_dataset(arguments(dataset, *flags)).get_data_loaders()
        return loader.dataset.data[np.argsort(loader.dataset.indexes)].tobytes()
    seen = []
    for task in range(3):
        train_loader, test_loader = stream.get_data_loaders()
        assert sorted(train_loader.dataset.indexes) == list(range(300)) and stream.get_offsets() == (0, 10)
        data, indexes = train_loader.dataset.data, train_loader.dataset.indexes
        np.testing.assert_array_equal(train_loader.dataset.targets, files.train_labels[indexes])
        change = stream.domain(task)
        for mine, plain in ((data[0], files.train[indexes[0]]), (test_loader.dataset.data[5], files.test[5])):
            np.testing.assert_array_equal(mine, change(torch.from_numpy(plain.astype(np.float32))[None])[0])
        seen.append(data[np.argsort(indexes)].tobytes())
    assert len(set(seen)) == 3 and first_domain() == seen[0] != first_domain('--seed', '5')


def test_flags_that_act_on_labels_act_on_domains(arguments):
    stream = get_dataset(arguments('rot-mnist', '--validation', '20', '--permute_classes', '1', '--noise_rate', '0.1',
                                   '--label_perc', '0.5'))
    train_loader, test_loader = stream.get_data_loaders()
    assert len(train_loader.dataset) == 240 and len(test_loader.dataset) == 60
    assert (train_loader.dataset.targets == -1).sum() == 120
    assert (stream.train_labels != stream.true_labels).sum() == 20               # 2.4 of 24 in each class


@pytest.mark.parametrize('dataset', ['perm-mnist', 'mnist-360'])
@pytest.mark.parametrize('flag', [['--n_splits', '5'], ['--schedule', 'iid'], ['--custom_task_order', '0,1'], ['--joint', '1']],
                         ids=lambda words: words[0])
def test_what_cuts_a_stream_cannot_cut_these(arguments, dataset, flag):
    with refused(flag[0], dataset):
        get_dataset(arguments(dataset, *flag))


def test_pairs_of_neighbours_come_three_times_each_image_once():
    labels = np.random.default_rng(1).integers(0, 9, 2000)
    order = in_pairs(labels, 9, np.random.default_rng(0))
    assert sorted(order) == list(range(2000))
    classes = labels[order]
    first, phases = 0, []
    while first < len(order):                       # a phase ends where a third class comes
        end = first
        while end < len(order) and len(set(classes[first:end + 1])) <= 2:
            end += 1
        phases.append(tuple(sorted(set(classes[first:end]))))
        first = end
    assert phases[:9] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (0, 8)] and phases == phases[:9] * 3
    assert {0, 1} == set(classes[:4]) and {0, 1} == set(classes[20:24])          # evenly mixed


def test_digits_turn_once_round_the_circle(arguments, base):
    np.testing.assert_allclose(progress(np.array([1, 0, 1, 1, 0, 1])), [0, 0, 0.25, 0.5, 0.5, 0.75])
    stream, files = get_dataset(arguments('mnist-360')), readers.mnist(base, 9)
    train_loader, test_loader = stream.get_data_loaders()
    assert len(train_loader.dataset) == 270 and len(test_loader.dataset) == 90
    labels = train_loader.dataset.targets.numpy()
    for y in (0, 8):
        ids = np.flatnonzero(labels == y)
        for k in (0, 7, 29):
            plain = files.train[train_loader.dataset.indexes[ids[k]]]
            theirs = rotate(torch.from_numpy(plain)[None], 360 * k / 30)[0].numpy()
            assert (train_loader.dataset.data[ids[k]] == theirs).mean() > 0.97
    assert [len(batch[1]) for batch in train_loader] == [16] * 16 + [14]
    with refused('lwf', 'no tasks'):
        arguments('mnist-360', model='lwf')
