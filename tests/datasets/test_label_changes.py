"""Class order, validation split, label noise and missing labels, as functions and as flags of both
kinds of data sets.
"""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datasets import get_dataset
from datasets.utils import label_changes
from tests.conftest import quick, refused
from tests.datasets.conftest import walk

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [10, 20, 40, 7, 1]))


def flags(**given) -> SimpleNamespace:
    fixed = {
        'seed': 0,
        'noise_type': 'symmetric',
        'custom_class_order': None,
        'permute_classes': False,
    }
    return SimpleNamespace(**fixed | given)


@quick
@given(st.floats(0, 1), st.integers(0, 9))
def test_a_share_of_each_class_is_picked_and_more_contains_less(share, seed):
    picked, more = (
        label_changes.pick(LABELS, s, np.random.default_rng(seed))
        for s in (share, min(1, share + 0.2))
    )
    for label, count in zip(range(5), (10, 20, 40, 7, 1)):
        assert picked[label == LABELS].sum() == round(share * count)
    assert not (picked & ~more).any()


@pytest.mark.parametrize('kind', ['symmetric', 'asymmetric'])
@pytest.mark.parametrize('rate, wrong', [(0.1, 8), (0.5, 38), (1, 78)])
def test_the_share_of_wrong_labels_is_the_one_asked_for(kind, rate, wrong):
    noisy = label_changes.noisy_labels(flags(noise_rate=rate, noise_type=kind), LABELS, 5)
    assert (noisy != LABELS).sum() == pytest.approx(wrong, abs=1)
    if kind == 'asymmetric':
        assert set(((noisy - LABELS) % 5)[noisy != LABELS]) == {1}
    every = label_changes.noisy_labels(flags(noise_rate=1), np.zeros(9000, np.int64), 4)
    assert np.abs(np.bincount(every, minlength=4) - [0, 3000, 3000, 3000]).max() < 200


@pytest.mark.parametrize('percent, part, whole', [(0.05, 1, 20), (10, 1, 10), (99, 99, 100)])
def test_by_key_the_share_held_out_depends_on_each_sample_alone(percent, part, whole):
    images = np.random.default_rng(0).integers(0, 256, (400, 6), np.uint8)
    held = label_changes.held_out(
        flags(validation=percent, validation_by='key'), np.zeros(400, np.int64), images
    )
    digests = [hashlib.sha256(image.tobytes()).digest() for image in images]
    keys = [int.from_bytes(digest[:8], 'big') for digest in digests]
    assert held.tolist() == [key % whole < part for key in keys]


def test_flags_that_contradict_each_other_are_refused():
    with refused('--permute_classes', 'one of'):
        label_changes.class_order(flags(custom_class_order='2-1-0', permute_classes=True), 3)
    with refused('--joint'):
        label_changes.task_order(flags(custom_task_order='1-0', joint=1), 2)
    with refused('one class'):
        label_changes.noisy_labels(flags(noise_rate=0.5), LABELS, 1)
    with refused('--label_perc_by_class'):
        label_changes.unlabelled(flags(label_perc=0.5, label_perc_by_class=0.5), LABELS, 0)


BOTH = ['seq-digits', 'picture-digits']


@pytest.fixture
def stream(arguments):
    """stream(dataset, *flags, **more): a data set under flags."""
    return lambda dataset, *words, **more: get_dataset(arguments(dataset, *words, **more))


def targets(loader) -> np.ndarray:
    return loader.dataset.targets.numpy()


def file_labels(dataset):
    return (
        dataset.images.train_labels if hasattr(dataset, 'images') else np.repeat(np.arange(10), 12)
    )


@pytest.mark.parametrize('name', BOTH)
def test_joint_is_one_task_of_all_classes(stream, name):
    dataset = stream(name, joint=1)
    assert (dataset.N_TASKS, dataset.N_CLASSES_PER_TASK, dataset.get_offsets(0)) == (1, 10, (0, 10))
    assert len(set(targets(dataset.get_data_loaders()[0]))) == 10


def test_two_flags_that_cut_the_stream_and_joint_where_it_cannot_be(stream):
    assert stream('seq-digits', '--inc 3 --b 4').schedule.spec == 'inc:3,b=4'
    with refused('--n_splits and --inc both cut the stream'):
        stream('seq-digits', '--n_splits 5 --inc 5')
    with refused('--b has no effect'):
        stream('seq-digits', '--b 5')
    with refused('--joint and --n_splits both cut the stream'):
        stream('seq-digits', '--n_splits 5', joint=1)
    with refused('--joint', 'shuffled-digits', 'domain-il'):
        stream('shuffled-digits', joint=1)
    with refused('--custom_task_order', 'flowing-digits'):
        stream('flowing-digits', custom_task_order='0')
    with refused('--custom_task_order', 'no tasks'):
        stream('seq-digits', '--schedule gaussian', custom_task_order='0')


