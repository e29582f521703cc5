"""A-GEM: the projection, and the step that follows it."""
import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.run.building import initialize
from bench.run.training import train
from models import gem
from models.agem import project
from tests.conftest import quick


def vectors(seed, scale=0.0):
    g, r = torch.randn(2, 50, generator=torch.Generator().manual_seed(seed))
    return g, r * 10 ** scale


@quick
@given(seed=st.integers(0, 2 ** 20), scale=st.floats(-3, 3))
def test_what_opposes_the_reference_goes_and_nothing_else(seed, scale):
    g, r = vectors(seed, scale)
    out = project(g, r)
    if g @ r >= 0:
        assert torch.equal(out, g)
    else:
        assert abs(float(out @ r)) <= 1e-6 * float(g.norm() * r.norm())
        assert float(out.norm() ** 2 + (g - out).norm() ** 2) == pytest.approx(float(g.norm() ** 2), rel=1e-5)   # orthogonal


def test_extreme_references():
    g, r = vectors(0)
    assert project(g, -g).abs().max() < 1e-6 and torch.equal(project(g, g), g)
    assert torch.equal(project(g, torch.zeros(50)), g)


@quick
@given(seed=st.integers(0, 2 ** 20))
def test_it_is_gem_with_one_memory_and_no_margin(seed):
    g, r = vectors(seed)
    assert torch.allclose(project(g, r), gem.project(g, r[None], margin=0, eps=0), atol=1e-5)


def start(parse, *flags):
    return initialize(parse('agem', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))


def test_a_step_follows_the_projected_gradient(parse, monkeypatch):
    """With memories of the same images under wrong labels, the two gradients disagree."""
    model, dataset, _ = start(parse)
    loader, _ = dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    inputs, labels, plain = next(iter(loader))
    first, second = dataset.task_classes(0)[:2]
    inputs, plain = inputs[labels == first], plain[labels == first]
    labels = torch.full((len(inputs),), int(first))
    monkeypatch.setattr(model, 'past_samples', lambda: (inputs, torch.full_like(labels, int(second))))
    with torch.no_grad():
        model.net.classifier.bias[[first, second]] += 5                     # it hesitates between these two
    twin = copy.deepcopy(model.net)

    def gradient(y):
        loss = torch.nn.functional.cross_entropy(twin(inputs), y)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, twin.parameters())])
    g, r = gradient(labels), gradient(torch.full_like(labels, int(second)))
    assert g @ r < 0
    before = model.net.get_params().detach().clone()
    model.meta_observe(inputs, labels, plain)
    step = (before - model.net.get_params().detach()) / model.args.lr
    expected = g - (g @ r) / (r @ r) * r
    assert torch.allclose(step, expected, atol=1e-3 * float(expected.abs().max()))


def watched(model, monkeypatch) -> list:
    """A list that gets, for each step, (samples offered to the buffer so far, labels of the reference gradient's samples)."""
    seen, past_samples = [], model.past_samples

    def watching():
        inputs, labels = past_samples()
        seen.append((model.buffer.num_seen_examples, [int(y) for y in labels]))
        return inputs, labels
    monkeypatch.setattr(model, 'past_samples', watching)
    return seen


@pytest.mark.parametrize('order', ['label', '9-8-7-6-5-4-3-2-1-0'])
def test_the_reference_gradient_is_of_past_tasks(parse, monkeypatch, order):
    """None in the first task, then as many samples as are asked for, none of them of the current task, whatever is kept of it."""
    model, dataset, args = initialize(parse('agem', schedule=f'split:3,order={order}', n_epochs=2, batch_size=64,
                                                 buffer_size=200, minibatch_size=20))
    seen = watched(model, monkeypatch)
    train(model, dataset, args)
    offered = [len(dataset.schedule.task(t)[0]) * 2 for t in range(3)]                              # two passes
    ends, past = [offered[0], offered[0] + offered[1]], set()
    for t, (first, last) in enumerate(zip([0, *ends], [*ends, sum(offered)])):
        in_task = [labels for count, labels in seen if first <= count < last]
        drawn = {y for labels in in_task for y in labels}
        assert all(len(labels) == (20 if t else 0) for labels in in_task) and in_task
        assert drawn == past
        past |= set(dataset.task_classes(t).tolist())


def test_the_first_task_is_learned_as_by_sgd(parse):
    """The same weights, bit by bit."""
    after = []
    for method in ('agem', 'sgd'):
        flags = dict(buffer_size=9) if method == 'agem' else {}
        model, dataset, args = initialize(parse(method, '--n_splits', 1, '--n_epochs', 2, batch_size=64, **flags))
        train(model, dataset, args)
        after.append(model.net.get_params())
    assert torch.equal(*after)


def test_without_tasks_it_is_of_all_that_came_before_the_batch(parse, monkeypatch):
    model, dataset, args = initialize(parse('agem', '--schedule', 'gaussian:sigma=1,batch=64', batch_size=64,
                                                 buffer_size=2000, minibatch_size=2000))
    seen, coming = watched(model, monkeypatch), []
    observe = model.observe
    monkeypatch.setattr(model, 'observe', lambda inputs, labels, *more: coming.append(labels) or observe(inputs, labels, *more))
    train(model, dataset, args)
    for i, (count, labels) in enumerate(seen):
        before = torch.cat([*coming[:i], torch.zeros(0, dtype=torch.int64)])
        assert count == len(before) and sorted(labels) == sorted(before.tolist())
    assert len(seen) > 2 and model.buffer.examples.dtype == torch.uint8


@pytest.mark.parametrize('stream', ['split:3', 'gaussian:sigma=1,batch=64'])
def test_a_run_ends_with_a_full_reservoir(parse, stream):
    model, dataset, args = initialize(parse('agem', '--schedule', stream, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))
    train(model, dataset, args)
    assert len(model.buffer) == 31 and model.buffer.num_seen_examples == len(dataset.train_labels)
