"""What model and data-set files written for Mammoth import must be there, under
Mammoth's names, and take its arguments."""
import importlib
import inspect

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import ROOT

NAMES = {
    'models': 'get_model get_model_class get_model_names register_model ContinualModel',
    'models.utils.continual_model': 'ContinualModel',
    'models.utils.future_model': 'FutureModel',
    'models.gem': 'store_grad overwrite_grad',
    'models.agem': 'project',
    'utils':
        'binary_to_boolean_type none_or_float create_if_not_exists smart_joint in_notebook to_parsable_obj '
        'field_with_aliases custom_str_underscore setup_logging',
    'utils.prompt_templates': 'templates',
    'utils.mixup': 'mixup',
    'utils.triplet': 'batch_hard_triplet_loss negative_only_triplet_loss',
    'utils.autoaugment': 'CIFAR10Policy ImageNetPolicy SVHNPolicy',
    'utils.conditional_bn': 'ConditionalBatchNorm1d ConditionalBatchNorm2d',
    'utils.distributed': 'make_dp CustomDP',
    'models.utils.lider_model': 'LiderOptimizer add_lipschitz_args',
    'utils.args': 'ArgumentParser Namespace add_rehearsal_args add_experiment_args add_management_args',
    'utils.buffer': 'Buffer fill_buffer icarl_replay',
    'utils.gss_buffer': 'Buffer',
    'utils.ring_buffer': 'RingBuffer',
    'utils.augmentations':
        'apply_transform cutmix_data RepeatedTransform strong_aug soft_aug random_flip random_crop '
        'random_grayscale normalize DoubleTransform DoubleCompose CustomRandomCrop '
        'CustomRandomHorizontalFlip',
    'utils.batch_norm': 'bn_track_stats',
    'utils.status': 'progress_bar',
    'utils.schedulers': 'get_scheduler CosineSchedule CosineSchedulerWithLinearWarmup',
    'utils.spkdloss': 'SPKDLoss',
    'utils.simclrloss': 'SupConLoss',
    'utils.kornia_utils': 'to_kornia_transform KorniaMultiAug',
    'utils.conf': 'base_path get_device create_seeded_dataloader set_random_seed warn_once '
                  'get_checkpoint_path',
    'utils.evaluate': 'evaluate mask_classes',
    'utils.metrics': 'forgetting backward_transfer forward_transfer',
    'utils.loggers': 'Logger log_accs',
    'datasets': 'get_dataset get_dataset_class get_dataset_names register_dataset ContinualDataset',
    'datasets.utils': 'set_default_from_args hf_download',
    'datasets.utils.hf_download': 'hf_download',
    'datasets.utils.continual_dataset':
        'ContinualDataset store_masked_loaders fix_class_names_order MammothDatasetWrapper',
    'datasets.utils.gcl_dataset': 'GCLDataset',
    'datasets.utils.validation': 'get_train_val',
    'datasets.transforms.denormalization': 'DeNormalize',
    'datasets.transforms.rotation': 'Rotation',
    'datasets.transforms.permutation': 'Permutation',
    'backbone':
        'get_backbone register_backbone MammothBackbone ReturnTypes xavier num_flat_features '
        'REGISTERED_BACKBONES get_backbone_class',
    'backbone.ResNetBlock': 'ResNet BasicBlock conv3x3 resnet18 reduced_resnet18 resnet34',
    'backbone.MNISTMLP': 'BaseMNISTMLP MNISTMLP',
    'main': 'main parse_args initialize',
}
STARS = {
    'utils.args': NAMES['utils.args'] + ' ContinualModel ContinualDataset binary_to_boolean_type '
                                        'custom_str_underscore '
                  'field_with_aliases get_dataset_names get_model_names',
    'utils.augmentations': NAMES['utils.augmentations'] + ' torch F',
}
CALLS = [                                                   # module, name, positional arguments, keywords
    ('utils.gss_buffer', 'Buffer', 4, []),
    ('utils.ring_buffer', 'RingBuffer', 1, ['n_tasks', 'device']),
    ('utils.buffer', 'Buffer', 2, ['sample_selection_strategy']),
    ('utils.buffer', 'Buffer', 1, ['device', 'sample_selection_strategy', 'dataset']),
    ('utils.buffer', 'fill_buffer', 3,
     ['net', 'use_herding', 'required_attributes', 'normalize_features', 'extend_equalize_buffer']),
    ('utils.buffer', 'icarl_replay', 2, ['val_set_split']),
    ('utils.augmentations', 'apply_transform', 2, ['autosqueeze']),
    ('utils.augmentations', 'cutmix_data', 0, ['x', 'y', 'alpha', 'cutmix_prob', 'force']),
    ('utils.augmentations', 'strong_aug', 3, []),
    ('utils.augmentations', 'strong_aug', 0, ['size', 'mean', 'std']),
    ('utils.batch_norm', 'bn_track_stats', 2, []),
    ('utils.status', 'progress_bar', 5, []),
    ('utils.schedulers', 'get_scheduler', 2, ['reload_optim']),
    ('utils.schedulers', 'CosineSchedule', 1, ['K']),
    ('utils.simclrloss', 'SupConLoss', 0, ['temperature', 'contrast_mode', 'base_temperature', 'reduction']),
    ('utils.spkdloss', 'SPKDLoss', 1, []),
    ('utils.kornia_utils', 'to_kornia_transform', 1, []),
    ('utils.kornia_utils', 'KorniaMultiAug', 1, []),
    ('utils.mixup', 'mixup', 2, []),
    ('utils.triplet', 'batch_hard_triplet_loss', 3, ['margin', 'margin_type']),
    ('utils.triplet', 'negative_only_triplet_loss', 3, ['margin', 'margin_type']),
    ('utils.conditional_bn', 'ConditionalBatchNorm2d', 2, []),
    ('utils.augmentations', 'CustomRandomCrop', 2, ['resize', 'min_resize_index']),
    ('utils.augmentations', 'CustomRandomHorizontalFlip', 1, []),
    ('utils.distributed', 'make_dp', 1, []),
    ('models.utils.lider_model', 'add_lipschitz_args', 1, []),
    ('datasets.utils', 'hf_download', 2, ['filename']),
    ('datasets.transforms.permutation', 'Permutation', 1, []),
    ('utils.conf', 'create_seeded_dataloader', 2, ['non_verbose', 'batch_size', 'shuffle', 'num_workers']),
    ('utils.conf', 'get_device', 0, []),
    ('utils.loggers', 'Logger', 4, []),
    ('utils.evaluate', 'evaluate', 2, ['last', 'return_loss']),
    ('datasets', 'get_dataset', 1, []),
    ('datasets.utils.continual_dataset', 'store_masked_loaders', 3, []),
    ('backbone', 'get_backbone', 1, []),
]


@pytest.mark.parametrize('module, name',
                         [(module, name) for module, names in NAMES.items() for name in names.split()])
def test_the_name_can_be_imported(module, name):
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize('module', STARS)
def test_a_star_import_gives_the_names(module):
    given = {}
    exec(f'from {module} import *', given)
    assert not set(STARS[module].split()) - set(given)
    assert given.get('torch', torch) is torch and given.get('F', F) is F


@pytest.mark.parametrize('module, name, positional, keywords', CALLS)
def test_it_can_be_called_as_mammoths(module, name, positional, keywords):
    signature = inspect.signature(getattr(importlib.import_module(module), name))
    signature.bind(*range(positional), **dict.fromkeys(keywords))           # TypeError if it cannot


def test_utils_holds_nothing_that_mammoths_files_do_not_import():
    """But for two modules that only those above build on."""
    modules = {f'utils.{path.stem}'
               for path in (ROOT / 'utils').glob('*.py')} - {'utils.__init__', 'utils.main'}
    assert modules - set(NAMES) == {'utils.image_ops', 'utils.sample_selection'}
