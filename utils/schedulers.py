"""Learning-rate schedulers of a task. Mammoth's others come from the user's checkout
(`core.mammoth`).
"""

import torch


def get_scheduler(model, args, reload_optim: bool = True, loader=(0,)):
    """The scheduler that `--lr_scheduler` names, over the model's optimiser; None without one, or
    for a bare network. `reload_optim` asks Mammoth for a new optimiser; here each task begins with
    a new one. loader: of a pass, for a cosine
    over its batches (`--scheduler_mode iter`)."""
    optimiser = getattr(model, 'opt', None)
    if not args.lr_scheduler or optimiser is None:
        return None
    if args.lr_scheduler == 'multisteplr':
        return torch.optim.lr_scheduler.MultiStepLR(
            optimiser, args.lr_milestones, gamma=args.sched_multistep_lr_gamma
        )
    steps = args.n_epochs
    if args.scheduler_mode == 'iter':
        steps = args.n_iters if args.fitting_mode == 'iters' else steps * len(loader)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(1, steps))
