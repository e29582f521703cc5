"""What was learned, as plain data and back: tensors, numbers, texts, lists, tuples and dicts; no code.

A method declares its state by its attributes. All are kept, except what belongs to the run (data set,
arguments, functions) and what its class names in `TRANSIENT`: tensors, arrays, plain values and containers of
these; networks, optimisers, buffers and whatever else has `state_dict`; generators; other objects, attribute
by attribute. What is no number is put back into an object that is there already, in a method made with the
same arguments: `Packer.needs` says which these are.

A packed value is plain, or (kind, content, more).
"""
import collections
import copy
import enum
import functools
import io
import itertools
import logging
import pathlib
import re
import types
import zlib

import numpy as np
import torch
from torch import nn

from scroll.errors import InputError

_OF_THE_RUN = {'args', 'dataset', 'loss', 'normalization_transform', 'device', 'training', 'psi_digest'}
_PLAIN = (bool, int, float, str, type(None))
_CONSTANTS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type,
              functools.partial, range, slice, enum.Enum, torch.device, torch.dtype, torch.layout,
              torch.memory_format, np.dtype, np.ufunc, re.Pattern, pathlib.PurePath, logging.Logger)
_OPAQUE = (io.IOBase, collections.abc.Iterator)                     # their position cannot be seen
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_KINDS = {kind.__name__: kind for kind in _SEQUENCES}
_MISFITS = (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, StopIteration)
LARGE, MANY = 2 ** 16, 1000             # bytes of an array, items of a list, worth leaving out if unchanged


def model_state(model: nn.Module) -> dict:
    """The state of a method: attribute name -> plain data."""
    return Packer(model.device).members(model, '')


def load_model_state(model: nn.Module, state: dict) -> None:
    """Give a newly built method this state. InputError if something in it does not fit."""
    Unpacker(model.device, model.net).members(state, model, '')


class Packer:
    """Values -> plain data. An object that is met again is stored once. Numbers are not copied.

    Args:
        device: of the method. shared_references: name -> what is never looked into: the method, the data set.
        marks: path -> `mark` of what need not be stored unless it has changed.

    Attributes:
        needs: path -> what must be there when the state is loaded. lost: paths of what cannot be stored.
        seen: id -> (object, path).
    """

    def __init__(self, device=None, shared_references: dict = None, marks: dict = None):
        self.device, self.marks = torch.device(device or 'cpu'), marks or {}
        self.needs, self.lost = {}, []
        self.seen = {id(thing): (thing, name) for name, thing in (shared_references or {}).items()}

    def members(self, model: nn.Module, path: str) -> dict:
        """Attribute name -> plain data."""
        left_out = _OF_THE_RUN.union(vars(nn.Module()), getattr(model, 'TRANSIENT', ()))
        own = {name: value for name, value in vars(model).items() if name not in left_out}
        attributes = {**model._modules, **model._parameters, **model._buffers, **own}
        return {name: self.pack(value, f'{path}{name}') for name, value in attributes.items()}

    def pack(self, value, path: str):
        """Plain data of one value."""
        try:
            return self._pack(value, path)
        except Exception:                               # third-party objects do as they like
            self.lost.append(path)
            return 'left', None, None

    def _pack(self, value, path: str):
        if isinstance(value, np.generic) and not isinstance(value, np.void):
            value = value.item()
        if isinstance(value, _PLAIN):
            return value
        if id(value) in self.seen:
            return 'same', self.seen[id(value)][1], None
        self.seen[id(value)] = value, path              # kept, so that nothing else gets its id
        if path in self.marks and self.marks[path] == mark(value):
            return 'left', None, None
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            writable = value if value.flags.writeable else value.copy()
            return ('array', value.tolist() if value.dtype.kind in 'US' else torch.from_numpy(writable),
                    value.dtype.str)
        if isinstance(value, nn.Module):
            return self._module(value, path)
        if isinstance(value, dict):
            if type(value) is not dict:                 # a defaultdict, a Counter: the one there is filled
                self.needs[path] = type(value).__name__
            return 'dict', [[self.pack(k, f'{path}.key'), self.pack(v, f'{path}.{k}')]
                            for k, v in value.items()], None
        if type(value) in _SEQUENCES:
            items = [self.pack(item, f'{path}.{i}') for i, item in enumerate(value)]
            return type(value).__name__, items, getattr(value, 'maxlen', None)
        return self._object(value, path)

    def _tensor(self, value) -> tuple:
        return 'tensor', _whole(value.detach().cpu()), dict(
            home=value.device.type == self.device.type, trained=value.requires_grad and value.is_leaf)

    def _module(self, module: nn.Module, path: str) -> tuple:
        tensors = _tensors(module)
        self.seen |= {id(t): (t, f'{path}.{name}') for name, t in tensors.items()}
        self.needs[path] = [(name, tuple(t.shape)) for name, t in tensors.items()]
        own = {name: {key: value for key, value in vars(part).items()       # counters, switches, `training`
                      if isinstance(value, _PLAIN) and not key.startswith('_')}
               for name, part in module.named_modules()}
        return 'module', {name: self._tensor(t) for name, t in tensors.items()}, own

    def _object(self, value, path: str) -> tuple:
        self.needs[path] = f'{type(value).__module__}.{type(value).__qualname__}'
        if isinstance(value, torch.Generator):
            return 'generator', value.get_state(), None
        if isinstance(value, np.random.Generator):
            return 'numpy_generator', self.pack(value.bit_generator.state, f'{path}.state'), None
        if isinstance(value, _CONSTANTS):
            return 'left', None, None
        if hasattr(value, 'state_dict') and hasattr(value, 'load_state_dict'):
            if isinstance(value, torch.optim.Optimizer):
                self.needs[path] += f" {[len(group['params']) for group in value.param_groups]}"
            return 'state', self.pack(value.state_dict(), f'{path}.state_dict'), None
        if isinstance(value, (*_OPAQUE, *_SEQUENCES)) or not hasattr(value, '__dict__'):
            if not path.startswith('loaders'):          # which are made again, and drawn from again
                self.lost.append(path)
            return 'left', None, None
        transient = getattr(type(value), 'TRANSIENT', ())
        return 'object', {name: self.pack(v, f'{path}.{name}') for name, v in vars(value).items()
                          if name not in transient}, None


