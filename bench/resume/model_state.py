"""All that a run has learned, as plain data: what a checkpoint holds, and a test of a method's completeness.

A method need not say what its state is. Every attribute is looked at: networks, optimisers, buffers,
generators and whatever else has `state_dict`; tensors, arrays, numbers, texts; lists, tuples, sets and dicts
of these; and objects of any other class, attribute by attribute. What belongs to the run and not to what was
learned (data set, arguments, functions) is left out. The result holds nothing but tensors, numbers, texts,
lists and dicts: `torch.load(..., weights_only=True)` reads it, and no code runs. It is put back into objects
that are there already, made with the same arguments: `Packer.needs` says which these are.
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

_NOT_LEARNED = {'args', 'dataset', 'loss', 'normalization_transform', 'device', 'training', 'psi_digest'}
_PLAIN = (bool, int, float, str, type(None))
_CONSTANTS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type,
              functools.partial, range, slice, enum.Enum, torch.device, torch.dtype, torch.layout,
              torch.memory_format, np.dtype, np.ufunc, re.Pattern, pathlib.PurePath, logging.Logger)
_RANDOM = (torch.Generator, np.random.Generator)
_HANDLES = (io.IOBase, collections.abc.Iterator)                    # where they stand cannot be seen
_SEQUENCES = dict(list=list, tuple=tuple, set=set, frozenset=frozenset)
_WHOLE = 'whole'                        # mark of what is not looked into
_MANY = 1000  # items of a list that is taken for unchanged if it is as long as it was
_LARGE = 2 ** 16                        # bytes of an array that is worth referring to


def model_state(model: nn.Module) -> dict:
    """The state of a method: attribute name -> plain data."""
    return Packer(model.device).members(model, '')


def load_model_state(model: nn.Module, state: dict) -> None:
    """Give a newly built method the state of another, made with the same arguments.

    Raises:
        InputError: something in it does not fit this method.
    """
    Unpacker(model.device, model.net).members(state, model, '')


class Packer:
    """Values -> plain data. What is met twice is stored once.

    Args:
        device: of the method; tensors elsewhere stay on the CPU when they are unpacked.
        known: `landmarks`, things that are there when the state is unpacked: they are referred to, unless
            they have changed.
        light: leave out arrays, tensors and networks.

    Attributes:
        needs: path -> what must be there when the state is unpacked. lost: paths of what has a state that
            cannot be seen.
        seen: id -> (value, path) of all that was packed.
    """

    def __init__(self, device=None, known: dict = None, light: bool = False):
        self.device, self.light = torch.device(device or 'cpu'), light
        self.known = {id(thing): (path, thing, mark) for path, (thing, mark) in (known or {}).items()}
        self.needs, self.lost, self.seen, self._inside = {}, [], {}, 0

    def members(self, model: nn.Module, path: str) -> dict:
        """Attribute name -> plain data of all that a method has learned."""
        left_out = _NOT_LEARNED.union(vars(nn.Module()), getattr(model, 'TRANSIENT', ()))
        own = {name: value for name, value in vars(model).items() if name not in left_out}
        attributes = {**model._modules, **model._parameters, **model._buffers, **own}
        return {name: self.pack(value, f'{path}{name}') for name, value in attributes.items()}

    def pack(self, value, path: str) -> dict:
        """Plain data of one value."""
        if isinstance(value, np.generic) and not isinstance(value, np.void):
            value = value.item()
        if isinstance(value, _PLAIN):
            return dict(value=value)
        if id(value) in self.seen:
            return dict(same=self.seen[id(value)][1])
        numbers = isinstance(value, (torch.Tensor, np.ndarray)) and value.dtype != object
        if not (numbers and self.light) and id(value) in self.known and self._unchanged(value):
            return dict(known=self.known[id(value)][0], mark=self.known[id(value)][2])
        self.seen[id(value)] = value, path
        if numbers:
            return dict(left=None) if self.light else self._numbers(value)
        if isinstance(value, nn.Module):
            return self._needing(value, path) if self.light else self._module(value, path)
        if isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            return self._container(value, path)
        return self._object(value, path)

    def _unchanged(self, value) -> bool:
        """Whether a known thing is as it was: arrays by checksum, long lists by length, opaque always."""
        mark = self.known[id(value)][2]
        if isinstance(value, (torch.Tensor, np.ndarray)):
            return mark == checksum(value)
        if isinstance(value, (list, tuple, dict, set)):
            return len(value) > _MANY and mark == len(value)
        unseen = isinstance(value, _HANDLES) or not hasattr(value, '__dict__')
        return mark == _WHOLE or (unseen and not isinstance(value, (*_RANDOM, *_CONSTANTS)))

    def _numbers(self, value) -> dict:
        if isinstance(value, torch.Tensor):
            return dict(tensor=value.detach().cpu().clone(), home=value.device.type == self.device.type,
                        trained=value.requires_grad and value.is_leaf)
        text = value.dtype.kind in 'US'
        return dict(array=value.tolist() if text else torch.from_numpy(value.copy()), dtype=value.dtype.str)

    def _module(self, module: nn.Module, path: str) -> dict:
        tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        self.seen |= {id(tensor): (tensor, f'{path}.{name}') for name, tensor in tensors.items()}
        state = module.state_dict()
        self.needs[path] = [(name, tuple(t.shape)) for name, t in state.items()
                            if isinstance(t, torch.Tensor)]
        # buffers that are not persistent
        more = {name: tensor for name, tensor in module.named_buffers() if name not in state}
        own = {name: numbers for name, part in module.named_modules() if (numbers := _own_numbers(part))}
        return dict(module=self.pack(dict(state), f'{path}.state_dict'),
                    modes=[part.training for part in module.modules()],
                    more=[[name, self._numbers(t)] for name, t in more.items()], own=own,
                    trained=[p.requires_grad for p in module.parameters()])

    def _container(self, value, path: str) -> dict:
        if type(value) not in (dict, list, tuple, set, frozenset):
            self.needs[path] = _name(value)
        if isinstance(value, dict):
            return dict(dict=[[self.pack(k, f'{path}.key'), self.pack(v, f'{path}.{k}')]
                              for k, v in value.items()])
        kind = next((name for name, kind in _SEQUENCES.items() if isinstance(value, kind)), 'list')
        return {kind: [self.pack(item, f'{path}.{i}') for i, item in enumerate(value)]}

    def _object(self, value, path: str) -> dict:
        packed = self._needing(value, path)
        if isinstance(value, _CONSTANTS):
            return packed
        if isinstance(value, torch.Generator):
            return dict(generator=value.get_state())
        if isinstance(value, np.random.Generator):
            return dict(numpy_generator=self.pack(value.bit_generator.state, f'{path}.state'))
        if hasattr(value, 'state_dict') and hasattr(value, 'load_state_dict'):
            if isinstance(value, torch.optim.Optimizer):
                self.needs[path] += f" {[len(group['params']) for group in value.param_groups]}"
            self._inside += 1
            state = dict(state=self.pack(value.state_dict(), f'{path}.state_dict'))
            self._inside -= 1
            return state
        if isinstance(value, _HANDLES) or not hasattr(value, '__dict__'):
            self.lost.append(path)
            return packed
        transient = getattr(type(value), 'TRANSIENT', ())
        return dict(object={name: self.pack(v, f'{path}.{name}') for name, v in vars(value).items()
                            if name not in transient})

    def _needing(self, value, path: str) -> dict:
        """What can only be filled, or left as it is, where there is one; `state_dict` gives the rest."""
        self.needs[path] = _name(value)
        if self._inside:
            self.lost.append(path)
        return dict(left=None)


class Unpacker:
    """The inverse of `Packer`: plain data -> values, and into the objects that are there.

    Args:
        device, net: of the method; a network that is not there is a copy of `net`, a teacher as a rule.
        known: as the packer's, made from the things that are there now.
        in_place: write into arrays that are there.
    """

    def __init__(self, device=None, net=None, known: dict = None, in_place: bool = False):
        self.device, self.net = torch.device(device or 'cpu'), net
        self.known, self.in_place = known or {}, in_place
        self.made = {}

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

    def unpack(self, packed: dict, present, path: str):
        """The value again. InputError, which names the path, if it does not fit what is there."""
        try:
            return self._unpack(packed, present, path)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError,
                StopIteration) as error:
            raise InputError(f'the saved state does not fit this run: {path} '
                             f'({" ".join(str(error).split())[:300]})') from error

    def _unpack(self, packed: dict, present, path: str):
        kind, content = next(iter(packed.items()))
        if kind == 'same':
            return self.made[content]
        if kind == 'known':
            thing, mark = self.known[content]
            if mark != packed['mark']:
                raise ValueError('the data are not what they were')
            self.made[path] = thing
            return thing
        if kind in ('dict', 'object', 'module', 'state', 'list'):
            value = getattr(self, f'_{kind}')(packed, content, present, path)
        elif kind in _SEQUENCES:
            value = _SEQUENCES[kind](self._items(content, present, path))
            if isinstance(present, tuple) and hasattr(present, '_fields'):
                value = type(present)(*value)
        else:
            value = self._leaf(kind, packed, content, present, path)
        self.made[path] = value
        return value

    def _leaf(self, kind: str, packed: dict, content, present, path: str):
        if kind == 'value':
            return content
        if kind == 'left':
            return present
        if kind == 'tensor':
            return self._tensor(packed, content, present)
        if kind == 'array':
            return self._array(packed, content, present)
        if kind == 'generator':
            present.set_state(content)
        elif kind == 'numpy_generator':
            present.bit_generator.state = self._unpack(content, None, f'{path}.state')
        else:
            raise KeyError(f'{kind}: not known')
        return present

    def _tensor(self, packed: dict, content, present):
        alike = isinstance(present, torch.Tensor) and _form(present) == _form(content)
        if alike and (self.in_place or (packed.get('trained') and present.requires_grad and present.is_leaf)):
            present.data.copy_(content)                             # an optimiser may hold it
            return present
        value = content.to(self.device) if packed.get('home', True) else content
        return value.requires_grad_() if packed.get('trained') else value

    def _array(self, packed: dict, content, present) -> np.ndarray:
        value = np.array(content, packed['dtype']) if isinstance(content, list) else content.numpy()
        if self.in_place and isinstance(present, np.ndarray) and _form(present) == _form(value):
            np.copyto(present, value)
            return present
        return value

    def _module(self, packed: dict, content, present, path: str) -> nn.Module:
        module = present if isinstance(present, nn.Module) else copy.deepcopy(self.net)
        module.load_state_dict(_Plain().unpack(content, None, f'{path}.state_dict'))
        tensors = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
        for name, saved in packed['more']:
            tensors[name].data = self._tensor(saved, saved['tensor'], None)
        self.made |= {f'{path}.{name}': tensor for name, tensor in tensors.items()}
        for part, training in zip(module.modules(), packed['modes']):
            part.training = training
        for name, part in module.named_modules():
            vars(part).update(packed['own'].get(name, {}))
        for parameter, trained in zip(module.parameters(), packed['trained']):
            parameter.requires_grad_(trained)
        return module

    def _state(self, packed: dict, content, present, path: str):
        present.load_state_dict(_Plain().unpack(content, None, f'{path}.state_dict'))
        return present

    def _object(self, packed: dict, content: dict, present, path: str):
        self.made[path] = present
        own = vars(present)
        for name, part in content.items():
            own[name] = self._unpack(part, own.get(name), f'{path}.{name}')
        return present

    def _dict(self, packed: dict, content: list, present, path: str) -> dict:
        value = present if isinstance(present, dict) and type(present) is not dict else {}
        known, self.made[path] = dict(present) if isinstance(present, dict) else {}, value
        pairs = [(self._unpack(k, None, f'{path}.key'), v) for k, v in content]
        value.clear()
        value.update({k: self._unpack(v, known.get(k), f'{path}.{k}') for k, v in pairs})
        return value

    def _list(self, packed: dict, content: list, present, path: str):
        # a plain list is made anew, one of a class of its own (or a deque) is filled
        kept = isinstance(present, (list, collections.deque)) and type(present) is not list
        value = present if kept else []
        items, self.made[path] = self._items(content, present, path), value
        value.clear()
        value.extend(items)
        return value

    def _items(self, content: list, present, path: str) -> list:
        same = isinstance(present, (list, tuple, collections.deque)) and len(present) == len(content)
        known = list(present) if same else [None] * len(content)
        return [self._unpack(item, old, f'{path}.{i}') for i, (item, old) in enumerate(zip(content, known))]


class _Plain(Unpacker):
    """For `load_state_dict`, which puts tensors where they belong."""

    def _tensor(self, packed, content, present):
        return content


def landmarks(name: str, thing, whole: dict = None) -> dict:
    """path -> (thing, mark) of all inside a thing of this name that can be referred to (`Packer(known=...)`).

    To be called when it is new, since a reference is to what another run has when it is new.

    Args:
        whole: name -> what is not looked into: the method, the data set, ...
    """
    marks = {name: (part, _WHOLE) for name, part in (whole or {}).items()}
    packer = Packer(known=marks, light=True)
    packer.pack(thing, name)
    for value, path in packer.seen.values():
        if not isinstance(value, (torch.Tensor, np.ndarray)):
            marks[path] = value, len(value) if isinstance(value, (list, tuple, dict, set)) else None
        elif value.nbytes >= _LARGE:
            marks[path] = value, checksum(value)
    return marks


def checksum(value) -> int:
    """CRC-32 of the numbers in an array or a tensor."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().flatten().view(torch.uint8).numpy()
    return zlib.crc32(np.ascontiguousarray(value) if value.dtype != object else b'')


def _form(value) -> tuple:
    """Shape and dtype of an array or a tensor."""
    return value.shape, value.dtype


def _own_numbers(module: nn.Module) -> dict:
    """What a layer keeps in plain attributes: counters, switches."""
    return {name: value for name, value in vars(module).items() if name != 'training'
            and isinstance(value, _PLAIN)
            and not name.startswith('_')}


def _name(value) -> str:
    return f'{type(value).__module__}.{type(value).__qualname__}'
