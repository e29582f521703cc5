"""How long a task is trained: `--fitting_mode`."""
import copy
import math
import time

from utils.errors import UserError
from utils.evaluate import evaluate


def make_fitting(args, model, dataset) -> 'Epochs':
    """The rule that `--fitting_mode` names, for one task."""
    rule = dict(epochs=Epochs, iters=Iterations, time=Minutes, early_stopping=EarlyStopping)[args.fitting_mode]
    return rule(args, model, dataset)


def check_fitting(args) -> None:
    """UserError if the mode lacks what it needs."""
    for mode, flag in (('iters', 'n_iters'), ('time', 'fitting_minutes')):
        given = getattr(args, flag) is not None
        if args.fitting_mode == mode and not given:
            raise UserError(f'--fitting_mode {mode} needs --{flag}')
        if given and args.fitting_mode != mode:
            raise UserError(f'--{flag} has no effect with --fitting_mode {args.fitting_mode}: use --fitting_mode {mode}')


class Epochs:
    """`--n_epochs` passes; the base of the other rules."""

    def __init__(self, args, model, dataset):
        self.args, self.model, self.dataset = args, model, dataset

    def wants_epoch(self, epoch: int) -> bool:
        """Whether another pass, number `epoch` from 0, is to begin."""
        return epoch < self.args.n_epochs

    def wants_batch(self) -> bool:
        """Whether another batch is to be learned; asked before each."""
        return True

    def end_epoch(self, epoch: int) -> None:
        """Called after each pass."""

    def finish(self) -> None:
        """Called after the last pass."""


class Iterations(Epochs):
    """`--n_iters` batches, however many passes that takes."""

    def __init__(self, *given):
        super().__init__(*given)
        self.left = self.args.n_iters

    def wants_epoch(self, epoch):
        return self.left > 0

    def wants_batch(self):
        self.left -= 1
        return self.left >= 0


class Minutes(Epochs):
    """`--fitting_minutes` by the clock; the batch that is being learned is finished."""

    def __init__(self, *given):
        super().__init__(*given)
        self.end = time.monotonic() + 60 * self.args.fitting_minutes

    def wants_epoch(self, epoch):
        return time.monotonic() < self.end

    def wants_batch(self):
        return time.monotonic() < self.end


class EarlyStopping(Epochs):
    """Until the newest task's loss or accuracy, on its test loader, has not improved for `--early_stopping_patience` evaluations;
    at most `--n_epochs` passes. The network of the best evaluation is kept. With `--validation` that loader holds held-out
    training samples; without, the test set chooses, and accuracies are flattered.
    """

    def __init__(self, *given):
        super().__init__(*given)
        self.best, self.without, self.state = -math.inf, 0, None

    def wants_epoch(self, epoch):
        return super().wants_epoch(epoch) and self.without < self.args.early_stopping_patience

    def end_epoch(self, epoch):
        if (epoch + 1) % self.args.early_stopping_freq:
            return
        by_loss = self.args.early_stopping_metric == 'loss'
        *accuracies, loss = evaluate(self.model, self.dataset, last=True, return_loss=True)
        score = -loss if by_loss else accuracies[0][-1]
        if score > self.best + self.args.early_stopping_epsilon:
            self.best, self.without, self.state = score, 0, copy.deepcopy(self.model.net.state_dict())
        else:
            self.without += 1

    def finish(self):
        if self.state is not None:
            self.model.net.load_state_dict(self.state)
