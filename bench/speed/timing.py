"""Times that can be trusted on a busy machine, the lines of the table they go into,
and the machine's measured peaks."""
import resource
import subprocess
import time
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode


@dataclass
class Line:
    """A line of the table: what a stage takes, beside what it cannot do without, or what others do instead.

    Attributes:
        stage: what is measured. ours, beside: seconds, or megabytes, as `unit` says; `beside` None: nothing
            stands beside it.
        against: what stands beside it.
        target: largest wanted `ratio`, or, where nothing stands beside it, largest wanted `ours`; None: none
            was set.
        share: of the machine's peak that the stage reaches; None: not asked. peak: which.
    """
    stage: str
    ours: float
    beside: float = None
    against: str = ''
    target: float = None
    unit: str = 's'
    share: float = None
    peak: str = ''

    @property
    def ratio(self):
        """ours / beside: smaller is better."""
        return None if self.beside is None else self.ours / self.beside

    @property
    def met(self):
        """Whether the target is met; None without one."""
        return None if self.target is None else (self.ours if self.beside is None
                                                 else self.ratio) <= self.target


def clock() -> float:
    """Seconds of this process: on one thread its processor time, which other processes
    take no part in, else by the clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def fastest(*functions, rounds: int, seconds=clock) -> list:
    """Seconds of each function: the least of `rounds` calls, taken in turn,
    after one each that does not count."""
    times = [[] for _ in functions]
    for _ in range(rounds + 1):
        for row, function in zip(times, functions):
            began = seconds()
            function()
            row.append(seconds() - began)
    return [min(row[1:]) for row in times]


def of_command(words: list, rounds: int, **options) -> float:
    """Least seconds of a command: its processor time where this process
    measures its own so, else by the clock."""
    def spent():
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime if torch.get_num_threads() == 1 else time.perf_counter()
    return fastest(lambda: subprocess.run(words, check=True, capture_output=True, **options), rounds=rounds,
                   seconds=spent)[0]


def operations(function) -> int:
    """Floating-point operations of the products and convolutions in one call."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def peaks(rounds: int) -> tuple:
    """(float32 operations a second of a matrix product, bytes a second of a copy, read and written)."""
    a, b = torch.randn(2, 1536, 1536)
    source = torch.randn(2 ** 24)
    target = torch.empty_like(source)
    product, copy = fastest(lambda: a @ b, lambda: target.copy_(source), rounds=rounds)
    return 2 * 1536 ** 3 / product, 2 * source.nbytes / copy
