"""`--mammoth PATH`: a file written for Mammoth finds the helper modules that only a checkout of
Mammoth has.
"""

import json
import os
import shutil
import sys

import pytest

import core.configs
from bench.certify import command as certify
from bench.cli.parsing import parse_args
from bench.run.building import initialize
from bench.run.training import train
from core.environment import warn_once
from core.plugins import ROOT
from models import get_model_class
from tests.conftest import python, refused, words_of, written

METHOD = """
import torch
from backbone.columns import Column
from backbone.utils.layers import double
from datasets.transforms.paint import paint
from datasets.utils.hub import hub
from models.gentle_utils import half
from models.gentle_utils.penalty import penalty
from models.utils.continual_model import ContinualModel
from utils import ring
from utils.args import ArgumentParser, add_rehearsal_args
from utils.augmentations import apply_transform, soft
from utils.ring import RingBuffer
from utils.schedulers import Warmup

class Gentle(ContinualModel):
    NAME = 'gentle'
    COMPATIBILITY = ['class-il']

    @staticmethod
    def get_parser(parser) -> ArgumentParser:
        add_rehearsal_args(parser)
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.buffer = RingBuffer(self.args.buffer_size, self.device)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(paint(double(inputs))), labels) + penalty(self.net)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        from utils.late import late
        assert late and ring.RingBuffer is RingBuffer and soft(2) == 4 * 2 * half
        assert Warmup.STEPS == 3 and hub and Column
        assert apply_transform.__module__ == 'utils.augmentations'
        assert not hasattr(apply_transform, 'theirs')
        return loss.item()
"""
LOUD = 'raise RuntimeError("must not be imported")\n'
CHECKOUT = {
    **{
        f'{package}/__init__.py': LOUD
        for package in ('backbone', 'datasets', 'models', 'utils', 'datasets/utils', 'models/utils')
    },
    'main.py': LOUD,
    'utils/buffer.py': LOUD,
    'utils/args.py': LOUD,
    'models/utils/continual_model.py': LOUD,
    'models/er.py': LOUD,
    'models/other.py': LOUD,
    'utils/unasked.py': LOUD,
    'backbone/columns.py': 'class Column:\n    pass\n',
    'backbone/utils/layers.py': (
        'from backbone.utils.more import factor\n\n\ndef double(x):\n    return factor * x\n'
    ),
    'backbone/utils/more.py': 'factor = 2\n',
    'datasets/transforms/paint.py': 'def paint(x):\n    return x\n',
    'datasets/utils/hub.py': 'hub = "there"\n',
    'models/gentle_utils/__init__.py': 'half = 0.5\n',
    'models/gentle_utils/penalty.py': (
        'def penalty(net):\n    return 0 * net.classifier.weight.sum()\n'
    ),
    'utils/ring.py': 'from utils.buffer import Buffer\n\n\nclass RingBuffer(Buffer):\n    pass\n',
    'utils/late.py': 'late = True\n',
    'utils/augmentations.py': 'from utils.augmentations import random_flip\n\n\ndef soft(x):\n    '
    'return x * 2\n\n\n'
    'def apply_transform(x, transform):\n    raise RuntimeError("shadowed")\n',
    'utils/schedulers.py': 'class Warmup:\n    STEPS = 3\n',
}
THEIRS = {'models/theirs.py': METHOD.replace("'gentle'", "'theirs'")}
BASE = '--dataset seq-digits --lr 0.05 --buffer_size 20 --disable_log 1 --non_verbose 1'
NET = '--weights none --backbone reduced-resnet18 --num_filters 2'
FLAGS = f'{BASE} {NET} --n_epochs 1 --batch_size 16 --n_splits 2'


def given(*words, model='gentle'):
    return parse_args(words_of('--model', model, *words))


@pytest.fixture
def checkout(third_party, small_digits, tmp_path, monkeypatch):
    """The folder of a Mammoth, and a model file that needs it among ours; afterwards both are
    forgotten.
    """
    third_party(models={'gentle': METHOD})
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    monkeypatch.delenv('MAMMOTH_PATH', raising=False)
    yield (folder := written(tmp_path / 'their mammoth', CHECKOUT))
    for name, module in list(sys.modules.items()):
        found = getattr(module, '__file__', None)
        if name.startswith(('backbone.', 'datasets.', 'models.', 'utils.')) and (
            found is None or str(folder) in found
        ):
            package, _, stem = name.rpartition('.')
            vars(sys.modules.get(package, module)).pop(stem, None)
            del sys.modules[name]


