"""The state of a method as plain data for `torch.load(weights_only=True)`, and back.

The state of a method is its attributes but those of the run (data set, arguments, transforms) and
those that its class names in `TRANSIENT`: plain values, tensors, arrays, and collections of these;
networks; generators; objects with `state_dict` and `load_state_dict`, or whose state is their
attributes; of a loader its place.
"""

import collections
import copy
import types

import numpy as np
import torch
from torch import nn

from scroll.ground.archive import read_errors

KIND = '__kind__'  # key of a packed value that is more than plain data
_OF_THE_RUN = {
    'args',
    'dataset',
    'loss',
    'transform',
    'original_transform',
    'normalization_transform',
    'device',
    'psi_digest',
    *vars(nn.Module()),
}
_PLAIN = (bool, int, float, str, type(None), torch.Size)
_CONSTANT = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    torch.device,
    torch.dtype,
)


class Kept:
    """A part of a run, of which checkpoints keep all attributes but those that its class names in
    `NOT_KEPT`, which a run makes itself when it goes on."""

    def state_dict(self) -> dict:
        return {name: value for name, value in vars(self).items() if name not in self.NOT_KEPT}

    def load_state_dict(self, state: dict) -> None:
        vars(self).update(state)


def load_model_state(model: nn.Module, state: dict, stream=()) -> None:
    """Give a newly built method this state. stream: of `unpack`. InputError if something in it does
    not fit."""
    plain = {name for name, value in vars(model).items() if value is not None}
    registered = True
    for name, packed in state.items():
        registered = registered and name not in plain  # these come last in `members`
        with read_errors(name):
            value = unpack(packed, getattr(model, name, None), model, stream)
            if registered and isinstance(value, torch.Tensor) and not hasattr(model, name):
                model.register_buffer(name, value)  # as a method may do with what it learns
            elif name in model._buffers and value is not None:
                model._buffers[name] = value.to(model.device)
            else:
                setattr(model, name, value)


