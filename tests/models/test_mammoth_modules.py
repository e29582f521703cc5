"""Method and data-set files that use Mammoth's framework modules, as its users write
them: unchanged, they run a stream."""
import sys

import numpy as np
import pytest
import torch

import datasets
from bench.run.building import initialize
from bench.run.training import train
from datasets.utils.continual_dataset import ContinualDataset
from tests.conftest import refused

LIDER = '''
import torch

from models.utils.lider_model import LiderOptimizer, add_lipschitz_args
from utils.args import ArgumentParser, add_rehearsal_args
from utils.buffer import Buffer


class SmoothReplay(LiderOptimizer):
    NAME = 'smooth_replay'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']

    @staticmethod
    def get_parser(parser) -> ArgumentParser:
        add_rehearsal_args(parser)
        add_lipschitz_args(parser)
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset=dataset)
        self.buffer = Buffer(self.args.buffer_size)
        self.penalties = []

    def begin_task(self, dataset):
        if self.current_task == 0:
            self.init_net(dataset)
            self.first = self.lip_coeffs.detach().clone()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels)
        if not self.buffer.is_empty():
            images, y = self.buffer.get_data(self.args.minibatch_size, transform=self.transform,
                                             device=self.device)
            out, features = self.net(images, returnt='full')
            loss = loss + self.loss(out, y)
            lip_inputs = [images] + features
            if self.args.buffer_lip_lambda > 0:
                penalty = self.buffer_lip_loss(lip_inputs)
                self.penalties.append(penalty.item())
                loss += self.args.buffer_lip_lambda * penalty
            if self.args.budget_lip_lambda > 0:
                loss += self.args.budget_lip_lambda * self.dynamic_budget_lip_loss(lip_inputs)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        return loss.item()
'''

MAPS = '''
from copy import deepcopy

import torch
import torch.nn.functional as F
from torchvision import transforms

from backbone.ResNetBlock import conv3x3
from models.utils.continual_model import ContinualModel
from utils.args import add_rehearsal_args
from utils.augmentations import CustomRandomCrop, CustomRandomHorizontalFlip, DoubleCompose, DoubleTransform
from utils.buffer import Buffer
from utils.conditional_bn import ConditionalBatchNorm2d
from utils.distributed import make_dp
from utils.kornia_utils import KorniaMultiAug


class KeepsMaps(ContinualModel):
    """Replays images together with maps of a frozen twin, cropped and flipped alike."""
    NAME = 'keeps-maps'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser):
        return add_rehearsal_args(parser)

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.buffer = Buffer(self.args.buffer_size)
        self.twin = make_dp(deepcopy(self.net))
        for net in (self.net, self.twin):
            net.set_return_prerelu(True)
        self.both = DoubleCompose([DoubleTransform(transforms.ToPILImage()),
                                   CustomRandomCrop(8, 1, resize=True, min_resize_index=1),
                                   CustomRandomHorizontalFlip(0.5), DoubleTransform(transforms.ToTensor())])
        self.views = KorniaMultiAug([transforms.RandomHorizontalFlip(), transforms.RandomCrop(8, 1)])
        channels = self.net.nf
        self.adapter = conv3x3(channels, channels)
        self.norm = ConditionalBatchNorm2d(channels, dataset.N_TASKS)
        self.opt = self.get_optimizer()

    def get_parameters(self):
        own = [] if not hasattr(self, 'norm') else [*self.adapter.parameters(), *self.norm.parameters()]
        return [*self.net.parameters(), *own]

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        with torch.no_grad():
            theirs = self.twin(inputs, returnt='full')[1]
        assert theirs[0].min() < 0
        if not self.buffer.is_empty():
            images, y, maps = self.buffer.get_data(8, device=self.device)
            images, maps = self.views(images, maps)
            pairs = [self.both(image, [m, m[:1]]) for image, m in zip(images, maps)]
            images = torch.stack([image for image, _ in pairs])
            maps = torch.stack([both[0] for _, both in pairs])
            inputs = torch.cat([inputs, self.normalization_transform(images)])
            labels = torch.cat([labels, y])
            theirs[0] = torch.cat([theirs[0], self.norm(self.adapter(maps), self.current_task)])
        out, mine = self.net(inputs, returnt='full')
        loss = self.loss(out, labels) + 0.01 * F.mse_loss(mine[0], theirs[0])
        loss.backward()
        self.opt.step()
        count = len(not_aug_inputs)
        self.buffer.add_data(examples=not_aug_inputs, labels=labels[:count],
                             attention_maps=theirs[0][:count].detach())
        return loss.item()
'''

