"""Depthwise convolutions, for training on CPUs: gradients of weights from matrix products.

For weights of 5 x 5 and small maps oneDNN takes ten times as long for it as for the convolution: a
fifth of a training step of EfficientNet-Lite. Results differ from its by rounding.
"""

import torch
import torch.nn.functional as F
from torch.nn.grad import conv2d_input

# of a channel's weights, of its map: else oneDNN is as fast
_FEWEST_TAPS = 25
_MOST_PIXELS = 100


def suits(conv) -> bool:
    """True if `convolve` may stand for a module's `_conv_forward`: depthwise, of large weights."""
    return (
        type(conv) is torch.nn.Conv2d
        and conv.groups == conv.in_channels == conv.out_channels
        and conv.kernel_size[0] * conv.kernel_size[1] >= _FEWEST_TAPS
        and conv.bias is None
        and conv.dilation == (1, 1)
        and conv.padding_mode == 'zeros'
        and isinstance(conv.padding, tuple)
    )


def convolve(stride: tuple, padding: tuple, x: torch.Tensor, weight: torch.Tensor, bias: None):
    """(B, C, H, W) and (C, 1, h, w) -> (B, C, H', W')."""
    if (
        x.shape[2:].numel() > _MOST_PIXELS
        or x.device.type != 'cpu'
        or x.dtype.itemsize < 4
        or torch.is_autocast_enabled('cpu')
        or torch.compiler.is_compiling()
    ):
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))
    return _Depthwise.apply(x, weight, stride, padding)


class _Depthwise(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, stride, padding):
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = conv2d_input(x.shape, weight, grad, ctx.stride, ctx.padding, groups=len(weight))
        if ctx.needs_input_grad[1]:
            of_weight = _of_weight(x, grad, weight.shape, ctx.stride, ctx.padding)
        return of_x, of_weight, None, None


def _of_weight(x, grad, shape, stride, padding) -> torch.Tensor:
    """Gradient of the weights: products of input and output pixels, summed over images.

    Each weight takes the pairs of pixels that it connects."""
    count, channels, height, width = x.shape
    rows, columns = grad.shape[2:]
    inputs = x.permute(1, 2, 3, 0).reshape(channels, height * width, count)
    outputs = grad.permute(1, 0, 2, 3).reshape(channels, count, rows * columns)
    pairs = (inputs @ outputs).view(channels, height, width, rows, columns)
    down, right = stride
    top, left = padding
    pairs = F.pad(pairs, (0, 0, 0, 0, left, left, top, top))
    channel, i, j, row, column = pairs.stride()
    return pairs.as_strided(
        (channels, 1, *shape[2:], rows, columns),
        (channel, 0, i, j, i * down + row, j * right + column),
    ).sum((4, 5))
