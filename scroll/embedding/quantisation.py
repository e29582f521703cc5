"""A float network -> an `IntegerNetwork`, by torch's export.

It may have convolutions, batch norms right behind them, ReLU, ReLU6, sums of a convolution and an
activation or another convolution, and a pooling at the end. Batch norms are folded in float64,
before rounding. Activations are scaled by a high quantile over calibration images, weights by their
largest magnitudes in each output channel, or more where the bound of exact sums asks for it. The
same weights and scales of activations (`scales_of`) give the same network.
"""

import copy
import math
import operator
from functools import partialmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork, rounded_mean
from scroll.embedding.integer_program import (
    CUT,
    EXACT,
    MANTISSA,
    PAIR,
    SIGNED,
    Op,
    channel_bound,
    pairs,
    peak,
    reach_of,
)
from scroll.ground.errors import InputError

_IMAGE = 0.0  # the unit of the image, whose channels have each their own
_QUANTILE = 0.9999
_SAMPLED = 1 << 20  # values of a map that a quantile is taken of
_BATCH = 32  # of calibration: the graph has one batch size


def quantise_network(
    net: nn.Module, preprocessing: Preprocessing, images: np.ndarray
) -> IntegerNetwork:
    """The integer network of `net.features`, (B, 3, S, S) -> (B, d), calibrated on images of the
    data that it was trained on, uint8 (N, H, W, C). InputError: a layer that integers cannot do, by
    name."""
    graph, scales = _calibrated(net, preprocessing, images)
    return _built(graph, _Builder(graph, scales.get, preprocessing).walk(), preprocessing)


def scales_of(net: nn.Module, preprocessing: Preprocessing, images: np.ndarray) -> list[float]:
    """The magnitude of each value that `quantise_network` rounds, in their order, as it takes it
    from these images, to four digits."""
    graph, scales = _calibrated(net, preprocessing, images)
    sketch = _Builder(graph, scales.get, preprocessing).walk()
    return [float(f'{magnitude:.4g}') for magnitude in sketch.magnitudes.values()]


def quantise_with_scales(net: nn.Module, preprocessing: Preprocessing, scales) -> IntegerNetwork:
    """The integer network of `net.features` by recorded scales, the same on every machine.
    InputError: they are of another network, or a layer is one that integers cannot do."""
    graph = _exported(net, preprocessing)
    following = iter(scales)
    sketch = _Builder(graph, lambda _: next(following, 0.0), preprocessing).walk()
    if len(sketch.magnitudes) != len(scales):
        raise InputError(
            f'{len(scales)} scales for a network that rounds {len(sketch.magnitudes)} values: '
            'they are of another one'
        )
    return _built(graph, sketch, preprocessing)


def _exported(net: Any, preprocessing: Preprocessing) -> Any:
    """The graph of `net.features` in torch's operators, in eval mode, for batches of `_BATCH`."""
    rounded_mean(preprocessing)
    example = torch.zeros(_BATCH, 3, preprocessing.input_size, preprocessing.input_size)
    holder: Any = nn.Module()
    holder.net = copy.deepcopy(net).cpu()  # where the example is
    holder.forward = holder.net.features
    program = torch.export.export(holder.eval(), (example,), strict=False)
    return program.run_decompositions({}).module()


