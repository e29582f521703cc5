"""A buffer with an equal share for each task, in which the newest samples of the task
stay (Chaudhry et al. 2021, HAL)."""
import numpy as np

from scroll.errors import InputError
from utils.buffer import Buffer
from utils.sample_selection import Selection


class Ring(Selection):
    """Rows in turn, from `start` on, |M| / T of them: the oldest sample of the present task goes.

    Attributes:
        task: its number. start: first row of its ring. offered: samples offered since it began.
    """
    REMEMBERED = ('task', 'start', 'offered')

    def __init__(self, buffer, n_tasks: int):
        super().__init__(buffer)
        self.n_tasks, self.share = n_tasks, buffer.buffer_size // n_tasks
        self.task = self.start = self.offered = 0

    def __call__(self, count, labels, scores):
        if self.buffer.is_empty():
            self.start = self.offered = 0
        self.offered += count
        return self.start + np.arange(self.offered - count, self.offered) % self.share

    def begin(self, task: int) -> None:
        """A new ring behind the rows that are taken."""
        if not 0 <= task < self.n_tasks:
            raise InputError(f'task_number {task}: the ring buffer was made for {self.n_tasks} tasks, from 0 '
                             'on')
        self.task, self.start, self.offered = task, len(self.buffer), 0


class RingBuffer(Buffer):
    """`utils.buffer.Buffer` as a ring for each of `n_tasks` tasks.

    Attributes:
        task_number: the present task, from 0; setting another one leaves the samples of the earlier ones as
            they are.
    """

    def __init__(self, buffer_size: int, device='cpu', n_tasks: int = 1, **options):
        if not 1 <= n_tasks <= buffer_size:
            raise InputError(f'--buffer_size {buffer_size}: a ring buffer for {n_tasks} tasks needs at least '
                             f'{max(1, n_tasks)}')
        super().__init__(buffer_size, device, **options)
        self.sample_selection_strategy, self.sample_selection_fn = 'ring', Ring(self, n_tasks)

    @property
    def task_number(self) -> int:
        return self.sample_selection_fn.task

    @task_number.setter
    def task_number(self, task: int) -> None:
        if task != self.task_number:
            self.sample_selection_fn.begin(task)
