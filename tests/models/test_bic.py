"""BiC: the correction, its fit on held-out samples, the distillation, and which samples are held out."""
import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train
from models.bic import corrected, fit_bias, some_of_each
from models.utils.losses import frozen_copy, masked_cross_entropy, softened_cross_entropy
from tests.conftest import quick, refused

NEWEST = torch.tensor([False, True, False, True, False])
SEEN = torch.tensor([True, True, True, True, False])


def start(parse, *flags):
    return initialize(parse('bic', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31, bic_epochs=5))


def in_task(t, parse, *flags):
    """A model at the beginning of task t, without training."""
    model, dataset, _ = start(parse, *flags)
    for task in range(t + 1):
        dataset.get_data_loaders()
        model.meta_begin_task(dataset)
        if task < t:
            model.meta_end_task(dataset)
    return model, dataset


def test_the_correction_touches_the_newest_classes_only():
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(corrected(logits, NEWEST, torch.tensor([1.0, 0.0])), logits)
    out = corrected(logits, NEWEST, torch.tensor([0.5, -2.0]))
    assert torch.equal(out[:, ~NEWEST], logits[:, ~NEWEST]) and torch.equal(out[:, NEWEST], logits[:, NEWEST] * 0.5 - 2)


def best_bias(logits, labels) -> torch.Tensor:
    """The optimum by L-BFGS; the problem is convex."""
    bias = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    opt = torch.optim.LBFGS([bias], max_iter=200, tolerance_grad=1e-10, line_search_fn='strong_wolfe')

    def closure():
        opt.zero_grad()
        loss = masked_cross_entropy(corrected(logits.double(), NEWEST, bias), labels, SEEN)
        loss.backward()
        return loss
    opt.step(closure)
    return bias.detach()


def test_stage_two_undoes_a_planted_affine_map():
    """Labels drawn from the softmax of logits, of which those of the newest classes are then inflated by 1.25 o + 0.3."""
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(6000, 5, generator=random)
    labels = torch.multinomial(logits.masked_fill(~SEEN, -torch.inf).softmax(1), 1, generator=random)[:, 0]
    inflated = torch.where(NEWEST, 1.25 * logits + 0.3, logits)
    fitted = fit_bias(inflated, labels, NEWEST, SEEN, 250)
    assert torch.allclose(fitted, best_bias(inflated, labels), atol=1e-3)
    assert fitted.tolist() == pytest.approx([1 / 1.25, -0.3 / 1.25], abs=0.08)


@pytest.mark.parametrize('shift', [4, -4, 12])
def test_stage_two_finds_a_large_shift(shift):
    """At the optimum: 250 passes of small steps would be far from it; about ten passes of Newton's method are not."""
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3000, 5, generator=random)
    labels = torch.multinomial(logits.masked_fill(~SEEN, -torch.inf).softmax(1), 1, generator=random)[:, 0]
    shifted = torch.where(NEWEST, logits + shift, logits)
    fitted = fit_bias(shifted, labels, NEWEST, SEEN, 250)
    assert torch.allclose(fitted, best_bias(shifted, labels), atol=0.01)
    assert fitted[1].item() == pytest.approx(-shift * fitted[0].item(), abs=0.15)
    assert torch.allclose(fit_bias(shifted, labels, NEWEST, SEEN, 15), fitted, atol=1e-6)
    assert fit_bias(shifted, labels, NEWEST, SEEN, 0).tolist() == [1, 0]


