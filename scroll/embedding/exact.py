"""Arithmetic in which PyTorch code has the same bits on every machine: networks, and their
training.

    with ExactArithmetic():
        loss = network(inputs.double()).square().mean()
        loss.backward()

IEEE 754 says what the sum, product, quotient or square root of float64 numbers is. It leaves open
in which order a longer sum is taken, and what a function is. So, in this context,

- before products are summed, each factor is rounded to a grid below a power of two at or above its
  largest
  entry, of so few bits that every partial sum is a whole number of units below 2^53, which float64
  holds;
- what torch does in one call and IEEE 754 in several (addcmul) is several calls: no compiler
  contracts them;
- exp, and functions made of it, are polynomials.

Each row of a matrix, each image of a convolution has a grid of its own: a feature does not depend
on the batch around it. Operations that are neither exact nor made so here are refused, by their
name.
"""

from contextlib import ExitStack
from functools import cache
from itertools import accumulate
from math import factorial, pi

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from scroll.embedding.machine import switches
from scroll.ground.errors import InputError

aten = torch.ops.aten
ARITHMETIC = 'exact 2'  # changes with the bits
_BITS = 53  # of a float64
_BLOCK = 1 << 15  # numbers at a time, in the processor's cache
_FEW = 50  # places of a map: then one product for the whole batch is faster
_LN2, _FAR = 0.6931471805599453, 700.0
# of e^x
_FACTORS = list(accumulate(range(1, 7), lambda term, k: term * (_LN2 / 4) / k, initial=1.0))
# exact as they are: they move numbers, or make one of one or two by what IEEE 754 rounds correctly
_AS_THEY_ARE = """
    view _unsafe_view reshape permute transpose t slice select cat stack expand clone unbind split squeeze
    split_with_sizes unsqueeze index index_select gather constant_pad_nd flip roll where masked_fill detach
    alias repeat unfold select_backward slice_backward as_strided embedding _to_copy copy_ fill_ zero_
    zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
    empty_strided new_empty_strided lift_fresh _local_scalar_dense scalar_tensor nll_loss_backward
    mul neg abs relu clamp clamp_min clamp_max hardtanh leaky_relu maximum minimum sign floor ceil round
    threshold_backward hardtanh_backward amax amin max argmax max_pool2d_with_indices
    equal eq ne lt le gt ge isfinite isnan logical_and logical_not any all"""
_KNOWN = frozenset(_AS_THEY_ARE.split())
_INSTEAD = {}  # name of an operation -> what is done in its place


