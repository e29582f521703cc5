"""Stop a run whose loss is not finite any more."""

import math
import time

import torch

from scroll.ground.errors import InputError


class Diverged(InputError):
    """A loss is not finite any more; the network cannot predict."""


class LossWatch:
    """Stops a run whose loss is not finite; checks every so often: a check synchronises the GPU.
    mean: of the losses between the last two checks; None before the first."""

    _SECONDS = 0.5

    def __init__(self, where: str):
        self.where = where
        self.mean = None
        self._losses = []
        self._checked = time.monotonic()

    def add(self, loss) -> bool:
        """Note what `observe` returned: a number, a tensor, a tuple that begins with one, a dict
        with 'loss', or None. Returns whether it was checked."""
        loss = loss.get('loss') if isinstance(loss, dict) else loss
        loss = loss[0] if isinstance(loss, tuple) else loss  # of forks: the loss, its parts
        if loss is not None:
            self._losses.append(
                loss.detach().float().mean() if isinstance(loss, torch.Tensor) else loss
            )
        due = time.monotonic() > self._checked + self._SECONDS
        if due:
            self.check()
        return due and self.mean is not None

    def check(self) -> None:
        """Diverged if a loss since the last check is not finite."""
        losses = [float(loss) for loss in self._losses]
        if not all(map(math.isfinite, losses)):
            raise Diverged(f'the loss is no longer finite ({self.where}): try a smaller --lr')
        if losses:
            self.mean = sum(losses) / len(losses)
        self._losses = []
        self._checked = time.monotonic()
