"""Parts of a stream, short runs, runs on held-out samples; the guards of a run."""

import copy
import json

import numpy as np
import pytest
import torch

import models
from bench.run.building import initialize
from bench.run.training import LossWatch, train
from core.rows import read_rows
from models.sgd import Sgd
from models.utils.continual_model import ContinualModel
from tests.bench.test_training import Recorder
from tests.conftest import refused, words_of


@pytest.fixture
def run(parse, small_digits, monkeypatch):
    """run(kind, *flags): (row, model, data set) of a run of a class on few digits, two batches a
    task by default.
    """

    def start(kind, *flags, **settings):
        if '--schedule' not in words_of(*flags):
            settings['n_splits'] = 5
        monkeypatch.setitem(models.PLUGINS.registered, 'probe', kind)
        model, dataset, args = initialize(
            parse('probe', *flags, lr=0.05, n_epochs=1, batch_size=8, **settings)
        )
        return train(model, dataset, args), model, dataset

    return start


def test_a_part_of_the_stream(run):
    """Tasks before it begin and end, so that methods do what they do then; none is trained or
    evaluated.
    """
    row, model, _ = run(Recorder, '--start_from 2 --stop_after 4')
    trained = [
        [
            f'begin_task {t}',
            'begin_epoch 0',
            'observe',
            'observe',
            'end_epoch 0',
            f'end_task {t}',
            'forward',
            f'end_eval {t + 1}',
        ]
        for t in (2, 3)
    ]
    assert model.calls == [
        'begin_task 0',
        'end_task 0',
        'begin_task 1',
        'end_task 1',
        *trained[0],
        *trained[1],
    ]
    assert [name for name in row if name.startswith('task')] == ['task3', 'task4']
    assert [len(part) for part in json.loads(row['accuracy_matrix'])] == [3, 4]
    assert row['complete'] == 0


def test_debugging_is_a_few_batches_of_each_pass(run, monkeypatch):
    looked = []
    monkeypatch.setattr(
        Recorder, 'forward', lambda self, x: looked.append(1) or torch.zeros(len(x), 10)
    )
    monkeypatch.setattr(Recorder, 'get_debug_iters', staticmethod(lambda: 3))
    _, model, _ = run(Recorder, '--debug_mode 1 --n_splits 1 --n_epochs 2')
    assert model.calls.count('observe') == 6
    assert looked == [1]
    assert ContinualModel.get_debug_iters() == 5


@pytest.mark.parametrize('form', ['split:2', 'file:stream'])
def test_after_held_out_samples_the_real_test_set(run, capsys, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'stream').write_text(' '.join(map(str, range(60))))  # those that are not held out
    row, model, dataset = run(
        Sgd,
        '--validation 25 --schedule',
        form,
        '--permute_classes 1 --disable_log 0',
        base_path=tmp_path,
    )
    held = len(dataset.test_labels)
    real = len(dataset.images.test_labels)
    assert (held, real) == (20, 40)
    with torch.no_grad():
        model.net.eval()
        logits = model(dataset.preprocessing(torch.from_numpy(dataset.images.test.copy())))
    right = logits.argmax(1).numpy() == dataset.class_order[dataset.images.test_labels]
    assert row['test_accuracy'] == pytest.approx(100 * right.mean(), abs=1e-3)
    out = capsys.readouterr().out
    assert f'Accuracy for final task(s): \t [Class-IL]: {row["test_accuracy"]:.2f} %' in out
    assert f'test accuracy {row["test_accuracy"]:.2f} %' in out
    for path in (tmp_path / 'results' / 'task-il').rglob('*.csv'):
        assert float(read_rows(path)[0]['test_accuracy']) >= row['test_accuracy']


def test_missing_labels_never_reach_the_method(run, monkeypatch):
    seen = []

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        assert self.net.training
        assert self.net.layer1.training
        assert len(inputs) == len(labels) == len(not_aug_inputs)
        assert labels.min() >= 0
        seen.append(
            (
                len(labels),
                next(m for m in self.net.modules() if isinstance(m, torch.nn.BatchNorm2d)).training,
            )
        )
        return self.loss(self.net(inputs), labels)

    monkeypatch.setattr(Recorder, 'observe', observe)
    run(Recorder, '--label_perc 0.25 --n_splits 1 --batch_size 4')
    assert sum(count for count, _ in seen) == 20
    assert 1 in dict(seen)
    assert all(training for _, training in seen)


