"""A float network as a graph of torch operators, and how large the values in it get on images."""
import numpy as np
import torch
from torch import nn

_QUANTILE = 0.9999
_AT_ONCE = 32
_SAMPLED = 1 << 20                  # values of a map that a quantile is taken of


class _Features(nn.Module):
    """A network whose `forward` is another's `features`."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net.features(x)


def exported(net, preprocessing) -> tuple:
    """The graph of `net.features`, in eval mode: (graph module of torch operators, for batches of one size;
    its parameters and buffers in float64 by the name that nodes have)."""
    wrapped = _Features(net).eval()
    example = torch.zeros(_AT_ONCE, 3, preprocessing.input_size, preprocessing.input_size)
    program = torch.export.export(wrapped, (example,), strict=False).run_decompositions({})
    module = program.module()
    constants = {node.name: module.get_parameter(node.target)
                 if node.target in dict(module.named_parameters())
                 else module.get_buffer(node.target) for node in module.graph.nodes if node.op == 'get_attr'}
    return module, {name: value.detach().double().numpy() for name, value in constants.items()}


class _Watch(torch.fx.Interpreter):
    """Runs a graph and keeps, of each map, a high quantile of the magnitude."""

    def __init__(self, module):
        super().__init__(module)
        self.quantiles = {}

    def run_node(self, node):
        """What the node gives; of its first output the quantile is kept."""
        value = super().run_node(node)
        watched = value[0] if isinstance(value, (tuple, list)) else value
        if isinstance(watched, torch.Tensor) and watched.is_floating_point() and node.op == 'call_function':
            flat = watched.abs().reshape(-1)
            step = -(-len(flat) // _SAMPLED)
            flat = flat[::step]
            rank = max(1, int(np.ceil(_QUANTILE * len(flat))))
            self.quantiles.setdefault(node.name, []).append(float(flat.kthvalue(rank).values))
        return value


@torch.no_grad()
def magnitudes_of(module, preprocessing, images) -> dict:
    """Node name -> quantile of the magnitude of its values on uint8 images (N, H, W, C), the mean over
    batches."""
    watch = _Watch(module)
    for start in range(0, len(images), _AT_ONCE):
        at = np.arange(start, start + _AT_ONCE) % len(images)                   # the graph has one batch size
        watch.run(preprocessing(torch.from_numpy(images[at])))
    return {name: float(np.mean(values)) for name, values in watch.quantiles.items()}
