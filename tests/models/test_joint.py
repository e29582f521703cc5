"""Joint training: the union of the tasks, learned as if it had come at once."""
import pytest
import torch

from bench.run.building import initialize
from bench.run.training import train
from tests.conftest import refused
from tests.datasets.conftest import arguments, foreign  # noqa: F401
from tests.datasets.conftest import run as row_of

pytestmark = pytest.mark.usefixtures('few_digits')


def run(parse, method, *flags):
    fixed = {'--lr': '0.05', '--n_epochs': '2', '--batch_size': '16'}
    fixed = [word for flag, value in fixed.items() if flag not in flags for word in (flag, value)]
    model, dataset, args = initialize(parse(method, *fixed, *flags))
    train(model, dataset, args)
    return model


@pytest.mark.parametrize('flags', [[], ['--lr_scheduler', 'multisteplr', '--lr_milestones', '1'], ['--batch_size', '79'],
                                   ['--debug_mode', '1'], ['--label_perc', '0.5']])         # 80 samples: one is left over
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


def lessons(model) -> list:
    """The labels of each step of joint training, once it has run."""
    seen, loss = [], model.loss
    model.loss = lambda logits, labels: (seen.append(labels.tolist()), loss(logits, labels))[1]
    return seen


@pytest.mark.parametrize('flags, samples', [(['--noise_rate', '0.3'], 80), (['--validation', '25'], 60), (['--label_perc', '0.5'], 40),
                                            (['--joint', '1'], 80), (['--inference_only', '1'], 0)])
def test_what_flags_do_to_a_stream_joint_sees_too(parse, tmp_path, flags, samples):
    splits = [] if '--joint' in flags else ['--n_splits', '3']
    model, dataset, args = initialize(parse('joint', '--lr', '0.05', '--n_epochs', '1', *splits, *flags, base_path=tmp_path))
    seen, start = lessons(model), model.net.get_params().clone()
    train(model, dataset, args)
    labels = sum(seen, [])
    assert len(labels) == samples and -1 not in labels and torch.equal(model.net.get_params(), start) == (not samples)


@pytest.mark.parametrize('schedule', ['gaussian:sigma=0.1', 'split:10,batch=4'])
def test_samples_come_in_random_order_whatever_the_schedule(parse, schedule):
    """A batch of 16 of ten classes in equal numbers nearly always has 4 of them or more; in the order of the stream, at most 3."""
    model, dataset, args = initialize(parse('joint', '--lr', '0.05', '--n_epochs', '1', '--batch_size', '16', '--schedule', schedule))
    seen = lessons(model)
    train(model, dataset, args)
    assert len(seen) == 5 and all(len(set(labels)) > 3 for labels in seen)


@pytest.mark.parametrize('dataset, flags', [
    ('picture-digits', []), ('picture-digits', ['--noise_rate', '0.3']), ('unequal-digits', ['--label_perc', '0.5']),
    ('flowing-digits', []), ('shuffled-digits', [])])
def test_data_sets_of_foreign_make(arguments, tmp_path, dataset, flags):  # noqa: F811
    assert 0 <= row_of(arguments(dataset, *flags, '--base_path', tmp_path, model='joint'))['final_accuracy'] <= 100


def test_each_domain_keeps_its_own_transform(arguments):  # noqa: F811
    """Here each task has a permutation of the pixels; with that of the last for all, there would be one domain only."""
    model, dataset, args = initialize(arguments('shuffled-digits', '--batch_size', '400', model='joint'))
    images, forward = [], model.net.forward
    model.net.forward = lambda x, *more: (images.append(x.clone()) if model.net.training else None, forward(x, *more))[1]
    train(model, dataset, args)
    (batch,) = images
    expected = torch.stack([task[i][0] for task in model.collected for i in range(len(task))])
    def key(rows): return sorted(map(tuple, rows.flatten(1).tolist()))
    assert len(model.collected) == 3 and key(batch) == key(expected)


def test_what_it_cannot_do_is_told(parse):
    for flags in (['--fitting_mode', 'iters', '--n_iters', '3'], ['--eval_epochs', '1']):
        with refused(flags[0], 'joint'):
            parse('joint', '--lr', '0.05', *flags)
    with refused('finite', '--lr'):
        run(parse, 'joint', '--lr', '1e30')