class ExactArithmetic(TorchDispatchMode):
    """A context in which an operation on floating-point tensors is exact, or rounded as this module
    says, or an InputError. It covers the backward pass, and optimisers with `foreach=False`.
    Results keep their type, which should be float64. device: of these tensors; InputError if its
    sums are not exact."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would be imported for it, which takes seconds

    def __init__(self, device='cpu'):
        super().__init__()
        self._device, self._settings = torch.device(device), []
        _check(self._device)

    def __enter__(self):
        self._settings.append(ExitStack())
        if self._device.type == 'cuda':  # on a CPU nothing changes that other threads would see
            self._settings[-1].enter_context(switches(enabled=False))
        return super().__enter__()

    def __exit__(self, *error):
        self._settings.pop().close()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, given, name = kwargs or {}, args, func.__name__.split('.')[0]
        plain = name.removesuffix('_') if not name.endswith('__') else name
        instead = _INSTEAD.get(plain)
        if instead is not None and (kinds := _kinds(args)):
            if kinds != {torch.float64}:
                args = tree_map_only(
                    torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, args
                )
            try:
                out = instead(*args, **kwargs)
            except TypeError as error:  # an argument that it does not have, as `out`
                raise InputError(
                    f'{name}: not known to be exact with these arguments ({error})'
                ) from error
            if kinds != {torch.float64}:
                kind = max(kinds, key=lambda kind: torch.finfo(kind).bits)
                out = tree_map_only(torch.Tensor, lambda x: x.to(kind), out)
            return given[0].copy_(out) if plain != name else out
        known = {plain, name} & _KNOWN
        if not known:
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        if _kinds([args, out]) and not known:
            raise InputError(f'{name}: an operation that is not known to be exact')
        return out


@cache
def _check(device: torch.device) -> None:
    """InputError unless convolutions and products of whole numbers, the largest for which that is
    promised, are those of int64 arithmetic: a library could transform them (Winograd), or compute
    in fewer bits."""
    with torch._C.DisableTorchFunction():  # no context of the caller's counts
        random, most = torch.Generator().manual_seed(0), 1 << _bits(32 * 9)
        x, weight = (
            torch.randint(-most, most + 1, shape, generator=random)
            for shape in ((2, 32, 9, 9), (16, 32, 3, 3))
        )
        rows = F.unfold(x.double(), 3, padding=1).long().transpose(1, 2)
        expected = (rows @ weight.flatten(1).T).transpose(1, 2)
        with switches(enabled=False):
            x, weight, rows = (part.to(device, torch.float64) for part in (x, weight, rows))
            for stride in (1, 2):
                got = _convolved(x, weight, [stride] * 2, [1, 1], [1, 1], 1)
                right = expected.view(2, 16, 9, 9)[:, :, ::stride, ::stride]
                products = (rows @ weight.flatten(1).T).cpu().long().transpose(1, 2)
                if not (torch.equal(got.cpu().long(), right) and torch.equal(products, expected)):
                    raise InputError(f'sums of float64 products on {device} are not exact')


def _kinds(values) -> set:
    """The floating-point types of tensors among values, also in lists."""
    found = set()
    for value in values:
        if isinstance(value, (list, tuple)):
            found |= _kinds(value)
        elif isinstance(value, torch.Tensor) and value.is_complex():
            raise InputError('complex numbers are not known to be exact')
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            found.add(value.dtype)
    return found


def _exact(*names):
    def register(function):
        _INSTEAD.update(dict.fromkeys(names, function))
        return function

    return register


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2^exponent, float64, exact, for whole numbers from -1022 to 1023 (a library's `pow` may not
    be).
    """
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def on_grid(x: torch.Tensor, bits: int, dims) -> torch.Tensor:
    """float64 x rounded to multiples of 2^(e - bits), half to even; 2^e is the least power of two
    above the largest magnitude over `dims`."""
    if not x.numel():
        return x
    top = torch.maximum(x.amax(dims, True), x.amin(dims, True).neg_())
    exponent = torch.frexp(top).exponent.clamp_(-900, 900)
    shift = power_of_two(exponent + (_BITS - 1 - bits)) * 1.5  # its last bit is 2^(e - bits)
    return (x + shift).sub_(shift)


def _bits(terms: int) -> int:
    """Bits of each of two factors, so that sums of this many products are exact."""
    return (_BITS - (terms - 1).bit_length()) // 2


# sums


@_exact('sum')
def _sum(x, dims=None, keepdim=False, dtype=None):
    dims = (
        list(range(x.dim()))
        if not dims and dims != 0
        else [dims]
        if isinstance(dims, int)
        else list(dims)
    )
    terms = 1
    for d in dims:
        terms *= x.shape[d]
    return (
        on_grid(x, _BITS - max(terms - 1, 1).bit_length() - 1, dims).sum(dims, keepdim)
        if dims
        else x
    )