@pytest.mark.parametrize('by', ['flag', 'variable'])
def test_a_run_with_modules_and_names_of_a_checkout(checkout, tmp_path, monkeypatch, capsys, by):
    """A name that both have is ours; neither `__init__` files nor what is not asked for run.
    Accuracies are where scripts for Mammoth look.
    """
    if by == 'variable':
        monkeypatch.setenv('MAMMOTH_PATH', str(checkout))
    args = given(FLAGS, '--base_path', tmp_path, *(['--mammoth', checkout] if by == 'flag' else []))
    model, dataset, args = initialize(args)
    row = train(model, dataset, args)
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith('Accuracy for 2 ')][-1] in err
    assert type(model.buffer).__mro__[1].__module__ == 'utils.buffer'
    assert len(model.buffer) == 20
    assert ('mammoth' in row) == (by == 'flag')
    assert 'task2' in row
    assert sys.modules['utils.ring'].__file__.startswith(str(checkout))
    (checkout / 'utils' / '__init__.py').write_text(
        'def joined(*parts):\n    return "/".join(parts)\n'
    )
    from utils import joined

    assert joined('a', 'b') == 'a/b'
    import models.er

    assert not models.er.__file__.startswith(str(checkout))
    assert 'models.other' not in sys.modules


def test_without_a_checkout_one_line_names_what_is_missing_and_the_flag(checkout, tmp_path):
    with refused('--model gentle', 'backbone.columns', '--mammoth PATH'):
        given(FLAGS)
    (checkout / 'utils' / 'schedulers.py').unlink()
    with refused('--model gentle', 'Warmup', str(checkout)):
        given(FLAGS, '--mammoth', checkout)
    with refused('--mammoth', str(tmp_path / 'none'), 'utils'):
        given(FLAGS, '--mammoth', tmp_path / 'none')


def test_a_package_that_a_helper_lacks_is_named_each_time(checkout):
    (checkout / 'utils' / 'augmentations.py').write_text('import no_such_package\nsoft = 3\n')
    for _ in range(2):
        with refused('--model gentle', 'no_such_package'):
            given(FLAGS, '--mammoth', checkout)


@pytest.mark.parametrize(
    'end, said',
    [('raise SystemExit(0)', 'SystemExit'), ('x = ' + '-' * 50_000 + '1', 'cannot be imported')],
)
def test_files_that_end_the_process_or_cannot_be_read_are_one_line(checkout, end, said):
    """`sys.exit(0)` at import ended a run with exit code 0; a pipe called `x.py` let every run wait
    for ever.
    """
    os.mkfifo(checkout / 'models' / 'pipe.py')
    (checkout / 'models' / 'loop.py').symlink_to('loop.py')
    (checkout / 'models' / 'folder.py').mkdir()
    (checkout / 'models' / 'latin.py').write_bytes(
        b'# coding: latin-1\nclass Latin:\n    NAME = "latin"  # \xe9\n'
    )
    (checkout / 'models' / 'quitting.py').write_text(
        f'class Quitting:\n    NAME = "quitting"\n{end}\n'
    )
    with refused('--model quitting', said):
        given(FLAGS, '--mammoth', checkout, model='quitting')
    with refused('--mammoth ~no.such.user'):
        given(FLAGS, '--mammoth ~no.such.user/mammoth')


def test_help_imports_nothing_of_it(checkout, tmp_path):
    code = (
        'import sys\nsys.argv = ["main.py", "--help_all", "--mammoth", sys.argv[1]]\nimport main\n'
        'try: main.main()\nexcept SystemExit: pass\nprint("theirs:", [n for n, m in '
        'sys.modules.items() if "their" in str(m)])'
    )
    result = python('-c', code, checkout, cwd=tmp_path.cwd())
    assert '--mammoth PATH' in result.stdout, result.stderr
    assert 'theirs: []' in result.stdout, result.stderr


def test_unknown_keys_in_config_files_of_the_checkout_are_warned_of_and_in_ours_refused(
    checkout, capsys, monkeypatch, tmp_path
):
    written(
        checkout,
        THEIRS
        | {
            'models/config/theirs.yaml': 'default: {odd_m: 1, batch_size: 7}',
            'datasets/configs/seq-digits/rare.yaml': 'odd_d: 1\nn_epochs: 3\n',
        },
    )
    warn_once.cache_clear()
    flags = BASE, NET, '--dataset_config rare --mammoth', checkout
    args = given(*flags, model='theirs')
    assert (args.batch_size, args.n_epochs) == (7, 3)
    warned = capsys.readouterr().err
    assert all(
        f'{name} is not a flag of this run' in warned
        for name in ('theirs.yaml: default: odd_m', 'rare.yaml: odd_d')
    )
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)
    written(tmp_path, {'datasets/configs/seq-digits/rare.yaml': 'odd_d: 1\n'})
    with refused('rare.yaml', 'odd_d'):
        given(*flags, model='theirs')


