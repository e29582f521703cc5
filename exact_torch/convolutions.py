"""Convolutions of maps on grids, forward and backward; depthwise ones a place of the kernel at a
time, which is faster."""

import torch
import torch.nn.functional as F

from exact_torch.grids import factor_bits, on_grid, total
from exact_torch.replacements import NotExact, replaces

aten = torch.ops.aten
_BLOCK = 1 << 15  # numbers at a time, in the processor's cache


@replaces('convolution')
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.dim() != 4:
        raise NotExact('a transposed convolution, or one not of maps, is not known to be exact')
    bits = factor_bits(weight[0].numel())
    x = on_grid(x, bits, (1, 2, 3))
    weight = on_grid(weight, bits, (1, 2, 3))
    out = convolved(x, weight, stride, padding, dilation, groups)
    return out if bias is None else out.add_(bias.view(-1, 1, 1))


def convolved(x, weight, stride, padding, dilation, groups):
    """The convolution of what is on grids already."""
    if groups == len(weight) == x.shape[1] > 1:
        return _depthwise(x, weight, stride, padding, dilation)
    return F.conv2d(x, weight, None, stride, padding, dilation, groups)


def _taps(x, kernel, stride, dilation, size):
    """Yield, for each place of a depthwise kernel, (place, its inputs in the padded x)."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows, columns = (
                slice(start * gap, start * gap + (count - 1) * step + 1, step)
                for start, gap, count, step in zip((i, j), dilation, size, stride)
            )
            yield (i, j), x[..., rows, columns]


def _padded(x, padding):
    return F.pad(x, (padding[1], padding[1], padding[0], padding[0]))


def _depthwise(x, weight, stride, padding, dilation):
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, weight.shape[2:], stride)
    ]
    out = x.new_zeros(*x.shape[:2], *size)
    step = max(_BLOCK // (size[0] * size[1]), 1)
    weight = weight[:, 0].repeat(len(x), 1, 1)
    planes = out.flatten(0, 1), _padded(x, padding).flatten(0, 1), weight
    for part, inputs, factors in zip(*(tensor.split(step) for tensor in planes)):
        for (i, j), seen in _taps(inputs, weight.shape[1:], stride, dilation, size):
            part.addcmul_(seen, factors[:, i, j].view(-1, 1, 1))
    return out


@replaces('convolution_backward')
def _convolution_backward(grad, x, weight, bias_sizes, *options):
    *options, wanted = options
    return (
        _input_gradient(grad, x, weight, *options) if wanted[0] else None,
        _weight_gradient(grad, x, weight, *options) if wanted[1] else None,
        total(grad, (0, 2, 3)) if wanted[2] else None,
    )


def _input_gradient(grad, x, weight, *options):
    stride, padding, dilation, _, _, groups = options
    bits = factor_bits(weight[0, 0].numel() * len(weight) // groups)
    grad = on_grid(grad, bits, (1, 2, 3))
    weight = on_grid(weight, bits, (0, 2, 3))
    if not groups == len(weight) == x.shape[1] > 1:
        wanted = [True, False, False]
        return aten.convolution_backward(grad, x, weight, None, *options, wanted)[0]
    out = torch.zeros_like(_padded(x, padding))
    for (i, j), seen in _taps(out, weight.shape[2:], stride, dilation, grad.shape[2:]):
        seen.addcmul_(grad, weight[:, 0, i, j].view(-1, 1, 1))
    (top, left), (height, width) = padding, x.shape[2:]
    return out[:, :, top : top + height, left : left + width]


def _weight_gradient(grad, x, weight, *options):
    stride, padding, dilation, _, _, groups = options
    bits = factor_bits(grad[:, 0].numel())
    grad = on_grid(grad, bits, (0, 2, 3))
    x = on_grid(x, bits, (0, 2, 3))
    if not groups == len(weight) == x.shape[1] > 1:
        wanted = [False, True, False]
        return aten.convolution_backward(grad, x, weight, None, *options, wanted)[1]
    out = torch.empty_like(weight)
    padded = _padded(x, padding)
    for (i, j), seen in _taps(padded, weight.shape[2:], stride, dilation, grad.shape[2:]):
        out[:, 0, i, j] = (seen * grad).sum((0, 2, 3))
    return out
