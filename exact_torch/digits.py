"""Inference in float32: exact as in float64, in half of the time or less.

A factor of a matrix product is rounded to a grid of its own row, and split into two digits of 7
bits, 8 the upper one of a weight. torch's 8-bit kernels add products of digits in int32: high times
high, and the mixed ones; low times low is left out. No sum of digits leaves what float32 holds, and
no pair of products the 16 bits in which processors without VNNI add them: so the kernels cannot but
agree, and float64 gives the same sums on a machine without them. Functions come from tables.

Small products, and those of two activations, are computed in float64, as `exact_torch.grids` does.
"""

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakIdKeyDictionary

from exact_torch.functions import exp, gelu, silu, sqrt
from exact_torch.grids import factor_bits, on_grid, total
from exact_torch.machine import kind_of_machine

DIGITS = 'digits 1'  # changes with the bits
ROWS = 512  # at a time, in the processor's cache
FEW = 32  # terms of a convolution that is done in float32
COLUMNS = 1 << 10  # of a part: no sum of products of digits exceeds 2^24
LEAST = 128  # rows and columns of weights that are split
_LOW = 7  # bits of the lower digit
_MIDDLE = 1 << (_LOW - 1)  # stands for zero in a digit of an activation
_INT32 = 1.5 * 2**23  # float32 numbers around it are whole; their last 16 bits count from it
_LEAST_TOP = 2.0**-100
_STEP = 1 << 11  # of exp, to 1
_ENTRIES = 1 << 15  # of a table


def _kept(make):
    """Decorate a function of a constant: its result is kept as long as the constant is. Writes
    into its `.data` go unnoticed."""
    results = WeakIdKeyDictionary()

    def result_of(tensor, *options):
        key = tensor._version, tensor.data_ptr(), options
        before, result, _ = results.get(tensor, (None, None, None))
        if before != key:
            result = make(tensor, *options)
            # whose storage is kept: another would get its place
            results[tensor] = key, result, tensor.untyped_storage()
        return result

    return result_of


def _scales(x, steps: int, dims=-1):
    """(what x is multiplied with, so that whole numbers up to `steps` stand for it; what these are
    multiplied with to have x again). Each group of numbers over `dims` has its own; the second is
    NaN where x is not finite."""
    top = torch.maximum(x.amax(dims, True), x.amin(dims, True).neg_()).clamp_(min=_LEAST_TOP)
    one = torch.full_like(top, steps)
    return one / top, (top / one).add_(top - top)


class Part(NamedTuple):
    """Some columns of one digit of weights.

    place: of the digits of an activation that they are multiplied with."""

    place: slice
    unit: float
    digits: torch.Tensor  # int8 (N, columns)
    packed: torch.Tensor | None  # as the kernels want them

    def add(self, x: torch.Tensor, sums: torch.Tensor | None):
        """Add the products of digits x, uint8 (R, columns), to sums, float32 (R, N)."""
        if self.packed is None:
            out = (x.double() - _MIDDLE) @ self.digits.double().T
            out = out.float() * self.unit
            return out if sums is None else out.add_(sums)
        scales = torch.ones(len(self.digits), dtype=torch.float32, device='cpu')
        zeros = torch.zeros(len(self.digits), dtype=torch.int64, device='cpu')
        kernel = torch.ops.onednn.qlinear_pointwise
        words = x, self.unit, _MIDDLE, self.packed, scales, zeros
        value = 1.0, 0, torch.float32
        if sums is None:
            return kernel(*words, None, *value, 'none', [], '')
        return kernel.binary(*words, sums, None, *value, 1.0, 0, 'sum', 1.0, 'none', [], '')


@_kept
def _weights(weight: torch.Tensor, kernels: bool) -> tuple[list[Part], torch.Tensor]:
    """(parts, scales float32 (N,)) of weights (N, ...)."""
    weight = weight.flatten(1)
    there, back = _scales(weight, 127 << _LOW)
    whole = (weight * there).round_()
    high = (whole * 2.0**-_LOW).round_()
    low = whole - high * 2**_LOW
    mixed = torch.cat([high, low], 1)  # an activation's digits stand side by side, low and high
    parts = []
    for digits, start, unit in ((mixed, 0, 2.0**-_LOW), (high, weight.shape[1], 1.0)):
        for part in digits.to(torch.int8).split(COLUMNS, 1):
            packed = torch.ops.onednn.qlinear_prepack(part.contiguous(), None) if kernels else None
            parts.append(Part(slice(start, start + part.shape[1]), unit, part, packed))
            start += part.shape[1]  # noqa: PLW2901  of the next part
    return parts, back.flatten() * 2.0 ** (2 * _LOW)


