"""MIR: interference against first-order theory, what scoring leaves alone, which candidates there are and which are taken."""
import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train, training_mode
from models import mir
from models.mir import interference
from tests.conftest import quick


def start(parse, *flags, method='mir', **more):
    more = dict(permute_classes=1, batch_size=64, buffer_size=100) | more
    return initialize(parse(method, *flags, **more))


def batches(model, dataset, count, bn='train'):
    """Of the next task, which has begun."""
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, bn)
    return list(loader)[:count]


def linear_problem(seed, count=6):
    """(linear softmax model with the gradient of its first sample, x, y) in float64."""
    torch.manual_seed(seed)
    net = nn.Linear(4, 3).double()
    x, y = torch.randn(count, 4, dtype=torch.float64), torch.randint(0, 3, (count,))
    F.cross_entropy(net(x[:1]), y[:1]).backward()
    return net, x, y


@quick
@given(seed=st.integers(0, 2 ** 20))
def test_for_small_rates_interference_is_minus_the_product_of_gradients(seed):
    """score_j = -lr g.grad_j; (p - onehot) x' is the gradient by hand. The sample itself is helped most of all that like it."""
    net, x, y = linear_problem(seed)
    p = torch.softmax(net(x), dim=1).detach() - F.one_hot(y, 3)                             # (6, 3)
    products = (p @ p[0]) * (x @ x[0] + 1)                                                  # weights and biases
    lr = 1e-6
    scores = interference(net, lr, x, y)
    assert torch.allclose(scores / lr, -products, atol=1e-4) and scores[0] < 0
    by_theory = products.sort(stable=True)
    gaps = by_theory.values.diff().abs().min()
    assert gaps < 1e-4 or torch.equal(scores.argsort(descending=True), by_theory.indices)


@quick
@given(seed=st.integers(0, 2 ** 20), lr=st.floats(0, 2))
def test_interference_is_the_change_of_loss_that_the_step_makes(seed, lr):
    net, x, y = linear_problem(seed)
    scores, before = interference(net, lr, x, y), F.cross_entropy(net(x), y, reduction='none').detach()
    torch.optim.SGD(net.parameters(), lr=lr).step()
    assert torch.allclose(scores, F.cross_entropy(net(x), y, reduction='none').detach() - before, atol=1e-12)
    assert not scores.requires_grad and (lr or not scores.any())


def test_scoring_leaves_the_network_alone(parse):
    """Parameters, gradients, running statistics and modes; the scores are those of batch statistics."""
    model, dataset, _ = start(parse, schedule='split:3,order=random')
    [(inputs, labels, _)] = batches(model, dataset, 1)
    F.cross_entropy(model.net(inputs), labels).backward()
    before = copy.deepcopy(model.net)
    gradients = [p.grad.clone() for p in model.net.parameters()]
    in_training = interference(model.net, 0.1, inputs[:20], labels[:20])
    assert in_training.any() and all(module.training for module in model.net.modules())
    assert all(torch.equal(a, before.state_dict()[name]) for name, a in model.net.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.net.parameters(), gradients))
    model.net.eval()
    assert not torch.allclose(interference(model.net, 0.1, inputs[:20], labels[:20]), in_training)


def watch_draws(model, monkeypatch) -> list:
    rows, draw = [], model.buffer.draw
    monkeypatch.setattr(model.buffer, 'draw', lambda *given: rows.append(found := draw(*given)) or found)
    return rows


def steps_until_two_in_second_task(parse, *flags):
    """(model, next batch), with samples of both tasks in the buffer."""
    model, dataset, _ = start(parse, *flags, schedule='split:3,order=random')
    for batch in batches(model, dataset, 3):
        model.meta_observe(*batch)
    model.meta_end_task(dataset)
    first, second = batches(model, dataset, 2)
    model.meta_observe(*first)
    assert set(model.buffer.task_labels.tolist()) == {0, 1}
    return model, second


def test_the_most_interfered_candidates_are_replayed(parse, monkeypatch):
    model, (inputs, labels, _) = steps_until_two_in_second_task(parse, '--minibatch_size', '7', '--subsample', '30')
    model.opt.zero_grad()
    F.cross_entropy(model.net(inputs), labels).backward()
    draws = watch_draws(model, monkeypatch)
    replayed, replayed_labels = model.retrieve()
    [rows] = draws
    scores = interference(model.net, model.args.lr, model.plain(model.buffer.examples[rows]), model.buffer.labels[rows])
    best = rows[np.argsort(-scores.numpy(), kind='stable')[:7]]
    assert len(rows) == 30 and torch.equal(replayed, model.buffer.examples[best])
    assert torch.equal(replayed_labels, model.buffer.labels[best])


