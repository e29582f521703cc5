"""Learning-rate schedulers of a task."""
import torch

from utils.lr_schedules import CosineSchedule, CosineSchedulerWithLinearWarmup  # noqa: F401  foreign files take them from here


def get_scheduler(model, args, reload_optim: bool = True):
    """The scheduler that `--lr_scheduler` names, over the model's optimiser; None without one, or for a bare network.

    `reload_optim` asks Mammoth to make the optimiser anew; here each task begins with a new one, and what a method put in its
    place stays.
    """
    optimiser = getattr(model, 'opt', None)
    if not args.lr_scheduler or optimiser is None:
        return None
    if args.lr_scheduler == 'multisteplr':
        return torch.optim.lr_scheduler.MultiStepLR(optimiser, args.lr_milestones, gamma=args.sched_multistep_lr_gamma)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(1, args.n_epochs))
