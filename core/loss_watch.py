"""Stop a run whose loss is not finite any more."""
import math
import time

import torch

from scroll.errors import InputError


class Diverged(InputError):
    """A loss is not finite any more; the network cannot predict."""


class LossWatch:
    """Stops a run whose loss is not finite; looks once in a while, since looking makes a GPU wait.

    Attributes:
        mean: of the losses between the last two looks; None before the first.
    """
    _BATCHES, _SECONDS = 100, 0.5

    def __init__(self, where: str):
        self.where, self.mean = where, None
        self._known, self._waiting, self._looked = [], [], time.monotonic()

    def add(self, loss) -> bool:
        """Note what `observe` returned: a number, a tensor, a dict with 'loss', or
        None. Returns whether it looked."""
        loss = loss.get('loss') if isinstance(loss, dict) else loss
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
            (self._known if loss.device.type == 'cpu' else self._waiting).append(loss)
        elif loss is not None:
            self._known.append(float(loss))
        many = len(self._known) + len(self._waiting) >= self._BATCHES
        due = many or time.monotonic() > self._looked + self._SECONDS
        if due:
            self.check()
        return due and self.mean is not None

    def check(self) -> None:
        """Diverged if a loss since the last look is not finite."""
        waited_for = torch.stack(self._waiting).tolist() if self._waiting else []
        losses = [float(loss) for loss in self._known] + waited_for
        if not all(map(math.isfinite, losses)):
            raise Diverged(f'the loss is no longer finite ({self.where}): try a smaller --lr')
        if losses:
            self.mean = sum(losses) / len(losses)
        self._known, self._waiting, self._looked = [], [], time.monotonic()
