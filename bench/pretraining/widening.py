"""Start a wide network from a narrow, trained one, computing the same (Net2Net, Chen et al. 2016)."""
import torch
from torch import nn


def widened(tensors: dict, wide: nn.Module, generator: torch.Generator) -> dict:
    """Tensors for `wide`, with k times the channels of `tensors`, that give the same features, repeated.

    Channel c of the narrow network becomes channels c, c + C, c + 2C, ... Whatever reads them shares its
    weight among the copies in random parts that sum to one: the function stays, and the copies, being read
    differently, learn different things.

    Args:
        tensors: state-dict name -> tensor of the narrow network's features. wide: a network of the same kind,
            without regard to its head. generator: of the parts.

    Raises:
        ValueError: a tensor is missing, or a size is no whole multiple.
    """
    wanted = {name: t for name, t in wide.state_dict().items() if name in tensors}
    missing = [name for name, t in wide.state_dict().items()
               if name not in tensors and not name.startswith('classifier.')
               and not name.endswith('num_batches_tracked')]
    unfit = [name for name, t in wanted.items() if t.dim() != tensors[name].dim() or
             any(new % old for new, old in zip(t.shape, tensors[name].shape))]
    for names, what in ((missing, 'is missing'), (unfit, 'is no whole multiple of the narrow one'),
                        (sorted(set(tensors) - set(wanted)), 'is not part of the wide network')):
        if names:
            raise ValueError(f'{names[0]} {what}')
    return {name: _grown(tensors[name], t.shape, generator) for name, t in wanted.items()}


def _grown(narrow: torch.Tensor, shape, generator) -> torch.Tensor:
    """A weight (out, in, ...) or a vector (out,) of the given shape."""
    grown = narrow.repeat(*(new // old for new, old in zip(shape, narrow.shape)))
    if narrow.dim() < 2 or shape[1] == narrow.shape[1]:
        return grown
    copies = shape[1] // narrow.shape[1]
    parts = torch.rand(shape[0], copies, narrow.shape[1], generator=generator)
    parts = (parts / parts.sum(dim=1, keepdim=True)).reshape(shape[0], shape[1])
    return grown * parts.view(*parts.shape, *[1] * (narrow.dim() - 2))
