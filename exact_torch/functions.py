"""Functions of each number: calls of IEEE 754 in the place of one of torch, and polynomials."""

from itertools import accumulate
from math import factorial, pi

import numpy as np
import torch

from exact_torch.grids import power_of_two, total
from exact_torch.replacements import REPLACEMENTS, NotExact, replaces

BLOCK = 1 << 15  # numbers at a time, in the processor's cache
_LN2 = 0.6931471805599453
_FAR = 700.0 / _LN2  # in binary orders of magnitude
_EXP_TERMS = list(accumulate(range(1, 7), lambda term, k: term * (_LN2 / 4) / k, initial=1.0))


@replaces('sqrt')
def sqrt(x):
    """Square roots, correctly rounded."""
    if x.is_cuda:
        return x.sqrt()
    # NumPy's: of MKL's, which torch calls, one in 70 has another last bit, and not the same ones
    # on all processors
    with np.errstate(invalid='ignore'):
        return torch.from_numpy(np.asarray(np.sqrt(x.detach().numpy())))


@replaces('rsqrt')
def rsqrt(x):
    """1 / sqrt(x)."""
    return torch.ones_like(x) / sqrt(x)


@replaces('linalg_vector_norm')
def _norm(x, order=2, dims=None, keepdim=False):
    if order != 2:
        raise NotExact(f'a norm of order {order} is not known to be exact')
    return sqrt(total(x * x, dims, keepdim))


@replaces('div')
def _div(one, other, rounding_mode=None):
    # CUDA would multiply by the inverse of a number
    if one.is_floating_point() and not (isinstance(other, torch.Tensor) and other.dim()):
        other = torch.full_like(one, float(other))
    return torch.div(one, other, rounding_mode=rounding_mode)


@replaces('pow')
def _pow(x, power):
    if not isinstance(power, torch.Tensor):
        if power == 0.5:
            return sqrt(x)
        if power == -0.5:
            return rsqrt(x)
        if power in (1, 2, 3):
            return x.clone() if power == 1 else x * x if power == 2 else x * x * x
    raise NotExact('a power other than -1/2, 1/2, 1, 2, 3 is not known to be exact')


@replaces('hardsigmoid')
def _hardsigmoid(x):
    return _div((x + 3).clamp_(0, 6), 6)


def _times(x, factor):
    return x if factor == 1 else x * factor


REPLACEMENTS.update(
    add=lambda one, other, alpha=1: one + _times(other, alpha),
    sub=lambda one, other, alpha=1: one - _times(other, alpha),
    rsub=lambda one, other, alpha=1: other - _times(one, alpha),
    addcmul=lambda x, one, other, value=1: x + _times(one * other, value),
    addcdiv=lambda x, one, other, value=1: x + _times(one / other, value),
    lerp=lambda start, end, weight: start + (end - start) * weight,
    reciprocal=lambda x: torch.ones_like(x) / x,
    hardswish=lambda x: x * _hardsigmoid(x),
)


def _in_blocks(function):
    """A function of each number, computed for few at a time: its many passes stay in the cache."""

    def of_all(x, *rest, **options):
        parts = [function(part, *rest, **options) for part in x.reshape(-1).double().split(BLOCK)]
        return torch.cat(parts).view(x.shape).to(x.dtype)

    return of_all


def exp_of(t):
    """e^t to within 2^-38 of its size, for t up to 700; e^-700 for all below."""
    t = (t * (1 / _LN2)).clamp_(-_FAR, _FAR)
    power = t.round()
    rest = t.sub_(power)  # e^t = 2^power (e^(rest ln 2 / 4))^4
    out = rest * _EXP_TERMS[-1]
    for term in _EXP_TERMS[-2:0:-1]:  # Horner's scheme
        out.add_(term).mul_(rest)
    out.add_(1)
    out.mul_(out)
    out.mul_(out)
    return out.mul_(power_of_two(power))


exp = replaces('exp')(_in_blocks(exp_of))


@replaces('log')
@_in_blocks
def log(x):
    """The natural logarithm."""
    share, power = torch.frexp(x)
    small = share < 0.5**0.5
    share = torch.where(small, 2 * share, share)
    power = power - small.int()
    z = (share - 1) / (share + 1)
    square = z * z
    out = torch.zeros_like(z)
    for k in range(21, 0, -2):
        out.mul_(square).add_(1 / k)
    # in float32, as it was when torch's default type chose
    return 2 * z * out + power.float() * _LN2


replaces('sigmoid')(_in_blocks(lambda x: 1 / exp_of(-x).add_(1)))
silu = replaces('silu')(_in_blocks(lambda x: x / exp_of(-x).add_(1)))
replaces('tanh')(_in_blocks(lambda x: 1 - 2 / exp_of(2 * x).add_(1)))


@replaces('gelu')
@_in_blocks
def gelu(x, approximate='none'):
    if approximate == 'tanh':
        inner = (x * x * x * 0.044715 + x) * 0.7978845608028654
        return x * (1 - 1 / exp_of(2 * inner).add_(1))
    # Abramowitz, Stegun 1964, 7.1.26: to 1.5e-7
    t = 1 / ((x * 0.5**0.5).abs_().mul_(0.3275911).add_(1))
    tail = t * 1.061405429
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail.add_(factor).mul_(t)
    tail.mul_(exp_of(x * x * -0.5)).mul_(0.5)  # the share beyond |x|
    return x * torch.where(x < 0, tail, 1 - tail)


def _cos_of(x):
    turns = x * (0.5 / pi)
    angle = (turns - turns.round()) * (2 * pi)
    square = angle * angle
    out = torch.zeros_like(angle)
    for k in range(24, -1, -2):
        out.mul_(square).add_((-1) ** (k // 2) / factorial(k))
    return out


replaces('cos')(_in_blocks(_cos_of))
replaces('sin')(_in_blocks(lambda x: _cos_of(x - pi / 2)))