@pytest.mark.parametrize('name, percent', [*zip(BOTH, (25, 0.25))])
def test_validation_samples_leave_training_and_become_the_test_set(stream, name, percent):
    whole = stream(name)
    split = stream(name, validation=percent)
    for (train, _), (rest, held) in zip(walk(whole), walk(split), strict=True):
        for label in np.unique(targets(train)):
            count = (targets(train) == label).sum()
            assert (targets(held) == label).sum() == round(0.25 * count)
            assert (targets(rest) == label).sum() == count - round(0.25 * count)
        pixels = [
            [np.asarray(image).tobytes() for image in loader.dataset.data]
            for loader in (train, rest, held)
        ]
        assert sorted(pixels[0]) == sorted(pixels[1] + pixels[2])


def test_a_task_without_held_out_samples_is_refused(stream):
    with refused('task 1', 'test samples'):
        stream('picture-digits', validation=1).get_data_loaders()


@pytest.mark.parametrize('name', BOTH)
def test_validation_of_all_classes_so_far_and_then_the_real_test_set(stream, name):
    dataset = stream(name, validation=20, validation_mode='complete')
    for _ in range(3):
        _, test = dataset.get_data_loaders()
    assert set(targets(test)) == set(range(6))
    assert set(targets(dataset.test_loaders[0])) == {0, 1}
    real = dataset.without_validation()
    plain = stream(name)
    for _ in range(3):
        plain.get_data_loaders()
    assert real.c_task == 2
    assert dataset.args.validation == 20
    for mine, its in zip(real.test_loaders, plain.test_loaders, strict=True):
        assert torch.equal(mine.dataset.targets, its.dataset.targets)
        np.testing.assert_array_equal(mine.dataset.data, its.dataset.data)


@pytest.mark.parametrize('name', BOTH)
def test_batches_of_noisy_labels_end_with_the_true_ones(stream, name):
    dataset = stream(name, '--permute_classes 1', noise_rate=0.3, noise_type='asymmetric')
    wrong = 0
    for train, test in walk(dataset):
        fields = train.dataset
        files = file_labels(dataset)[np.asarray(fields.indexes)]
        assert fields.extra_return_fields == ('true_labels',)
        np.testing.assert_array_equal(fields.true_labels, dataset.class_order[files])
        back = np.argsort(dataset.class_order)[targets(train)]
        assert set(back - files) <= {0, 1, -9}  # the next class of the files
        wrong += (back != files).sum()
        *_, labels, _, true = next(iter(train))
        assert len(labels) == len(true)
        assert not hasattr(test.dataset, 'true_labels')
        assert set(targets(train)) <= set(dataset.task_classes(dataset.c_task).tolist())
    assert wrong == sum(round(0.3 * count) for count in np.bincount(file_labels(dataset)))


@pytest.mark.parametrize(
    'name, more', [*zip(BOTH, ({'label_perc': 0.5}, {'label_perc_by_class': 0.5}))]
)
def test_labels_that_are_missing_are_minus_one(stream, name, more):
    for train, test in walk(stream(name, **more)):
        known = targets(train) >= 0
        assert known.mean() == pytest.approx(0.5, abs=0.02)
        assert set(targets(train)[~known]) == {-1}
        assert targets(test).min() >= 0


@pytest.mark.parametrize('name', BOTH)
def test_classes_come_in_the_order_given(stream, name):
    dataset = stream(name, custom_class_order='9-8-7-6-5-4-3-2-1-0')
    for t, (train, _) in enumerate(walk(dataset)):
        files = file_labels(dataset)[np.asarray(train.dataset.indexes)]
        assert set(files) == {9 - 2 * t, 8 - 2 * t}
        assert set(targets(train)) == {2 * t, 2 * t + 1}
    assert dataset.get_class_names()[0].endswith('9')


@pytest.mark.parametrize(
    'name, words, order, groups',
    [
        ('seq-digits', '--n_splits 3', '2-0-1', [[7, 8, 9], [0, 1, 2, 3], [4, 5, 6]]),
        ('unequal-digits', '', '2,0,3,1', [[4, 5, 6, 7], [0, 1, 2], [8, 9], [3]]),
    ],
)
def test_tasks_come_in_the_order_given(stream, name, words, order, groups):
    dataset = stream(name, words, custom_task_order=order)
    seen = 0
    for (train, test), group in zip(walk(dataset), groups, strict=True):
        assert sorted(set(file_labels(dataset)[np.asarray(train.dataset.indexes)])) == group
        assert set(targets(train)) == set(targets(test)) == set(range(seen, seen + len(group)))
        assert dataset.get_offsets() == (seen, seen + len(group))
        seen += len(group)
