"""A run that is killed at any moment, and started again by the same command, ends with the same
bits as one that was not.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torchvision.transforms import Compose

import models
from bench.resume import checkpoints, run_state
from bench.resume.state import Packer
from bench.run.building import initialize
from bench.run.training import train
from core import rows as results
from core.rows import read_rows
from datasets.utils import readers, scheduled_dataset
from models.sgd import Sgd
from models.utils.continual_model import ContinualModel
from scroll.adaptation.training import Trainee
from scroll.embedding.integer_network import golden_images
from scroll.ground.archive import take_lock
from tests.bench.test_model_state import different
from tests.conftest import ROOT, files_below, refused, save_tiny_integers, words_of
from tests.models.test_contract import OFFLINE, QUICK, known_flags

# columns that differ from run to run
NOT_BITS = ('seconds', 'peak', 'run', 'finished', 'base_path')


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class Reaper(TorchFunctionMode):
    """Kills at the n-th of the moments that it sees: steps, ends of tasks, writes of files; as a
    context, also every call of torch's."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.left = None
        self.moments = 0
        hooks = (
            'meta_begin_task',
            'meta_observe',
            'meta_end_epoch',
            'meta_end_task',
            'meta_end_eval',
        )
        for place, name in (
            *((ContinualModel, hook) for hook in hooks),
            (os, 'replace'),
            (os, 'fsync'),
            (torch, 'save'),
        ):
            monkeypatch.setattr(place, name, self.watched(getattr(place, name)))

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.pass_by()
        return function(*args, **(kwargs or {}))

    def watched(self, function):
        def call(*given, **more):
            self.pass_by()
            out = function(*given, **more)
            self.pass_by()
            return out

        return call

    def pass_by(self):
        self.moments += 1
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise Killed


@pytest.fixture
def reaper(monkeypatch):
    return Reaper(monkeypatch)


@pytest.fixture
def start(parse, small_digits, monkeypatch):
    """start(folder, method, *flags): (model, data set, arguments), ready to train, with a
    checkpoint at every other opportunity.
    """
    due = checkpoints.Checkpoints.due
    turns = itertools.count()
    monkeypatch.setattr(
        checkpoints.Checkpoints,
        'due',
        lambda self, **more: due(self, **more) and next(turns) % 2 == 0,
    )

    def build(folder, method, *flags):
        words = words_of(QUICK.get(method, ''), *flags)
        usual = {'batch_size': 12, 'checkpoint_every': 1e-9, 'base_path': folder}
        if '--buffer_size' in known_flags(method):
            usual['buffer_size'] = 25
        if method in OFFLINE and 'gaussian' not in ' '.join(words):
            usual['n_epochs'] = 1
        if '--schedule' not in words:
            usual['n_splits'] = 2
        return initialize(parse(method, *words, '--disable_log 0', **usual))

    return build


def the_end(model, row) -> dict:
    learned = {name: value for name, value in Packer().members(model).items() if name != 'seconds'}
    columns = {name: value for name, value in row.items() if not name.startswith(NOT_BITS)}
    return {
        'state': learned,
        'row': columns,
        'random': run_state.random_state() if not hasattr(model, 'learner') else None,
    }


def rows_below(folder) -> list:
    return [read_rows(path) for path in sorted(files_below(folder)) if path.suffix == '.csv']


def run_with_kills(start, reaper, folder, kills, *words):
    """The end of a run that is killed after these numbers of moments, one after the other."""
    for after in [*kills, None]:
        reaper.left = after
        reaper.moments = 0
        # as a new process has it; the last one may have ended in no_grad's exit
        torch.set_grad_enabled(True)
        model, dataset, args = start(folder, *words)
        try:
            with reaper:
                row = train(model, dataset, args)
            return the_end(model, row)
        except Killed:
            continue
    raise AssertionError('it never ended')


