"""DER and DER++: which logits are stored, the loss by hand, two draws."""

import copy

import pytest
import torch

from tests.models.conftest import batches, cross_entropy, seeded, still, stored


@pytest.mark.parametrize('method', ['der', 'derpp'])
def test_stored_logits_are_those_of_the_augmented_batch_in_training_before_the_step(start, method):
    model, dataset, _ = start(method, '--lr 0.1')
    inputs, labels, images = batches(model, dataset)[0]
    twin = copy.deepcopy(model.net)
    expected = twin(inputs).detach()
    model.meta_observe(inputs, labels, images)
    kept = model.buffer.logits[:12]
    assert torch.equal(kept, expected)
    assert kept.shape == (12, 10)
    assert not kept.requires_grad
    assert torch.equal(model.buffer.examples[:12], images)
    assert images.dtype == torch.uint8
    assert hasattr(model.buffer, 'labels') == (method == 'derpp')  # DER has no use for labels
    others = twin.eval()(inputs), twin(model.plain(images)), model.net.train()(inputs)
    assert not any(torch.allclose(kept, other, atol=1e-4) for other in others)


@pytest.mark.parametrize('method, weights', [('der', (2.0,)), ('derpp', (0.3, 0.7))])
def test_the_loss_by_hand(start, method, weights):
    """Means over samples and classes; of a buffer that is replayed whole."""
    flags = [word for pair in zip(('--alpha', '--beta'), weights) for word in pair]
    model, dataset, _ = start(method, *flags, '--lr 0 --minibatch_size 99')
    first, second, _ = batches(model, dataset)
    still(model).meta_observe(*first)
    model.buffer.logits[:12] += torch.randn(12, 10, generator=seeded())  # else they agree
    images, labels = (
        stored(model) if method == 'derpp' else (model.plain(model.buffer.examples[:12]), None)
    )
    expected = cross_entropy(model.net(second[0]), second[1])
    expected += weights[0] * float(
        ((model.net(images) - model.buffer.logits[:12]).detach().double() ** 2).mean()
    )
    if method == 'derpp':
        expected += weights[1] * cross_entropy(model.net(images), labels)
    assert model.meta_observe(*second).item() == pytest.approx(expected, rel=1e-5)
