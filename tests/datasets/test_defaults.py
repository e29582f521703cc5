"""How a data-set class sets its defaults."""

import pytest

from datasets.utils import set_default_from_args
from datasets.utils.continual_dataset import ContinualDataset
from datasets.utils.defaults import dataset_defaults


class Decorated:
    base = 40

    @set_default_from_args('n_epochs')
    def get_epochs():
        return 50

    @set_default_from_args('batch_size')
    def get_batch_size(self):
        return self.base + 1

    @set_default_from_args('lr_milestones')
    @staticmethod
    def milestones():
        return [35, 45]


class Twice:
    @set_default_from_args('lr_scheduler')
    def get_scheduler_name():
        return 'multisteplr'

    @set_default_from_args('lr_milestones')
    def get_scheduler_name():
        return [35, 45]


class Heir(Decorated):
    base = 60

    def get_epochs(self):
        return 3 + super().get_epochs()


@pytest.mark.parametrize(
    'kind, expected',
    [
        (Decorated, {'n_epochs': 50, 'batch_size': 41, 'lr_milestones': [35, 45]}),
        (Heir, {'n_epochs': 53, 'batch_size': 61, 'lr_milestones': [35, 45]}),
        (Twice, {'lr_scheduler': 'multisteplr', 'lr_milestones': [35, 45]}),
        (ContinualDataset, {'n_epochs': 50, 'batch_size': 32, 'backbone': 'resnet18'}),
    ],
)
def test_defaults_of_a_class(kind, expected):
    assert dataset_defaults(kind) == expected
    if issubclass(kind, Decorated):  # decorated functions work on the class and on an instance
        assert kind.get_batch_size() == kind().get_batch_size() == expected['batch_size']
