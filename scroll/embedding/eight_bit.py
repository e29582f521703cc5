"""Integer networks in torch's 8-bit kernels: the same integers in about half of float32's time.

The kernels add products in int32; rounding to 8 bits, a residual sum and ReLU are part of the same
pass. A processor without VNNI adds the products of two channels in 16 bits, and says nothing where
these overflow; and what is rounded is computed in float32. Programs keep promises
(`integer_program`) for which neither matters; a layer for which they are not enough
(`_equal_float32`) is run in float32. A machine has to prove it: each layer is run on the inputs
that drive its outputs to their extremes, and there to ties of rounding, and compared with float64
the first time that it meets inputs of some shape.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from scroll.embedding.integer_program import CUT, EXACT, channel_bound, lowest_bit

_PART = 256  # images at a time


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
        self._in_float32 = set()  # positions
        for position, op in enumerate(network.program):
            if op.kind == 'conv':
                zeros = [self.zero[read] for read in op.reads]
                if None in zeros or not _equal_float32(op, network.program[op.reads[0]].largest):
                    self._in_float32.add(position)
                else:
                    _try_extremes(op, zeros)

    def _zero_of(self, op):
        """What stands for zero in its value; None: channels of the image have means of their own."""
        if op.kind == 'input':
            return self.network.mean[0] if len(set(self.network.mean)) == 1 else None
        if op.kind in ('pad', 'pool'):
            return self.zero[op.reads[0]]
        return -op.low

    def run(self, position: int, op, inputs: list) -> torch.Tensor:
        """The value of one operation of the program. Unfit: it is not what float64 gives."""
        x, zero, network = inputs[0], self.zero[position], self.network
        if op.kind == 'input':
            return x if zero is None else (x + zero).to(torch.uint8)
        if op.kind == 'pool':
            offset = (zero or 0) * x.shape[2] * x.shape[3]
            return (network.run(position, op, inputs) - offset).float()
        if op.kind == 'pad':
            return F.pad(x, op.options['amounts'], value=zero)
        zeros = [self.zero[read] for read in op.reads]
        if position in self._in_float32:
            values = [value.float() - (zero or 0) for value, zero in zip(inputs, zeros)]
            return (network.run(position, op, values) + zero).to(torch.uint8)
        if inputs[1:] and (network.last_use[op.reads[1]] != position or op.reads[0] == op.reads[1]):
            inputs[1] = inputs[1].clone()  # the kernel may write into it
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
        torch.from_numpy(op.weight),
        scales,
        1.0,
        zero,
        options['stride'],
        options['padding'],
        options['dilation'],
        options['groups'],
        shape,
    )
    bias = torch.from_numpy(op.bias.astype(np.float32)) * scales
    return weight, scales, torch.zeros(len(scales), dtype=torch.int64), bias


def _convolved(op, inputs: list, zeros: list, packed: tuple) -> torch.Tensor:
    """uint8 rint(sum * multiplier + other * ratio), plus what stands for zero in it."""
    weight, scales, none, bias = packed
    stride, padding, dilation, groups = (
        op.options[n] for n in ('stride', 'padding', 'dilation', 'groups')
    )
    relu = 'none' if op.low else 'relu'
    kernel, where = torch.ops.onednn.qconv2d_pointwise, (stride, padding, dilation, groups)
    image, value = (inputs[0], 1.0, zeros[0], weight, scales, none), (1.0, -op.low, torch.uint8)
    if len(inputs) == 1:
        return kernel(*image, bias, *where, *value, relu, [], '')
    relu = None if op.low else 'relu'
    return kernel.binary(
        *image,
        inputs[1],
        bias,
        *where,
        *value,
        op.options['ratio'],
        zeros[1],
        'sum',
        1.0,
        relu,
        [],
        '',
    )


def _equal_float32(op, largest: int) -> bool:
    """Whether kernels compute a layer as float32 does, given the promises of its program.

    They may add 128, where a value has a sign, before they round it: it has to be a multiple of
    2^-16, or less than 1/4 and added to a whole number. They may convert sums to float32 before
    what stands for zero is taken from the inputs. They may take neighbours in space for a pair of
    products, where a convolution has one input channel."""
    weight, ratio, groups = op.weight, op.ratio or 1.0, op.options['groups']
    raw = max(_raw(weight > 0, weight).max(), -_raw(weight < 0, weight).min())
    if (
        raw > EXACT
        or op.high - op.low != CUT
        or (groups == 1) == (weight.shape[1] == 1)
        or 1 < groups < len(weight)
    ):
        return False
    factor = op.multiplier.astype(np.float64)
    fine = np.minimum(lowest_bit(factor), ratio) >= 2.0**-16
    quiet = channel_bound(weight, op.bias, largest) * factor <= 1 / 4
    return op.low == 0 or bool((fine | (quiet & (ratio >= 1))).all())


def _raw(large: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The sum for each output, int64 (C,), of largest inputs where `large`, and none elsewhere."""
    return CUT * np.where(large, weight, 0).sum(axis=(1, 2, 3), dtype=np.int64)


def _try_extremes(op, zeros: list) -> None:
    """Unfit unless each output is exact where all of its products are as large as they can be, and
    of one sign. Its bias brings them to a tie, which goes to the even number, so that any other sum
    shows."""
    weight, alone = op.weight, op.options['groups'] > 1
    options = op.options | {'stride': [1, 1], 'padding': [0, 0], 'dilation': [1, 1], 'ratio': 1.0}
    halves = np.full(len(weight), 0.5, np.float32)
    offset = zeros[0] * weight.sum(axis=(1, 2, 3), dtype=np.int64)
    offset -= 2 * sum(CUT - zero for zero in zeros[1:])
    for large, tie, expected in ((weight > 0, 203, 102), (weight < 0, 201, 100)):  # twice the tie
        images = torch.from_numpy(np.where(large, np.uint8(CUT), np.uint8(0)))  # one an output
        bias = tie + offset - _raw(large, weight)
        trial = replace(op, options=options, multiplier=halves, bias=bias)
        parts = images.transpose(0, 1).split(1) if alone else images.split(_PART)
        packed, seen = _packed(trial, zeros[0], parts[0].shape), 0
        for part in parts:
            inputs = [part.contiguous(memory_format=torch.channels_last)]
            if op.reads[1:]:
                other = inputs[0].new_full((len(part), len(weight), 1, 1), CUT)
                inputs.append(other.contiguous(memory_format=torch.channels_last))
            found = _convolved(trial, inputs, zeros, packed)
            own = found[:, :, 0, 0] if alone else found[:, seen : seen + len(part), 0, 0].diagonal()
            seen += len(part)
            if not (own == expected - op.low).all():
                raise Unfit
