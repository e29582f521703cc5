"""Data sets as streams, one per file, found by name: see `utils.plugins`."""
from utils.plugins import PluginFolder
from utils.progress import Progress

PLUGINS = PluginFolder('datasets', 'dataset')
register_dataset = PLUGINS.register
get_dataset_names = PLUGINS.names
get_dataset_class = PLUGINS.get


def get_dataset(args):
    """A new instance of the data set `args.dataset`; no side effects on `args`."""
    from datasets.utils.config import build
    with Progress(f'Reading {args.dataset}', quiet=getattr(args, 'non_verbose', False)):
        return build(get_dataset_class(args.dataset), args)
