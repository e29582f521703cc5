"""Residual adapters: few parameters beside a frozen convolutional backbone.

Every 3x3 convolution inside the residual blocks (not the stem, not the 1x1 projections) gets a parallel 1x1
convolution of the same stride, added to its output before the batch norm: y = conv3x3(x) + conv1x1(x). Li et
al. 2022, "Cross-domain few-shot learning with task-specific adapters"; paper, section 3.3.
"""
import torch
import torch.nn.functional as F
from torch import nn

from scroll.errors import InputError


class _AdaptedConvolution(torch.autograd.Function):
    """conv3x3(x) + conv1x1(x) as one: the 1x1 kernel is added to the centre of the frozen 3x3 one.

    One forward, one input-gradient and one (1x1) weight-gradient product: about two thirds of training the
    3x3 kernel.
    """

    @staticmethod
    def forward(ctx, x, alpha, weight, bias, stride):
        kernel = weight.clone()
        kernel[:, :, 1, 1] += alpha[:, :, 0, 0]
        ctx.save_for_backward(x, kernel)
        ctx.stride, ctx.dtype = stride, alpha.dtype
        return F.conv2d(x, kernel, bias, stride, padding=1)

    @staticmethod
    def backward(ctx, grad):
        x, kernel = (t.to(grad.dtype) for t in ctx.saved_tensors)
        grad_x = grad_alpha = None
        if ctx.needs_input_grad[0]:
            grad_x = _convolution_backward(grad, x, kernel, ctx.stride, 1, (True, False, False))[0]
        if ctx.needs_input_grad[1]:
            centre = kernel[:, :, 1:2, 1:2].contiguous()
            grad_alpha = _convolution_backward(grad, x, centre, ctx.stride, 0, (False, True, False))[1]
            grad_alpha = grad_alpha.to(ctx.dtype)
        return grad_x, grad_alpha, None, None, None


def _convolution_backward(grad, x, kernel, stride, padding, wanted):
    """Gradients of a convolution with respect to (input, kernel, bias), those that are wanted."""
    return torch.ops.aten.convolution_backward(
        grad, x, kernel, None, list(stride), [padding] * 2, [1, 1], False, [0, 0], 1, list(wanted))


class ParallelAdapter(nn.Module):
    """A 3x3 convolution with a 1x1 one beside it.

    Args:
        conv: the frozen convolution, padding 1, one group. Where a batch norm was folded into it, its
            attribute `gain` (C,) is the factor that the adapter's output must then have too.
        scale: the adapter starts as `scale` times the rectangular identity; with 0 the network is unchanged,
            bit for bit.
    """

    def __init__(self, conv: nn.Conv2d, scale: float):
        super().__init__()
        self.conv = conv
        weight = conv.weight
        self.alpha = nn.Parameter(scale * torch.eye(conv.out_channels, conv.in_channels, device=weight.device,
                                                    dtype=weight.dtype)[..., None, None])

    def _kernel(self) -> torch.Tensor:
        """The 1x1 kernel (C_out, C_in, 1, 1), with the gain of a folded batch norm."""
        gain = getattr(self.conv, 'gain', None)
        return self.alpha if gain is None else gain.view(-1, 1, 1, 1) * self.alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (B, C_in, H, W) -> (B, C_out, H', W')."""
        conv = self.conv
        return _AdaptedConvolution.apply(x, self._kernel(), conv.weight, conv.bias, conv.stride)

    def folded(self) -> nn.Conv2d:
        """One convolution with the same output."""
        weight = self.conv.weight.detach().clone()
        weight[:, :, 1, 1] += self._kernel().detach()[:, :, 0, 0]
        self.conv.weight.data = weight
        return self.conv


def _is_adaptable(name: str, module: nn.Module) -> bool:
    """A 3x3 convolution that is not a direct child of the network, where the stem is."""
    return ('.' in name and isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3)
            and module.padding == module.dilation == (1, 1) and module.groups == 1)


def attach(net: nn.Module, scale: float = 1e-4) -> list:
    """Put an adapter beside each eligible convolution of `net`, in place; everything else is frozen.

    Returns:
        The adapters' parameters, in the order of the network's modules.

    Raises:
        InputError: the network has no convolution to adapt.
    """
    convolutions = [name for name, module in net.named_modules() if _is_adaptable(name, module)]
    if not convolutions:
        raise InputError(f'{type(net).__name__} has no 3x3 convolution inside a block: adapters need a '
                         'convolutional backbone; use full tuning or none')
    net.requires_grad_(False)
    adapters = []
    for name in convolutions:
        parent, _, leaf = name.rpartition('.')
        adapters.append(ParallelAdapter(net.get_submodule(name), scale))
        setattr(net.get_submodule(parent), leaf, adapters[-1])
    return [adapter.alpha for adapter in adapters]


def fold(net: nn.Module) -> nn.Module:
    """Replace each adapter of `net` by one plain convolution of the same output, in place."""
    for name, module in list(net.named_modules()):
        if isinstance(module, ParallelAdapter):
            parent, _, leaf = name.rpartition('.')
            setattr(net.get_submodule(parent), leaf, module.folded())
    return net
