"""What a run has measured, and how it is shown: console, results files, plot, trackers."""
import datetime
import json
import platform
import resource
import socket
import subprocess
import sys
import textwrap
import time
import uuid

import numpy as np
import torch

from bench.results import plots
from bench.results.keys import key_text
from core import rows as results
from core.plugins import ROOT
from utils import metrics
from utils.loggers import settings

_METRICS = ('forward_transfer', 'backward_transfer', 'forgetting')


class Record:
    """What a run has measured so far.

    Attributes:
        began: by `time.perf_counter`; of a resumed run, as if it had not been interrupted. run: unique name.
        first: number of the first task that was trained. seconds: by stage. images: of the stream, seen.
        class_il, task_il: R[i][j], accuracy on task j after task first + i, percent. test_sizes: by task.
        before, untrained: (class-il, task-il) lists for forward transfer. later: on tasks to come.
        unkept: a line for each file of `--savecheck` that could not be written.
        anytime: `bench.run.anytime.Anytime`, at the end of the run.
        test, real_sizes: (class-il, task-il) on the real test set after a run on held-out samples; its sizes.
    """

    TRANSIENT = ('began',)

    def __init__(self, first: int = 0):
        self.began = time.perf_counter()
        self.run = f'{datetime.datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}'
        self.first, self.class_il, self.task_il, self.test_sizes = first, [], [], []
        self.before, self.untrained, self.later = ([], []), ([], []), []
        self.seconds = dict(stream=0.0, evaluation=0.0, total=0.0)
        self.images, self.test, self.real_sizes, self.anytime, self.unkept = 0, None, None, None, []

    def tell_total(self) -> None:
        """Note the time since the run began."""
        self.seconds['total'] = time.perf_counter() - self.began


class Stopwatch:
    """Adds the time spent in a `with` block to `seconds[stage]`; `lap` does so before its end."""

    def __init__(self, seconds: dict, stage: str):
        self.seconds, self.stage = seconds, stage

    def __enter__(self):
        self.began = time.perf_counter()
        return self

    def __exit__(self, *error):
        self.lap()

    def lap(self) -> None:
        now = time.perf_counter()
        self.seconds[self.stage] += now - self.began
        self.began = now


def label(setting: str) -> str:
    """'class-il' -> 'Class-IL'."""
    return setting.title().replace('-Il', '-IL')


def finish(model, dataset, args, arguments: dict, record: Record, folders: dict) -> dict:
    """Rows, plot and closing summary; returns the row of the first setting."""
    own, about = model.results(), _about(model, record)
    schedule = getattr(dataset, 'schedule', None)           # third-party data sets have none
    spec = schedule.spec if schedule else f'split:{dataset.N_TASKS}'
    common = dict(schedule=spec, schedule_digest=schedule and schedule.digest(), n_tasks=dataset.N_TASKS)
    if getattr(dataset, 'decoded_by', ''):
        common['decoded_by'] = dataset.decoded_by
    if hasattr(args, 'key'):
        common['run_key'] = key_text(args.key, args.seed, spec, model.psi_digest)
    rows, paths = {}, {}
    for setting, which in settings(dataset).items():
        rows[setting] = {**_accuracies(record, which, args.enable_other_metrics), **common,
                         **_at_the_end(record, which), **(own if not rows else {}),
                         **{k: v for k, v in arguments.items() if k not in common}, **about}
        if not args.disable_log:
            paths[setting] = results.append_row(folders[setting], rows[setting])
    setting, row = next(iter(rows.items()))
    title = f'{model.NAME} on {dataset.NAME}, {spec}'
    plotted = {} if args.disable_log else _plots(model, row, record, title, dataset.N_TASKS,
                                                 folders[setting] / 'plots')
    _print_summary(model, rows, record, paths, plotted)
    return row


def _plots(model, row: dict, record: Record, title: str, tasks: int, folder) -> dict:
    """name -> file. A run is not lost because it cannot be drawn."""
    points = [(i, row[f'task{i}']) for i in range(1, tasks + 1) if f'task{i}' in row]
    try:
        curves = {model.NAME: points, **model.curves()}
        paths = dict(plot=plots.accuracy_curve(folder / f'{record.run}.png', curves, title))
        if record.anytime.curve:
            curves = {model.NAME: record.anytime.curve}
            path = folder / f'{record.run}-anytime.png'
            paths['anytime plot'] = plots.accuracy_curve(path, curves, title, 'samples seen')
    except OSError as error:
        print(f'warning: {folder} cannot be written ({error.strerror}): no plot', file=sys.stderr)
        return {}
    return paths


