"""Learning-rate schedulers of a task."""
import torch


def get_scheduler(model, args):
    """The scheduler that `--lr_scheduler` names, over the model's optimiser; None without one."""
    optimiser = getattr(model, 'opt', None)
    if not args.lr_scheduler or optimiser is None:
        return None
    if args.lr_scheduler == 'multisteplr':
        return torch.optim.lr_scheduler.MultiStepLR(optimiser, args.lr_milestones, gamma=args.sched_multistep_lr_gamma)
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=max(1, args.n_epochs))
