"""ER-ACE: which logits new samples push down; when masking and replay begin; the cosine head."""
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train, training_mode
from models import er_ace
from models.er_ace import asymmetric_cross_entropy
from models.utils.cosine_classifier import CosineClassifier
from tests.conftest import quick


def start(parse, *flags, method='er-ace', **more):
    more = dict(schedule='split:3,order=random', permute_classes=1, batch_size=64) | more
    return initialize(parse(method, *flags, **({} if method == 'sgd' else dict(buffer_size=100)) | more))


def mask(*classes, count=3):
    return torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(classes, dtype=torch.int64), True)


def test_old_absent_classes_are_left_out_by_hand():
    """Of three equal logits with classes 0 and 1 seen, a batch of class 1 competes with the unseen class 2 only."""
    logits = torch.zeros(4, 3, requires_grad=True)
    loss = asymmetric_cross_entropy(logits, torch.ones(4, dtype=torch.int64), mask(0, 1))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(2))
    assert logits.grad.tolist() == [[0, -0.125, 0.125]] * 4


def test_the_largest_seen_class_is_masked_too():
    """With classes in any order an unseen one may lie below the largest seen one, which may be absent."""
    logits = torch.zeros(1, 4, requires_grad=True)
    asymmetric_cross_entropy(logits, torch.tensor([1]), mask(1, 3, count=4)).backward()
    assert logits.grad[0].tolist() == pytest.approx([1 / 3, -2 / 3, 1 / 3, 0])


@quick
@given(seed=st.integers(0, 2 ** 20), batch=st.integers(1, 6), classes=st.integers(1, 7), offset=st.sampled_from([0, 300, -300]))
def test_the_loss_and_its_gradient_computed_class_by_class(seed, batch, classes, offset):
    random = np.random.default_rng(seed)
    z, y, seen = random.normal(size=(batch, classes)) * 3 + offset, random.integers(0, classes, batch), random.random(classes) < 0.6
    kept = [k for k in range(classes) if not seen[k] or k in y]
    logits = torch.tensor(z, requires_grad=True)
    loss = asymmetric_cross_entropy(logits, torch.from_numpy(y), torch.from_numpy(seen))
    loss.backward()
    expected = np.mean([np.log(np.exp(z[i, kept] - offset).sum()) - (z[i, y[i]] - offset) for i in range(batch)])
    assert loss.item() == pytest.approx(expected, abs=1e-9)
    left_out = np.setdiff1d(np.arange(classes), kept)
    assert not logits.grad[:, left_out].any()
    if not len(left_out):
        assert loss.item() == F.cross_entropy(logits, torch.from_numpy(y)).item()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_masked_logits_are_finite_in_half_precision(dtype):
    loss = asymmetric_cross_entropy(torch.zeros(2, 3, dtype=dtype), torch.tensor([1, 1]), mask(0, 1))
    assert loss.item() == pytest.approx(np.log(2), rel=1e-2)


def watched_steps(model, dataset, monkeypatch, tasks=2):
    """For each step of the first tasks, two batches each: ((task, batch labels, seen classes), whether it replayed)."""
    steps, replays, loss, replay = [], [], er_ace.asymmetric_cross_entropy, model.replay

    def watching(logits, labels, seen):
        steps.append((model.current_task, set(labels.tolist()), set(seen.nonzero()[:, 0].tolist())))
        return loss(logits, labels, seen)
    monkeypatch.setattr(er_ace, 'asymmetric_cross_entropy', watching)
    monkeypatch.setattr(model, 'replay', lambda: replays.append(len(steps) - 1) or replay())
    for _ in range(tasks):
        loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
        model.meta_begin_task(dataset)
        training_mode(model.net, 'train')
        for batch in list(loader)[:2]:
            model.meta_observe(*batch)
        model.meta_end_task(dataset)
    return [(*step, i in replays) for i, step in enumerate(steps)]


def test_masking_and_replay_begin_with_the_second_batch(parse, monkeypatch):
    steps = watched_steps(*start(parse)[:2], monkeypatch)
    assert [step[3] for step in steps] == [False, True, True, True]
    before = [set().union(*(labels for _, labels, *_ in steps[:i])) for i in range(4)]
    assert [seen for _, _, seen, _ in steps] == before and before[3] > before[1]


