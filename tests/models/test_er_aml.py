"""ER-AML: closed forms of the contrast, who may be positive and negative, and what incoming data do and do not train."""
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import training_mode
from models import er_aml
from models.er_aml import contrastive_loss, partners
from models.utils.cosine_classifier import CosineClassifier, normalise
from tests.conftest import quick


def start(parse, *flags, **more):
    return initialize(parse('er-aml', *flags, buffer_size=100, permute_classes=1, batch_size=64, **more))


def batches(model, dataset, count):
    """Of the next task, which has begun."""
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, 'train')
    return list(loader)[:count]


def second_task(parse, *flags, **more):
    """(model, dataset, batches of the second task); the buffer holds samples of the first."""
    model, dataset, _ = start(parse, *flags, **more)
    for batch in batches(model, dataset, 2):
        model.meta_observe(*batch)
    model.meta_end_task(dataset)
    return model, dataset, batches(model, dataset, 2)


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def everything(count):
    return torch.ones(count, dtype=torch.bool)


@pytest.mark.parametrize('n, tau', [(1, 0.2), (3, 0.2), (5, 0.07)])
def test_with_all_contrast_vectors_equal_it_is_the_logarithm_of_their_number(n, tau):
    rows, anchors = normalise(torch.ones(n, 4)), normalise(torch.randn(n, 4, generator=torch.Generator().manual_seed(n)))
    loss = contrastive_loss(anchors, rows, rows, torch.zeros(n, dtype=torch.int64), ids(*[1] * n), everything(n), tau)
    assert loss.item() == pytest.approx(np.log(2 * n) * tau / 0.07, rel=1e-5)


def test_two_orthogonal_classes_by_hand():
    """Each anchor has two of its like, in its own direction, and two unlike, orthogonal to it."""
    e, tau = torch.eye(2), 0.2
    loss = contrastive_loss(e, e, e.flip(0), ids(0, 1), ids(1, 0), everything(2), tau)
    assert loss.item() == pytest.approx(tau / 0.07 * np.log(2 + 2 * np.exp(-1 / tau)), rel=1e-5)


@quick
@given(seed=st.integers(0, 2 ** 20), n=st.integers(1, 7), classes=st.integers(2, 4), tau=st.sampled_from([0.07, 0.2, 1]))
def test_the_contrast_computed_anchor_by_anchor(seed, n, classes, tau):
    """Rows that do not count are as if they were not there."""
    random = np.random.default_rng(seed)
    a, p, q = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in random.normal(size=(3, n, 5)))
    labels, valid = random.integers(0, classes, n), random.random(n) < 0.7
    negative_labels = (labels + random.integers(1, classes, n)) % classes
    kept = np.flatnonzero(valid)
    contrast, contrast_labels = np.concatenate([p[kept], q[kept]]), np.concatenate([labels[kept], negative_labels[kept]])
    terms = []
    for i in [*kept, *kept]:                                                    # each anchor twice
        weights = np.exp(contrast @ a[i] / tau)
        terms.append(-tau / 0.07 * np.mean(np.log(weights / weights.sum())[contrast_labels == labels[i]]))
    given_rows = [torch.from_numpy(x) for x in (a, p, q, labels, negative_labels, valid)]
    assert contrastive_loss(*given_rows, tau).item() == pytest.approx(np.mean(terms) if terms else 0, abs=1e-9)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float16])
def test_nobody_counting_is_a_zero_that_can_be_differentiated(dtype):
    rows = torch.eye(3, dtype=dtype, requires_grad=True)
    loss = contrastive_loss(rows, rows, rows, ids(0, 0, 0), ids(0, 0, 0), ~everything(3), 0.01)
    loss.backward()
    assert loss.item() == 0 and not rows.grad.any()


