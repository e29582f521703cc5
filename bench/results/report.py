"""Measurements of a run, in results files and on the console."""

import datetime
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

from bench.results import plots
from bench.results.keys import key_text
from bench.resume.state import Kept
from core import rows as results
from core.plugins import ROOT
from utils import metrics
from utils.loggers import settings

# of a run that learns every sample of its stream, task after task
_WHOLE = {
    'debug_mode': 0,
    'joint': 0,
    'inference_only': 0,
    'validation': 0,
    'label_perc': 1,
    'label_perc_by_class': 1,
    'shard': None,
}


class Record(Kept):
    """Measurements of a run so far.

    Attributes:
        began: by `time.perf_counter`; of a resumed run, as if it had not been interrupted.
        commit: of this folder as the run began; ends in `+` where Python or YAML files differ from
            it or are new.
        run: unique name.
        first: number of the first task that was trained.
        seconds: by stage.
        class_il, task_il: R[i][j], accuracy on task j after task first + i, percent.
        test_sizes: by task.
        before, untrained: (class-il, task-il) lists for forward transfer.
        test, real_sizes: (class-il, task-il) on the real test set after a run on held-out ones;
            sizes."""

    NOT_KEPT = 'began', 'commit'

    def __init__(self, first: int):
        self.began = time.perf_counter()
        changed = _git('status', '--porcelain', '*.py', '*.yaml')
        self.commit = _git('rev-parse', 'HEAD') + '+' * bool(changed)
        self.run = f'{datetime.datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}'
        self.first = first
        self.class_il = []
        self.task_il = []
        self.test_sizes = []
        self.before = ([], [])
        self.untrained = ([], [])
        self.seconds = {'stream': 0.0, 'evaluation': 0.0, 'total': 0.0}
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
        'test_samples': sum(record.real_sizes or record.test_sizes),
        'decoded_by': getattr(dataset, 'decoded_by', None),
    }
    cuts = _cuts(arguments | common, record)
    common['complete'] = int(not cuts and getattr(schedule, 'covers', 'all') == 'all')
    if hasattr(args, 'key'):
        common['run_key'] = key_text(args.key, args.seed, model.psi_digest)
    machine = _machine(model, record)
    rows = {}
    paths = {}
    for setting, which in settings(dataset).items():
        rows[setting] = {
            'setting': setting,
            **_accuracies(record, which, args.enable_other_metrics),
            **common,
            **({} if rows else anytime.results() | model.results()),
            **(arguments | common),
            **machine,
        }
        if not args.disable_log:
            paths[f'row, {setting}'] = results.append_row(folders[setting], rows[setting])
    if paths and args.picture:
        setting, row = next(iter(rows.items()))
        picture = plots.run_picture(folders[setting] / f'{record.run}.svg', row)
        if picture:
            paths['picture'] = picture
    _print_summary(model, rows, record, paths, cuts)
    return next(iter(rows.values()))


def _accuracies(record: Record, which: int, transfer: bool) -> dict:
    """Mean accuracy after each task, with `transfer` how tasks changed others, and accuracies at
    the end.
    """
    R = (record.class_il, record.task_il)[which]
    row = {f'task{record.first + i + 1}': round(metrics.mean(part), 4) for i, part in enumerate(R)}
    row |= dict.fromkeys(results.LEADING)
    if transfer and len(R) > 1:
        forward = metrics.forward_transfer(record.before[which], record.untrained[which])
        row |= zip(results.LEADING, (forward, metrics.backward_transfer(R), metrics.forgetting(R)))
    row |= {
        'final_accuracy': _weighted(R[-1], record.test_sizes),
        'average_incremental_accuracy': round(metrics.average_incremental_accuracy(R), 4),
        'accuracy_matrix': metrics.as_text(R),
    }
    if record.test:
        row['test_accuracy'] = _weighted(record.test[which], record.real_sizes)
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
        peak_memory_mb=round(memory / 1e6, 1),
        peak_gpu_memory_mb=gpu and round(gpu / 1e6, 1),
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        host=socket.gethostname(),
        git_commit=record.commit,
        psi_digest=model.psi_digest,
        run=record.run,
        finished=f'{datetime.datetime.now():%Y-%m-%d %H:%M:%S}',
    )


def _cuts(row: dict, record: Record) -> str:
    """Tasks and flags of a run that did not learn all samples, task after task; else empty."""
    learned = len(record.class_il)
    tasks = [f'{learned} of {row["n_tasks"]} tasks'] if learned < row['n_tasks'] else []
    flags = [
        f'--{flag} {row[flag]}' for flag, usual in _WHOLE.items() if row.get(flag, usual) != usual
    ]
    return ', '.join([*tasks, *flags]).replace('True', '1')


def _print_summary(model, rows: dict, record: Record, paths: dict, cuts: str) -> None:
    """Print accuracies, what the method says (SCROLL: digests), seconds, and where the rows are."""
    first = next(iter(rows.values()))
    print(
        f'\nSummary: {first["model"]} on {first["dataset"]}, schedule {first["schedule"]}, '
        f'seed {first["seed"]}'
    )
    last = f'task{record.first + len(record.class_il)}'
    for setting, row in rows.items():
        more = [
            f', {name.replace("_", " ")} {row[name]:.2f} %'
            for name in ('test_accuracy', 'anytime_accuracy', *results.LEADING)
            if row.get(name) is not None
        ]
        print(
            f'  {setting}{cuts and f" ({cuts})"}: final accuracy {row["final_accuracy"]:.2f} % of '
            f'all samples tested (mean over tasks {row[last]:.2f} %), average incremental '
            f'{row["average_incremental_accuracy"]:.2f} %{"".join(more)}'
        )
    for line in model.summary():
        print(f'  {line}')
    print(f'  backbone: {first["backbone"]}, weights: {first.get("loadcheck") or first["weights"]}')
    *parts, stream, evaluation, total = (
        f'{name[8:]} {s:.1f}' for name, s in first.items() if name.startswith('seconds_')
    )
    of_stream = f' ({", ".join(parts)})' if parts else ''
    print(f'  seconds: {total}, {evaluation}, {stream}{of_stream}')
    for label, path in paths.items():
        print(f'  {label}: {path}')
    sys.stdout.flush()


def _git(*words: str) -> str:
    """Output of git in this folder; empty without git, or where it is no repository."""
    try:
        return subprocess.run(
            ['git', '-C', str(ROOT), *words], capture_output=True, text=True, timeout=5, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ''
