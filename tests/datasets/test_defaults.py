"""How a data-set class says what its defaults are."""
import pytest

from datasets.utils import set_default_from_args
from datasets.utils.continual_dataset import ContinualDataset
from datasets.utils.defaults import dataset_defaults


class Decorated:
    NAME = 'decorated'
    base = 40

    @set_default_from_args('n_epochs')
    def get_epochs():
        """How long."""
        return 50

    @set_default_from_args('batch_size')
    def get_batch_size(self):
        return self.base + 1

    @staticmethod
    @set_default_from_args('lr_scheduler')
    def get_scheduler_name():
        return 'multisteplr'

    @set_default_from_args('lr_milestones')
    @staticmethod
    def milestones():
        return [35, 45]


class Plain:
    def get_epochs():
        return 7

    def get_batch_size(self):
        return 2 * self.get_epochs_of_mine()

    def get_epochs_of_mine(self):
        return 8

    @classmethod
    def get_backbone(cls):
        return cls.__name__

    def get_iters(self):
        return self.args.n_iters


class Heir(Decorated):
    base = 60

    def get_epochs(self):
        return 3 + super().get_epochs()


def test_decorated_functions_work_on_the_class_and_on_an_instance():
    assert Decorated.get_epochs() == Decorated().get_epochs() == 50 and Decorated.get_epochs.func.__doc__ == 'How long.'
    assert Decorated.get_batch_size() == Decorated().get_batch_size() == 41 and Heir().get_batch_size() == 61
    assert Decorated.get_scheduler_name() == Decorated().get_scheduler_name() == 'multisteplr'
    assert Decorated.milestones() == Decorated().milestones() == [35, 45]


@pytest.mark.parametrize('kind, expected', [
    (Decorated, dict(n_epochs=50, batch_size=41, lr_scheduler='multisteplr', lr_milestones=[35, 45])),
    (Heir, dict(n_epochs=53, batch_size=61, lr_scheduler='multisteplr', lr_milestones=[35, 45])),
    (Plain, dict(n_epochs=7, batch_size=16, backbone='Plain')),                             # n_iters is known only in a run
    (ContinualDataset, dict(n_epochs=50, batch_size=32, backbone='resnet18')),
], ids=lambda value: getattr(value, '__name__', ''))
def test_defaults_of_a_class(kind, expected):
    assert dataset_defaults(kind) == expected
