"""Weights & Biases, by a stand-in: what it gets."""
import sys
from types import ModuleType, SimpleNamespace

import pytest

from bench.results.tracking import Tracker
from tests.conftest import refused

EXPECTED = {'RESULT_class_mean_accs': 50, 'RESULT_class_acc_1': 20, 'RESULT_class_acc_2': 80, 'RESULT_task_mean_accs': 75,
            'RESULT_task_acc_1': 60, 'RESULT_task_acc_2': 90, 'Task': 1}


def flags(**given):
    return SimpleNamespace(**(dict(nowand=0, wandb_entity='me', wandb_project='this', wandb_name='n') | given))


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the package, that keeps what it is given."""
    module = ModuleType('wandb')
    module.Error = type('Error', (Exception,), {})
    module.told, module.ended = [], []
    module.run = SimpleNamespace(log=module.told.append, finish=lambda: module.ended.append(1))
    module.init = lambda **options: setattr(module, 'options', options) or module.run
    monkeypatch.setitem(sys.modules, 'wandb', module)
    return module


@pytest.mark.parametrize('nowand', [0, 1])
def test_losses_accuracies_and_the_numbers_of_the_row(wandb, nowand):
    tracker = Tracker(flags(nowand=nowand))
    tracker.log(loss=0.5, lr=0.1)
    tracker.log_accuracies([20, 80], [60, 90], SimpleNamespace(SETTING='class-il', c_task=1))
    tracker.finish(dict(final_accuracy=55, notes='words', forgetting=None))
    if nowand:
        assert not wandb.told and not hasattr(wandb, 'options')
        return
    assert {k: wandb.options[k] for k in ('entity', 'project', 'name')} == dict(entity='me', project='this', name='n')
    assert wandb.options['config']['nowand'] == '0'
    assert wandb.told == [{'loss': 0.5, 'lr': 0.1}, EXPECTED, {'FINAL_final_accuracy': 55}] and wandb.ended == [1]


def test_names_of_domains_and_of_epochs(wandb):
    Tracker(flags()).log_accuracies([20, 80], [0, 0], SimpleNamespace(SETTING='domain-il', c_task=1), '_epoch_3')
    assert wandb.told == [{'RESULT_domain_mean_accs_epoch_3': 50, 'RESULT_domain_acc_1_epoch_3': 20, 'RESULT_domain_acc_2_epoch_3': 80,
                           'Task': 1}]


def test_a_service_that_cannot_be_reached_is_one_line(wandb):
    def fail(**options):
        raise wandb.Error('no key, log in first')
    wandb.init = fail
    with refused('log in first', '--nowand 1'):
        Tracker(flags())
