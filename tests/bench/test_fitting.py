"""The end of a task's training."""

import pytest

from bench.run import fitting
from bench.run.building import initialize
from bench.run.training import train
from models.sgd import Sgd
from tests.conftest import refused


@pytest.fixture
def run(parse, small_digits):
    """run(*flags): (model, data set, row) of an SGD run on one task of 80 digits, 5 batches a
    pass.
    """

    def start(*flags):
        model, dataset, args = initialize(parse('sgd', *flags, lr=0.05, n_splits=1, batch_size=16))
        model.passes = []
        model.begin_epoch = lambda epoch, dataset: model.passes.append(epoch)
        return model, dataset, train(model, dataset, args)

    return start


@pytest.mark.parametrize('count, passes', [(5, 1), (6, 2)])
def test_a_number_of_batches(run, count, passes):
    model, *_ = run('--fitting_mode iters --n_iters', str(count))
    assert model.task_iteration == count
    assert model.passes == list(range(passes))


def test_each_task_gets_its_batches(run, monkeypatch):
    lengths = []
    monkeypatch.setattr(
        Sgd, 'end_task', lambda self, dataset: lengths.append(self.task_iteration), raising=False
    )
    run('--fitting_mode iters --n_iters 4 --n_splits 3')
    assert lengths == [4, 4, 4]


def test_a_task_without_a_whole_batch_does_not_go_on_forever(run):
    with refused('task 1', '--batch_size', '--drop_last 0'):
        run('--fitting_mode iters --n_iters 3 --batch_size 100 --drop_last 1')


@pytest.fixture
def scripted(parse, small_digits, monkeypatch):
    """scripted(scores, *flags): the pass whose network was kept, and the number of passes, when
    evaluations give these scores.
    """

    def start(scores, *flags):
        flags = ['--lr 1 --n_splits 1 --batch_size 80 --fitting_mode early_stopping', *flags]
        model, dataset, args = initialize(parse('sgd', *flags))
        passes = []
        model.begin_epoch = lambda epoch, dataset: passes.append(epoch)
        model.observe = lambda inputs, labels, not_aug_inputs, epoch: (
            model.net.classifier.bias.data.fill_(epoch) * 0
        )
        values = iter(scores)

        def scored(model, dataset, last=False, return_loss=False):
            assert last
            assert return_loss
            score = next(values)
            return [score], [-1.0], score

        monkeypatch.setattr(fitting, 'evaluate', scored)
        train(model, dataset, args)
        return int(model.net.classifier.bias[0]), len(passes)

    return start


@pytest.mark.parametrize(
    'scores, flags, kept, passes',
    [
        ([1, 3, 2, 2, 9], ['--early_stopping_metric accuracy --early_stopping_patience 2'], 1, 4),
        ([5, 3, 4, 2, 3, 3, 0], ['--early_stopping_patience 2'], 3, 6),  # a loss: less is better
        ([5, 4.95, 4.9, 4], ['--early_stopping_patience 2 --early_stopping_epsilon 0.2'], 0, 3),
        ([5, 6, 7, 0], ['--early_stopping_patience 1 --early_stopping_freq 3'], 2, 6),
    ],
)
def test_early_stopping_keeps_the_best_network(scripted, scores, flags, kept, passes):
    assert scripted(scores, '--n_epochs 20', *flags) == (kept, passes)


def test_early_stopping_looks_at_held_out_samples_of_the_newest_task(run, monkeypatch):
    looked = []
    whole = fitting.evaluate

    def watched(model, dataset, **options):
        looked.append((options, len(dataset.test_loaders[-1].dataset), dataset.c_task))
        return whole(model, dataset, **options)

    monkeypatch.setattr(fitting, 'evaluate', watched)
    run('--fitting_mode early_stopping --validation 25 --n_splits 2 --n_epochs 1')
    # 2 of each class, 5 classes
    assert looked == [({'last': True, 'return_loss': True}, 10, task) for task in (0, 1)]
