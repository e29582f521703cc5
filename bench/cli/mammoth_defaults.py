"""Mammoth's defaults, where ours make of the same command another method: `--mammoth_defaults
1`.
"""

from pathlib import Path

from core.configs import read_yaml
from core.plugins import is_shipped, normalise


def _table(kind: str) -> dict:
    """Name -> flag -> Mammoth's default. kind: 'methods' or 'data sets'."""
    return read_yaml(Path(__file__).with_suffix('.yaml'))[kind]


def of_method(model) -> dict:
    """flag -> Mammoth's default, of a method's class of ours; of others nothing. None: that of the
    data set; 'required': it has none."""
    return _table('methods').get(normalise(model.NAME), {}) if is_shipped(model) else {}


def of_data(dataset) -> dict:
    """The same of a data set's class, where ours begins with pre-trained weights."""
    if dataset.DEFAULT_WEIGHTS is not None:
        return {}
    return {'weights': 'none', 'backbone': 'resnet18'} | _table('data sets').get(
        normalise(dataset.NAME), {}
    )


def sees_once(model, wanted: bool) -> bool:
    """Return whether a method sees every sample once. wanted: whether Mammoth's defaults are."""
    return model.ONLINE and not (wanted and 'n_epochs' in of_method(model))


def differences(args, model, dataset) -> str:
    """Describe in a line which arguments that were not given would be other in Mammoth; '' for
    methods that it has not. Where its defaults were taken, what it has none for is left."""
    if not is_shipped(model) or normalise(model.NAME) not in _table('methods'):
        return ''
    theirs = of_data(dataset) | of_method(model)
    if args.lr != 0:
        theirs['lr'] = 'required'
    other = [
        f'{flag} {getattr(args, flag)} ({"of the data set" if value is None else value})'
        for flag, value in theirs.items()
        if flag not in args.given and getattr(args, flag) != value
        if value == 'required' or not getattr(args, 'mammoth_defaults', False)
    ]
    if not other:
        return ''
    return f"Mammoth's defaults differ: {', '.join(other)}; --mammoth_defaults 1 takes those it has"
