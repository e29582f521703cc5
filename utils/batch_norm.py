"""Batch norms that may look at a batch without remembering it."""
from contextlib import contextmanager

from torch import nn


@contextmanager
def bn_track_stats(module: nn.Module, condition: bool = True):
    """Within the block, unless `condition`, batch norms leave their running statistics alone.

    In train mode they still normalise by the batch, in eval mode by the running statistics, as ever.
    """
    norms = [] if condition else [m for m in module.modules()
                                  if isinstance(m, nn.modules.batchnorm._BatchNorm)]
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
    if net is None:
        return
    net.train()
    if bn == 'frozen':
        for module in batch_norms(net):
            module.eval()


def batch_norms(net) -> list:
    """All batch norms of a network."""
    return [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
