"""Mammoth's names for what adds flags."""

import logging  # noqa: F401
from argparse import Namespace  # noqa: F401

from core.arguments import ArgumentParser, add_rehearsal_args  # noqa: F401
from core.plugins import names_of
from utils import binary_to_boolean_type, custom_str_underscore  # noqa: F401

_LAZY = dict(
    add_experiment_args='bench.cli.flags',
    add_management_args='bench.cli.flags',
    ContinualModel='models.utils.continual_model',
    ContinualDataset='datasets.utils.continual_dataset',
    get_dataset_names='datasets',
    get_model_names='models',
)
__all__ = (
    'ArgumentParser',
    'Namespace',
    'logging',
    'add_rehearsal_args',
    'binary_to_boolean_type',
    'custom_str_underscore',
    *_LAZY,
)  # noqa: PLE0604
__getattr__ = names_of(__name__, **_LAZY)  # `from utils.args import *` is to give base classes, too
