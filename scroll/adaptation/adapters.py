"""Adapters: few trained parameters in a frozen network, of the first kind that fits its architecture.

| network | kind | after |
|---|---|---|
| with attention | `lora`: a product of low rank added to each linear layer, by peft | Hu et al. 2022 |
| with depthwise, or grouped, convolutions | `low-rank`: the same, added to each pointwise one | |
| with 3x3 convolutions in blocks | `parallel`: a 1x1 convolution added to each | the paper, section 3.3 |

Layers outside blocks are left as they are. y = conv3x3(x) + conv1x1(x), of the same stride, before the batch
norm, is Li et al. 2022, "Cross-domain few-shot learning with task-specific adapters". Every kind can begin as
nothing, bit for bit, and is folded into its layer when it has learned.
"""
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from scroll.embedding.libraries import LibraryNetwork
from scroll.errors import InputError
from scroll.randomness import torch_stream

RANK = 8                    # of LoRA
_SHARE = 9                  # a low-rank adapter has a ninth of its layer's parameters: a 1x1 has it of a 3x3
_FEW = 8                    # channels: see `scroll.embedding.layout`


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
            x = x if x.shape[1] >= _FEW else x.contiguous()
            grad_alpha = _convolution_backward(grad, x, centre, ctx.stride, 0, (False, True, False))[1]
            grad_alpha = grad_alpha.to(ctx.dtype)
        return grad_x, grad_alpha, None, None, None


def _convolution_backward(grad, x, kernel, stride, padding, wanted):
    """Gradients of a convolution with respect to (input, kernel, bias), those that are wanted."""
    return torch.ops.aten.convolution_backward(
        grad, x, kernel, None, list(stride), [padding] * 2, [1, 1], False, [0, 0], 1, list(wanted))


class ParallelAdapter(nn.Module):
    """A 3x3 convolution with a 1x1 one in parallel.

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


class LowRankAdapter(nn.Module):
    """A pointwise convolution, or a linear layer, plus a product of two thin matrices.

    Args:
        layer: the frozen layer, of one group; `gain` as of `ParallelAdapter`.
        generator: of the random one of the two matrices. The other is zero, so that the network is unchanged,
            bit for bit.
    """

    def __init__(self, layer: nn.Module, generator: torch.Generator):
        super().__init__()
        self.layer, weight = layer, layer.weight
        wide, narrow = weight.shape[:2]
        rank = max(1, round(wide * narrow / (_SHARE * (wide + narrow))))
        down = torch.randn(rank, narrow, generator=generator) / narrow ** 0.5
        self.down = nn.Parameter(down.to(weight.device, weight.dtype))
        self.up = nn.Parameter(weight.new_zeros(wide, rank))

    def _weight(self) -> torch.Tensor:
        """The sum, in the shape and layout of the layer's weight."""
        product, gain = self.up @ self.down, getattr(self.layer, 'gain', None)
        product = product if gain is None else gain.view(-1, 1) * product
        return self.layer.weight + product.view(self.layer.weight.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the layer it stands for: (B, C, H, W) of a convolution, (..., C) of a linear layer."""
        if isinstance(self.layer, nn.Linear):
            return F.linear(x, self._weight(), self.layer.bias)
        return F.conv2d(x, self._weight(), self.layer.bias, self.layer.stride)

    def folded(self) -> nn.Module:
        """One layer with the same output."""
        self.layer.weight.data = self._weight().detach()
        return self.layer


def _inner(net: nn.Module) -> list:
    """(name, module) of all that is no direct child of the network, as stem and head are."""
    root = 'body.' if isinstance(net, LibraryNetwork) else ''
    return [(name, module) for name, module in net.named_modules() if '.' in name.removeprefix(root)]


def _is_plain(module: nn.Module, kind: type) -> bool:
    """Whether a layer does what layers of this kind do: subclasses may use their weight in another way."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def _is_pointwise(module: nn.Module) -> bool:
    return (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1) and module.groups == 1
            and module.padding == (0, 0))


def _of_transformer(net: nn.Module) -> list:
    """Linear layers of a network with attention, but those whose weight is used by hand (`q_bias`)."""
    inner, parents = _inner(net), dict(net.named_modules())
    if not any('Attention' in type(module).__name__ for _, module in inner):
        return []
    return [name for name, module in inner if type(module) is nn.Linear
            and not hasattr(parents[name.rpartition('.')[0]], 'q_bias')]


