"""All that a method has learned, as plain data: what a checkpoint holds, and a test of a method's completeness.

A method need not say what its state is. Every attribute is looked at: networks, optimisers, buffers, generators and whatever
else has `state_dict`; tensors, arrays, numbers, texts, and lists, tuples, sets and dicts of these. What belongs to the run and
not to what was learned (data set, arguments, transforms, loaders, functions) is left out. The result holds nothing but
tensors, numbers, texts, lists and dicts: `torch.load(..., weights_only=True)` reads it, and no code runs.
"""
import copy

import numpy as np
import torch
from torch import nn

from utils.errors import UserError

_NOT_LEARNED = {'args', 'dataset', 'loss', 'transform', 'original_transform', 'normalization_transform', 'device', 'training'}
_PLAIN = (bool, int, float, str, type(None))


def model_state(model: nn.Module) -> dict:
    """The state of a method: attribute name -> plain data."""
    left_out = _NOT_LEARNED.union(vars(nn.Module()), getattr(model, 'TRANSIENT', ()))
    attributes = {name: value for name, value in vars(model).items() if name not in left_out}
    attributes |= {**model._parameters, **model._buffers, **model._modules}
    packed = {name: _pack(value) for name, value in attributes.items()}
    return {name: value for name, value in packed.items() if value is not None}


def load_model_state(model: nn.Module, state: dict) -> None:
    """Give a newly built method the state of another, made with the same arguments.

    Raises:
        UserError: something in it does not fit this method.
    """
    for name, packed in state.items():
        try:
            value = _unpack(packed, getattr(model, name, None), model)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise UserError(f'the saved state does not fit this run: {name} ({" ".join(str(error).split())})') from error
        if name in model._buffers:
            model._buffers[name] = value.to(model.device)
        elif name in model._parameters:
            model._parameters[name].data = value.to(model.device)
        else:
            setattr(model, name, value)


def _pack(value):
    """Plain data of a value, None if it is of a kind that is not learned."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return dict(value=value)
    if isinstance(value, torch.Tensor):
        return dict(tensor=value.detach().cpu().clone())
    if isinstance(value, np.ndarray):
        return dict(array=value.tolist() if value.dtype.kind in 'US' else torch.from_numpy(_signed(value)), dtype=value.dtype.str)
    if isinstance(value, torch.Generator):
        return dict(generator=value.get_state())
    if isinstance(value, np.random.Generator):
        return dict(numpy_generator=_pack(value.bit_generator.state))
    if isinstance(value, nn.Module):
        return dict(module=_pack(dict(value.state_dict())), training=value.training)
    if hasattr(value, 'state_dict'):
        return dict(state=_pack(value.state_dict()))
    if isinstance(value, dict):
        return dict(dict=[[_pack(k), _pack(v)] for k, v in value.items()])
    for kind in (list, tuple, set):
        if isinstance(value, kind):
            items = [_pack(item) for item in value]
            return None if None in items else {kind.__name__: items}
    return None


def _signed(array: np.ndarray) -> np.ndarray:
    """The same bytes as a type that every torch has."""
    if array.dtype.kind == 'u' and array.itemsize > 1:
        array = np.ascontiguousarray(array).view(f'i{array.itemsize}')
    return array


def _unpack(packed: dict, present, model):
    """The value again; what has `load_state_dict` is filled in place, in `present`."""
    kind, content = next(iter(packed.items()))
    if kind == 'value':
        return content
    if kind == 'tensor':
        return content.to(model.device)
    if kind == 'array':
        array = np.array(content) if isinstance(content, list) else content.numpy()
        return array.view(packed['dtype']) if array.dtype.itemsize == np.dtype(packed['dtype']).itemsize else array
    if kind == 'generator':
        present.set_state(content)
        return present
    if kind == 'numpy_generator':
        present.bit_generator.state = _unpack(content, None, model)
        return present
    if kind == 'module':
        present = present if isinstance(present, nn.Module) else copy.deepcopy(model.net)     # a teacher, as a rule
        present.load_state_dict(_unpack(content, None, model))
        return present.train(packed['training'])
    if kind == 'state':
        present.load_state_dict(_unpack(content, None, model))
        return present
    if kind == 'dict':
        known = present if isinstance(present, dict) else {}
        pairs = [(_unpack(k, None, model), v) for k, v in content if v is not None]
        return {k: _unpack(v, known.get(k), model) for k, v in pairs}
    known = present if isinstance(present, (list, tuple)) and len(present) == len(content) else [None] * len(content)
    return dict(list=list, tuple=tuple, set=set)[kind](_unpack(item, old, model) for item, old in zip(content, known))
