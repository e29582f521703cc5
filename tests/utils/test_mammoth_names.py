"""Words of a user of Mammoth mean here what they mean there: names of
backbones, config files, own files."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backbone
import core.configs
import datasets
import models
from backbone import get_backbone, get_backbone_class, weights
from bench.cli.parsing import parse_args
from core import environment as conf
from core.plugins import SHIPPED
from tests.conftest import ROOT, refused, words_of, written

DERPP = """
default: {optim_wd: 0.125}
seq-cifar100:
    batch_size: 16
    default: {optim_mom: 0.5}
    500: {lr: 0.25, alpha: 0.375, beta: 0.75}
    2000: {lr: 0.5}
seq_cifar10:
    lr: 0.0625
    backbone: reduced-resnet18
    num_filters: 6
mine: {lr: 2, optim_nesterov: yes}
rules: [{when: {buffer_size: {max: 600}}, set: {lr: 3}}]
"""
METHOD = """
from models.utils.continual_model import ContinualModel
from utils.args import ArgumentParser, add_rehearsal_args

class Their(ContinualModel):
    NAME = 'their'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser) -> ArgumentParser:
        add_rehearsal_args(parser)
        parser.set_defaults(optim_mom=0.5, num_filters=5)
        parser.add_argument('--strength', type=float, required=True, help='how strongly')
        return parser

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        return 0
"""
DATA = """
from datasets.utils.continual_dataset import ContinualDataset

class TheirData(ContinualDataset):
    NAME = 'their-data'
    SETTING = 'class-il'
    N_CLASSES_PER_TASK, N_TASKS, SIZE = 2, 5, (8, 8)

    def __init__(self, args, shade: float = 0.5):
        super().__init__(args)
"""
NETS = """
from backbone import MammothBackbone, register_backbone
from backbone.resnet_cifar import BasicBlock, ResNet


@register_backbone('their-net')
def their_net(num_classes: int, num_filters: int = 7, depth: int = 1):
    return ResNet(BasicBlock, [depth], num_classes, num_filters)


@register_backbone('resnet34')
def resnet34(num_classes: int, num_filters: int = 9):
    return ResNet(BasicBlock, [1, 1], num_classes, num_filters)
"""
ER = METHOD.replace("'their'", "'er'").replace('Their', 'TheirEr')


@pytest.fixture
def config(tmp_path, monkeypatch):
    """config(path, text): a file below models/config or datasets/configs."""
    conf.warn_once.cache_clear()
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)

    return lambda path, text: written(tmp_path, {path: text})


def arguments(*flags, model='sgd', dataset='seq-digits'):
    return parse_args(words_of('--model', model, '--dataset', dataset, *flags))


def derpp(*flags, dataset='seq-cifar100'):
    return arguments('--beta 0.5 --alpha 0.5', *flags, model='derpp', dataset=dataset)


# -- names of backbones


@pytest.mark.parametrize(
    'name, width', [('resnet18', 64), ('Reduced_ResNet18', 20), ('resnet34', 64)]
)
def test_a_backbone_that_is_asked_for_is_mammoths_and_starts_from_scratch(name, width):
    args = arguments('--lr 0.1 --backbone', name)
    assert (args.weights, args.num_filters) == ('none', width)
    args.num_classes = 10
    args.num_filters = 4
    assert tuple(get_backbone(args).conv1.weight.shape) == (4, 3, 3, 3)


def test_the_pretrained_backbone_is_the_default_where_no_backbone_is_asked_for(tiny_weights):
    args = arguments('--lr 0.1 --weights none')
    assert (args.backbone, args.weights, args.width) == ('resnet18-md', 'none', 64)
    args = arguments('--lr 0.1 --backbone resnet18_md --weights', tiny_weights)
    assert (args.backbone, args.weights, args.width) == ('resnet18-md', tiny_weights, 4)
    with refused('--backbone resnet18:', 'resnet18-md', 'leave --weights out'):
        arguments('--lr 0.1 --backbone resnet18 --weights', tiny_weights)


def test_weights_may_call_the_network_of_meta_dataset_resnet18(tmp_path):
    """Behave as the shipped ones do; Mammoth's has `num_filters`."""
    for options, today in (({'width': 4}, 'resnet18-md'), ({'num_filters': 4}, 'resnet18')):
        path = tmp_path / today
        weights.save(
            path,
            get_backbone_class(today)(10, **options),
            'resnet18',
            options,
            16,
            (0.5,) * 3,
            (0.5,) * 3,
            {'classes': ['n0']},
        )
        assert (weights.load(path).backbone, weights.load(path).options) == (today, options)
        assert arguments('--lr 0.1 --weights', path).backbone == today