COLUMNS = '''
import torch

from backbone.MNISTMLP import BaseMNISTMLP
from backbone.MNISTMLP_PNN import MNISTMLP_PNN
from backbone.ResNet18_PNN import resnet18_pnn
from backbone.ResNetBlock import ResNet
from models.utils.continual_model import ContinualModel
from utils.conf import get_device


def next_column(bone, old_cols, x_shape):
    if isinstance(bone, BaseMNISTMLP):
        return MNISTMLP_PNN(bone.input_size, bone.output_size, old_cols)
    if isinstance(bone, ResNet):
        return resnet18_pnn(bone.num_classes, bone.nf, old_cols, x_shape)
    raise NotImplementedError('no such columns')


class Columns(ContinualModel):
    NAME = 'columns'
    COMPATIBILITY = ['task-il']

    def __init__(self, backbone, loss, args, transform, dataset=None):
        self.nets = []
        super().__init__(next_column(backbone, None, None), loss, args, transform, dataset)
        self.nets = [self.net]
        self.x_shape, self.opt, self.soft = None, self.get_optimizer(), torch.nn.Softmax(dim=1)

    def forward(self, x, task_label):
        return self.nets[min(task_label, len(self.nets) - 1)](x)

    def end_task(self, dataset):
        if self.current_task == dataset.N_TASKS - 1:
            return
        self.nets.append(next_column(self.net, list(self.nets), self.x_shape).to(get_device()))
        self.net = self.nets[-1]
        self.opt = self.get_optimizer()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.x_shape = inputs.shape
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels)
        loss.backward()
        self.opt.step()
        return loss.item()
'''

HUB = '''
import logging
import os

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

from backbone.ResNetBlock import conv3x3
from datasets.transforms.permutation import Permutation
from datasets.utils import set_default_from_args
from datasets.utils.continual_dataset import ContinualDataset, fix_class_names_order, store_masked_loaders
from datasets.utils.hf_download import hf_download
from utils import setup_logging, smart_joint
from utils.conf import base_path
from utils.prompt_templates import templates


class Hub(torch.utils.data.Dataset):
    N_CLASSES = 4

    def __init__(self, root, train, transform):
        path = hf_download('someone/dots', root, filename='dots.npz')
        content = np.load(path)
        part = 'train' if train else 'test'
        self.data, self.targets = content[f'x_{part}'], content[f'y_{part}']
        self.train, self.transform, self.not_aug_transform = train, transform, transforms.ToTensor()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = Image.fromarray(self.data[index])
        out = self.transform(image.copy())
        target = self.targets[index]
        return (out, target, self.not_aug_transform(image)) if self.train else (out, target)


class SequentialHub(ContinualDataset):
    NAME = 'seq-hub'
    SETTING = 'class-il'
    N_TASKS, N_CLASSES_PER_TASK, N_CLASSES, SIZE = 2, 2, 4, (8, 8)
    TRANSFORM = transforms.Compose([transforms.ToTensor(), Permutation(3 * 8 * 8)])

    def get_data_loaders(self):
        setup_logging()
        logging.getLogger(__name__).info('reading')
        root = smart_joint(base_path(), 'HUB')
        os.makedirs(root, exist_ok=True)
        return store_masked_loaders(Hub(root, True, self.TRANSFORM), Hub(root, False, self.TRANSFORM), self)

    @staticmethod
    def get_prompt_templates():
        return templates['cub200']

    def get_class_names(self):
        if self.class_names is None:
            self.class_names = fix_class_names_order(['wren', 'kite', 'rook', 'swan'], self.args)
        return self.class_names

    def get_transform(self):
        return transforms.Compose([transforms.ToPILImage(), self.TRANSFORM])

    @set_default_from_args('backbone')
    def get_backbone():
        return 'mnistmlp'

    @set_default_from_args('n_epochs')
    def get_epochs():
        return 3

    @set_default_from_args('batch_size')
    def get_batch_size():
        return 8
'''


@pytest.fixture(autouse=True)
def files(third_party, small_digits):
    third_party(models=dict(lider=LIDER, maps=MAPS, columns=COLUMNS), datasets=dict(hub=HUB))


@pytest.fixture
def run(parse):
    """run(name, *flags): (model, data set, results row) of a run on the
    digits, on a small ResNet from scratch."""
    def start(name, *flags, dataset='seq-digits',
              backbone=('--backbone', 'reduced-resnet18', '--num_filters', '4')):
        fixed = {'--n_splits': '2', '--n_epochs': '1'} if dataset == 'seq-digits' else {}
        words = [word for flag, value in fixed.items() if flag not in flags for word in (flag, value)]
        model, stream, args = initialize(parse(name, '--weights', 'none', '--lr', '0.05', '--batch_size',
                                               '16', *words, *backbone,
                                                    *flags, dataset=dataset))
        return model, stream, train(model, stream, args)
    return start


