"""SS-IL: gradients that must be exactly zero, distillation by hand, the teacher, and tasks of one
class.
"""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.ssil import separated_cross_entropy, task_wise_distillation
from tests.conftest import quick
from tests.models.conftest import classes, cross_entropy, next_task, seeded, softmax, still, stored


def kl(teacher, student, tasks):
    """Sum over tasks of the mean KL at T = 2, term by term."""
    total = 0
    for part in tasks:
        p = softmax(teacher[:, part] / 2)
        q = softmax(student[:, part] / 2)
        total += (p * np.log(p / q)).sum(axis=1).mean()
    return total


@st.composite
def partitions(draw):
    """(7 logits cut into tasks of unequal size and any classes, seed)."""
    order = draw(st.permutations(range(7)))
    cuts = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)))
    return [
        torch.tensor(part, dtype=torch.int64) for part in np.split(np.array(order), cuts)
    ], draw(st.integers(0, 2**20))


@quick
@given(partition=partitions())
def test_the_softmax_is_separated(partition):
    """Classes that are left out get a gradient of exactly zero; of one class, all do, and the loss
    is zero.
    """
    tasks, seed = partition
    random = seeded(seed)
    for part in tasks:
        logits = (torch.randn(5, 7, generator=random) * 3).requires_grad_()
        labels = part[torch.randint(0, len(part), (5,), generator=random)]
        loss = separated_cross_entropy(logits, labels, part)
        loss.backward()
        others = np.setdiff1d(np.arange(7), part)
        assert not logits.grad[:, others].any()
        if len(part) == 1:
            assert loss.item() == 0
            assert not logits.grad.any()
        else:
            assert loss.item() == pytest.approx(
                cross_entropy(logits, labels, part.sort().values), rel=1e-4, abs=1e-6
            )
            assert logits.grad[:, part].any()


@quick
@given(partition=partitions())
def test_distillation_task_by_task(partition):
    tasks, seed = partition
    z = torch.randn(2, 5, 7, dtype=torch.float64, generator=seeded(seed)) * 3
    out = float(task_wise_distillation(*z, tasks))
    assert out == pytest.approx(kl(*z.numpy(), [t.numpy() for t in tasks]), abs=1e-9)
    assert out >= 0
    shifted = z[1].clone()
    shifted[:, tasks[0]] += 5  # a softmax of one task does not see it
    assert float(task_wise_distillation(z[0], shifted, tasks)) == pytest.approx(out, abs=1e-9)
    assert abs(float(task_wise_distillation(z[0], z[0], tasks))) < 1e-12


@pytest.mark.parametrize('coefficient', [0, 2.5])
def test_the_loss_by_hand_in_the_third_task(start, coefficient):
    """Unequal tasks of classes in any order; teacher and student see the same images, of earlier
    tasks only.
    """
    model, dataset, _ = start(
        'ssil', '--distill_coef', coefficient, '--lr 0.01 --minibatch_size 99'
    )
    first, (inputs, labels, images) = next_task(model, dataset, 2)[:2]
    teacher = copy.deepcopy(model.net).eval()
    model.meta_observe(*first)
    assert set(model.buffer.task_labels[: len(model.buffer)].tolist()) == {0, 1, 2}
    for p in model.net.parameters():
        p.data += 0.05 * torch.randn(p.shape, generator=seeded())  # away from the teacher
    replayed, replayed_labels = stored(still(model), [0, 1])
    z, z_replayed, z_teacher = (
        net(x).detach().double().numpy()
        for net, x in ((model.net, inputs), (model.net, replayed), (teacher, replayed))
    )
    expected = cross_entropy(z, labels, classes(dataset, 2))
    expected += cross_entropy(z_replayed, replayed_labels, classes(dataset, 0, 1))
    distilled = kl(z_teacher, z_replayed, [dataset.task_classes(t) for t in (0, 1)])
    assert distilled > 1e-3
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(
        expected + coefficient * distilled, rel=1e-4
    )
