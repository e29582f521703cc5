"""Losses over pairs of samples: against the definitions, one pair at a time."""
import math

import pytest
import torch
from torch.nn import functional as F

from utils.simclrloss import SupConLoss
from utils.spkdloss import SPKDLoss


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(features, positive, temperature, base, anchors):
    """L_out of each anchor, (V, B), in loops; `positive(i, j)` says whether j is one of sample i."""
    B, V, _ = features.shape
    everyone = [(v, i) for v in range(V) for i in range(B)]
    losses = torch.zeros(anchors, B, dtype=torch.float64)
    for v, i in everyone:
        if v >= anchors:
            continue
        others = [other for other in everyone if other != (v, i)]
        similarity = {(w, j): float(features[i, v] @ features[j, w]) / temperature for w, j in others}
        normaliser = math.log(sum(map(math.exp, similarity.values())))
        mine = [similarity[w, j] - normaliser for w, j in others if positive(i, j)]
        losses[v, i] = -temperature / base * sum(mine) / len(mine) if mine else 0
    return losses


@pytest.mark.parametrize('mode, anchors', [('all', 3), ('one', 1)])
@pytest.mark.parametrize('kind', ['labels', 'mask', 'neither'])
def test_supcon_by_definition(mode, anchors, kind):
    features, labels = F.normalize(normal(5, 3, 4), dim=2), [0, 1, 0, 2, 1]
    # one-sided
    mask = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 1]])
    positive = dict(labels=lambda i, j: labels[i] == labels[j], mask=lambda i, j: mask[i, j] == 1,
                    neither=lambda i, j: i == j)[kind]
    given = dict(labels=dict(labels=torch.tensor(labels)), mask=dict(mask=mask), neither={})[kind]
    expected = by_definition(features, positive, 0.3, 0.2, anchors)
    losses = {reduction: SupConLoss(0.3, mode, 0.2, reduction)(features, **given)
              for reduction in ('none', 'sum', 'mean')}
    torch.testing.assert_close(losses['none'], expected)
    torch.testing.assert_close(losses['sum'], expected.sum())
    torch.testing.assert_close(losses['mean'], expected.mean())


def test_simclr_is_a_cross_entropy_over_the_other_views():
    """NT-Xent (Chen et al. 2020): the class of view k is its sibling's number, its own logit is left out."""
    features = F.normalize(normal(6, 2, 8), dim=2)
    views = torch.cat([features[:, 0], features[:, 1]])
    logits = (views @ views.T / 0.5).fill_diagonal_(-torch.inf)
    expected = F.cross_entropy(logits, torch.arange(12).roll(6))
    torch.testing.assert_close(SupConLoss(0.5, base_temperature=0.5)(features), expected)


def test_supcon_anchors_without_positives_cost_nothing_and_gradients_are_finite():
    features = normal(4, 1, 3).requires_grad_()
    losses = SupConLoss(0.5, reduction='none')(features, labels=torch.tensor([0, 0, 1, 2]))
    assert (losses[0, :2] > 0).all() and losses[0, 2:].tolist() == [0, 0]
    losses.sum().backward()
    assert torch.isfinite(features.grad).all() and features.grad[:2].abs().sum() > 0
    alone = normal(1, 1, 3).requires_grad_()
    loss = SupConLoss()(alone)
    loss.backward()
    assert loss == 0 and not alone.grad.any()


def test_supcon_survives_large_similarities_and_flattens_feature_maps():
    assert torch.isfinite(SupConLoss(0.01)(100 * normal(4, 2, 8)))
    maps = normal(3, 2, 4, 2, 2)
    torch.testing.assert_close(SupConLoss(5)(maps), SupConLoss(5)(maps.reshape(3, 2, 16)))


@pytest.mark.parametrize('options, features, given', [
    (dict(contrast_mode='two'), None, {}), (dict(reduction='max'), None, {}), ({}, normal(4, 3), {}),
    ({}, normal(4, 2, 3), dict(labels=torch.zeros(3))),
    ({}, normal(4, 2, 3), dict(labels=torch.zeros(4), mask=torch.eye(4)))])
def test_supcon_refuses_what_it_cannot_mean(options, features, given):
    with pytest.raises(ValueError):
        SupConLoss(**options)(features, **given)


def test_spkd_by_definition():
    teacher, student = normal(5, 3, 2, 2), normal(5, 7, seed=1)
    total = 0
    grams = []
    for activations in (teacher.reshape(5, 12), student):
        rows = [[sum(float(a * b) for a, b in zip(x, y)) for y in activations] for x in activations]
        grams.append([[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in rows])
    for a, b in zip(*grams):
        total += sum((x - y) ** 2 for x, y in zip(a, b))
    for reduction, expected in (('batchmean', total / 25), ('mean', total / 25), ('sum', total)):
        assert SPKDLoss(reduction)(teacher, student).item() == pytest.approx(expected)
        assert SPKDLoss(reduction)(student, teacher).item() == pytest.approx(expected)


def test_spkd_does_not_see_rotations_or_scale():
    activations = normal(6, 4)
    rotation = torch.linalg.qr(normal(4, 4, seed=2))[0]
    assert SPKDLoss()(activations,
                      3 * activations @ rotation) < 1e-25 < SPKDLoss()(activations, normal(6, 4, seed=3))


def test_spkd_refuses_an_unknown_reduction():
    with pytest.raises(ValueError, match='median'):
        SPKDLoss('median')
