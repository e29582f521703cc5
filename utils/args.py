"""Mammoth's names for what adds flags."""
import importlib
from argparse import Namespace  # noqa: F401

from bench.core.arguments import ArgumentParser, add_rehearsal_args  # noqa: F401
from utils import binary_to_boolean_type, custom_str_underscore, field_with_aliases  # noqa: F401

_LAZY = dict(add_experiment_args='bench.cli.flags', add_management_args='bench.cli.flags',
             ContinualModel='models.utils.continual_model',
             ContinualDataset='datasets.utils.continual_dataset',
             get_dataset_names='datasets', get_model_names='models')
__all__ = ('ArgumentParser', 'Namespace', 'add_rehearsal_args', 'binary_to_boolean_type',
           'custom_str_underscore',
           'field_with_aliases', *_LAZY)                            # noqa: PLE0604


def __getattr__(name: str):
    """What stands above this folder, when it is asked for: `from utils.args import
    *` is to give base classes, too."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
