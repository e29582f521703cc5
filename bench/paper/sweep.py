"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once.

    python scripts/sweep.py experiments/table_1_cifar.yaml --seeds 3 --extra -- --weights compact
    --device cpu

Runs that have their row among the results, or among the committed ones (`--rows`), are skipped, so
the same command resumes a sweep whatever ended it. Two sweeps at the same time may make a run
twice. Seeds come before cells: one that is stopped has whole tables of the first seeds. What a run
prints is in `<base_path>/sweeps/<experiment>/*.log`. `--dry_run` prints all commands, one a line,
for a cluster's queue. Exit code 1 if a run failed, 2 for invalid commands.
"""

import fnmatch
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.paper.experiments import (
    Cell,
    arguments,
    cell_rows,
    load,
    matching_rows,
    results_rows,
)
from core.arguments import KEY, ArgumentParser, affects, whole
from core.commands import Interrupted, on_stop
from core.plugins import ROOT
from scroll.ground.errors import InputError
from scroll.ground.progress import span

_TICK = 0.1  # seconds between two looks at the runs


@dataclass(frozen=True)
class Run:
    """A cell, with the flags that the sweep adds, and a seed. command: words before the flags.
    experiment: its name."""

    cell: Cell
    seed: int
    command: tuple
    experiment: str

    def __str__(self):
        return f'{self.cell.row}, {self.cell.column}, seed {self.seed}'

    @property
    def base(self) -> Path:
        """The run's --base_path."""
        return Path(self.cell.flags.get('base_path', './data/'))

    @property
    def log(self) -> Path:
        """The file that takes what the run prints."""
        name = re.sub(r'[^\w.+=-]+', '_', f'{self.cell.row}-{self.cell.column}')
        return self.base / 'sweeps' / self.experiment / f'{name}-s{self.seed}.log'

    def words(self) -> list:
        """The whole command."""
        return [*self.command, *self.cell.command(self.seed)]

    def row(self, rows: list | None = None):
        """The row of a finished run with these arguments, or None. rows: where to look, not in the
        files.
        """
        if rows is None:
            rows = results_rows(self.base, self.cell.flags.get('results_path', 'results/'))
        mine = [row for row in rows if row.get('seed') == str(self.seed)]
        return next(iter(matching_rows(self.cell, mine)), None)

    def start(self, gpu: str) -> subprocess.Popen:
        """The process of the run, with its log. gpu: for CUDA_VISIBLE_DEVICES, or None."""
        variables = {
            'OMP_NUM_THREADS': str(self.cell.flags['num_threads']),
            'PYTHONUNBUFFERED': '1',
        }
        if gpu is not None:
            variables['CUDA_VISIBLE_DEVICES'] = gpu
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, 'ab') as log:  # what earlier tries said stays
            log.write(f'$ {shlex.join(self.words())}\n'.encode())
            log.flush()
            return subprocess.Popen(
                self.words(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **variables},
            )


def parse_args(argv: list):
    """(options, extra flags: name -> value)."""
    cut = argv.index('--extra') if '--extra' in argv else len(argv)
    parser = ArgumentParser(
        prog='sweep.py',
        description=__doc__.split('\n\n')[0],
        epilog='\n\n'.join(__doc__.strip().split('\n\n')[1:]),
    )
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
        help='cells with such names (wildcards * and ?; without a slash, rows or columns); repeatable',
    )
    flag(
        '--jobs',
        type=whole(1),
        help='runs at a time (default: cores / threads of a run; with --gpus, what they take)',
    )
    flag(
        '--gpus',
        type=lambda text: [gpu.strip() for gpu in text.split(',')],
        default=[],
        help='GPUs to use, joined by commas; one that runs share is named several times',
    )
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
        help='committed rows, as report.py keeps them: their runs are skipped (none: make them, too)',
    )
    flag('--extra', action='store_true', help='what follows, after --, are flags for every run')
    options = parser.parse_args(argv[:cut])
    return options, _flags([word for word in argv[cut + 1 :] if word != '--'])


def _flags(words: list) -> dict:
    """['--lr', '.1'] -> {'lr': '.1'}."""
    names, values = words[::2], words[1::2]
    if (
        len(names) > len(values)
        or not all(name.startswith('--') for name in names)
        or set(names) & {'--seed', '--disable_log'}
    ):
        raise InputError(
            f'--extra: {shlex.join(words)}: expected flags with one value each, as in --extra '
            '-- --weights compact, and neither --seed (use --seeds) nor --disable_log'
        )
    return {name[2:]: value for name, value in zip(names, values)}