def _product(x: torch.Tensor, weight: torch.Tensor, bias, kernels: bool) -> torch.Tensor:
    """x (R, K) times weight' (K, N), plus bias, float32 (R, N)."""
    parts, scales = _weights(weight, kernels)
    count = x.shape[1]
    out = x.new_empty(len(x), len(scales))
    for rows, place in zip(x.split(ROWS), out.split(ROWS)):
        there, back = _scales(rows, (1 << (2 * _LOW - 1)) - 1)
        whole = (rows * there).add_(_INT32 + (1 << (2 * _LOW - 1)) + _MIDDLE)
        whole = whole.view(torch.int32).to(torch.int16)
        digits = whole.new_empty((len(rows), 2 * count), dtype=torch.uint8)
        digits[:, :count] = whole & (1 << _LOW) - 1
        digits[:, count:] = whole >> _LOW
        sums = None
        for part in parts:
            sums = part.add(digits[:, part.place].contiguous(), sums)
        torch.mul(sums, back, out=place)
        place.mul_(scales)
        if bias is not None:
            place.add_(bias)
    return out


def kernels_agree(device: torch.device) -> bool:
    """Return whether torch's kernels add up products of digits as float64 does, here and now."""
    kind = kind_of_machine(device)
    rounding = 'FPMATH_MODE' in kind or 'conv=' in kind  # of factors, in some shapes
    return device.type == 'cpu' and not rounding and torch.backends.mkldnn.enabled and _prove(kind)


