"""EWC: the Fisher information of a model small enough to do by hand, and the penalty's gradient."""

import copy

import pytest
import torch
from torch.nn import functional as F

from tests.models.conftest import batches, close, gradient, same_state, seeded, step_of, still


def test_at_the_end_of_a_task_it_is_the_mean_over_samples(start):
    """Whatever the batches (the last is short), with nothing of the network changed; later tasks
    add to what gamma leaves.
    """
    model, dataset, _ = start('ewc-on', '--gamma 0.5 --batch_size 10')
    totals = []
    for task in range(2):
        loader, _ = dataset.get_data_loaders()
        train_set = loader.dataset
        train_set.transform = model.normalization_transform  # nothing random
        model.meta_begin_task(dataset)
        modes = [m.training for m in model.net.modules()]
        twin = copy.deepcopy(model.net).eval()
        model.meta_end_task(dataset)
        assert same_state(twin, model.net)
        assert modes == [m.training for m in model.net.modules()]
        total = 0
        for x, y, _ in (train_set[i] for i in range(len(train_set))):
            log_p = twin(x[None]).log_softmax(1)[0, y]
            total = total + log_p.detach().exp() * gradient(log_p, twin) ** 2
        totals.append(total / len(train_set))
        expected = totals[0] if task == 0 else 0.5 * totals[0] + totals[1]
        assert torch.allclose(model.fisher, expected, rtol=1e-3, atol=1e-5 * float(expected.max()))
        assert torch.equal(model.anchor, model.net.get_params())


@pytest.mark.parametrize('pull', [0, 1])
def test_the_penalty_pulls_back_with_twice_e_lambda(start, pull):
    """Not at all at theta* itself."""
    model, dataset, _ = start('ewc-on', '--e_lambda 3 --lr 0.1')
    inputs, labels, images = batches(model, dataset)[0]
    importance, away = torch.rand(2, len(model.net.get_params()), generator=seeded())
    model.fisher = importance
    model.anchor = model.net.get_params().detach() - pull * away
    plain = gradient(F.cross_entropy(still(model).net(inputs), labels), model.net)
    _, step = step_of(model, (inputs, labels, images))
    assert close(step, plain + pull * 2 * 3 * importance * away)
