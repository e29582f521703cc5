"""ER: no buffer is SGD; one forward pass of batch and replay; a buffer of plain images that does not depend on the network."""
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bench.run.building import initialize
from bench.run.training import train, training_mode

COMMON = dict(n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=100)


def start(parse, *flags, method='er'):
    given = COMMON if method != 'sgd' else {k: v for k, v in COMMON.items() if k != 'buffer_size'}
    return initialize(parse(method, *flags, **given))


def trained(parse, *flags, method='er'):
    model, dataset, args = start(parse, *flags, '--batch_size', '12', method=method)
    train(model, dataset, args)
    return model, dataset


def same(a, b) -> bool:
    return all(torch.equal(x, b.state_dict()[name]) for name, x in a.state_dict().items())


@pytest.mark.usefixtures('few_digits')
def test_without_a_buffer_it_is_sgd_to_the_last_bit(parse):
    plain = trained(parse, method='sgd')[0].net
    assert same(plain, trained(parse, '--buffer_size', '0')[0].net)         # running statistics of batch norms included
    assert not same(plain, trained(parse)[0].net)


def test_batch_and_replay_pass_the_network_at_once(parse):
    model, dataset, args = start(parse, '--minibatch_size', '80')
    sizes = []
    model.net.register_forward_hook(lambda net, given, out: sizes.append((len(given[0]), net.training)))
    loader = dataset.get_data_loaders()[0].serve(False, True, 'cpu')
    model.meta_begin_task(dataset)
    training_mode(model.net, args.bn)
    for batch in list(loader)[:4]:
        model.meta_observe(*batch)
    assert sizes == [(64, True), (64 + 64, True), (64 + 80, True), (64 + 80, True)]     # all there is, where that is less than b


def test_a_step_follows_the_mean_over_batch_and_replay(parse, monkeypatch):
    model, dataset, _ = start(parse, '--lr', '0.5')
    inputs, labels, images = next(iter(dataset.get_data_loaders()[0].serve(False, True, 'cpu')))
    model.meta_begin_task(dataset)
    model.net.eval()
    model.buffer.add_data(examples=images, labels=labels)
    extra, extra_labels = inputs[:16] + 0.1, (labels[:16] + 1) % 10
    monkeypatch.setattr(model, 'replay', lambda: (extra, extra_labels))
    before = model.net.get_params().detach().clone()
    losses = [F.cross_entropy(model.net(x), y, reduction='sum') for x, y in ((inputs, labels), (extra, extra_labels))]
    expected = sum(losses) / (64 + 16)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(expected, model.net.parameters())])
    assert model.meta_observe(inputs, labels, images).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(before - model.net.get_params(), 0.5 * gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-6)


@pytest.mark.usefixtures('few_digits')
def test_the_buffer_does_not_depend_on_what_the_network_learns(parse):
    still, moving = (trained(parse, '--lr', lr, '--buffer_size', '20')[0] for lr in ('0', '0.05'))
    assert not same(still.net, moving.net)
    for name in ('examples', 'labels'):
        assert torch.equal(getattr(still.buffer, name), getattr(moving.buffer, name))
    other = trained(parse, '--lr', '0', '--buffer_size', '20', '--seed', '1')[0]
    assert not torch.equal(still.buffer.labels, other.buffer.labels)


@pytest.mark.usefixtures('few_digits')
def test_it_keeps_training_images_as_they_are_in_the_files_under_their_labels(parse):
    model, dataset = trained(parse, '--lr', '0', '--buffer_size', '40')
    assert model.buffer.examples.dtype == torch.uint8 and len(model.buffer) == 40
    known = {image.tobytes(): int(label) for image, label in zip(dataset.images.train, dataset.train_labels)}
    assert [known[image.tobytes()] for image in model.buffer.examples.numpy()] == model.buffer.labels.tolist()
    assert model.buffer.num_seen_examples == len(dataset.train_labels) == 80 and len(np.unique(model.buffer.labels)) > 5


def test_each_replay_is_augmented_afresh_and_each_image_for_itself(parse):
    model, dataset, _ = start(parse)
    images = dataset.images.train[:1]
    model.buffer.add_data(examples=torch.tensor(np.repeat(images, 40, axis=0)), labels=torch.zeros(40))
    first, again = model.replay()[0], model.replay()[0]
    assert not torch.equal(first, again) and len(torch.unique(first, dim=0)) > 3
    assert model.plain(model.buffer.examples[:1]).shape == first[:1].shape


@pytest.mark.parametrize('method, flags, expected', [
    ('er', 'seq-cifar10 200', dict(lr=0.01, n_epochs=50)), ('er', 'seq-cifar100 2000', dict(lr=0.03, n_epochs=50)),
    ('er', 'seq-miniimg 200', dict(lr=0.01, n_epochs=10)), ('er', 'seq-miniimg 500', dict(lr=0.01, n_epochs=20)),
    ('der', 'seq-cifar100 500', dict(lr=0.01, alpha=0.5)), ('der', 'seq-cifar100 500 --n_splits 50', dict(lr=0.03, alpha=0.5)),
    ('der', 'seq-cifar10 2000', dict(lr=0.01, alpha=1)), ('der', 'seq-miniimg 200', dict(lr=0.03, alpha=1, n_epochs=10)),
    ('der', 'seq-miniimg 500', dict(lr=0.05, alpha=1, n_epochs=20)),
    ('derpp', 'seq-cifar100 500', dict(lr=0.01, alpha=0.5, beta=0.5)),
    ('derpp', 'seq-cifar100 2000 --n_splits 50', dict(lr=0.03, alpha=1, beta=0.5)),
    ('derpp', 'seq-miniimg 200', dict(lr=0.03, alpha=1, beta=1, n_epochs=10)),
    ('derpp', 'seq-miniimg 500', dict(lr=0.05, alpha=0.5, beta=1, n_epochs=20)),
    ('er-ace', 'seq-cifar100 2000', dict(lr=0.01, n_epochs=1)), ('ssil', 'seq-miniimg 200', dict(lr=0.01, distill_coef=1)),
    ('mir', 'seq-miniimg 200', dict(lr=0.01, subsample=50)), ('er-aml', 'seq-miniimg 500', dict(lr=0.01, supcon_temperature=0.2)),
])
def test_the_papers_values(parse, method, flags, expected):
    dataset, size, *more = flags.split()
    args = parse(method, '--model_config', 'best', '--buffer_size', size, *more, dataset=dataset)
    assert {name: getattr(args, name) for name in expected} == expected and args.batch_size == args.minibatch_size == 32
