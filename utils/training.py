"""The training loop: tasks, epochs, batches; evaluation after each task; one results row at the end."""
import datetime
import itertools
import json
import platform
import resource
import socket
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager

import numpy as np
import torch
from tqdm import tqdm

from utils import metrics, plots, results
from utils.conf import results_folder
from utils.errors import UserError
from utils.evaluate import evaluate, serve
from utils.fitting import make_fitting
from utils.plugins import ROOT
from utils.schedulers import get_scheduler
from utils.tracking import Tracker


class Record:
    """What a run has measured so far.

    Attributes:
        class_il, task_il: R[i][j], accuracy on task j after task i, percent. test_sizes: samples of each task's test set.
        before, untrained: (class-il, task-il) lists for forward transfer. seconds: by stage. images: stream images seen.
        test: (class-il, task-il) on the real test set, at the end of a run on held-out samples.
    """

    def __init__(self):
        self.class_il, self.task_il, self.test_sizes = [], [], []
        self.before, self.untrained = ([], []), ([], [])
        self.seconds = dict(stream=0.0, evaluation=0.0)
        self.images, self.test = 0, None


def train(model, dataset, args) -> dict:
    """Run the whole stream, or with `--start_from` and `--stop_after` a part of it; returns the results row, which is also
    written unless `--disable_log 1`."""
    arguments = {name: value for name, value in vars(args).items() if name != 'class_order'}
    folders = {setting: results_folder(args, setting) for setting in _settings(dataset)}
    if not args.disable_log:
        for folder in folders.values():
            results.check_writable(folder)
    record, began, tracker = Record(), time.perf_counter(), Tracker(args, folders)
    if args.enable_other_metrics:
        loaders = [(t, dataset.test_loader(t)) for t in range(dataset.N_TASKS)]
        record.untrained = tuple(accs[1:] for accs in evaluate(model, dataset, loaders=loaders))
    for task in range(min(dataset.N_TASKS, args.stop_after or dataset.N_TASKS)):
        train_loader, _ = dataset.get_data_loaders()
        record.test_sizes.append(len(dataset.test_loaders[-1].dataset))
        model.meta_begin_task(dataset)
        if task >= (args.start_from or 0):
            if args.enable_other_metrics and task > 0:
                for row, accuracies in zip(record.before, evaluate(model, dataset, last=True)):
                    row += accuracies
            if not args.inference_only:
                _learn_task(model, dataset, train_loader, args, record)
        with _Stopwatch(record.seconds, 'stream'):
            model.meta_end_task(dataset)
        if task >= (args.start_from or 0):
            _evaluate_task(model, dataset, record)
            tracker.log(record, task)
            if args.eval_future:
                _evaluate_future(model, dataset)
    if args.validation:
        _evaluate_really(model, dataset, record)
    record.seconds['total'] = time.perf_counter() - began
    row = _finish(model, dataset, args, arguments, record, folders)
    tracker.finish(row)
    return row


def _learn_task(model, dataset, loader, args, record) -> None:
    serve(loader, model)
    scheduler, fitting, epoch = get_scheduler(model, args), make_fitting(args, model, dataset), 0
    while fitting.wants_epoch(epoch):
        with _Stopwatch(record.seconds, 'stream'):
            training_mode(model.net, args.bn)
            model.meta_begin_epoch(epoch, dataset)
            bar = tqdm(itertools.islice(loader, model.get_debug_iters() if args.debug_mode else None), leave=False,
                       desc=f'Task {dataset.c_task + 1} - Epoch {epoch + 1}', disable=args.non_verbose or None, mininterval=0.5,
                       total=len(loader) if hasattr(loader, '__len__') else None)
            losses = LossWatch(f'task {dataset.c_task + 1}, epoch {epoch + 1}')
            for batch in bar:
                if not fitting.wants_batch():
                    break
                if not model.RAW_STREAM:
                    batch = [x.to(model.device) for x in batch]
                inputs, labels, not_aug_inputs, *extras = batch
                names = getattr(getattr(loader, 'dataset', None), 'extra_return_fields', ())
                with _enough_for_batch_norms(model.net, len(labels), args.bn):
                    losses.add(model.meta_observe(inputs, labels, not_aug_inputs, epoch=epoch, **dict(zip(names, extras))))
                record.images += len(labels)
                if scheduler and args.scheduler_mode == 'iter':
                    scheduler.step()
            if scheduler and args.scheduler_mode == 'epoch':
                scheduler.step()
            losses.check()
            model.meta_end_epoch(epoch, dataset)
            fitting.end_epoch(epoch)
        epoch += 1
        if args.eval_epochs and epoch % args.eval_epochs == 0 and fitting.wants_epoch(epoch):
            print_accuracies(*evaluate(model, dataset), dataset, f' (epoch {epoch})')
    fitting.finish()


