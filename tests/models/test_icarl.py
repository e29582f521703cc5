"""iCaRL: targets, herded exemplars, and the nearest mean of exemplars, on features that can be checked by hand."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bench.resume.model_state import load_model_state, model_state
from bench.run.building import initialize
from bench.run.training import train
from models.icarl import incremental_targets
from models.utils.losses import frozen_copy


class Pixels(nn.Module):
    """Features: the input's pixels, shrunk to 4 x 4, times `scale`; logits: a linear map of them."""
    device = torch.device('cpu')

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.classifier = nn.Linear(48, 10)

    def forward(self, x, returnt='out'):
        features = self.scale * F.adaptive_avg_pool2d(x, 4).flatten(1)
        return features if returnt == 'features' else self.classifier(features)


def start(parse, *flags):
    return initialize(parse('icarl', *flags, n_splits=3, permute_classes=1, n_epochs=1, batch_size=64, buffer_size=31))


def after(tasks, parse, *flags, net=None):
    """A model that has kept exemplars of so many tasks, without training."""
    model, dataset, _ = start(parse, *flags)
    model.net = Pixels() if net is None else net
    for _ in range(tasks):
        dataset.get_data_loaders()
        model.meta_begin_task(dataset)
        model.meta_end_task(dataset)
    return model, dataset


def rows_by_class(model) -> dict:
    images, labels = model.buffer.get_all_data()
    return {int(c): images[labels == c].numpy() for c in labels.unique()}


def test_targets_by_hand():
    labels, old = torch.tensor([2, 0]), torch.tensor([True, False, False, True])
    logits = torch.tensor([[0.0, 9, 9, 3], [-2, 9, 9, 0]])
    assert incremental_targets(labels, None, old).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    s = lambda z: float(torch.sigmoid(torch.tensor(float(z))))
    assert incremental_targets(labels, logits, old).tolist() == [[s(0), 0, 1, s(3)], [s(-2), 0, 0, s(0)]]


def test_a_student_that_is_its_teacher_learns_nothing_about_old_classes(parse):
    """All classes old: the gradient of the loss is that of the weight decay alone, 2 opt_wd theta."""
    model, _, _ = start(parse, '--opt_wd', '0.5')
    model.old[:] = model.seen[:] = True
    model.net.eval()
    model.old_net = frozen_copy(model.net)
    model.opt = SimpleNamespace(zero_grad=model.net.zero_grad, step=lambda: None)
    inputs = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    loss = model.observe(inputs, torch.arange(8), None)
    entropy = F.binary_cross_entropy(model.net(inputs).sigmoid(), model.net(inputs).sigmoid())
    decay = 0.5 * sum((p ** 2).sum() for p in model.net.parameters())
    assert loss.item() == pytest.approx((entropy + decay).item(), rel=1e-6)
    for p in model.net.parameters():
        assert torch.allclose(p.grad, p, atol=1e-6)


@pytest.mark.parametrize('tasks', [0, 1, 2])
def test_the_loss_is_a_mean_over_samples_and_the_classes_seen(parse, tasks):
    """The old network's answers for old classes, one-hot for this task's; classes to come are not pushed down."""
    model, dataset = after(tasks, parse, '--opt_wd', '0')
    dataset.get_data_loaders()
    model.meta_begin_task(dataset)
    model.opt = SimpleNamespace(zero_grad=model.net.zero_grad, step=lambda: None)
    with torch.no_grad():
        model.net.classifier.weight.mul_(-1)                                        # not its teacher any more
    inputs, labels, plain = next(iter(dataset.train_loader))
    old = [int(c) for t in range(tasks) for c in dataset.task_classes(t)]
    seen = old + [int(c) for c in dataset.task_classes(tasks)]
    p = model.net(inputs).sigmoid().detach().double().numpy()
    target = np.eye(10)[labels.numpy()]
    if old:
        target[:, old] = model.old_net(inputs).sigmoid().double().numpy()[:, old]
    entries = -(target * np.log(p) + (1 - target) * np.log(1 - p))
    assert model.meta_observe(inputs, labels, plain).item() == pytest.approx(entries[:, seen].mean(), rel=1e-5)
    moved = model.net.classifier.weight.grad.any(dim=1).numpy()
    assert moved[seen].all() and not np.delete(moved, seen).any()


def test_shrinking_keeps_the_first_exemplars(parse):
    few, _ = after(1, parse)
    later, dataset = after(3, parse)
    before, now = rows_by_class(few), rows_by_class(later)
    assert sorted(before) == sorted(dataset.task_classes(0)) and sorted(now) == list(range(10))
    for c, rows in before.items():
        assert 3 <= len(now[c]) < len(rows) and np.array_equal(rows[:len(now[c])], now[c])
    assert len(later.buffer) == 31 and {len(rows) for rows in now.values()} == {3, 4}


