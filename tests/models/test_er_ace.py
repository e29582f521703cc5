"""ER-ACE: which logits new samples push down; when masking and replay begin; the cosine head."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from models.er_ace import asymmetric_cross_entropy
from models.utils.cosine_classifier import CosineClassifier
from tests.conftest import quick
from tests.models.conftest import BEGINNINGS, batches, cross_entropy, still, stored


@quick
@given(
    seed=st.integers(0, 2**20),
    batch=st.integers(1, 6),
    count=st.integers(1, 7),
    offset=st.sampled_from([0, 300, -300]),
)
def test_the_loss_and_its_gradient_computed_class_by_class(seed, batch, count, offset):
    random = np.random.default_rng(seed)
    z = random.normal(size=(batch, count)) * 3 + offset
    y = random.integers(0, count, batch)
    seen = random.random(count) < 0.6
    kept = [k for k in range(count) if not seen[k] or k in y]
    logits = torch.tensor(z, requires_grad=True)
    loss = asymmetric_cross_entropy(logits, torch.from_numpy(y), torch.from_numpy(seen))
    loss.backward()
    assert loss.item() == pytest.approx(cross_entropy(z, y, kept), abs=1e-9)
    left_out = np.setdiff1d(np.arange(count), kept)
    assert not logits.grad[:, left_out].any()
    assert len(left_out) or loss.item() == F.cross_entropy(logits, torch.from_numpy(y)).item()


@BEGINNINGS
def test_masking_and_replay_begin_with_the_second_batch_or_task(start, flags, begun):
    """Each loss by hand: the mask touches new samples only; the two parts, of different sizes, have
    equal weight.
    """
    model, dataset, _ = start('er-ace', '--lr 0 --minibatch_size 99', flags)
    seen = []
    for step, masked in enumerate(begun):
        if step % 2 == 0:
            if step:
                model.meta_end_task(dataset)
            coming = batches(model, dataset)
        inputs, labels, images = coming[step % 2]
        here = set(labels.tolist())
        kept = [k for k in range(10) if k in here or not masked or k not in seen]
        expected = cross_entropy(still(model).net(inputs), labels, kept)
        if masked:
            replayed, old = stored(model)
            expected += cross_entropy(model.net(replayed), old)
            assert len(old) == sum(len(batch[1]) for batch in coming[: step % 2]) + (step // 2) * 24
        assert model.meta_observe(inputs, labels, images).item() == pytest.approx(
            expected, rel=1e-5
        )
        seen += here


@quick
@given(seed=st.integers(0, 2**20), scale=st.floats(0.1, 100))
def test_the_cosine_head_measures_angles(seed, scale):
    torch.manual_seed(seed)
    head = CosineClassifier(torch.nn.Linear(6, 4))
    x = torch.randn(5, 6)
    cosine = F.cosine_similarity(x[:, None].double(), head.weight[None].double(), dim=2)
    assert torch.allclose(head(x).double(), 10 * cosine, atol=1e-3)
    assert torch.allclose(head(scale * x), head(x), atol=2e-3)
    assert torch.isfinite(head(torch.zeros(1, 6))).all()
