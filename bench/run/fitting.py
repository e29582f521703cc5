"""How long a task is trained: `--fitting_mode`."""
import copy
import math

from scroll.errors import InputError
from utils.evaluate import evaluate, is_task_aware


def make_fitting(args, model, dataset) -> 'Epochs':
    """The rule that `--fitting_mode` names, for one task."""
    rules = dict(epochs=Epochs, iters=Iterations, early_stopping=EarlyStopping)
    return rules[args.fitting_mode](args, model, dataset)


class Epochs:
    """`--n_epochs` passes; the base of the other rules.

    Attributes:
        progress: what a checkpoint keeps of it.
    """

    def __init__(self, args, model, dataset):
        self.args, self.model, self.dataset, self.progress = args, model, dataset, {}

    def wants_epoch(self, epoch: int) -> bool:
        """Whether another pass, number `epoch` from 0, is to begin."""
        return epoch < self.args.n_epochs

    def end_batch(self) -> bool:
        """Called after each batch; whether it was the last one."""
        return False

    def end_epoch(self, epoch: int, batches: int) -> None:
        """Called after each pass, with its number of batches."""

    def finish(self) -> None:
        """Called after the last pass."""

    def state_dict(self) -> dict:
        """How far it is."""
        return self.progress

    def load_state_dict(self, state: dict) -> None:
        """The inverse."""
        self.progress = state


class Iterations(Epochs):
    """`--n_iters` batches, however many passes that takes."""

    def __init__(self, args, model, dataset):
        super().__init__(args, model, dataset)
        self.progress = dict(left=args.n_iters)

    def wants_epoch(self, epoch):
        return self.progress['left'] > 0

    def end_batch(self):
        self.progress['left'] -= 1
        return self.progress['left'] <= 0

    def end_epoch(self, epoch, batches):
        if not batches:
            raise InputError(f'--fitting_mode {self.args.fitting_mode}: task {self.dataset.c_task + 1} '
                             'has not one whole batch: use a smaller --batch_size, or --drop_last 0')


class EarlyStopping(Epochs):
    """Until the newest task's loss or accuracy, on its test loader, has not improved for
    `--early_stopping_patience` evaluations; at most `--n_epochs` passes. The network of the best
    evaluation is kept. With `--validation` that loader holds held-out training samples; without, the test
    set chooses, and accuracies are flattered.
    """

    def __init__(self, args, model, dataset):
        super().__init__(args, model, dataset)
        self.progress = dict(best=-math.inf, without=0, network=None)

    def wants_epoch(self, epoch):
        return super().wants_epoch(epoch) and self.progress['without'] < self.args.early_stopping_patience

    def end_epoch(self, epoch, batches):
        if (epoch + 1) % self.args.early_stopping_freq:
            return
        class_il, task_il, loss = evaluate(self.model, self.dataset, last=True, return_loss=True)
        accuracy = task_il[-1] if is_task_aware(self.model) else class_il[-1]
        score = -loss if self.args.early_stopping_metric == 'loss' else accuracy
        if score > self.progress['best'] + self.args.early_stopping_epsilon:
            self.progress = dict(best=score, without=0, network=copy.deepcopy(self.model.net.state_dict()))
        else:
            self.progress['without'] += 1

    def finish(self):
        if self.progress['network'] is not None:
            self.model.net.load_state_dict(self.progress['network'])
