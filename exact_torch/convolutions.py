"""Convolutions of maps on grids, forward and backward."""

import torch
import torch.nn.functional as F

from exact_torch.grids import factor_bits, on_grid, total
from exact_torch.replacements import NotExact, replaces

aten = torch.ops.aten


@replaces('convolution')
def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
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
