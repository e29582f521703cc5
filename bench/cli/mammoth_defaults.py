"""Mammoth's defaults, where ours make of the same command another method: `--mammoth_defaults 1`."""
from core.plugins import is_shipped, normalise

_OF_METHODS = dict.fromkeys(
    ('agem', 'bic', 'der', 'derpp', 'er', 'ewc-on', 'gem', 'icarl', 'joint', 'lwf', 'sgd'), {}) | {
    'er-ace': dict(task_free=False, n_epochs=None),         # None: that of the data set
    'gdumb': dict(fitting_epochs=256, cutmix_alpha=1.0, lr_decay='restarts', fitting_batch_size=32,
                  optim_mom=0.0, optim_wd=0.0)}
_OF_DATA = {'seq-cifar100': dict(lr_scheduler='multisteplr', lr_milestones=[35, 45])}


def of_method(model) -> dict:
    """flag -> Mammoth's default, of a method's class of ours; of others nothing."""
    return _OF_METHODS.get(normalise(model.NAME), {}) if is_shipped(model) else {}


def of_data(dataset) -> dict:
    """The same of a data set's class, where ours begins with pre-trained weights."""
    if dataset.DEFAULT_WEIGHTS is not None:
        return {}
    return dict(weights='none', backbone='resnet18') | _OF_DATA.get(normalise(dataset.NAME), {})


def sees_once(model, wanted: bool) -> bool:
    """Whether a method sees every sample once. wanted: whether Mammoth's defaults are."""
    return model.ONLINE and not (wanted and 'n_epochs' in of_method(model))


def differences(args, model, dataset) -> str:
    """What of a run's arguments, unless given, would be other in Mammoth, in a line; '' for methods that it
    has not, and where its defaults were taken."""
    if not is_shipped(model) or normalise(model.NAME) not in _OF_METHODS or 'mammoth_defaults' in args:
        return ''
    theirs = {**of_data(dataset), **of_method(model), **({} if args.lr == 0 else dict(lr='required'))}
    other = [f'{flag} {getattr(args, flag)} ({"of the data set" if value is None else value})'
             for flag, value in theirs.items() if flag not in args.given and getattr(args, flag) != value]
    return f"Mammoth's defaults differ: {', '.join(other)}; --mammoth_defaults 1 takes them" * bool(other)
