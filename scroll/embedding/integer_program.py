"""The program of an integer network, and the promises that make it exact, also in 8 bits.

`quantisation` keeps them, and each is checked whenever a network is made, since a file may come
from elsewhere. A program that keeps them has the same features by float32 and by 8-bit kernels, in
any batch and order:

- Values are whole numbers of 8 bits, 0 to at most 255 or -128 to 127; so is the image less its
  mean.
- Weights have at most 7 bits and a sign. Those of input channels 2i and 2i + 1 have magnitudes of
  at most 128 together, so that 16 bits hold the sum of their products with two values.
- sum |q| A + |b| <= 2^24 for each output (A: the largest value): float32 holds every partial sum.
- A multiplier is j 2^e, j odd and of at most 6 bits. Its products with a sum, and with the bias
  alone, are exact wherever the value is not cut anyway, so that they may be computed together, one
  by one, or contracted with what is added to them. j = 1 is always exact.
- The other value of a residual sum is multiplied by a power of two. The sum is rounded once, to
  float32.
- The sum over a map is at most 2^24.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from exact_torch.eight_bit import CUT, EXACT, channel_bound, lowest_bit
from scroll.ground.arguments import one_of, whole
from scroll.ground.errors import InputError

SIGNED = 127  # largest value where no ReLU has cut; `CUT` where one has
PAIR = 128  # of two neighbouring channels' weights
MANTISSA = 6  # most bits of a multiplier
_LARGE = 2.0**64  # no product with a multiplier of this size, or less, overflows
_LONGEST = 1 << 16  # of pixels, strides, paddings
_MAP = 1 << 28  # values of a map of an image
_RATIOS = {2.0**power for power in range(-24, 25)}
_READS = {'input': (0,), 'conv': (1, 2), 'pad': (1,), 'pool': (1,)}  # how many values
_STEPS = {'stride': 1, 'padding': 0, 'dilation': 1}  # the least of each
OF_CONV = *_STEPS, 'groups'
ARRAYS = {'weight': '|i1', 'bias': '<i4', 'multiplier': '<f4'}


@dataclass(frozen=True)
class Op:
    """One operation, whose value later ones read by its position in the program.

    Attributes:
        kind: `input`: the resized image, 8 bits, less `mean`. `conv`: sum, times `multiplier`,
            plus, where it reads two values, the second times the power of two `ratio`. `pad`: with
            zeros. `pool`: sum over the map.
        reads: positions of the values it reads.
        low, high: the range that its value is clamped to, after rint.
        options: of a convolution (stride, padding, dilation, groups, ratio) or padding (amounts).
        multiplier: float32 (C,) or (1,).
        weight: int8 (C, C / groups, h, w). bias: int32 (C,). Of convolutions."""

    kind: str
    reads: tuple = ()
    low: int = 0
    high: int = 255
    options: dict = field(default_factory=dict)
    multiplier: np.ndarray = None
    weight: np.ndarray = None
    bias: np.ndarray = None

    @property
    def largest(self) -> int:
        """A: the largest magnitude of its value."""
        return max(-self.low, self.high)

    @property
    def ratio(self) -> float:
        """The power of two that a second value is multiplied by; 0 without one."""
        return self.options['ratio'] if self.reads[1:] else 0.0


def check_program(program: list[Op], input_size: int, mean: tuple) -> list[tuple[int, ...]]:
    """The shape of each value: (C, H, W), of a sum over a map (C,). InputError, with the layer and
    what is expected of it, unless each promise is kept. Kernels check none: a stride of 0 would end
    the process."""
    whole('the input size of an integer network', input_size, 1, _LONGEST)
    for value in mean:
        whole('a mean of an integer network', value, 0, CUT)
    kinds = [op.kind for op in program]
    reads = [read for op in program for read in op.reads]
    ends = {kind for position, kind in enumerate(kinds) if position not in reads}
    _expect(
        len(mean) == 3 and kinds[:1] == ['input'] and 'input' not in kinds[1:] and ends == {'pool'},
        'an integer network',
        'three means, an input, which comes first, and sums over all maps that nothing reads',
    )
    shapes = []
    for position, op in enumerate(program):
        layer = f'layer {position} of the integer network'
        one_of(layer, op.kind, _READS)
        for read in op.reads:
            whole(f'{layer}: the position of what it reads', read, 0, position - 1)
        inputs = [shapes[read] for read in op.reads]
        maps = all(len(shape) == 3 for shape in inputs)
        _expect(maps and len(inputs) in _READS[op.kind], layer, 'one map, or two to add')
        source = program[op.reads[0]] if inputs else op
        _check_range(layer, op, source, mean)
        shape = _shape(layer, op, inputs[0] if inputs else (3, input_size, input_size))
        _expect(
            min(shape) >= 1 and math.prod(shape) <= _MAP and inputs[1:] in ([], [shape]),
            layer,
            'up to 2^28 values, and, to add two, the same shape',
        )
        if op.kind == 'pool':
            most = source.largest * math.prod(inputs[0][1:])
            _expect(most <= EXACT, layer, 'sums over its maps of up to 2^24')
        if op.kind == 'conv':
            _check_sums(layer, op, source.largest)
        shapes.append(shape)
    return shapes


def _expect(is_kept: bool | np.bool_, layer: str, promise: str) -> None:
    """Raise InputError unless a promise is kept."""
    if not is_kept:
        raise InputError(f'{layer}: expected {promise}')


def _check_range(layer: str, op: Op, source: Op, mean: tuple) -> None:
    """Raise InputError unless an operation's values are in their range."""
    least = f'{layer}: the least of its values'
    largest = f'{layer}: the largest of its values'
    if op.kind == 'input':
        whole(least, op.low, -CUT, -max(mean))
        whole(largest, op.high, CUT - min(mean), CUT)
    elif op.kind == 'pad':
        same = (op.low, op.high) == (source.low, source.high)
        _expect(same, layer, 'the range of what it reads')
    else:
        whole(least, op.low, SIGNED - CUT, 0)
        _expect(op.low in (0, SIGNED - CUT), layer, 'values from 0 or from -128')
        whole(largest, op.high, 0, CUT + op.low)


