"""The whole state of a run between two steps, as plain data, and back: an interrupted run keeps its bits.

A run is put together anew from its arguments; the data of the tasks it had begun are made again, each from
the random state of that moment; then method, loaders, optimiser, scheduler, fitting rule and record get their
state (`model_state`). Inside a pass the loader starts it again, and the batches that were learned are drawn
and dropped: so any loader will do.
"""
import dataclasses
import itertools
import random

import numpy as np
import torch

from bench.resume.model_state import Packer, Unpacker, landmarks
from scroll.errors import InputError


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a run stands.

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
    """The state of a method cannot be had in full; its text says what is missing."""


class RunState:
    """Gathers the state of a run and restores it.

    Args:
        parts: name -> whatever else has a state: the record, ... They exist, newly made, when a state is
            restored.

    Attributes:
        loader: training loader of the task that was begun last.
    """

    def __init__(self, model, dataset, args, **parts):
        self.model, self.dataset, self.args, self.parts = model, dataset, args, parts
        self.loader, self.begins, self.fitted, self.pass_start, self.resumed = None, [], {}, None, None
        self.arguments, self.whole = dict(vars(args)), dict(model=model, dataset=dataset, args=args)
        self.known, self.there, self.unseen = landmarks('args', args, self.whole), {}, None
        self._look(lambda packer: packer.members(model, 'model.'))

    def _look(self, pack, light: bool = False) -> None:
        """Note what there is in something new. What cannot be looked at is no reason to end a run."""
        packer = Packer(self.model.device, self.known, light)
        try:
            pack(packer)
            self.there |= packer.needs
        except Exception as error:          # third-party objects do as they like
            self.unseen = f'{type(error).__name__}: {error}'

    def next_task(self) -> None:
        """Go on to the next task's data."""
        self.begins.append(random_state())
        self._make_loaders()

    def _make_loaders(self) -> None:
        """Make them, and look at them while they are new."""
        old = len(self.dataset.test_loaders)
        self.loader, _ = self.dataset.get_data_loaders()
        self.known = {path: mark for path, mark in self.known.items() if path.split('.')[0] != 'loader'}
        self.there = {path: what for path, what in self.there.items() if path.split('.')[0] != 'loader'}
        tests = {f'test_loaders.{i}': loader for i, loader in enumerate(self.dataset.test_loaders)
                 if i >= old}
        for name, loader in {'loader': self.loader, **tests}.items():
            self._look(lambda packer, name=name, loader=loader: packer.pack(loader, name), light=True)
            if self.unseen is None:
                self.known |= landmarks(name, loader, self.whole)

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
            fresh = Packer(self.model.device, self.known, light=True)
            self.pass_start = dict(random=random_state(), loader=fresh.pack(self.loader, 'loader'))
            return itertools.islice(self.loader, limit)
        (state, _, position), self.resumed = self.resumed, None
        self.pass_start = state['pass_start']
        Unpacker(self.model.device, known=self.known).unpack(self.pass_start['loader'], self.loader, 'loader')
        set_random_state(self.pass_start['random'])
        iterator = iter(self.loader)
        for _ in itertools.islice(iterator, position.batch):
            pass
        unpacker = Unpacker(self.model.device, known=self.known, in_place=True)
        unpacker.unpack(state['loader'], self.loader, 'loader')
        set_random_state(state['random'])
        return itertools.islice(iterator, limit and limit - position.batch)

    def gather(self, position: Position) -> dict:
        """The state, as plain data.

        Raises:
            Incomplete: a part of it could not be put back into a run that is newly begun.
        """
        if self.unseen is not None:
            raise Incomplete(self.unseen)
        packer = Packer(self.model.device, self.known)
        state = dict(position=list(dataclasses.astuple(position)), begins=self.begins, random=random_state(),
                     pass_start=self.pass_start if position.batch else None)
        if position.begun:
            state |= dict(loader=packer.pack(self.loader, 'loader'))
        state |= dict(test_loaders=packer.pack(self.dataset.test_loaders, 'test_loaders'),
                      model=packer.members(self.model, 'model.'),
                      args=packer.pack(self._edited_args(), 'args'))
        parts = {**self.parts, **(self.fitted if position.begun else {})}
        state |= {name: packer.pack(part, name) for name, part in parts.items()}
        network = self.there.get('model.net')
        missing = [path for path, what in packer.needs.items()
                   if path.split('.')[0] in ('model', 'loader', 'test_loaders')
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
            raise ValueError(f'it stood {position}, and has the beginnings of {len(state["begins"])} tasks')
        for begin in state['begins']:
            set_random_state(begin)
            self._make_loaders()
            self.model.revisit_task(self.dataset)
        self.begins, unpacker = list(state['begins']), Unpacker(self.model.device, self.model.net, self.known)
        if position.begun:
            unpacker.unpack(state['loader'], self.loader, 'loader')
            self.resumed = state, unpacker, position
        unpacker.unpack(state['test_loaders'], self.dataset.test_loaders, 'test_loaders')
        unpacker.members(state['model'], self.model, 'model.')
        vars(self.args).update(unpacker.unpack(state['args'], None, 'args'))
        for name, part in self.parts.items():
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
