"""Batch norms: their mode, whether they remember a batch, and what they do with a single value."""
from contextlib import contextmanager

from torch import nn


@contextmanager
def bn_track_stats(module: nn.Module, condition: bool = True):
    """Within the block, unless `condition`, batch norms leave their running statistics alone. They still
    normalise by the batch in train mode, by the running statistics in eval mode."""
    norms = [] if condition else batch_norms(module)
    before = [norm.track_running_stats for norm in norms]
    try:
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm, tracked in zip(norms, before):
            norm.track_running_stats = tracked


def training_mode(net, bn: str) -> None:
    """Train mode; with `--bn frozen` batch norms keep to the statistics they came with."""
    if net is not None:
        net.train()
    for module in batch_norms(net) if bn == 'frozen' else []:
        module.eval()


def batch_norms(net) -> list:
    """All batch norms of a network; none of None."""
    modules = [] if net is None else net.modules()
    return [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]


@contextmanager
def allow_single_values(net):
    """Within the block, batch norms in train mode accept one value per channel (one sample, maps of 1 x 1),
    where torch raises: in that forward pass they use their running statistics, and do not update them."""
    handles = []
    for norm in batch_norms(net):
        handles += [norm.register_forward_pre_hook(_spare),
                    norm.register_forward_hook(_end_sparing, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _spare(norm, inputs) -> None:
    if norm.training and inputs[0].numel() == inputs[0].shape[1]:               # (1, C) or (1, C, 1, 1)
        norm.training, norm.spared = False, True


def _end_sparing(norm, inputs, output) -> None:
    if norm.__dict__.pop('spared', False):
        norm.training = True
