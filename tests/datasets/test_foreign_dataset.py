"""Data-set files written for Mammoth, unchanged: what they import, what they define, what methods
do to them.
"""

from urllib.error import URLError

import numpy as np
import pytest
import torch

from bench.cli.parsing import parse_args
from datasets import get_dataset
from datasets.utils.continual_dataset import fix_class_names_order, store_masked_loaders
from tests.conftest import refused, words_of
from tests.datasets.conftest import run, walk

ALL = ['picture-digits', 'unequal-digits', 'flowing-digits', 'shuffled-digits']


def labels_of(loader) -> list:
    return [y for batch in loader for y in batch[1].tolist()]


@pytest.mark.parametrize('dataset', ALL)
def test_runs_end_to_end(arguments, dataset):
    row = run(arguments(dataset, '--buffer_size 30 --minibatch_size 7', model='er'))
    tasks = dict(zip(ALL, (5, 4, 1, 3)))[dataset]
    assert row['n_tasks'] == tasks
    assert 0 <= row[f'task{tasks}'] <= 100
    assert f'task{tasks + 1}' not in row


def test_defaults_of_the_file_reach_the_arguments_and_flags_win(arguments, foreign):
    args = parse_args(
        words_of('--model er --dataset picture_digits --lr 0.1 --buffer_size 5 --num_filters 2')
    )
    assert (args.n_epochs, args.batch_size, args.minibatch_size) == (1, 16, 16)
    assert (args.backbone, args.transform_type) == ('resnet18', 'weak')
    assert args.weights == 'none'  # psi was not made for such images
    assert arguments('picture-digits', '--batch_size 7 --n_epochs 3').batch_size == 7
    for name, size in (('unequal', 20), ('flowing', 16), ('shuffled', 32)):
        args = arguments(f'{name}-digits')
        assert (args.batch_size, args.n_epochs) == (size, 1)


def test_a_literal_annotation_lists_the_choices_of_a_flag(arguments):
    dataset = get_dataset(arguments('picture-digits', '--transform_type strong'))
    assert dataset.transform_type == 'strong'
    with refused('--transform_type', 'weak', 'strong', 'medium'):
        arguments('picture-digits', '--transform_type medium')


def test_items_are_input_label_and_plain_image_or_input_and_label(arguments):
    dataset = get_dataset(arguments('picture-digits', '--batch_size 5'))
    train, test = dataset.get_data_loaders()
    inputs, labels, plain = next(iter(train))
    assert inputs.shape == plain.shape == (5, 3, 8, 8)
    assert labels.dtype == torch.int64
    assert plain.dtype == torch.float32
    assert plain.min() >= 0
    assert plain.max() <= 1
    row = torch.from_numpy(train.dataset.data[3]).permute(2, 0, 1) / 255
    assert torch.equal(train.dataset[3][2], row)
    image, label = next(iter(test))
    assert torch.allclose(
        dataset.get_denormalization_transform()(image[0]),
        test.dataset.dataset.not_aug_transform(test.dataset.data[0]),
        atol=1e-6,
    )
    assert label[0] == test.dataset.targets[0]


def test_every_domain_has_all_classes_and_a_file_may_count_its_tasks_itself(arguments):
    dataset = get_dataset(arguments('shuffled-digits'))
    loaders = list(walk(dataset))
    assert dataset.N_CLASSES == 10
    assert dataset.c_task == 2
    assert len(dataset.test_loaders) == 3
    assert all(sorted(labels_of(train)) == sorted([*range(10)] * 12) for train, _ in loaders)
    assert dataset.get_offsets(2) == (0, 10)
    assert dataset.seen_classes().tolist() == list(range(10))
    first, second = (test.dataset[0][0] for _, test in loaders[:2])
    assert not torch.equal(first, second)
    assert torch.equal(first.flatten().sort()[0], second.flatten().sort()[0])


@pytest.fixture
def loader(arguments):
    return get_dataset(arguments('picture-digits', '--batch_size 5')).get_data_loaders()[0]


