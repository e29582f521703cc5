"""Integer networks in torch's 8-bit kernels: the same integers, in about half of the time of float32.

The kernels add products in int32; rounding to 8 bits, a residual sum and ReLU are part of the same pass. A
processor without VNNI adds the products of two channels in 16 bits, and says nothing where these overflow;
and what is rounded is computed in float32. `quantisation` makes networks to which neither matters. A machine
has to prove it: each layer is run on the inputs that drive its outputs to their extremes, and compared with
float64 the first time that it meets inputs of some shape.
"""
import numpy as np
import torch
import torch.nn.functional as F

_SIGNED = 128                       # stands for zero where a value has a sign
_PART = 256                         # images at a time


class Unfit(Exception):
    """These kernels, or this machine, cannot do the network."""


class EightBits:
    """Runs an `IntegerNetwork` on a CPU: values are uint8, what stands for zero in them is added.

    Unfit: it cannot be run so, or not exactly on this machine."""

    def __init__(self, network):
        if not torch.backends.mkldnn.enabled:
            raise Unfit
        self.network, self.zero, self._packed = network, [], {}
        for op in network.program:
            self.zero.append(self._zero_of(op))
        for op in network.program:
            if op.kind == 'conv' and self.zero[op.reads[0]] is not None:
                _try_extremes(op, self.zero[op.reads[0]])

    def _zero_of(self, op):
        """What stands for zero in its value; None: channels of the image have means of their own."""
        if op.kind == 'input':
            return self.network.mean[0] if len(set(self.network.mean)) == 1 else None
        if op.kind in ('pad', 'pool'):
            return self.zero[op.reads[0]]
        if op.kind != 'conv' or (op.low, op.high) not in ((0, 255), (-_SIGNED, 255 - _SIGNED)) \
                or op.options['groups'] not in (1, len(op.bias)):
            raise Unfit
        return -op.low

    def sums(self, x: torch.Tensor) -> list:
        """The network's outputs. Unfit: a layer gives other numbers than float64."""
        values, network = [], self.network
        for position, op in enumerate(network.program):
            values.append(self._run(position, op, [values[read] for read in op.reads] or [x]))
            for read in op.reads:
                if network.last_use[read] == position:
                    values[read] = None
        return [values[position] for position in network.outputs]

    def _run(self, position: int, op, inputs: list) -> torch.Tensor:
        x, zero, network = inputs[0], self.zero[position], self.network
        if op.kind == 'input':
            return x if zero is None else (x + zero).to(torch.uint8)
        if op.kind == 'pool':
            return (network.run(position, op, inputs) - zero * x.shape[2] * x.shape[3]).float()
        if op.kind == 'pad':
            return F.pad(x, op.options['amounts'], value=zero)
        zeros = [self.zero[read] for read in op.reads]
        if None in zeros:
            return (network.run(position, op, inputs) + zero).to(torch.uint8)
        if inputs[1:] and (network.last_use[op.reads[1]] != position or op.reads[0] == op.reads[1]):
            inputs[1] = inputs[1].clone()                   # the kernel may write into it
        if (position, x.shape) in self._packed:
            return _convolved(op, inputs, zeros, self._packed[position, x.shape])
        packed = _packed(op, zeros[0], x.shape)
        ends = [value[[0, -1]].double() - zero for value, zero in zip(inputs, zeros)]
        out = _convolved(op, inputs, zeros, packed)
        if not torch.equal(out[[0, -1]].double() - zero, network.exactly(position, op, ends)):
            raise Unfit
        self._packed[position, x.shape] = packed
        return out


def _packed(op, zero: int, shape: tuple) -> tuple:
    """(weights, multipliers, zeros, bias) as the kernels want them."""
    scales, options = torch.from_numpy(op.multiplier), op.options
    weight = torch.ops.onednn.qconv_prepack(
        torch.from_numpy(op.weight), scales, 1.0, zero, options['stride'], options['padding'],
        options['dilation'], options['groups'], shape)
    bias = torch.from_numpy(op.bias.astype(np.float32)) * scales
    return weight, scales, torch.zeros(len(scales), dtype=torch.int64), bias


def _convolved(op, inputs: list, zeros: list, packed: tuple) -> torch.Tensor:
    """uint8 rint(sum * multiplier + other * ratio), plus what stands for zero in it."""
    weight, scales, none, bias = packed
    stride, padding, dilation, groups = (op.options[n] for n in ('stride', 'padding', 'dilation', 'groups'))
    relu = 'none' if op.low else 'relu'
    kernel, where = torch.ops.onednn.qconv2d_pointwise, (stride, padding, dilation, groups)
    image, value = (inputs[0], 1.0, zeros[0], weight, scales, none), (1.0, -op.low, torch.uint8)
    if len(inputs) == 1:
        return kernel(*image, bias, *where, *value, relu, [], '')
    relu = None if op.low else 'relu'
    return kernel.binary(*image, inputs[1], bias, *where, *value, op.options['ratio'], zeros[1], 'sum', 1.0,
                         relu, [], '')


def _try_extremes(op, zero: int) -> None:
    """Unfit unless each output is exact where all of its products are as large as they can be, and of one
    sign. Its bias is minus what it then should be, so that any other sum shows."""
    weight, alone = op.weight.astype(np.int64), op.options['groups'] > 1
    options = op.options | dict(stride=[1, 1], padding=[0, 0], dilation=[1, 1])
    for sign in (1, -1):
        images = np.where(weight * sign > 0, 255, 0)                        # each made for one output
        wanted = ((images - zero) * weight).sum(axis=(1, 2, 3))
        trial = type(op)('conv', low=-_SIGNED, options=options, multiplier=np.ones(len(weight), np.float32),
                         weight=op.weight, bias=-wanted)
        images = torch.from_numpy(images.astype(np.uint8))
        parts = images.transpose(0, 1).split(1) if alone else images.split(_PART)
        packed, seen = _packed(trial, zero, parts[0].shape), 0
        for part in parts:
            found = _convolved(trial, [part.contiguous(memory_format=torch.channels_last)], [zero], packed)
            own = found[:, :, 0, 0] if alone else found[:, seen:seen + len(part), 0, 0].diagonal()
            seen += len(part)
            if not (own == _SIGNED).all():
                raise Unfit