def test_a_method_of_the_checkout_gets_its_network_unless_another_is_asked_for(
    checkout, tmp_path, caplog
):
    """The log gives Mammoth's name of it, which scripts for Mammoth compare."""
    net = (
        'from backbone import register_backbone\nfrom backbone.resnet_cifar import resnet34\n\n\n'
        '@register_backbone("resnet18")\ndef resnet18(num_classes, num_filters: int = 3):\n'
        '    return resnet34(num_classes, num_filters)\n'
    )
    config = {'models/config/theirs.yaml': 'default: {backbone: resnet18}'}
    written(checkout, THEIRS | config | {'backbone/net.py': net})
    flags = (
        BASE,
        '--num_filters 2 --n_epochs 1 --n_splits 2 --batch_size 16 --base_path',
        tmp_path,
        '--mammoth',
        checkout,
    )
    assert given(*flags, '--backbone resnet18', model='theirs').backbone == 'resnet18'
    caplog.set_level('DEBUG')
    args = initialize(given(*flags, model='theirs'))[2]
    assert args.backbone == 'mammoth:resnet18'
    assert "backbone='resnet18'" in caplog.text


def test_methods_of_the_checkout_have_its_own_buffer_and_others_ours(
    checkout, third_party, tmp_path
):
    own = METHOD.replace('from utils import ring', 'from utils.buffer import Buffer').replace(
        'ring.RingBuffer is RingBuffer', 'Buffer'
    )
    own = own.replace(
        'RingBuffer(self.args.buffer_size, self.device)',
        "Buffer(9, self.device, sample_selection_strategy='rare')",
    )
    (checkout / 'models' / 'theirs.py').write_text(own.replace("'gentle'", "'theirs'"))
    (checkout / 'utils' / 'buffer.py').write_text(
        'class Buffer:\n    def __init__(self, size, device, '
        'sample_selection_strategy):\n        self.kept = []\n\n'
        '    def add_data(self, examples, labels):\n        self.kept += labels.tolist()\n'
    )
    flags = FLAGS, '--mammoth', checkout, '--base_path', tmp_path
    model, dataset, args = initialize(given(*flags, model='theirs'))
    assert 'task2' in train(model, dataset, args)
    assert len(model.buffer.kept) > 50
    third_party(models={'mine': own.replace("'gentle'", "'mine'")})
    with refused('rare', 'reservoir or greedy', '--mammoth'):
        initialize(given(*flags, model='mine'))
    assert not list(checkout.glob('models/**/*.pyc'))


def test_a_method_that_is_not_ours_gets_labels_that_count_up_as_classes_come(checkout, tmp_path):
    """Mammoth's tasks are ranges of classes; under any order of the classes of the
    files.
    """
    last = (4, 0, 9, 1, 7), (2, 8, 3, 5, 6)
    order = '-'.join(map(str, last[0] + last[1]))
    _, dataset, args = initialize(
        given(
            FLAGS.replace('--n_splits 2', f'--schedule split:2,order={order}'),
            '--base_path',
            tmp_path,
            '--mammoth',
            checkout,
        )
    )
    assert [dataset.task_classes(t).tolist() for t in (0, 1)] == [
        list(range(5)),
        list(range(5, 10)),
    ]
    names = dataset.get_class_names()
    assert [
        {int(name.split()[-1]) for name in names[part]} for part in (slice(5), slice(5, 10))
    ] == [set(classes) for classes in last]
    assert set(dataset.get_data_loaders()[0].dataset.targets.tolist()) == set(range(5))
    args = given(
        '--dataset seq-digits --lr 0.1 --n_epochs 1 --schedule', args.schedule, model='sgd'
    )
    # ours take any labels
    assert sorted(initialize(args)[1].task_classes(0).tolist()) == sorted(last[0])


