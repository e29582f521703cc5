"""Integer networks in torch's 8-bit kernels (`exact_torch.eight_bit`): the same integers.

Programs keep promises (`integer_program`) for which overflow and rounding of the kernels do not
matter; a layer for which they are not enough is run in float32. Each layer is tried at its extremes
first, and compared with float64 the first time that it meets inputs of some shape.
"""

import os

import torch
import torch.nn.functional as F

from exact_torch.eight_bit import Convolution, Unsupported
from scroll.embedding.integer_program import OF_CONV


class EightBits:
    """Runs an `IntegerNetwork` on a CPU: values are uint8, what stands for zero in them is added.

    Unsupported: it cannot be run so, or not exactly on this machine."""

    def __init__(self, network):
        if not torch.backends.mkldnn.enabled or os.environ.get('SCROLL_EIGHT_BIT') == '0':
            raise Unsupported
        self.network = network
        self.zeros = []
        # by position; by position and shape
        self._convolutions = {}
        self._packed = {}
        for position, op in enumerate(network.program):
            self.zeros.append(self._zero_of(op))
            if op.kind == 'conv':
                self._add_convolution(position, op)

    def _zero_of(self, op) -> int | None:
        """The zero of its value, or None where channels of the image have means of their own."""
        if op.kind == 'input':
            return self.network.mean[0] if len(set(self.network.mean)) == 1 else None
        if op.kind in ('pad', 'pool'):
            return self.zeros[op.reads[0]]
        return -op.low

    def _add_convolution(self, position: int, op) -> None:
        """Try a convolution and note it, unless it is left to float32."""
        options = [op.options[name] for name in OF_CONV]
        numbers = op.weight, op.bias, op.multiplier
        layer = Convolution(*numbers, op.low, op.high, *options, ratio=op.ratio)
        zeros = [self.zeros[read] for read in op.reads]
        largest = self.network.program[op.reads[0]].largest
        if None not in zeros and layer.rounds_exactly(largest):
            layer.check_extremes(zeros)
            self._convolutions[position] = layer

    def run(self, position: int, op, inputs: list) -> torch.Tensor:
        """The value of one operation of the program. Unsupported: it is not what float64 gives."""
        x = inputs[0]
        zero = self.zeros[position]
        network = self.network
        if op.kind == 'input':
            return x if zero is None else (x + zero).to(torch.uint8)
        if op.kind == 'pool':
            offset = (zero or 0) * x.shape[2] * x.shape[3]
            return (network.run(position, op, inputs) - offset).float()
        if op.kind == 'pad':
            return F.pad(x, op.options['amounts'], value=zero)
        zeros = [self.zeros[read] for read in op.reads]
        layer = self._convolutions.get(position)
        if layer is None:
            values = [value.float() - (zero or 0) for value, zero in zip(inputs, zeros)]
            return (network.run(position, op, values) + zero).to(torch.uint8)
        if inputs[1:] and (network.last_use[op.reads[1]] != position or op.reads[0] == op.reads[1]):
            inputs[1] = inputs[1].clone()  # the kernel may write into it
        packed = self._packed.get((position, x.shape))
        if packed is not None:
            return layer(inputs, zeros, packed)
        packed = layer.packed(zeros[0], tuple(x.shape))
        ends = [value[[0, -1]].double() - zero for value, zero in zip(inputs, zeros)]
        out = layer(inputs, zeros, packed)
        if not torch.equal(out[[0, -1]].double() - zero, network.exactly(position, op, ends)):
            raise Unsupported
        self._packed[position, x.shape] = packed
        return out
