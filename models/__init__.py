"""Continual-learning methods, one per file, found by name: see `utils.plugins`."""
from utils.plugins import PluginFolder

PLUGINS = PluginFolder('models', 'model')
register_model = PLUGINS.register
get_model_names = PLUGINS.names
get_model_class = PLUGINS.get


def get_model(args, backbone, loss, transform, dataset):
    """An instance of the method `args.model`."""
    return get_model_class(args.model)(backbone, loss, args, transform, dataset)