@_exact('mean')
def _mean(x, dims=None, keepdim=False, dtype=None):
    total = _sum(x, dims, keepdim)
    return total / total.new_tensor(x.numel() // max(total.numel(), 1))


@_exact('linalg_vector_norm')
def _norm(x, order=2, dims=None, keepdim=False, dtype=None):
    if order != 2:
        raise InputError(f'a norm of order {order} is not known to be exact')
    return _sqrt(_sum(x * x, dims, keepdim))


# products


@_exact('mm', 'bmm')
def _product(one, other):
    bits = _bits(one.shape[-1])
    return on_grid(one, bits, -1) @ on_grid(other, bits, -2)


@_exact('addmm', 'baddbmm')
def _product_and(bias, one, other, beta=1, alpha=1):
    product = _product(one, other)
    return bias * beta + product * alpha if (beta, alpha) != (1, 1) else product.add_(bias)


@_exact('convolution')
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.dim() != 4:
        raise InputError('a transposed convolution, or one not of maps, is not known to be exact')
    bits = _bits(weight[0].numel())
    x, weight = on_grid(x, bits, (1, 2, 3)), on_grid(weight, bits, (1, 2, 3))
    out = _convolved(x, weight, stride, padding, dilation, groups)
    return out if bias is None else out.add_(bias.view(-1, 1, 1))


def _convolved(x, weight, stride, padding, dilation, groups):
    """The convolution of what is on grids already, by the quickest of some ways to the same sums."""
    kernel = weight.shape[2:]
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, kernel, stride)
    ]
    if groups == len(weight) == x.shape[1] > 1:
        return _depthwise(x, weight, stride, padding, dilation, size)
    if groups == 1 and size[0] * size[1] <= _FEW:
        rows = _rows(x, kernel, stride, padding, dilation, size) @ weight.permute(
            2, 3, 1, 0
        ).flatten(0, 2)
        return rows.view(len(x), *size, -1).permute(0, 3, 1, 2).contiguous()
    turned = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding)]
    if groups == 1 and max(stride) == 1 < max(kernel) and min(turned) >= 0:
        turned = weight.transpose(0, 1).flip(2, 3), None, stride, turned, dilation, False, [0, 0], 1
        return aten.convolution_backward(
            x, x.new_empty(len(x), len(weight), *size), *turned, [True, False, False]
        )[0]
    return F.conv2d(x, weight, None, stride, padding, dilation, groups)


def _rows(x, kernel, stride, padding, dilation, size):
    """What each place of the output sees, (B H W, kh kw C)."""
    x = _padded(x, padding).permute(0, 2, 3, 1).contiguous()
    image, row, column, _ = x.stride()
    steps = image, row * stride[0], column * stride[1], row * dilation[0], column * dilation[1], 1
    return x.as_strided((len(x), *size, *kernel, x.shape[3]), steps).reshape(
        -1, kernel.numel() * x.shape[3]
    )


def _taps(x, kernel, stride, dilation, size):
    """Of a depthwise convolution: for each place of the kernel, (place, what it sees of the padded
    x).
    """
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            row, column = i * dilation[0], j * dilation[1]
            yield (
                (i, j),
                x[
                    ...,
                    row : row + (size[0] - 1) * stride[0] + 1 : stride[0],
                    column : column + (size[1] - 1) * stride[1] + 1 : stride[1],
                ],
            )


def _padded(x, padding):
    return F.pad(x, (padding[1], padding[1], padding[0], padding[0]))