@cache
@torch.inference_mode(False)
def _prove(kind: str) -> bool:
    """Try the largest digits, and random ones. kind: of machine."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(200, 200, generator=random, dtype=torch.float32, device='cpu')
    x[:99] = x[:99].sign()
    try:
        return torch.equal(*(_product(x, x, None, kernels) for kernels in (True, False)))
    except RuntimeError:  # no such kernels
        return False


@_kept
def _channel_weights(weight: torch.Tensor) -> tuple:
    """(upper digits, lower ones, their unit, units of channels) of weights (C, 1, h, w): sums of
    upper and of lower digits are below 2^11."""
    sizes = total(weight.abs().double(), (1, 2, 3), True).float().clamp_(min=_LEAST_TOP)
    low = 12 - weight[0].numel().bit_length()
    steps = torch.full_like(sizes, 1000)
    whole = weight * (steps / sizes)
    high = whole.round()
    return high, ((whole - high) * 2**low).round_(), 2.0**-low, sizes / steps


def _convolved(x, weight, stride, padding, dilation, groups: int, kernels: bool):
    """A convolution of few terms: an activation of 14 bits, and both digits of a weight."""
    high, low, unit, units = _channel_weights(weight)
    there, back = _scales(
        x, (1 << 13) - 1, (2, 3) if groups == len(weight) == x.shape[1] else (1, 2, 3)
    )
    dtype = torch.float32 if kernels else torch.float64
    place = None, stride, padding, dilation, groups
    whole = (x * there).round_().to(dtype)
    sums = F.conv2d(whole, low.to(dtype), *place).mul_(unit).to(torch.float32)
    sums = F.conv2d(whole, high.to(dtype), *place).to(torch.float32).add_(sums)
    return sums.mul_(back * units.view(1, -1, 1, 1))


def _linear(x, weight, bias=None):
    if weight.is_inference() or min(weight.shape) < LEAST:
        return None
    out = _product(x.reshape(-1, x.shape[-1]), weight, bias, kernels_agree(x.device))
    return out.view(*x.shape[:-1], -1)


def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.dim() != 4 or weight.is_inference():
        return None
    kernels = kernels_agree(x.device)
    if weight[0].numel() <= FEW:
        out = _convolved(x, weight, stride, padding, dilation, groups, kernels)
        return out if bias is None else out.add_(bias.view(-1, 1, 1))
    if groups == 1 and min(len(weight), weight[0].numel()) >= LEAST:
        size = weight.shape[2:]
        rows = F.unfold(x, size, dilation, padding, stride).transpose(1, 2)
        out = _product(rows.flatten(0, 1), weight, bias, kernels)
        height = (x.shape[2] + 2 * padding[0] - dilation[0] * (size[0] - 1) - 1) // stride[0] + 1
        return out.view(len(x), height, -1, len(weight)).permute(0, 3, 1, 2)
    return None


@cache
def _shares(function, reach: int, device: torch.device, *options) -> torch.Tensor:
    """f(x) / x, float32, in the middle of each of the steps that -reach to reach is cut into."""
    with torch.inference_mode(False):
        half = _ENTRIES // 2
        x = (torch.arange(-half, half, device=device).double() + 0.5) * (reach / half)
        return (function(x, *options) / x).float()


def _by_shares(function, reach: int):
    """A function of each number x, by a table of its shares of x: near 0 or 1 beyond reach."""
    scale = _ENTRIES // 2 / reach

    def of_all(x, *options, **more):
        table = _shares(function, reach, x.device, *options, *more.values())
        x = x.contiguous()
        out = torch.empty_like(x)
        for part, place in zip(x.view(-1).split(ROWS << 6), out.view(-1).split(ROWS << 6)):
            spots = (part * scale).add_(_ENTRIES // 2).clamp_(0, _ENTRIES - 1)
            spots = spots.int().clamp_(min=0)  # NaN
            torch.index_select(table, 0, spots, out=place)
            place.mul_(part)
        return out

    return of_all


@cache
def _exponentials(device: torch.device) -> torch.Tensor:
    """e^-((_ENTRIES - 1 - i) / _STEP) in units of 2^-20, whole float64 numbers."""
    steps = torch.arange(1 - _ENTRIES, 1, device=device).double()
    return (exp(steps / _STEP) * 2**20).round_()


def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    plain = query.dim() > 2 and query.shape[:-2] == key.shape[:-2]
    if attn_mask is not None or dropout_p or is_causal or not plain:
        return None
    count, width = key.shape[-2:]
    scale = _STEP * (width**-0.5 if scale is None else scale)
    query = on_grid(query.double().mul_(scale), factor_bits(width), -1)
    key = on_grid(key.double(), factor_bits(width), -1).transpose(-1, -2)
    value = on_grid(value.double(), 53 - 21 - count.bit_length(), -2)
    table = _exponentials(query.device)
    parts = []
    size = max(1, (1 << 17) // (query.shape[-2] * count))
    for heads in zip(*(part.flatten(0, -3).split(size) for part in (query, key, value))):
        logits = (heads[0] @ heads[1]).float()
        top = logits.amax(-1, True)
        spots = logits.sub_(top - (_ENTRIES - 1)).clamp_(min=0).int().clamp_(min=0)  # NaN
        powers = torch.index_select(table, 0, spots.view(-1)).view(spots.shape)
        sums = powers.sum(-1, keepdim=True).add_(top - top)
        parts.append((powers @ heads[2]).div_(sums).float())
    return torch.cat(parts).view(*query.shape[:-1], -1)


def _layer_norm(x, shape, weight, bias, eps):
    count = torch.Size(shape).numel()
    bits = min(21, factor_bits(count))
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for rows, place in zip(x.reshape(-1, count).split(ROWS), out.view(-1, count).split(ROWS)):
        there, back = _scales(rows, (1 << bits) - 1)
        whole = (rows * there).round_()
        wide = whole.double()
        middle = wide.sum(1, keepdim=True) / count
        squares = wide.mul_(wide).sum(1, keepdim=True) / count
        unit = there.double()
        spread = (squares - middle * middle).clamp_(min=0) + unit * unit * eps
        inverse = (1 / sqrt(spread)).float().add_(back - back)
        whole.sub_(middle.float())
        torch.mul(whole, inverse, out=place)
        if weight is not None:
            place.mul_(weight.view(-1))
        if bias is not None:
            place.add_(bias.view(-1))
    return out, x.new_zeros(0), x.new_zeros(0)


def _batch_norm(x, weight, bias, middle, spread, training, momentum, eps):
    if training:
        return None
    gain = (1 / sqrt(spread.double() + eps)) * (1 if weight is None else weight)
    shift = -middle * gain + (0 if bias is None else bias)
    gain, shift = (part.float().view(-1, *[1] * (x.dim() - 2)) for part in (gain, shift))
    return (x * gain).add_(shift), x.new_zeros(0), x.new_zeros(0)


FAST = {  # name of an operation -> what is done in its place in float32; None: as in float64
    'linear': _linear,
    'convolution': _convolution,
    'gelu': _by_shares(gelu, 8),
    'silu': _by_shares(silu, 16),
    'scaled_dot_product_attention': _attention,
    'native_layer_norm': _layer_norm,
    'native_batch_norm': _batch_norm,
    'add': lambda one, other, alpha=1: one + other if alpha == 1 else None,
    'hardswish': lambda x: (x + 3).clamp_(0, 6).div_(x.new_tensor(6)).mul_(x),
}
