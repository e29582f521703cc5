"""A float network -> an `IntegerNetwork`, by torch's export.

It may have convolutions, batch norms right behind them, ReLU, ReLU6, sums, and a pooling at the end. Batch
norms are folded in float64, before rounding. Activations are scaled by a high quantile over calibration
images, weights by their largest magnitude in each output channel, or more where the bound of exact sums asks
for it. Only the scales of activations depend on the machine, and they can be recorded (`scales_of`): all else
is correctly rounded, so that the same weights and scales give the same network (`quantise_with_scales`).
"""
import copy
import math
import operator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import BRANCH, EXACT, SUM_BITS, IntegerNetwork, Op, channel_bound
from scroll.errors import InputError

_IMAGE = 0.0                        # the unit of the image, whose channels have each their own
_LINEAR = 127                       # range of values that no ReLU has cut: -127 to 127
_QUANTILE = 0.9999
_SAMPLED = 1 << 20                  # values of a map that a quantile is taken of
_BATCH = 32                         # of calibration: the graph has one batch size


def quantise_network(net: nn.Module, preprocessing: Preprocessing, images: np.ndarray) -> IntegerNetwork:
    """The integer network of `net.features`, (B, 3, S, S) -> (B, d), calibrated on images of the data that it
    was trained on, uint8 (N, H, W, C). InputError: a layer that integers cannot do, by name."""
    return _calibrated(net, preprocessing, images).build()


def scales_of(net: nn.Module, preprocessing: Preprocessing, images: np.ndarray) -> list:
    """What `quantise_network` takes from these images, to four digits: the magnitude of each value that it
    rounds, in their order."""
    builder = _calibrated(net, preprocessing, images)
    builder.build()
    return [float(f'{magnitude:.4g}') for magnitude in builder.magnitudes]


def quantise_with_scales(net: nn.Module, preprocessing: Preprocessing, scales) -> IntegerNetwork:
    """The integer network of `net.features` by recorded scales, the same on every machine. InputError: they
    are of another network, or a layer is one that integers cannot do."""
    builder = _Builder(_exported(net, preprocessing), iter(scales), preprocessing)
    network = builder.build()
    if len(builder.magnitudes) != len(scales):
        raise InputError(f'{len(scales)} scales for a network that rounds {len(builder.magnitudes)} values: '
                         'they are of another one')
    return network


def _exported(net, preprocessing) -> torch.fx.GraphModule:
    """The graph of `net.features` in torch's operators, in eval mode, for batches of `_BATCH`."""
    example = torch.zeros(_BATCH, 3, preprocessing.input_size, preprocessing.input_size)
    holder = nn.Module()
    holder.net = copy.deepcopy(net).cpu()       # where the example is
    holder.forward = lambda x: holder.net.features(x)
    program = torch.export.export(holder.eval(), (example,), strict=False)
    return program.run_decompositions({}).module()


