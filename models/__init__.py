"""Continual-learning methods, one per file, found by name: see `core.plugins`."""

from argparse import Namespace

from core.plugins import FOLDERS, MAMMOTH, names_of

PLUGINS = FOLDERS['models']
register_model = PLUGINS.register
get_model_names = PLUGINS.names
get_model_class = PLUGINS.get
__getattr__ = names_of(__name__, ContinualModel='models.utils.continual_model')


class PlainNames(Namespace):
    """Arguments of a run whose `dataset` and `model` lack the prefix `mammoth:`.

    For methods of a checkout, which may compare names."""

    def __init__(self, args):
        self.__dict__ = args.__dict__  # what either sets, both have

    def __getattribute__(self, name: str):
        value = super().__getattribute__(name)
        return value.removeprefix(MAMMOTH) if name in ('dataset', 'model') else value


def get_model(args, backbone, loss, transform, dataset):
    """Build the method `args.model` and move it to its device, by its own `to` if it has one."""
    kind = get_model_class(args)
    if PLUGINS.is_theirs(args.model):
        args = PlainNames(args)
    model = kind(backbone, loss, args, transform, dataset)
    model.to(model.device)
    return model
