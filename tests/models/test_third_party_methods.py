"""Method files as users of Mammoth, and our docs, write them, unchanged: what they import, what
they do to data, nets and buffers."""

from pathlib import Path

import pytest
import torch

from bench.run.building import initialize
from bench.run.training import train
from core.rows import read_rows
from tests.conftest import refused
from tests.test_docs import BLOCKS

HEAD = """
from copy import deepcopy
import numpy as np
import torch
import torch.nn.functional as F
from models.utils.continual_model import ContinualModel
from utils.args import ArgumentParser, add_rehearsal_args
from utils.augmentations import apply_transform
from utils.buffer import Buffer
"""

STAR = """
from utils.args import *
from utils.buffer import Buffer

def get_parser() -> ArgumentParser:
    parser = ArgumentParser(description='As in 2020.')
    add_management_args(parser)
    add_experiment_args(parser)
    add_rehearsal_args(parser)
    parser.add_argument('--penalty', type=float, required=True, help='weight')
    parser.add_argument('--on', type=binary_to_boolean_type, default=0)
    return parser

class Early(ContinualModel):
    NAME = 'early'
    COMPATIBILITY = ['class-il', 'task-il']

    def __init__(self, backbone, loss, args, transform, dataset=None):
        args.penalty = 2 * args.penalty
        super(Early, self).__init__(backbone, loss, args, transform, dataset)
        self.buffer = Buffer(self.args.buffer_size, self.device)

    def observe(self, inputs, labels, not_aug_inputs):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        return loss.item()
"""

LEGACY_METHOD = (
    HEAD
    + '''

class Fresh(ContinualModel):
    """`get_parser()` gives a parser of its own; only task-aware."""
    NAME = 'fresh'
    COMPATIBILITY = ['task-il']

    @staticmethod
    def get_parser() -> ArgumentParser:
        parser = ArgumentParser(description='Its own.')
        parser.add_argument('--depth', type=int, default=3)
        parser.set_defaults(batch_size=40, lr=0.5)
        return parser

    def forward(self, x, task_label):
        assert 0 <= task_label <= self.current_task
        first = self.dataset.get_offsets(task_label)[0]
        return F.one_hot(torch.full((len(x),), first), self.num_classes).float()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        return 0
'''
)

REPLACED = (
    HEAD
    + '''

class Replaced(ContinualModel):
    """Replaces the data of a task, copies data sets, distils logits, as iCaRL, BiC and LwF do."""
    NAME = 'replaced'
    COMPATIBILITY = ['class-il']

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.kept, self.seen, self.lengths = None, [], []

    def begin_task(self, dataset):
        train = dataset.train_loader.dataset
        assert hasattr(train, 'not_aug_transform') and train.data[0].dtype == np.uint8
        some = np.arange(len(train.targets)) % 4 == 0
        val = deepcopy(train)
        val.data, val.targets = train.data[~some][:12], train.targets[~some][:12]
        loader = torch.utils.data.DataLoader(val, batch_size=5)
        self.validation = sum(len(batch[1]) for batch in loader)
        data, targets = train.data[some], train.targets[some]
        if self.kept is not None:
            data, targets = np.concatenate([data, self.kept[0]]), torch.cat([targets, self.kept[1]])
        train.data, train.targets = data, targets
        self.kept = data[:7], targets[:7]
        logits, net = [], deepcopy(self.net).eval()
        with torch.no_grad():
            for j in range(len(train)):
                plain = train.__getitem__(j)[2]
                assert plain.dim() == 3 and 0 <= plain.min() and plain.max() <= 1
                logits.append(net(self.normalization_transform(plain[None]).to(self.device))[0])
        train.extra_return_fields += ('logits',)
        train.logits = torch.stack(logits)
        self.lengths.append(len(train))
        self.table = {row.tobytes(): line for row, line in zip(train.data, train.logits)}

    def observe(self, inputs, labels, not_aug_inputs, logits=None, epoch=None):
        images = (not_aug_inputs * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
        for image, line in zip(images, logits):
            assert torch.equal(self.table[image.tobytes()], line)
        self.seen.append(len(labels))
        loss = self.loss(self.net(inputs), labels, reduction='none')
        assert loss.shape == labels.shape
        return {'loss': loss.mean(), 'other': 3}
'''
)

