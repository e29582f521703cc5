"""Adapters: few trained parameters in a frozen network, of the first kind that fits it.

| network | kind | after |
|---|---|---|
| with attention | `lora`: a product of rank 8 added to each linear layer | Hu et al. 2022 |
| with depthwise, or grouped, convolutions | `low-rank`: the same, added to each pointwise one | |
| with 3x3 convolutions in blocks | `parallel`: a 1x1 convolution added to each | the paper, 3.3 |

Layers outside blocks are left as they are. y = conv3x3(x) + conv1x1(x) before the batch norm is Li
et al. 2022, "Cross-domain few-shot learning with task-specific adapters". Every kind is folded into
its layer.
"""

from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from scroll.embedding.libraries import LibraryNetwork
from scroll.embedding.machine import FEW
from scroll.embedding.wide import WideNetwork
from scroll.ground.errors import InputError
from scroll.ground.randomness import torch_stream

RANK = 8  # of LoRA
_SHARE = 9  # a low-rank adapter has a ninth of its layer's parameters: a 1x1 has it of a 3x3


class _AdaptedConvolution(torch.autograd.Function):
    """conv3x3(x) + conv1x1(x) as one: the 1x1 kernel is added to the centre of the frozen 3x3 one.
    One forward, one input-gradient and one (1x1) weight-gradient product: about two thirds of
    training the 3x3 kernel."""

    @staticmethod
    def forward(ctx, x, alpha, weight, bias, stride):
        kernel = _with_centre(weight, alpha)
        ctx.save_for_backward(x, kernel)
        ctx.stride = stride
        ctx.dtype = alpha.dtype
        return F.conv2d(x, kernel, bias, stride, padding=1)

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        x, kernel = (t.to(grad.dtype) for t in ctx.saved_tensors)
        grad_x = grad_alpha = None
        if ctx.needs_input_grad[0]:
            grad_x = _convolution_backward(grad, x, kernel, ctx.stride, 1, (True, False, False))[0]
        if ctx.needs_input_grad[1]:
            centre = kernel[:, :, 1:2, 1:2].contiguous()
            x = x if x.shape[1] >= FEW else x.contiguous()
            # oneDNN would read past a single pixel, and make NaN of what lies there
            stride = ctx.stride if x[0, 0].numel() > 1 else (1, 1)
            gradients = _convolution_backward(grad, x, centre, stride, 0, (False, True, False))
            grad_alpha = gradients[1].to(ctx.dtype)
        return grad_x, grad_alpha, None, None, None


def _convolution_backward(grad, x, kernel, stride, padding, wanted):
    """Gradients of a convolution with respect to (input, kernel, bias), those that are wanted."""
    return torch.ops.aten.convolution_backward(
        grad, x, kernel, None, list(stride), [padding] * 2, [1, 1], False, [0, 0], 1, list(wanted)
    )


