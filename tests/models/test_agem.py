"""A-GEM: the projection, and the step that follows it."""
import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import main
from models import gem
from models.agem import project
from tests.conftest import quick
from utils.training import train


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
    return main.initialize(parse('agem', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))


def test_a_step_follows_the_projected_gradient(parse, monkeypatch):
    """With memories of the same images under wrong labels, the two gradients disagree."""
    model, dataset, _ = start(parse)
    loader, _ = dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    inputs, labels, plain = next(iter(loader))
    first, second = dataset.task_classes(0)[:2]
    inputs, plain = inputs[labels == first], plain[labels == first]
    labels = torch.full((len(inputs),), int(first))
    monkeypatch.setattr(model, 'replay', lambda: (inputs, torch.full_like(labels, int(second))))
    model.buffer.add_data(examples=plain, labels=labels)
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


def test_samples_enter_the_reservoir_after_the_step_that_learns_them(parse, monkeypatch):
    model, dataset, _ = start(parse)
    loader, _ = dataset.get_data_loaders()
    loader.serve(model.RAW_STREAM, model.RAW_NOT_AUG, 'cpu')
    model.meta_begin_task(dataset)
    drawn = []
    replay = model.replay
    monkeypatch.setattr(model, 'replay', lambda: drawn.append(model.buffer.num_seen_examples) or replay())
    for batch in list(loader)[:3]:
        model.meta_observe(*batch)
    assert drawn == [64, 128] and model.buffer.num_seen_examples == 192 and model.buffer.examples.dtype == torch.uint8


@pytest.mark.parametrize('stream', ['split:3', 'gaussian:sigma=1,batch=64'])
def test_a_run_ends_with_a_full_reservoir(parse, stream):
    model, dataset, args = main.initialize(parse('agem', '--schedule', stream, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))
    train(model, dataset, args)
    assert len(model.buffer) == 31 and model.buffer.num_seen_examples == len(dataset.train_labels)