def _shape(layer: str, op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an operation's value, by that of the first that it reads. InputError: its
    options or arrays have other types or shapes."""
    if op.kind == 'input':
        return shape
    channels, height, width = shape
    if op.kind == 'pool':
        return (channels,)
    if op.kind == 'pad':
        for amount in op.options['amounts']:
            whole(f'{layer}: an amount', amount, -_LONGEST, _LONGEST)
        left, right, top, bottom = op.options['amounts']
        return channels, height + top + bottom, width + left + right
    _check_arrays(layer, op, channels)
    steps = [op.options[name] for name in _STEPS]
    sizes = zip((height, width), op.weight.shape[2:], *steps, strict=True)
    return len(op.bias), *(
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in sizes
    )


def _check_arrays(layer: str, op: Op, channels: int) -> None:
    """Raise InputError unless options and arrays of a convolution have their types and shapes."""
    for name, least in _STEPS.items():
        for size in op.options[name]:
            whole(f'{layer}: its {name}', size, least, _LONGEST)
    groups = op.options['groups']
    whole(f'{layer}: its number of groups', groups, 1, channels)
    outputs, inputs, *kernel = op.weight.shape
    arrays = [(array.dtype, array.shape) for array in (op.bias, op.multiplier)]
    _expect(
        len(kernel) == 2
        and op.weight.size > 0
        and op.weight.dtype == np.int8
        and outputs % groups == 0
        and inputs == channels / groups
        and arrays[0] == (np.int32, (outputs,))
        and arrays[1] in ((np.float32, (1,)), (np.float32, (outputs,)))
        and np.isfinite(op.multiplier).all(),
        layer,
        f'weights int8, biases int32 and multipliers float32, finite, for {channels} channels in '
        f'{groups} groups',
    )


def _check_sums(layer: str, op: Op, largest: int) -> None:
    """Raise InputError unless a convolution is exact, also in 8 bits."""
    power = not op.reads[1:] or (isinstance(op.ratio, float) and op.ratio in _RATIOS)
    _expect(power, layer, 'a ratio that is a power of two, 2^-24 to 2^24')
    weight = op.weight.astype(np.int16)  # which holds the magnitude of -128
    factor = op.multiplier.astype(np.float64)
    lowest = lowest_bit(factor)
    odd = factor / np.where(lowest > 0, lowest, 1.0)
    bound = channel_bound(weight, op.bias, largest)
    reach = reach_of(bound, op.bias, factor, op.ratio)
    for kept, promise in (
        (bound <= EXACT, 'sums of up to 2^24, which float32 holds'),
        (peak(weight) <= SIGNED, 'weights of up to 127'),
        (pairs(weight) <= PAIR, 'weights of two neighbouring channels of up to 128 together'),
        ((factor >= 0) & (factor <= _LARGE), 'multipliers from 0 to 2^64'),
        (odd < 1 << MANTISSA, f'multipliers of up to {MANTISSA} bits'),
        ((odd <= 1) | (reach * odd <= EXACT), 'products with multipliers that float32 holds'),
    ):
        _expect(kept.all(), layer, promise)


def peak(weight: np.ndarray) -> np.ndarray:
    """Largest magnitude for each output, (C,)."""
    return np.abs(weight).reshape(len(weight), -1).max(axis=1)


def pairs(weight: np.ndarray) -> np.ndarray:
    """Largest sum of the magnitudes at input channels 2i and 2i + 1 for each output, (C,)."""
    if weight.shape[1] == 1:
        return np.zeros(len(weight))
    magnitudes = np.abs(weight)
    return peak(magnitudes[:, :-1:2] + magnitudes[:, 1::2])


def reach_of(bound: np.ndarray, bias: np.ndarray, factor: np.ndarray, ratio: float) -> np.ndarray:
    """The largest sum, without its bias, whose product with the multiplier has to be exact: for
    larger ones the value is cut, even if 255 times `ratio` is added to it."""
    cut = (512 + CUT * ratio) / np.maximum(factor, 1 / _LARGE**2)
    return np.minimum(bound, cut) + np.abs(bias)
