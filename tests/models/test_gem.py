"""GEM: the quadratic programme against hand values, its optimality conditions and a second
solver; the step on real samples."""
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from models import gem
from models.utils.gradients import read_gradients
from tests.conftest import quick
from tests.models.conftest import close, gradient, next_task, opposed, seeded, step_of, still, stored

WITH_QUADPROG = pytest.mark.skipif(gem.quadprog is None, reason='quadprog is not installed')
SOLVERS = [pytest.param(gem.solve_quadprog, marks=WITH_QUADPROG), gem.solve_active_set]
SOLVERS_HERE = [solve for solve in (gem.solve_quadprog, gem.solve_active_set)
                if gem.quadprog or solve is gem.solve_active_set]


@pytest.mark.parametrize('solve', SOLVERS)
@pytest.mark.parametrize('g, G, margin, eps, expected', [
    ((1, -1), [(0, 1)], 0, 1e-9, (1, 0)),
    ((1, -1), [(0, 1)], 0.5, 1e-3, (1, -0.000999)),             # v = 1 / 1.001
    ((1, -1), [(0, 3)], 0.5, 1e-3, (1, 0.5)),                 # v = max(0.5, 3 / 9.001): the margin overshoots
    ((-1, -1), [(1, 0), (0, 1)], 0, 1e-9, (0, 0)),
])
def test_hand_values(solve, g, G, margin, eps, expected):
    out = gem.project(torch.tensor(g, dtype=torch.float32), torch.tensor(G, dtype=torch.float32), margin, eps, solve)
    assert out.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('margin', [0, 0.5])
def test_a_gradient_no_memory_objects_to_stays_bit_by_bit(margin):
    g = torch.tensor([1.0, 1e-20, -3.0])
    memories = torch.tensor([[2.0, 0, 0], [0, 1, 0], [0, 0, -1e-20], [0, 0, 0]])
    assert torch.equal(gem.project(g, memories, margin), g)


@quick
@given(seed=st.integers(0, 2 ** 20), t=st.integers(1, 12), p=st.integers(1, 12),
       margin=st.sampled_from([0, 0.5, 2]),
       scale=st.floats(-2, 3), duplicates=st.booleans())
def test_optimality_conditions(seed, t, p, margin, scale, duplicates):
    """v >= margin, Pv + Gg >= 0, and one of the two with equality for each memory; gradients
    large or small, duplicates or not."""
    random = np.random.default_rng(seed)
    G, g = random.standard_normal((t, p)) * 10 ** scale, random.standard_normal(p)
    if duplicates:
        G[random.integers(0, t, t)] = G[0]
    P, q = G @ G.T + 1e-3 * np.eye(t), G @ g
    for solve in SOLVERS_HERE:
        v = solve(P, q, margin)
        slack = (P @ v + q) / (np.abs(P).max() * np.abs(v).max() + np.abs(q).max() + 1e-30)
        assert (v >= margin - 1e-7).all() and (slack >= -1e-7).all()
        assert np.abs((v - margin) * slack).max() <= 1e-7 * max(1, np.abs(v).max())


@WITH_QUADPROG
@quick
@given(seed=st.integers(0, 2 ** 20), t=st.integers(1, 50), margin=st.sampled_from([0, 0.5]))
def test_both_solvers_agree(seed, t, margin):
    random = np.random.default_rng(seed)
    G, g = random.standard_normal((t, 30)), random.standard_normal(30)
    P, q = G @ G.T + 1e-3 * np.eye(t), G @ g
    a, b = gem.solve_quadprog(P, q, margin), gem.solve_active_set(P, q, margin)
    assert np.abs(a - b).max() <= 1e-6 * max(1, np.abs(a).max())


def test_inner_products_are_summed_in_float64():
    """Of more columns than are turned into float64 at once."""
    rows = torch.randn(3, 2 ** 20 + 7, generator=seeded()) * torch.logspace(-4, 4, 2 ** 20 + 7)
    exact = rows.double().numpy() @ rows.double().numpy().T
    assert np.allclose(gem.inner_products(rows), exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_mammoths_names_for_flat_gradients():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    net[0](torch.ones(1, 3)).sum().backward()
    sizes = [p.numel() for p in net.parameters()]
    flat = torch.full((sum(sizes),), 7.0)
    gem.store_grad(net.parameters, flat, sizes)
    assert torch.equal(flat, read_gradients(net)) and flat[:6].abs().sum() > 0 and not flat[8:].any()
    gem.overwrite_grad(net.parameters, torch.arange(11.0), sizes)
    assert net[0].weight.grad.tolist() == [[0, 1, 2], [3, 4, 5]] and net[0].bias.grad.tolist() == [6, 7]
    assert net[1].weight.grad is None                                               # has taken no part


def test_a_step_follows_the_projected_gradient(start):
    """Of the memory of one past task, which is passed whole."""
    model, dataset, _ = start('gem', '--gamma', '0', '--lr', '0.1')
    batch = opposed(model, next_task(model, dataset)[0])
    images, stored_labels = stored(still(model))
    m = gradient(F.cross_entropy(model.net(images), stored_labels), model.net)
    loss = F.cross_entropy(model.net(batch[0]), batch[1])
    g = gradient(loss, model.net)
    assert g @ m < 0                                                            # else nothing would be tested
    found, step = step_of(model, batch)
    assert found == pytest.approx(loss.item(), rel=1e-5) and close(step, g - (g @ m) / (m @ m + 1e-3) * m)
    assert abs(float(step @ m)) < 0.02 * float(-(g @ m))


def test_each_sample_of_the_memory_has_its_task(trained):
    model, dataset = trained('gem')
    for task in range(3):
        own = model.buffer.task_labels[:len(model.buffer)] == task
        labels = model.buffer.labels[:len(model.buffer)][own].tolist()
        assert set(labels) == set(dataset.task_classes(task).tolist())
