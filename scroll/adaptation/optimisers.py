"""torch's optimisers without its compiler.

`Optimizer.step` and three methods more import torch._dynamo and sympy when they are first called,
1.5 to 2 seconds, to tell a compiler that it must not see them. A subclass made here calls what they
wrap: the same steps, to the last bit.
"""

import inspect
from functools import cache

import torch


@cache
def eager(kind: type) -> type:
    """The subclass of a `torch.optim.Optimizer` whose methods import no compiler."""
    methods = {
        name: inspect.unwrap(getattr(kind, name))
        for name in ('step', 'zero_grad', 'add_param_group', 'state_dict', 'load_state_dict')
    }
    methods['step'] = torch.no_grad()(methods['step'])
    return type(kind.__name__, (kind,), methods)
