"""The whole state of a run between two steps, as plain data and back: a resumed run keeps its bits.

A run is built again from its arguments, the data of its tasks from the random state of that moment;
then method, random streams, scheduler, fitting rule and record get their state
(`bench.resume.state`).
"""

import itertools
import random
import weakref
from typing import NamedTuple

import numpy as np
import torch

from bench.resume.state import Packer, load_model_state, unpack
from scroll.ground.progress import track

_MAX_WRAPPED = 5  # data sets around data sets


class Position(NamedTuple):
    """The place of a run in its stream.

    Attributes:
        task: tasks that have ended. begun: whether the next one has begun; then
        epoch: its passes that have ended. batch: batches of the next pass that were learned."""

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

    parts: name -> what else has a `state_dict` (the record, ...).

    Attributes:
        loader: training loader of the task that was begun last."""

    def __init__(self, model, dataset, args, **parts):
        self.model = model
        self.dataset = dataset
        self.args = args
        self.parts = parts
        self.loader = None
        self.begins = []
        self.pass_start = None
        self.resumed = None
        self.given = dict(vars(args))
        packer = Packer()
        self._places = {}
        packer.members(model)
        self.there = packer.needs

    def next_task(self) -> None:
        """Go on to the next task's data."""
        task = len(self.begins) - 1  # that ended
        parts = self._changed() if self.loader else []
        changed = [value for part in parts for value in part.values()]
        # these are made again; after any other change the parts are no longer those of the task
        if any(type(value) not in (bool, int, torch.device) for value in changed):
            self._places = {place: part for place, part in self._places.items() if place[0] != task}
        self.begins.append(random_state())
        self._make_loaders(task + 1)

    def _make_loaders(self, task: int) -> list:
        """Load the next task's data; return its parts, to which `_places` has references."""
        self.loader, _ = self.dataset.get_data_loaders()
        parts = self._data()
        self.fresh = [dict(vars(part)) for part in parts]
        self._places |= {(task, i): weakref.ref(part) for i, part in enumerate(parts)}
        return parts

    def _data(self) -> list:
        """The training loader, its data set, and what that wraps."""
        parts = []
        part = self.loader
        while hasattr(part, '__dict__') and part is not self.dataset and len(parts) < _MAX_WRAPPED:
            parts = [*parts, part]
            part = vars(part).get('dataset')
        return parts

    def _changed(self) -> list:
        """Per data part, the attributes that a method has replaced."""
        return [
            {
                name: value
                for name, value in vars(part).items()
                if name[0] != '_' and (name not in made or value is not made[name])
            }
            for part, made in zip(self._data(), self.fresh)
        ]

    def _random(self) -> dict:
        """State of all generators that the next batches follow from."""
        return {'run': random_state(), 'parts': part_states(self._in_use())}

    def _set_random(self, state: dict) -> None:
        set_random_state(state['run'])
        set_part_states(self._in_use(), state['parts'], self.model)

    def _in_use(self) -> list:
        return [*self._data(), *self.dataset.test_loaders, self.model.transform]

    def begin_learning(self, **parts) -> tuple:
        """Register what lives as long as a task (scheduler, fitting rule). Returns (passes, batches
        of the next pass) that were already learned."""
        self.parts |= parts
        if self.resumed is None:
            return 0, 0
        state, position = self.resumed
        self._fill(state, parts)
        if not position.batch:
            self.resumed = None
        return position.epoch, position.batch

    def batches(self, limit: int | None = None):
        """Batches of a pass, at most `limit`; of an interrupted one, those not yet learned."""
        if self.resumed is None:
            self.pass_start = self._random()
            return itertools.islice(self.loader, limit)
        (state, position), self.resumed = self.resumed, None
        self.pass_start = state['pass_start']
        self._set_random(self.pass_start)
        iterator = iter(self.loader)
        skipped = itertools.islice(iterator, position.batch)
        quiet = self.args.non_verbose
        for _ in track('Passing over what was learned', skipped, position.batch, quiet=quiet):
            pass
        self._set_random(state['random'])
        return itertools.islice(iterator, limit and limit - position.batch)

    def gather(self, position: Position) -> dict:
        """The state, as plain data. Incomplete if a part could not be put back into a run newly
        begun.
        """
        places = {id(part()): place for place, part in self._places.items() if part() is not None}
        packer = Packer(places)
        edited = {
            name: value
            for name, value in vars(self.args).items()
            if name not in self.given or self.given[name] is not value
        }
        model = packer.members(self.model)
        network = self.there.get('model.net')
        missing = [
            path
            for path, what in packer.needs.items()
            if self.there.get(path) != what and not (what == network and isinstance(what, list))
        ]
        state = {
            'position': list(position),
            'begins': self.begins,
            'random': self._random(),
            'pass_start': self.pass_start if position.batch else None,
            'model': model,
            'data': packer.pack(self._changed(), 'data'),
            'held': self._held(),
            'args': packer.pack(edited, 'args'),
            'parts': {
                name: packer.pack(part.state_dict(), name)
                for name, part in self.parts.items()
                if part is not None
            },
        }
        if packer.lost or missing:
            raise Incomplete(', '.join(list(dict.fromkeys([*packer.lost, *missing]))[:3]))
        return state

    def _held(self) -> list:
        """(places, state) of the parts of each earlier task that are still there: methods may hold
        them.
        """
        alive = {}
        for place, part in self._places.items():
            if place[0] < len(self.begins) - 1 and part() is not None:
                alive.setdefault(place[0], {})[place] = part()
        return [(list(parts), part_states(list(parts.values()))) for parts in alive.values()]

    def restore(self, state: dict) -> Position:
        """Give a run that is newly begun this state."""
        position = Position(*state['position'])
        if (
            len(state['begins']) != position.task + position.begun
            or position.task > self.dataset.N_TASKS
        ):
            raise ValueError(
                f'it was {position}, and has the beginnings of {len(state["begins"])} tasks'
            )
        made = []
        for task, begin in enumerate(state['begins']):
            set_random_state(begin)
            made.append(self._make_loaders(task))
            self.model.revisit_task(self.dataset)
        self.begins = list(state['begins'])
        for part, changed in zip(self._data(), unpack(state['data'], None, self.model, made)):
            vars(part).update(changed)
        for places, own in state['held']:
            set_part_states([made[task][i] for task, i in places], own, self.model)
        load_model_state(self.model, state['model'], made)
        vars(self.args).update(unpack(state['args'], None, self.model))
        self._fill(state, self.parts)
        self._set_random(state['random'])
        if position.begun:
            self.resumed = state, position
        return position

    def _fill(self, state: dict, parts: dict) -> None:
        for name, part in parts.items():
            if part is not None:
                part.load_state_dict(unpack(state['parts'][name], part.state_dict(), self.model))


