"""SS-IL: gradients that must be exactly zero, distillation by hand, the teacher, and tasks of one class."""
import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train, training_mode
from models.ssil import separated_cross_entropy, task_wise_distillation
from tests.conftest import quick


def start(parse, *flags, **more):
    more = dict(schedule='split:3,order=random', permute_classes=1, batch_size=64, buffer_size=100) | more
    return initialize(parse('ssil', *flags, **more))


def batches(model, dataset, count):
    """Of the next task, which has begun."""
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, 'train')
    return list(loader)[:count]


def second_task(parse, *flags, **more):
    """(model, dataset, batches of the second task); the buffer holds samples of the first."""
    model, dataset, _ = start(parse, *flags, **more)
    for batch in batches(model, dataset, 2):
        model.meta_observe(*batch)
    model.meta_end_task(dataset)
    return model, dataset, batches(model, dataset, 2)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def kl(teacher, student, tasks):
    """Sum over tasks of the mean KL at T = 2, term by term."""
    total = 0
    for classes in tasks:
        p, q = softmax(teacher[:, classes] / 2), softmax(student[:, classes] / 2)
        total += (p * np.log(p / q)).sum(axis=1).mean()
    return total


@st.composite
def partitions(draw):
    """(7 logits cut into tasks of unequal size and any classes, seed)."""
    order = draw(st.permutations(range(7)))
    cuts = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)))
    return [torch.tensor(part, dtype=torch.int64) for part in np.split(np.array(order), cuts)], draw(st.integers(0, 2 ** 20))


@quick
@given(partition=partitions())
def test_the_softmax_is_separated(partition):
    """Classes that are left out get a gradient of exactly zero; of one class, all do, and the loss is zero."""
    tasks, seed = partition
    random = torch.Generator().manual_seed(seed)
    for classes in tasks:
        logits = (torch.randn(5, 7, generator=random) * 3).requires_grad_()
        labels = classes[torch.randint(0, len(classes), (5,), generator=random)]
        loss = separated_cross_entropy(logits, labels, classes)
        loss.backward()
        others = np.setdiff1d(np.arange(7), classes)
        assert not logits.grad[:, others].any()
        if len(classes) == 1:
            assert loss.item() == 0 and not logits.grad.any()
        else:
            p = softmax(logits.detach().double().numpy()[:, classes])
            at = [classes.tolist().index(y) for y in labels.tolist()]
            assert loss.item() == pytest.approx(-np.log(p[np.arange(5), at]).mean(), rel=1e-4, abs=1e-6)
            assert logits.grad[:, classes].any()


@quick
@given(partition=partitions())
def test_distillation_task_by_task(partition):
    tasks, seed = partition
    z = torch.randn(2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 3
    out = float(task_wise_distillation(*z, tasks))
    assert out == pytest.approx(kl(*z.numpy(), [t.numpy() for t in tasks]), abs=1e-9) and out >= 0
    shifted = z[1].clone()
    shifted[:, tasks[0]] += 5                                                   # a softmax of one task does not see it
    assert float(task_wise_distillation(z[0], shifted, tasks)) == pytest.approx(out, abs=1e-9)
    together = [torch.cat(tasks)]
    assert len(tasks) == 1 or float(task_wise_distillation(z[0], shifted, together)) != pytest.approx(
        float(task_wise_distillation(*z, together)), abs=1e-6)
    assert abs(float(task_wise_distillation(z[0], z[0], tasks))) < 1e-12


def test_distillation_of_tasks_of_one_class_is_nothing():
    z = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    student = z[1].requires_grad_()
    loss = task_wise_distillation(z[0], student, [torch.tensor([k]) for k in range(3)])
    loss.backward()
    assert loss.item() == 0 and not student.grad.any()


def test_new_samples_move_new_rows_of_the_head_and_replayed_ones_old_rows(parse, monkeypatch):
    model, dataset, [(inputs, labels, images), _] = second_task(parse)
    old, new = (np.sort(dataset.task_classes(t)) for t in (0, 1))

    def rows_moved(loss):
        gradient = torch.autograd.grad(loss, model.net.classifier.weight, retain_graph=True)[0]
        return np.flatnonzero(gradient.any(dim=1))
    replayed = inputs, torch.as_tensor(old)[torch.arange(64) % len(old)]
    assert rows_moved(model.replay_loss(*replayed)).tolist() == old.tolist()
    monkeypatch.setattr(model, 'replay', lambda **_: (inputs[:0], labels[:0], labels[:0]))      # nothing to replay
    model.meta_observe(inputs, labels, images)
    assert np.flatnonzero(model.net.classifier.weight.grad.any(dim=1)).tolist() == new.tolist()


@pytest.mark.parametrize('coefficient', [0, 1, 2.5])
def test_the_loss_by_hand_in_the_third_task(parse, monkeypatch, coefficient):
    """Unequal tasks of classes in any order; teacher and student see the same augmented images."""
    model, dataset, given_batches = second_task(parse, '--distill_coef', str(coefficient))
    model.meta_observe(*given_batches[0])
    model.meta_end_task(dataset)
    [(inputs, labels, images)] = batches(model, dataset, 1)
    tasks = [dataset.task_classes(t) for t in range(3)]
    assert [len(classes) for classes in tasks] == [4, 3, 3] and any(np.diff(np.sort(tasks[0])) > 1)
    for p in model.net.parameters():
        p.data += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))      # away from the teacher
    old = np.concatenate(tasks[:2])
    replayed = inputs[:10] + 0.2, torch.from_numpy(old)[torch.arange(10) % 7]
    monkeypatch.setattr(model, 'replay', lambda mask_task_out: (*replayed, None) if mask_task_out == 2 else None)
    model.opt.param_groups[0]['lr'] = 0
    model.net.eval()
    z, z_replayed, z_teacher = (net(x).detach().double().numpy() for net, x in
                                ((model.net, inputs), (model.net, replayed[0]), (model.teacher, replayed[0])))
    at = [tasks[2].tolist().index(y) for y in labels.tolist()]
    expected = -np.log(softmax(z[:, tasks[2]])[np.arange(64), at]).mean()
    expected += -np.log(softmax(z_replayed[:, old])[np.arange(10), np.arange(10) % 7]).mean()
    distilled = kl(z_teacher, z_replayed, tasks[:2])
    assert distilled > 1e-3
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(expected + coefficient * distilled, rel=1e-4)


