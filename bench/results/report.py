"""Measurements of a run, in results files and on the console."""

import datetime
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

from bench.results.keys import key_text
from bench.resume.state import Kept
from core import rows as results
from core.plugins import ROOT
from utils import metrics
from utils.loggers import settings

_METRICS = ('forward_transfer', 'backward_transfer', 'forgetting')


class Record(Kept):
    """Measurements of a run so far.

    Attributes:
        began: by `time.perf_counter`; of a resumed run, as if it had not been interrupted.
        run: unique name.
        first: number of the first task that was trained.
        seconds: by stage.
        images: of the stream, seen.
        class_il, task_il: R[i][j], accuracy on task j after task first + i, percent.
        test_sizes: by task.
        before, untrained: (class-il, task-il) lists for forward transfer.
        test, real_sizes: (class-il, task-il) on the real test set after a run on held-out ones;
            sizes."""

    KEPT = (
        'run',
        'first',
        'class_il',
        'task_il',
        'test_sizes',
        'before',
        'untrained',
        'seconds',
        'images',
        'test',
        'real_sizes',
    )

    def __init__(self, first: int = 0):
        self.began = time.perf_counter()
        self.run = f'{datetime.datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}'
        self.first = first
        self.class_il = []
        self.task_il = []
        self.test_sizes = []
        self.before = ([], [])
        self.untrained = ([], [])
        self.seconds = {'stream': 0.0, 'evaluation': 0.0, 'total': 0.0}
        self.images = 0
        self.test = None
        self.real_sizes = None

    def tell_total(self) -> None:
        """Note the time since the run began."""
        self.seconds['total'] = time.perf_counter() - self.began


@contextmanager
def stopwatch(seconds: dict, stage: str):
    """Add the time spent in the block to `seconds[stage]`; the function that it gives does so
    before its end."""
    began = time.perf_counter()

    def lap():
        nonlocal began
        now = time.perf_counter()
        seconds[stage] += now - began
        began = now

    yield lap
    lap()


def finish(model, dataset, args, arguments: dict, record: Record, anytime, folders: dict) -> dict:
    """Write rows and the closing summary; returns the row of the first setting.

    arguments: as the run began. anytime: `bench.run.anytime.Anytime`. folders: setting -> of its
    rows."""
    schedule = getattr(dataset, 'schedule', None)  # third-party data sets have none
    spec = schedule.spec if schedule else f'split:{dataset.N_TASKS}'
    common = {
        'schedule': spec,
        'schedule_digest': schedule and schedule.digest(),
        'n_tasks': dataset.N_TASKS,
    }
    if getattr(dataset, 'decoded_by', ''):
        common['decoded_by'] = dataset.decoded_by
    if hasattr(args, 'key'):
        common['run_key'] = key_text(args.key, args.seed, spec, model.psi_digest)
    of_model = model.results()
    machine = _machine(model, record)
    rows = {}
    paths = {}
    for setting, which in settings(dataset).items():
        rows[setting] = {
            **_accuracies(record, which, args.enable_other_metrics),
            **common,
            **_at_the_end(record, which),
            **anytime.results(),
            **({} if rows else of_model),
            **{k: v for k, v in arguments.items() if k not in common},
            **machine,
        }
        if not args.disable_log:
            paths[setting] = results.append_row(folders[setting], rows[setting])
    _print_summary(model, dataset, rows, record, paths)
    return next(iter(rows.values()))


def _accuracies(record: Record, which: int, transfer: bool) -> dict:
    """The leading columns: mean accuracy after each task, and with `transfer` how tasks changed
    others.
    """
    R = (record.class_il, record.task_il)[which]
    row = {f'task{record.first + i + 1}': round(metrics.mean(part), 4) for i, part in enumerate(R)}
    row |= dict.fromkeys(_METRICS)
    if transfer and len(R) > 1:
        forward = metrics.forward_transfer(record.before[which], record.untrained[which])
        row |= zip(_METRICS, (forward, metrics.backward_transfer(R), metrics.forgetting(R)))
    return row


def _at_the_end(record: Record, which: int) -> dict:
    R = (record.class_il, record.task_il)[which]
    row = {
        'final_accuracy': _weighted(R[-1], record.test_sizes),
        'average_incremental_accuracy': round(metrics.average_incremental_accuracy(R), 4),
        'accuracy_per_task': json.dumps(np.round(R[-1], 4).tolist()),
    }
    if record.test:
        row |= {
            'test_accuracy': _weighted(record.test[which], record.real_sizes),
            'test_accuracy_per_task': json.dumps(np.round(record.test[which], 4).tolist()),
        }
    return row


def _weighted(accuracies: list, sizes: list) -> float:
    return round(float(np.average(accuracies, weights=sizes)), 4)


def _machine(model, record: Record) -> dict:
    """Seconds, memory (MB, 10^6 bytes: of this process, and what torch had on its GPU), versions,
    time.
    """
    unit = 1 if sys.platform == 'darwin' else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    gpu = torch.cuda.max_memory_allocated(model.device) if model.device.type == 'cuda' else None
    return dict(
        **{f'seconds_{stage}': round(s, 3) for stage, s in record.seconds.items()},
        images_per_second=round(record.images / max(record.seconds['stream'], 1e-9), 1),
        peak_memory_mb=round(memory / 1e6, 1),
        peak_gpu_memory_mb=gpu and round(gpu / 1e6, 1),
        **versions(),
        psi_digest=model.psi_digest,
        run=record.run,
        finished=f'{datetime.datetime.now():%Y-%m-%d %H:%M:%S}',
    )


def _print_summary(model, dataset, rows: dict, record: Record, paths: dict) -> None:
    """Print accuracies, what the method says (SCROLL: digests), and where the files are."""
    tasks = range(record.first, record.first + len(record.class_il))
    whole = len(tasks) == dataset.N_TASKS
    of_tasks = f', tasks {tasks.start + 1} to {tasks.stop} of {dataset.N_TASKS}'
    print(f'\nSummary{"" if whole else of_tasks}')
    for setting, row in rows.items():
        anytime = f', anytime {row["anytime_accuracy"]:.2f} %' if 'anytime_accuracy' in row else ''
        test = f', on the real test set {row["test_accuracy"]:.2f} %' if record.test else ''
        print(
            f'  {setting}: final accuracy {row["final_accuracy"]:.2f} %, average incremental '
            f'{row["average_incremental_accuracy"]:.2f} %{test}{anytime}'
        )
    for line in model.summary():
        print(f'  {line}')
    for name in _METRICS:
        if row[name] is not None:
            values = ' \t '.join(
                f'[{setting.title().replace("-Il", "-IL")}]: {row[name]:.2f}'
                for setting, row in rows.items()
            )
            print(f'{name.replace("_", " ").title()}: {values}')
    print(f'  backbone: {row["backbone"]}, weights: {row.get("loadcheck") or row["weights"]}')
    seconds = ', '.join(f'{stage} {s:.1f}' for stage, s in record.seconds.items())
    print(f'  seconds: {seconds}')
    for setting, path in paths.items():
        print(f'  row, {setting}: {path}')
    sys.stdout.flush()


def versions() -> dict:
    """Versions, host and commit: what a row needs to be made again."""
    try:
        commit = subprocess.run(
            ['git', '-C', str(ROOT), 'rev-parse', 'HEAD'],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        commit = ''
    return {
        'python': platform.python_version(),
        'torch': torch.__version__,
        'numpy': np.__version__,
        'host': socket.gethostname(),
        'git_commit': commit,
    }
