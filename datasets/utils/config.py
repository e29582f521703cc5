"""Constants of a data set from `datasets/configs/<dataset>/<name>.yaml`, set on the instance."""

import functools
import inspect
import re
import reprlib
from contextlib import contextmanager

from core.configs import dataset_config
from core.plugins import keyword_flags
from scroll.ground.errors import InputError, did_you_mean

_WHOLE = r'[1-9]\d{0,5}'
_REAL = r'-?\d+(\.\d+)?(e-?\d+)?'
_POSITIVE = r'(?=[^,\]]*[1-9])\d+(\.\d+)?(e-?\d+)?'
_CONSTANTS = {  # name: (a pattern of the value in Python, in words)
    'N_TASKS': (_WHOLE, 'a positive whole number'),
    'N_CLASSES': (_WHOLE, 'a positive whole number'),
    'N_CLASSES_PER_TASK': (
        rf'{_WHOLE}|\[{_WHOLE}(, {_WHOLE})*\]',
        'a positive whole number, or a list of some',
    ),
    'SIZE': (rf'\[{_WHOLE}, {_WHOLE}\]', 'a list of two whole numbers'),
    'SETTING': ("'.*'", 'a name'),
    'MEAN': (rf'{_REAL}|\[{_REAL}(, {_REAL}, {_REAL})?\]', 'a number, or a list of three'),
    'STD': (
        rf'{_POSITIVE}|\[{_POSITIVE}(, {_POSITIVE}, {_POSITIVE})?\]',
        'a number above 0, or a list of three',
    ),
    **dict.fromkeys(('AVAIL_SCHEDS', 'TRANSFORM', 'TEST_TRANSFORM'), ('.*', '')),
}


# errors of torchvision, huggingface_hub, gdown and others, as far as they are no OSError
_NO_DATA = re.compile('download|corrupt|connection|not found|http|error above', re.IGNORECASE)


@contextmanager
def data_errors(name: str):
    """Turn an error that says that data are missing, or cannot be fetched, into an InputError."""
    try:
        yield
    except (InputError, ImportError, BrokenPipeError):
        raise
    except Exception as error:
        text = f'{type(error).__name__}: {" ".join(str(error).split())}'
        if not isinstance(error, OSError) and not _NO_DATA.search(text):
            raise
        raise InputError(
            f'--dataset {name}: its files cannot be read or downloaded ({text}); --base_path '
            'says where they are'
        ) from error


def split_config(values: dict) -> tuple:
    """(constants of the data set, defaults of flags): the two kinds of keys of a config file."""
    constants = {name: value for name, value in values.items() if name in _CONSTANTS}
    for name, value in constants.items():
        pattern, expected = _CONSTANTS[name]
        if not re.fullmatch(pattern, repr(value), re.DOTALL):
            raise InputError(
                f'data-set config: {name} is {reprlib.repr(value)}; expected {expected}'
            )
    return constants, {name: value for name, value in values.items() if name not in constants}


def build(kind, args):
    """Build a data set from its class or function, with the constants of its config file."""
    flags = {name: getattr(args, name) for name in keyword_flags(kind) if hasattr(args, name)}
    if not isinstance(kind, type):
        with data_errors(args.dataset):
            return kind(args, **flags)
    source, values, _ = dataset_config(args.dataset, args.dataset_config)
    constants = {
        name: _value(name, value, source) for name, value in split_config(values)[0].items()
    }
    for name in getattr(kind, 'FIXED_BY_DATA', ()):
        fixed = getattr(kind, name, None)
        if constants.pop(name, fixed) != fixed:
            raise InputError(
                f'{source}: {name}: the data of {kind.NAME} say it is {fixed}; leave it out'
            )
    dataset = kind.__new__(kind)
    vars(dataset).update(constants)
    _replace_static_methods(dataset, constants)
    with data_errors(args.dataset):
        dataset.__init__(args, **flags)
    return dataset


def _replace_static_methods(dataset, constants: dict) -> None:
    """Static methods name their class and so cannot see constants of the instance: replace them."""
    if constants.keys().isdisjoint(('MEAN', 'STD', 'TRANSFORM')):
        return  # importing torchvision takes seconds
    from torchvision.transforms import Compose, Normalize, ToPILImage

    from datasets.transforms.denormalization import DeNormalize

    replacements = {}
    if 'MEAN' in constants or 'STD' in constants:
        levels = dataset.MEAN, dataset.STD
        replacements = {
            'get_normalization_transform': functools.partial(Normalize, *levels),
            'get_denormalization_transform': functools.partial(DeNormalize, *levels),
        }
    if 'TRANSFORM' in constants:
        steps = [ToPILImage(), dataset.TRANSFORM]
        replacements['get_transform'] = functools.partial(Compose, steps)
    for name, replacement in replacements.items():
        if isinstance(inspect.getattr_static(dataset, name, None), staticmethod):
            vars(dataset)[name] = replacement


def _value(name: str, value, source: str):
    if name in ('TRANSFORM', 'TEST_TRANSFORM'):
        return composed(value, f'{source}: {name}')
    if name in ('MEAN', 'STD') and not isinstance(value, list):
        return (value,) * 3
    return tuple(value) if name in ('MEAN', 'STD', 'SIZE') else value


def composed(steps, source: str):
    """A torchvision transform from a list of names, or of `{Name: {parameter: value}}`.

    `RandomApply` takes its `transforms` as such a list. InputError: torchvision has no such
    transform, or it refuses the parameters."""
    from torchvision import transforms

    made = []
    for step in steps if isinstance(steps, list) else [steps]:
        named = isinstance(step, dict) and len(step) == 1
        name, parameters = next(iter(step.items())) if named else (step, {})
        kind = getattr(transforms, name, None) if isinstance(name, str) else None
        if not isinstance(kind, type):
            hint = did_you_mean(name, [n for n in dir(transforms) if n[0].isupper()])
            raise InputError(f'{source}: torchvision has no transform {name!r}{hint}')
        parameters = dict(parameters or {})
        if name == 'RandomApply' and 'transforms' in parameters:
            parameters['transforms'] = composed(parameters['transforms'], source).transforms
        try:
            made.append(kind(**parameters))
        except (TypeError, ValueError) as error:
            raise InputError(f'{source}: {name}: {error}') from error
    return transforms.Compose(made)