# -- config files


@pytest.mark.parametrize(
    'dataset, line',
    [
        ('seq-cifar100', 'buffer_size 200 (it has 500, 2000)'),
        ('seq-digits', 'no section for seq-digits (it has seq-cifar100'),
    ],
)
def test_what_of_a_config_file_cannot_be_used_is_said(config, capsys, dataset, line):
    config('models/config/derpp.yaml', DERPP)
    args = derpp('--buffer_size 200 --model_config best --lr 0.7', dataset=dataset)
    said = capsys.readouterr().err
    assert said.count('\n') == 1
    assert 'models/config/derpp.yaml' in said
    assert line in said
    assert (args.lr, args.optim_wd) == (0.7, 0.125)


def test_sections_of_any_name_are_taken_by_it(config, capsys):
    config('models/config/derpp.yaml', DERPP)
    args = derpp('--buffer_size 500 --model_config mine')
    assert (args.lr, args.optim_nesterov, args.optim_wd) == (2, True, 0.125)
    assert derpp('--buffer_size 500 --model_config rules').lr == 3
    with refused('--model_config other', 'derpp.yaml', 'default, best, base', 'mine', 'rules'):
        derpp('--buffer_size 500 --model_config other')
    with refused('--model_config other', 'models/config'):
        arguments('--lr 1 --model_config other')
    assert not capsys.readouterr().err
    assert arguments('--lr 1 --model_config best').lr == 1
    assert 'no file for sgd' in capsys.readouterr().err


def test_a_config_file_may_ask_for_a_backbone_which_starts_from_scratch(
    config, capsys, tiny_weights
):
    config('models/config/derpp.yaml', DERPP)
    args = derpp('--buffer_size 200 --model_config best', dataset='seq-cifar10')
    assert (args.backbone, args.weights, args.num_filters, args.lr) == (
        'reduced-resnet18',
        'none',
        6,
        0.0625,
    )
    config('models/config/derpp.yaml', DERPP.replace('    num_filters: 6\n', ''))
    args = derpp(
        '--buffer_size 200 --model_config best --weights', tiny_weights, dataset='seq-cifar10'
    )
    assert (args.backbone, args.weights) == ('resnet18-md', tiny_weights)
    assert 'takes precedence over backbone reduced-resnet18' in capsys.readouterr().err
    args = derpp('--buffer_size 200 --model_config best --backbone resnet34', dataset='seq-cifar10')
    assert (args.backbone, args.weights, args.num_filters) == ('resnet34', 'none', 64)


def test_data_set_configs_are_found_however_their_folder_is_spelled(config):
    config('datasets/configs/seq_digits/icarl.yaml', 'n_epochs: 3\nN_TASKS: 2\nlr_scheduler: None')
    config('datasets/configs/seq-digits/plain.yaml', 'SIZE: [8, 8]')
    assert datasets.get_dataset_config_names('seq-digits') == ['icarl', 'plain']
    assert datasets.get_dataset_config_names('seq-cifar10') == []
    args = arguments('--lr 0.1 --dataset_config icarl')
    assert (args.n_epochs, args.lr_scheduler) == (3, None)
    assert datasets.get_dataset(args).N_TASKS == 2
    # what it is anyway
    assert datasets.get_dataset(arguments('--lr 0.1 --dataset_config plain')).SIZE == (8, 8)
    with refused('--dataset_config best', 'icarl, plain'):
        arguments('--lr 0.1 --dataset_config best')