OLD = {
    'models/old.py': """
from datasets import NAMES
from models.utils.continual_model import ContinualModel
from utils.args import *

def get_parser() -> ArgumentParser:
    parser = ArgumentParser(description='Mammoth of 2021')
    add_management_args(parser)
    add_rehearsal_args(parser)
    add_aux_args(parser)
    return parser

class Old(ContinualModel):
    NAME = 'old'
    COMPATIBILITY = ['class-il']

    def __init__(self, backbone, loss, args, transform):
        super(Old, self).__init__(backbone, loss, args, transform)
        self.twin = self.dataset.get_backbone()
        self.said = [args.where, args.place, args.aux, args.rate, self.tag]
        assert 'seq-digits' in NAMES
        self.epochs = []

    def observe(self, inputs, labels, not_aug_inputs):
        self.opt.zero_grad()
        loss = self.halved(self.loss(self.net(inputs), labels))
        loss.backward()
        self.opt.step()
        return loss.item(), 0

    def end_epoch(self, epoch):
        self.epochs.append((epoch, self._cpt))

    def end_task(self, dataset):
        self.current_task += 1
""",
    'utils/args.py': """
from argparse import ArgumentParser
from datasets import NAMES as DATASET_NAMES
from models import get_all_models

def add_management_args(parser):
    parser.add_argument('--where', default='here', choices=list(get_all_models().keys()))

def add_aux_args(parser):
    parser.add_argument('--aux', type=int, default=3)
""",
    'main.py': LOUD + "parser.add_argument('--place', type=int, default=7)\n",
    'utils/best_args.py': "best_args = {'seq-digits': {'old': {20: {'rate': 0.5, 'lr': 0.07}}}}\n",
    'models/utils/continual_model.py': """
class ContinualModel:
    def __init__(self, backbone, loss, args, transform):
        self.tag = args.where + '!'

    @property
    def cpt(self):
        raise RuntimeError('it is ours')

    def halved(self, loss):
        return loss / 2
""",
    'datasets/old.py': """
from backbone.resnet_cifar import resnet34
from datasets.seq_digits import SequentialDigits

class OldDigits(SequentialDigits):
    NAME = 'old-digits'

    @staticmethod
    def get_backbone():
        return resnet34(10, 2)
""",
}


@pytest.fixture
def fork(checkout):
    """The checkout, as if it were of 2021, without a folder `backbone`."""
    shutil.rmtree(checkout / 'backbone')
    return written(checkout, OLD)


OLD_RUN = FLAGS.replace('seq-digits', 'old-digits').replace(NET, '--weights none')


def test_a_method_of_2021_runs_with_its_flags_its_base_class_and_its_data_sets_network(
    fork, tmp_path
):
    words = OLD_RUN, '--rate 0.25 --mammoth', fork, '--base_path', tmp_path
    model, dataset, args = initialize(given(*words, model='old'))
    assert args.backbone == 'of-data-set'
    assert type(model.net) is type(model.twin) is type(dataset.get_backbone())
    assert model.said == ['here', 7, 3, 0.25, 'here!']
    assert 'task2' in train(model, dataset, args)
    assert model.epochs == [(0, 5), (0, 5)]
    assert model.current_task == 2
    given(FLAGS, '--mammoth', fork, model='er')  # needs none of its flags


def test_a_certificate_names_the_fork_and_has_its_flags(fork, tmp_path):
    old = OLD['models/old.py'].replace('self.dataset.get_backbone()', 'backbone')
    (fork / 'models' / 'old.py').write_text(old)
    words = words_of(
        '--model old --dataset seq-digits --schedules 0 --batch_size 64 --n_epochs 1 --lr 0.05',
        '--rate 0.25 --buffer_size 20 --mammoth',
        fork,
        NET,
        '--out',
        tmp_path / 'out',
        '--base_path',
        tmp_path,
    )
    certify.certify(*certify.parse_options(words))
    (path,) = (tmp_path / 'out').glob('certificate-*')
    certificate = json.loads(path.read_text())
    assert certificate['model'] == f'{fork.name}:old'
    assert {'rate': 0.25, 'place': 7, 'aux': 3}.items() <= certificate['settings'].items()