def _accuracies(record: Record, which: int, transfer: bool) -> dict:
    """The leading columns: mean accuracy after each task, and with `transfer` how tasks changed others."""
    R = (record.class_il, record.task_il)[which]
    row = {f'task{record.first + i + 1}': round(metrics.mean(accuracies), 4)
           for i, accuracies in enumerate(R)}
    if transfer and len(R) > 1:
        return row | dict(forward_transfer=metrics.forward_transfer(record.before[which],
                                                                    record.untrained[which]),
                          backward_transfer=metrics.backward_transfer(R), forgetting=metrics.forgetting(R))
    return row | dict.fromkeys(_METRICS)


def _at_the_end(record: Record, which: int) -> dict:
    R = (record.class_il, record.task_il)[which]
    row = dict(final_accuracy=round(float(np.average(R[-1], weights=record.test_sizes)), 4),
               average_incremental_accuracy=round(metrics.average_incremental_accuracy(R), 4),
               accuracy_per_task=json.dumps(np.round(R[-1], 4).tolist()), **record.anytime.results())
    if record.test:
        row |= dict(test_accuracy=round(float(np.average(record.test[which], weights=record.real_sizes)), 4),
                    test_accuracy_per_task=json.dumps(np.round(record.test[which], 4).tolist()))
    later = (metrics.mean(accuracies[which]) for accuracies in record.later)
    return row | {f'future_accuracy_after_task{record.first + i + 1}': round(accuracy, 4)
                  for i, accuracy in enumerate(later)}


def _about(model, record: Record) -> dict:
    return dict(**{f'seconds_{stage}': round(s, 3) for stage, s in record.seconds.items()},
                images_per_second=round(record.images / max(record.seconds['stream'], 1e-9), 1),
                peak_memory_mb=_peak_memory(), peak_gpu_memory_mb=_peak_gpu_memory(model.device),
                **versions(), psi_digest=model.psi_digest, run=record.run,
                finished=f'{datetime.datetime.now():%Y-%m-%d %H:%M:%S}')


def _print_summary(model, rows: dict, record: Record, paths: dict, plotted: dict) -> None:
    """One screen: accuracies, where the rows are, what the method says (SCROLL: digests); then all else."""
    print('\nSummary')
    for setting, row in rows.items():
        anytime = f", anytime {row['anytime_accuracy']:.2f} %" if record.anytime.curve else ''
        test = f", on the real test set {row['test_accuracy']:.2f} %" if record.test else ''
        _tell(f"{setting}: final accuracy {row['final_accuracy']:.2f} %, average incremental "
              f"{row['average_incremental_accuracy']:.2f} %{test}{anytime}")
    for setting, path in paths.items():
        print(f'  row, {setting}: {path}')
    for line in model.summary():
        _tell(line)
    if 'decoded_by' in row:
        _tell(f"images decoded by {row['decoded_by']}: with other versions, pixels and digests may differ")
    for name in _METRICS:
        known = {label(setting): row[name] for setting, row in rows.items() if row[name] is not None}
        if known:
            values = ' \t '.join(f'[{which}]: {value:.2f}' for which, value in known.items())
            print(f"{name.replace('_', ' ').title()}: {values}")
    begins = ' (as the backbone begins)' if row['weights'] == 'none' else ''
    _tell(f"backbone: {row['backbone']}, weights: {row['weights']}{begins}")
    _tell('seconds: ' + ', '.join(f'{stage} {s:.1f}' for stage, s in record.seconds.items()))
    for name, path in plotted.items():
        print(f'  {name}: {path}')
    sys.stdout.flush()


def _tell(line: str) -> None:
    """In columns that a screen has."""
    print(textwrap.fill(line, 110, initial_indent='  ', subsequent_indent='    ', break_on_hyphens=False))


def versions() -> dict:
    """Versions, host and commit: what a row needs to be made again."""
    try:
        commit = subprocess.run(['git', '-C', str(ROOT), 'rev-parse', 'HEAD'], capture_output=True,
                                text=True, timeout=5)
        commit = commit.stdout.strip() if commit.returncode == 0 else ''
    except (OSError, subprocess.TimeoutExpired):
        commit = ''
    return dict(python=platform.python_version(), torch=torch.__version__, numpy=np.__version__,
                host=socket.gethostname(), git_commit=commit)


def _peak_memory() -> float:
    """Largest resident size of this process so far, in MB (10^6 bytes)."""
    unit = 1 if sys.platform == 'darwin' else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _peak_gpu_memory(device) -> float:
    return round(torch.cuda.max_memory_allocated(device) / 1e6, 1) if device.type == 'cuda' else None