def test_masking_and_replay_begin_with_the_second_task(parse, monkeypatch):
    model, dataset, _ = start(parse, '--task_free', '0')
    steps = watched_steps(model, dataset, monkeypatch)
    assert [step[3] for step in steps] == [False, False, True, True]
    assert steps[1][2] == set() and steps[2][2] == steps[0][1] | steps[1][1] and steps[2][2].isdisjoint(steps[2][1])


def test_a_stream_without_tasks_has_no_second_task_to_wait_for(parse, monkeypatch):
    model, dataset, _ = initialize(parse('er-ace', '--task_free', '0', '--schedule', 'gaussian:batch=64', buffer_size=100))
    assert [step[3] for step in watched_steps(model, dataset, monkeypatch, tasks=1)] == [False, True]


def test_both_losses_by_hand(parse, monkeypatch):
    """The mask touches new samples only, and the two parts, of different sizes, have equal weight."""
    model, dataset, _ = start(parse, '--lr', '0')
    watched_steps(model, dataset, monkeypatch, tasks=1)
    monkeypatch.undo()
    inputs, labels, images = next(iter(dataset.get_data_loaders()[0].serve(False, True, 'cpu')))
    model.meta_begin_task(dataset)
    model.net.eval()
    old = np.sort(dataset.task_classes(0))
    extra, extra_labels = inputs[:7] + 0.5, torch.full((7,), int(old[0]))
    monkeypatch.setattr(model, 'replay', lambda: (extra, extra_labels))
    kept = np.setdiff1d(np.arange(10), old)
    z, z_extra = (model.net(x).detach().double().numpy() for x in (inputs, extra))
    expected = np.mean(np.log(np.exp(z[:, kept]).sum(axis=1)) - z[np.arange(64), labels])
    expected += np.mean(np.log(np.exp(z_extra).sum(axis=1)) - z_extra[:, old[0]])
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(expected, rel=1e-5)


def test_without_buffer_and_cosine_head_it_is_sgd(parse, few_digits):
    runs = [start(parse, buffer_size=0, use_custom_classifier=0, batch_size=12), start(parse, method='sgd', n_epochs=1, batch_size=12)]
    assert isinstance(runs[0][0].net.classifier, nn.Linear)
    for model, dataset, args in runs:
        train(model, dataset, args)
    ace, sgd = (model.net.get_params() for model, *_ in runs)
    assert torch.equal(ace, sgd)


@quick
@given(seed=st.integers(0, 2 ** 20), scale=st.floats(0.1, 100))
def test_the_cosine_head_measures_angles(seed, scale):
    torch.manual_seed(seed)
    head, x = CosineClassifier(6, 4), torch.randn(5, 6)
    cosine = F.cosine_similarity(x[:, None].double(), head.weight[None].double(), dim=2)
    assert torch.allclose(head(x).double(), 10 * cosine, atol=1e-3)
    assert torch.allclose(head(scale * x), head(x), atol=2e-3) and torch.isfinite(head(torch.zeros(1, 6))).all()


def test_the_norms_have_a_small_constant_added():
    head = CosineClassifier(2, 1)
    head.weight.data = torch.tensor([[2e-5, 0]])
    assert head(torch.tensor([[1e-5, 0]])).item() == pytest.approx(10 * (1 / 2) * (2 / 3))


def test_the_head_is_saved_with_the_network(parse):
    model, file = start(parse)[0], io.BytesIO()
    assert isinstance(model.net.classifier, CosineClassifier) and model.net.classifier.weight.shape == (10, 32)
    assert id(model.net.classifier.weight) in {id(p) for group in model.opt.param_groups for p in group['params']}
    torch.save(model.state_dict(), file)
    file.seek(0)
    other, dataset, _ = start(parse, '--seed', '7')
    x = model.plain(torch.tensor(dataset.images.train[:5]))
    assert not torch.allclose(model.eval()(x), other.eval()(x), atol=1e-3)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(model(x), other(x))
