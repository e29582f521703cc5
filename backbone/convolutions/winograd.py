"""3x3 convolutions of fewer multiplications, for training on CPUs: 1/4, or 4/9 for small maps.

Winograd's algorithm (Lavin and Gray 2016, "Fast algorithms for convolutional neural networks"): a
tile of `size` x `size` outputs follows from (size + 2)^2 products of sums of inputs and sums of
weights. Results differ from those of a direct convolution by rounding.
"""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F

# below, transforms take longer than they save
_FEWEST_CHANNELS = 64
_FEWEST_IMAGES = 16


def suits(conv) -> bool:
    """True if `convolve` may stand for a module's `_conv_forward`: 3x3, of stride 1."""
    return (
        type(conv) is torch.nn.Conv2d
        and conv.kernel_size == (3, 3)
        and conv.bias is None
        and conv.stride == conv.padding == conv.dilation == (1, 1)
        and conv.groups == 1
        and conv.padding_mode == 'zeros'
        and min(conv.weight.shape[:2]) >= _FEWEST_CHANNELS
    )


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: None) -> torch.Tensor:
    """(B, C, H, W) and (K, C, 3, 3) -> (B, K, H, W), channels-last; direct where that is faster."""
    count, channels, height, width = x.shape
    size = 4 if height % 4 == width % 4 == 0 and height > 4 else 2
    if (
        count < _FEWEST_IMAGES
        or (size == 2 and (height % 2 or width % 2 or height == 2 or height * width > 64))
        or x.device.type != 'cpu'
        or x.dtype.itemsize < 4
        or torch.is_autocast_enabled('cpu')
        or torch.compiler.is_compiling()
    ):
        return F.conv2d(x, weight, padding=1)
    n = (size + 2) ** 2
    of_inputs, of_weights, of_outputs = _transforms(size, x.dtype)
    weights = (of_weights @ weight.reshape(-1, 9).T).view(n, -1, channels)
    inputs = (of_inputs @ _Tiles.apply(x, size)).view(n, -1, channels)
    tiles = of_outputs @ (inputs @ weights.mT).view(n, -1)
    tiles = tiles.view(size, size, count, height // size, width // size, -1)
    return tiles.permute(2, 3, 0, 4, 1, 5).reshape(count, height, width, -1).permute(0, 3, 1, 2)


class _Tiles(torch.autograd.Function):
    """(B, C, H, W) -> ((size + 2)^2, tiles * C): inputs of each tile, overlapping by two pixels."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, size):
        padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, 1, 1, 1, 1)).unfold(1, size + 2, size)
        return (
            padded.unfold(2, size + 2, size).permute(4, 5, 0, 1, 2, 3).reshape((size + 2) ** 2, -1)
        )

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape
        ctx.size = inputs[1]

    @staticmethod
    def backward(ctx, grad):  # as autograd's of `unfold`, five times as fast
        count, channels, height, width = ctx.shape
        size = ctx.size
        grad = grad.view(size + 2, size + 2, count, height // size, width // size, channels)
        padded = grad.new_zeros(count, height + 2, width + 2, channels)
        for i, j in np.ndindex(size + 2, size + 2):
            padded[:, i : height + i : size, j : width + j : size].add_(grad[i, j])  # `+=` copies
        return padded[:, 1:-1, 1:-1].permute(0, 3, 1, 2), None


@cache
@torch.inference_mode(False)  # the first call may be an evaluation's
def _transforms(size: int, dtype: torch.dtype) -> tuple:
    """Matrices (Toom, Cook) that transform inputs and weights to factors, products to outputs."""
    points = np.array([0.0, 1.0, -1.0, 2.0, -2.0][: size + 1])
    others = [np.delete(points, i) for i in range(len(points))]
    inputs = np.zeros((size + 2, size + 2))
    inputs[:-1, :-1] = [np.poly(other)[::-1] for other in others]
    inputs[-1] = np.poly(points)[::-1]
    scale = [[np.prod(point - other)] for point, other in zip(points, others)]
    weights = np.vstack([np.vander(points, 3, increasing=True) / scale, np.eye(3)[-1]])
    outputs = np.vstack([np.vander(points, size, increasing=True), np.eye(size)[-1]]).T
    return tuple(
        torch.from_numpy(np.kron(matrix, matrix)).to(dtype) for matrix in (inputs, weights, outputs)
    )
