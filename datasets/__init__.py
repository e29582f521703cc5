"""Data sets as streams, one per file, found by name: see `core.plugins`."""

from core.plugins import FOLDERS, names_of

PLUGINS = FOLDERS['datasets']
register_dataset = PLUGINS.register
get_dataset_names = PLUGINS.names
get_dataset_class = PLUGINS.get
_lazy = names_of(__name__, ContinualDataset='datasets.utils.continual_dataset')


def __getattr__(name: str):
    if name == 'NAMES':  # of Mammoth before 2024: what builds each
        return dict.fromkeys(PLUGINS.names(), get_dataset)
    return _lazy(name)


def get_dataset_config_names(dataset: str) -> list:
    """Choices of `--dataset_config`: sorted names of the files in `datasets/configs/<dataset>/`."""
    from core.configs import dataset_config_files

    return sorted(dataset_config_files(dataset))


def get_dataset(args):
    """A new instance of the data set `args.dataset`; no side effects on `args`."""
    from datasets.utils.config import build

    # of `PlainNames`, too, the name as it was given
    return build(get_dataset_class(vars(args)['dataset']), args)