NETS = (
    HEAD
    + '''
from backbone import get_backbone
from datasets import get_dataset
from utils.conf import get_device
from utils.schedulers import get_scheduler

class Nets(ContinualModel):
    """New networks and data sets in the middle of a run; an optimiser of its own."""
    NAME = 'nets'
    COMPATIBILITY = ['class-il', 'general-continual']

    @staticmethod
    def get_parser(parser):
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        backbone.classifier = torch.nn.Linear(backbone.classifier.in_features, 10, bias=False)
        args.mine = 'added'
        super().__init__(backbone, loss, args, transform, dataset)
        self.own, self.last = [], []

    def begin_task(self, dataset):
        assert self.net.training
        old = self.net
        self.net = get_backbone(self.args).to(self.device)
        assert type(self.net) is type(old) and self.net.device == self.device == get_device()
        self.opt = torch.optim.Adam(self.net.classifier.parameters(), lr=0.125)
        self.own.append(self.opt)
        again = get_dataset(self.args)
        again.get_data_loaders()
        self.dataset = again
        assert get_scheduler(self.net, self.args) is None

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        assert self.opt is self.own[-1]
        features = self.net(inputs, returnt='features')
        both = self.net(inputs, returnt='both')
        assert torch.allclose(self.net.classifier(features), both[0], atol=1e-4)
        self.opt.step()
        return self.opt.param_groups[0]['lr']

    def end_task(self, dataset):
        self.net.eval()
        last = self.current_task == dataset.N_TASKS - 1
        self.last.append((len(dataset.test_loaders) == dataset.N_TASKS, last))
'''
)

BUFFERS = (
    HEAD
    + '''

class Buffers(ContinualModel):
    """Reads and writes buffers directly, as GDumb, X-DER, GEM and iCaRL do."""
    NAME = 'buffers'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser):
        add_rehearsal_args(parser)
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.buffer = Buffer(self.args.buffer_size)
        self.tasks = [[] for _ in range(dataset.N_TASKS)]

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        if not self.buffer.is_empty():
            idx, images, y, logits, tasks = self.buffer.get_data(
                self.args.minibatch_size, transform=self.transform, device=self.device,
                return_index=True)
            assert images.shape[1:] == inputs.shape[1:] and len(y) <= self.args.minibatch_size
            with torch.no_grad():
                self.buffer.logits[idx] = self.net(images)
            for task in tasks:
                self.tasks[task].append(1)
        # it may view them as vectors
        assert inputs.is_contiguous() and not_aug_inputs.is_contiguous()
        assert apply_transform(not_aug_inputs, self.transform).is_contiguous()
        plain = apply_transform(not_aug_inputs, self.normalization_transform)
        assert torch.equal(plain, self.normalization_transform(not_aug_inputs))
        self.buffer.add_data(examples=not_aug_inputs, labels=labels, logits=self.net(inputs).data,
                             task_labels=torch.ones(len(labels)) * self.current_task)
        assert len(self.buffer.examples) == self.args.buffer_size
        return 0.0

    def end_task(self, dataset):
        images = self.buffer.examples[:len(self.buffer)]
        again = torch.stack([self.transform(image) for image in images])
        assert again.shape[0] == len(images)
'''
)