DERIVED = {
    'models/er.py': (
        OLD['models/old.py']
        .replace('Old', 'Er')
        .replace("'old'", "'er'")
        .replace('args.rate, ', '')
        .replace('self.current_task += 1', 'super().end_task(dataset)')
    ),
    'models/derived.py': """
from .er import Er, get_parser

class Derived(Er):
    NAME = 'derived'

    def begin_task(self, dataset):
        samples = dataset.train_loader.dataset
        samples.logits = [[float(label)] for label in samples.targets]
        self.given = []

    def observe(self, inputs, labels, not_aug_inputs, logits=None):
        self.given += (logits[:, 0] == labels).tolist()
        return super().observe(inputs, labels, not_aug_inputs)

    def begin_epoch(self, epoch):
        self.epochs.append(epoch)

    def end_task(self, dataset):
        super().end_task(dataset)
        self.ended = self.task
""",
    'utils/training.py': 'def train(model):\n    model.begin_epoch(epoch + 1)\n',
    'models/utils/continual_model.py': OLD['models/utils/continual_model.py'].replace(
        "self.tag = args.where + '!'", "self.tag = args.where + '!'\n        self.task = 0"
    )
    + '    def end_task(self, dataset):\n        self.task += 1\n',
    'datasets/old.py': OLD['datasets/old.py']
    + """
    @staticmethod
    def get_DWT_backbone():
        return resnet34(10, 3)

    def get_DWT_transform(self):
        return lambda images: 7 * images
""",
}


def test_a_method_derives_from_the_checkouts_and_its_base_class_counts_tasks(fork, tmp_path):
    """The one that it derives from has the name of one of ours; the checkout's loop counts epochs
    from 1 where it begins one, and from 0 where it ends one. Logits that a method sets come with
    their samples.
    """
    written(fork, DERIVED)
    words = OLD_RUN, '--mammoth', fork, '--base_path', tmp_path
    model, dataset, args = initialize(given(*words, model='derived'))
    assert type(model).__mro__[1].__module__ == 'mammoth_checkout.models.er'
    train(model, dataset, args)
    assert model.epochs == [1, (0, 5), 1, (0, 5)]
    assert model.ended == 2
    assert set(model.given) == {True}  # logits of their own samples


def test_a_data_set_has_networks_by_name_and_a_transform_for_each(fork, tmp_path):
    written(fork, DERIVED)
    words = OLD_RUN, '--rate 1 --mammoth', fork, '--base_path', tmp_path
    model, *_ = initialize(given(*words, '--backbone of-data-set:DWT', model='old'))
    assert model.net.feature_dim == 3 * 8
    assert model.original_transform(2) == 14
    with refused('--backbone of-data-set:other', 'get_other_backbone'):
        initialize(given(*words, '--backbone of-data-set:other', model='old'))


def test_values_that_only_its_best_args_have_are_required_without_them(fork):
    words = FLAGS.replace('--lr 0.05', ''), '--mammoth', fork
    args = given(*words, '--load_best_args', model='old')
    assert (args.rate, args.lr) == (0.5, 0.07)
    with refused('required: --rate'):
        given(*words, '--lr 0.1', model='old')


@pytest.mark.parametrize(
    'line, said',
    [('import no_such_package', 'no_such_package'), ('args.own_loop', 'args.own_loop')],
)
def test_what_nobody_has_is_one_line_that_names_it_and_the_place(fork, tmp_path, line, said):
    old = OLD['models/old.py'].replace('self.epochs = []', f'self.epochs = []\n        {line}')
    (fork / 'models' / 'old.py').write_text(old)
    args = given(OLD_RUN, '--rate 1 --mammoth', fork, '--base_path', tmp_path, model='old')
    with refused('--model old: models/old.py:23', said):
        initialize(args)


def test_of_two_files_with_one_name_the_last_counts_and_nested_keys_have_no_effect(fork, capsys):
    written(
        fork,
        {
            'models/older.py': OLD['models/old.py'].replace('class Old(', 'class Older('),
            'models/config/old.yaml': 'model: old\ntraining: {lr: 1}\ndefault: {lr: 0.02}\n',
            'datasets/configs/seq-digits/nested.yaml': (
                'backbone: {type: reduced-resnet18, args: {num_filters: 3}}\n'
            ),
        },
    )
    args = given(
        '--dataset seq-digits --weights none --buffer_size 20 --rate 1 --mammoth',
        fork,
        '--dataset_config nested',
        model='old',
    )
    assert (args.lr, args.backbone, args.num_filters) == (0.02, 'reduced-resnet18', 3)
    assert get_model_class('old').__name__ == 'Older'
    warned = capsys.readouterr().err
    assert all(text in warned for text in ('models/older.py', 'model is no section'))


def test_the_variable_alone_lets_utils_have_names_of_the_checkout(fork):
    (fork / 'utils' / '__init__.py').write_text('own = 3\n')
    code = (
        'import os, sys\nos.environ["MAMMOTH_PATH"] = sys.argv[1]\nimport utils; print(utils.own)'
    )
    result = python('-c', code, fork, cwd=ROOT)
    assert result.stdout == '3\n', result.stderr
