"""ENS: one step by hand, against autograd, and what a step leaves alone."""

import pytest
import torch
import torch.nn.functional as F

from models.ens import shares
from scroll.ground.grid import GRID
from tests.conftest import refused
from tests.models.conftest import seeded


@pytest.fixture
def ens(start):
    return lambda *flags, count=6: start(
        'ens', f'--n_classifiers {count} --top_k 3 --lr 0.01', *flags
    )[0]


def unit(count, dim, seed=0):
    return F.normalize(torch.randn(count, dim, generator=seeded(seed)))


def test_a_step_is_the_sign_of_autograds_gradient(ens):
    model = ens('--tau 20')
    model.weight.normal_(0, 30, generator=seeded(1))  # so that tanh bends
    z = unit(7, model.embedder.dim, 2)
    labels = torch.tensor([0, 3, 3, 9, 1, 0, 3])
    weight = model.weight.clone().requires_grad_()
    bias = model.bias.clone().requires_grad_()
    cosine, chosen = (z @ model.keys.T).topk(3)
    v = 20 * torch.tanh((torch.einsum('bkcd,bd->bkc', weight[chosen], z) + bias[chosen]) / 20)
    out = (cosine[..., None] * v).sum(1) / cosine.sum(1, keepdim=True)
    loss = -out[torch.arange(7), labels].mean()
    loss.backward()
    torch.testing.assert_close(model.outputs(z), out.detach())
    before = model.weight.clone(), model.bias.clone()
    torch.testing.assert_close(model.learn(z, labels), loss.detach())
    torch.testing.assert_close(model.weight, before[0] - 0.01 * weight.grad.sign())
    torch.testing.assert_close(model.bias, before[1] - 0.01 * bias.grad.sign())


def test_keys_from_data_have_its_mean_and_deviation(ens):
    """The first batch has to be more than one sample."""
    model = ens('--keys data', count=3000)
    images = torch.zeros(9, 8, 8, 3, dtype=torch.uint8)
    images.random_(256, generator=seeded())
    z = F.normalize(torch.from_numpy(model.embedder(images.numpy())[0]).float() / GRID)
    expected = F.normalize(
        z.mean(0) + torch.randn(3000, z.shape[1], generator=seeded()) * z.std(0, correction=0)
    )
    with refused('--keys data', '--batch_size'):
        model.observe(images[:1], torch.zeros(1).long(), images[:1])
    model.observe(images, torch.zeros(9).long(), images)
    torch.testing.assert_close(model.keys.mean(0), expected.mean(0), atol=0.01, rtol=0.05)


def test_shares_add_up_to_one_whatever_the_cosines():
    rows = [0.5, 0.3, 0.2], [-0.1, -0.2, -0.2], [0.0, 0.0, 0.0], [0.25, -0.25, 0.0], [1e-30, 0, 0]
    cosine = torch.tensor(rows)
    expected = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4], *[[1 / 3] * 3] * 3])
    torch.testing.assert_close(shares(cosine), expected)