def test_the_data_set_config_of_a_model_config_goes_first_and_says_so(config, capsys):
    config('datasets/configs/seq-digits/small.yaml', 'n_epochs: 3')
    config('datasets/configs/seq-digits/large.yaml', 'n_epochs: 4')
    config('models/config/sgd.yaml', 'default: {lr: 1, dataset_config: small}')
    assert arguments('--dataset_config large').n_epochs == 3
    assert 'large is not taken' in capsys.readouterr().err


# -- files of the user's


def test_a_file_of_the_users_goes_before_one_of_ours(third_party, capsys):
    third_party(backbone={'their_file': NETS}, models={'their_file': ER})
    net = get_backbone(arguments('--lr 0.1 --backbone resnet34 --num_classes 10'))
    assert net.feature_dim == 18  # of two stages, and 9 filters
    assert 'backbone/their_file.py' in (said := capsys.readouterr().err)
    assert 'backbone/resnet_cifar.py' in said
    assert said.count('\n') == 1
    assert models.get_model_class('er').__name__ == 'TheirEr'
    assert 'models/er.py' in capsys.readouterr().err
    assert arguments('--lr 0.1 --backbone resnet18').num_filters == 64
    assert not capsys.readouterr().err


def test_ours_that_is_imported_later_does_not_take_the_name_back(third_party, monkeypatch):
    third_party(backbone={'their_file': NETS})
    theirs = backbone.get_backbone_class('resnet34')
    monkeypatch.delitem(sys.modules, 'backbone.resnet_cifar')
    importlib.import_module('backbone.resnet_cifar')  # registers its own
    assert backbone.get_backbone_class('resnet34') is theirs


def test_a_class_of_a_notebook_goes_before_a_file_of_ours(third_party):
    third_party(models={})
    other = type('Er', (), {'__module__': '__main__'})
    assert models.register_model('er')(other) is models.get_model_class('er') is other


@pytest.mark.parametrize('package', SHIPPED)
def test_every_file_of_ours_that_declares_a_name_is_known_as_ours(package):
    """Else a name of ours would go before it. In git, not in the folder, where
    there may be files of the user's."""
    listed = subprocess.run(
        ['git', 'ls-files', f'{package}/*.py'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    if not listed:
        pytest.skip('not a git checkout')
    declares = re.compile(r'^    NAME = |^@register_', re.M)
    own = {
        Path(path).stem
        for path in listed
        if path.count('/') == 1 and declares.search((ROOT / path).read_text())
    }
    assert own - {'__init__'} == set(SHIPPED[package])


def test_help_of_a_third_party_method_data_set_and_backbone_in_one_run(third_party, capsys):
    third_party(
        models={'their_file': METHOD}, datasets={'their_file': DATA}, backbone={'their_file': NETS}
    )
    with pytest.raises(SystemExit) as end:
        arguments('--backbone their_net --help', model='their', dataset='their_data')
    out = capsys.readouterr().out
    assert not end.value.code
    assert not [f for f in ('--strength', '--shade', '--depth', '--buffer_size') if f not in out]
    args = arguments('--backbone their-net --strength 1 --buffer_size 3 --lr 1', model='their')
    assert (args.num_filters, args.depth, args.optim_mom, args.weights) == (5, 1, 0.5, 'none')


def test_the_classes_of_a_runs_arguments():
    args = arguments('--lr 1')
    assert models.get_model_class(args) is models.get_model_class('sgd')
    assert datasets.get_dataset_class(args) is datasets.get_dataset_class('Seq_Digits')
    assert issubclass(datasets.get_dataset_class(args), datasets.ContinualDataset)
