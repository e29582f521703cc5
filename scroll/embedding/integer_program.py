"""The program of an integer network, plain data, and the bounds that make it exact.

For each output channel of a convolution sum |q| A + |b| <= 2^24 (q: the weights, A: the largest activation,
b: the bias), so that float32 holds every partial sum, in whatever order it is made.
"""
from dataclasses import dataclass, field

import numpy as np

from scroll.errors import InputError

EXACT = 1 << 24                     # float32 holds every integer up to here
SUM_BITS = 6                        # both branches of a residual sum come in units of 1/64 of the sum's own
BRANCH = 1 << 22                    # largest magnitude of a branch in those
_READS = dict(input=0, conv=1, scale=1, add=2, pad=1, pool=1)


@dataclass(frozen=True)
class Op:
    """One operation, whose value later ones read by its position in the program.

    Attributes:
        kind: `input`: the resized image, 8 bits, less `mean`. `conv`: sum, times `multiplier`. `scale`: times
            `multiplier`. `add`: of two values in units of 1/64. `pad`: with zeros. `pool`: sum over the map.
        reads: positions of the values it reads.
        low, high: the range that its value is clamped to, after rint.
        options: of a convolution (stride, padding, dilation, groups) or padding (amounts).
        multiplier: float32 (C,) or (1,).
        weight: int8 (C, C / groups, h, w). bias: int32 (C,). Of convolutions.
    """
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


def check_program(program: list, input_size: int) -> tuple:
    """The shape of the last value; InputError unless every value exists and is exact by its bound."""
    if not program or program[0].kind != 'input' or any(op.kind == 'input' for op in program[1:]):
        raise InputError('an integer network begins with its one input')
    if not (isinstance(input_size, int) and 1 <= input_size <= 4096):
        raise InputError(f'an integer network of input size {input_size!r}: expected 1 to 4096 pixels')
    shapes = []
    for position, op in enumerate(program):
        try:
            if _READS.get(op.kind) != len(op.reads) or not all(0 <= read < position for read in op.reads):
                raise InputError(f'it reads {op.reads}')
            if not -BRANCH <= op.low <= 0 <= op.high <= BRANCH:
                raise InputError(f'its values go from {op.low} to {op.high}')
            largest = sum(program[i].largest for i in op.reads)
            shapes.append(_shape(op, [shapes[i] for i in op.reads] or [(3, input_size, input_size)]))
            _check_factor(op.multiplier, shapes[-1][0])
            if op.kind == 'conv':
                _check_conv(op, shapes[op.reads[0]][0], largest)
            if op.kind == 'pool' and largest * int(np.prod(shapes[op.reads[0]][1:])) > EXACT:
                raise InputError('a sum over its map may exceed 2^24')
        except InputError as error:
            raise InputError(f'layer {position} of the integer network ({op.kind}): {error}') from error
    return shapes[-1]


def _shape(op: Op, read: list) -> tuple:
    """(C, H, W) of a value, (d,) of features."""
    if len(read[0]) != 3 or (op.kind == 'add' and read[0] != read[1]):
        raise InputError(f'it reads values of shapes {read}')
    channels, *sides = read[0]
    if op.kind == 'pool':
        return (channels,)
    if op.kind == 'pad':
        left, right, top, bottom = op.options['amounts']
        sides = [sides[0] + top + bottom, sides[1] + left + right]
    elif op.kind == 'conv':
        options, kernel = op.options, op.weight.shape[2:]
        sides = [(side + 2 * options['padding'][i] - options['dilation'][i] * (kernel[i] - 1) - 1)
                 // options['stride'][i] + 1 for i, side in enumerate(sides)]
        channels = len(op.weight)
    if min(sides) < 1:
        raise InputError(f'nothing is left of maps of shape {read[0]}')
    return (channels, *sides)


def _check_factor(value, channels: int) -> None:
    if value is not None and not (value.dtype == np.float32 and value.shape in ((1,), (channels,))
                                  and ((value >= 0) & (value < np.inf)).all()):
        raise InputError(f'its multiplier is no float32 of at least 0 for each of {channels} channels')


def _check_conv(op: Op, channels: int, largest: int) -> None:
    """Types and shapes, and sum |q| A + |b| <= 2^24 for each output channel."""
    groups = op.options['groups']
    if op.weight.dtype != np.int8 or op.weight.ndim != 4 or op.weight.shape[1] * groups != channels \
            or len(op.weight) % groups or op.bias.dtype != np.int32 or op.bias.shape != op.weight.shape[:1]:
        raise InputError(f'weights or biases do not go with {channels} channels in {groups} groups')
    bound = channel_bound(op.weight, op.bias, largest)
    if bound.max() > EXACT:
        raise InputError(f'a sum of channel {int(bound.argmax())} may reach {int(bound.max())}, more than '
                         f'the 2^24 = {EXACT} up to which float32 holds every integer')


def channel_bound(weight: np.ndarray, bias: np.ndarray, largest: int) -> np.ndarray:
    """sum |q| A + |b|, int64 (C,): what no partial sum of a convolution exceeds."""
    return np.abs(weight.astype(np.int64)).sum(axis=(1, 2, 3)) * largest + np.abs(bias.astype(np.int64))
