"""One run of a sweep: its command, its row, its log, and the lock that keeps it from running twice.

The lock of a run is a file that its process inherits locked (flock): it is free again when the run's last
process has ended, however that ended, so there are no stale locks, and a sweep finds the runs that a killed
one has left behind. On a cluster it needs a file system with locks of that kind (NFS since version 4 has
them).
"""
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from bench.paper.experiments import Cell, results_rows
from bench.paper.matching import matching_rows
from scroll.errors import InputError


@dataclasses.dataclass(frozen=True)
class Run:
    """A cell with a seed.

    cell: with the flags that the sweep adds. key: the same for runs with the same arguments, whatever their
    experiment. command: words before the flags. threads: of the CPU. log: file that takes what the run
    prints.
    """
    cell: Cell
    seed: int
    key: str
    command: tuple
    threads: int
    log: Path

    def __str__(self):
        return f'{self.cell.row}, {self.cell.column}, seed {self.seed}'

    @property
    def kind(self) -> tuple:
        """Runs of one kind take about the same time."""
        return self.cell.flags['model'], self.cell.flags['dataset']

    @property
    def base_path(self) -> Path:
        return base_path(self.cell.flags)

    def words(self) -> list:
        """The whole command."""
        threads = {} if 'num_threads' in self.cell.flags else dict(num_threads=self.threads)
        return [*self.command, *self.cell.command(self.seed, threads)[1:]]

    def all_rows(self) -> list:
        """Of the results files where the run's row will be."""
        return results_rows(self.base_path, self.cell.flags.get('results_path', 'results/'))

    def row(self, rows: list = None):
        """The row of a finished run with these arguments, or None. rows: where to look, not in the files."""
        rows = self.all_rows() if rows is None else rows
        mine = [row for row in rows if row.get('seed') == str(self.seed)]
        return next(iter(matching_rows(self.cell, mine)), None)

    def start(self, gpu: str = None) -> subprocess.Popen:
        """The run's process, in a group of its own; None if another process has the lock, or there is a row.

        Raises:
            InputError: it cannot be started.
        """
        lock = Lock(self)
        if not lock.take():
            return None
        variables = dict(OMP_NUM_THREADS=str(self.threads), PYTHONUNBUFFERED='1')
        variables |= {} if gpu is None else dict(CUDA_VISIBLE_DEVICES=gpu)
        try:
            if self.row():  # looked at under the lock: nobody is about to write it
                return None
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log, 'ab') as log:                       # what earlier tries said stays
                log.write(f'$ {shlex.join(self.words())}\n'.encode())
                log.flush()
                process = subprocess.Popen(self.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           start_new_session=True, env={**os.environ, **variables},
                                           pass_fds=(lock.file,))
            lock.write(host=socket.gethostname(), sweep=os.getpid(), run=process.pid, gpu=gpu,
                       began=time.time())
        except OSError as error:
            raise InputError(f'{self}: cannot be started ({error.strerror}: {error.filename})') from error
        finally:
            lock.release()
        return process

    def last_line(self) -> str:
        """What the run said last."""
        try:
            with open(self.log, 'rb') as log:
                log.seek(-min(4096, os.fstat(log.fileno()).st_size), os.SEEK_END)
                lines = log.read().decode(errors='replace').split('\n')
        except OSError as error:
            return f'no log: {error.strerror}'
        line = next((line.strip() for line in reversed(lines) if line.strip()), '$')
        return 'it printed nothing' if line.startswith('$') else line

    def failure(self, code: int) -> str:
        """Why there is no row, from the exit code and the log; empty if there is one."""
        if code:
            why = f'ended by {signal.Signals(-code).name}' if code < 0 else f'exit code {code}'
            return f'{why}: {self.last_line()}'
        return '' if self.row() else f'left no row among the results: {self.last_line()}'


class Lock:
    """The lock of a run. Its file says who has it, since when: host, pids of sweep and run, gpu, began."""

    def __init__(self, run: Run):
        self.path, self.file = run.base_path / 'sweeps' / 'locks' / run.key, None

    def take(self) -> bool:
        """Whether it was free; from now on processes that inherit `file` have it, too."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f'{self.path} cannot be written ({error.strerror}): '
                             'choose another --base_path') from error
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        os.truncate(self.file, 0)
        return True

    def write(self, **about) -> None:
        os.pwrite(self.file, json.dumps(about).encode(), 0)

    def read(self) -> dict:
        """What its holder has written; empty if there is none, or if it was killed before it could."""
        try:
            return json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}

    def is_free(self) -> bool:
        free = self.take()
        self.release()
        return free

    def release(self) -> None:
        if self.file is not None:
            os.close(self.file)
            self.file = None


def base_path(flags: dict) -> Path:
    """Where runs with these flags have data and results."""
    return Path(flags.get('base_path', './data/'))


def key(arguments: dict, seed: int) -> str:
    """A name for a run with these arguments."""
    text = json.dumps(sorted((name, str(value)) for name, value in arguments.items()))
    return hashlib.sha256(f'{seed} {text}'.encode()).hexdigest()[:24]


def end(processes: dict, grace: float = 60) -> None:
    """End processes, by force after `grace` seconds their groups: time for a step and a checkpoint.

    processes: pid -> function: does it still live? Each is the leader of its group.
    """
    for ask, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
        until = time.monotonic() + grace
        for pid, alive in processes.items():
            if alive():
                with contextlib.suppress(ProcessLookupError):       # it may have ended in between
                    ask(pid, number)
        while time.monotonic() < until and any(alive() for alive in processes.values()):
            time.sleep(0.05)
