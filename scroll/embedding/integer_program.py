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

from scroll.ground.arguments import one_of, whole
from scroll.ground.errors import InputError

EXACT = 1 << 24  # float32 holds every integer up to here
SIGNED, CUT = 127, 255  # largest value where no ReLU has cut, and where one has
PAIR = 128  # of two neighbouring channels' weights
MANTISSA = 6  # most bits of a multiplier
_LARGE = 2.0**64  # no product with a multiplier of this size, or less, overflows
_LONGEST = 1 << 16  # of pixels, strides, paddings
_MAP = 1 << 28  # values of a map of an image
_RATIOS = {2.0**power for power in range(-24, 25)}
_READS = {'input': (0,), 'conv': (1, 2), 'pad': (1,), 'pool': (1,)}  # how many values
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


def check_program(program: list, input_size: int, mean: tuple) -> list:
    """The shape of each value: (C, H, W), of a sum over a map (C,). InputError, with the layer,
    what it has and what is expected, unless each promise is kept. Kernels check none: a stride of 0
    would end the process."""
    whole('the input size of an integer network', input_size, 1, _LONGEST)
    for value in mean:
        whole('a mean of an integer network', value, 0, CUT)
    kinds, shapes = [op.kind for op in program], []
    unread = set(range(len(program))).difference(*[op.reads for op in program])
    _expect(
        len(mean) == 3
        and kinds[:1] == ['input']
        and 'input' not in kinds[1:]
        and {kinds[position] for position in unread} == {'pool'},
        'an integer network',
        f'its layers are {", ".join(kinds)}',
        'three means, an input, which comes first, and sums over all maps that nothing reads',
    )
    for position, op in enumerate(program):
        one_of(f'layer {position} of the integer network', op.kind, _READS)
        layer = f'layer {position} of the integer network ({op.kind})'
        _expect(
            len(op.reads) in _READS[op.kind],
            layer,
            f'it reads {len(op.reads)} values',
            ' or '.join(map(str, _READS[op.kind])),
        )
        for read in op.reads:
            whole(f'{layer}: the position of what it reads', read, 0, position - 1)
            _expect(kinds[read] != 'pool', layer, f'it reads the sum {read}', 'a map')
        source = program[op.reads[0]] if position else op
        _check_range(layer, op, source, mean)
        shape = _shape(layer, op, shapes[op.reads[0]] if position else (3, input_size, input_size))
        _expect(
            min(shape) >= 1 and math.prod(shape) <= _MAP,
            layer,
            f'it makes {shape} values',
            'up to 2^28',
        )
        for read in op.reads[1:]:
            _expect(
                shapes[read] == shape, layer, f'it adds {shapes[read]} to {shape}', 'the same shape'
            )
        if op.kind == 'pool':
            most = source.largest * math.prod(shapes[op.reads[0]][1:])
            _expect(most <= EXACT, layer, f'a sum over its map may reach {most}', 'up to 2^24')
        if op.kind == 'conv':
            _check_sums(layer, op, source.largest)
        shapes.append(shape)
    return shapes


def _expect(kept: bool, layer: str, given: str, expected: str) -> None:
    if not kept:
        raise InputError(f'{layer}: {given}: expected {expected}')


def _check_range(layer: str, op: Op, source: Op, mean: tuple) -> None:
    """InputError unless an operation's values are in their range."""
    whole(f'{layer}: the least of its values', op.low, -CUT, 0)
    whole(f'{layer}: the largest of its values', op.high, 0, CUT)
    kept = op.low in (0, SIGNED - CUT) and op.high <= CUT + op.low
    expected = '-128 to at most 127, or 0 to at most 255'
    if op.kind == 'input':
        kept = op.low <= -max(mean) and CUT - min(mean) <= op.high
        expected = f'{-max(mean)} to {CUT - min(mean)}'
    elif op.kind == 'pad':
        kept, expected = (op.low, op.high) == (source.low, source.high), 'those of what it reads'
    _expect(kept, layer, f'its values go from {op.low} to {op.high}', expected)


