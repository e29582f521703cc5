"""MIR: interference against first-order theory, what scoring leaves alone, and the step with what
is replayed.
"""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from models.mir import interference
from tests.conftest import quick
from tests.models.conftest import (
    batches,
    check_step,
    gradient,
    next_task,
    same_state,
    still,
    stored,
)


def linear_problem(seed, count=6):
    """(linear softmax model with the gradient of its first sample, x, y) in float64."""
    torch.manual_seed(seed)
    net = nn.Linear(4, 3).double()
    x = torch.randn(count, 4, dtype=torch.float64)
    y = torch.randint(0, 3, (count,))
    F.cross_entropy(net(x[:1]), y[:1]).backward()
    return net, x, y


@quick
@given(seed=st.integers(0, 2**20), lr=st.floats(0, 2))
def test_interference_is_the_change_of_loss_that_the_step_makes(seed, lr):
    net, x, y = linear_problem(seed)
    scores = interference(net, lr, x, y)
    before = F.cross_entropy(net(x), y, reduction='none').detach()
    torch.optim.SGD(net.parameters(), lr=lr).step()
    after = F.cross_entropy(net(x), y, reduction='none').detach()
    assert torch.allclose(scores, after - before, atol=1e-12)
    assert not scores.requires_grad
    assert lr or not scores.any()


def test_scoring_leaves_the_network_alone(start):
    """Parameters, gradients, running statistics and modes; the scores are those of batch
    statistics.
    """
    model, dataset, _ = start('mir')
    inputs, labels, _ = batches(model, dataset)[0]
    F.cross_entropy(model.net(inputs), labels).backward()
    before = copy.deepcopy(model.net)
    gradients = [p.grad.clone() for p in model.net.parameters()]
    in_training = interference(model.net, 0.1, inputs, labels)
    assert in_training.any()
    assert all(module.training for module in model.net.modules())
    assert same_state(model.net, before)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.net.parameters(), gradients))
    model.net.eval()
    assert not torch.allclose(interference(model.net, 0.1, inputs, labels), in_training)


@pytest.mark.parametrize(
    'flags, tasks',
    [
        ('--task_free 0', [0]),
        ('--task_free 1', [0, 1]),
        ('--task_free 0 --schedule gaussian:batch=12', [0]),
    ],
)
def test_a_step_follows_the_sum_of_both_gradients_of_batch_and_most_interfered(start, flags, tasks):
    """Two means of different size: neither is diluted by the other. Of the current task, candidates
    only on demand; on a stream without tasks, always."""
    model, dataset, _ = start('mir', '--lr 0.01 --minibatch_size 7 --subsample 99', flags)
    coming = batches(model, dataset) if 'gaussian' in flags else next_task(model, dataset)
    first, batch = coming[:2]
    model.meta_observe(*first)
    candidates, labels = stored(still(model), tasks)
    loss = F.cross_entropy(model.net(batch[0]), batch[1])
    there = copy.deepcopy(model.net)  # the step to come, taken by a copy
    g = gradient(loss, model.net)
    there.set_params(model.net.get_params() - 0.01 * g)
    now, then = (
        F.cross_entropy(net(candidates), labels, reduction='none') for net in (model.net, there)
    )
    chosen = (then - now).argsort(descending=True)[:7]
    expected = g + gradient(
        F.cross_entropy(model.net(candidates[chosen]), labels[chosen]), model.net
    )
    check_step(model, batch, loss, expected)
