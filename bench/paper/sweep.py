"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once.

    python scripts/sweep.py experiments/table_1_cifar.yaml --seeds 3 --extra -- --weights compact
    --device cpu

Runs that have their row among the results, or among the committed ones (`--rows`), are skipped, so
the same command resumes a sweep whatever ended it. Two sweeps at the same time may make a run
twice. Seeds come before cells: one that is stopped has whole tables of the first seeds. What a run
prints is in `<base_path>/sweeps/<experiment>/*.log`. `--dry_run` prints all commands, one a line,
for a cluster's queue. Exit code 1 if a run failed, 2 for invalid commands.
"""

import argparse
import fnmatch
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from joblib import cpu_count

from bench.paper.experiments import (
    Cell,
    arguments,
    cell_rows,
    identity,
    load,
    matching_rows,
    results_rows,
)
from core.arguments import ArgumentParser, whole
from core.commands import Interrupted, on_stop
from core.plugins import ROOT
from scroll.ground.errors import InputError

PROGRAM = [sys.executable, str(ROOT / 'main.py')]  # the words that begin each run's command
_TICK = 0.1  # seconds between two looks at the runs


@dataclass(frozen=True)
class Run:
    """A cell, with the flags that the sweep adds, and a seed. experiment: its name."""

    cell: Cell
    seed: int
    experiment: str

    def __str__(self):
        return f'{self.cell.row}, {self.cell.column}, seed {self.seed}'

    @property
    def command(self) -> list:
        """The words of the whole command."""
        return [*PROGRAM, *self.cell.command(self.seed)]

    @property
    def log(self) -> Path:
        """The file that takes what the run prints."""
        name = re.sub(r'[^\w.+=-]+', '_', f'{self.cell.row}-{self.cell.column}')
        base = Path(self.cell.flags.get('base_path', './data/'))
        return base / 'sweeps' / self.experiment / f'{name}-s{self.seed}.log'

    @property
    def key(self) -> str:
        """Text that equal runs have in common."""
        args, _ = arguments(self.cell)
        values = self.cell.flags if args is None else identity(self.cell, args)
        return f'{self.seed} {sorted(map(str, values.items()))}'

    def row(self, rows: list) -> dict | None:
        """The one among these rows that is of a finished run with these arguments, or None."""
        mine = [row for row in rows if row.get('seed') == str(self.seed)]
        return next(iter(matching_rows(self.cell, mine)), None)

    def start(self, gpu: str | None) -> subprocess.Popen:
        """The process of the run, with its log. gpu: for CUDA_VISIBLE_DEVICES."""
        environment = os.environ | {
            'OMP_NUM_THREADS': str(self.cell.flags['num_threads']),
            'PYTHONUNBUFFERED': '1',
        }
        if gpu is not None:
            environment['CUDA_VISIBLE_DEVICES'] = gpu
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, 'ab') as log:  # what earlier tries said stays
            log.write(f'$ {shlex.join(self.command)}\n'.encode())
            log.flush()
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment,
            )


def parse_args(argv: list) -> tuple[argparse.Namespace, dict]:
    """(options, extra flags: name -> value)."""
    parser = ArgumentParser(prog='sweep.py', description=__doc__)
    flag = parser.add_argument
    flag(
        'experiments',
        nargs='+',
        metavar='experiments/<name>.yaml',
        help='what to run: a table or a figure',
    )
    flag(
        '--seeds',
        type=whole(1),
        help='seeds 0, 1, ... of each cell (default: as many as the file says)',
    )
    flag(
        '--only',
        metavar='ROW/COLUMN',
        action='append',
        help='cells of such names (wildcards * and ?; without a slash, rows, columns); repeatable',
    )
    flag(
        '--jobs',
        type=whole(1),
        help='runs at a time (default: cores / threads of a run; with --gpus, what they take)',
    )
    flag('--gpus', help='GPUs to use, joined by commas; one that runs share is named several times')
    flag(
        '--dry_run',
        action='store_true',
        help='print the commands that would be run, and run nothing',
    )
    flag(
        '--rows',
        type=Path,
        default=ROOT / 'results' / 'rows',
        metavar='FOLDER',
        help='committed rows, as report.py keeps them: their runs are skipped (none: made, too)',
    )
    flag(
        '--extra',
        nargs=argparse.REMAINDER,
        default=[],
        help='what follows, after --, are flags for every run',
    )
    options = parser.parse_args([word for word in argv if word != '--'])
    names = options.extra[::2]
    values = options.extra[1::2]
    if (
        len(names) > len(values)
        or not all(name.startswith('--') and '=' not in name for name in names)
        or set(names) & {'--seed', '--disable_log'}
    ):
        raise InputError(
            f'--extra: {shlex.join(options.extra)}: expected flags with one value each, as in '
            '--extra -- --weights compact, and neither --seed (use --seeds) nor --disable_log'
        )
    return options, {name[2:]: value for name, value in zip(names, values)}


def shares(options, extra: dict) -> tuple[list, int]:
    """Parts of a machine, all cores and the GPUs of `--gpus`: (the GPUs of the runs at a time, None
    for one without; threads of a run)."""
    text = extra.get('num_threads', '0')
    if not text.isdecimal():
        raise InputError(f'--extra: --num_threads {text}: expected a whole number')
    if options.gpus:
        gpus = [gpu.strip() for gpu in options.gpus.split(',')][: options.jobs]
    else:
        gpus = [None] * (options.jobs or max(1, cpu_count() // max(1, int(text))))
    return gpus, int(text) or max(1, cpu_count() // len(gpus))


def missing_runs(experiments: list, options, extra: dict) -> list:
    """The runs, each once, that lack a row in the results, or a committed one in one of the
    experiments that ask for them; seeds outermost."""
    chosen = [
        (experiment, replace(cell, flags=cell.flags | extra))
        for experiment in experiments
        for cell in experiment.cells.values()
        if _is_chosen(cell, options.only)
    ]
    if options.only and not chosen:
        raise InputError(f'--only {" ".join(options.only)}: no cell has such a name')
    pool = _results(extra)
    missing = {}
    for experiment, cell in chosen:
        committed = cell_rows(options.rows, experiment.name).get((cell.row, cell.column), [])
        for seed in range(options.seeds or experiment.seeds):
            run = Run(cell, seed, experiment.name)
            if not run.row(committed + pool):
                missing.setdefault(run.key, run)
    return sorted(missing.values(), key=lambda run: run.seed)


def _results(flags: dict) -> list:
    """The rows that runs with these flags have written."""
    return results_rows(flags.get('base_path', './data/'), flags.get('results_path', 'results/'))


def _is_chosen(cell, patterns: list | None) -> bool:
    names = [name.casefold() for name in (f'{cell.row}/{cell.column}', cell.row, cell.column)]
    return not patterns or any(fnmatch.filter(names, pattern.casefold()) for pattern in patterns)


def main() -> int:
    options, extra = parse_args(sys.argv[1:])
    gpus, threads = shares(options, extra)
    experiments = list(map(load, options.experiments))
    others = [
        [sys.executable, *shlex.split(text)]
        for experiment in experiments
        for text in experiment.commands
    ]
    extra['num_threads'] = str(threads)
    if options.gpus:
        extra.setdefault('device', 'cuda:0')  # a run that does not get its GPU would take the CPU
    missing = missing_runs(experiments, options, extra)
    refusals = {run.cell: line for run in missing if (line := arguments(run.cell)[1])}
    ready = [run for run in missing if run.cell not in refusals]
    if refusals and not ready:
        raise InputError(f'main.py refuses all runs: {next(iter(refusals.values()))}')
    for cell, line in refusals.items():
        print(f'{cell.row}, {cell.column}: main.py refuses it: {line}', file=sys.stderr)
    if options.dry_run:
        for run in ready:
            print(f'OMP_NUM_THREADS={threads} {shlex.join(run.command)}')
        for words in others:
            print(shlex.join(words))
        return int(bool(refusals))
    print(f'{len(ready)} runs to make', flush=True)
    failed = _run_all(ready, gpus)
    codes = [subprocess.run(words, cwd=ROOT, check=False).returncode for words in others]
    return int(bool(refusals) or failed or any(codes))


def _run_all(runs: list, gpus: list) -> bool:
    """Make all runs, one at a time on each of `gpus`; True if one failed. `Interrupted` after a
    signal that asks to stop, when the runs at work have ended, too."""
    signals = []
    waiting = list(runs)
    working = {}
    ended = 0
    failed = False
    with on_stop(lambda number, _: signals.append(number)):
        try:
            while (waiting or working) and not signals:
                while waiting and gpus:
                    run = waiting.pop(0)
                    gpu = gpus.pop(0)
                    working[run.start(gpu)] = run, gpu, time.monotonic()
                time.sleep(_TICK)
                for process in [process for process in working if process.poll() is not None]:
                    run, gpu, began = working.pop(process)
                    gpus.append(gpu)
                    ended += 1
                    failed |= not _report(run, process.returncode, f'[{ended}/{len(runs)}]', began)
        finally:
            if working:  # after a signal, or an error
                print('ending the runs; they may take a minute', file=sys.stderr)
            for process in working:
                process.terminate()
            for process in working:
                process.wait()
        if signals:
            raise Interrupted(
                f'stopped: {ended} of {len(runs)} runs were made; the same command resumes the '
                'sweep',
                128 + signals[0],
            )
    return failed


def _report(run: Run, code: int, place: str, began: float) -> bool:
    """Say how a run ended; True if it has its row."""
    row = None if code else run.row(_results(run.cell.flags))
    if row:
        accuracy = float(row.get(run.cell.metric) or 'nan')
        took = timedelta(seconds=round(time.monotonic() - began))
        print(f'{place} {run}: {accuracy:.2f} % in {took}', flush=True)
        return True
    last = run.log.read_text(errors='replace').rstrip().rpartition('\n')[2]
    print(f'{place} {run}: FAILED, exit code {code}, no row: {last}  ({run.log})', file=sys.stderr)
    return False
