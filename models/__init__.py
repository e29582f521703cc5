"""Continual-learning methods, one per file, found by name: see `core.plugins`."""

from argparse import Namespace

from core.plugins import MAMMOTH, PluginFolder, names_of

PLUGINS = PluginFolder('models', 'model')
register_model = PLUGINS.register
get_model_names = PLUGINS.names
get_model_class = PLUGINS.get
__getattr__ = names_of(__name__, ContinualModel='models.utils.continual_model')


class PlainNames(Namespace):
    """A run's arguments for a method of a checkout, which may compare names: they are without
    `mammoth:`.
    """

    def __init__(self, args):
        self.__dict__ = args.__dict__  # what either sets, both have

    def __getattribute__(self, name: str):
        value = super().__getattribute__(name)
        return value.removeprefix(MAMMOTH) if name in ('dataset', 'model') else value


def get_model(args, backbone, loss, transform, dataset):
    """An instance of the method `args.model`, on its device, also with what a `to` of its own
    moves.
    """
    args_of_model = PlainNames(args) if PLUGINS.is_theirs(args.model) else args
    model = get_model_class(args)(backbone, loss, args_of_model, transform, dataset)
    model.to(model.device)
    return model