LONG = ['--schedule split:2 --batch_size 9']
QUICK_ENOUGH = 'er', 'lwf', 'sgd multisteplr', 'scroll iid'
STREAMS = {  # one method for each kind of state, one stream for each kind
    **{name: [name] for name in ('er', 'lwf', 'bic', 'ens', 'ewc-on', 'gdumb', 'gem')},
    'sgd multisteplr': [
        'sgd',
        *LONG,
        '--n_epochs 2 --optim_mom 0.9 --lr_scheduler multisteplr',
        '--lr_milestones 3 9 --scheduler_mode iter --enable_other_metrics 1 --eval_epochs 1',
    ],
    'sgd adam iters': [
        'sgd',
        *LONG,
        '--fitting_mode iters --n_iters 11 --optimizer adamw --lr_scheduler cosine',
        '--scheduler_mode iter --n_epochs 9 --bn frozen',
    ],
    'er early stopping': [
        'er',
        *LONG,
        '--fitting_mode early_stopping --early_stopping_patience 1 --n_epochs 3',
        '--validation 20 --validation_mode complete',
    ],
    'derpp noise': [
        'derpp',
        *LONG,
        '--noise_rate 0.3 --label_perc 0.7 --drop_last 1 --permute_classes 1',
    ],
    'er-ace gaussian': [
        'er-ace',
        '--schedule gaussian:sigma=0.5,batch=6 --batch_size 6 --eval_every 20 --prequential 1',
    ],
    'scroll iid': [
        'scroll',
        '--schedule iid,batch=9 --batch_size 4 --eval_every 13 --prequential 1',
    ],
    'scroll adapts': ['scroll', '--n_splits 2 --adapt_every_task 1 --buffer_strategy random'],
    'icarl from the second task': [
        'icarl',
        '--n_splits 3 --start_from 1 --debug_mode 1 --batch_size 4',
    ],
}


