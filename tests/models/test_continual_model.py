"""Mammoth's contract of a method, and the plainest method under it."""

import pytest
import torch

from backbone import get_backbone
from datasets import get_dataset
from models.utils.continual_model import ContinualModel
from tests.conftest import refused
from utils.buffer import Buffer


class Noting(ContinualModel):
    NAME = 'noting'

    def observe(self, inputs, labels, not_aug_inputs, epoch=None, logits=None):
        self.seen = inputs, labels, not_aug_inputs, logits
        return {'epoch': epoch, 'logits': logits}


class WithMore(Noting):
    def observe(self, inputs, labels, not_aug_inputs, epoch=None, **kwargs):
        return kwargs


class WithAll(Noting):
    def observe(self, inputs, labels, not_aug_inputs, **rest):
        return rest


@pytest.fixture
def build(parse):
    """build(*flags, kind=): a model on its data set."""

    def model(*flags, kind=Noting):
        args = parse('sgd', '--lr 0.5', *flags)
        dataset = get_dataset(args)
        args.num_classes = dataset.N_CLASSES
        args.device = 'cpu'
        net = get_backbone(args)
        return kind(net, dataset.get_loss(), args, dataset.get_transform(), dataset)

    return model


def test_attributes_are_ready_after_the_constructor(build):
    model = build('--n_splits 3')
    assert model.transform is model.original_transform
    assert model.transform(torch.rand(3, 8, 8)).shape == (3, 16, 16)
    assert model.normalization_transform(torch.rand(2, 3, 8, 8)).shape == (2, 3, 16, 16)
    assert model.N_CLASSES == model.num_classes == 10
    assert model.N_TASKS == model.n_tasks == 3
    assert model.SETTING == 'class-il'
    assert model.cpt == model.classes_per_task == [4, 3, 3]
    assert build('--n_splits 5').cpt == 2
    assert model.current_task == model.task_iteration == model.epoch_iteration == 0
    assert model.n_seen_classes == model.n_past_classes == -1
    assert model.n_classes_current_task == model.n_remaining_classes == -1
    assert model.device == model.net.device == torch.device('cpu')
    assert isinstance(model.opt, torch.optim.SGD)
    assert model.get_offsets(1) == (4, 7)


@pytest.mark.parametrize(
    'kind, expected',
    [
        (Noting, {'epoch': 3, 'logits': 4}),
        (WithMore, {'logits': 4, 'more': 5}),
        (WithAll, {'epoch': 3, 'logits': 4, 'more': 5}),
    ],
)
def test_observe_gets_the_extras_it_names_and_no_others(build, kind, expected):
    assert build(kind=kind).meta_observe(1, 2, 3, epoch=3, logits=4, more=5) == expected


@pytest.mark.parametrize(
    'flags, kind, expected',
    [
        ('', 'SGD', {'momentum': 0, 'nesterov': False, 'weight_decay': 0}),
        (
            '--optim_mom 0.9 --optim_nesterov 1 --optim_wd 0.01',
            'SGD',
            {'momentum': 0.9, 'nesterov': True, 'weight_decay': 0.01},
        ),
        ('--optimizer adam --optim_wd 0.1', 'Adam', {'weight_decay': 0.1}),
        ('--optimizer adamw', 'AdamW', {'weight_decay': 0}),
    ],
)
def test_optimisers(build, flags, kind, expected):
    model = build(flags)
    made = model.get_optimizer()
    assert isinstance(made, getattr(torch.optim, kind))
    assert made.param_groups[0].items() >= ({'lr': 0.5} | expected).items()
    assert sum(p.numel() for p in made.param_groups[0]['params']) == len(model.net.get_params())


@pytest.mark.parametrize('flag', ['--label_perc', '--label_perc_by_class'])
def test_samples_without_a_label_are_left_out_with_all_that_belongs_to_them(build, flag):
    model = build(flag, '0.5')
    y = torch.tensor([3, -1, 0, -1])
    x = torch.arange(4.0).reshape(4, 1)
    assert model.meta_observe(x, y, -x, epoch=2, logits=10 * x)['epoch'] == 2
    fields = [field.flatten().tolist() for field in model.seen]
    assert fields == [[0, 2], [3, 0], [0, -2], [0, 20]]
    del model.seen
    assert model.meta_observe(x, torch.full((4,), -1), x, epoch=2) == 0
    assert not hasattr(model, 'seen')


def test_loading_a_buffer(build):
    model = build()
    full = Buffer(6, seed=0)
    model.buffer = Buffer(6, seed=1)
    full.add_data(torch.rand(9, 3, 8, 8), labels=torch.arange(9))
    for given in (full.serialize(), full):
        model.load_buffer(given)
        assert torch.equal(model.buffer.labels, full.labels)
        assert model.buffer.num_seen_examples == 9
    model.buffer = Buffer(5, seed=1)
    with refused('6 samples, --buffer_size is 5'):
        model.load_buffer(full)
