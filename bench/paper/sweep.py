"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once.

    python scripts/sweep.py experiments/table_1_cifar.yaml --seeds 3 --extra -- --weights compact --device cpu

Runs that have their row among the results, or among the committed ones (`--rows`), are skipped, so
the same command resumes a sweep whatever ended it. Two sweeps never make a run at the same time.
Seeds come before cells: one that is stopped has whole tables of the first seeds. What a run prints is
in `<base_path>/sweeps/<experiment>/*.log`. `--dry_run` prints all commands, one a line, for a
cluster's queue. Exit code 1 if a run failed, 2 for invalid commands.
"""
import fcntl
import fnmatch
import hashlib
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from bench.paper.experiments import (
    Cell,
    arguments,
    cell_rows,
    load,
    matching_rows,
    refusal,
    results_rows,
    with_paths,
)
from core.arguments import KEY, ArgumentParser, affects, whole
from core.commands import on_stop, run_command
from core.plugins import ROOT
from scroll.errors import InputError
from scroll.progress import span

_TICK = 0.1                         # seconds between two looks at a run
_NOT_OF_A_SWEEP = {'--seed': '--seeds says which', '--disable_log': 'a run without a row would never end'}


def say(text: str) -> None:
    """A line on stdout, whole also where several threads write."""
    print(f'{text}\n', end='', flush=True)


@dataclass(frozen=True)
class Run:
    """A cell, with the flags that the sweep adds, and a seed. key: equal for runs with equal arguments.
    command: words before the flags. experiment: its name. committed: whether all experiments that
    ask for the run have its row."""
    cell: Cell
    seed: int
    key: str
    command: tuple
    experiment: str
    committed: bool = False

    def __str__(self):
        return f'{self.cell.row}, {self.cell.column}, seed {self.seed}'

    @property
    def folder(self) -> Path:
        """Of logs and locks."""
        return Path(self.cell.flags.get('base_path', './data/')) / 'sweeps'

    @property
    def log(self) -> Path:
        """The file that takes what the run prints."""
        name = re.sub(r'[^\w.+=-]+', '_', f'{self.cell.row}-{self.cell.column}')
        return self.folder / self.experiment / f'{name}-s{self.seed}-{self.key[:6]}.log'

    def words(self) -> list:
        """The whole command."""
        return [*self.command, *self.cell.command(self.seed)[1:]]

    def row(self, rows: list = None):
        """The row of a finished run with these arguments, or None. rows: where to look, not in the files."""
        rows = results_rows(self.folder.parent, self.cell.flags.get('results_path', 'results/')) \
            if rows is None else rows
        mine = [row for row in rows if row.get('seed') == str(self.seed)]
        return next(iter(matching_rows(self.cell, mine)), None)

    def make(self, stop: threading.Event, gpu: str = None) -> str:
        """Run until there is a row, or until the sweep is stopped; why it failed, or ''. gpu: for
        CUDA_VISIBLE_DEVICES. The process inherits the lock, so it is free again when the run has ended,
        whatever ended the sweep."""
        path = self.folder / 'locks' / self.key
        for folder in (path.parent, self.log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with open(path, 'ab') as lock:
            self._lock(lock, stop)
            if stop.is_set() or self.row():                         # looked at under the lock
                return ''
            process = self._start(lock, gpu)
            while process.poll() is None and not stop.wait(_TICK):
                pass
            process.terminate()                                     # no effect on one that has ended
            code = process.wait()
        lines = [line for line in self.log.read_text(errors='replace').splitlines() if line.strip()]
        said = 'it printed nothing' if lines[-1].startswith('$') else lines[-1].strip()
        if stop.is_set() or not code and self.row():
            return ''
        why = f'ended by {signal.Signals(-code).name}' if code < 0 else f'exit code {code}'
        return f'{why if code else "left no row among the results"}: {said}'

    def _lock(self, lock, stop: threading.Event) -> None:
        """Take the lock as soon as it is free."""
        waiting = False
        while not stop.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say(f'{self}: is being made by a process of another sweep')
                waiting = True
                stop.wait(_TICK)

    def _start(self, lock, gpu: str) -> subprocess.Popen:
        variables = dict(OMP_NUM_THREADS=str(self.cell.flags['num_threads']), PYTHONUNBUFFERED='1')
        variables |= {} if gpu is None else dict(CUDA_VISIBLE_DEVICES=gpu)
        with open(self.log, 'ab') as log:                       # what earlier tries said stays
            log.write(f'$ {shlex.join(self.words())}\n'.encode())
            log.flush()
            return subprocess.Popen(
                self.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **variables}, pass_fds=(lock.fileno(),))


def parse_args(argv: list):
    """(options, extra flags: name -> value)."""
    cut = argv.index('--extra') if '--extra' in argv else len(argv)
    parser = ArgumentParser(prog='sweep.py', description=__doc__.split('\n\n')[0],
                            epilog='\n\n'.join(__doc__.strip().split('\n\n')[1:]))
    flag = parser.add_argument
    flag('experiments', nargs='+', metavar='experiments/<name>.yaml', help='what to run: a table or a figure')
    flag('--seeds', type=whole(1), help='seeds 0, 1, ... of each cell (default: as many as the file says)')
    flag('--only', metavar='ROW/COLUMN', action='append',
         help='cells with such names (wildcards * and ?; without a slash, rows or columns); repeatable')
    flag('--jobs', type=whole(1),
         help='runs at a time (default: cores / threads of a run; with --gpus, what they take)')
    flag('--gpus', type=lambda text: [gpu.strip() for gpu in text.split(',')], default=[],
         help='GPUs to use, joined by commas; one that runs share is named several times')
    flag('--dry_run', action='store_true', help='print the commands that would be run, and run nothing')
    flag('--rows', type=Path, default=ROOT / 'results' / 'rows', metavar='FOLDER',
         help='committed rows, as report.py keeps them: their runs are skipped (none: make them, too)')
    flag('--extra', action='store_true', help='what follows, after --, are flags for every run')
    options = parser.parse_args(argv[:cut])
    return options, _flags([word for word in argv[cut + 1:] if word != '--'])


def _flags(words: list) -> dict:
    """['--lr', '.1'] -> {'lr': '.1'}."""
    names, values = words[::2], words[1::2]
    if len(names) > len(values) or not all(name.startswith('--') for name in names) or \
            len(set(names)) < len(names):
        raise InputError(f'--extra: {shlex.join(words)}: expected flags with one value each, each once, as '
                         'in --extra -- --weights compact')
    for name in _NOT_OF_A_SWEEP.keys() & set(names):
        raise InputError(f'--extra: {name} is not for a sweep: {_NOT_OF_A_SWEEP[name]}')
    return {name[2:]: value for name, value in zip(names, values)}


def shares(options, extra: dict) -> tuple:
    """(runs at a time, CPU threads of each): together all cores, where both are not given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    given = extra.get('num_threads')
    if given is not None and (not given.isdecimal() or int(given) < 1):
        raise InputError(f'--extra: --num_threads {given}: expected a whole number of at least 1')
    jobs = options.jobs or len(options.gpus) or max(1, cores // int(given or 1))
    if options.gpus and jobs > len(options.gpus):
        raise InputError(f'--jobs {jobs}: {len(options.gpus)} GPUs are named; leave --jobs out')
    return jobs, int(given or max(1, cores // jobs))


def expand(experiments: list, options, extra: dict, command: list) -> list:
    """All distinct runs, seeds outermost."""
    chosen = [(experiment, replace(cell, flags=cell.flags | extra)) for experiment in experiments
              for cell in experiment.cells if _is_chosen(cell, options.only)]
    if options.only and not chosen:
        raise InputError(f"--only {' '.join(options.only)}: no cell has such a name")
    runs, rows = {}, {experiment.name: cell_rows(options.rows / f'{experiment.name}.csv')
                      for experiment in experiments}
    for seed in range(max((options.seeds or experiment.seeds for experiment, _ in chosen), default=0)):
        for experiment, cell in chosen:
            text = json.dumps(sorted((name, str(value)) for name, value in _identity(cell).items()))
            key = hashlib.sha256(f'{seed} {text}'.encode()).hexdigest()[:24]
            if seed < (options.seeds or experiment.seeds):
                mine = rows[experiment.name].get((cell.row, cell.column), [])
                run = Run(cell, seed, key, tuple(command), experiment.name)
                run = replace(run, committed=run.row(with_paths(experiment, mine)) is not None)
                if key not in runs or runs[key].committed and not run.committed:
                    runs[key] = run
    return list(runs.values())


def _is_chosen(cell, patterns: list) -> bool:
    names = [name.casefold() for name in (f'{cell.row}/{cell.column}', cell.row, cell.column)]
    return not patterns or any(fnmatch.fnmatchcase(name, pattern.casefold())
                               for pattern in patterns for name in names)


def _identity(cell) -> dict:
    """What makes a run of the cell differ from others."""
    args = arguments(cell)
    return cell.flags if args is None else {
        name: value for name, value in vars(args).items() if name == 'results_path'
        or affects(args, name) in KEY and name not in ('seed', 'model_config')}


def sweep(argv: list, command: list) -> int:
    """The exit code; `command`: the words that begin each run's command."""
    options, extra = parse_args(argv)
    jobs, threads = shares(options, extra)
    experiments = list(map(load, options.experiments))
    others = [shlex.split(text) for experiment in experiments for text in experiment.commands]
    runs = expand(experiments, options, extra | dict(num_threads=str(threads)), command)
    rows = results_rows(extra.get('base_path', './data/'), extra.get('results_path', 'results/'))
    open_runs = [run for run in runs if not run.committed and run.row(rows) is None]
    refused = [(run, line) for run in open_runs if (line := refusal(run.cell))]
    for cell, line in {run.cell: line for run, line in refused}.items():        # once, for all seeds
        print(f'{cell.row}, {cell.column}: main.py refuses it: {line}', file=sys.stderr)
    if refused and len(refused) == len(open_runs):
        raise InputError(f'no run can be made: {refused[0][1]}')
    if options.dry_run:
        for run in open_runs:
            say(f'OMP_NUM_THREADS={threads} {shlex.join(run.words())}')
        for words in others:
            say(shlex.join([sys.executable, *words]))
        return int(bool(refused))
    if runs:
        say(f'{len(runs)} runs, {len(runs) - len(open_runs)} of them finished')
    ready = [run for run in open_runs if not refusal(run.cell)]
    code = _run_all(ready, jobs, options.gpus, refused) if ready else 0
    codes = [subprocess.run([sys.executable, *words], cwd=ROOT).returncode for words in others if code < 2]
    return code or int(any(codes))


def _run_all(runs: list, jobs: int, gpus: list, failed: list) -> int:
    """All runs, `jobs` at a time, until they have ended or a signal asks to stop."""
    places, stop, signals, made = queue.SimpleQueue(), threading.Event(), [], 0
    for gpu in gpus or [None] * jobs:
        places.put(gpu)

    def work(run):
        gpu, began = places.get(), time.monotonic()
        try:
            return run, run.make(stop, gpu), span(time.monotonic() - began)
        finally:
            places.put(gpu)

    def on_signal(number, _):
        signals.append(signal.Signals(number))
        stop.set()
        os.write(2, b'ending the runs; they may take a minute to write a checkpoint\n')
    with on_stop(on_signal), ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(work, run) for run in runs]):
            run, why, took = future.result()
            row = run.row() if not why else None
            if why or row:
                made += 1
                failed += [(run, why)] if why else []
                result = f'{float(row[run.cell.metric] or "nan"):.2f} % in {took}' if row else \
                    f'FAILED after {took}, {why}'
                say(f'[{made}/{len(runs)}] {run}: {result}')
    for run, why in failed:
        print(f'failed: {run}: {why}  ({run.log})', file=sys.stderr)
    if signals:
        print(f'stopped by {signals[0].name}: {made} of {len(runs)} runs were made; the same command resumes '
              'the sweep', file=sys.stderr)
        return 128 + signals[0]
    return int(bool(failed))


def main(argv: list = None, command: list = None) -> int:
    """`sweep` for the command line: 0, 1 if a run failed, 2 after one line on what the user can mend."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command(lambda: sweep(argv, command or [
        min(str(path), os.path.relpath(path), key=len) for path in (sys.executable, ROOT / 'main.py')]))