def _depthwise(x, weight, stride, padding, dilation, size):
    out, planes = x.new_zeros(*x.shape[:2], *size), _padded(x, padding).flatten(0, 1)
    step, weight = max(_BLOCK // (size[0] * size[1]), 1), weight[:, 0].repeat(len(x), 1, 1)
    for part, some, factors in zip(
        *(all_of.split(step) for all_of in (out.flatten(0, 1), planes, weight))
    ):
        for (i, j), seen in _taps(some, weight.shape[1:], stride, dilation, size):
            part.addcmul_(seen, factors[:, i, j].view(-1, 1, 1))
    return out


@_exact('convolution_backward')
def _convolution_backward(
    grad,
    x,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    wanted,
):
    of_x = of_weight = of_bias = None
    depthwise = groups == len(weight) == x.shape[1] > 1
    rest = None, stride, padding, dilation, transposed, output_padding, groups
    if wanted[0]:
        bits = _bits(weight[0, 0].numel() * len(weight) // groups)
        g, w = on_grid(grad, bits, (1, 2, 3)), on_grid(weight, bits, (0, 2, 3))
        if depthwise:
            full = torch.zeros_like(_padded(x, padding))
            for (i, j), seen in _taps(full, w.shape[2:], stride, dilation, g.shape[2:]):
                seen.addcmul_(g, w[:, 0, i, j].view(-1, 1, 1))
            of_x = full[
                :, :, padding[0] : padding[0] + x.shape[2], padding[1] : padding[1] + x.shape[3]
            ]
        elif groups == 1 and max(stride) == 1 and x[0, 0].numel() <= _FEW:
            turned = [d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding)]
            of_x = _convolved(g, w.transpose(0, 1).flip(2, 3), stride, turned, dilation, 1)
        else:
            of_x = aten.convolution_backward(g, x, w, *rest, [True, False, False])[0]
    if wanted[1]:
        bits = _bits(grad[:, 0].numel())
        g, x = on_grid(grad, bits, (0, 2, 3)), on_grid(x, bits, (0, 2, 3))
        if depthwise:
            of_weight = torch.empty_like(weight)
            for (i, j), seen in _taps(
                _padded(x, padding), weight.shape[2:], stride, dilation, g.shape[2:]
            ):
                of_weight[:, 0, i, j] = (seen * g).sum((0, 2, 3))
        elif groups == 1 and g[0, 0].numel() <= _FEW:
            kernel, size = weight.shape[2:], g.shape[2:]
            products = g.transpose(0, 1).flatten(1) @ _rows(
                x, kernel, stride, padding, dilation, size
            )
            of_weight = products.view(len(weight), *kernel, -1).permute(0, 3, 1, 2)
        else:
            of_weight = aten.convolution_backward(g, x, weight, *rest, [False, True, False])[1]
    if wanted[2]:
        of_bias = _sum(grad, (0, 2, 3))
    return of_x, of_weight, of_bias


# several calls in the place of one


@_exact('sqrt')
def _sqrt(x):
    if x.is_cuda:
        return x.sqrt()
    # NumPy's: torch calls MKL's, of which one in 70 has another last
    with np.errstate(invalid='ignore'):
        # bit, others on other processors
        return torch.from_numpy(np.asarray(np.sqrt(x.detach().numpy())))


@_exact('div')
def _div(one, other, rounding_mode=None):
    # which CUDA multiplies by the inverse
    if not isinstance(other, torch.Tensor) or not other.dim():
        other = torch.full_like(one, float(other)) if one.is_floating_point() else other
    return torch.div(one, other, rounding_mode=rounding_mode)


@_exact('pow')
def _pow(x, power):
    powers = {
        2: lambda: x * x,
        3: lambda: x * x * x,
        1: x.clone,
        0.5: lambda: _sqrt(x),
        -0.5: lambda: _rsqrt(x),
    }
    if isinstance(power, torch.Tensor) or not isinstance(x, torch.Tensor) or power not in powers:
        raise InputError('a power other than -1/2, 1/2, 1, 2, 3 is not known to be exact')
    return powers[power]()


def _rsqrt(x):
    return torch.ones_like(x) / _sqrt(x)


def _hardsigmoid(x):
    return _div((x + 3).clamp_(0, 6), 6)


def _times(x, factor):
    return x if factor == 1 else x * factor


_INSTEAD.update(
    add=lambda one, other, alpha=1: one + _times(other, alpha),
    sub=lambda one, other, alpha=1: one - _times(other, alpha),
    rsub=lambda one, other, alpha=1: other - _times(one, alpha),
    addcmul=lambda x, one, other, value=1: x + _times(one * other, value),
    addcdiv=lambda x, one, other, value=1: x + _times(one / other, value),
    lerp=lambda start, end, weight: start + (end - start) * weight,
    reciprocal=lambda x: torch.ones_like(x) / x,
    rsqrt=_rsqrt,
    hardsigmoid=_hardsigmoid,
    hardswish=lambda x: x * _hardsigmoid(x),
)


# functions


def _in_blocks(function):
    """A function of each number, computed for few at a time: its many passes stay in the cache."""

    def of_all(x, *rest, **options):
        parts = x.reshape(-1).double().split(_BLOCK)
        return (
            torch.cat([function(part, *rest, **options) for part in parts])
            .view(x.shape)
            .to(x.dtype)
        )

    return of_all


def _exp_of(t):
    """e^t to within 2^-38 of its size, for t up to 700; e^-700 for all below."""
    t = (t * (1 / _LN2)).clamp_(-_FAR / _LN2, _FAR / _LN2)
    power = t.round()
    rest = t.sub_(power)  # e^t = 2^power (e^(rest ln 2 / 4))^4
    out = rest * _FACTORS[-1]
    for factor in _FACTORS[-2:0:-1]:  # Horner's scheme
        out.add_(factor).mul_(rest)
    out.add_(1)
    out.mul_(out)
    out.mul_(out)
    return out.mul_(power_of_two(power))


_exp = _exact('exp')(_in_blocks(_exp_of))


@_exact('log')
@_in_blocks
def _log(x):
    share, power = torch.frexp(x)
    small = share < 0.5**0.5
    share, power = torch.where(small, 2 * share, share), power - small.int()
    z = (share - 1) / (share + 1)
    square, out = z * z, torch.zeros_like(z)
    for k in range(21, 0, -2):
        out.mul_(square).add_(1 / k)
    # in float32, as it was when torch's default type chose
    return 2 * z * out + power.float() * _LN2


_exact('sigmoid')(_in_blocks(lambda x: 1 / _exp_of(-x).add_(1)))
_exact('silu')(_in_blocks(lambda x: x / _exp_of(-x).add_(1)))
_exact('tanh')(_in_blocks(lambda x: 1 - 2 / _exp_of(2 * x).add_(1)))


@_exact('gelu')
@_in_blocks
def _gelu(x, approximate='none'):
    if approximate == 'tanh':
        inner = (x * x * x * 0.044715 + x) * 0.7978845608028654
        return x * (1 - 1 / _exp_of(2 * inner).add_(1))
    # Abramowitz, Stegun 1964, 7.1.26: to 1.5e-7
    t = 1 / ((x * 0.5**0.5).abs_().mul_(0.3275911).add_(1))
    tail = t * 1.061405429
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail.add_(factor).mul_(t)
    tail.mul_(_exp_of(x * x * -0.5)).mul_(0.5)  # the share beyond |x|
    return x * torch.where(x < 0, tail, 1 - tail)


def _cos_of(x):
    turns = x * (0.5 / pi)
    angle = (turns - turns.round()) * (2 * pi)
    square, out = angle * angle, torch.zeros_like(angle)
    for k in range(24, -1, -2):
        out.mul_(square).add_((-1) ** (k // 2) / factorial(k))
    return out


_exact('cos')(_in_blocks(_cos_of))
_exact('sin')(_in_blocks(lambda x: _cos_of(x - pi / 2)))


@_exact('_softmax', '_safe_softmax')
def _softmax(x, dim, *_, **__):
    rows, out = x.movedim(dim, -1), []
    for part in rows.reshape(-1, rows.shape[-1]).split(_BLOCK // rows.shape[-1] + 1):
        powers = _exp_of(part - part.amax(-1, True))
        out.append(powers / _sum(powers, -1, True))
    return torch.cat(out).view(rows.shape).movedim(-1, dim)


@_exact('_scaled_dot_product_flash_attention_for_cpu')
def _attention(query, key, value, dropout=0.0, causal=False, attn_mask=None, scale=None):
    """(attention, nothing) as torch computes it without a kernel of its own for it."""
    with ExactArithmetic():
        grouped = query.shape[-3] != key.shape[-3]
        out, _ = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout, causal, None, scale=scale, enable_gqa=grouped
        )
    return out, query.new_zeros(0)


@_exact('_log_softmax')
def _log_softmax(x, dim, half_to_float):
    x = x - x.amax(dim, True)
    return x - _log(_sum(_exp(x), dim, True))


@_exact('_log_softmax_backward_data')
def _log_softmax_backward(grad, output, dim, dtype):
    return grad - _exp(output) * _sum(grad, dim, True)


@_exact('nll_loss_forward')
def _nll_loss(log_shares, target, weight, reduction, ignored):
    if weight is not None or reduction != 1 or target.dim() != 1 or (target == ignored).any():
        raise InputError(
            'a cross-entropy other than the mean over all samples is not known to be exact'
        )
    loss = -_sum(log_shares.gather(1, target[:, None])) / log_shares.new_tensor(len(target))
    return loss, log_shares.new_tensor(len(target))


# normalisation


def _normalised(x, dims, eps):
    """(x less its mean over dims, through its standard deviation; mean, variance, 1 / standard
    deviation).
    """
    mean = _mean(x, dims, True)
    centred = x - mean
    variance = _mean(centred * centred, dims, True)
    inverse = _rsqrt(variance + eps)
    return centred * inverse, mean, variance, inverse


def _scaled(x, weight, bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@_exact('native_layer_norm')
def _layer_norm(x, shape, weight, bias, eps):
    out, mean, _, inverse = _normalised(x, list(range(-len(shape), 0)), eps)
    return _scaled(out, weight, bias), mean, inverse


@_exact('native_group_norm')
def _group_norm(x, weight, bias, count, channels, area, groups, eps):
    out, mean, _, inverse = _normalised(x.reshape(count, groups, -1), -1, eps)
    weight, bias = (part if part is None else part.view(-1, 1) for part in (weight, bias))
    out = _scaled(out.reshape(count, channels, area), weight, bias).view(x.shape)
    return out, mean.view(count, groups), inverse.view(count, groups)


def _wide(part, x):
    """A number a channel, for (B, C, ...)."""
    return None if part is None else part.view(-1, *[1] * (x.dim() - 2))


@_exact('native_batch_norm')
def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        gain = _rsqrt(running_var + eps)
        gain = gain if weight is None else gain * weight
        out = (x - _wide(running_mean, x)).mul_(_wide(gain, x))
        out = out if bias is None else out.add_(_wide(bias, x))
        return out, x.new_zeros(0), x.new_zeros(0)
    dims = [0, *range(2, x.dim())]
    out, mean, variance, inverse = _normalised(x, dims, eps)
    mean, variance = mean.flatten(), variance.flatten()
    if running_mean is not None:
        count = x.numel() // x.shape[1]
        running_mean.mul_(1 - momentum).add_(mean * momentum)
        running_var.mul_(1 - momentum).add_(variance * (count / max(count - 1, 1)) * momentum)
    return _scaled(out, _wide(weight, x), _wide(bias, x)), mean, inverse.flatten()


@_exact('native_batch_norm_backward')
def _batch_norm_backward(
    grad, x, weight, running_mean, running_var, mean, inverse, training, eps, wanted
):
    dims = [0, *range(2, x.dim())]
    if not training:
        mean, inverse = running_mean, _rsqrt(running_var + eps)
    gain, of_x, of_weight, of_bias = (
        inverse if weight is None else inverse * weight,
        grad,
        None,
        None,
    )
    if training or wanted[1] or wanted[2]:
        normal = (x - _wide(mean, x)) * _wide(inverse, x)
        of_weight, of_bias = _sum(grad * normal, dims), _sum(grad, dims)
    if training:
        count = of_bias.new_full(of_bias.shape, x.numel() // x.shape[1])
        of_x = grad - _wide(of_bias / count, x) - normal * _wide(of_weight / count, x)
    return of_x * _wide(gain, x), of_weight, of_bias