class Packer:
    """Values -> plain data; numbers are not copied.

    stream: id of an object -> place of this part of the stream.

    Attributes:
        needs: path -> what must be there when the value is unpacked. lost: paths of what cannot be
        kept."""

    def __init__(self, stream: dict | None = None):
        self.needs = {}
        self.lost = []
        self.stream = stream or {}
        self._left = set()
        self._held = {}  # id of a tensor -> itself, attribute and name in it, if of a network

    def members(self, model: nn.Module) -> dict:
        """Attribute name -> plain data."""
        self._left.update(map(id, (model, *(getattr(model, name, None) for name in _OF_THE_RUN))))
        values = model._modules | model._parameters | model._buffers
        values |= {name: value for name, value in vars(model).items() if name not in _OF_THE_RUN}
        return {
            name: self.pack(value, f'model.{name}')
            for name, value in values.items()
            if name not in getattr(model, 'TRANSIENT', ())
        }

    def pack(self, value, path: str):
        """Plain data of one value."""
        try:
            return self._pack(value, path)
        except Exception:  # noqa: BLE001  third-party objects do as they like
            self.lost.append(path)
            return None

    def _pack(self, value, path: str):
        if isinstance(value, np.generic):
            value = value.item()
        if type(value) in _PLAIN:
            return value
        if id(value) in self.stream:
            return {KIND: 'stream', 'place': self.stream[id(value)]}
        if isinstance(value, torch.Tensor):
            if id(value) in self._held:
                _, place = self._held[id(value)]
                if place:
                    return {KIND: 'of a network', 'place': place}
                self.needs[path] = 'Parameter'  # a parameter that is there is filled
                if not isinstance(value, nn.Parameter):
                    self.lost.append(path)  # one tensor in two places would become two
            self._held[id(value)] = value, None
            return _tensor(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            texts = value.dtype.kind in 'US'
            values = value.tolist() if texts else torch.from_numpy(np.require(value, None, 'CW'))
            return {KIND: 'array', 'dtype': value.dtype.str, 'shape': value.shape, 'values': values}
        if type(value) in (list, tuple, set):
            return type(value)(self.pack(item, f'{path}.{i}') for i, item in enumerate(value))
        if isinstance(value, dict):
            # a Counter: the one there is filled
            if type(value) not in (dict, collections.OrderedDict):
                self.needs[path] = type(value).__name__
            return {
                self.pack(key, f'{path}.{key}'): self.pack(item, f'{path}.{key}')
                for key, item in value.items()
            }
        self.needs[path] = f'{type(value).__module__}.{type(value).__qualname__}'
        if isinstance(value, nn.Module):
            tensors = _tensors(value)
            self.needs[path] = [(name, tuple(t.shape)) for name, t in tensors.items()]
            attribute = path.removeprefix('model.')
            if '.' not in attribute:
                self._held |= {id(t): (t, (attribute, name)) for name, t in tensors.items()}
            return {
                KIND: 'module',
                'tensors': {name: _tensor(t) for name, t in tensors.items()},
                'training': [part.training for part in value.modules()],
                'numbers': [  # text may name a device of this machine
                    {
                        name: item
                        for name, item in vars(part).items()
                        if type(item) in (bool, int, float)
                    }
                    for part in value.modules()
                ],
            }
        if isinstance(value, torch.Generator):
            return {KIND: 'state', 'state': value.get_state()}
        if isinstance(value, np.random.Generator):
            return {KIND: 'state', 'state': self.pack(value.bit_generator.state, path)}
        if hasattr(value, 'state_dict') and hasattr(value, 'load_state_dict'):
            if isinstance(value, torch.optim.Optimizer):
                self.needs[path] += f' {[len(group["params"]) for group in value.param_groups]}'
            return {KIND: 'state', 'state': self.pack(value.state_dict(), f'{path}.state_dict')}
        if isinstance(value, _CONSTANT) or id(value) in self._left:
            return {KIND: 'left'}
        self._left.add(id(value))
        if not hasattr(value, '__dict__') or type(value).__reduce__ is not object.__reduce__:
            self.lost.append(path)  # its state is not its attributes
            return {KIND: 'left'}
        return {
            KIND: 'object',
            'values': {
                name: self.pack(part, f'{path}.{name}') for name, part in vars(value).items()
            },
        }


def unpack(packed, present, model: nn.Module, stream=()):
    """Invert `Packer.pack`. present: what stands in its place: objects are filled. model: whose
    device tensors go to, and of whose `net` a network that is not there is a copy: a teacher, as a
    rule. stream: `stream[task][number]`, the parts of the stream."""
    if isinstance(packed, torch.Tensor):
        return _filled(packed, 'cpu', present)
    if isinstance(packed, (list, tuple, set)):
        same = type(present) is type(packed) and len(present) == len(packed)
        known = present if same else [None] * len(packed)
        return type(packed)(
            unpack(item, there, model, stream) for item, there in zip(packed, known)
        )
    if not isinstance(packed, dict):
        return packed
    kind = packed.get(KIND)
    if kind is None:
        known = present if isinstance(present, dict) else {}
        value = {key: unpack(item, known.get(key), model, stream) for key, item in packed.items()}
        if type(known) is dict:
            return value
        known.clear()
        known.update(value)
        return known
    if kind == 'moved':
        return _filled(packed['tensor'], model.device, present)
    if kind == 'stream':
        task, number = packed['place']
        return stream[task][number]
    if kind == 'of a network':
        attribute, name = packed['place']
        return _tensors(getattr(model, attribute))[name]
    if kind == 'array':
        return np.asarray(packed['values']).astype(packed['dtype']).reshape(packed['shape'])
    if kind == 'module':
        return _module(packed, present, model)
    if kind == 'object':
        vars(present).update(
            (name, unpack(value, vars(present).get(name), model, stream))
            for name, value in packed['values'].items()
        )
    elif kind == 'state':
        state = unpack(packed['state'], None, model)
        if isinstance(present, torch.Generator):
            present.set_state(state)
        elif isinstance(present, np.random.Generator):
            present.bit_generator.state = state
        else:
            present.load_state_dict(state)
    return present


def _filled(saved: torch.Tensor, device, present) -> torch.Tensor:
    """A copy, or the parameter that is present, with these numbers: an optimiser may hold it."""
    value = saved.detach().to(device, copy=True)
    if isinstance(present, nn.Parameter) or (
        saved.requires_grad and getattr(present, 'requires_grad', 0)
    ):
        present.data = value.to(present.device)
        value = present
    return value.requires_grad_(saved.requires_grad)


def _module(packed: dict, present, model) -> nn.Module:
    module = present if isinstance(present, nn.Module) else copy.deepcopy(model.net)
    if not isinstance(module, nn.Module):
        raise ValueError('a network that is not there')
    tensors = _tensors(module)
    parts = list(module.modules())
    if list(tensors) != list(packed['tensors']) or len(parts) != len(packed['training']):
        raise ValueError('another network')
    for name, saved in packed['tensors'].items():
        value = saved['tensor'] if isinstance(saved, dict) else saved
        tensor = tensors[name]
        if value.shape != tensor.shape:
            raise ValueError(f'{name} is {tuple(value.shape)}')
        tensor.data.copy_(value.detach())
        if tensor.is_leaf:
            tensor.requires_grad_(value.requires_grad)
    for part, training in zip(parts, packed['training']):
        part.training = training
    for part, numbers in zip(parts, packed.get('numbers', ())):  # before 0.5: none
        vars(part).update(numbers)
    return module


def _tensor(tensor: torch.Tensor):
    """On the CPU, of its own, so that no file holds what it is a view of."""
    plain = tensor.detach().cpu()
    if plain.nbytes != plain.untyped_storage().nbytes():
        plain = plain.clone()
    plain.requires_grad_(tensor.requires_grad and tensor.is_leaf)
    return plain if tensor.device.type == 'cpu' else {KIND: 'moved', 'tensor': plain}


def _tensors(module: nn.Module) -> dict:
    return dict([*module.named_parameters(), *module.named_buffers()])
