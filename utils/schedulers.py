"""Learning-rate schedulers of a task; further ones along a cosine, for methods that make their own."""
import math

import torch
from torch.optim.lr_scheduler import LambdaLR


def get_scheduler(model, args, reload_optim: bool = True):
    """The scheduler that `--lr_scheduler` names, over the model's optimiser; None
    without one, or for a bare network.

    `reload_optim` asks Mammoth to make the optimiser anew; here each task begins with a new one, and
    what a method replaced it with stays.
    """
    optimiser = getattr(model, 'opt', None)
    if not args.lr_scheduler or optimiser is None:
        return None
    if args.lr_scheduler == 'multisteplr':
        return torch.optim.lr_scheduler.MultiStepLR(optimiser, args.lr_milestones,
                                                    gamma=args.sched_multistep_lr_gamma)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(1, args.n_epochs))


class CosineSchedulerWithLinearWarmup(LambdaLR):
    """Up in a line (Goyal et al. 2017), down along half a cosine to 0
    (Loshchilov and Hutter 2017, equation 5).

    Args:
        warmup_steps: w; step t < w has the share (t + 1) / (w + 1) of the learning rate.
        total_steps: T; from w on it is (1 + cos(pi (t - w) / (T - w))) / 2, and 0 from T on.
    """

    def __init__(self, optimizer, warmup_steps: int, total_steps: int):
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        super().__init__(optimizer, self.share)

    def share(self, t: int) -> float:
        """Of the optimiser's learning rate, after `t` steps."""
        if t < self.warmup_steps:
            return (t + 1) / (self.warmup_steps + 1)
        progress = (t - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        return (1 + math.cos(math.pi * min(progress, 1))) / 2


class CosineSchedule(CosineSchedulerWithLinearWarmup):
    """Down along half a cosine over K steps, without warm-up."""

    def __init__(self, optimizer, K: int):
        super().__init__(optimizer, 0, K)