FIELDS = (
    HEAD
    + '''
ALWAYS = ('lr batch_size minibatch_size n_epochs buffer_size optim_wd optim_mom optim_nesterov '
          'optimizer debug_mode dataset model backbone seed num_workers nowand label_perc device '
          'start_from n_iters fitting_mode non_verbose joint permute_classes noise_rate '
          'validation').split()

class Fields(ContinualModel):
    """Reads arguments without asking whether they are there; needs the true labels. Its parser
    returns nothing, sets defaults
    of flags before they exist, and groups its flags."""
    NAME = 'fields'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser):
        parser.set_defaults(strength=0.75, optim_mom=0.5, not_a_flag='kept')
        parser.add_argument_group('further').add_argument('--strength', type=float, default=0.25)

    def observe(self, inputs, labels, not_aug_inputs, true_labels, epoch=None):
        self.values = [getattr(self.args, name) for name in ALWAYS]
        self.wrong = getattr(self, 'wrong', 0) + int((labels != true_labels).sum())
        return 0
'''
)

WRAPPED = (
    HEAD
    + '''

class Wrapper:
    def __init__(self, network):
        self._network = network

class Wrapped(ContinualModel):
    """Its `net` is no module, as those of SLCA and AttriCLIP."""
    NAME = 'wrapped'
    COMPATIBILITY = ['class-il', 'general-continual']

    @staticmethod
    def get_parser(parser):
        parser.add_argument('--form')

    def __init__(self, backbone, loss, args, transform, dataset=None):
        forms = dict(module=backbone, object=Wrapper(backbone), none=None)
        forms['list'] = [backbone, Wrapper([backbone])]
        super().__init__(forms[args.form], loss, args, transform, dataset)
        self.network = lambda: backbone

    def forward(self, x):
        assert not self.network().training or self.net is None
        return self.network()(x)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        if self.opt is None:
            return 0
        assert self.network().training and next(self.network().parameters()).device == self.device
        return self.descend(self.loss(self.network()(inputs), labels))
'''
)

REPLAY = (
    HEAD
    + '''
from models.utils.replay_model import ReplayModel

class Replay(ReplayModel):
    """Its `get_parser` says nothing of the buffer that it has."""
    NAME = 'replay'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser):
        parser.add_argument('--weight', type=float, default=0.5)
        parser.set_defaults(minibatch_size=7)
        return parser

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.store(not_aug_inputs, labels)
        assert len(self.replay()[1]) == 7
        return 0
'''
)

FILES = {
    'star': STAR,
    'legacy': LEGACY_METHOD,
    'replaced': REPLACED,
    'nets': NETS,
    'buffers': BUFFERS,
    'fields': FIELDS,
    'wrapped': WRAPPED,
    'replay': REPLAY,
}


@pytest.fixture(autouse=True)
def files(third_party, small_digits):
    third_party(models=FILES)


@pytest.fixture
def run(parse):
    """run(name, *flags): (model, data set, results row) of a run on the digits."""

    def start(name, *flags, lr='0.05'):
        usual = {'n_epochs': 1, 'n_splits': 2, 'batch_size': 16}
        if lr:
            usual['lr'] = lr
        model, dataset, args = initialize(parse(name, *flags, **usual))
        return model, dataset, train(model, dataset, args)

    return start


def test_a_file_of_2020_with_a_star_import_and_a_function_for_its_parser(run, parse):
    with refused('required: --penalty'):
        parse('early', '--lr 0.1 --buffer_size 20')
    model, *_ = run('early', '--buffer_size 20 --penalty 1.5 --on yes')
    assert model.args.penalty == 3
    assert model.args.on is True
    assert len(model.buffer) == 20
    assert model.current_task == 2


def test_a_parser_of_its_own_is_merged_and_a_task_il_method_gets_the_task(run, tmp_path):
    model, _, row = run('fresh', '--disable_log 0 --base_path', str(tmp_path), lr=None)
    args = model.args
    assert (args.depth, args.lr, args.batch_size, model.current_task) == (3, 0.5, 16, 2)
    folder = tmp_path / 'results' / 'task-il' / 'seq-digits' / 'fresh'
    assert float(read_rows(folder / 'mean_accs.csv')[0]['task2']) == 20
    assert row['task2'] == 0  # always the first class of five; no class-il accuracy


