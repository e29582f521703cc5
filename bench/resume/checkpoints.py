"""Checkpoints on the way: the same command resumes an interrupted run, bit for bit.

A run with a results file keeps its newest checkpoint in `<base_path>/unfinished/`, under a name
that follows from its arguments: every `--checkpoint_every` minutes, between two batches or tasks.
It is removed when the row and the files that were asked for are written. What is killed within a
step is learned again.
"""

import contextlib
import hashlib
import json
import os
import pickle
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import torch

from bench.resume.run_state import Incomplete, Position, RunState
from core.arguments import FREE, affects
from core.commands import Interrupted, on_stop
from core.mammoth import PACKAGES, checkout
from core.plugins import MAMMOTH, ROOT
from core.torch_files import load_torch
from datasets.utils.scheduled_dataset import ScheduledDataset
from scroll.ground.archive import atomic_write, read_errors, sha256, take_lock
from scroll.ground.errors import InputError
from scroll.ground.grid import little_endian
from utils import to_parsable_obj


class Checkpoints:
    """The checkpoints of one run; a context, in which SIGINT and SIGTERM, unless ignored, ask for a
    checkpoint and an end.

    state: of the run. arguments: name -> value, as the run began."""

    def __init__(self, state: RunState, args, arguments: dict):
        self.state = state
        self.args = args
        self.every = 60 * args.checkpoint_every
        self.active = self.every > 0 and not args.disable_log
        self.catches = self.active and args.save_after_interrupt
        name = f'{args.model}-{args.dataset}-{_digest(args, arguments)}.pt'
        self.path = Path(args.base_path) / 'unfinished' / name
        self.lock = None  # the open file that has it
        self.about = _about(state) if self.active else None
        self.last = time.monotonic()
        self.stop = None
        self._ending = contextlib.ExitStack()
        self._process = os.getpid()

    def __enter__(self):
        if self.catches and threading.current_thread() is threading.main_thread():
            self._ending.enter_context(on_stop(self._on_signal))
        return self

    def __exit__(self, kind, *error):
        with self._ending:
            hint = self.resume_hint()
            self._release()
        if kind is KeyboardInterrupt and self.active:
            raise Interrupted(f'interrupted; {hint}', 128 + (self.stop or signal.SIGINT))

    def _on_signal(self, number: int, frame) -> None:
        if os.getpid() != self._process:  # a loader's worker: its run will end it
            return
        again = self.stop is not None and number == signal.SIGINT
        self.stop = self.stop or number
        if again or getattr(self.state.model, 'adapting', False):  # which may take minutes
            raise KeyboardInterrupt
        print('stopping after this step; Ctrl-C stops at once', file=sys.stderr, flush=True)

    def restore(self):
        """Resume the interrupted run with these arguments, and say so: its `Position`; None without
        one. InputError: code, weights, data or versions have changed since."""
        if not (self.active and self.path.exists() and self._locked()):
            return None
        if self.args.resume == 'never':
            self.path.unlink()
            return None
        try:
            content = load_torch(self.path)
        except InputError as error:
            print(f'{error}; the run starts over')
            return None
        with read_errors(f'{self.path} (--resume never starts over)'):
            was = content['about']
            now = self.about
            changed = [name for name, old in was.items() if now.get(name, old) != old]
            if changed and self.args.resume != 'always':
                raise InputError(
                    'a run with these arguments was interrupted, and since then this changed: '
                    f'{", ".join(changed[:3])}; --resume always continues it all the same'
                )
            position = self.state.restore(content['state'])
        print(f'continuing the interrupted run {position} (--resume never starts over)', flush=True)
        return position

    def due(self) -> bool:
        """Return whether it is time for a checkpoint, or a signal has asked for an end."""
        return self.stop is not None or (self.active and time.monotonic() - self.last >= self.every)

    def save(self, position: Position, last: bool = False) -> None:
        """Write a checkpoint. Interrupted if a signal has asked for an end. last: all that remains
        of the run are its row and files: without a checkpoint it goes on to these."""
        saved = self.active and self._locked() and self._write(position)
        if self.stop is not None and (saved or not last):
            raise Interrupted(f'stopped {position}; {self.resume_hint()}', 128 + self.stop)

    def _write(self, position: Position) -> bool:
        self.state.parts['record'].tell_total()
        try:
            write(self.path, {'about': self.about, 'state': self.state.gather(position)})
        except Incomplete as error:
            self._give_up(f'{self.state.model.NAME} keeps what no checkpoint can hold ({error})')
        except OSError as error:
            self._give_up(f'{self.path} cannot be written ({error.strerror})')
        self.last = time.monotonic()
        return self.active

    def _give_up(self, why: str) -> None:
        self.active = False
        print(
            f'warning: no more checkpoints: {why}; after an interruption {self.resume_hint()}',
            file=sys.stderr,
        )

    def resume_hint(self) -> str:
        """Say what rerunning the command would do."""
        if self.lock is not None and self.path.exists():
            return 'the same command goes on from the last checkpoint'
        return 'the same command starts over: there is no checkpoint'

    def _locked(self) -> bool:
        """Return whether this run has the lock: of several at work with one name, one has."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.lock is None:
                self.lock = take_lock(self._lock_file, wait=False)
            if self.lock is None:
                self._give_up('another run with these arguments is at work')
        except OSError as error:
            self._give_up(f'{self.path.parent} cannot be written ({error.strerror})')
        return self.active

    def finished(self) -> None:
        """The row is written: the next run with these arguments is a new one."""
        if self.lock is not None:
            self.path.unlink(missing_ok=True)
            self._lock_file.unlink(missing_ok=True)
            self._release()

    @property
    def _lock_file(self) -> Path:
        return self.path.with_suffix('.lock')

    def _release(self) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None


def write(path: Path, content: dict) -> None:
    """Write plain data. OSError if that cannot be."""
    try:
        with atomic_write(path) as file:
            torch.save(content, file)
    except (RuntimeError, pickle.PicklingError) as error:  # of torch, whose file is full
        raise OSError(0, ' '.join(str(error).split())) from error


def _digest(args, arguments: dict) -> str:
    """12 hex digits of all that a run's row and files follow from, and of the kind of device."""
    fixed = {name: value for name, value in arguments.items() if affects(args, name) not in FREE}
    fixed |= {'device': str(arguments.get('device')).split(':')[0]}
    text = json.dumps(to_parsable_obj(fixed), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _about(state: RunState) -> dict:
    """Collect what a run's bits follow from besides its arguments."""
    model = state.model
    dataset = state.dataset
    about = {
        'torch': str(torch.__version__),
        'numpy': np.__version__,
        'device': model.device.type,
        'weights': model.psi_digest,
    }
    about |= code_digests()
    if isinstance(dataset, ScheduledDataset):  # of others the data are not known
        data = [zlib.crc32(little_endian(array)) for array in dataset.images[:4]]
        about |= {'schedule': dataset.schedule.digest(), 'data': data}
    digest = getattr(getattr(model, 'embedder', None), 'digest', '')
    if digest:
        about |= {'how features are computed': digest}  # floats: also the machine
    return about


def code_digests() -> dict:
    """File -> digest, of the modules in use of this project and of the user's Mammoth checkout."""
    used = {getattr(module, '__file__', None) for module in list(sys.modules.values())}
    return {name: sha256(path) for name, path in _modules() if str(path) in used}


def project_digest() -> str:
    """SHA-256 of all modules of this project and of the user's Mammoth checkout, in use or not."""
    digests = [(name, sha256(path)) for name, path in _modules()]
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def _modules() -> list:
    """(name, path) of all modules of this project and of the user's Mammoth checkout, sorted."""
    return sorted(
        (f'{prefix}{path.relative_to(root)}', path)
        for root, prefix in ((ROOT, ''), (checkout(), MAMMOTH))
        if root
        for package in (*PACKAGES, 'bench', 'core', 'scroll', 'exact_torch')
        for path in (root / package).rglob('*.py')
    )
