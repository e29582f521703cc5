"""GEM: the quadratic programme against hand values, its optimality conditions and a second solver; the step on real samples."""
import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.run.building import initialize
from bench.run.training import train
from models import gem
from models.utils.gradients import read_gradients
from tests.conftest import quick

SOLVERS = [pytest.param(gem.solve_quadprog, marks=pytest.mark.skipif(gem.quadprog is None, reason='quadprog is not installed')),
           gem.solve_active_set]
SOLVERS_HERE = [solve for solve in (gem.solve_quadprog, gem.solve_active_set) if gem.quadprog or solve is gem.solve_active_set]


def start(parse, *flags):
    return initialize(parse('gem', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))


@pytest.mark.parametrize('solve', SOLVERS)
@pytest.mark.parametrize('g, G, margin, eps, expected', [
    ((1, -1), [(0, 1)], 0, 1e-9, (1, 0)),
    ((1, -1), [(0, 1)], 0.5, 1e-3, (1, -0.000999)),             # v = 1 / 1.001
    ((1, -1), [(0, 3)], 0.5, 1e-3, (1, 0.5)),                   # v = max(0.5, 3 / 9.001): the margin overshoots
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
@given(seed=st.integers(0, 2 ** 20), t=st.integers(1, 12), p=st.integers(1, 12), margin=st.sampled_from([0, 0.5, 2]),
       scale=st.floats(-2, 3), duplicates=st.booleans())
def test_optimality_conditions(seed, t, p, margin, scale, duplicates):
    """v >= margin, Pv + Gg >= 0, and one of the two with equality for each memory; gradients large or small, duplicates or not."""
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


@pytest.mark.skipif(gem.quadprog is None, reason='quadprog is not installed')
@quick
@given(seed=st.integers(0, 2 ** 20), t=st.integers(1, 50), margin=st.sampled_from([0, 0.5]))
def test_both_solvers_agree(seed, t, margin):
    random = np.random.default_rng(seed)
    G, g = random.standard_normal((t, 30)), random.standard_normal(30)
    P, q = G @ G.T + 1e-3 * np.eye(t), G @ g
    a, b = gem.solve_quadprog(P, q, margin), gem.solve_active_set(P, q, margin)
    assert np.abs(a - b).max() <= 1e-6 * max(1, np.abs(a).max())


@pytest.mark.parametrize('solve', SOLVERS)
@pytest.mark.parametrize('margin', [0, 0.5])
def test_one_memory_in_closed_form_and_fifty_copies_of_it(solve, margin):
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        m, g = torch.randn(2, 40, generator=random)
        g = -g if g @ m > 0 else g
        v = max(margin, -float(g.double() @ m.double()) / (float(m.double() @ m.double()) + 1e-3))
        assert torch.allclose(gem.project(g, m[None], margin, solve=solve), g + v * m, atol=1e-5)
        if margin == 0:
            many = gem.project(g, m.expand(50, -1), 0, solve=solve)
            assert abs(float(many @ m)) <= 1e-3 * float(m.norm() * g.norm())        # eps is a fiftieth as strong


def test_inner_products_are_summed_in_float64_whatever_the_pieces(monkeypatch):
    rows = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 4, 1000)
    exact = rows.double().numpy() @ rows.double().numpy().T
    for chunk in (7, 1000, 10 ** 6):
        monkeypatch.setattr(gem, '_CHUNK', chunk)
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


def two_tasks(parse, *flags):
    """A model with one task behind it, in the middle of the second; nothing random in its transform."""
    model, dataset, args = start(parse, *flags)
    batches = []
    for _ in range(2):
        loader, _ = dataset.get_data_loaders()
        loader.serve(model.RAW_STREAM, model.RAW_NOT_AUG, 'cpu')
        model.meta_begin_task(dataset)
        batches.append(next(iter(loader)))
        if len(batches) == 1:
            model.transform = model.normalization_transform
            model.meta_end_task(dataset)
    return model, batches


def test_a_step_follows_the_projected_gradient(parse):
    model, batches = two_tasks(parse, '--gamma', '0')
    inputs, labels, raw = batches[1]
    twin = copy.deepcopy(model.net)
    stored, stored_labels, tasks = model.buffer.get_all_data()
    assert set(tasks.tolist()) == {0} and len(stored) == 31
    past = torch.nn.functional.cross_entropy(twin(model.plain(stored)), stored_labels)
    m = torch.cat([g.reshape(-1) for g in torch.autograd.grad(past, twin.parameters())])
    loss = torch.nn.functional.cross_entropy(twin(inputs), labels)
    g = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, twin.parameters())])
    assert g @ m < 0                                                                # else nothing would be tested
    expected = g - (g @ m) / (m @ m + 1e-3) * m
    before = model.net.get_params().detach().clone()
    assert torch.allclose(model.meta_observe(inputs, labels, raw), loss)
    step = (before - model.net.get_params().detach()) / model.args.lr
    assert torch.allclose(step, expected, atol=1e-3 * float(expected.abs().max()))
    assert abs(float(step @ m)) < 0.02 * float(-(g @ m))


def test_without_memory_it_is_sgd(parse):
    """Same batch, same network: the same weights, bit by bit."""
    after = []
    for method in ('gem', 'sgd'):
        model, dataset, _ = initialize(parse(method, '--batch_size', '64', *['--buffer_size', '9'] * (method == 'gem')))
        loader, _ = dataset.get_data_loaders()
        model.meta_begin_task(dataset)
        for inputs, labels, plain in list(loader)[:2]:
            model.meta_observe(inputs, labels, plain)
        after.append(model.net.get_params())
    assert torch.equal(*after)


def test_a_run_shares_the_memory_equally(parse):
    model, dataset, args = start(parse)
    train(model, dataset, args)
    counts = torch.bincount(model.buffer.labels[:len(model.buffer)], minlength=10)
    assert len(model.buffer) == 31 and sorted(counts.tolist()) == [3] * 9 + [4]
    for task in range(3):
        own = model.buffer.task_labels[:31] == task
        assert set(model.buffer.labels[:31][own].tolist()) == set(dataset.task_classes(task).tolist())
