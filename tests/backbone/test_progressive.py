"""Progressive networks: what a column adds, and that columns before it stay as they are."""
import pytest
import torch
from torch import nn

from backbone.MNISTMLP_PNN import MNISTMLP_PNN, Lateral
from backbone.ResNet18_PNN import resnet18_pnn
from tests.backbone.conftest import build, pictures


def perceptron(old=None):
    return MNISTMLP_PNN(3 * 8 * 8, 4, old)


def convolutional(old=None):
    return resnet18_pnn(4, 3, old, (2, 3, 8, 8))


@pytest.mark.parametrize('make', [perceptron, convolutional])
def test_a_new_column_reads_the_old_ones_and_leaves_them_alone(make):
    torch.manual_seed(0)
    x, first = pictures(4, 8), make()
    second = make([first])
    third = make([first, second])
    before = {name: t.clone() for col in (first, second) for name, t in col.state_dict().items()}
    third.train()
    opt = torch.optim.SGD(third.parameters(), lr=0.5, weight_decay=0.1)
    was = third.get_params().clone()
    third(x).square().sum().backward()
    opt.step()
    after = {name: t for col in (first, second) for name, t in col.state_dict().items()}
    assert all(torch.equal(after[name], t) for name, t in before.items())               # batch norms as well
    assert not torch.equal(third.get_params(), was) and not first.training and third.training
    third.eval()
    logits = third(x)
    with torch.no_grad():
        next(first.parameters()).mul_(3)                                                # it is read, through both
    assert not torch.equal(third(x), logits)
    assert third(x, returnt='features').shape == (4, third.feature_dim)


def test_the_lateral_part_by_hand():
    lateral = Lateral([2, 3], 4, nn.Linear)
    a, b = torch.randn(5, 2), torch.randn(5, 3)
    lateral.alphas[0].data.fill_(0.5)
    expected = lateral.expand(torch.relu(lateral.reduce(torch.cat([0.5 * a, b], 1))))
    assert torch.equal(lateral([a, b]), expected) and expected.shape == (5, 4)
    assert Lateral([], 4, nn.Linear)([]) == 0


@pytest.mark.parametrize('name, kind, options', [('mnistmlp-pnn', MNISTMLP_PNN, dict(mlp_input_size=192)), ('resnet18-pnn', None, dict(num_filters=2))])
def test_first_columns_have_the_names_that_foreign_files_read(name, kind, options):
    net = build(name, **options)
    assert not len(net.old_cols) and net.num_classes == 5
    assert (net.input_size, net.output_size) == (192, 5) if kind else net.nf == 2
