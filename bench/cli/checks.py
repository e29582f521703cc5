"""Consequences of a run's arguments, and refusals: what is refused because it is invalid or would
have no effect. Where one script gives every method the same of Mammoth's flags, those without
effect are only warned of."""

from bench.cli.mammoth_defaults import sees_once
from core.arguments import spellings
from core.environment import warn_once
from scroll.ground.errors import InputError

_OF_TRAINING = {'lr', 'optimizer', 'optim_wd', 'optim_mom', 'optim_nesterov', 'minibatch_size'}
_NEED = (  # a flag; the value that it must have, or any; flags that have no effect without it
    ('optimizer', 'sgd', 'optim_mom optim_nesterov'),
    ('lr_scheduler', '', 'scheduler_mode'),
    ('lr_scheduler', 'multisteplr', 'lr_milestones sched_multistep_lr_gamma'),
    ('fitting_mode', 'iters', 'n_iters'),
    (
        'fitting_mode',
        'early_stopping',
        'early_stopping_patience early_stopping_metric early_stopping_freq early_stopping_epsilon',
    ),
    ('validation', '', 'validation_by validation_mode'),
    ('noise_rate', '', 'noise_type disable_noisy_labels_cache cache_path_noisy_labels'),
    ('savecheck', '', 'ckpt_name save_checkpoint_mode checkpoint_path'),
)


def fill_in(args) -> None:
    """Set what third-party methods read and is not given."""
    if getattr(args, 'minibatch_size', None) is None:
        args.minibatch_size = args.batch_size
    if not hasattr(args, 'buffer_size'):
        args.buffer_size = 0
    args.nowand = 1


def check_flags(args, given: set) -> None:
    """InputError for what no method and no stream can do; `given`: the flags of the command
    line.
    """
    for flag, value, others in _NEED:
        found = getattr(args, flag)
        if found == value or (not value and (found or flag in given)):  # a sweep may begin with 0
            continue
        for other in given.intersection(others.split()):
            warn_once(f'--{other} has no effect in this run: it needs --{flag} {value}'.rstrip())
    if args.fitting_mode == 'iters' and args.lr_scheduler != 'cosine' and 'n_epochs' in given:
        warn_once('--n_epochs has no effect in this run: it needs --fitting_mode epochs')
    by_epoch = args.scheduler_mode == 'epoch' and args.fitting_mode == 'epochs'
    if 'lr_scheduler' in given and by_epoch and args.n_epochs == 1:
        warn_once(
            '--lr_scheduler has no effect in this run: in one pass it needs --scheduler_mode iter'
        )
    if args.fitting_mode == 'iters' and args.n_iters is None:
        raise InputError('--fitting_mode iters needs --n_iters')
    if args.lr_scheduler == 'multisteplr' and not args.lr_milestones:
        raise InputError('--lr_scheduler multisteplr needs --lr_milestones')
    if args.stop_after and (args.start_from or 0) >= args.stop_after:
        raise InputError(
            f'--start_from {args.start_from} --stop_after {args.stop_after}: '
            'nothing is left to train'
        )
    if args.start_from and args.enable_other_metrics:
        raise InputError(
            '--enable_other_metrics needs the accuracies of all tasks: leave out --start_from'
        )
    for flag in ('start_from', 'stop_after', 'enable_other_metrics'):
        if args.joint and getattr(args, flag):
            raise InputError(f'--{flag} has no effect with --joint 1: there is one task only')
    if '/' in (args.ckpt_name or ''):
        raise InputError(
            f'--ckpt_name {args.ckpt_name}: expected a name without folders; the folder is '
            '--checkpoint_path'
        )


def decide_precision(args) -> None:
    """Decide `--precision auto`."""
    exact = getattr(args, 'exact_adaptation', False)
    if args.precision == 'auto':
        from core.environment import get_device
        from scroll.embedding.precision import resolve_precision

        args.precision = 'float32' if exact else resolve_precision('auto', get_device(args.device))


def check_method(model, dataset, args, given: set) -> None:
    """InputError if the method cannot run on this stream, or was given a flag that it has no use
    for.
    """
    for kind, owner in (('model', model), ('dataset', dataset)):
        for flag, why in owner.REFUSED_FLAGS.items():
            message = f'{spellings(flag)[0]} has no effect on --{kind} {getattr(args, kind)}: {why}'
            if flag in given - _OF_TRAINING:
                raise InputError(message)
            if flag in given:
                warn_once(message)
    for owner in (model, dataset):
        if hasattr(owner, 'check_args'):
            owner.check_args(args)
    decide_precision(args)
    if (args.eval_every or args.prequential) and (
        args.n_epochs != 1 or args.fitting_mode != 'epochs'
    ):
        raise InputError(
            '--eval_every and --prequential are for a stream that passes once: give --n_epochs '
            '1, or --eval_epochs'
        )
    task_free = dataset.is_task_free(args)
    compatible = args.force_compat or 'general-continual' in model.COMPATIBILITY
    if task_free and not compatible:
        raise InputError(
            f'--model {args.model} is task-aware (it needs to know where tasks begin), '
            'and this stream has no tasks: use --n_splits, or a method for streams without '
            'tasks (er, der, er-ace, mir, scroll, ...)'
        )
    if task_free or sees_once(model, getattr(args, 'mammoth_defaults', False)):
        what = (
            'a stream without tasks passes once'
            if task_free
            else f'{args.model} sees every sample once'
        )
        for flag, only in (('fitting_mode', 'epochs'), ('n_epochs', 1)):
            if getattr(args, flag) != only:
                raise InputError(
                    f'--{flag} {getattr(args, flag)}: {what}; use {only} or leave the flag out'
                )