class _Watch(torch.fx.Interpreter):
    """Runs a graph and keeps, of each map, a high quantile of the magnitude."""

    def __init__(self, module):
        super().__init__(module)
        self.quantiles = {}

    def run_node(self, n):
        value = super().run_node(n)
        first = value[0] if isinstance(value, (tuple, list)) else value
        is_map = isinstance(first, torch.Tensor) and first.is_floating_point()
        if n.op == 'call_function' and is_map:
            flat = first.abs().reshape(-1)
            flat = flat[:: -(-len(flat) // _SAMPLED)]
            rank = max(1, math.ceil(_QUANTILE * len(flat)))
            self.quantiles.setdefault(n.name, []).append(float(flat.kthvalue(rank).values))
        return value


@torch.no_grad()
def _calibrated(net, preprocessing, images) -> tuple[Any, dict[str, float]]:
    """(graph, magnitude of each of its nodes)."""
    graph = _exported(net, preprocessing)
    watch = _Watch(graph)
    for start in range(0, len(images), _BATCH):
        at = np.arange(start, start + _BATCH) % len(images)
        watch.run(preprocessing(torch.from_numpy(images[at])))
    return graph, {name: float(np.mean(values)) for name, values in watch.quantiles.items()}


def _built(graph, sketch: '_Builder', preprocessing) -> IntegerNetwork:
    """The network, from a first walk. Values that residual sums join have units that are one
    another's times a power of two, so that the sum of two is exact: that of the largest, halved
    while the value has room."""
    wanted = {name: sketch.magnitudes[name] / largest for name, largest in sketch.rounded.items()}
    groups = {name: {name} for name in wanted}
    for one, other in sketch.joined:
        both = groups[one] | groups[other]
        groups |= dict.fromkeys(both, both)
    units = {}
    for name, unit in wanted.items():
        most = max(wanted[other] for other in groups[name])
        units[name] = most / 2.0 ** math.floor(math.log2(most / unit))
    builder = _Builder(graph, sketch.magnitudes.get, preprocessing, units).walk()
    return IntegerNetwork(
        builder.program, preprocessing.input_size, builder.mean, stages=builder.stages()
    )


class _Value(NamedTuple):
    """A node of the float network in the integer one: its position, and reals a unit."""

    position: int
    unit: float


class _Linear(NamedTuple):
    """A convolution whose output is not rounded yet: batch norm and activation may still follow."""

    source: _Value
    weight: np.ndarray  # float64
    bias: np.ndarray
    options: dict


class _Sum(NamedTuple):
    """A sum that is not rounded yet."""

    parts: list[_Value | _Linear]
    nodes: list


class _Builder:
    """Walks the graph once; each node becomes a value, or a convolution or a sum that waits for
    what follows it.

    Args:
        scale_of: node name -> magnitude; asked for the values that are rounded, in order.
        units: node name -> unit of the value that is rounded there; default: by its magnitude.

    Attributes:
        magnitudes: node name -> magnitude, of what has been rounded.
        rounded: node name -> largest integer.
        joined: pairs of names of rounded values, the second a part of the sum that is the first."""

    def __init__(self, graph, scale_of, preprocessing, units: dict | None = None):
        self.graph = graph
        self.preprocessing = preprocessing
        self.scale_of = scale_of
        self.units = units
        self.tensors = dict(graph.named_parameters()) | dict(graph.named_buffers())
        self.program = []
        self.joined = []
        self.magnitudes = {}
        self.rounded = {}
        self._results = {}  # of the nodes so far
        self._names = {}  # position of a value that was rounded -> its name
        self.mean = rounded_mean(preprocessing)

    def walk(self) -> '_Builder':
        """Fill the program; InputError, with the module's name, for what integers cannot do.
        Returns self.
        """
        for node in self.graph.graph.nodes:
            if node.op == 'placeholder':
                low = -max(self.mean)
                high = 255 - min(self.mean)
                self._results[node] = self._emit(Op('input', low=low, high=high), _IMAGE)
            elif node.op == 'call_function' and node.target is not operator.getitem:
                # the first output of a batch norm stands for it
                self._visit(node)
            elif node.op == 'output':
                last = self._value(node.args[0][0])
                if last.position != len(self.program) - 1:
                    raise InputError('the features of this network are not what it computes last')
        return self

    def stages(self) -> list:
        """Positions of the last map of each stage, `layer1`, `layer2`, ..., if there are any."""
        last = {}
        for node in self.graph.graph.nodes:
            stack = [place for place, _ in (node.meta.get('nn_module_stack') or {}).values()]
            name = stack[-1].removeprefix('net.').split('.')[0] if stack else ''
            if name.startswith('layer') and isinstance(self._results.get(node), _Value):
                last[name] = self._results[node].position
        return list(last.values())

    def _visit(self, node) -> None:
        name = getattr(node.target, '__name__', str(node.target)).split('.')[0]
        method = getattr(self, f'_on_{name}', None)
        if method is None:
            raise _unsupported(
                node, f'its operation {name}', 'convolutions, batch norms, ReLU, ReLU6 and sums can'
            )
        try:
            self._results[node] = method(node, *node.args, **node.kwargs)
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise _unsupported(
                node, f'its operation {name} with {node.args} {node.kwargs}'
            ) from error

    def _emit(self, op: Op, unit: float) -> _Value:
        self.program.append(op)
        return _Value(len(self.program) - 1, unit)

    def _waiting(self, node, reader) -> _Linear | _Sum | None:
        """The convolution or sum that waits at a node, if `reader` alone reads it."""
        node = _base(node)
        result = self._results.get(node)
        return None if isinstance(result, _Value) or _readers(node) != [reader] else result

    def _value(self, node) -> _Value:
        """The value of a node; what waits is rounded as it is, without an activation."""
        node = _base(node)
        if not isinstance(self._results[node], _Value):
            self._results[node] = self._finish(self._results[node], node)
        return self._results[node]

    def _constant(self, node) -> np.ndarray:
        return self.tensors[node.target].detach().double().numpy()

    def _on_conv2d(
        self, node, x, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1
    ):
        weight = self._constant(weight)
        bias = np.zeros(len(weight)) if bias is None else self._constant(bias)
        options = {
            'stride': _pair(stride),
            'padding': _pair(padding),
            'dilation': _pair(dilation),
            'groups': groups,
        }
        source = self._value(x)
        if source.unit == _IMAGE:  # real = (integer + rint(255 mean) - 255 mean) / (255 std)
            mean = np.asarray(self.preprocessing.mean, np.float64)
            std = np.asarray(self.preprocessing.std, np.float64)
            weight = weight / (255 * std)[:, None, None]
            shares = weight * (np.asarray(self.mean) - 255 * mean)[:, None, None]
            bias = bias + [math.fsum(share.ravel()) for share in shares]  # in any order
            source = source._replace(unit=1.0)
        return _Linear(source, weight, bias, options)

    def _on_batch_norm(self, node, x, weight, bias, mean, var, momentum, eps):
        deviation = np.sqrt(self._constant(var) + eps)
        gain = (1 if weight is None else self._constant(weight)) / deviation
        shift = (0 if bias is None else self._constant(bias)) - self._constant(mean) * gain
        waiting = self._waiting(x, node)
        if not isinstance(waiting, _Linear):
            raise _unsupported(node, 'a batch norm', 'right behind a convolution it can')
        return waiting._replace(
            weight=waiting.weight * gain[:, None, None, None], bias=waiting.bias * gain + shift
        )

    _on__native_batch_norm_legit_no_training = _on_batch_norm

    def _on_hardtanh(self, node, x, low=-1.0, high=1.0):
        waiting = self._waiting(x, node)
        if low != 0 or waiting is None:
            raise _unsupported(
                node, f'a clamp from {low}', 'from 0, behind a convolution or a sum, it can'
            )
        return self._finish(waiting, node, low=0, cap=float(high))

    def _on_clamp(self, node, x, low: Any = None, high: Any = None):
        return self._on_hardtanh(node, x, low, np.inf if high is None else high)

    _on_relu = partialmethod(_on_clamp, low=0)
    _on_relu6 = partialmethod(_on_clamp, low=0, high=6)

    def _on_add(self, node, one, other):
        parts = []
        for operand in (one, other):
            waiting = self._waiting(operand, node)
            parts.append(waiting if isinstance(waiting, _Linear) else self._value(operand))
        return _Sum(parts, [one, other])

    def _on_pad(self, node, x, amounts, mode='constant', fill=0.0):
        if mode != 'constant' or fill not in (0, None) or len(amounts) != 4:
            raise _unsupported(node, 'this padding', 'with zeros it can')
        position, unit = self._value(x)
        source = self.program[position]
        options = {'amounts': list(amounts)}
        return self._emit(Op('pad', (position,), source.low, source.high, options), unit)

    def _on_adaptive_avg_pool2d(self, node, x, size):
        if _pair(size) != [1, 1]:
            raise _unsupported(node, f'adaptive average-pooling to {_pair(size)}', 'to 1 it can')
        return self._on_mean(node, x, (2, 3))

    def _on_mean(self, node, x, dims, keepdim=False):
        """The sum over the map: the mean but for a factor that unit length takes away."""
        if sorted(d % 4 for d in dims) != [2, 3]:
            raise _unsupported(node, f'a mean over {dims}', 'over a whole map it can')
        position, unit = self._value(x)
        return self._emit(Op('pool', (position,)), unit)

    def _on_view(self, node, x, *shape):
        value = self._value(x)
        if self.program[value.position].kind == 'pool':
            return value
        raise _unsupported(node, 'to change the shape of maps')

    _on_flatten = _on_reshape = _on__unsafe_view = _on_view

    def _same(self, node, x, *rest, **options):
        return self._results[_base(x)]

    _on_dropout = _on_clone = _on_alias = _on_contiguous = _on_detach = _same

    def _finish(self, waiting, node, low: int = -SIGNED - 1, cap: float = np.inf) -> _Value:
        """Round a sum to the eight bits of its value, from `low` (ReLU: 0) to `cap`."""
        self.rounded[node.name] = largest = SIGNED if low else CUT
        magnitude = self._magnitude(node)
        unit = magnitude / largest if self.units is None else self.units[node.name]
        high = largest if low else int(min(largest, np.rint(cap / unit)))
        linear = waiting
        other = None
        if isinstance(waiting, _Sum):
            linear, other = self._parts(waiting, node, unit)
        value = self._emit_linear(linear, unit, low, high, other)
        self._names[value.position] = node.name
        return value

    def _magnitude(self, node) -> float:
        name = _base(node).name
        self.magnitudes[name] = max(self.scale_of(name), 1e-12)
        return self.magnitudes[name]

    def _parts(self, waiting: _Sum, node, unit: float) -> tuple[_Linear, _Value]:
        """(a convolution, a value that is added to it, in `unit` times a power of two) of a sum."""
        linears = [part for part in waiting.parts if isinstance(part, _Linear)]
        if len(linears) == 2:  # the smaller one is rounded by itself
            small = int(linears[1].weight[0].size < linears[0].weight[0].size)
            magnitude = self._magnitude(waiting.nodes[small])
            power = math.ceil(math.log2(magnitude / SIGNED / unit) - 0.1)  # little is cut
            value = self._emit_linear(linears[small], unit * 2.0**power, -SIGNED - 1, SIGNED)
            return linears[1 - small], value
        values = [part for part in waiting.parts if isinstance(part, _Value)]
        name = self._names.get(values[0].position)
        if not linears or name is None:
            raise _unsupported(node, 'this sum', 'of a convolution and an activation it can')
        self.joined.append((node.name, name))
        return linears[0], values[0]

    def _emit_linear(self, linear: _Linear, unit: float, low: int, high: int, other=None) -> _Value:
        """A convolution with integer weights, plus another value."""
        position, source_unit = linear.source
        weights = linear.weight, linear.bias
        if not (all(np.isfinite(array).all() for array in weights) and source_unit > 0):
            raise InputError(
                'a convolution has weights that are not finite, or reads what is no map of numbers'
            )
        reads = (position,)
        options = linear.options
        ratio = 0.0
        if other:
            ratio = other.unit / unit
            reads = (position, other.position)
            options = options | {'ratio': ratio}
        largest = self.program[position].largest
        numbers = _integers(*weights, source_unit / unit, unit, largest, ratio)
        return self._emit(Op('conv', reads, low, high, options, *numbers), unit)


def _integers(
    weight: np.ndarray, bias: np.ndarray, gain: float, unit: float, largest: int, ratio: float
) -> tuple[np.ndarray, ...]:
    """(multiplier, weight, bias) of a convolution in integers.

    Each output channel has a multiplier j 2^e, the smallest that weights and bounds allow. j has as
    many bits, of at most `MANTISSA`, as leave every product with it an integer times 2^e that
    float32 holds, wherever the value is not cut anyway: then no way and no order to compute it
    matters. gain: of a weight in reals, the multiplier that makes it 1."""
    least = np.maximum(peak(weight) / SIGNED, pairs(weight) / PAIR)
    least = np.where(least > 0, least, 1.0) * gain
    least = np.maximum(least, np.abs(bias) / unit / (EXACT // 4))
    bits = np.full(len(least), MANTISSA)
    while True:
        power = np.ldexp(1.0, np.frexp(least)[1] - bits)  # `log2` may be off at powers of two
        factor = np.ceil(least / power) * power
        integers = np.rint(weight * (gain / factor)[:, None, None, None])
        offset = np.rint(bias / (unit * factor))
        bound = channel_bound(integers, offset, largest)
        over = (bound > EXACT) | (peak(integers) > SIGNED) | (pairs(integers) > PAIR)
        reach = reach_of(bound, offset, factor, ratio)
        long = ~over & (bits > 1) & (reach * factor > EXACT * power)
        if not (over | long).any():
            return factor.astype(np.float32), integers.astype(np.int8), offset.astype(np.int32)
        least = np.where(over, least * 1.01, least)
        bits = np.where(long, bits - 1, bits)


def _unsupported(node, what: str, instead: str = '') -> InputError:
    """The error for something that integers cannot do, with the module that does it."""
    stack = list((node.meta.get('nn_module_stack') or {}).values())
    place = (stack[-1][0] if stack else '').removeprefix('net.') or 'the network'
    return InputError(
        f'{place}: {what} cannot be done in integers{f" ({instead})" if instead else ""}'
    )


def _base(node):
    """The node whose first output this is, or itself."""
    return node.args[0] if node.target is operator.getitem else node


def _readers(node) -> list:
    """The nodes that read a value, also its first output."""
    return [
        reader
        for user in node.users
        for reader in (_readers(user) if user.target is operator.getitem else [user])
    ]


def _pair(value) -> list:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    numbers = [operator.index(number) for number in numbers]
    return numbers * 2 if len(numbers) == 1 else numbers