class Unpacker:
    """The inverse of `Packer`: plain data -> values, and into the objects that are there.

    Args:
        device, net: of the method; a network that is not there is a copy of `net`, a teacher as a rule.
    """

    def __init__(self, device=None, net=None, shared_references: dict = None):
        self.device, self.net = torch.device(device or 'cpu'), net
        self.made = dict(shared_references or {})

    def members(self, state: dict, model: nn.Module, path: str) -> None:
        """Fill a method."""
        for name, packed in state.items():
            value = self.unpack(packed, getattr(model, name, None), f'{path}{name}')
            if name in model._buffers and value is not None:
                model._buffers[name] = value.to(model.device)
            elif name in model._parameters and value is not None:
                model._parameters[name].data = value.detach().to(model.device)
            else:
                setattr(model, name, value)

    def unpack(self, packed, present, path: str):
        """The value again. InputError, which names the path, if it does not fit what is there."""
        try:
            return self._unpack(packed, present, path)
        except _MISFITS as error:
            raise InputError(f'the saved state does not fit this run: {path} '
                             f'({" ".join(str(error).split())[:300]})') from error

    def _unpack(self, packed, present, path: str):
        if isinstance(packed, _PLAIN):
            return packed
        kind, content, more = packed
        if kind == 'same':
            return self.made[content]
        if kind == 'object':                                        # may be met again inside itself
            self.made[path] = present
        if kind == 'left':
            value = present
        elif kind == 'tensor':
            value = self._tensor(content, more, present)
        elif kind == 'array':
            value = np.array(content if isinstance(content, list) else content.numpy(), more)
        elif kind == 'generator':
            present.set_state(content)
            value = present
        elif kind == 'numpy_generator':
            present.bit_generator.state = self._unpack(content, None, f'{path}.state')
            value = present
        elif kind == 'state':
            present.load_state_dict(self._unpack(content, present.state_dict(), f'{path}.state_dict'))
            value = present
        elif kind == 'object':
            own, value = vars(present), present
            for name, part in content.items():
                own[name] = self._unpack(part, own.get(name), f'{path}.{name}')
        elif kind == 'module':
            value = self._module(content, more, present, path)
        elif kind == 'dict':
            known, value = present if isinstance(present, dict) else {}, {}
            for packed_key, part in content:
                key = self._unpack(packed_key, None, f'{path}.key')
                value[key] = self._unpack(part, known.get(key), f'{path}.{key}')
            if type(present) is not dict and isinstance(present, dict):
                present.clear()
                present.update(value)
                value = present
        else:
            same = isinstance(present, (list, tuple, collections.deque)) and len(present) == len(content)
            known = list(present) if same else [None] * len(content)
            items = [self._unpack(item, known[i], f'{path}.{i}') for i, item in enumerate(content)]
            value = collections.deque(items, more) if kind == 'deque' else _KINDS[kind](items)
        self.made[path] = value
        return value

    def _tensor(self, content, more: dict, present):
        value = content.to(self.device if more['home'] else 'cpu', copy=True)   # what is saved stays
        if not more['trained']:
            return value
        fits = isinstance(present, torch.Tensor) and present.requires_grad and present.is_leaf
        if fits and (present.shape, present.dtype) == (content.shape, content.dtype):
            present.data.copy_(content)                             # an optimiser may hold it
            return present
        return value.requires_grad_()

    def _module(self, content: dict, own: dict, present, path: str) -> nn.Module:
        module = present if isinstance(present, nn.Module) else copy.deepcopy(self.net)
        tensors = _tensors(module)
        if list(tensors) != list(content):
            raise ValueError('another network')
        for name, tensor in tensors.items():
            _, value, more = content[name]
            if value.shape != tensor.shape:
                raise ValueError(f'{name} is {tuple(value.shape)}')
            tensor.data.copy_(value)
            if tensor.is_leaf:
                tensor.requires_grad_(more['trained'])
            self.made[f'{path}.{name}'] = tensor
        for name, part in module.named_modules():
            vars(part).update(own[name])
        return module


def checksum(value) -> int:
    """CRC-32 of the numbers in an array or a tensor."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().flatten().view(torch.uint8).numpy()
    return zlib.crc32(np.ascontiguousarray(value) if value.dtype != object else b'')


def mark(value):
    """Tells whether something large has changed: checksum of an array, length of a container; else None."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        plain = isinstance(value, np.ndarray) or value.layout == torch.strided
        return checksum(value) if plain and value.nbytes >= LARGE else None
    long = isinstance(value, (list, tuple, dict, set)) and len(value) > MANY
    return len(value) if long else None


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a view, whose file would hold all that it is a view of."""
    return tensor if tensor.nbytes == tensor.untyped_storage().nbytes() else tensor.clone()


def _tensors(module: nn.Module) -> dict:
    return dict(itertools.chain(module.named_parameters(), module.named_buffers()))
