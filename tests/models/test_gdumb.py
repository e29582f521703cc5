"""GDumb: rates, CutMix, and a result that depends on the buffer's content alone."""

import pytest
import torch

from models.gdumb import learning_rates
from tests.conftest import refused
from tests.models.conftest import next_task, seeded
from utils.augmentations import cutmix_data

FLAGS = ['--buffer_size 30 --fitting_epochs 2']


def test_rates_by_hand():
    rates = learning_rates('restarts', 9, 0.05, 5e-4)
    assert rates == pytest.approx(
        [0.005, 0.05, 0.05, 0.02525, 0.05, 0.0427513, 0.02525, 0.0077487, 0.05], abs=1e-6
    )
    rates = learning_rates('cosine', 5, 0.05, 5e-4)
    assert (rates[0], rates[2], rates[-1]) == pytest.approx((0.05, 0.02525, 5e-4))
    assert rates == sorted(rates, reverse=True)
    assert learning_rates('cosine', 1, 0.05, 5e-4) == [0.05]
    assert learning_rates('cosine', 0, 1, 0) == []


def test_the_same_content_in_other_rows_gives_the_same_network(trained):
    model, _ = trained('gdumb', *FLAGS)
    before = model.net.get_params().clone()
    rows = torch.randperm(30)
    model.buffer.examples = model.buffer.examples[rows]
    model.buffer.labels = model.buffer.labels[rows]
    model.net.set_params(torch.rand_like(before))
    model.fit()
    assert torch.equal(model.net.get_params(), before)
    model.buffer.labels[0] = (model.buffer.labels[0] + 1) % 10
    model.fit()
    assert not torch.equal(model.net.get_params(), before)


@pytest.mark.parametrize('every', [0, 2])
def test_nothing_is_learned_before_the_last_task_unless_asked_for(start, every):
    model, dataset, _ = start('gdumb', *FLAGS, '--n_splits 5 --fit_every_task', every)
    begin = model.net.get_params().clone()
    next_task(model, dataset)
    assert torch.equal(model.net.get_params(), begin) == (every != 1)
    next_task(model, dataset)
    assert torch.equal(model.net.get_params(), begin) == (every == 0)


def test_momentum_and_decay_by_hand(trained):
    """Two steps at a rate of .1, momentum and decay of .5; gradients are clipped to nothing."""
    steps = '--fitting_batch_size 30 --maxlr 0.1 --minlr 0.1 --clip 1e-30 --optim_mom 0.5'
    flags = *FLAGS, steps, '--optim_wd'
    shrunk = 0.95 - 0.1 * (0.5 * 0.5 + 0.5 * 0.95)
    plain, _ = trained('gdumb', *flags, 0)
    decayed, _ = trained('gdumb', *flags, 0.5)
    assert torch.allclose(
        decayed.net.get_params(), shrunk * plain.net.get_params(), rtol=1e-5, atol=1e-7
    )


def test_cutmix_happens_as_often_as_its_coin_says():
    x = torch.rand(2, 3, 8, 8)
    y = torch.arange(2)
    generator = seeded()
    mixed = sum(cutmix_data(x, y, 1.0, 0.3, generator=generator)[0] is not x for _ in range(400))
    assert 85 < mixed < 160
    assert cutmix_data(x, y, 0.0)[3] == 1.0


@pytest.mark.parametrize(
    'flags, words',
    [
        (['--minlr 0.1'], ['--minlr 0.1', '--maxlr 0.05']),
        (['--maxlr 1e30'], ['finite', 'the buffer']),
    ],
)
def test_what_cannot_be_learned_is_refused(trained, flags, words):
    with refused(*words):
        trained('gdumb', *FLAGS, *flags)