def test_the_length_of_features_does_not_matter():
    rows = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    scales = torch.rand(3, 6, 1, generator=torch.Generator().manual_seed(1)) * 100 + 1
    labels, others = ids(0, 1, 2, 0, 1, 2), ids(1, 2, 0, 2, 0, 1)
    losses = [contrastive_loss(*map(normalise, x), labels, others, everything(6), 0.2).item() for x in (rows, rows * scales)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@quick
@given(seed=st.integers(0, 2 ** 20), batch=st.integers(1, 6), kept=st.integers(0, 9))
def test_partners_are_what_they_should_be_wherever_there_are_any(seed, batch, kept):
    random = np.random.default_rng(seed)
    pool, rivals = random.integers(0, 4, batch + kept), random.choice(4, random.integers(1, 4), replace=False)
    generator = torch.Generator().manual_seed(seed)
    found = partners(torch.from_numpy(pool[:batch]), torch.from_numpy(pool), torch.from_numpy(rivals), generator)
    for i, (positive, negative, valid) in enumerate(zip(*(x.tolist() for x in found))):
        positives = [j for j in range(len(pool)) if pool[j] == pool[i] and j != i]
        negatives = [j for j in range(len(pool)) if pool[j] != pool[i] and pool[j] in rivals]
        assert valid == bool(positives and negatives)
        assert (positive in positives or not positives) and (negative in negatives or not negatives)


def test_partners_are_drawn_uniformly():
    """Six candidates each in 3000 draws: 500 +- 20."""
    pool, generator = ids(0, 0, 1, 0, 1, 2, 0, 1, 0, 2, 0, 1, 0), torch.Generator().manual_seed(0)
    drawn = np.array([[x[0].item() for x in partners(pool[:1], pool, ids(0, 1, 2), generator)[:2]] for _ in range(3000)])
    for column, candidates in zip(drawn.T, ([1, 3, 6, 8, 10, 12], [2, 4, 5, 7, 9, 11])):
        values, counts = np.unique(column, return_counts=True)
        assert values.tolist() == candidates and abs(counts - 500).max() < 90


def test_incoming_data_do_not_touch_the_head(parse):
    model, _, [batch, _] = second_task(parse, schedule='split:3,order=random')
    model.opt.zero_grad()
    loss = model.incoming_loss(*batch)
    loss.backward()
    assert loss.item() > 0 and model.net.classifier.weight.grad is None
    assert all(p.grad.any() for name, p in model.net.named_parameters() if name.endswith('conv1.weight'))


def test_a_batch_of_one_class_teaches_nothing_but_replay_does(parse, monkeypatch):
    """One class a task: the step is that of replay alone."""
    model, _, [(inputs, labels, images), _] = second_task(parse, '--lr', '0', schedule='split:10')
    model.net.eval()
    replayed = inputs[:9] + 0.1, (labels[:9] + 3) % 10
    monkeypatch.setattr(model, 'replay', lambda: replayed)
    expected = F.cross_entropy(model.net(replayed[0]), replayed[1])
    gradient = torch.autograd.grad(expected, model.net.parameters())
    assert model.meta_observe(inputs, labels, images).item() == expected.item()
    assert all(torch.allclose(p.grad, g, atol=1e-6) for p, g in zip(model.net.parameters(), gradient))


def test_the_loss_is_the_contrast_of_these_partners_plus_replay(parse, monkeypatch):
    """Positives and negatives, found again by their pixels, have the labels that the contrast is told."""
    model, dataset, [(inputs, labels, images), _] = second_task(parse, '--lr', '0', schedule='split:3,order=random')
    known = {image.tobytes(): int(label) for image, label in zip(dataset.images.train, dataset.train_labels)}
    calls, seen, contrast, augment = [], [], er_aml.contrastive_loss, model.augment
    monkeypatch.setattr(er_aml, 'contrastive_loss', lambda *given: calls.append(given) or contrast(*given))
    monkeypatch.setattr(model, 'augment', lambda chosen: seen.append(chosen) or augment(chosen))
    model.net.eval()
    loss = model.meta_observe(inputs, labels, images).item()
    [(anchors, positives, negatives, told, told_negative, valid, temperature)], [chosen] = calls, seen
    classes = [known[image.tobytes()] for image in chosen.numpy()]
    assert torch.equal(told, labels) and classes[:64] == labels.tolist() and classes[64:] == told_negative.tolist()
    assert valid.all() and temperature == 0.2 and set(told_negative.tolist()) == set(dataset.task_classes(1).tolist())
    assert all(not torch.equal(a, b) for a, b in zip(images, chosen[:64]))                  # nobody is its own positive
    for rows, x in ((anchors, inputs), (positives, None), (negatives, None)):
        assert torch.allclose(rows.norm(dim=1), torch.ones(64), atol=1e-3)
        assert x is None or torch.allclose(rows, F.normalize(model.net(x, returnt='features')), atol=1e-4)
    assert loss > contrast(*calls[0]).item() > 0


@pytest.mark.parametrize('task_free, rest', [('1', [False, True, True, True]), ('0', [False, False, True, True])])
def test_when_contrast_and_replay_begin(parse, monkeypatch, task_free, rest):
    model, dataset, _ = start(parse, '--task_free', task_free, schedule='split:3,order=random')
    contrasted = []
    monkeypatch.setattr(model, 'incoming_loss', lambda inputs, *_: contrasted.append(True) or model.net(inputs).sum() * 0)
    steps = []
    for _ in range(2):
        for batch in batches(model, dataset, 2):
            model.meta_observe(*batch)
            steps.append(bool(contrasted))
            contrasted.clear()
        model.meta_end_task(dataset)
    assert steps == rest


@pytest.mark.parametrize('task_free', [True, False])
def test_where_negatives_come_from(parse, monkeypatch, task_free):
    """A batch that lacks classes of its task: those are negatives only where tasks count. Earlier tasks never are."""
    model, dataset, [first, (inputs, labels, images)] = second_task(parse, '--task_free', str(int(task_free)), schedule='split:3,order=random')
    model.meta_observe(*first)                                                  # the buffer has samples of this task, too
    two = torch.isin(labels, torch.as_tensor(dataset.task_classes(1)[:2]))
    negatives, contrast = set(), er_aml.contrastive_loss
    monkeypatch.setattr(er_aml, 'contrastive_loss', lambda *given: negatives.update(given[4].tolist()) or contrast(*given))
    for _ in range(5):
        model.incoming_loss(inputs[two], labels[two], images[two])
    assert negatives == set(dataset.task_classes(1)[:2 if task_free else 3].tolist())


def test_a_stream_without_tasks_does_not_wait_for_the_second(parse):
    model, dataset, _ = start(parse, '--schedule', 'gaussian:batch=64')
    assert model.task_free and not model.args.task_free
    assert isinstance(model.net.classifier, CosineClassifier)
    losses = [model.meta_observe(*batch).item() for batch in batches(model, dataset, 2)]
    assert np.isfinite(losses).all()
