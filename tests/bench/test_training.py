"""The training loop: what is called when, with what, and what is measured."""

import pytest
import torch

from backbone import get_backbone
from bench.run.training import train
from core.rows import read_rows
from datasets import get_dataset
from models.utils.continual_model import ContinualModel


class Recorder(ContinualModel):
    """Learns nothing; notes what happens to it."""

    NAME = 'recorder'
    COMPATIBILITY = ['class-il']

    def __init__(self, *args):
        self.calls = []
        self.batches = []
        self.rates = []
        self.optimisers = []
        self.counts = []
        super().__init__(*args)

    def begin_task(self, dataset):
        self.calls.append(f'begin_task {self.current_task}')
        self.counts.append(
            (
                self.n_seen_classes,
                self.n_past_classes,
                self.n_classes_current_task,
                self.n_remaining_classes,
            )
        )
        self.optimisers.append(self.opt)

    def begin_epoch(self, epoch, dataset):
        self.calls.append(f'begin_epoch {epoch}')
        assert self.epoch_iteration == 0

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        assert self.net.training
        self.calls.append('observe')
        self.batches.append(
            (epoch, self.task_iteration, self.epoch_iteration, inputs, labels, not_aug_inputs)
        )
        self.rates.append(self.opt.param_groups[0]['lr'])
        self.opt.step()  # there are no gradients: moves nothing
        return 0.0

    def end_epoch(self, epoch, dataset):
        self.calls.append(f'end_epoch {epoch}')

    def end_task(self, dataset):
        self.calls.append(f'end_task {self.current_task}')
        self.net.eval()  # as methods do that embed; observe needs it in training mode

    def forward(self, x):
        assert not self.net.training
        if self.calls[-1] != 'forward':
            self.calls.append('forward')
        return super().forward(x)

    def end_eval(self, dataset, accs):
        assert len(accs[0]) == len(accs[1]) == self.current_task
        self.calls.append(f'end_eval {self.current_task}')


class Oracle(ContinualModel):
    """Knows the label of every image once it has learned a task; before that, only those of classes
    0 to 4.
    """

    NAME = 'oracle'
    RAW_STREAM = True

    def begin_task(self, dataset):
        images = dataset.images
        self.table = {
            image.tobytes(): y for image, y in zip(images.test, images.test_labels.tolist())
        }
        assert len(self.table) == len(images.test)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        assert inputs.dtype == torch.uint8
        assert inputs.shape[1:] == (8, 8, 3)
        assert inputs is not_aug_inputs

    def forward(self, x):
        if not hasattr(self, 'table'):
            self.begin_task(self.dataset)
        right = torch.tensor([self.table[image.numpy().tobytes()] for image in x])
        return torch.eye(10)[right if self.current_task else right % 5]


def run(parse, kind, *flags, **settings):
    """(row, model, dataset) of a run of a model of this class."""
    args = parse('sgd', '--lr 0.5', *flags, **settings)
    dataset = get_dataset(args)
    args.num_classes = dataset.N_CLASSES
    args.device = 'cpu'
    model = kind(get_backbone(args), dataset.get_loss(), args, dataset.get_transform(), dataset)
    return train(model, dataset, args), model, dataset


def test_hooks_come_in_mammoths_order(parse):
    _, model, _ = run(parse, Recorder, '--n_splits 2 --n_epochs 2 --batch_size 400')
    epoch = ['begin_epoch {}', 'observe', 'observe', 'end_epoch {}']  # 2 x 719 samples or so
    task = [
        'begin_task {}',
        *(call.format(e) for e in (0, 1) for call in epoch),
        'end_task {}',
        'forward',
    ]
    assert model.calls == [
        *(call.format(0) for call in task),
        'end_eval 1',
        *(call.format(1) for call in task),
        'end_eval 2',
    ]


def test_counters_and_batches(parse):
    _, model, dataset = run(parse, Recorder, '--n_splits 3 --n_epochs 2 --batch_size 300')
    assert model.counts == [(4, 0, 4, 6), (7, 4, 3, 3), (10, 7, 3, 0)]
    assert model.current_task == 3
    assert [b[:3] for b in model.batches] == [(0, 0, 0), (0, 1, 1), (1, 2, 0), (1, 3, 1)] * 3
    assert len({id(optimiser) for optimiser in model.optimisers}) == 3  # a fresh one for each task
    assert sum(len(b[4]) for b in model.batches) == 2 * len(dataset.train_labels)
    for *_, inputs, labels, plain in model.batches:
        assert inputs.shape == (len(labels), 3, 16, 16)
        assert plain.shape == (len(labels), 3, 8, 8)
        assert labels.dtype == torch.int64
        assert plain.min() >= 0
        assert plain.max() <= 1


def test_the_scheduler_starts_again_with_each_task(parse):
    flags = ['--n_splits 2 --batch_size 1000 --n_epochs 3 --lr_scheduler']
    _, model, _ = run(
        parse, Recorder, *flags, 'multisteplr', '--lr_milestones 1 2 --sched_multistep_lr_gamma 0.5'
    )
    assert model.rates == [0.5, 0.25, 0.125] * 2
    _, model, _ = run(parse, Recorder, *flags, 'cosine')
    assert model.rates == pytest.approx([0.5, 0.375, 0.125] * 2)  # 0.25 (1 + cos(pi t / 3))


def test_metrics_of_an_oracle(parse, capsys):
    """Before the first task right on the classes of that task only, then right on all: each metric
    is known.
    """
    row, *_ = run(parse, Oracle, '--n_splits 2 --n_epochs 1 --enable_other_metrics 1')
    assert (
        row['task1'],
        row['task2'],
        row['final_accuracy'],
        row['average_incremental_accuracy'],
    ) == (100, 100, 100, 100)
    assert (row['forward_transfer'], row['backward_transfer'], row['forgetting']) == (100, 0, 0)
    assert row['accuracy_matrix'] == '[[100.0], [100.0, 100.0]]'
    assert row['complete'] == 1
    out = capsys.readouterr().out
    assert 'Accuracy for 2 task(s): \t [Class-IL]: 100.00 % \t [Task-IL]: 100.00 %' in out


def test_files_of_a_run(parse, tmp_path):
    """A row for each setting, with what is needed to run it again."""
    row, *_ = run(
        parse,
        Oracle,
        '--n_splits 2 --n_epochs 1 --disable_log 0 --notes',
        'a, b',
        base_path=tmp_path,
    )
    home = tmp_path / 'results'
    written = {
        s: read_rows(home / s / 'seq-digits' / 'sgd' / 'mean_accs.csv')[0]
        for s in ('class-il', 'task-il')
    }
    assert written['class-il'] == {k: '' if v is None else str(v) for k, v in row.items()}
    assert written['class-il']['notes'] == 'a, b'
    assert written['class-il']['schedule'] == 'split:2'
    assert written['task-il']['task2'] == '100.0'
    assert written['task-il']['run'] == row['run']
