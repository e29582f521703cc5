"""Anytime accuracy: when it is taken, on which test samples, and that taking it changes nothing."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from bench.run.building import initialize
from bench.run.training import train
from scroll.ground.grid import GRID
from tests.conftest import refused

SCROLL = {'model_config': 'base', 'adaptation': 'none', 'buffer_size': 40}


def trained(parse, model, *flags, **more):
    """(model, data set, results row) of a whole run on the digits."""
    fixed = (
        SCROLL
        if model == 'scroll'
        else {'lr': 0.01} | ({'buffer_size': 20} if model == 'er' else {})
    )
    model, dataset, args = initialize(parse(model, *flags, **fixed, **more))
    return model, dataset, train(model, dataset, args)


def test_it_is_taken_at_the_end_of_the_batch_that_reaches_each_multiple(parse, small_digits):
    _, dataset, row = trained(parse, 'er', '--schedule gaussian,batch=7 --eval_every 20')
    total = len(dataset.schedule.order)
    ends = np.append(np.arange(7, total, 7), total)
    expected = [int(ends[ends >= n][0]) for n in range(20, total + 1, 20)]
    curve = json.loads(row['anytime_curve'])
    assert [n for n, _ in curve] == expected
    assert len(expected) == total // 20
    assert row['anytime_accuracy'] == pytest.approx(np.mean([a for _, a in curve]), abs=1e-3)


def test_scroll_predicts_at_any_time_as_ridge_on_what_has_come(parse):
    model, dataset, row = trained(
        parse, 'scroll', '--schedule gaussian --eval_every 448 --buffer_size 0'
    )
    curve = json.loads(row['anytime_curve'])
    assert len(curve) == 3
    images = dataset.images.train
    labels = dataset.images.train_labels
    for n, accuracy in curve:
        order = dataset.schedule.order[:n]
        x = model.embedder(images[order])[0] / GRID
        y = labels[order]
        classes = np.unique(labels[order])
        x = np.concatenate([x, np.ones((n, 1))], axis=1)
        reference = Ridge(alpha=0.1, fit_intercept=False).fit(x, 2.0 * (y[:, None] == classes) - 1)
        test = np.isin(dataset.images.test_labels, classes)
        z = np.concatenate(
            [model.embedder(dataset.images.test[test])[0] / GRID, np.ones((test.sum(), 1))], axis=1
        )
        hits = classes[reference.predict(z).argmax(1)] == dataset.images.test_labels[test]
        assert accuracy == pytest.approx(100 * hits.mean(), abs=1e-3)


@pytest.mark.parametrize(
    'model, flags',
    [('scroll', ['--n_splits 2 --batch_size 7']), ('er', ['--schedule gaussian,batch=7'])],
)
def test_looking_changes_nothing(parse, small_digits, model, flags):
    rows = [
        trained(parse, model, *flags, *more)[2] for more in ([], ['--eval_every 9 --prequential 1'])
    ]
    same = ('final_accuracy', 'accuracy_matrix', 'statistics_digest', 'buffer_digest')
    assert [rows[0].get(name) for name in same] == [rows[1].get(name) for name in same]
    assert not {'anytime_curve', 'prequential_accuracy'} & rows[0].keys()
    assert {'anytime_curve', 'prequential_accuracy'} <= rows[1].keys()


@pytest.mark.parametrize(
    'name, flags', [('scroll', ['--head ncc']), ('sgd', ['--lr 1e-30 --bn frozen'])]
)
def test_each_batch_is_predicted_before_it_is_learned(parse, small_digits, name, flags):
    """Compute by hand: the nearest of the class means before each segment; a network that stays as
    it is.
    """
    model, dataset, row = trained(
        parse, name, '--schedule gaussian,batch=7 --prequential 1 --batch_size 7', *flags
    )
    x = dataset.images.train[dataset.schedule.order]
    y = dataset.images.train_labels[dataset.schedule.order]
    right = 0
    x = (
        model.embedder(x)[0] / GRID
        if name == 'scroll'
        else model.net.eval()(dataset.preprocessing(torch.from_numpy(x))).detach().numpy()
    )
    for start in range(7, len(y), 7):
        seen = np.unique(y[:start])
        means = np.stack([x[:start][y[:start] == c].mean(axis=0) for c in seen])
        scores = (
            -((x[start : start + 7, None] - means) ** 2).sum(axis=2)
            if name == 'scroll'
            else x[start : start + 7, seen]
        )
        right += (seen[scores.argmax(axis=1)] == y[start : start + 7]).sum()
    assert row['prequential_accuracy'] == pytest.approx(100 * right / len(y), abs=1e-3)


def test_a_stream_that_passes_twice_has_no_sample_count(parse):
    with refused('--eval_every', '--n_epochs 1'):
        parse('er', '--eval_every 100', lr=0.1, buffer_size=20, n_epochs=2)
    with refused('--eval_every 9999: the stream has 1442 samples'):
        trained(parse, 'scroll', '--eval_every 9999')
