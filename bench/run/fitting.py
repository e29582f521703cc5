"""How long a task is trained: `--fitting_mode`."""

import copy
import math

from bench.resume.state import Kept
from scroll.ground.errors import InputError
from utils.batch_norm import networks_of
from utils.evaluate import evaluate, is_task_aware


class Fitting(Kept):
    """The rule of one task.

    `epochs`: `--n_epochs` passes. `iters`: `--n_iters` batches, however many passes that takes.
    `early_stopping`: until the newest task's loss or accuracy, on its test loader, has not improved
    for `--early_stopping_patience` evaluations, at most `--n_epochs` passes; the network of the
    best one is kept. With `--validation` that loader holds held-out training samples; without, the
    test set chooses, and accuracies are flattered."""

    NOT_KEPT = 'training', 'model', 'dataset', 'mode'

    def __init__(self, training, model, dataset):
        self.training = training
        self.model = model
        self.dataset = dataset
        self.mode = training.fitting_mode
        self.left = training.n_iters
        self.best = -math.inf
        self.without = 0
        self.network = None

    def wants_epoch(self, epoch: int) -> bool:
        """Return whether another pass, number `epoch` from 0, is to begin."""
        if self.mode == 'iters':
            return self.left > 0
        return (
            epoch < self.training.n_epochs and self.without < self.training.early_stopping_patience
        )

    def end_batch(self) -> bool:
        """Count a batch that was learned; return whether it was the last one."""
        if self.mode == 'iters':
            self.left -= 1
        return self.mode == 'iters' and self.left <= 0

    def end_epoch(self, epoch: int, batches: int) -> None:
        """End a pass of `batches` batches: evaluate where early stopping asks for it."""
        # methods of a raw stream have other batches
        lost = self.training.drop_last and not self.model.RAW_STREAM
        if not batches and (self.mode == 'iters' or lost):
            raise InputError(
                f'task {self.dataset.c_task + 1} has not one whole batch: use a smaller '
                '--batch_size, or --drop_last 0'
            )
        if self.mode == 'early_stopping' and (epoch + 1) % self.training.early_stopping_freq == 0:
            class_il, task_il, loss = evaluate(
                self.model, self.dataset, last=True, return_loss=True
            )
            accuracy = task_il[-1] if is_task_aware(self.model) else class_il[-1]
            score = -loss if self.training.early_stopping_metric == 'loss' else accuracy
            self.without += 1
            if score > self.best + self.training.early_stopping_epsilon:
                self.best = score
                self.without = 0
                networks = networks_of(self.model.net)
                self.network = [copy.deepcopy(network.state_dict()) for network in networks]

    def finish(self) -> None:
        """Restore the best network of early stopping."""
        if self.network is not None:
            for network, state in zip(networks_of(self.model.net), self.network):
                network.load_state_dict(state)
