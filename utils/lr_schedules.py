"""Learning rates that fall along a cosine; further ones than `--lr_scheduler` names, for methods that make their own."""
import math

from torch.optim.lr_scheduler import LambdaLR


class CosineSchedulerWithLinearWarmup(LambdaLR):
    """Up in a line (Goyal et al. 2017), down along half a cosine to 0 (Loshchilov and Hutter 2017, equation 5).

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