@quick
@given(seed=st.integers(0, 2 ** 20), count=st.integers(1, 30), scale=st.floats(-2, 2))
def test_stage_two_ends_at_an_optimum_that_is_finite(seed, count, scale):
    """Samples that can be told apart without a mistake, too: the gradient of cross-entropy and penalty vanishes, by differences."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, 5, generator=random) * 10 ** scale
    labels = torch.randint(4, (count,), generator=random)
    fitted = fit_bias(logits, labels, NEWEST, SEEN, 250)
    assert torch.isfinite(fitted).all()

    def loss(bias):
        hard = masked_cross_entropy(corrected(logits.double(), NEWEST, bias), labels, SEEN)
        return float(hard + 1e-6 / 2 * ((bias - torch.tensor([1.0, 0.0])) ** 2).sum())
    for direction in torch.eye(2, dtype=torch.float64):
        for size in (1e-3, -1e-3):
            assert loss(fitted + size * direction) >= loss(fitted) - 1e-12


@pytest.mark.parametrize('newest_are_right', [True, False])
def test_stage_two_of_samples_of_one_kind_only(newest_are_right):
    """Cross-entropy has no optimum then: beta alone could go on for ever."""
    labels = torch.full((6,), 1 if newest_are_right else 0)
    alpha, beta = fit_bias(torch.ones(6, 5), labels, NEWEST, SEEN, 250).tolist()
    assert 3 < (beta if newest_are_right else -beta) < 20 and abs(alpha) < 20


def test_logits_of_classes_to_come_have_no_say_in_the_fit():
    random = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(40, 5, generator=random), torch.arange(40) % 4
    poisoned = logits.clone()
    poisoned[:, ~SEEN] = 1e6
    fits = [fit_bias(x, labels, NEWEST, SEEN, 250) for x in (logits, poisoned)]
    assert torch.equal(*fits) and fits[0].tolist() != [1, 0]


def test_a_student_that_is_its_teacher_has_the_entropy_of_the_softened_teacher():
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 3
    p = (z.double() / 2).softmax(1)
    assert float(softened_cross_entropy(z, z, 2.0)) == pytest.approx(float(-(p * p.log()).sum(1).mean()), rel=1e-5)


@pytest.mark.parametrize('rule, expected', [('paper', [4 / 7, 7 / 10]), ('mammoth', [1 / 2, 1 / 3])])
def test_the_weight_of_distillation(parse, rule, expected):
    """Tasks of 4, 3 and 3 classes."""
    for t in (1, 2):
        assert in_task(t, parse, '--distill_weight', rule)[0].distill_weight() == pytest.approx(expected[t - 1])
    assert in_task(1, parse, '--distill_weight', rule, '--n_splits', '2')[0].distill_weight() == 0.5


def test_some_of_each_class():
    labels = torch.tensor([5] * 10 + [2] * 3 + [7])
    chosen = some_of_each(labels, 3, torch.Generator().manual_seed(0))
    assert np.bincount(labels[chosen]).tolist() == [0, 0, 3, 0, 0, 3, 0, 1]
    assert len({tuple(some_of_each(labels, 3, torch.Generator().manual_seed(s))) for s in range(9)}) > 1


def as_set(images, labels) -> list:
    return sorted((int(y), np.asarray(image).tobytes()) for image, y in zip(images, labels))


@pytest.mark.parametrize('size, share, per_class', [(31, 0.1, 1), (40, 0.3, 3), (5, 0.1, 1), (40, 0.01, 1)])
def test_what_is_held_out(parse, size, share, per_class):
    """Equally many of each class, old ones out of the exemplars; nothing is lost, nothing is trained on and held out."""
    model, dataset = in_task(0, parse, '--buffer_size', str(size), '--valset_split', str(share))
    model.meta_end_task(dataset)
    exemplars = as_set(*model.buffer.get_all_data())
    loader, _ = dataset.get_data_loaders()
    own = loader.dataset.data, loader.dataset.targets
    model.meta_begin_task(dataset)
    images, labels = model.held_out
    counts = {int(c): int((labels == c).sum()) for c in labels.unique()}
    assert counts == {int(c): per_class for t in (0, 1) for c in dataset.task_classes(t)}
    whole = sorted(as_set(images, labels) + as_set(loader.dataset.data, loader.dataset.targets))
    assert whole == sorted(exemplars + as_set(*own))
    assert {row for row in as_set(images, labels) if row[0] in dataset.task_classes(0)} <= set(exemplars)
    model.meta_end_task(dataset)
    assert loader.dataset.data is own[0] and loader.dataset.targets is own[1]       # exemplars come from all of the task


def test_the_loss_by_hand(parse):
    model, dataset = in_task(1, parse, '--lr', '0', '--temp', '3', '--wd_reg', '0.01')
    model.net.eval()
    model.teacher = model.teacher[0], model.teacher[1], torch.tensor([0.7, 0.2])
    with torch.no_grad():
        model.net.classifier.weight.mul_(-1)                                        # not its teacher any more
    inputs, labels, plain = next(iter(dataset.train_loader))
    old = np.sort(dataset.task_classes(0))
    seen = np.sort(np.concatenate([old, dataset.task_classes(1)]))
    z, z_old = model.net(inputs).detach().double(), model.teacher[0](inputs).double() * 0.7 + 0.2
    hard = F.cross_entropy(z[:, seen], torch.searchsorted(torch.from_numpy(seen), labels))
    soft = -((z_old[:, old] / 3).softmax(1) * (z[:, old] / 3).log_softmax(1)).sum(1).mean()
    decay = 0.01 * sum((p ** 2).sum().item() for p in model.net.parameters())
    assert model.meta_observe(inputs, labels, plain).item() == pytest.approx((4 / 7 * soft + 3 / 7 * hard).item() + decay, rel=1e-4)


@pytest.mark.parametrize('after', [0, 1])
def test_the_teacher_speaks_with_or_without_its_correction(parse, after):
    """Its own newest classes are those of the task before the last."""
    model, dataset = in_task(2, parse, '--distill_after_bic', str(after))
    net, newest, bias = model.teacher
    assert set(newest.nonzero()[:, 0].tolist()) == set(dataset.task_classes(1)) and bias.tolist() != [1, 0]
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = net(x)
    if after:
        expected[:, dataset.task_classes(1)] = bias[0] * expected[:, dataset.task_classes(1)] + bias[1]
    assert torch.equal(model.teacher_logits(x), expected) and not expected.requires_grad


def test_the_correction_lasts_until_the_next_task(parse):
    """At its end the newest classes alone are corrected; the first task has nothing to correct."""
    model, dataset = in_task(1, parse)
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    net = copy.deepcopy(model.net).eval()
    model.net.eval()
    assert torch.equal(model(x), net(x))                                            # the first task's
    model.meta_end_task(dataset)
    new, out, raw = dataset.task_classes(1), model(x), net(x)
    others = np.setdiff1d(np.arange(10), new)
    assert torch.equal(out[:, others], raw[:, others]) and torch.equal(out[:, new], model.bias[0] * raw[:, new] + model.bias[1])
    assert not torch.equal(out[:, new], raw[:, new])
    dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    assert torch.equal(model(x), raw)


def test_stage_two_sees_held_out_images_un_augmented(parse, monkeypatch):
    model, dataset = in_task(1, parse)
    images, labels = model.held_out
    expected = frozen_copy(model.net)(model.normalization_transform(torch.as_tensor(images)))
    given = []
    monkeypatch.setattr('models.bic.fit_bias', lambda logits, labels, *more: given.append((logits, labels)) or torch.tensor([2.0, 1.0]))
    model.meta_end_task(dataset)
    assert torch.allclose(given[0][0], expected, atol=1e-5) and torch.equal(given[0][1], labels)
    assert model.bias.tolist() == [2, 1]


def test_without_exemplars_there_is_nothing_to_fit_on(parse):
    model, dataset, args = start(parse, '--buffer_size', '0')
    train(model, dataset, args)
    assert len(model.buffer) == 0 and model.bias.tolist() == [1, 0]


def test_a_share_that_leaves_nothing_is_refused(parse):
    with refused('--valset_split 1.5', 'below 1'):
        start(parse, '--valset_split', '1.5')


def test_a_run(parse):
    model, dataset, args = start(parse)
    train(model, dataset, args)
    counts = torch.bincount(model.buffer.labels[:len(model.buffer)], minlength=10)
    assert len(model.buffer) == 31 and sorted(counts.tolist()) == [3] * 9 + [4]
    assert model.seen.all() and set(model.newest.nonzero()[:, 0].tolist()) == set(dataset.task_classes(2)) and model.bias.tolist() != [1, 0]
