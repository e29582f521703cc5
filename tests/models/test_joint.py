"""Joint training: the union of the tasks, learned as if it had come at once."""
import pytest
import torch

from main import initialize
from utils.training import train

pytestmark = pytest.mark.usefixtures('few_digits')


def run(parse, method, *flags):
    model, dataset, args = initialize(parse(method, '--lr', '0.05', '--n_epochs', '2', '--batch_size', '16', *flags))
    train(model, dataset, args)
    return model


@pytest.mark.parametrize('flags', [[], ['--lr_scheduler', 'multisteplr', '--lr_milestones', '1']])
def test_on_one_task_it_is_sgd_to_the_last_bit(parse, flags):
    joint, sgd = (run(parse, method, '--n_splits', '1', *flags) for method in ('joint', 'sgd'))
    assert torch.equal(joint.net.get_params(), sgd.net.get_params())


def test_it_learns_from_each_sample_of_all_tasks_in_each_epoch_and_only_at_the_end(parse):
    model, dataset, args = initialize(parse('joint', '--lr', '0.05', '--n_epochs', '3', '--n_splits', '4'))
    start, seen, loss = model.net.get_params().clone(), [], model.loss
    model.loss = lambda logits, labels: (seen.extend(labels.tolist()), loss(logits, labels))[1]
    ends, end_task = [], model.end_task

    def noted(dataset):
        end_task(dataset)
        ends.append(torch.equal(model.net.get_params(), start))
    model.end_task = noted
    train(model, dataset, args)
    assert ends == [True, True, True, False] and sorted(seen) == sorted(dataset.train_labels.tolist() * 3)


def test_the_flag_joint_makes_one_task_of_any_stream(parse):
    model, dataset, args = initialize(parse('sgd', '--joint', '1'))
    assert dataset.N_TASKS == 1 and len(dataset.task_classes(0)) == 10