def training_mode(net, bn: str) -> None:
    """Train mode; with `--bn frozen` batch norms keep to the statistics they came with."""
    if net is None:
        return
    net.train()
    if bn == 'frozen':
        for module in net.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.eval()


@contextmanager
def _enough_for_batch_norms(net, count: int, bn: str):
    """One sample has no batch statistics: it is learned with those the network has."""
    if count == 1:
        training_mode(net, 'frozen')
    try:
        yield
    except ValueError as error:
        if 'more than 1 value per channel' not in str(error):
            raise
        raise UserError('batch norms cannot train on one sample at a time: give --minibatch_size above 1, a larger --input_size, '
                        'or --bn frozen') from error
    if count == 1:
        training_mode(net, bn)


class LossWatch:
    """Stops a run whose loss is not finite; looks once in a while, since looking makes a GPU wait."""
    _EVERY = 100

    def __init__(self, where: str):
        self.where, self.losses = where, []

    def add(self, loss) -> None:
        loss = loss.get('loss', 0.0) if isinstance(loss, dict) else loss
        self.losses.append(torch.as_tensor(0.0 if loss is None else loss).detach())
        if len(self.losses) >= self._EVERY:
            self.check()

    def check(self) -> None:
        """UserError if a loss since the last check is not finite."""
        if self.losses and not torch.isfinite(torch.stack([loss.float().cpu() for loss in self.losses])).all():
            raise UserError(f'the loss is no longer finite ({self.where}): try a smaller --lr')
        self.losses = []


def _evaluate_task(model, dataset, record) -> None:
    with _Stopwatch(record.seconds, 'evaluation'):
        accuracies = evaluate(model, dataset)
        record.class_il.append(accuracies[0])
        record.task_il.append(accuracies[1])
        print_accuracies(*accuracies, dataset)
        model.meta_end_eval(dataset, accuracies)


def _evaluate_future(model, dataset) -> None:
    """Accuracy on the tasks to come (`--eval_future`)."""
    later = [(t, dataset.test_loader(t)) for t in range(dataset.c_task + 1, dataset.N_TASKS)]
    if later:
        model.change_transform(dataset)
        accuracies = evaluate(model, dataset, loaders=later, forward=model.future_forward, seen=range(dataset.N_CLASSES))
        print_accuracies(*accuracies, dataset, what='Future Accuracy')


def _evaluate_really(model, dataset, record) -> None:
    """After a run on held-out samples (`--validation`): the real test set."""
    record.test = evaluate(model, dataset.without_validation())
    print_accuracies(*record.test, dataset, what='Test accuracy', when='final')


def print_accuracies(class_il, task_il, dataset, epoch: str = '', what: str = 'Accuracy', when=None) -> None:
    """Mammoth's two lines after an evaluation."""
    print(f'{what}{epoch} for {when or dataset.c_task + 1} task(s): \t [Class-IL]: {np.mean(class_il):.2f} % '
          f'\t [Task-IL]: {np.mean(task_il):.2f} %')
    print(f'\tRaw accuracy values: Class-IL {np.round(class_il, 2).tolist()} | Task-IL {np.round(task_il, 2).tolist()}',
          flush=True)


def _settings(dataset) -> list:
    return ['class-il', 'task-il'] if dataset.SETTING == 'class-il' else [dataset.SETTING]


