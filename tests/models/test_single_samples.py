"""Batches of one sample: what batch norms do with them."""
import inspect

import pytest
from torch import nn

import models
from bench.run.building import initialize
from bench.run.training import train
from tests.models.conftest import known_flags

QUICK = {'gdumb': ['--fitting_epochs 1 --buffer_size 1']}
STEP = {'gdumb': 'loss_of', 'joint': 'learn'}                                    # what makes the forward passes, if not observe


@pytest.mark.parametrize('method, size, bn', [*((method, 8, 'train') for method in ('sgd', 'gdumb', 'joint')),
                                              ('er-ace', 32, 'train'), ('er-ace', 8, 'frozen')])
def test_only_norms_with_a_single_value_use_their_running_statistics(parse, small_digits, monkeypatch, method, size, bn):
    """At 8 pixels the last maps of the network have one pixel: only there has one sample no variance."""
    flags = [*QUICK.get(method, []), '--n_splits 2 --input_size', size, '--bn', bn]
    flags += ['--buffer_size 25'] if '--buffer_size' in known_flags(method) and method not in QUICK else []
    flags += [] if models.get_model_class(method).ONLINE else ['--n_epochs 1']
    model, dataset, args = initialize(parse(method, *flags, '--batch_size 1'))
    norms = [module for module in model.net.modules() if isinstance(module, nn.BatchNorm2d)]
    seen, name = set(), STEP.get(method, 'observe')
    step = getattr(model, name)

    def watched(*given, **options):
        handles = [norm.register_forward_pre_hook(lambda norm, x: seen.add((len(x[0]), x[0][:, 0].numel(), norm.training))) for norm in norms]
        try:
            return step(*given, **options)
        finally:
            assert all(norm.training == (bn == 'train') for norm in norms)
            for handle in handles:
                handle.remove()
    if name == 'observe':
        watched.__signature__ = inspect.signature(step)
    monkeypatch.setattr(model, name, watched)
    train(model, dataset, args)
    assert 1 in {samples for samples, *_ in seen}
    assert all(training == (values > 1 and bn == 'train') for _, values, training in seen)
    assert (1 in {values for _, values, _ in seen}) == (size == 8)
