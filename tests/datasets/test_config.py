"""Config files of data sets: constants on the instance, never on the class."""

import pytest
import torch
import yaml

import core.configs
from bench.cli.parsing import parse_args
from datasets import get_dataset, get_dataset_class
from tests.conftest import refused, written
from utils.augmentations import apply_transform


@pytest.fixture
def config(foreign, monkeypatch, tmp_path):
    """config(dataset, **content): writes its `default.yaml`."""
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)

    def write(dataset, **content):
        written(
            tmp_path / 'datasets' / 'configs' / dataset, {'default.yaml': yaml.safe_dump(content)}
        )

    return write


def test_constants_are_set_on_the_instance_and_other_keys_are_flags(config, arguments):
    config(
        'picture-digits',
        N_TASKS=2,
        N_CLASSES_PER_TASK=5,
        MEAN=[0.0, 0.0, 0.0],
        STD=2,
        n_epochs=3,
        lr_scheduler='None',
        TRANSFORM=['ToTensor', {'Normalize': {'mean': [0, 0, 0], 'std': [2, 2, 2]}}],
        AVAIL_SCHEDS=['cosine'],
    )
    args = arguments('picture-digits')
    assert args.n_epochs == 3
    assert args.lr_scheduler is None
    assert 'N_TASKS' not in vars(args)
    dataset = get_dataset(args)
    assert (dataset.N_TASKS, dataset.N_CLASSES_PER_TASK, dataset.AVAIL_SCHEDS) == (2, 5, ['cosine'])
    x = torch.full((2, 3, 4, 4), 0.5)
    # a static method of the file names its class
    assert torch.equal(dataset.get_normalization_transform()(x), x / 2)
    denormalise = dataset.get_denormalization_transform()
    assert torch.equal(denormalise(x), x * 2)
    assert denormalise.mean.shape == denormalise.std.shape == (3,)  # X-DER of Mammoth takes them so
    train, _ = dataset.get_data_loaders()
    assert train.dataset.targets.max() == 4
    inputs, _, plain = next(iter(train))
    assert torch.equal(inputs, plain / 2)  # no crop any more
    assert torch.allclose(dataset.get_transform()(plain[0]), inputs[0], atol=1e-6)
    kind = get_dataset_class('picture-digits')
    assert (kind.N_TASKS, kind.STD) == (5, (0.25, 0.5, 1.0))


def test_data_sets_of_ours_take_tasks_normalisation_and_transforms(config, arguments):
    config(
        'seq-digits',
        N_TASKS=2,
        N_CLASSES_PER_TASK=5,
        MEAN=0,
        STD=2,
        TRANSFORM=['ToTensor'],
        TEST_TRANSFORM=['ToTensor'],
    )
    dataset = get_dataset(arguments('seq-digits'))
    assert dataset.N_TASKS == 2
    assert (dataset.preprocessing.mean, dataset.preprocessing.std) == ((0,) * 3, (2,) * 3)
    train, test = dataset.get_data_loaders()
    inputs, _, plain = next(iter(train))
    assert torch.equal(inputs, plain)
    raw = train.dataset.raw(slice(None))  # what a buffer holds
    assert torch.equal(
        apply_transform(raw, dataset.get_transform()), train.dataset.not_aug_transform(raw)
    )
    images, _ = next(iter(test))
    assert torch.equal(images[3], torch.from_numpy(test.dataset.data[3]).permute(2, 0, 1) / 255)
    assert get_dataset(arguments('seq-digits', '--n_splits 3')).N_TASKS == 3
    config('seq-digits', N_CLASSES_PER_TASK=[4, 3, 3])
    assert get_dataset(arguments('seq-digits')).N_TASKS == 3
    config('seq-digits', SETTING='domain-il')
    with refused('SETTING', 'seq-digits', 'default.yaml'):
        get_dataset(arguments('seq-digits'))


def test_a_backbone_of_the_config(config, arguments):
    flags = '--model sgd --lr 0.1 --dataset picture-digits'
    config('picture-digits', backbone='resnet34', num_filters=3)
    args = parse_args(flags.split())
    assert (args.backbone, args.weights, args.num_filters) == ('resnet34', 'none', 3)
    config('seq-digits', backbone='resnet34', num_filters=3)  # also where psi is the default
    args = parse_args(flags.replace('picture', 'seq').split())
    assert (args.backbone, args.weights, args.num_filters) == ('resnet34', 'none', 3)
