"""Arithmetic in which PyTorch code has the same bits on every machine: networks, and their
training.

    with ExactArithmetic():
        loss = network(inputs.double()).square().mean()
        loss.backward()

IEEE 754 says what the sum, product, quotient or square root of float64 numbers is. It leaves open
in which order a longer sum is taken, and what a function is. So, in this context,

- before products are summed, each factor is rounded to a grid below a power of two at or above its
  largest entry, of so few bits that every partial sum is a whole number of units below 2^53, which
  float64 holds;
- what torch does in one call and IEEE 754 in several (addcmul) is several calls: no compiler
  contracts them;
- exp, and functions made of it, are polynomials.

Each row of a matrix, each image of a convolution has a grid of its own: a feature does not depend
on the batch around it. Operations that are neither exact nor made so here are refused, by their
name.
"""

from contextlib import ExitStack
from functools import cache

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from exact_torch import layers  # noqa: F401  its operations are entered into `REPLACEMENTS`
from exact_torch.convolutions import aten
from exact_torch.digits import FAST
from exact_torch.grids import factor_bits
from exact_torch.replacements import REPLACEMENTS, NotExact, replaces
from exact_torch.switches import switches

ARITHMETIC = 'exact 2'  # changes with the bits
# these move numbers, or make one of one or two by what IEEE 754 rounds correctly
_EXACT_OPERATIONS = """
    view _unsafe_view reshape permute transpose t slice select cat stack expand clone unbind split
    squeeze split_with_sizes unsqueeze index index_select gather constant_pad_nd flip roll where
    masked_fill detach alias repeat unfold select_backward slice_backward as_strided embedding
    _to_copy copy fill zero zeros ones full empty zeros_like ones_like full_like empty_like
    new_zeros new_ones new_full new_empty empty_strided new_empty_strided lift_fresh
    _local_scalar_dense scalar_tensor nll_loss_backward mul neg abs relu clamp clamp_min clamp_max
    hardtanh leaky_relu maximum minimum sign floor ceil round threshold_backward hardtanh_backward
    amax amin max argmax max_pool2d_with_indices equal eq ne lt le gt ge isfinite isnan
    logical_and logical_not any all"""
_ALREADY_EXACT = frozenset(_EXACT_OPERATIONS.split())


class ExactArithmetic(TorchDispatchMode):
    """A context in which an operation on floating-point tensors is exact, or rounded as this
    package says, or raises NotExact. It covers the backward pass, and optimisers with
    `foreach=False`. Results keep their type, which should be float64.

    device: of these tensors; NotExact if its sums are not exact. fast: what is computed in float32,
    forward in inference mode, is what `exact_torch.digits` says."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would be imported for it, which takes seconds

    def __init__(self, device: torch.device | str = 'cpu', fast: bool = False):
        super().__init__()
        self._replacements = FAST if fast else {}
        self._device = torch.device(device)
        self._settings = []
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
        kwargs = kwargs or {}
        name = func.__name__.split('.')[0]
        plain = name.removesuffix('_')
        dtypes = _floating_types(args)
        out = None
        if plain in self._replacements and dtypes == {torch.float32}:
            out = self._replacements[plain](*args, **kwargs)
        if out is None and plain in REPLACEMENTS and dtypes:
            try:
                out = _replaced(REPLACEMENTS[plain], dtypes, args, kwargs)
            except TypeError as error:  # an argument that it does not have, as `out`
                raise NotExact(
                    f'{name}: not known to be exact with these arguments ({error})'
                ) from error
        if out is not None:
            return args[0].copy_(out) if plain != name else out
        if plain in _ALREADY_EXACT:
            return func(*args, **kwargs)
        with self:
            out = func.decompose(*args, **kwargs)
        if out is not NotImplemented:
            return out
        # refused before it runs: a kernel may fail on what a replacement has returned
        out = None if dtypes else func(*args, **kwargs)
        if dtypes or _floating_types([out]):
            raise NotExact(f'{name}: an operation that is not known to be exact')
        return out


def _replaced(function, dtypes: set, args: tuple, kwargs: dict):
    """The result of a replacement, computed in float64, in the widest type of the arguments."""
    if dtypes == {torch.float64}:
        return function(*args, **kwargs)
    args = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, args)
    dtype = max(dtypes, key=lambda dtype: torch.finfo(dtype).bits)
    return tree_map_only(torch.Tensor, lambda x: x.to(dtype), function(*args, **kwargs))


@cache
def _check(device: torch.device) -> None:
    """Raise NotExact unless convolutions and products of whole numbers, the largest for which that
    is promised, are those of int64 arithmetic: a library could transform them (Winograd), or
    compute in fewer bits."""
    with torch._C.DisableTorchFunction():  # no context of the caller's counts
        random = torch.Generator().manual_seed(0)
        most = 1 << factor_bits(32 * 9)
        x, weight = (
            torch.randint(-most, most + 1, shape, generator=random)
            for shape in ((2, 32, 9, 9), (16, 32, 3, 3))
        )
        rows = F.unfold(x.double(), 3, padding=1).long().transpose(1, 2)
        expected = rows @ weight.flatten(1).T  # (2, 81, 16)
        with switches(enabled=False):
            x, weight, rows = (part.to(device, torch.float64) for part in (x, weight, rows))
            maps = F.conv2d(x, weight, padding=1).flatten(2).transpose(1, 2)
            sums = maps, rows @ weight.flatten(1).T
        if not all(torch.equal(part.cpu().long(), expected) for part in sums):
            raise NotExact(f'sums of float64 products on {device} are not exact')


def _floating_types(values) -> set:
    """The floating-point types of the tensors among values, also in lists."""
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in values]
    tensors = [leaf for leaves in lists for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(tensor.is_complex() for tensor in tensors):
        raise NotExact('complex numbers are not known to be exact')
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}


@replaces('_scaled_dot_product_flash_attention_for_cpu')
def _attention(query, key, value, dropout=0.0, causal=False, attn_mask=None, scale=None):
    """(attention, nothing) as torch computes it without a kernel of its own for it."""
    with ExactArithmetic():
        grouped = query.shape[-3] != key.shape[-3]
        out, _ = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout, causal, None, scale=scale, enable_gqa=grouped
        )
    return out, query.new_zeros(0)
