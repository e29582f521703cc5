"""Names that files written for Mammoth find here without a checkout of it, under Mammoth's names
and arguments.
"""

import importlib
import inspect
import re

import pytest
import torch
import torch.nn.functional as F

NAMES = """
    models: get_model get_model_class get_model_names register_model ContinualModel
    models.utils.continual_model: ContinualModel
    models.agem: project
    utils: binary_to_boolean_type none_or_float custom_str_underscore to_parsable_obj
    utils.args: ArgumentParser Namespace add_rehearsal_args add_experiment_args add_management_args
    utils.buffer: Buffer fill_buffer icarl_replay
    utils.augmentations: apply_transform cutmix_data random_flip random_crop normalize
    utils.batch_norm: bn_track_stats
    utils.schedulers: get_scheduler
    utils.conf: base_path get_device create_seeded_dataloader set_random_seed warn_once
    utils.conf: get_checkpoint_path
    utils.evaluate: evaluate
    utils.metrics: forgetting backward_transfer forward_transfer
    datasets: get_dataset get_dataset_class get_dataset_names register_dataset ContinualDataset
    datasets.utils: set_default_from_args
    datasets.utils.continual_dataset: ContinualDataset store_masked_loaders fix_class_names_order
    datasets.utils.continual_dataset: MammothDatasetWrapper
    datasets.transforms.denormalization: DeNormalize
    backbone: get_backbone register_backbone MammothBackbone ReturnTypes xavier num_flat_features
    backbone: REGISTERED_BACKBONES get_backbone_class
    main: main parse_args initialize
"""
CALLS = [  # module, name, positional arguments, keywords
    ('utils.buffer', 'Buffer', 1, ['device', 'sample_selection_strategy']),
    (
        'utils.buffer',
        'fill_buffer',
        3,
        [
            'net',
            'use_herding',
            'required_attributes',
            'normalize_features',
            'extend_equalize_buffer',
        ],
    ),
    ('utils.buffer', 'icarl_replay', 2, []),
    ('utils.augmentations', 'apply_transform', 2, ['autosqueeze']),
    ('utils.augmentations', 'cutmix_data', 0, ['x', 'y', 'alpha', 'cutmix_prob', 'force']),
    ('utils.batch_norm', 'bn_track_stats', 2, []),
    ('utils.schedulers', 'get_scheduler', 2, ['reload_optim']),
    (
        'utils.conf',
        'create_seeded_dataloader',
        2,
        ['non_verbose', 'batch_size', 'shuffle', 'num_workers'],
    ),
    ('utils.evaluate', 'evaluate', 2, ['last', 'return_loss']),
    ('datasets.utils.continual_dataset', 'store_masked_loaders', 3, []),
]


def test_the_names_can_be_imported():
    for module, names in re.findall(r'(?m)^ +(\S+): (.+)$', NAMES):
        assert all(
            getattr(importlib.import_module(module), name) is not None for name in names.split()
        ), module


@pytest.mark.parametrize(
    'module, names',
    [
        (
            'utils.args',
            (
                'ArgumentParser Namespace add_rehearsal_args add_experiment_args '
                'add_management_args '
                'ContinualModel ContinualDataset binary_to_boolean_type custom_str_underscore '
                'get_dataset_names get_model_names'
            ),
        ),
        ('utils.augmentations', 'apply_transform cutmix_data random_flip random_crop torch F'),
    ],
)
def test_a_star_import_gives_the_names(module, names):
    given = {}
    exec(f'from {module} import *', given)
    assert not set(names.split()) - set(given)
    assert given.get('torch', torch) is torch
    assert given.get('F', F) is F


def test_they_can_be_called_as_mammoths():
    for module, name, positional, keywords in CALLS:
        signature = inspect.signature(getattr(importlib.import_module(module), name))
        signature.bind(*range(positional), **dict.fromkeys(keywords))  # TypeError if it cannot
