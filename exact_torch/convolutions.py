"""Convolutions of maps on grids, forward and backward."""

import torch
import torch.nn.functional as F

from exact_torch.grids import factor_bits, on_grid, total, window_bits
from exact_torch.replacements import NotExact, replaces

aten = torch.ops.aten


@replaces('convolution')
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.dim() != 4:
        raise NotExact('a transposed convolution, or one not of maps, is not known to be exact')
    bits = factor_bits(weight[0].numel())
    x = on_grid(x, bits, (1, 2, 3))
    weight = on_grid(weight, bits, (1, 2, 3))
    out = F.conv2d(x, weight, None, stride, padding, dilation, groups)
    return out if bias is None else out.add_(bias.view(-1, 1, 1))


@replaces('convolution_backward')
def _convolution_backward(grad, x, weight, bias_sizes, *options):
    *options, wanted = options
    of_input = of_weight = of_bias = None
    if wanted[0]:
        bits = factor_bits(weight[0, 0].numel() * len(weight) // options[-1])
        factors = on_grid(grad, bits, (1, 2, 3)), x, on_grid(weight, bits, (0, 2, 3))
        mask = [True, False, False]
        of_input = aten.convolution_backward(*factors, None, *options, mask)[0]
    if wanted[1]:
        bits = factor_bits(grad[:, 0].numel())
        factors = on_grid(grad, bits, (0, 2, 3)), on_grid(x, bits, (0, 2, 3)), weight
        mask = [False, True, False]
        of_weight = aten.convolution_backward(*factors, None, *options, mask)[1]
    if wanted[2]:
        of_bias = total(grad, (0, 2, 3))
    return of_input, of_weight, of_bias


def _averaged_over(x, divisor, *window):
    """How many numbers each average is divided by."""
    ones = torch.ones_like(x[..., :1, :, :])
    return (F.avg_pool2d(ones, *window, 1) / F.avg_pool2d(ones, *window, divisor)).round_()


@replaces('avg_pool2d')
def _average(x, size, stride=(), padding=0, ceil=False, padded=True, divisor=None):
    window = size, stride or None, padding, ceil, padded
    sums = F.avg_pool2d(on_grid(x, window_bits(size), (-2, -1)), *window, 1)
    return sums / _averaged_over(x, divisor, *window)


@replaces('avg_pool2d_backward')
def _average_backward(grad, x, size, stride, padding, ceil, padded, divisor):
    grad = grad / _averaged_over(x, divisor, size, stride or None, padding, ceil, padded)
    grad = on_grid(grad, window_bits(size), (-2, -1))
    return aten.avg_pool2d_backward(grad, x, size, stride, padding, ceil, padded, 1)


@replaces('_adaptive_avg_pool2d')
def _adaptive_average(x, counts):
    size = [length // count for length, count in zip(x.shape[-2:], counts)]
    if any(length % count for length, count in zip(x.shape[-2:], counts)):
        raise NotExact(f'average pooling of {tuple(x.shape[-2:])} to {tuple(counts)}: not exact')
    return _average(x, size)


@replaces('_adaptive_avg_pool2d_backward')
def _adaptive_average_backward(grad, x):
    size = [length // count for length, count in zip(x.shape[-2:], grad.shape[-2:])]
    return _average_backward(grad, x, size, [], [0, 0], False, True, None)