def _of_depthwise(net: nn.Module) -> list:
    """Pointwise convolutions and linear layers of a network with depthwise or grouped convolutions."""
    inner = _inner(net)
    grouped = any(isinstance(module, nn.Conv2d) and module.groups > 1 for _, module in inner)
    pointwise = [module for _, module in inner if _is_pointwise(module)]
    if not grouped or not all(_is_plain(module, nn.Conv2d) for module in pointwise):
        return []
    return [name for name, module in inner if _is_pointwise(module) or _is_plain(module, nn.Linear)]


def _of_blocks(net: nn.Module) -> list:
    """3x3 convolutions."""
    return [name for name, module in _inner(net)
            if _is_plain(module, nn.Conv2d) and module.kernel_size == (3, 3) and module.groups == 1
            and module.padding == module.dilation == (1, 1)]


def _lora(net: nn.Module, places: list, scale: float, seed: int) -> list:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise InputError(f'adapters of a transformer need peft, which is not installed ({error}): pip '
                         'install peft, or take full tuning (--adaptation full)') from error
    inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=places), net)
    generator, parameters = torch_stream(seed, 'adapters'), []
    for name in places:
        layer = net.get_submodule(name)
        first, second = layer.lora_A['default'].weight, layer.lora_B['default'].weight
        with torch.no_grad():
            first.copy_(torch.randn(first.shape, generator=generator) / first.shape[1] ** 0.5)
        parameters += [first, second]
    return parameters


def _low_rank(net: nn.Module, places: list, scale: float, seed: int) -> list:
    generator, parameters = torch_stream(seed, 'adapters'), []
    for name in places:
        adapter = LowRankAdapter(net.get_submodule(name), generator)
        _put(net, name, adapter)
        parameters += [adapter.down, adapter.up]
    return parameters


def _parallel(net: nn.Module, places: list, scale: float, seed: int) -> list:
    adapters = [ParallelAdapter(net.get_submodule(name), scale) for name in places]
    for name, adapter in zip(places, adapters):
        _put(net, name, adapter)
    return [adapter.alpha for adapter in adapters]


class Kind(NamedTuple):
    """Adapters for a kind of architecture.

    places: network -> names of the layers that get one; none: it is not of this kind. attach: (network, these
    names, scale, seed) -> the adapters' parameters, in the order of the network's modules.
    """
    name: str
    places: Callable
    attach: Callable


KINDS = (Kind('lora', _of_transformer, _lora), Kind('low-rank', _of_depthwise, _low_rank),
         Kind('parallel', _of_blocks, _parallel))


def kind_for(net: nn.Module) -> tuple:
    """(the first of `KINDS` that fits a network, names of the layers that get an adapter). InputError: none
    fits."""
    for kind in KINDS:
        if places := kind.places(net):
            return kind, places
    name = type(net.body if isinstance(net, LibraryNetwork) else net).__name__
    raise InputError(f'{name}: no kind of adapters fits: it has neither attention, nor pointwise and '
                     'depthwise convolutions, nor 3x3 convolutions inside blocks: use full tuning '
                     '(--adaptation full) or none')


def attach(net: nn.Module, scale: float = 1e-4, seed: int = 0) -> list:
    """Give each eligible layer of `net` an adapter, in place, and freeze everything else.

    Args:
        scale: `parallel` adapters begin as this times the identity; the others as nothing. seed: of their
            random halves.

    Returns:
        The adapters' parameters, in the order of the network's modules.

    Raises:
        InputError: the network has no layer to adapt, or peft is missing.
    """
    kind, places = kind_for(net)
    parameters = kind.attach(net, places, scale, seed)
    trained = {id(p) for p in parameters}
    for p in net.parameters():
        p.requires_grad_(id(p) in trained)
    return parameters


def fold(net: nn.Module) -> nn.Module:
    """Replace each layer of `net` that has an adapter by one layer of the same output, in place."""
    for name, module in list(net.named_modules()):
        if isinstance(module, (ParallelAdapter, LowRankAdapter)):
            _put(net, name, module.folded())
        elif hasattr(module, 'lora_A'):
            module.merge()
            _put(net, name, module.get_base_layer())
    return net


def _put(net: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, leaf = name.rpartition('.')
    setattr(net.get_submodule(parent), leaf, module)
