"""A-GEM: the projection, and the step that follows it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from models import gem
from models.agem import project
from tests.conftest import quick
from tests.models.conftest import (
    batches,
    close,
    gradient,
    next_task,
    opposed,
    seeded,
    step_of,
    still,
    stored,
)


@quick
@given(seed=st.integers(0, 2**20), scale=st.floats(-3, 3))
def test_what_opposes_the_reference_goes_and_nothing_else(seed, scale):
    g, r = torch.randn(2, 50, generator=seeded(seed))
    r = r * 10**scale
    out = project(g, r)
    if g @ r >= 0:
        assert torch.equal(out, g)
    else:
        assert abs(float(out @ r)) <= 1e-6 * float(g.norm() * r.norm())  # orthogonal
        assert float(out.norm() ** 2 + (g - out).norm() ** 2) == pytest.approx(
            float(g.norm() ** 2), rel=1e-5
        )
    unit = r / r.norm()
    assert torch.allclose(project(g, unit), gem.project(g, unit[None], margin=0, eps=0), atol=1e-5)
    assert torch.equal(project(g, torch.zeros(50)), g)


@pytest.mark.parametrize(
    'flags, disagree', [('', True), ('', False), ('--schedule gaussian:batch=12', True)]
)
def test_a_step_follows_the_projected_gradient(start, flags, disagree):
    """The reference gradient is of past tasks, whatever is kept of this one; without tasks, of all
    that came before.
    """
    model, dataset, _ = start('agem', '--minibatch_size 99 --lr 0.1', flags)
    first, batch = (batches(model, dataset) if flags else next_task(model, dataset))[:2]
    model.meta_observe(*first)
    if disagree:
        batch = opposed(model, batch)
        if not flags:
            model.buffer.add_data(
                examples=first[2], labels=first[1], task_labels=torch.ones_like(first[1])
            )
    assert set(model.buffer.task_labels[: len(model.buffer)].tolist()) == ({0} if flags else {0, 1})
    inputs, labels = stored(still(model), [0])
    g = gradient(F.cross_entropy(model.net(batch[0]), batch[1]), model.net)
    r = gradient(F.cross_entropy(model.net(inputs), labels), model.net)
    assert g @ r < 0 or not disagree
    assert close(step_of(model, batch)[1], g - (g @ r).clamp(max=0) / (r @ r) * r)