def part_states(parts: list) -> dict:
    """Counters and generators of loaders, data sets and transforms, as plain data."""
    counters = [
        {
            name: value
            for name, value in getattr(part, '__dict__', {}).items()
            if type(value) in (bool, int)
        }
        for part in parts
    ]
    return {'counters': counters, 'generators': Packer().pack(_generators(parts), 'generators')}


def set_part_states(parts: list, state: dict, model) -> None:
    """Invert `part_states`."""
    unpack(state['generators'], _generators(parts), model)
    for part, own in zip(parts, state['counters'], strict=True):
        if own:
            vars(part).update(own)


def _generators(parts: list) -> list:
    """Generators of these parts and of their transforms."""
    parts = [*parts, *(getattr(part, '__dict__', {}).get('transform') for part in parts)]
    for part in parts:  # which grows by the parts of a `Compose`
        parts += inner if isinstance(inner := getattr(part, 'transforms', None), list) else []
    return [
        value
        for part in parts
        for value in getattr(part, '__dict__', {}).values()
        if isinstance(value, (torch.Generator, np.random.Generator))
    ]


def random_state() -> dict:
    """State of the global generators of python, numpy and torch."""
    name, keys, *rest = np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {
        'python': random.getstate(),
        'numpy': (name, keys.tolist(), *rest),
        'torch': torch.get_rng_state(),
        'cuda': cuda,
    }


def set_random_state(state: dict) -> None:
    """Invert `random_state`."""
    random.setstate(state['python'])
    np.random.set_state(state['numpy'])
    torch.set_rng_state(state['torch'])
    for i in range(min(len(state['cuda']), torch.cuda.device_count())):
        torch.cuda.set_rng_state(state['cuda'][i], i)
