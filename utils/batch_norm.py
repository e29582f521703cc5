"""Networks of a method, and their batch norms: mode, whether they remember a batch, a single
value.
"""

from contextlib import contextmanager

from torch import nn

_DEPTH = 2  # attributes of attributes: deeper, an object holds more than the networks of its own


@contextmanager
def bn_track_stats(module: nn.Module, condition: bool = True):
    """Within the block, unless `condition`, batch norms leave their running statistics alone. They
    still normalise by the batch in train mode, by the running statistics in eval mode."""
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
    for network in networks_of(net):
        network.train()
    for module in batch_norms(net) if bn == 'frozen' else []:
        module.eval()


def networks_of(net, depth: int = _DEPTH) -> list:
    """Torch modules that a method's `net` is or holds, each once. Methods written for Mammoth also
    set it to None, to a list or a dict, or to an object around a network (`net._network`,
    `net.model`)."""
    if isinstance(net, nn.Module):
        return [net]
    parts = net if isinstance(net, (list, tuple, dict)) else getattr(net, '__dict__', {})
    found = {}
    for part in (parts.values() if hasattr(parts, 'values') else parts) if depth else ():
        found |= dict.fromkeys(networks_of(part, depth - 1))
    return list(found)


def batch_norms(net) -> list:
    """All batch norms of the networks in `net`."""
    modules = [module for network in networks_of(net) for module in network.modules()]
    return [module for module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)]


@contextmanager
def allow_single_values(net):
    """Within the block, batch norms in train mode accept one value per channel (one sample, maps of
    1 x 1), where torch raises: in that forward pass they use their running statistics, and do not
    update them."""
    handles = []
    for norm in batch_norms(net):
        handles += [
            norm.register_forward_pre_hook(_spare),
            norm.register_forward_hook(_end_sparing, always_call=True),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _spare(norm, inputs) -> None:
    if norm.training and inputs[0].numel() == inputs[0].shape[1]:  # (1, C) or (1, C, 1, 1)
        norm.training = False
        norm.spared = True


def _end_sparing(norm, inputs, output) -> None:
    if norm.__dict__.pop('spared', False):
        norm.training = True
