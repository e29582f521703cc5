"""Defaults of flags that a data set sets. Looks at the class: no data is read, nothing is built."""

import functools
import inspect

from scroll.ground.errors import InputError

# --backbone: the network that the data set's `get_backbone` makes; with `:dwt` behind it, that of
# its `get_DWT_backbone`, and the transform of its `get_DWT_transform`, if it has one
OF_DATA_SET = 'of-data-set'
_GETTERS = {
    'n_epochs': 'get_epochs',
    'batch_size': 'get_batch_size',
    'n_iters': 'get_iters',
    'backbone': 'get_backbone',
}


def set_default_from_args(flag: str):
    """Decorator in the body of a data-set class: the function returns the default of `--<flag>`.

    The function may have `self` or no parameter, and can be called on the class and on an instance:

        @set_default_from_args('n_epochs')
        def get_epochs():
            return 50"""
    return functools.partial(_Default, flag)


_decorated = {}  # (module, class) -> flag -> function, also where a later method took its name


class _Default:
    """A decorated function: a method that may lack `self`, and that knows its flag."""

    def __init__(self, flag: str, function):
        self.function = getattr(function, '__func__', function)  # also of a static method
        functools.update_wrapper(self, self.function)
        place = self.__module__, self.__qualname__.rpartition('.')[0]
        if flag in _decorated.get(place, ()):  # the class is defined once more
            del _decorated[place]
        _decorated.setdefault(place, {})[flag] = self

    def __get__(self, instance, owner=None):
        return functools.partial(self, owner if instance is None else instance)

    def __call__(self, *given):
        return self.function(*given[: len(inspect.signature(self.function).parameters)])


def dataset_defaults(kind) -> dict:
    """flag -> default of a data-set class: of decorated functions and of Mammoth's getters.

    A getter that needs the arguments of the run, or returns None, gives no default; a network, as
    before 2024, is the backbone `of-data-set`."""
    defaults = {flag: _ask(kind, name) for flag, name in _GETTERS.items()}
    for base in reversed(kind.__mro__):
        for flag, function in _decorated.get((base.__module__, base.__qualname__), {}).items():
            attribute = vars(base).get(function.__name__)
            if getattr(attribute, '__func__', attribute) is function:
                defaults[flag] = _ask(kind, function.__name__)
            else:  # a later method of the class took its name
                defaults[flag] = function(kind.__new__(kind))
    if hasattr(defaults['backbone'], 'forward'):
        defaults['backbone'] = OF_DATA_SET
    return {flag: value for flag, value in defaults.items() if value is not None}


def network_of(dataset, backbone: str):
    """The network of a data set for a name that begins with `OF_DATA_SET`, which then also says
    what its `get_transform` is."""
    prefix = backbone.replace(f'{OF_DATA_SET}:', 'get_') + '_'
    getters = [name for name in dir(dataset) if name.lower().startswith(prefix)]
    if backbone != OF_DATA_SET and not getters:
        raise InputError(f'--backbone {backbone}: {dataset.NAME} has no {prefix}backbone')
    for name in getters:
        setattr(dataset, f'get_{name[len(prefix) :]}', getattr(dataset, name))
    return dataset.get_backbone()


def _ask(kind, name: str):
    """Call a getter of the class if it has no `self`, else of an instance without arguments."""
    attribute = inspect.getattr_static(kind, name, None)
    if inspect.isfunction(attribute) and not inspect.signature(attribute).parameters:
        return attribute()
    try:
        return getattr(kind.__new__(kind), name)()
    except (AttributeError, TypeError):  # no such getter, or it needs args or a constructor
        return None