def test_replaced_data_are_what_comes_with_their_logits(run):
    model, dataset, _ = run('replaced', '--batch_size 4')
    sizes = [-(-int((dataset.train_labels // 5 == t).sum()) // 4) for t in (0, 1)]
    assert model.lengths == [sizes[0], sizes[1] + 7]
    assert sum(model.seen) == sum(model.lengths)
    assert max(model.seen) == 4
    assert model.validation == 12
    assert len(dataset.train_loader.dataset) == model.lengths[1]


def test_new_networks_data_sets_and_optimisers_in_the_middle_of_a_run(run):
    model, _, _ = run('nets', '--permute_classes 1 --lr_scheduler multisteplr --lr_milestones 1')
    assert len(model.own) == 2
    assert model.last == [(False, False), (True, True)]
    assert model.args.mine == 'added'
    # the scheduler works on the optimiser that the method made
    assert model.opt.param_groups[0]['lr'] == pytest.approx(0.0125)
    assert (model.dataset.class_order == model.args.class_order).all()


@pytest.mark.parametrize(
    'flags',
    [['--bn', 'frozen'], ['--fitting_mode', 'early_stopping', '--n_epochs', '2']],
    ids=' '.join,
)
def test_a_net_that_is_no_module_is_trained_as_the_network_in_it(run, flags):
    ends = {
        form: run('wrapped', '--form', form, *flags)[0]
        for form in ('module', 'object', 'list', 'none')
    }
    weights = {form: model.network().state_dict() for form, model in ends.items()}
    for form in ('object', 'list'):
        assert all(map(torch.equal, weights[form].values(), weights['module'].values())), form
    assert ends['none'].opt is None
    assert ends['object'].opt is not None
    assert not torch.equal(
        weights['none']['classifier.weight'], weights['module']['classifier.weight']
    )


def test_buffers_are_read_and_written_directly(run):
    model, *_ = run('buffers', '--buffer_size 40 --minibatch_size 9')
    assert len(model.buffer) == 40
    assert model.buffer.task_labels.dtype == torch.int64
    assert all(model.tasks)
    assert model.args.minibatch_size == 9


def test_a_replay_method_has_its_buffer_whatever_its_parser_declares(run, parse, capsys):
    model, _, _ = run('replay', '--buffer_size', '12', '--weight', '2')
    assert len(model.buffer) == 12
    assert model.args.weight == 2
    assert 'no effect' not in capsys.readouterr().err
    with refused('required: --buffer_size'):
        parse('replay', '--lr', '0.1')


def test_files_of_the_docs_run_as_they_stand(third_party, command_line, tmp_path):
    folders = {}
    for block in BLOCKS:
        if block.mark.startswith('file: '):
            path = Path(block.mark.removeprefix('file: '))
            folders.setdefault(str(path.parent), {})[path.stem] = block.code
    third_party(**folders)
    code, _, err = command_line(
        '--model smooth --dataset stripes --backbone one-layer --layer_width 8 --smoothing 0.2',
        '--non_verbose 1 --base_path',
        tmp_path,
    )
    assert code == 0, err
    (row,) = read_rows(tmp_path / 'results' / 'class-il' / 'stripes' / 'smooth' / 'mean_accs.csv')
    assert (row['backbone'], row['layer_width'], row['smoothing']) == ('one-layer', '8', '0.2')


def test_arguments_that_are_always_there(run):
    model, dataset, _ = run(
        'fields', '--noise_rate 0.25 --disable_noisy_labels_cache 1 --n_splits 1'
    )
    assert len(model.values) == 26
    assert model.wrong == len(dataset.train_labels) / 4
    args = model.args
    assert (args.buffer_size, args.minibatch_size, args.num_workers) == (0, 16, 0)
    assert args.nowand
    assert args.start_from is None
    assert (args.strength, args.optim_mom, args.not_a_flag) == (0.75, 0.5, 'kept')


def test_a_field_that_the_stream_does_not_give_is_named(run):
    with refused('--model fields', 'true_labels', '--noise_rate'):
        run('fields')
