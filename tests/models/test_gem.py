"""GEM: the quadratic programme against hand values and another solver; the step on real samples."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch.nn import functional as F

from models import gem
from tests.conftest import quick
from tests.models.conftest import check_step, gradient, next_task, opposed, seeded, still, stored


@pytest.mark.parametrize(
    'g, G, margin, eps, expected',
    [
        ((1, -1), [(0, 3)], 0.5, 1e-3, (1, 0.5)),  # v = max(0.5, 3 / 9.001): the margin overshoots
        # equal, and large
        ((1, -1), [(0, 1e9), (0, 1e9)], 0, 1e-3, (1, 0)),
    ],
)
def test_hand_values(g, G, margin, eps, expected):
    out = gem.project(
        torch.tensor(g, dtype=torch.float32), torch.tensor(G, dtype=torch.float32), margin, eps
    )
    assert out.tolist() == pytest.approx(expected, abs=1e-6)


@quick
@given(
    seed=st.integers(0, 2**20),
    t=st.integers(1, 12),
    margin=st.sampled_from([0, 0.5, 2]),
    scale=st.floats(-2, 3),
    duplicates=st.booleans(),
)
def test_the_solution_is_that_of_least_squares_above_the_margin(seed, t, margin, scale, duplicates):
    """Let P = R'R and u = v - margin >= 0: |R u + R^-T (q + P margin)|^2 is least. Gradients large
    or small, equal or not.
    """
    random = np.random.default_rng(seed)
    G = random.standard_normal((t, 12)) * 10**scale
    g = random.standard_normal(12)
    if duplicates:
        G[random.integers(0, t, t)] = G[0]
    P = G @ G.T + 1e-3 * np.eye(t)
    q = G @ g
    v = gem.solve(P, q, margin)
    root = np.linalg.cholesky(P).T
    other = (
        margin + nnls(root, -np.linalg.solve(root.T, q + margin * P.sum(axis=1)), maxiter=30 * t)[0]
    )
    assert (v >= margin - 1e-7).all()
    losses = [x @ P @ x / 2 + q @ x for x in (v, other)]
    assert losses[0] <= losses[1] + 1e-7 * (abs(losses[1]) + np.abs(P).max() * (1 + margin) ** 2)


def test_inner_products_are_summed_in_float64():
    rows = torch.randn(3, 2**20 + 7, generator=seeded()) * torch.logspace(-4, 4, 2**20 + 7)
    exact = rows.double().numpy() @ rows.double().numpy().T
    assert np.allclose(gem.inner_products(rows), exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_a_step_follows_the_projected_gradient(start):
    """The memory of one past task is passed whole."""
    model, dataset, _ = start('gem', '--gamma 0 --lr 0.1')
    batch = opposed(model, next_task(model, dataset)[0])
    images, stored_labels = stored(still(model))
    m = gradient(F.cross_entropy(model.net(images), stored_labels), model.net)
    loss = F.cross_entropy(model.net(batch[0]), batch[1])
    g = gradient(loss, model.net)
    assert g @ m < 0  # else nothing would be tested
    step = check_step(model, batch, loss, g - (g @ m) / (m @ m + 1e-3) * m)
    assert abs(float(step @ m)) < 0.02 * float(-(g @ m))


def test_each_sample_of_the_memory_has_its_task(trained):
    model, dataset = trained('gem')
    _, labels, tasks = model.buffer.get_all_data()
    for task in range(3):
        assert set(labels[tasks == task].tolist()) == set(dataset.task_classes(task).tolist())
