"""Learning rates that fall along a cosine; further ones than `--lr_scheduler` names, for methods that make their own."""
import math

from torch.optim.lr_scheduler import LambdaLR


class CosineSchedule(LambdaLR):
    """A quarter of a cosine over K steps, as CODA-Prompt has it (Smith et al. 2023): lr cos(0.99 pi/2 t / (K - 1)).

    t = 0 .. K - 1 counts the calls of `step`; the last rate, 1.6 % of the first, stays if there are more.
    """

    def __init__(self, optimizer, K: int):
        self.K = K
        super().__init__(optimizer, self.share)

    def share(self, t: int) -> float:
        """Of the optimiser's learning rate, after `t` steps."""
        return math.cos(0.99 * math.pi / 2 * min(t / max(1, self.K - 1), 1))


class CosineSchedulerWithLinearWarmup(LambdaLR):
    """Up in a line, down along half a cosine to 0 (Loshchilov and Hutter 2017; warm-up of Goyal et al. 2017).

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