def _finish(model, dataset, args, arguments, record, folders) -> dict:
    """Rows, plot and closing summary."""
    own = model.results()
    run = f'{datetime.datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}'
    schedule = getattr(dataset, 'schedule', None)           # data sets of foreign make have none
    spec = schedule.spec if schedule else f'split:{dataset.N_TASKS}'
    common = dict(schedule=spec, schedule_digest=schedule and schedule.digest(), n_tasks=dataset.N_TASKS)
    seconds = {f'seconds_{stage}': round(s, 3) for stage, s in record.seconds.items()}
    about = dict(images_per_second=round(record.images / max(record.seconds['stream'], 1e-9), 1),
                 peak_memory_mb=_peak_memory(), peak_gpu_memory_mb=_peak_gpu_memory(model.device), **versions(),
                 run=run, finished=f'{datetime.datetime.now():%Y-%m-%d %H:%M:%S}')
    rows, paths = {}, {}
    for which, (setting, folder) in enumerate(folders.items()):
        R, first = (record.class_il, record.task_il)[which], args.start_from or 0
        row = {f'task{first + i + 1}': round(metrics.mean(accuracies), 4) for i, accuracies in enumerate(R)}
        if args.enable_other_metrics and len(R) > 1 and not first:
            row |= dict(forward_transfer=metrics.forward_transfer(record.before[which], record.untrained[which]),
                        backward_transfer=metrics.backward_transfer(R), forgetting=metrics.forgetting(R))
        else:
            row |= dict(forward_transfer=None, backward_transfer=None, forgetting=None)
        rows[setting] = {**row, **common, 'final_accuracy': round(float(np.average(R[-1], weights=record.test_sizes)), 4),
                         'average_incremental_accuracy': round(metrics.average_incremental_accuracy(R), 4),
                         'accuracy_per_task': json.dumps(np.round(R[-1], 4).tolist()),
                         **({'test_accuracy': round(metrics.mean(record.test[which]), 4)} if record.test else {}),
                         **(own if which == 0 else {}), **{k: v for k, v in arguments.items() if k not in common},
                         **seconds, **about}
        if not args.disable_log:
            paths[setting] = results.append_row(folder, rows[setting])
    setting = next(iter(rows))
    if not args.disable_log:
        points = [(i + 1, rows[setting][f'task{i + 1}']) for i in range(dataset.N_TASKS) if f'task{i + 1}' in rows[setting]]
        curves = {model.NAME: points, **model.curves()}
        paths['plot'] = plots.accuracy_curve(folders[setting] / 'plots' / f'{run}.png', curves,
                                             f'{model.NAME} on {dataset.NAME}, {spec}')
    _summary(model, rows, record, paths)
    return rows[setting]


def _summary(model, rows, record, paths) -> None:
    print('\nSummary')
    for setting, row in rows.items():
        print(f"  {setting}: final accuracy {row['final_accuracy']:.2f} %, average incremental "
              f"{row['average_incremental_accuracy']:.2f} %")
    for name in ('forward_transfer', 'backward_transfer', 'forgetting'):
        known = {setting: row[name] for setting, row in rows.items() if row[name] is not None}
        if known:
            print(f"  {name.replace('_', ' ').title()}: "
                  + ' \t '.join(f"[{setting.title().replace('Il', 'IL')}]: {value:.2f}" for setting, value in known.items()))
    for line in model.summary():
        print(f'  {line}')
    print('  seconds: ' + ', '.join(f'{stage} {s:.1f}' for stage, s in record.seconds.items()))
    for name, path in paths.items():
        print(f'  {name}: {path}')
    sys.stdout.flush()


def versions() -> dict:
    """Versions, host and commit: what a row needs to be made again."""
    try:
        commit = subprocess.run(['git', '-C', str(ROOT), 'rev-parse', 'HEAD'], capture_output=True, text=True, timeout=5)
        commit = commit.stdout.strip() if commit.returncode == 0 else ''
    except (OSError, subprocess.TimeoutExpired):
        commit = ''
    return dict(python=platform.python_version(), torch=torch.__version__, numpy=np.__version__, host=socket.gethostname(),
                git_commit=commit)


def _peak_memory() -> float:
    """Largest resident size of this process so far, in MB (10^6 bytes)."""
    unit = 1 if sys.platform == 'darwin' else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _peak_gpu_memory(device) -> float:
    return round(torch.cuda.max_memory_allocated(device) / 1e6, 1) if device.type == 'cuda' else None


class _Stopwatch:
    """Adds the time spent in a `with` block to `seconds[stage]`."""

    def __init__(self, seconds: dict, stage: str):
        self.seconds, self.stage = seconds, stage

    def __enter__(self):
        self.began = time.perf_counter()

    def __exit__(self, *error):
        self.seconds[self.stage] += time.perf_counter() - self.began
