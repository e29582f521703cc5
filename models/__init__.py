"""Continual-learning methods, one per file, found by name: see `core.plugins`."""
from core.plugins import PluginFolder, names_of

PLUGINS = PluginFolder('models', 'model')
register_model = PLUGINS.register
get_model_names = PLUGINS.names
get_model_class = PLUGINS.get
__getattr__ = names_of(__name__, ContinualModel='models.utils.continual_model')


def get_model(args, backbone, loss, transform, dataset):
    """An instance of the method `args.model`, on its device, also with what a `to` of its own moves."""
    model = get_model_class(args)(backbone, loss, args, transform, dataset)
    model.to(model.device)
    return model