@pytest.mark.parametrize('flags', ['--lr 0 --subsample 40 --minibatch_size 10', '--lr 0 --subsample 10 --minibatch_size 10'])
def test_equal_scores_leave_the_order_of_the_draw(parse, monkeypatch, flags):
    model, (inputs, labels, _) = steps_until_two_in_second_task(parse, *flags.split())
    F.cross_entropy(model.net(inputs), labels).backward()
    draws = watch_draws(model, monkeypatch)
    replayed, _ = model.retrieve()
    assert torch.equal(replayed, model.buffer.examples[draws[0][:10]])


def test_with_as_many_candidates_as_replays_the_draw_is_that_of_er(parse, monkeypatch):
    flags = '--subsample', '20', '--minibatch_size', '20', '--task_free', '1'
    drawn = []
    for method, words in (('mir', flags), ('er', flags[2:4])):
        model, dataset, _ = start(parse, *words, method=method, schedule='split:3,order=random')
        draws = watch_draws(model, monkeypatch)
        for batch in batches(model, dataset, 4):
            model.meta_observe(*batch)
        drawn.append([sorted(rows) for rows in draws])
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3 and len(set(map(tuple, drawn[0]))) == 3


def test_a_step_follows_the_sum_of_both_gradients(parse, monkeypatch):
    """Two means of different size: neither is diluted by the other."""
    model, (inputs, labels, images) = steps_until_two_in_second_task(parse, '--lr', '0.5', '--minibatch_size', '9')
    model.net.eval()
    chosen = []
    retrieve = model.retrieve
    monkeypatch.setattr(model, 'retrieve', lambda: chosen.append(retrieve()) or chosen[0])
    model.transform = model.normalization_transform
    before = copy.deepcopy(model.net)
    model.meta_observe(inputs, labels, images)
    [(replayed, replayed_labels)] = chosen
    loss = F.cross_entropy(before(inputs), labels) + F.cross_entropy(before(model.plain(replayed)), replayed_labels)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, before.parameters())])
    step = (before.get_params() - model.net.get_params()) / 0.5
    assert len(replayed) == 9 and torch.allclose(step, gradient, atol=1e-4 * float(gradient.abs().max()))


@pytest.mark.parametrize('task_free', ['0', '1'])
def test_the_current_task_is_replayed_only_on_demand(parse, monkeypatch, task_free):
    model, (inputs, labels, images) = steps_until_two_in_second_task(parse, '--task_free', task_free, '--subsample', '100')
    draws, tasks = watch_draws(model, monkeypatch), model.buffer.task_labels.clone()
    model.meta_observe(inputs, labels, images)
    assert sorted(draws[0]) == (list(range(100)) if task_free == '1' else np.flatnonzero(tasks == 0).tolist())


def test_the_first_task_is_sgd(parse, few_digits):
    ends = []
    for method, more in (('mir', dict(buffer_size=20)), ('sgd', dict(n_epochs=1))):
        model, dataset, args = initialize(parse(method, n_splits=1, batch_size=12, **more))
        train(model, dataset, args)
        ends.append(model.net.get_params())
    assert torch.equal(*ends)


def test_a_stream_without_tasks_replays_whatever_the_flag_says(parse, monkeypatch):
    model, dataset, _ = start(parse, '--task_free', '0', '--schedule', 'gaussian:batch=64')
    replays, score = [], mir.interference
    monkeypatch.setattr(mir, 'interference', lambda *given: replays.append(len(given[3])) or score(*given))
    for batch in batches(model, dataset, 2):
        model.meta_observe(*batch)
    assert replays == [50]


def test_a_buffer_without_other_tasks_replays_nothing(parse):
    """The one row was overwritten by the current task."""
    model, dataset, _ = start(parse, '--buffer_size', '1', schedule='split:3,order=random')
    for _ in range(2):
        for inputs, labels, images in batches(model, dataset, 2, 'frozen'):
            model.meta_observe(inputs, labels, images)
        model.meta_end_task(dataset)
        model.buffer.task_labels.fill_(1)
    assert all(torch.isfinite(p).all() for p in model.net.parameters())
