"""Grids on which sums are exact in any order, and the sums and products of matrices on them."""

import torch

from exact_torch.replacements import replaces

_BITS = 53  # of a float64


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2^exponent, float64, exact, for whole numbers from -1022 to 1023 (a library's `pow` may not
    be).
    """
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def on_grid(x: torch.Tensor, bits: int, dims) -> torch.Tensor:
    """Round float64 x to multiples of 2^(e - bits), half to even; 2^e is the least power of two
    above the largest magnitude over `dims`."""
    if not x.numel():
        return x
    top = torch.maximum(x.amax(dims, True), x.amin(dims, True).neg_())
    exponent = torch.frexp(top).exponent.clamp_(-900, 900)
    shift = power_of_two(exponent + (_BITS - 1 - bits)) * 1.5  # its last bit is 2^(e - bits)
    return (x + shift).sub_(shift)


def factor_bits(terms: int) -> int:
    """Bits of each of two factors, so that sums of this many products are exact."""
    return (_BITS - (terms - 1).bit_length()) // 2


def window_bits(size) -> int:
    """Bits of numbers of which as many are summed as a window of this size has."""
    return _BITS - 1 - (size[0] * size[-1]).bit_length()


@replaces('sum')
def total(x, dims=None, keepdim=False):
    """The sum over `dims`, default all."""
    if isinstance(dims, int):
        dims = [dims]
    dims = list(dims or range(x.dim()))
    if not dims:
        return x
    terms = 1
    for d in dims:
        terms *= x.shape[d]
    bits = _BITS - max(terms - 1, 1).bit_length() - 1
    return on_grid(x, bits, dims).sum(dims, keepdim)


@replaces('mean')
def mean(x, dims=None, keepdim=False):
    """The mean over `dims`, default all."""
    sums = total(x, dims, keepdim)
    return sums / sums.new_tensor(x.numel() // max(sums.numel(), 1))


@replaces('mm', 'bmm')
def product(one, other):
    """The product of matrices; each row of the first and each column of the second has a grid."""
    bits = factor_bits(one.shape[-1])
    return on_grid(one, bits, -1) @ on_grid(other, bits, -2)


@replaces('addmm', 'baddbmm')
def product_and(bias, one, other, beta=1, alpha=1):
    """bias beta + one other alpha."""
    out = product(one, other)
    return bias * beta + out * alpha if (beta, alpha) != (1, 1) else out.add_(bias)
