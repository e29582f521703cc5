"""Mammoth's names for what adds flags."""

import logging
from argparse import Namespace

from core.arguments import ArgumentParser, add_rehearsal_args
from core.plugins import names_of
from utils import binary_to_boolean_type, custom_str_underscore

_LAZY = {
    'add_experiment_args': 'bench.cli.flags',
    'add_management_args': 'bench.cli.flags',
    'ContinualModel': 'models.utils.continual_model',
    'ContinualDataset': 'datasets.utils.continual_dataset',
    'get_dataset_names': 'datasets',
    'get_model_names': 'models',
}
__getattr__ = names_of(__name__, **_LAZY)  # `from utils.args import *` is to give base classes, too
