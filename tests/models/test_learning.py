"""Every method learns: from real digits, all classes at once, with the shipped psi at 24 pixels."""
import pytest

import models
from bench.run.building import initialize
from bench.run.training import train

ONLINE = [name for name in models.get_model_names() if models.get_model_class(name).ONLINE]
FLAGS = {'scroll': ['--iterations', '0', '--model_config', 'base'], 'gdumb': ['--fitting_epochs', '8', '--buffer_size', '400'],
         'ens': ['--lr', '0.01', '--n_classifiers', '64', '--top_k', '8'], 'gem': ['--buffer_size', '20'], 'icarl': ['--lr', '0.5']}


@pytest.mark.slow
@pytest.mark.parametrize('method', models.get_model_names())
def test_each_method_learns(parse, tmp_path, method):
    flags = ['--weights', 'compact', '--input_size', '24', '--schedule', 'iid', '--batch_size', '16', *FLAGS.get(method, [])]
    flags += ['--n_epochs', '1'] if method not in ONLINE else []
    flags += ['--lr', '0.03'] if method not in ('scroll', 'gdumb', 'ens', 'icarl') else []
    if method not in ('sgd', 'joint', 'lwf', 'ewc-on', 'ens') and '--buffer_size' not in flags:
        flags += ['--buffer_size', '100']
    model, dataset, args = initialize(parse(method, *flags, base_path=tmp_path))
    assert train(model, dataset, args)['final_accuracy'] > 40           # chance is 10