def test_logits_become_a_fourth_field(loader):
    train = loader.dataset
    table = torch.rand(len(train), 10)
    train.logits = table
    train.extra_return_fields += ('logits',)
    train.data = np.tile(np.arange(24, dtype=np.uint8)[:, None, None, None], (1, 8, 8, 3))
    for batch in loader:
        rows = (batch[2][:, 0, 0, 0] * 255).round().long()
        assert len(batch) == 4
        assert torch.equal(batch[3], table[rows])
    train.add_extra_return_field('marks', torch.arange(24))
    assert train.extra_return_fields == ('logits', 'marks')
    assert train[7][4] == 7
    assert len(train.__getitem__(7)) == 5
    with pytest.raises(ValueError, match='3 values for 24 samples'):
        train.add_extra_return_field('short', [1, 2, 3])


def test_a_data_set_that_hands_out_the_same_objects_each_time(arguments, monkeypatch):
    dataset = get_dataset(arguments('picture-digits'))
    import datasets.foreign_pictures as file

    train = file.Digits(True, dataset.TRANSFORM)
    test = file.Digits(False, dataset.TEST_TRANSFORM)
    monkeypatch.setattr(file, 'Digits', lambda is_train, transform: train if is_train else test)
    assert [sorted(set(labels_of(loader))) for loader, _ in walk(dataset)] == [
        [2 * t, 2 * t + 1] for t in range(5)
    ]
    assert len(train) == 120
    assert isinstance(train.targets, list)


def test_tasks_by_number_instead_of_by_class(arguments, monkeypatch):
    dataset = get_dataset(arguments('picture-digits'))
    import datasets.foreign_pictures as file

    def with_ids(is_train, transform, make=file.Digits):
        made = make(is_train, transform)
        made.task_ids = np.arange(len(made)) % 5
        return made

    monkeypatch.setattr(file, 'Digits', with_ids)
    for t, (train, test) in enumerate(walk(dataset)):
        assert set(train.dataset.task_ids) == set(test.dataset.task_ids) == {t}
        assert len(train.dataset) == 24
        assert len(set(train.dataset.targets.tolist())) == 10


def test_permuted_classes_and_their_names(arguments):
    args = arguments('picture-digits', '--permute_classes 1 --seed 1993')
    dataset = get_dataset(args)
    np.random.seed(1993)
    # as Mammoth draws it
    np.testing.assert_array_equal(dataset.class_order, np.random.permutation(10))
    loader = dataset.get_data_loaders()[0]
    files = np.repeat(range(10), 12)[loader.dataset.indexes]
    assert dataset.class_order[files].tolist() == loader.dataset.targets.tolist()
    names = dataset.get_class_names()
    assert [names[y] for y in loader.dataset.targets] == [f'digit {c}' for c in files]
    args.class_order = dataset.class_order
    assert fix_class_names_order([f'digit {i}' for i in range(10)], args) == names


@pytest.mark.parametrize(
    'error',
    [
        URLError('no route to host'),
        RuntimeError('Dataset not found or corrupted.\nYou can use download=True'),
    ],
)
def test_data_that_are_not_there_and_cannot_be_fetched_are_one_line(arguments, monkeypatch, error):
    def fail(*_):
        raise error

    dataset = get_dataset(arguments('picture-digits'))
    monkeypatch.setattr('datasets.foreign_pictures.Digits', fail)
    with refused('--dataset picture-digits', type(error).__name__, '--base_path'):
        dataset.get_data_loaders()


def test_a_fault_in_a_file_is_not_taken_for_missing_data(arguments, monkeypatch):
    dataset = get_dataset(arguments('picture-digits'))
    monkeypatch.setattr('datasets.foreign_pictures.Digits', None)
    with pytest.raises(TypeError):
        dataset.get_data_loaders()


def test_labels_beyond_the_number_of_classes_are_told(arguments, monkeypatch):
    dataset = get_dataset(arguments('picture-digits'))
    dataset.N_CLASSES = 7
    with refused('picture-digits', 'label 7', 'N_CLASSES is 7'):
        dataset.get_data_loaders()
    import datasets.foreign_pictures as file

    made = file.Digits(True, None)
    dataset.N_CLASSES = 10
    made.targets[5] = -1
    with refused('label -1'):
        store_masked_loaders(made, made, dataset)
    monkeypatch.setattr(file.Digits, '__getitem__', lambda self, i: (torch.zeros(3, 8, 8), 0))
    train = get_dataset(arguments('picture-digits')).get_data_loaders()[0]
    with refused('Digits', 'un-augmented'):
        train.dataset[0]
