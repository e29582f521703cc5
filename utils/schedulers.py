"""Learning-rate schedulers of a task. Mammoth's others come from the user's checkout
(`core.mammoth`).
"""

import torch


def get_scheduler(model, args, reload_optim: bool = True):
    """The scheduler that `--lr_scheduler` names, over the model's optimiser; None without one, or
    for a bare network. `reload_optim` asks Mammoth for a new optimiser; here each task begins with
    a new one."""
    optimiser = getattr(model, 'opt', None)
    if not args.lr_scheduler or optimiser is None:
        return None
    if args.lr_scheduler == 'multisteplr':
        return torch.optim.lr_scheduler.MultiStepLR(
            optimiser, args.lr_milestones, gamma=args.sched_multistep_lr_gamma
        )
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(1, args.n_epochs))