def killed_twice(start, reaper, folder, name: str, *words):
    """A run, and the same one killed at a random moment and again soon after it has resumed, end
    alike.
    """
    whole = run_with_kills(start, reaper, folder / 'whole', [], *words)
    chance = random.Random(name)
    kills = [
        chance.randrange(reaper.moments // 4, reaper.moments),
        chance.randrange(1, reaper.moments // 3),
    ]
    ended = run_with_kills(start, reaper, folder / 'killed', kills, *words)
    assert not different(whole, ended), (kills, different(whole, ended))
    assert all(len(rows) == 1 for rows in rows_below(folder / 'killed'))
    assert not [path for path in files_below(folder) if 'unfinished' in path.parts]


@pytest.mark.parametrize(
    'name',
    [
        *QUICK_ENOUGH,
        *(pytest.param(n, marks=pytest.mark.slow) for n in STREAMS if n not in QUICK_ENOUGH),
    ],
)
def test_every_kind_of_state_and_stream_ends_with_the_same_bits(start, reaper, tmp_path, name):
    """Also schedulers, fitting rules, noise, evaluation within tasks, streams without tasks, parts
    of streams.
    """
    killed_twice(start, reaper, tmp_path, name, *STREAMS[name])


class Noise:
    """A transform that draws from a stream of its own."""

    def __init__(self):
        self.stream = torch.Generator().manual_seed(3)

    def __call__(self, image):
        return image + 0.1 * torch.rand(image.shape, generator=self.stream)


@pytest.mark.parametrize(
    'data',
    ['flowing-digits', 'picture-digits', pytest.param('shuffled-digits', marks=pytest.mark.slow)],
)
def test_data_sets_written_for_mammoth(arguments, reaper, tmp_path, data):
    """Their loaders, of any make, begin an interrupted pass again."""

    def start(folder):
        torch.rand(3), np.random.rand(2)  # the global generators were elsewhere
        model, dataset, args = initialize(
            arguments(
                data,
                '--disable_log 0 --base_path',
                str(folder),
                '--checkpoint_every 1e-9',
                '--buffer_size 20',
                model='er',
            )
        )
        if data == 'picture-digits':
            dataset.TRANSFORM = Compose([*dataset.TRANSFORM.transforms, Noise()])
        return model, dataset, args

    killed_twice(start, reaper, tmp_path, data)


class Bare:
    """A network without `state_dict`."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x):
        return self.inner(x)

    def __getattr__(self, name):
        if 'state_dict' in name or name.startswith('__') or name == 'inner':
            raise AttributeError(name)
        return getattr(self.inner, name)


class Store:
    """A buffer as files written for Mammoth have it: its state is its attributes."""

    def __init__(self, owner):
        self.owner = owner
        self.count = 0
        self.rows = []
        self.random = np.random.default_rng(0)


class Holder(Sgd):
    """Holds loaders of earlier tasks, transforms, a store and a bare network."""

    NAME = 'holder'

    def __init__(self, backbone, *given):
        super().__init__(backbone, *given)
        del self.net
        self.net, self.store, self.loaders, self.jitter = (
            Bare(backbone),
            Store(self),
            [],
            Compose([Noise()]),
        )

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.store.count += 1
        if self.store.random.random() < 0.5:
            self.store.rows.append(self.jitter(inputs[0]).clone())
        return super().observe(inputs + 0.1 * sum(self.store.rows[-3:]), labels, not_aug_inputs)

    def end_task(self, dataset):
        self.loaders.append(dataset.train_loader)
        for loader in self.loaders:
            for inputs, labels, *_ in loader:
                super().observe(inputs, labels, None)


@pytest.mark.parametrize('data', ['picture-digits', 'seq-digits'])
def test_loaders_transforms_stores_and_bare_networks_that_a_method_holds(
    arguments, reaper, tmp_path, monkeypatch, data, capsys
):
    monkeypatch.setitem(models.PLUGINS.registered, 'holder', Holder)

    def start(folder):
        torch.rand(3), np.random.rand(2)
        return initialize(
            arguments(
                data,
                '--disable_log 0 --base_path',
                str(folder),
                '--checkpoint_every 1e-9 --stop_after 3',
                '--batch_size 100',
                model='holder',
            )
        )

    killed_twice(start, reaper, tmp_path, data)
    out, err = capsys.readouterr()
    assert 'continuing' in out
    assert 'no more checkpoints' not in err


def interrupted(start, folder, method='er', *flags, moment=12, reaper=None):
    """A run that was killed; returns what `start` needs to begin it again."""
    reaper.left = moment
    with pytest.raises(Killed):
        train(*start(folder, method, *flags))
    reaper.left = None
    return folder, method, *flags


def saved_below(folder) -> dict:
    return {path.suffix: path for path in files_below(folder) if 'unfinished' in path.parts}


def test_it_says_so_in_one_line_and_a_finished_run_is_not_continued(
    start, reaper, tmp_path, capsys
):
    words = interrupted(start, tmp_path, reaper=reaper, moment=20)
    copy = shutil.copytree(tmp_path / 'unfinished', tmp_path / 'copy')
    capsys.readouterr()
    train(*start(*words, '--seed 7'))  # another run
    assert 'continuing' not in capsys.readouterr().out
    assert saved_below(tmp_path)
    train(*start(*words, '--checkpoint_every 30'))  # which changes no result
    (said,) = (line for line in capsys.readouterr().out.splitlines() if 'continuing' in line)
    assert 'in task' in said
    assert not saved_below(tmp_path)
    shutil.copytree(copy, tmp_path / 'unfinished', dirs_exist_ok=True)
    train(*start(*words, '--resume never'))
    assert 'continuing' not in capsys.readouterr().out
    assert not saved_below(tmp_path)
    assert [len(rows) for rows in rows_below(tmp_path)] == [3, 3]


@pytest.mark.parametrize('what', ['utils/buffer.py', 'data', 'how features are computed'])
def test_what_has_changed_is_told_and_decided_by_the_user(
    start, reaper, tmp_path, capsys, monkeypatch, what
):
    """Code, pixels, the integer network next to the weights."""
    code = {'utils/buffer.py': 'as it was'}
    path = tmp_path / 'w.safetensors'
    monkeypatch.setattr(checkpoints, 'code_digests', lambda: dict(code))
    given = ['scroll', '--weights', save_tiny_integers(path)] if 'features' in what else ['er']
    words = interrupted(start, tmp_path, *given, reaper=reaper, moment=20)
    if what == 'utils/buffer.py':
        code |= {'utils/buffer.py': 'edited', 'utils/new.py': 'new'}
    elif what == 'data':
        few = readers.digits()
        monkeypatch.setattr(readers, 'digits', lambda: few._replace(train=255 - few.train))
        scheduled_dataset._read_once.cache_clear()
    else:
        save_tiny_integers(path, images=255 - golden_images())
    with refused(f'since then this changed: {what};', '--resume always', '--resume never'):
        train(*start(*words))
    assert saved_below(tmp_path)
    capsys.readouterr()
    train(*start(*words, '--resume always'))
    assert 'continuing' in capsys.readouterr().out


@pytest.mark.parametrize('when', ['before', 'between', 'after'])
def test_a_row_is_written_once(start, tmp_path, monkeypatch, when):
    """Killed before the rows, between them (class-il and task-il have files of their own), or
    before the checkpoint goes.
    """
    written = []
    append = results.append_row

    def dying(*given):
        if (when, len(written)) == ('before', 0):
            raise Killed
        written.append(append(*given))
        if len(written) == {'between': 1, 'after': 2}.get(when):
            raise Killed
        return written[-1]

    monkeypatch.setattr(results, 'append_row', dying)
    with pytest.raises(Killed):
        train(*start(tmp_path, 'sgd'))
    monkeypatch.setattr(results, 'append_row', append)
    row = train(*start(tmp_path, 'sgd'))
    assert [[r['run'] for r in rows] for rows in rows_below(tmp_path)] == [[row['run']]] * 2
    assert not saved_below(tmp_path)


def bytes_below(folder) -> dict:
    """Name -> bytes of saved files, but for locks."""
    saved = saved_below(folder).items()
    return {name: path.read_bytes() for name, path in saved if name != '.lock'}


def test_two_of_the_same_at_once(start, reaper, tmp_path, capsys):
    """The second leaves the first one's checkpoints alone, and ends as well."""
    words = interrupted(start, tmp_path, reaper=reaper, moment=30)
    before = bytes_below(tmp_path)
    with take_lock(saved_below(tmp_path)['.pt'].with_suffix('.lock')):
        capsys.readouterr()
        train(*start(*words))
        err = capsys.readouterr().err
    assert err.count('another run with these arguments') == 1
    assert bytes_below(tmp_path) == before


def full(*given, **more):
    raise OSError(28, 'No space left on device')


def test_a_disk_that_is_full_costs_the_checkpoints_not_the_run(
    start, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(checkpoints, 'write', full)
    train(*start(tmp_path, 'sgd'))
    assert capsys.readouterr().err.count('No space left') == 1
    assert [len(rows) for rows in rows_below(tmp_path)] == [1, 1]
    assert not saved_below(tmp_path)


class Keeper(Sgd):
    """Keeps, from the second task on, something that no checkpoint can hold."""

    NAME = 'keeper'

    def begin_task(self, dataset):
        if self.current_task:
            self.iterator = iter(dataset.train_loader)


class Grower(Keeper):
    """Has another head from the second task on."""

    NAME = 'grower'

    def begin_task(self, dataset):
        if self.current_task:
            self.net.classifier = torch.nn.Linear(self.net.classifier.in_features, 20)


@pytest.mark.parametrize('kind, what', [(Keeper, 'model.iterator'), (Grower, 'model.net')])
def test_what_cannot_be_kept_is_told_once_and_nothing_is_pretended(
    start, reaper, tmp_path, capsys, monkeypatch, kind, what
):
    monkeypatch.setitem(models.PLUGINS.registered, kind.NAME, kind)
    flags = ['--n_epochs 2 --lr 0.05']
    model, dataset, args = start(tmp_path / 'whole', kind.NAME, *flags)
    whole = train(model, dataset, args)
    assert capsys.readouterr().err.count(what) == 1
    words = interrupted(
        start, tmp_path / 'killed', kind.NAME, *flags, reaper=reaper, moment=reaper.moments - 12
    )
    capsys.readouterr()
    model, dataset, args = start(*words)
    row = train(model, dataset, args)
    out, err = capsys.readouterr()
    # the last whole one
    assert 'continuing' in out
    assert 'task 1' in out.splitlines()[0]
    assert what in err
    assert row['accuracy_matrix'] == whole['accuracy_matrix']


def test_a_signal_ends_a_run_at_the_next_step(
    start, command_line, tiny_weights, tmp_path, monkeypatch
):
    words = [
        '--model er --dataset seq-digits --weights',
        tiny_weights,
        '--base_path',
        tmp_path / 'run',
        '--lr 0.05',
        '--n_splits 2 --n_epochs 1 --batch_size 12 --buffer_size 25 --non_verbose 1',
    ]
    observe = models.get_model_class('er').observe
    steps = []

    def stop_after_five(self, *given, **more):
        steps.append(1)
        if len(steps) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return observe(self, *given, **more)

    monkeypatch.setattr(models.get_model_class('er'), 'observe', stop_after_five)
    before = signal.getsignal(signal.SIGTERM)  # another test's library may have set it
    ended, _, err = command_line(*words, '--resume never')
    assert ended == 143
    assert len(steps) == 5
    assert signal.getsignal(signal.SIGTERM) == before
    assert 'goes on from the last checkpoint' in err.splitlines()[-1]
    assert set(saved_below(tmp_path)) == {'.pt', '.lock'}
    ended, out, err = command_line(*words)
    assert ended == 0
    assert 'continuing' in out
    assert not saved_below(tmp_path)
    model, dataset, args = start(tmp_path / 'whole', 'er', '--lr 0.05')
    [row], _ = rows_below(tmp_path / 'run')
    assert row['accuracy_matrix'] == train(model, dataset, args)['accuracy_matrix']


def test_a_signal_ends_an_adaptation_at_once(command_line, tiny_weights, tmp_path, monkeypatch):
    words = [
        '--model scroll --dataset seq-digits --model_config base --weights',
        tiny_weights,
        '--n_splits 2 --buffer_size 20 --iterations 9 --non_verbose 1 --checkpoint_every 1e-9',
    ]
    code, _, _ = command_line(*words, '--base_path', tmp_path / 'whole')
    assert code == 0
    update = Trainee.update
    updates = []

    def stop_after_two(self, *given):
        updates.append(1)
        if len(updates) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, *given)

    monkeypatch.setattr(Trainee, 'update', stop_after_two)
    words += ['--base_path', tmp_path / 'run']
    code, _, err = command_line(*words)
    assert code == 143
    assert len(updates) == 2
    assert err.splitlines()[-1].endswith('goes on from the last checkpoint')
    code, out, _ = command_line(*words)
    assert code == 0
    assert 'continuing the interrupted run' in out
    assert len(updates) == 2 + 9
    whole, resumed = (rows_below(tmp_path / name)[0][0] for name in ('whole', 'run'))
    assert resumed['adapted_digest'] == whole['adapted_digest']


@pytest.mark.parametrize(
    'signals, flags, said',
    [
        (2, [], 'the same command starts over'),
        (1, ['--save_after_interrupt 0'], 'the same command starts over'),
        (
            2,
            ['--checkpoint_every 1e-9'],
            'interrupted; the same command goes on from the last checkpoint',
        ),
        (1, ['--checkpoint_every 0'], 'interrupted'),
    ],
)
def test_a_second_signal_or_one_that_is_not_caught_ends_a_run_at_once(
    command_line, tiny_weights, tmp_path, monkeypatch, signals, flags, said
):
    observe = models.get_model_class('sgd').observe

    def stop(self, *given, **more):
        if '--checkpoint_every 1e-9' in flags and not self.task_iteration:
            return observe(self, *given, **more)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError('it went on')

    monkeypatch.setattr(models.get_model_class('sgd'), 'observe', stop)
    code, _, err = command_line(
        '--model sgd --dataset seq-digits --weights',
        tiny_weights,
        '--base_path',
        tmp_path,
        '--lr 0.1 --n_epochs 1 --non_verbose 1',
        *flags,
    )
    assert code == 130
    assert said in err.splitlines()[-1]
    assert not rows_below(tmp_path)
    assert ('.pt' in saved_below(tmp_path)) == ('--checkpoint_every 1e-9' in flags)


@pytest.mark.parametrize('disk', ['free', 'full'])
def test_a_signal_during_the_last_evaluation_leaves_the_row_to_the_same_command_or_writes_it(
    command_line, tiny_weights, tmp_path, monkeypatch, disk
):
    words = [
        '--model sgd --dataset seq-digits --weights',
        tiny_weights,
        '--base_path',
        tmp_path,
        '--lr 0.1 --n_epochs 0',
    ]
    with monkeypatch.context() as patch:
        patch.setattr(
            ContinualModel,
            'meta_end_eval',
            lambda self, *_: self.current_task == 5 and os.kill(os.getpid(), signal.SIGTERM),
        )
        if disk == 'full':
            patch.setattr(checkpoints, 'write', full)
        code, _, err = command_line(*words)
    if disk == 'free':
        assert code == 143
        assert err.splitlines()[-1].startswith('stopped after task 5; the same command goes on')
        assert not rows_below(tmp_path)
        code, out, _ = command_line(*words)
        assert 'after task 5' in out
    assert code == 0
    assert [len(rows) for rows in rows_below(tmp_path)] == [1, 1]
    assert not saved_below(tmp_path)


@pytest.mark.slow
def test_real_kills_of_real_processes(tiny_weights, tmp_path):
    """`kill -9` after a checkpoint, at whatever it is doing; it starts as the same command."""

    def command(folder):
        words = [
            '--model er --dataset seq-digits --n_splits 5 --lr 0.05 --n_epochs 1 --batch_size 4',
            '--buffer_size 50 --checkpoint_every 0.002 --num_threads 1 --non_verbose 1 --weights',
            tiny_weights,
            '--base_path',
            tmp_path / folder,
        ]
        return [sys.executable, ROOT / 'main.py', *words_of(*words)]

    saved = tmp_path / 'killed/unfinished'
    process = subprocess.Popen(command('killed'))
    while process.poll() is None and not list(saved.glob('*.pt')):
        time.sleep(0.01)
    time.sleep(0.2)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL
    for folder in ('whole', 'killed'):
        said = subprocess.run(command(folder), check=True, capture_output=True, timeout=300).stdout
        assert (b'continuing' in said) == (folder == 'killed')
    whole, killed = (rows_below(tmp_path / name / 'results') for name in ('whole', 'killed'))
    assert [[row['accuracy_matrix'] for row in rows] for rows in whole] == [
        [row['accuracy_matrix'] for row in rows] for rows in killed
    ]
    assert not saved_below(tmp_path)
