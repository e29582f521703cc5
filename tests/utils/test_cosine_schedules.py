"""Learning rates along a cosine."""
import math

import pytest
import torch

from utils.schedulers import CosineSchedule, CosineSchedulerWithLinearWarmup


def rates(make, steps, lrs=(0.5,)):
    """(steps, groups): what each step is taken with."""
    optimiser = torch.optim.SGD([dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=lr) for lr in lrs],
                                lr=1)
    schedule, out = make(optimiser), []
    for _ in range(steps):
        out.append([group['lr'] for group in optimiser.param_groups])
        optimiser.step()
        schedule.step()
    return out


def test_half_a_cosine_in_each_group_then_nothing():
    seen = rates(lambda o: CosineSchedule(o, K=4), 7, (0.5, 2.0))
    shares = [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0, 0]
    assert [row[0] for row in seen] == pytest.approx([0.5 * share for share in shares])
    assert [row[1] for row in seen] == pytest.approx([2.0 * share for share in shares])
    assert rates(lambda o: CosineSchedule(o, 1), 1) == [[0.5]]


def test_warm_up_then_half_a_cosine_as_torch_has_it():
    seen = [row[0] for row in rates(lambda o: CosineSchedulerWithLinearWarmup(o, 4, 14), 17)]
    assert seen[:5] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    torchs = rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10), 10)
    assert seen[4:14] == pytest.approx([row[0] for row in torchs]) and seen[14:] == [0, 0, 0]
