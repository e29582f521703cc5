"""DER and DER++: zero weights are SGD; which logits are stored; the loss by hand; two draws."""
import copy

import numpy as np
import pytest
import torch

from bench.run.building import initialize
from bench.run.training import train, training_mode

COMMON = dict(n_splits=3, permute_classes=1, n_epochs=1, batch_size=64)


def start(parse, method, *flags):
    size = [] if method == 'sgd' else ['--buffer_size', '100']
    return initialize(parse(method, *flags, *size, **COMMON))


def first_batches(model, dataset, count, bn='train'):
    """Batches of the first task, which has begun."""
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, bn)
    return list(loader)[:count]


def cross_entropy(z, y) -> float:
    z = z.detach().double().numpy()
    return float(np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), y.numpy()]))


@pytest.fixture
def after_run(parse, few_digits):
    """(method, *flags) -> parameters at the end of a run with frozen batch norms."""
    def parameters(*words):
        model, dataset, args = start(parse, *words, '--bn', 'frozen', '--batch_size', '12')
        train(model, dataset, args)
        return model.net.get_params().detach().clone()
    return parameters


@pytest.mark.parametrize('words', ['der --alpha 0', 'derpp --alpha 0 --beta 0'])
def test_with_weights_of_zero_it_is_sgd_to_the_last_bit(after_run, words):
    assert torch.equal(after_run(*words.split()), after_run('sgd'))


@pytest.mark.parametrize('words', ['der --alpha 0.5', 'derpp --alpha 0.5 --beta 0', 'derpp --alpha 0 --beta 0.5'])
def test_with_other_weights_it_is_not(after_run, words):
    assert not torch.equal(after_run(*words.split()), after_run('sgd'))


@pytest.mark.parametrize('method', ['der', 'derpp'])
def test_stored_logits_are_those_of_the_augmented_batch_in_training_before_the_step(parse, method):
    model, dataset, _ = start(parse, method, '--lr', '0.1')
    [(inputs, labels, images)] = first_batches(model, dataset, 1)
    twin = copy.deepcopy(model.net)
    expected = twin(inputs).detach()
    model.meta_observe(inputs, labels, images)
    stored = model.buffer.logits[:64]
    assert torch.equal(stored, expected) and stored.shape == (64, 10) and not stored.requires_grad
    assert torch.equal(model.buffer.examples[:64], images) and images.dtype == torch.uint8
    assert hasattr(model.buffer, 'labels') == (method == 'derpp')                       # DER has no use for labels
    others = twin.eval()(inputs), twin(model.plain(images)), model.net.train()(inputs)
    assert not any(torch.allclose(stored, other, atol=1e-4) for other in others)


@pytest.mark.parametrize('method', ['der', 'derpp'])
def test_logits_labels_and_images_stay_together(parse, method):
    """After many replacements, with a network that does not change and sees no augmentation."""
    model, dataset, _ = start(parse, method, '--lr', '0', '--bn', 'frozen')
    plain = dict()
    for _, labels, images in first_batches(model, dataset, 6, 'frozen'):
        model.transform = model.normalization_transform
        model.meta_observe(model.plain(images), labels, images)
        plain |= {image.numpy().tobytes(): int(label) for image, label in zip(images, labels)}
    with torch.no_grad():
        assert torch.allclose(model.net(model.plain(model.buffer.examples)), model.buffer.logits, atol=1e-5)
    if method == 'derpp':
        assert [plain[image.numpy().tobytes()] for image in model.buffer.examples] == model.buffer.labels.tolist()


def test_what_has_not_changed_costs_nothing(parse):
    model, dataset, _ = start(parse, 'der', '--lr', '0', '--alpha', '1000')
    _, labels, images = first_batches(model, dataset, 1, 'frozen')[0]
    model.transform = model.normalization_transform
    losses = [model.meta_observe(model.plain(images), labels, images).item() for _ in range(2)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    model.net.classifier.bias.data += 1
    assert model.meta_observe(model.plain(images), labels, images).item() == pytest.approx(losses[0] + 1000, rel=1e-4)


@pytest.mark.parametrize('method, weights', [('der', (0.3,)), ('der', (2.0,)), ('derpp', (0.3, 0.7)), ('derpp', (0.0, 2.0))])
def test_the_loss_by_hand(parse, monkeypatch, method, weights):
    """Means over samples and classes; the two draws of DER++ serve one term each."""
    flags = [word for pair in zip(('--alpha', '--beta'), map(str, weights)) for word in pair]
    model, dataset, _ = start(parse, method, *flags, '--lr', '0')
    first, second = first_batches(model, dataset, 2)
    model.net.eval()
    model.meta_observe(*first)
    draws = [(first[0][:8] + 0.2, first[1][:8], torch.randn(8, 10)), (first[0][8:20] + 0.3, first[1][8:20], torch.randn(12, 10))]
    left = [draw if method == 'derpp' else (draw[0], draw[2]) for draw in draws]
    monkeypatch.setattr(model, 'replay', lambda: left.pop(0))
    expected = cross_entropy(model.net(second[0]), second[1])
    expected += weights[0] * float(((model.net(draws[0][0]) - draws[0][2]).detach().double() ** 2).sum() / 80)
    if method == 'derpp':
        expected += weights[1] * cross_entropy(model.net(draws[1][0]), draws[1][1])
    assert model.meta_observe(*second).item() == pytest.approx(expected, rel=1e-5)
    assert len(left) == (0 if method == 'derpp' else 1)


def test_the_draws_of_derpp_are_independent(parse, monkeypatch):
    """Of 100 rows, two draws of 32 share 10 on average; halves of one draw would share none."""
    model, dataset, _ = start(parse, 'derpp', '--minibatch_size', '32')
    batches, drawn = first_batches(model, dataset, 6), []
    draw = model.buffer.draw
    monkeypatch.setattr(model.buffer, 'draw', lambda *given: drawn.append(set(rows := draw(*given))) or rows)
    for batch in batches:
        model.meta_observe(*batch)
    assert len(drawn) == 10 and all(len(rows) == 32 for rows in drawn)
    shared = [len(a & b) for a, b in zip(drawn[::2], drawn[1::2])]
    assert all(0 < count < 32 for count in shared)


@pytest.mark.parametrize('method, sizes', [('der', [64, 64, 20]), ('derpp', [64, 64, 20, 20])])
def test_forward_passes_of_a_step(parse, method, sizes):
    model, dataset, _ = start(parse, method, '--minibatch_size', '20')
    seen = []
    model.net.register_forward_hook(lambda net, given, out: seen.append(len(given[0])))
    for batch in first_batches(model, dataset, 2):
        model.meta_observe(*batch)
    assert seen == sizes
