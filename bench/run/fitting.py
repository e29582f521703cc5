"""How long a task is trained: `--fitting_mode`."""
import copy
import math
import time

from scroll.errors import InputError
from utils.evaluate import evaluate, is_task_aware


def make_fitting(training, model, dataset) -> 'Epochs':
    """The rule that `--fitting_mode` names, for one task. training: `bench.run.settings.Training`."""
    rule = dict(epochs=Epochs, iters=Iterations, time=Minutes,
                early_stopping=EarlyStopping)[training.fitting_mode]
    return rule(training, model, dataset)


class Epochs:
    """`--n_epochs` passes; the base of the other rules."""

    TRANSIENT = ('training',)

    def __init__(self, training, model, dataset):
        self.training, self.model, self.dataset = training, model, dataset

    def wants_epoch(self, epoch: int) -> bool:
        """Whether another pass, number `epoch` from 0, is to begin."""
        return epoch < self.training.n_epochs

    def end_batch(self) -> bool:
        """Called after each batch; whether it was the last one."""
        return False

    def end_epoch(self, epoch: int, batches: int) -> None:
        """Called after each pass, which had so many batches."""

    def finish(self) -> None:
        """Called after the last pass."""


class Iterations(Epochs):
    """`--n_iters` batches, however many passes that takes."""

    def __init__(self, *given):
        super().__init__(*given)
        self.left = self.training.n_iters

    def wants_epoch(self, epoch):
        return self.left > 0

    def end_batch(self):
        self.left -= 1
        return self.left <= 0

    def end_epoch(self, epoch, batches):
        if not batches:
            raise InputError(f'--fitting_mode {self.training.fitting_mode}: task {self.dataset.c_task + 1} '
                             'has not one whole batch: use a smaller --batch_size, or --drop_last 0')


class Minutes(Iterations):
    """`--fitting_minutes` by the clock, and one batch at least; a batch that is being learned is finished."""

    def __init__(self, *given):
        super().__init__(*given)
        self.end, self.left = time.monotonic() + 60 * self.training.fitting_minutes, 1

    def end_batch(self):
        self.left = int(time.monotonic() < self.end)
        return not self.left

    def state_dict(self) -> dict:
        """What is left of the time; the clock of another process is another one."""
        return dict(left=self.left, seconds=self.end - time.monotonic())

    def load_state_dict(self, state: dict) -> None:
        """The inverse."""
        self.left, self.end = state['left'], time.monotonic() + state['seconds']


class EarlyStopping(Epochs):
    """Until the newest task's loss or accuracy, on its test loader, has not improved for
    `--early_stopping_patience` evaluations; at most `--n_epochs` passes. The network of the best
    evaluation is kept. With `--validation` that loader holds held-out training samples; without, the test
    set chooses, and accuracies are flattered.
    """

    def __init__(self, *given):
        super().__init__(*given)
        self.best, self.without, self.state = -math.inf, 0, None

    def wants_epoch(self, epoch):
        return super().wants_epoch(epoch) and self.without < self.training.early_stopping_patience

    def end_epoch(self, epoch, batches):
        if (epoch + 1) % self.training.early_stopping_freq:
            return
        class_il, task_il, loss = evaluate(self.model, self.dataset, last=True, return_loss=True)
        accuracy = task_il[-1] if is_task_aware(self.model) else class_il[-1]
        score = -loss if self.training.early_stopping_metric == 'loss' else accuracy
        if score > self.best + self.training.early_stopping_epsilon:
            self.best, self.without, self.state = score, 0, copy.deepcopy(self.model.net.state_dict())
        else:
            self.without += 1

    def finish(self):
        if self.state is not None:
            self.model.net.load_state_dict(self.state)