def shares(options, extra: dict) -> tuple:
    """(the GPU, or None, of each of the runs at a time; CPU threads of a run): together all cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    given = extra.get('num_threads', '0')
    if not given.isdecimal():
        raise InputError(f'--extra: --num_threads {given}: expected a whole number')
    places = options.gpus or [None] * (options.jobs or max(1, cores // max(1, int(given))))
    places = places[: options.jobs]
    return places, int(given) or max(1, cores // len(places))


def expand(experiments: list, options, extra: dict, command: list) -> tuple:
    """(number of distinct runs; those without a committed row in one of the experiments that ask
    for them), seeds outermost."""
    chosen = [
        (experiment, replace(cell, flags=cell.flags | extra))
        for experiment in experiments
        for cell in experiment.cells
        if _is_chosen(cell, options.only)
    ]
    if options.only and not chosen:
        raise InputError(f'--only {" ".join(options.only)}: no cell has such a name')
    rows = {experiment.name: cell_rows(options.rows, experiment.name) for experiment in experiments}
    keys, missing = set(), {}
    for seed in range(
        max((options.seeds or experiment.seeds for experiment, _ in chosen), default=0)
    ):
        for experiment, cell in chosen:
            if seed < (options.seeds or experiment.seeds):
                run = Run(cell, seed, tuple(command), experiment.name)
                key = (
                    seed,
                    str(sorted((name, str(value)) for name, value in _identity(cell).items())),
                )
                keys.add(key)
                if not run.row(rows[experiment.name].get((cell.row, cell.column), [])):
                    missing.setdefault(key, run)
    return len(keys), list(missing.values())


def _is_chosen(cell, patterns: list) -> bool:
    names = [name.casefold() for name in (f'{cell.row}/{cell.column}', cell.row, cell.column)]
    return not patterns or any(
        fnmatch.fnmatchcase(name, pattern.casefold()) for pattern in patterns for name in names
    )


def _identity(cell) -> dict:
    """What makes a run of the cell differ from others."""
    args, _ = arguments(cell)
    return (
        cell.flags
        if args is None
        else {
            name: value
            for name, value in vars(args).items()
            if name == 'results_path'
            or (affects(args, name) in KEY and name not in ('seed', 'model_config'))
        }
    )


def sweep(argv: list, command: list) -> int:
    """The exit code; `command`: the words that begin each run's command."""
    options, extra = parse_args(argv)
    places, threads = shares(options, extra)
    experiments = list(map(load, options.experiments))
    others = [shlex.split(text) for experiment in experiments for text in experiment.commands]
    count, runs = expand(experiments, options, extra | {'num_threads': str(threads)}, command)
    rows = results_rows(extra.get('base_path', './data/'), extra.get('results_path', 'results/'))
    open_runs = [run for run in runs if run.row(rows) is None]
    refused = {run.cell: line for run in open_runs if (line := arguments(run.cell)[1])}
    ready = [run for run in open_runs if run.cell not in refused]
    if refused and not ready:
        raise InputError(f'main.py refuses all runs: {next(iter(refused.values()))}')
    for cell, line in refused.items():
        print(f'{cell.row}, {cell.column}: main.py refuses it: {line}', file=sys.stderr)
    if options.dry_run:
        for run in ready:
            print(f'OMP_NUM_THREADS={threads} {shlex.join(run.words())}')
        for words in others:
            print(shlex.join([sys.executable, *words]))
        return int(bool(refused))
    if count:
        print(f'{count} runs, {count - len(open_runs)} of them finished', flush=True)
    failed = _run_all(ready, places)
    codes = [subprocess.run([sys.executable, *words], cwd=ROOT).returncode for words in others]
    return int(bool(refused) or failed or any(codes))


def _run_all(runs: list, places: list) -> bool:
    """Make all runs, as many at a time as there are places; whether one failed. `Interrupted` after
    a signal that asks to stop, when the runs at work have ended, too."""
    signals, failed, ended, waiting, working = [], False, 0, list(runs), []
    with on_stop(lambda number, _: signals.append(number)):
        while (waiting or working) and not signals:
            while waiting and places:
                run, gpu = waiting.pop(0), places.pop(0)
                working.append((run, gpu, run.start(gpu), time.monotonic()))
            time.sleep(_TICK)
            for entry in [entry for entry in working if entry[2].poll() is not None]:
                working.remove(entry)
                run, gpu, process, began = entry
                places.append(gpu)
                ended += 1
                title, code = f'[{ended}/{len(runs)}] {run}', process.returncode
                row = None if code else run.row()
                if row:
                    accuracy, took = (
                        float(row[run.cell.metric] or 'nan'),
                        span(time.monotonic() - began),
                    )
                    print(f'{title}: {accuracy:.2f} % in {took}', flush=True)
                else:
                    failed = True
                    said = run.log.read_text(errors='replace').split('\n')
                    last = next(filter(None, reversed(said)), 'it said nothing')
                    print(
                        f'{title}: FAILED, exit code {code}, no row: {last}  ({run.log})',
                        file=sys.stderr,
                    )
        if signals:
            print('ending the runs; they may take a minute to write a checkpoint', file=sys.stderr)
            for _, _, process, _ in working:
                process.terminate()
            for _, _, process, _ in working:
                process.wait()
            raise Interrupted(
                f'stopped: {ended} of {len(runs)} runs were made; the same command resumes the '
                'sweep',
                128 + signals[0],
            )
    return failed


def main() -> int:
    return sweep(sys.argv[1:], [sys.executable, str(ROOT / 'main.py')])