def test_lipschitz_driven_rehearsal(run, parse):
    flags = '--buffer_size', '20', '--minibatch_size', '8', '--n_epochs', '3'
    model, _, _ = run('smooth_replay', *flags, '--buffer_lip_lambda', '0.001', '--budget_lip_lambda', '0.1',
                      '--grad_iter_step', '-3')
    assert model.first.shape == (5,) and (model.first > 0).all()                # the stem and four stages
    assert model.lip_coeffs.requires_grad and not torch.equal(model.lip_coeffs, model.first)
    assert any(p is model.lip_coeffs for group in model.opt.param_groups for p in group['params'])
    strong, _, _ = run('smooth_replay', *flags, '--buffer_lip_lambda', '30')
    assert sum(strong.penalties[-3:]) < 0.5 * sum(model.penalties[-3:])    # what is penalised becomes smaller
    with refused('--headless_init_act', 'gelu', 'lrelu'):
        parse('smooth_replay', '--buffer_size', '20', '--lr', '1', '--headless_init_act', 'gelu')


def test_a_budget_is_in_checkpoints(run, tmp_path, capsys):
    run('smooth_replay', '--buffer_size', '20', '--budget_lip_lambda', '0.1', '--disable_log', '0',
        '--checkpoint_every', '1e-6',
        '--base_path', str(tmp_path / 'base'))
    assert 'no more checkpoints' not in ''.join(capsys.readouterr())


def test_the_coefficient_is_the_squared_spectral_norm_of_the_cross_moments(run):
    model, _, _ = run('smooth_replay', '--buffer_size', '0')
    torch.manual_seed(0)
    f, g = torch.randn(6, 2, 3, dtype=torch.double), torch.randn(6, 5, dtype=torch.double)
    g[:, 0] += 5 * f[:, 0, 0]                                                   # one direction stands out
    moments = f.flatten(1).T @ g / 6 / 30 ** 0.5
    expected = torch.linalg.matrix_norm(moments, 2) ** 2
    f.requires_grad_()
    found = model.get_feature_lip_coeffs([f, g])
    torch.testing.assert_close(found, expected.view(1))
    found.sum().backward()
    step = 1e-5 * f.grad
    with torch.no_grad():
        moved = torch.linalg.matrix_norm((f + step).flatten(1).T @ g / 6 / 30 ** 0.5, 2) ** 2 - expected
    assert moved == pytest.approx(float((f.grad * step).sum()), rel=0.05)
    model.lip_coeffs.data = torch.zeros(0)
    with pytest.raises(RuntimeError, match='init_net'):
        model.dynamic_budget_lip_loss([f, g])


def test_images_replayed_with_their_maps(run):
    model, _, _ = run('keeps-maps', '--buffer_size', '30')
    assert model.buffer.attention_maps.shape[1:] == (4, 8, 8) and len(model.buffer) == 30
    assert (model.norm.weight != 1).any(1).all()                               # both tasks trained their rows


@pytest.mark.parametrize('backbone', [('--backbone', 'reduced-resnet18', '--num_filters', '3'),
                                      ('--backbone', 'mnistmlp', '--mlp_input_size', '192')],
                         ids=lambda words: words[1])
def test_progressive_columns(run, backbone):
    model, _, row = run('columns', backbone=backbone)
    assert len(model.nets) == 2 and list(model.nets[1].old_cols) == [model.nets[0]]


def test_a_data_set_from_the_hub(run, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = (random.integers(0, 50, (80, 8, 8, 3)) + 50 * y[:, None, None, None]).astype(np.uint8)

    def fetch(repo_id, filename, repo_type, local_dir):
        np.savez(f'{local_dir}/{filename}', x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
        return f'{local_dir}/{filename}'
    monkeypatch.setitem(sys.modules, 'huggingface_hub',
                        type('hub', (), dict(hf_hub_download=staticmethod(fetch))))
    model, stream, row = run('sgd', '--mlp_input_size', '192', '--base_path', str(tmp_path / 'base'),
                             '--permute_classes', '1', dataset='seq-hub', backbone=())
    assert (tmp_path / 'base' / 'HUB' / 'dots.npz').is_file() and model.args.backbone == 'mnistmlp'
    assert 'task2' in row
    names = stream.get_class_names()
    sentences = [template.format(names[3]) for template in stream.get_prompt_templates()]
    assert sorted(names) == ['kite', 'rook', 'swan', 'wren']
    assert f'a photo of a {names[3]}, a kind of bird.' in sentences


def test_class_names_of_our_data_sets_and_of_one_that_has_none(parse):
    stream = datasets.get_dataset(parse('sgd', '--lr', '1', '--custom_class_order', '9-8-7-6-5-4-3-2-1-0'))
    assert stream.get_class_names() == list('9876543210')
    assert 'a photo of a {}.' in stream.get_prompt_templates()
    bare = type('Bare', (ContinualDataset,),
                dict(NAME='bare', SETTING='class-il', N_TASKS=2,
                     N_CLASSES_PER_TASK=1))(parse('sgd', '--lr', '1'))
    with refused('bare', 'get_class_names'):
        bare.get_class_names()
