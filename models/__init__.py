"""Continual-learning methods, one per file, found by name: see `bench.core.plugins`."""
from bench.core.plugins import PluginFolder

PLUGINS = PluginFolder('models', 'model')
register_model = PLUGINS.register
get_model_names = PLUGINS.mapping
get_model_class = PLUGINS.get


def __getattr__(name: str):
    """The base class, without importing torch before it is wanted."""
    if name == 'ContinualModel':
        from models.utils.continual_model import ContinualModel
        return ContinualModel
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def get_model(args, backbone, loss, transform, dataset):
    """An instance of the method `args.model`, on its device, also with what a `to` of its own moves."""
    model = get_model_class(args)(backbone, loss, args, transform, dataset)
    model.to(model.device)
    return model