def _shape(layer: str, op: Op, shape: tuple) -> tuple:
    """The shape of an operation's value, by that of the first that it reads. InputError: its
    options or arrays have other types or shapes."""
    channels, height, width = shape
    if op.kind == 'pool':
        return (channels,)
    if op.kind == 'pad':
        for amount in op.options['amounts']:
            whole(f'{layer}: an amount', amount, -_LONGEST, _LONGEST)
        left, right, top, bottom = op.options['amounts']
        return channels, height + top + bottom, width + left + right
    if op.kind == 'input':
        return shape
    for name, least in {'stride': 1, 'padding': 0, 'dilation': 1}.items():
        whole(f'{layer}: the length of its {name}', len(op.options[name]), 2, 2)
        for size in op.options[name]:
            whole(f'{layer}: its {name}', size, least, _LONGEST)
    groups = op.options['groups']
    whole(f'{layer}: its number of groups', groups, 1, channels)
    given = op.weight.dtype, op.weight.shape, op.bias.dtype, op.bias.shape
    _expect(
        op.weight.ndim == 4
        and op.weight.size
        and not len(op.weight) % groups
        and given
        == (
            np.int8,
            (len(op.weight), channels / groups, *op.weight.shape[2:]),
            np.int32,
            op.weight.shape[:1],
        ),
        layer,
        f'its weights and biases are {given}',
        f'int8 and int32, for {channels} channels in {groups} groups',
    )
    given = op.multiplier.dtype, op.multiplier.shape
    _expect(
        given in ((np.float32, (1,)), (np.float32, op.bias.shape))
        and np.isfinite(op.multiplier).all(),
        layer,
        f'its multipliers are {given}',
        f'finite float32, one for each of {len(op.bias)} channels',
    )
    steps = [op.options[name] for name in ('stride', 'padding', 'dilation')]
    sizes = zip((height, width), op.weight.shape[2:], *steps)
    return len(op.bias), *(
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, padding, dilation in sizes
    )


def _check_sums(layer: str, op: Op, largest: int) -> None:
    """InputError, with the channel, unless a convolution is exact, also in 8 bits."""
    _expect(
        not op.reads[1:] or (isinstance(op.ratio, float) and op.ratio in _RATIOS),
        layer,
        f'its ratio is {op.ratio}',
        'a power of two, 2^-24 to 2^24',
    )
    weight = op.weight.astype(np.int16)  # which holds the magnitude of -128
    most, pair, factor = peak(weight), pairs(weight), op.multiplier.astype(np.float64)
    lowest, bound = lowest_bit(factor), channel_bound(weight, op.bias, largest)
    odd = factor / np.where(lowest > 0, lowest, 1.0)
    reach = reach_of(bound, op.bias, factor, op.ratio)
    for wrong, values, words, limit in (
        (bound > EXACT, bound, 'its sum may reach', '2^24, up to which float32 is exact'),
        (most > SIGNED, most, 'its largest weight is', SIGNED),
        (pair > PAIR, pair, 'weights of two neighbouring channels make', PAIR),
        ((factor < 0) | (factor > _LARGE), factor, 'its multiplier is', '2^64, and positive'),
        (odd >= 1 << MANTISSA, factor, 'its multiplier is', f'{MANTISSA} bits of one'),
        (
            (odd > 1) & (reach * odd > EXACT),
            reach,
            'its multiplier is no power of two, its sum',
            f'2^24 / {odd.max():.0f}',
        ),
    ):
        channel = int(wrong.argmax())
        _expect(
            not wrong.any(),
            layer,
            f'channel {channel}: {words} {values[channel]}',
            f'at most {limit}',
        )


def channel_bound(weight: np.ndarray, bias: np.ndarray, largest: int) -> np.ndarray:
    """sum |q| A + |b|, int64 (C,): what no partial sum of a convolution exceeds."""
    sums = np.abs(weight).sum(axis=(1, 2, 3), dtype=np.float64).astype(np.int64)
    return sums * largest + np.abs(bias.astype(np.int64))


def peak(weight: np.ndarray) -> np.ndarray:
    """Largest magnitude for each output, (C,)."""
    return np.abs(weight).reshape(len(weight), -1).max(axis=1)


def pairs(weight: np.ndarray) -> np.ndarray:
    """Largest sum of the magnitudes at input channels 2i and 2i + 1 for each output, (C,)."""
    if weight.shape[1] == 1:
        return np.zeros(len(weight))
    magnitudes = np.abs(weight)
    return peak(magnitudes[:, :-1:2] + magnitudes[:, 1::2])


def lowest_bit(factor: np.ndarray) -> np.ndarray:
    """The largest power of two that each float32 number is a multiple of; 0 for 0."""
    mantissa, exponent = np.frexp(factor)
    digits = np.ldexp(mantissa, 24).astype(np.int64)
    return np.ldexp((digits & -digits).astype(np.float64), exponent - 24)


def reach_of(bound: np.ndarray, bias: np.ndarray, factor: np.ndarray, ratio: float) -> np.ndarray:
    """The largest sum, without its bias, whose product with the multiplier has to be exact: for
    larger ones the value is cut, even if 255 times `ratio` is added to it."""
    cut = (512 + CUT * ratio) / np.maximum(factor, 1 / _LARGE**2)
    return np.minimum(bound, cut) + np.abs(bias)
