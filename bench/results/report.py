"""Measurements of a run, in results files and on the console."""

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

from bench.results.keys import key_text
from bench.resume.state import Kept
from core import rows as results
from core.plugins import ROOT
from utils import metrics
from utils.loggers import settings

_METRICS = ('forward_transfer', 'backward_transfer', 'forgetting')
_CUTS = {  # flag -> value with which all samples come, words on what does not
    'validation': (0, 'held out'),
    'schedule': (None, 'not in the stream'),
    'start_from': (None, 'in earlier tasks'),
    'stop_after': (None, 'in later tasks'),
    'label_perc': (1, 'labels'),
    'label_perc_by_class': (1, 'labels'),
    'debug_mode': (False, 'after the first batches of a pass, and of a test'),
    'shard': (None, 'in other shards'),
    'drop_last': (False, 'in incomplete batches'),
    'inference_only': (False, 'of them'),
}


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


class Stopwatch:
    """Adds the time spent in a `with` block to `seconds[stage]`; `lap` does so before its end."""

    def __init__(self, seconds: dict, stage: str):
        self.seconds = seconds
        self.stage = stage

    def __enter__(self):
        self.began = time.perf_counter()
        return self

    def __exit__(self, *error):
        self.lap()

    def lap(self) -> None:
        now = time.perf_counter()
        self.seconds[self.stage] += now - self.began
        self.began = now


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
    _print_summary(model, rows, record, paths, _coverage(dataset, arguments, record))
    return next(iter(rows.values()))


def _coverage(dataset, arguments: dict, record: Record) -> tuple[str, list]:
    """(which tasks were run, '' for all; lines on training samples that were left out or came
    again).
    """
    tasks = range(record.first, record.first + len(record.class_il))
    of_tasks = ''
    if tasks.start:
        of_tasks = f', tasks {tasks.start + 1} to {tasks.stop} of {dataset.N_TASKS}'
    elif tasks.stop < dataset.N_TASKS:
        of_tasks = f', {tasks.stop} of {dataset.N_TASKS} tasks'
    schedule = getattr(dataset, 'schedule', None)
    covers = schedule.covers if schedule else 'all'
    cuts = []
    lines = []
    for flag, (usual, words) in _CUTS.items():
        value = arguments.get(flag, usual)
        if value not in (usual, None) and (flag != 'schedule' or covers == 'part'):
            shown = value if isinstance(value, str) else f'{value:g}'
            cuts.append(f'{words} (--{flag} {shown})')
    if cuts:
        lines.append(f'this run left out training samples: {", ".join(cuts)}')
    if covers == 'repeats':
        order = schedule.order
        lines.append(f'samples came again: {len(order):,} draws of {len(np.unique(order)):,}')
    return of_tasks, lines


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


def _print_summary(model, rows: dict, record: Record, paths: dict, coverage: tuple) -> None:
    """One screen: accuracies, which part of the data came (`_coverage`), what the method says
    (SCROLL: digests), where the files are."""
    of_tasks, lines = coverage
    print(f'\nSummary{of_tasks}')
    for setting, row in rows.items():
        anytime = f', anytime {row["anytime_accuracy"]:.2f} %' if 'anytime_accuracy' in row else ''
        test = f', on the real test set {row["test_accuracy"]:.2f} %' if record.test else ''
        _tell(
            f'{setting}: final accuracy {row["final_accuracy"]:.2f} %, average incremental '
            f'{row["average_incremental_accuracy"]:.2f} %{test}{anytime}'
        )
    if 'prequential_accuracy' in row:
        _tell(
            'prequential, each batch predicted before it is learned: '
            f'{row["prequential_accuracy"]:.2f} %'
        )
    for line in [*lines, *model.summary()]:
        _tell(line)
    if 'decoded_by' in row:
        _tell(
            f'images decoded by {row["decoded_by"]}: with other versions, pixels and digests may '
            'differ'
        )
    for name in _METRICS:
        if row[name] is not None:
            values = ' \t '.join(
                f'[{setting.title().replace("-Il", "-IL")}]: {row[name]:.2f}'
                for setting, row in rows.items()
            )
            print(f'{name.replace("_", " ").title()}: {values}')
    weights = row.get('loadcheck') or row['weights']
    if weights == 'none':
        weights = 'none (as the backbone begins)'
    _tell(f'backbone: {row["backbone"]}, weights: {weights}')
    _tell('seconds: ' + ', '.join(f'{stage} {s:.1f}' for stage, s in record.seconds.items()))
    for setting, path in paths.items():
        print(f'  row, {setting}: {path}')
    sys.stdout.flush()


def _tell(line: str) -> None:
    """Print a line in the columns that a screen has."""
    print(
        textwrap.fill(
            line, 110, initial_indent='  ', subsequent_indent='    ', break_on_hyphens=False
        )
    )


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