def test_the_mean_of_what_observe_returned():
    watch = LossWatch('here')
    for loss in (
        1,
        2.0,
        None,
        {},
        torch.tensor(3.0),
        {'loss': 4},
        {'loss': torch.tensor([4.0, 6.0]), 'x': 1},
        np.float64(3),
    ):
        watch.add(loss)
    watch.check()
    assert watch.mean == 3


@pytest.mark.parametrize(
    'bad',
    [
        float('nan'),
        torch.tensor(float('inf')),
        {'loss': torch.tensor(float('nan'))},
        np.float32('nan'),
    ],
)
def test_a_loss_that_is_not_finite_ends_the_run(run, monkeypatch, bad):
    monkeypatch.setattr(
        Recorder, 'observe', lambda self, *given, epoch=None: bad if self.current_task else 0
    )
    with refused('no longer finite (task 2, epoch 1)', 'smaller --lr'):
        run(Recorder)


def test_an_optimiser_made_in_begin_task_is_the_one_that_is_scheduled(run, monkeypatch):
    def begin_task(self, dataset):
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1.0)
        self.mine = self.opt

    rates = []

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        assert self.opt is self.mine
        rates.append(self.opt.param_groups[0]['lr'])
        self.opt.step()
        return 0

    monkeypatch.setattr(Recorder, 'begin_task', begin_task)
    monkeypatch.setattr(Recorder, 'observe', observe)
    run(
        Recorder,
        '--n_splits 1 --n_epochs 2 --batch_size 80 --lr_scheduler multisteplr --lr_milestones 1',
    )
    assert rates == [1, pytest.approx(0.1)]


@pytest.mark.parametrize(
    'flags, steps', [('--n_epochs 2', 4), ('--fitting_mode iters --n_iters 3', 3)]
)
def test_a_cosine_over_batches_falls_once_in_a_task(run, monkeypatch, flags, steps):
    rates = []

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        rates.append(self.opt.param_groups[0]['lr'])
        self.opt.step()
        return 0

    monkeypatch.setattr(Recorder, 'observe', observe)
    run(Recorder, flags, '--lr_scheduler cosine --scheduler_mode iter --stop_after 2')
    one_task = 0.025 * (1 + np.cos(np.pi * np.arange(steps) / steps))
    assert rates == pytest.approx([*one_task] * 2)


def test_a_task_without_one_whole_batch_is_refused(run):
    with refused('task 1', '--batch_size', '--drop_last 0'):
        run(Recorder, '--drop_last 1 --batch_size 1000')

    with refused('--drop_last 0'):
        run(models.get_model_class('joint'), '--drop_last 1 --batch_size 1000')


@pytest.mark.parametrize('flag', ['--eval_every 9', '--prequential 1'])
def test_what_is_measured_on_the_way_needs_the_whole_way(run, flag):
    with refused(flag.split()[0], '--start_from'):
        run(Recorder, '--start_from 2', flag)


def test_task_il_is_of_each_tasks_own_samples(run, tmp_path):
    """Held-out samples of all classes so far change nothing."""
    for mode in 'current', 'complete':
        flags = f'--validation 30 --validation_mode {mode} --eval_every 9 --disable_log 0'
        run(Sgd, flags, base_path=tmp_path)
    (path,) = tmp_path.rglob('task-il/**/mean_accs.csv')
    rows = read_rows(path)
    assert rows[0]['accuracy_matrix'] == rows[1]['accuracy_matrix']
    assert 'anytime_accuracy' not in rows[0]  # chosen among all classes


@pytest.mark.parametrize('method, more', [('lwf', ''), ('bic', '--buffer_size 25')])
def test_without_training_the_network_is_as_it_was(parse, small_digits, method, more):
    words = '--inference_only 1 --n_epochs 1 --lr 0.1', more
    model, dataset, args = initialize(parse(method, *words))
    before = copy.deepcopy(model.net.state_dict())
    train(model, dataset, args)
    assert all(torch.equal(before[name], now) for name, now in model.net.state_dict().items())
    assert method == 'lwf' or model.bias.tolist() == [1, 0]
