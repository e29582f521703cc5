"""Convolutions of 8-bit integers in torch's kernels, about twice as fast as in float32.

The kernels add products in int32; rounding to 8 bits, a residual sum and ReLU are part of the same
pass. A processor without VNNI adds the products of two channels in 16 bits, and says nothing where
these overflow; and what is rounded is computed in float32. Whether neither matters for a layer is
known from its numbers (`Convolution.rounds_exactly`), and a machine has to prove it
(`Convolution.check_extremes`).
"""

from typing import NamedTuple

import numpy as np
import torch

EXACT = 1 << 24  # float32 holds every integer up to here
CUT = 255  # largest value


class Unsupported(Exception):
    """The kernels, or this machine, cannot do the layer."""


class Convolution(NamedTuple):
    """clamp(rint((weight * x + bias) multiplier + other ratio), low, high).

    weight: int8 (C, C_in / groups, h, w). bias: int32 (C,). multiplier: float32 (C,). low: 0 (ReLU)
    or -128. ratio: of the other value, of a residual sum; 0 without one.
    Values are uint8, channels-last; what stands for zero in them is added."""

    weight: np.ndarray
    bias: np.ndarray
    multiplier: np.ndarray
    low: int
    high: int
    stride: list
    padding: list
    dilation: list
    groups: int
    ratio: float = 0.0

    def packed(self, zero: int, shape: tuple) -> tuple[torch.Tensor, ...]:
        """(weights, multipliers, zeros, bias) as the kernels want them, for inputs of a shape in
        which `zero` stands for zero."""
        scales = torch.from_numpy(self.multiplier)
        weight = torch.ops.onednn.qconv_prepack(
            torch.from_numpy(self.weight),
            scales,
            1.0,
            zero,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            shape,
        )
        bias = torch.from_numpy(self.bias.astype(np.float32)) * scales
        return weight, scales, torch.zeros(len(scales), dtype=torch.int64), bias

    def __call__(self, inputs: list, zeros: list, packed: tuple) -> torch.Tensor:
        """The value, uint8 (B, C, H, W), of one input or, with a residual sum, of two, the second
        of which may be written into. zeros: what stands for zero in each."""
        weight, scales, none, bias = packed
        kernel = torch.ops.onednn.qconv2d_pointwise
        image = inputs[0], 1.0, zeros[0], weight, scales, none
        place = self.stride, self.padding, self.dilation, self.groups
        value = 1.0, -self.low, torch.uint8
        if len(inputs) == 1:
            relu = 'none' if self.low else 'relu'
            return kernel(*image, bias, *place, *value, relu, [], '')
        other = self.ratio, zeros[1], 'sum', 1.0, None if self.low else 'relu'
        return kernel.binary(*image, inputs[1], bias, *place, *value, *other, [], '')

    def rounds_exactly(self, largest: int) -> bool:
        """Return whether the kernels compute what float32 does, of inputs up to `largest`.

        They may add 128, where a value has a sign, before they round it: it has to be a multiple of
        2^-16, or less than 1/4 and added to a whole number. They may convert sums to float32 before
        what stands for zero is taken from the inputs. They may take neighbours in space for a pair
        of products, where a convolution has one input channel."""
        weight = self.weight
        groups = self.groups
        ratio = self.ratio or 1.0
        sums = max(self._largest_sum(weight > 0).max(), -self._largest_sum(weight < 0).min())
        if (
            sums > EXACT
            or self.high - self.low != CUT
            or (groups == 1) == (weight.shape[1] == 1)
            or 1 < groups < len(weight)
        ):
            return False
        factor = self.multiplier.astype(np.float64)
        fine = np.minimum(lowest_bit(factor), ratio) >= 2.0**-16
        quiet = channel_bound(weight, self.bias, largest) * factor <= 1 / 4
        return self.low == 0 or bool((fine | (quiet & (ratio >= 1))).all())

    def _largest_sum(self, large: np.ndarray) -> np.ndarray:
        """Each output, int64 (C,), of largest inputs where `large`, and none elsewhere."""
        return CUT * np.where(large, self.weight, 0).sum(axis=(1, 2, 3), dtype=np.int64)

    def check_extremes(self, zeros: list) -> None:
        """Raise Unsupported unless each output is exact where all of its products are as large as
        they can be, and of one sign. Its bias brings them to a tie, which goes to the even number,
        so that any other sum shows."""
        weight = self.weight
        depthwise = self.groups > 1
        offset = zeros[0] * weight.sum(axis=(1, 2, 3), dtype=np.int64)
        offset -= 2 * sum(CUT - zero for zero in zeros[1:])
        halves = np.full(len(weight), 0.5, np.float32)
        for large, twice_the_tie, expected in ((weight > 0, 203, 102), (weight < 0, 201, 100)):
            trial = self._replace(
                stride=[1, 1],
                padding=[0, 0],
                dilation=[1, 1],
                ratio=1.0,
                multiplier=halves,
                bias=twice_the_tie + offset - self._largest_sum(large),
            )
            x = torch.from_numpy(np.where(large, np.uint8(CUT), np.uint8(0)))  # an image an output
            x = x.transpose(0, 1) if depthwise else x
            other = x.new_full((len(x), len(weight), 1, 1), CUT)
            inputs = [
                value.contiguous(memory_format=torch.channels_last)
                for value in (x, other)[: len(zeros)]
            ]
            out = trial(inputs, zeros, trial.packed(zeros[0], tuple(x.shape)))[:, :, 0, 0]
            sums = out[0] if depthwise else out.diagonal()
            if not (sums == expected - self.low).all():
                raise Unsupported


def channel_bound(weight: np.ndarray, bias: np.ndarray, largest: int) -> np.ndarray:
    """sum |q| A + |b|, int64 (C,): what no partial sum of a convolution exceeds."""
    sums = np.abs(weight).sum(axis=(1, 2, 3), dtype=np.float64).astype(np.int64)
    return sums * largest + np.abs(bias.astype(np.int64))


def lowest_bit(factor: np.ndarray) -> np.ndarray:
    """The largest power of two that each float32 number is a multiple of; 0 for 0."""
    mantissa, exponent = np.frexp(factor)
    digits = np.ldexp(mantissa, 24).astype(np.int64)
    return np.ldexp((digits & -digits).astype(np.float64), exponent - 24)