class _Watch(torch.fx.Interpreter):
    """Runs a graph and keeps, of each map, a high quantile of the magnitude."""

    def __init__(self, module):
        super().__init__(module)
        self.quantiles = {}

    def run_node(self, node):
        value = super().run_node(node)
        watched = value[0] if isinstance(value, (tuple, list)) else value
        if isinstance(watched, torch.Tensor) and watched.is_floating_point() and node.op == 'call_function':
            flat = watched.abs().reshape(-1)
            flat = flat[::-(-len(flat) // _SAMPLED)]
            rank = max(1, int(np.ceil(_QUANTILE * len(flat))))
            self.quantiles.setdefault(node.name, []).append(float(flat.kthvalue(rank).values))
        return value


@torch.no_grad()
def _calibrated(net, preprocessing, images) -> '_Builder':
    graph = _exported(net, preprocessing)
    watch = _Watch(graph)
    for start in range(0, len(images), _BATCH):
        at = np.arange(start, start + _BATCH) % len(images)
        watch.run(preprocessing(torch.from_numpy(images[at])))
    means = {name: float(np.mean(values)) for name, values in watch.quantiles.items()}
    return _Builder(graph, means, preprocessing)


@dataclass
class _Value:
    """What a node of the float network is in the integer one: its position, and reals a unit."""
    position: int
    unit: float


@dataclass
class _Linear:
    """A convolution whose output is not rounded yet: batch norm and activation may still follow."""
    source: _Value
    weight: np.ndarray              # float64
    bias: np.ndarray
    options: dict


class _Builder:
    """Walks the graph once; each node becomes a value, or a sum that waits for what follows it: a convolution
    or a list of two, each a value or a convolution.

    scales: node name -> magnitude, or an iterator over those of the values that are rounded, as `magnitudes`.
    """

    def __init__(self, graph, scales, preprocessing):
        self.graph, self.scales, self.preprocessing = graph, scales, preprocessing
        self.tensors = dict(graph.named_parameters()) | dict(graph.named_buffers())
        self.program, self.known, self.magnitudes = [], {}, []
        self.mean = tuple(int(np.rint(255 * m)) for m in preprocessing.mean)

    def build(self) -> IntegerNetwork:
        """The network; InputError, with the module's name, for what integers cannot do."""
        for node in self.graph.graph.nodes:
            if node.op == 'placeholder':
                low, high = -max(self.mean), 255 - min(self.mean)
                self.known[node] = self._emit(Op('input', low=low, high=high), _IMAGE)
            elif node.op == 'call_function' and node.target is not operator.getitem:
                # the first output of a batch norm stands for it
                self._visit(node)
            elif node.op == 'output':
                last = self._value(node.args[0][0])
                if last.position != len(self.program) - 1:
                    raise InputError('the features of this network are not what it computes last')
        return IntegerNetwork(self.program, self.preprocessing.input_size, self.mean)

    def _visit(self, node) -> None:
        name = getattr(node.target, '__name__', str(node.target)).split('.')[0]
        name = {'_native_batch_norm_legit_no_training': 'batch_norm'}.get(name, name)
        method = getattr(self, f'_on_{name}', None)
        if method is None:
            raise _unsupported(node, f'its operation {name}', 'convolutions, batch norms, ReLU, ReLU6 and '
                               'sums can')
        self.known[node] = method(node, *node.args, **node.kwargs)

    def _emit(self, op: Op, unit: float) -> _Value:
        self.program.append(op)
        return _Value(len(self.program) - 1, unit)

    def _waiting(self, node, reader):
        """The sum that waits at a node for what follows it, if `reader` alone reads it; else None."""
        node = _base(node)
        found = self.known.get(node)
        return found if isinstance(found, (_Linear, list)) and _readers(node) == [reader] else None

    def _value(self, node) -> _Value:
        """The value of a node; a sum that waits is rounded as it is, without an activation."""
        node = _base(node)
        if isinstance(self.known[node], (_Linear, list)):
            self.known[node] = self._finish(self.known[node], node)
        return self.known[node]

    def _constant(self, node) -> np.ndarray:
        return self.tensors[node.target].detach().double().numpy()

    def _on_conv2d(self, node, x, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1),
                   groups=1):
        weight = self._constant(weight)
        bias = np.zeros(len(weight)) if bias is None else self._constant(bias)
        options = dict(stride=_pair(stride), padding=_pair(padding), dilation=_pair(dilation), groups=groups)
        source = self._value(x)
        if source.unit == _IMAGE:           # real = (integer + rint(255 mean) - 255 mean) / (255 std)
            mean, std = (np.asarray(v, np.float64) for v in (self.preprocessing.mean, self.preprocessing.std))
            weight = weight / (255 * std)[:, None, None]
            shares = weight * (np.asarray(self.mean) - 255 * mean)[:, None, None]
            bias = bias + [math.fsum(share.ravel()) for share in shares]            # in any order
            source = replace(source, unit=1.0)
        return _Linear(source, weight, bias, options)

    def _on_batch_norm(self, node, x, weight, bias, mean, var, momentum, eps):
        gain = (1 if weight is None else self._constant(weight)) / np.sqrt(self._constant(var) + eps)
        shift = (0 if bias is None else self._constant(bias)) - self._constant(mean) * gain
        waiting = self._waiting(x, node)
        if not isinstance(waiting, _Linear):
            raise _unsupported(node, 'a batch norm', 'right behind a convolution it can')
        return replace(waiting, weight=waiting.weight * gain[:, None, None, None],
                       bias=waiting.bias * gain + shift)

    def _on_hardtanh(self, node, x, low=-1.0, high=1.0):
        waiting = self._waiting(x, node)
        if low != 0 or waiting is None:
            raise _unsupported(node, f'a clamp from {low}', 'from 0, behind a convolution or a sum, it can')
        return self._finish(waiting, node, low=0, cap=float(high))

    _on_clamp = _on_hardtanh

    def _on_relu(self, node, x):
        return self._on_hardtanh(node, x, 0, np.inf)

    def _on_add(self, node, one, other):
        return [self._waiting(operand, node) or self._value(operand) for operand in (one, other)]

    def _on_pad(self, node, x, amounts, mode='constant', fill=0.0):
        if mode != 'constant' or fill not in (0, None) or len(amounts) != 4:
            raise _unsupported(node, 'this padding', 'with zeros it can')
        position, unit = self._value(x).position, self._value(x).unit
        low, high = self.program[position].low, self.program[position].high
        return self._emit(Op('pad', (position,), low, high, dict(amounts=list(amounts))), unit)

    def _on_adaptive_avg_pool2d(self, node, x, size):
        if _pair(size) != [1, 1]:
            raise _unsupported(node, f'adaptive average-pooling to {_pair(size)}', 'to 1 it can')
        return self._pooled(self._value(x))

    def _on_mean(self, node, x, dims, keepdim=False):
        if sorted(d % 4 for d in dims) != [2, 3]:
            raise _unsupported(node, f'a mean over {dims}', 'over a whole map it can')
        return self._pooled(self._value(x))

    def _pooled(self, value: _Value) -> _Value:
        """The sum over the map: the mean but for a factor that unit length takes away."""
        return self._emit(Op('pool', (value.position,)), value.unit)

    def _on_view(self, node, x, *shape):
        value = self._value(x)
        if self.program[value.position].kind == 'pool':
            return value
        raise _unsupported(node, 'to change the shape of maps')

    _on_flatten = _on_reshape = _on__unsafe_view = _on_view

    def _same(self, node, x, *rest, **options):
        return self.known[_base(x)]

    _on_dropout = _on_clone = _on_alias = _on_contiguous = _on_detach = _same

    def _finish(self, waiting, node, low: int = -_LINEAR, cap: float = np.inf) -> _Value:
        """Round a sum to the eight bits, and the sign, of its value; from `low` (ReLU: 0) to `cap`."""
        found = self.scales[node.name] if isinstance(self.scales, dict) else next(self.scales, 0.0)
        magnitude = max(found, 1e-12)
        self.magnitudes.append(magnitude)
        unit = magnitude / (_LINEAR if low == -_LINEAR else 255)
        high = _LINEAR if low == -_LINEAR else int(min(255, np.rint(cap / unit)))
        if isinstance(waiting, _Linear):
            return self._emit_linear(waiting, unit, low, high)
        fine = unit / (1 << SUM_BITS)
        reads = []
        for operand in waiting:
            if isinstance(operand, _Linear):
                operand = self._emit_linear(operand, fine, -BRANCH, BRANCH)
            else:
                factor = np.array([operand.unit / fine], np.float32)
                operand = self._emit(Op('scale', (operand.position,), -BRANCH, BRANCH, {}, factor), fine)
            reads.append(operand.position)
        factor = np.array([1 / (1 << SUM_BITS)], np.float32)
        return self._emit(Op('add', tuple(reads), low, high, {}, factor), unit)

    def _emit_linear(self, linear: _Linear, unit: float, low: int, high: int) -> _Value:
        """A convolution with integer weights, one scale for each output channel, within the exact bound."""
        largest, source = self.program[linear.source.position].largest, linear.source
        if not (np.isfinite(linear.weight).all() and np.isfinite(linear.bias).all() and source.unit > 0):
            raise InputError('a convolution has weights that are not finite, or reads what is no map of '
                             'numbers')
        scale = np.maximum(np.abs(linear.weight).reshape(len(linear.weight), -1).max(axis=1) / 127,
                           np.abs(linear.bias) / source.unit / (EXACT // 4))        # all weights may be zero
        scale = np.where(scale > 0, scale, 1.0)
        while True:
            weight = np.rint(linear.weight / scale[:, None, None, None]).astype(np.int8)
            bias = np.rint(linear.bias / (source.unit * scale)).astype(np.int32)
            over = channel_bound(weight, bias, largest) > EXACT
            if not over.any():
                break
            scale = np.where(over, scale * 1.02, scale)
        factor = (source.unit * scale / unit).astype(np.float32)
        options = linear.options | dict(crop=[0, 0, 0, 0])                  # part of digests
        return self._emit(Op('conv', (source.position,), low, high, options, factor, weight, bias), unit)


def _unsupported(node, what: str, instead: str = '') -> InputError:
    """The error for something that integers cannot do, with the module of the network that does it."""
    stack = list((node.meta.get('nn_module_stack') or {}).values())
    place = (stack[-1][0] if stack else '').removeprefix('net.') or 'the network'
    return InputError(f'{place}: {what} cannot be done in integers{f" ({instead})" if instead else ""}')


def _base(node):
    """The node whose first output this is, or itself."""
    return node.args[0] if node.target is operator.getitem else node


def _readers(node) -> list:
    """The nodes that read a value, also its first output."""
    return [reader for user in node.users
            for reader in (_readers(user) if user.target is operator.getitem else [user])]


def _pair(value) -> list:
    value = list(value) if isinstance(value, (list, tuple)) else [value]
    return value * 2 if len(value) == 1 else value
