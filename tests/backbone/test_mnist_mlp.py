"""The perceptron of MNIST."""
import numpy as np
import torch

from backbone.MNISTMLP import BaseMNISTMLP
from tests.backbone.conftest import build


def test_89_610_parameters_with_ten_classes():
    net = build('mnistmlp', num_classes=10)
    assert len(net.get_params()) == 89_610 and net.feature_dim == 100
    assert isinstance(net, BaseMNISTMLP) and net(torch.zeros(2, 1, 28, 28)).shape == net(torch.zeros(2, 784)).shape == (2, 10)


@torch.no_grad()
def test_logits_by_hand():
    net = BaseMNISTMLP(6, 3, hidden_size=4)
    w1, b1, w2, b2, w3, b3 = (p.data.normal_(generator=torch.Generator().manual_seed(i)).numpy() for i, p in enumerate(net.parameters()))
    x = np.random.default_rng(0).normal(size=(5, 1, 2, 3)).astype(np.float32)
    hidden = np.maximum(np.maximum(x.reshape(5, 6) @ w1.T + b1, 0) @ w2.T + b2, 0)
    np.testing.assert_allclose(net.features(torch.from_numpy(x)), hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net(torch.from_numpy(x)), hidden @ w3.T + b3, rtol=1e-4, atol=1e-5)


def test_a_run_from_the_command_line(command_line):
    words = ['--model', 'sgd', '--dataset', 'seq-digits', '--weights', 'none', '--backbone', 'mnistmlp', '--mlp_hidden_size', '8',
             '--lr', '0.1', '--n_epochs', '1', '--disable_log', '1', '--non_verbose', '1']
    code, out, err = command_line(*words)
    assert code == 2 and len(err.splitlines()) == 1
    assert all(word in err for word in ('(3, 8, 8)', '192 values', '784', '--mlp_input_size 192'))
    assert command_line(*words, '--mlp_input_size', '192')[0] == 0