def test_exemplars_are_herded_on_unit_features(parse):
    """Algorithm 4 of the paper, written out; features of the first class of the first task."""
    model, dataset = after(1, parse)
    c = int(dataset.task_classes(0)[0])
    images = torch.from_numpy(dataset.images.train[dataset.train_labels == c])
    f = F.normalize(model.net(model.plain(images), returnt='features')).double().numpy()
    chosen = []
    for k in range(1, 8):
        distance = [np.inf if j in chosen else np.linalg.norm(f.mean(axis=0) - (f[chosen].sum(axis=0) + f[j]) / k) for j in range(len(f))]
        chosen.append(int(np.argmin(distance)))
    assert np.array_equal(rows_by_class(model)[c][:7], images[chosen].numpy())


@pytest.mark.parametrize('mirrored', [False, True])
def test_the_prediction_is_the_nearest_mean_of_exemplars(parse, mirrored):
    model, dataset = after(2, parse)
    model.dataset = SimpleNamespace(FLIP=mirrored)

    def unit(images):
        f = model.net(images, returnt='features').detach().double().numpy()
        return f / np.linalg.norm(f, axis=1, keepdims=True)
    x = model.plain(torch.tensor(dataset.images.test[::7]))
    logits = model(x)
    for c, rows in rows_by_class(model).items():
        views = [model.plain(torch.from_numpy(rows))]
        views += [torch.flip(views[0], [3])] * mirrored
        mean = np.mean([unit(view) for view in views], axis=(0, 1))
        distance = np.linalg.norm(unit(x) - mean / np.linalg.norm(mean), axis=1)
        assert np.allclose(logits[:, c].detach(), -distance, atol=1e-5)
    unseen = dataset.task_classes(2)
    assert (logits[:, unseen] == torch.finfo(torch.float32).min).all() and not torch.isnan(logits.softmax(1)).any()


def test_the_prediction_does_not_depend_on_the_scale_of_features_nor_on_the_batch(parse):
    model, dataset = after(2, parse)
    x = model.plain(torch.tensor(dataset.images.test[::5]))
    expected = model(x)
    assert torch.equal(torch.cat([model(row[None]) for row in x]), expected)
    model.net.scale, model.class_means = 1000.0, None
    assert torch.allclose(model(x), expected, atol=1e-5)


def test_means_follow_the_network_and_survive_saving(parse):
    model, dataset, args = start(parse)
    train(model, dataset, args)
    model.net.eval()
    x = model.plain(torch.tensor(dataset.images.test[:40]))
    expected = model(x)
    again, _, _ = start(parse)
    load_model_state(again, model_state(model))
    again.net.eval()
    again.class_means = None                                            # made again from the buffer
    assert torch.equal(again(x), expected)
    model.net.train()
    model.observe(x[:8], torch.zeros(8, dtype=torch.int64), None)
    model.net.eval()
    assert not torch.equal(model(x), expected)
    assert len(model.buffer) == 31


def test_exemplars_join_the_training_data_once(parse):
    model, dataset = after(1, parse)
    kept = rows_by_class(model)
    loader, _ = dataset.get_data_loaders()
    own = len(loader.dataset)
    model.meta_begin_task(dataset)
    assert len(loader.dataset) == own + 31 and len(loader) == -(-(own + 31) // 64)
    seen = torch.cat([labels for _, labels, *_ in loader])
    assert {c: int((seen == c).sum()) for c in kept} == {c: len(rows) for c, rows in kept.items()}


def test_grey_images_without_a_channel_axis_are_joined_as_they_are(parse):
    model, dataset, _ = start(parse)
    model.net = Pixels()
    for _ in range(2):
        loader, _ = dataset.get_data_loaders()
        loader.dataset.data = loader.dataset.data[..., 0]
        model.meta_begin_task(dataset)
        assert loader.dataset.data.ndim == 3 and len(loader.dataset.data) == len(loader.dataset.targets)
        model.meta_end_task(dataset)
    assert model.buffer.examples.shape == (31, 8, 8, 1)


def test_fields_that_exemplars_lack_do_not_come_with_the_joined_data(parse):
    model, dataset = after(1, parse)
    loader, _ = dataset.get_data_loaders()
    loader.dataset.add_extra_return_field('true_labels', loader.dataset.targets.clone())
    model.meta_begin_task(dataset)
    assert {len(batch) for batch in loader} == {3}


def test_without_a_buffer_the_network_speaks_for_itself(parse):
    model, dataset = after(2, parse, '--buffer_size', '0')
    x = model.plain(torch.tensor(dataset.images.test[:5]))
    assert torch.equal(model(x), model.net(x))