def test_the_teacher_is_the_network_as_the_last_task_left_it(parse):
    model, dataset, [first, second] = second_task(parse, '--lr', '0.1')
    left = copy.deepcopy(model.net.state_dict())
    model.meta_observe(*first)
    model.meta_observe(*second)
    assert all(torch.equal(value, left[name]) for name, value in model.teacher.state_dict().items())
    assert not torch.equal(model.net.classifier.weight, model.teacher.classifier.weight)
    assert not any(module.training for module in model.teacher.modules()) and model.net.training
    assert not any(p.requires_grad for p in model.teacher.parameters())
    assert not {id(p) for p in model.teacher.parameters()} & {id(p) for g in model.opt.param_groups for p in g['params']}


def test_replay_is_of_earlier_tasks_only(parse, monkeypatch):
    model, dataset, _ = start(parse)
    replayed, replay_loss = [], model.replay_loss
    monkeypatch.setattr(model, 'replay_loss', lambda x, y: replayed.append((model.current_task, y)) or replay_loss(x, y))
    for _ in range(3):
        for batch in batches(model, dataset, 3):
            model.meta_observe(*batch)
        model.meta_end_task(dataset)
    assert [task for task, _ in replayed] == [1] * 3 + [2] * 3
    for task, labels in replayed:
        assert set(labels.tolist()) <= set(np.concatenate([dataset.task_classes(t) for t in range(task)]).tolist())
    assert set(model.buffer.task_labels.tolist()) == {0, 1, 2}
    assert all(np.isin(model.buffer.labels[model.buffer.task_labels == t], dataset.task_classes(t)).all() for t in range(3))


def test_with_one_class_a_task_the_first_teaches_nothing(parse):
    """Loss and gradient are exactly zero; the run goes on, and the last class is never replayed."""
    model, dataset, _ = start(parse, '--lr', '0.5', schedule='split:10')
    before = model.net.get_params().detach().clone()
    losses = [model.meta_observe(*batch).item() for batch in batches(model, dataset, 2)]
    assert losses == [0, 0] and torch.equal(model.net.get_params(), before)
    model.meta_end_task(dataset)
    [batch] = batches(model, dataset, 1)
    assert model.meta_observe(*batch).item() == 0                               # one old class, too
    assert torch.equal(model.net.get_params(), before)
    model.meta_end_task(dataset)
    [batch] = batches(model, dataset, 1)
    assert model.meta_observe(*batch).item() > 0.1                              # replayed samples tell two old classes apart
    row = int(dataset.task_classes(2)[0])
    assert not model.net.classifier.weight.grad[row].any() and model.net.classifier.weight.grad.any()


def test_a_buffer_of_the_current_task_alone_replays_nothing(parse):
    model, _, [batch, _] = second_task(parse)
    model.buffer.task_labels.fill_(1)
    expected = F.cross_entropy(copy.deepcopy(model.net)(batch[0])[:, np.sort(model.tasks[1])],
                               torch.searchsorted(model.tasks[1].sort().values, batch[1]))
    assert model.meta_observe(*batch).item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_run(parse, few_digits):
    model, dataset, args = start(parse, batch_size=12, buffer_size=20)
    result = train(model, dataset, args)
    assert sorted(torch.cat(model.tasks).tolist()) == list(range(10)) and 0 <= result['final_accuracy'] <= 100