def _with_centre(weight: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """A 3x3 kernel plus a 1x1 one."""
    kernel = weight.clone()
    kernel[:, :, 1, 1] += alpha[:, :, 0, 0]
    return kernel


class _Adapter(nn.Module):
    """A frozen layer and what is added to it. Where a batch norm was folded into the layer, its
    attribute `gain` (C,) is the factor that what is added must then have too."""

    def __init__(self, layer: nn.Conv2d | nn.Linear):
        super().__init__()
        self.layer: Any = layer

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of the layer, which has no adapter."""
        return self.layer.bias

    def _with_gain(self, kernel: torch.Tensor) -> torch.Tensor:
        gain = getattr(self.layer, 'gain', None)
        return kernel if gain is None else gain.view(-1, *[1] * (kernel.dim() - 1)) * kernel


class ParallelAdapter(_Adapter):
    """A 3x3 convolution (padding 1, one group) with a 1x1 one in parallel, which starts as `scale`
    times the rectangular identity; with 0 the network is unchanged, bit for bit."""

    def __init__(self, layer: nn.Conv2d, scale: float):
        super().__init__(layer)
        weight = layer.weight
        eye = torch.eye(*weight.shape[:2], dtype=weight.dtype, device=weight.device)
        self.alpha = nn.Parameter(scale * eye[..., None, None])  # (C_out, C_in, 1, 1)

    @property
    def weight(self) -> torch.Tensor:
        """The 3x3 kernel of the sum."""
        return _with_centre(self.layer.weight, self._with_gain(self.alpha))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (B, C_in, H, W) -> (B, C_out, H', W')."""
        layer = self.layer
        kernel = self._with_gain(self.alpha)
        return _AdaptedConvolution.apply(x, kernel, layer.weight, layer.bias, layer.stride)


class LowRankAdapter(_Adapter):
    """A pointwise convolution (one group), or a linear layer, plus a product of two thin matrices.

    rank: of the product; None: a ninth of the layer's parameters. generator: of the random one of
    the two matrices. The other is zero, so that the network is unchanged, bit for bit."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, rank: int | None, generator: torch.Generator):
        super().__init__(layer)
        weight = layer.weight
        wide, narrow = weight.shape[:2]
        rank = rank or max(1, round(wide * narrow / (_SHARE * (wide + narrow))))
        down = torch.rand(rank, narrow, generator=generator, dtype=torch.float32, device='cpu')
        down = (2 * down - 1) * sqrt(3 / narrow)
        self.down = nn.Parameter(down.to(weight.device, weight.dtype))
        self.up = nn.Parameter(weight.new_zeros(wide, rank))

    @property
    def weight(self) -> torch.Tensor:
        """The weight of the sum, in the shape and layout of the layer's."""
        weight = self.layer.weight
        return weight + self._with_gain(self.up @ self.down).view(weight.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum on (B, C, H, W) of a convolution, (..., C) of a linear layer."""
        if isinstance(self.layer, nn.Linear):
            return self.layer(x) + F.linear(F.linear(x, self.down), self.up)
        return F.conv2d(x, self.weight, self.layer.bias, self.layer.stride)


def _is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a layer does what layers of this kind do: subclasses may use their weight in
    another way.
    """
    return isinstance(module, kind) and type(module).forward is kind.forward


def _is_pointwise(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and module.groups == 1
        and module.padding == (0, 0)
    )


def _is_padded_3x3(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.Conv2d)
        and _is_plain(module, nn.Conv2d)
        and module.kernel_size == (3, 3)
        and module.groups == 1
        and module.padding == module.dilation == (1, 1)
    )


def _root(net: nn.Module) -> str:
    """The beginning of names of modules, of networks that hold another one."""
    return 'body.' + _root(net.body) if isinstance(net, (LibraryNetwork, WideNetwork)) else ''


def kind_for(net: nn.Module) -> tuple[str, list[str]]:
    """(kind of adapters, names of the layers that get one), of the first kind that fits a network;
    InputError if none fits."""
    parents = dict(net.named_modules())
    root = _root(net)
    inner = {name: module for name, module in parents.items() if '.' in name.removeprefix(root)}
    layers = inner.values()
    if any('Attention' in type(module).__name__ for module in layers):
        # a parent with `q_bias` uses the weights of its layers itself
        names = [
            name
            for name, module in inner.items()
            if type(module) is nn.Linear and not hasattr(parents[name.rpartition('.')[0]], 'q_bias')
        ]
        if names:
            return 'lora', names
    if any(isinstance(module, nn.Conv2d) and module.groups > 1 for module in layers) and all(
        _is_plain(module, nn.Conv2d) for module in layers if _is_pointwise(module)
    ):
        names = [
            name
            for name, module in inner.items()
            if _is_pointwise(module) or _is_plain(module, nn.Linear)
        ]
        if names:
            return 'low-rank', names
    names = [name for name, module in inner.items() if _is_padded_3x3(module)]
    if names:
        return 'parallel', names
    name = type(net.get_submodule(root.removesuffix('.'))).__name__
    raise InputError(
        f'{name}: no kind of adapters fits: it has neither attention, nor pointwise and '
        'depthwise convolutions, nor 3x3 convolutions inside blocks: use full tuning '
        '(--adaptation full) or none'
    )


def attach(net: nn.Module, scale: float = 1e-4, seed: int = 0) -> list[nn.Parameter]:
    """Give each eligible layer of `net` an adapter, in place, and freeze everything else.

    scale: `parallel` adapters begin as this times the identity; the others as nothing. seed: of
    their random halves.

    Returns:
        The adapters' parameters, in the order of the network's modules.

    InputError: the network has no layer to adapt."""
    kind, places = kind_for(net)
    net.requires_grad_(False)
    generator = torch_stream(seed, 'adapters')
    parameters = []
    for name in places:
        layer: Any = net.get_submodule(name)
        if kind == 'parallel':
            adapter = ParallelAdapter(layer, scale)
        else:
            adapter = LowRankAdapter(layer, RANK if kind == 'lora' else None, generator)
        net.set_submodule(name, adapter)
        parameters += adapter.parameters(recurse=False)
    return parameters


def fold(net: nn.Module) -> nn.Module:
    """Replace each layer of `net` that has an adapter by one layer of the same output, in place."""
    for name, module in list(net.named_modules()):
        if isinstance(module, _Adapter):
            with torch.no_grad():
                module.layer.weight.data = module.weight
            net.set_submodule(name, module.layer)
    return net
