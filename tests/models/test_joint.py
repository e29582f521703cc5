"""Joint training: the union of the tasks, learned as if it had come at once (and as by SGD on one
task: test_contract.py).
"""

import itertools

import pytest
import torch

from bench.run.training import train
from tests.conftest import refused


@pytest.fixture
def lessons(start):
    """lessons(*flags): (labels of each step of a run, whether the network had moved after each
    task, data set).
    """

    def run(*flags):
        model, dataset, args = start('joint', '--lr 0.05', *flags)
        begin = model.net.get_params().clone()
        seen = []
        moved = []
        usual = model.loss, model.end_task

        def loss(logits, labels):
            seen.append(labels.tolist())
            return usual[0](logits, labels)

        def end_task(dataset):
            usual[1](dataset)
            moved.append(not torch.equal(model.net.get_params(), begin))

        model.loss = loss
        model.end_task = end_task
        train(model, dataset, args)
        return seen, moved, dataset

    return run


def test_it_learns_from_each_sample_of_all_tasks_in_each_epoch_and_only_at_the_end(lessons):
    seen, moved, dataset = lessons('--n_epochs 3 --n_splits 4 --noise_rate 0.3')
    assert moved == [False, False, False, True]
    assert sorted(itertools.chain(*seen)) == sorted(dataset.train_labels.tolist() * 3)


@pytest.mark.parametrize('flags, samples', [(['--validation 25'], 60), (['--label_perc 0.5'], 40)])
def test_what_flags_do_to_a_stream_joint_sees_too(lessons, tmp_path, flags, samples):
    seen, moved, _ = lessons(*flags, '--base_path', tmp_path)
    labels = [*itertools.chain(*seen)]
    assert len(labels) == samples
    assert -1 not in labels
    assert moved[-1] == bool(samples)


def test_samples_come_in_random_order_whatever_the_schedule(lessons):
    """A batch of 16 of ten classes in equal numbers nearly always has 4 of them or more; in the
    order of the stream, at most 3.
    """
    seen, *_ = lessons('--batch_size 16 --schedule gaussian:sigma=0.1 --permute_classes 0')
    assert len(seen) == 5
    assert all(len(set(labels)) > 3 for labels in seen)


def test_a_loss_that_is_not_finite_ends_the_run(lessons):
    with refused('finite', '--lr'):
        lessons('--schedule iid --optim_wd 1e30')
