"""Weights & Biases and TensorBoard, by stand-ins: what they are told."""
import sys
from types import ModuleType, SimpleNamespace

import pytest

from bench.results.tracking import Tracker
from tests.conftest import refused

CLASS_IL = SimpleNamespace(SETTING='class-il', c_task=1)
EXPECTED = {'RESULT_class_mean_accs': 50, 'RESULT_class_acc_1': 20, 'RESULT_class_acc_2': 80, 'RESULT_task_mean_accs': 75,
            'RESULT_task_acc_1': 60, 'RESULT_task_acc_2': 90, 'Task': 1}


def flags(**given):
    return SimpleNamespace(**(dict(nowand=1, tensorboard=False, wandb_entity='me', wandb_project='this', wandb_name='n') | given))


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


@pytest.fixture
def board(monkeypatch):
    """A stand-in for TensorBoard's writer."""
    module = ModuleType('torch.utils.tensorboard')
    module.scalars, module.closed = [], []
    writer = SimpleNamespace(add_scalar=lambda *given: module.scalars.append(given), close=lambda: module.closed.append(1))
    module.SummaryWriter = lambda folder: setattr(module, 'folder', folder) or writer
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', module)
    return module


def test_without_flags_nothing_is_imported_nor_told(wandb, board):
    tracker = Tracker(flags(), 'folder')
    tracker.log({'loss': 1}, 2)
    tracker.log_accuracies([1], [2], CLASS_IL)
    tracker.finish({})
    assert not wandb.told and not board.scalars and not hasattr(wandb, 'options') and not hasattr(board, 'folder')


def test_weights_and_biases(wandb):
    tracker = Tracker(flags(nowand=0), 'folder')
    assert {k: wandb.options[k] for k in ('entity', 'project', 'name')} == dict(entity='me', project='this', name='n')
    assert wandb.options['config']['nowand'] == '0'
    tracker.log({'loss': 0.5, 'lr': 0.1}, 30)
    tracker.log_accuracies([20, 80], [60, 90], CLASS_IL)
    tracker.finish(dict(final_accuracy=55, notes='words', forgetting=None))
    assert wandb.told == [{'loss': 0.5, 'lr': 0.1}, EXPECTED, {'FINAL_final_accuracy': 55}] and wandb.ended == [1]


def test_tensorboard(board):
    tracker = Tracker(flags(tensorboard=True), 'below/here')
    tracker.log({'loss': 0.5}, 30)
    tracker.log_accuracies([20, 80], [60, 90], CLASS_IL)
    tracker.finish({})
    assert board.folder == 'below/here' and board.closed == [1]
    assert board.scalars == [('loss', 0.5, 30), *((name, value, 2) for name, value in EXPECTED.items())]


def test_names_of_domains_and_of_epochs(wandb):
    Tracker(flags(nowand=0), '').log_accuracies([20, 80], [0, 0], SimpleNamespace(SETTING='domain-il', c_task=1), '_epoch_3')
    assert wandb.told == [{'RESULT_domain_mean_accs_epoch_3': 50, 'RESULT_domain_acc_1_epoch_3': 20, 'RESULT_domain_acc_2_epoch_3': 80,
                           'Task': 1}]


def test_a_service_that_cannot_be_reached_is_one_line(wandb):
    def fail(**options):
        raise wandb.Error('no key\nlog in first')
    wandb.init = fail
    with refused('no key log in first', '--nowand 1'):
        Tracker(flags(nowand=0), '')
