"""Continual-learning methods, one per file, found by name: see `core.plugins`."""

import inspect
from argparse import Namespace

from core.plugins import FOLDERS, MAMMOTH, names_of

PLUGINS = FOLDERS['models']
register_model = PLUGINS.register
get_model_names = PLUGINS.names
get_model_class = PLUGINS.get
__getattr__ = names_of(__name__, ContinualModel='models.utils.continual_model')


def get_all_models() -> dict:
    """Known names, as Mammoth before 2024 asks for them: it takes a list's, or a dict's."""
    return dict.fromkeys(PLUGINS.names())


class PlainNames(Namespace):
    """Arguments of a run whose `dataset` and `model` lack the prefix `mammoth:`.

    For methods of a checkout, which may compare names."""

    def __init__(self, args):
        self.__dict__ = args.__dict__  # what either sets, both have

    def __getattribute__(self, name: str):
        value = super().__getattribute__(name)
        return value.removeprefix(MAMMOTH) if name in ('dataset', 'model') else value

    def __getattr__(self, name: str):
        if name == 'load_best_args':
            return self.model_config == 'best'
        raise AttributeError(f'it reads args.{name}, which no flag of this run sets')


def get_model(args, backbone, loss, transform, dataset):
    """Build the method `args.model` and move it to its device, by its own `to` if it has one."""
    kind = get_model_class(args)
    if PLUGINS.is_theirs(args.model):
        args = PlainNames(args)
    parts = [backbone, loss, args, transform, dataset]
    try:
        inspect.signature(kind).bind(*parts)
    except TypeError:  # constructors of before 2024 take no data set
        parts.pop()
    model = kind.__new__(kind)
    vars(model)['dataset'] = dataset
    model.__init__(*parts)
    model.to(model.device)
    return model
