"""The digits as a stream: which classes and samples come when, under any number of splits and any
schedule.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import datasets
from core.plugins import is_shipped
from datasets import get_dataset
from scroll.ground.errors import InputError
from tests.conftest import refused
from tests.datasets.conftest import walk


@pytest.fixture
def digits(parse):
    return lambda *flags: get_dataset(parse('sgd', '--lr 1', *flags))


def names(images) -> list:
    return [image.tobytes() for image in images]


@pytest.mark.parametrize(
    'name, flags, sizes',
    [
        ('seq-digits', '--n_splits 1', [10]),
        ('seq-digits', '--n_splits 3', [4, 3, 3]),
        ('seq-digits', '--n_splits 10', [1] * 10),
        ('picture-digits', '', [2] * 5),
        ('unequal-digits', '', [3, 1, 4, 2]),
    ],
)
def test_each_task_brings_its_classes_and_every_sample_comes_once(arguments, name, flags, sizes):
    dataset = get_dataset(arguments(name, flags))
    whole = get_dataset(arguments(name, joint=1)).get_data_loaders()
    assert (dataset.c_task, dataset.N_CLASSES, dataset.N_TASKS) == (-1, 10, len(sizes))
    assert (sizes[0] if len(set(sizes)) == 1 else sizes) == dataset.N_CLASSES_PER_TASK
    came = [], []
    ends = np.cumsum([0, *sizes])
    for t, loaders in enumerate(walk(dataset)):
        classes = list(range(ends[t], ends[t + 1]))
        assert dataset.c_task == dataset.current_task == t
        assert len(dataset.test_loaders) == t + 1
        assert (dataset.train_loader, dataset.test_loaders[-1]) == loaders
        assert dataset.get_offsets() == dataset.get_offsets(t) == (ends[t], ends[t + 1])
        assert dataset.task_classes(t).tolist() == classes
        assert dataset.seen_classes().tolist() == list(range(ends[t + 1]))
        for loader, images in zip(loaders, came):
            assert loader.dataset.targets.dtype == torch.int64
            assert sorted(set(loader.dataset.targets.tolist())) == classes
            images.extend(names(loader.dataset.data))
    assert [sorted(images) for images in came] == [
        sorted(names(loader.dataset.data)) for loader in whole
    ]


def test_batches_are_triples_of_the_right_shapes_and_labels_belong_to_images(digits):
    dataset = digits('--n_splits 2 --batch_size 50')
    table = dict(zip(names(dataset.images.train), dataset.images.train_labels.tolist()))
    train, test = dataset.get_data_loaders()
    for inputs, labels, plain in train:
        # weights for 16 pixels
        assert inputs.shape[1:] == (3, 16, 16)
        assert plain.shape[1:] == (3, 8, 8)
        assert inputs.dtype == plain.dtype == torch.float32
        assert labels.dtype == torch.int64
        raw = (plain * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        assert [table[name] for name in names(raw)] == labels.tolist()
    inputs, labels = next(iter(test))
    assert inputs.shape == (len(labels), 3, 16, 16)


@pytest.mark.parametrize('splits', [1, 3])
def test_permuting_renames_classes_and_class_order_undoes_it(digits, splits):
    plain = digits('--n_splits', splits)
    renamed = digits('--n_splits', splits, '--permute_classes 1')
    order = renamed.class_order
    assert sorted(order) == list(range(10))
    assert order.tolist() != list(range(10))
    for part in ('train_labels', 'test_labels'):
        np.testing.assert_array_equal(getattr(renamed, part), order[getattr(plain, part)])
    assert renamed.get_class_names() == [str(label) for label in np.argsort(order)]
    orders = [digits('--permute_classes 1 --seed', seed).class_order.tobytes() for seed in (0, 1)]
    # the seed decides alone, not the number of tasks
    assert orders[0] == order.tobytes() != orders[1]


def content(dataset) -> list:
    return [
        (labels.tolist(), inputs.numpy().tobytes())
        for train, _ in walk(dataset)
        for inputs, labels, _ in train
    ]


@pytest.mark.parametrize(
    'flags', ['--permute_classes 1', '--schedule split:5,order=random,batch=30']
)
def test_a_second_instance_gives_the_same_stream_and_touches_nothing(parse, flags):
    """LUCIR and HAL build the data set again in the middle of a run."""
    args = parse('sgd', '--lr 1 --batch_size 64', flags)
    before = dict(vars(args)), torch.get_rng_state(), np.random.get_state()[1].tolist()
    first = get_dataset(args)
    whole = content(first)
    second = get_dataset(args)
    assert second.c_task == -1
    assert not second.test_loaders
    assert first.c_task == 4
    assert content(second) == whole
    assert vars(args) == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert np.random.get_state()[1].tolist() == before[2]
    assert first.images is second.images  # the pixels are not read twice
    other = get_dataset(parse('sgd', '--lr 1 --batch_size 64 --seed 9', flags))
    assert content(other) != whole


def test_segments_of_the_schedule_bound_the_batches(digits):
    dataset = digits('--schedule split:2,batch=100 --batch_size 30')
    train, _ = dataset.get_data_loaders()
    order, ends = dataset.schedule.task(0)
    assert ends[:2].tolist() == [100, 200]
    assert ends[-1] == len(order)
    batches = [len(labels) for _, labels, _ in train]
    assert batches[:8] == [30, 30, 30, 10] * 2
    assert len(batches) == len(train)
    train.shuffle = False
    train.raw = True
    assert names(torch.cat([x for x, _, _ in train]).numpy()) == names(dataset.images.train[order])


def test_all_data_sets_fulfil_the_contract(parse):
    """Also, for one that is added here, what `read` gives, where its files are at hand."""
    for name in datasets.get_dataset_names():
        kind = datasets.get_dataset_class(name)
        assert name == kind.NAME
        assert 1 <= kind.DEFAULT_SPLITS <= (kind.N_CLASSES or 5)
        loss = kind.get_loss(kind)  # accepts reduction=, as BiC calls it
        assert loss(torch.zeros(2, 3), torch.tensor([0, 1]), reduction='none').shape == (2,)
        if name == 'seq-digits' or not is_shipped(kind):
            try:
                images = kind.read(SimpleNamespace(base_path='data', data_dir=None))
            except InputError:
                continue
            kind.check(images)
            assert images.train.shape[1:3] == kind.SIZE
            assert len(images.class_names) == kind.N_CLASSES
            for schedule in 'iid', f'split:{kind.N_CLASSES}', 'gaussian':
                args = parse('sgd', '--lr 1 --schedule', schedule, dataset=name, base_path='data')
                made = get_dataset(args)
                assert len(made.train_labels) == len(images.train)
                assert made.N_CLASSES == kind.N_CLASSES


def test_a_users_folder_is_a_stream_whose_classes_are_known_once_it_is_read(parse, tmp_path):
    for part in ('train', 'test'):
        for i, name in enumerate(('ant', 'bee', 'cat')):
            (tmp_path / part / name).mkdir(parents=True)
            Image.new('RGB', (20, 20), (50 * i, 0, 0)).save(tmp_path / part / name / 'x.png')

    def stream(*flags):
        return get_dataset(parse('sgd', '--lr 1', *flags, dataset='seq-folder'))

    dataset = stream('--data_dir', tmp_path)
    assert dataset.N_TASKS == dataset.N_CLASSES == 3
    assert dataset.get_class_names() == ['ant', 'bee', 'cat']
    assert dataset.images.labels == ['ant', 'bee', 'cat']  # of files: other folders have others
    assert stream('--data_dir', tmp_path, '--n_splits 2').N_CLASSES_PER_TASK == [2, 1]
    with refused('--n_splits 4', 'seq-folder has 3 classes'):
        stream('--data_dir', tmp_path, '--n_splits 4')
    with refused('--data_dir is missing'):
        stream()


def test_a_data_set_that_a_function_builds_has_arguments_before_it_has_tasks():
    assert datasets.ContinualDataset.schedule_spec(None) == 'split:None'
