"""Constants of a data set from `datasets/configs/<dataset>/<name>.yaml`, which are set on the instance."""
import functools
import inspect
import math
import reprlib

from core.configs import dataset_config
from core.plugins import keyword_flags, nearest
from scroll.errors import InputError

CONSTANTS = ('SETTING', 'N_CLASSES_PER_TASK', 'N_TASKS', 'SIZE', 'N_CLASSES', 'AVAIL_SCHEDS', 'MEAN', 'STD',
             'TRANSFORM', 'TEST_TRANSFORM')


def _counts(value) -> bool:
    """A positive whole number, or a list of some."""
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(type(v) is int and 0 < v <= 10 ** 6 for v in values)


def _levels(value) -> bool:
    """A number, or a list of one for each channel."""
    values = value if isinstance(value, list) else [value]
    return len(values) in (1, 3) and all(type(v) in (int, float) and math.isfinite(v) for v in values)


_EXPECTED = {       # constant -> what it is to be, and whether a value is
    'N_TASKS': ('a positive whole number', lambda value: _counts(value) and not isinstance(value, list)),
    'N_CLASSES': ('a positive whole number', lambda value: _counts(value) and not isinstance(value, list)),
    'N_CLASSES_PER_TASK': ('a positive whole number, or a list of some', _counts),
    'SIZE': ('a list of two whole numbers',
             lambda value: _counts(value) and isinstance(value, list) and len(value) == 2),
    'MEAN': ('a number, or a list of three', _levels),
    'STD': ('a number above 0, or a list of three',
            lambda value: _levels(value)
            and all(v > 0 for v in (value if isinstance(value, list) else [value]))),
    'SETTING': ('a name', lambda value: isinstance(value, str)),
}


def split_config(values: dict) -> tuple:
    """(constants of the data set, defaults of flags): the two kinds of keys of a config file."""
    constants = {name: value for name, value in values.items() if name in CONSTANTS}
    for name, value in constants.items():
        wanted, holds = _EXPECTED.get(name, ('', lambda value: True))
        if not holds(value):
            raise InputError(f'data-set config: {name} is {reprlib.repr(value)}; expected {wanted}')
    return constants, {name: value for name, value in values.items() if name not in CONSTANTS}


def build(kind, args):
    """A data set, from its class or function; its constructor finds the constants of the config file."""
    given = {name: getattr(args, name) for name in keyword_flags(kind) if hasattr(args, name)}
    if not isinstance(kind, type):
        return kind(args, **given)
    values, source = dataset_config(getattr(args, 'dataset', kind.NAME),
                                    getattr(args, 'dataset_config', None))
    constants = {name: _value(name, value, source) for name, value in split_config(values)[0].items()}
    for name in getattr(kind, 'FIXED_BY_DATA', ()):
        if constants.pop(name, known := getattr(kind, name, None)) != known:
            raise InputError(f'{source}: {name}: the data of {kind.NAME} say it is {known}; leave it out')
    dataset = kind.__new__(kind)
    vars(dataset).update(constants)
    _tell_static_methods(dataset, constants)
    dataset.__init__(args, **given)
    return dataset


def _tell_static_methods(dataset, constants: dict) -> None:
    """Replace static methods, which name their class and so cannot see constants of the instance, by what
    the contract says."""
    if constants.keys().isdisjoint(('MEAN', 'STD', 'TRANSFORM')):
        return                                          # and nobody waits for torchvision
    from torchvision.transforms import Compose, Normalize, ToPILImage

    from datasets.transforms.denormalization import DeNormalize
    replacements = {}
    if 'MEAN' in constants or 'STD' in constants:
        levels = dataset.MEAN, dataset.STD
        replacements = dict(get_normalization_transform=functools.partial(Normalize, *levels),
                            get_denormalization_transform=functools.partial(DeNormalize, *levels))
    if 'TRANSFORM' in constants:
        replacements['get_transform'] = functools.partial(Compose, [ToPILImage(), dataset.TRANSFORM])
    for name, replacement in replacements.items():
        if isinstance(inspect.getattr_static(dataset, name, None), staticmethod):
            vars(dataset)[name] = replacement


def _value(name: str, value, source: str):
    if name in ('TRANSFORM', 'TEST_TRANSFORM'):
        return composed(value, f'{source}: {name}')
    if name in ('MEAN', 'STD'):
        return tuple(value) if isinstance(value, list) else (value,) * 3
    return tuple(value) if name == 'SIZE' else value


def composed(steps, source: str):
    """A torchvision transform from a list of names, or of `{Name: {parameter: value}}`.

    `RandomApply` takes its `transforms` as such a list.

    Raises:
        InputError: torchvision has no such transform, or it refuses the parameters.
    """
    from torchvision import transforms
    made = []
    for step in steps if isinstance(steps, list) else [steps]:
        named = isinstance(step, dict) and len(step) == 1
        name, parameters = next(iter(step.items())) if named else (step, {})
        kind = getattr(transforms, name, None) if isinstance(name, str) else None
        if not isinstance(kind, type):
            known = [n for n in dir(transforms) if n[0].isupper()]
            raise InputError(f'{source}: torchvision has no transform {name!r}; {nearest(str(name), known)}')
        parameters = dict(parameters or {})
        if name == 'RandomApply' and 'transforms' in parameters:
            parameters['transforms'] = composed(parameters['transforms'], source).transforms
        try:
            made.append(kind(**parameters))
        except (TypeError, ValueError) as error:
            raise InputError(f'{source}: {name}: {error}') from error
    return transforms.Compose(made)
