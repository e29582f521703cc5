"""Convolutions of maps on grids, forward and backward, by the quickest ways to the same sums."""

import torch
import torch.nn.functional as F

from exact_torch.grids import factor_bits, on_grid, total
from exact_torch.replacements import NotExact, replaces

aten = torch.ops.aten
_BLOCK = 1 << 15  # numbers at a time, in the processor's cache
_FEW = 50  # places of a map: then one product for the whole batch is faster


@replaces('convolution')
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed or x.dim() != 4:
        raise NotExact('a transposed convolution, or one not of maps, is not known to be exact')
    bits = factor_bits(weight[0].numel())
    x, weight = on_grid(x, bits, (1, 2, 3)), on_grid(weight, bits, (1, 2, 3))
    out = convolved(x, weight, stride, padding, dilation, groups)
    return out if bias is None else out.add_(bias.view(-1, 1, 1))


def convolved(x, weight, stride, padding, dilation, groups):
    """The convolution of what is on grids already."""
    kernel = weight.shape[2:]
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, kernel, stride)
    ]
    if groups == len(weight) == x.shape[1] > 1:
        return _depthwise(x, weight, stride, padding, dilation, size)
    if groups == 1 and size[0] * size[1] <= _FEW:
        columns = weight.permute(2, 3, 1, 0).flatten(0, 2)
        rows = _rows(x, kernel, stride, padding, dilation, size) @ columns
        return rows.view(len(x), *size, -1).permute(0, 3, 1, 2).contiguous()
    turned = _turned_padding(kernel, padding, dilation)
    if groups == 1 and max(stride) == 1 < max(kernel) and min(turned) >= 0:
        kernels = weight.transpose(0, 1).flip(2, 3)
        grad, rest = x.new_empty(len(x), len(weight), *size), (False, [0, 0], 1)
        return aten.convolution_backward(
            x, grad, kernels, None, stride, turned, dilation, *rest, [True, False, False]
        )[0]
    return F.conv2d(x, weight, None, stride, padding, dilation, groups)


def _turned_padding(kernel, padding, dilation) -> list:
    """The padding of a convolution with the kernel turned round, which undoes this one's."""
    return [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding)]


def _rows(x, kernel, stride, padding, dilation, size):
    """The inputs of each place of the output, (B H W, kh kw C)."""
    x = _padded(x, padding).permute(0, 2, 3, 1).contiguous()
    image, row, column, _ = x.stride()
    steps = image, row * stride[0], column * stride[1], row * dilation[0], column * dilation[1], 1
    windows = x.as_strided((len(x), *size, *kernel, x.shape[3]), steps)
    return windows.reshape(-1, kernel.numel() * x.shape[3])


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


def _depthwise(x, weight, stride, padding, dilation, size):
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


def _input_gradient(grad, x, weight, stride, padding, dilation, transposed, output_padding, groups):
    bits = factor_bits(weight[0, 0].numel() * len(weight) // groups)
    grad, weight = on_grid(grad, bits, (1, 2, 3)), on_grid(weight, bits, (0, 2, 3))
    kernel, (height, width) = weight.shape[2:], x.shape[2:]
    if groups == len(weight) == x.shape[1] > 1:
        out = torch.zeros_like(_padded(x, padding))
        for (i, j), seen in _taps(out, kernel, stride, dilation, grad.shape[2:]):
            seen.addcmul_(grad, weight[:, 0, i, j].view(-1, 1, 1))
        top, left = padding
        return out[:, :, top : top + height, left : left + width]
    if groups == 1 and max(stride) == 1 and height * width <= _FEW:
        turned = _turned_padding(kernel, padding, dilation)
        return convolved(grad, weight.transpose(0, 1).flip(2, 3), stride, turned, dilation, 1)
    options = None, stride, padding, dilation, transposed, output_padding, groups
    return aten.convolution_backward(grad, x, weight, *options, [True, False, False])[0]


def _weight_gradient(
    grad, x, weight, stride, padding, dilation, transposed, output_padding, groups
):
    bits = factor_bits(grad[:, 0].numel())
    grad, x = on_grid(grad, bits, (0, 2, 3)), on_grid(x, bits, (0, 2, 3))
    kernel, size = weight.shape[2:], grad.shape[2:]
    if groups == len(weight) == x.shape[1] > 1:
        out = torch.empty_like(weight)
        for (i, j), seen in _taps(_padded(x, padding), kernel, stride, dilation, size):
            out[:, 0, i, j] = (seen * grad).sum((0, 2, 3))
        return out
    if groups == 1 and size.numel() <= _FEW:
        rows = _rows(x, kernel, stride, padding, dilation, size)
        out = grad.transpose(0, 1).flatten(1) @ rows
        return out.view(len(weight), *kernel, -1).permute(0, 3, 1, 2)
    options = None, stride, padding, dilation, transposed, output_padding, groups
    return aten.convolution_backward(grad, x, weight, *options, [False, True, False])[1]
