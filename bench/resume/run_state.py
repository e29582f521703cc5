"""The whole state of a run between two steps, as plain data and back: an interrupted run keeps its bits.

A run is put together again from its arguments. The data of the tasks it had begun are made again, each from
the random state of that moment; then method, loaders, optimiser, scheduler, fitting rule and record get their
state (`bench.resume.state`). An interrupted pass is started again, and the batches that were learned are
drawn and dropped: so any loader will do.
"""
import dataclasses
import itertools
import random

import numpy as np
import torch

from bench.resume.state import Packer, Unpacker, mark
from scroll.errors import InputError


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a run is.

    Attributes:
        task: tasks that have ended. begun: whether the next one has begun; then
        epoch: its passes that have ended. batch: batches of the next pass that were learned.
    """
    task: int = 0
    epoch: int = 0
    batch: int = 0
    begun: bool = False

    def __str__(self) -> str:
        if not self.begun:
            return f'after task {self.task}' if self.task else 'at the beginning'
        batch = f', after batch {self.batch}' if self.batch else ', at its beginning'
        return f'in task {self.task + 1}, epoch {self.epoch + 1}{batch}'


class Incomplete(Exception):
    """The state of a method cannot be saved in full; its text says what is missing."""


class RunState:
    """Gathers the state of a run and restores it.

    Args:
        parts: name -> whatever else has a state (the record, ...), newly made when a state is restored.

    Attributes:
        loader: training loader of the task that was begun last.
    """

    def __init__(self, model, dataset, args, **parts):
        self.model, self.dataset, self.args, self.parts = model, dataset, args, parts
        self.loader, self.begins, self.fitted, self.pass_start, self.resumed = None, [], {}, None, None
        self.arguments, self.shared = dict(vars(args)), dict(model=model, dataset=dataset, args=args)
        self.marks, packer = {}, Packer(model.device, self.shared)
        packer.members(model, 'model.')
        self.there = packer.needs

    def _pack_loaders(self) -> tuple:
        """(a packer, what it made of the loaders of all tasks so far)."""
        packer = Packer(self.model.device, self.shared, self.marks)
        return packer, packer.pack(self._loaders(), 'loaders')

    def next_task(self) -> None:
        """Go on to the next task's data."""
        self.begins.append(random_state())
        self._make_loaders()

    def _make_loaders(self) -> None:
        self.loader, _ = self.dataset.get_data_loaders()
        self.marks = {}
        packer, _ = self._pack_loaders()
        own = {path: what for path, what in self.there.items() if path.startswith('model')}
        self.there = own | packer.needs
        self.marks = {path: found for thing, path in packer.seen.values()
                      if path.startswith('loaders') and (found := mark(thing)) is not None}

    def _loaders(self) -> list:
        return [self.loader, *self.dataset.test_loaders]

    def begin_learning(self, **parts) -> tuple:
        """Register what lives as long as a task (scheduler, fitting rule).

        Returns (passes, batches of the next pass) that were learned already.
        """
        self.fitted = parts
        if self.resumed is None:
            return 0, 0
        state, unpacker, position = self.resumed
        for name, part in parts.items():
            unpacker.unpack(state[name], part, name)
        if not position.batch:
            self.resumed = None
        return position.epoch, position.batch

    def batches(self, limit: int = None):
        """The batches of a pass, at most `limit`; of an interrupted one, those that were not learned."""
        if self.resumed is None:
            self.pass_start = random_state(), self._pack_loaders()[1]
            return itertools.islice(self.loader, limit)
        (state, unpacker, position), self.resumed = self.resumed, None
        self.pass_start = state['pass_start']
        unpacker.unpack(self.pass_start[1], self._loaders(), 'loaders')
        set_random_state(self.pass_start[0])
        iterator = iter(self.loader)
        for _ in itertools.islice(iterator, position.batch):
            pass
        unpacker.unpack(state['loaders'], self._loaders(), 'loaders')
        set_random_state(state['random'])
        return itertools.islice(iterator, limit and limit - position.batch)

    def gather(self, position: Position) -> dict:
        """The state, as plain data. Incomplete if a part could not be put back into a run newly begun."""
        packer, loaders = self._pack_loaders()
        state = dict(position=list(dataclasses.astuple(position)), begins=self.begins, random=random_state(),
                     marks=self.marks,
                     pass_start=self.pass_start if position.batch else None,
                     loaders=loaders,
                     model=packer.members(self.model, 'model.'),
                     args=packer.pack(self._edited_args(), 'edited'))
        parts = {**self.parts, **(self.fitted if position.begun else {})}
        state |= {name: packer.pack(part, name) for name, part in parts.items()}
        network = self.there.get('model.net')
        missing = [path for path, what in packer.needs.items()
                   if path.split('.')[0] in ('model', 'loaders')
                   and self.there.get(path) != what and not (what == network and isinstance(what, list))]
        if packer.lost or missing:
            raise Incomplete(', '.join(list(dict.fromkeys([*packer.lost, *missing]))[:3]))
        return state

    def _edited_args(self) -> dict:
        """Arguments that the method has changed since it was made."""
        return {name: value for name, value in vars(self.args).items()
                if isinstance(value, (bool, int, float, str, type(None)))
                and (name not in self.arguments or self.arguments[name] != value)}

    def restore(self, state: dict) -> Position:
        """Give a run that is newly begun this state. InputError if it does not fit."""
        try:
            return self._restore(state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise InputError('the saved state does not fit this run '
                             f'({" ".join(str(error).split())[:300]})') from error

    def _restore(self, state: dict) -> Position:
        position = Position(*state['position'])
        if len(state['begins']) != position.task + position.begun or position.task > self.dataset.N_TASKS:
            raise ValueError(f'it was {position}, and has the beginnings of {len(state["begins"])} tasks')
        for begin in state['begins']:
            set_random_state(begin)
            self._make_loaders()
            self.model.revisit_task(self.dataset)
        if state['marks'] != self.marks:
            raise ValueError('the data are not what they were')
        self.begins = list(state['begins'])
        unpacker = Unpacker(self.model.device, self.model.net, self.shared)
        unpacker.unpack(state['loaders'], self._loaders(), 'loaders')
        if position.begun:
            self.resumed = state, unpacker, position
        unpacker.members(state['model'], self.model, 'model.')
        vars(self.args).update(unpacker.unpack(state['args'], None, 'edited'))
        for name, part in self.parts.items():
            if not isinstance(state[name], tuple):
                raise ValueError(f'{name} is a {type(state[name]).__name__}')
            unpacker.unpack(state[name], part, name)
        set_random_state(state['random'])
        return position


def random_state() -> dict:
    """Of the global generators of python, numpy and torch."""
    name, keys, *rest = np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return dict(python=random.getstate(), numpy=(name, keys.tolist(), *rest), torch=torch.get_rng_state(),
                cuda=cuda)


def set_random_state(state: dict) -> None:
    """The inverse of `random_state`."""
    random.setstate(state['python'])
    np.random.set_state(state['numpy'])
    torch.set_rng_state(state['torch'])
    if state['cuda'] and torch.cuda.is_available():
        for i, one in enumerate(state['cuda'][:torch.cuda.device_count()]):
            torch.cuda.set_rng_state(one, i)
