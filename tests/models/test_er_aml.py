"""ER-AML: closed forms of the contrast, who may be positive and negative, and what incoming data do
and do not train.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from models.er_aml import contrastive_loss, partners
from models.utils.cosine_classifier import CosineClassifier
from tests.conftest import quick
from tests.models.conftest import (
    BEGINNINGS,
    batches,
    cross_entropy,
    next_task,
    seeded,
    still,
    stored,
)


@quick
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 7),
    count=st.integers(2, 4),
    tau=st.sampled_from([0.07, 0.2, 1]),
)
def test_the_contrast_computed_anchor_by_anchor(seed, n, count, tau):
    """Rows that do not count are as if they were not there."""
    random = np.random.default_rng(seed)
    a, p, q = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in random.normal(size=(3, n, 5)))
    labels = random.integers(0, count, n)
    valid = random.random(n) < 0.7
    negative_labels = (labels + random.integers(1, count, n)) % count
    kept = np.flatnonzero(valid)
    contrast = np.concatenate([p[kept], q[kept]])
    contrast_labels = np.concatenate([labels[kept], negative_labels[kept]])
    terms = []
    for i in kept:
        weights = np.exp(contrast @ a[i] / tau)
        terms.append(
            -tau / 0.07 * np.mean(np.log(weights / weights.sum())[contrast_labels == labels[i]])
        )
    rows = [torch.from_numpy(x) for x in (a, p, q, labels, negative_labels, valid)]
    assert contrastive_loss(*rows, tau).item() == pytest.approx(
        np.mean(terms) if terms else 0, abs=1e-9
    )


@quick
@given(seed=st.integers(0, 2**20), batch=st.integers(1, 6), kept=st.integers(0, 9))
def test_partners_are_what_they_should_be_wherever_there_are_any(seed, batch, kept):
    random = np.random.default_rng(seed)
    pool = random.integers(0, 4, batch + kept)
    rivals = random.choice(4, random.integers(1, 4), replace=False)
    found = partners(
        torch.from_numpy(pool[:batch]),
        torch.from_numpy(pool),
        torch.from_numpy(rivals),
        seeded(seed),
    )
    for i, (positive, negative, valid) in enumerate(zip(*(x.tolist() for x in found))):
        positives = [j for j in range(len(pool)) if pool[j] == pool[i] and j != i]
        negatives = [j for j in range(len(pool)) if pool[j] != pool[i] and pool[j] in rivals]
        assert valid == bool(positives and negatives)
        assert positive in positives or not positives
        assert negative in negatives or not negatives


def replay_loss(model) -> float:
    images, labels = stored(model)
    return cross_entropy(model.net(images), labels)


def test_the_loss_is_the_contrast_of_partners_found_by_their_pixels_plus_replay(start):
    """The buffer holds samples of earlier classes and the very images of the batch, of two classes:
    who else is whose?
    """
    model, dataset, _ = start('er-aml', '--lr 0 --minibatch_size 99')
    [(_, labels, images), *_] = next_task(still(model), dataset)
    rows = [(labels == label).nonzero()[0, 0].item() for label in labels.unique()[:2]]
    inputs = model.plain(images[rows])
    labels = labels[rows]
    images = images[rows]
    model.buffer.add_data(examples=images, labels=labels)
    still(model)
    a, b = F.normalize(model.net(inputs, returnt='features').detach().double())
    contrast = 0.2 / 0.07 * np.log(2 + 2 * np.exp((float(a @ b) - 1) / 0.2))
    expected = replay_loss(model) + contrast
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(expected, rel=1e-4)


@BEGINNINGS
def test_contrast_and_replay_begin_with_the_second_batch_or_task(start, flags, begun):
    model, dataset, _ = start('er-aml', '--lr 0', flags)
    assert isinstance(model.net.classifier, CosineClassifier)
    for step, different in enumerate(begun):
        if step == 2:
            model.meta_end_task(dataset)
        if step % 2 == 0:
            coming = batches(model, dataset)
        batch = coming[step % 2]
        plain = cross_entropy(still(model).net(batch[0]), batch[1])
        loss = model.meta_observe(*batch).item()
        assert np.isfinite(loss)
        assert (loss != pytest.approx(plain, rel=1e-4)) == different
