"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once.

    python scripts/sweep.py experiments/table_1_cifar.yaml --seeds 3 --extra -- --weights compact --device cpu

Runs that have their row among the results are skipped, so the same command resumes a sweep whatever ended it.
A run holds a lock while it lives, so that two sweeps never make it at the same time, and a sweep waits for
runs that a killed one (kill -9) has left behind. Seeds come before cells: a sweep that is stopped has whole
tables of the first seeds. What a run prints is in `<base_path>/sweeps/<experiment>/*.log`. Exit code 1 if a
run failed, 2 for invalid commands.

--engine slurm submits a job array through submitit instead. Partition, account, GPUs are the business of the
variables that sbatch reads (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_GRES); --num_threads among the flags of
each run are its CPUs.
"""
import contextlib
import fcntl
import fnmatch
import functools
import hashlib
import importlib.util
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from bench.paper.experiments import Cell, load, results_rows
from bench.paper.matching import arguments, matching_rows, refusal
from core.arguments import KEY, ArgumentParser, affects, real, whole
from core.commands import on_stop, run_command
from core.plugins import ROOT
from core.progress import span
from scroll.errors import InputError

_TICK = 0.1                         # seconds between two looks at a run
_GRACE = 60                         # seconds a run has to write its checkpoint
_DAY = 24 * 60                      # minutes
_LARGEST_ARRAY = 1000               # SLURM's MaxArraySize is 1001, unless it is configured
_NOT_OF_A_SWEEP = dict(seed='--seeds says which',
                       disable_log='a run without a row would be made again and again')


@dataclass(frozen=True)
class Run:
    """A cell with a seed.

    cell: with the flags that the sweep adds. key: equal for runs with equal arguments. command: words before
    the flags. threads: of the CPU. log: file that takes what the run prints.
    """
    cell: Cell
    seed: int
    key: str
    command: tuple
    threads: int
    log: Path

    def __str__(self):
        return f'{self.cell.row}, {self.cell.column}, seed {self.seed}'

    @property
    def folder(self) -> Path:
        """Of logs, locks and submissions."""
        return Path(self.cell.flags.get('base_path', './data/')) / 'sweeps'

    def words(self) -> list:
        """The whole command."""
        threads = {} if 'num_threads' in self.cell.flags else dict(num_threads=self.threads)
        return [*self.command, *self.cell.command(self.seed, threads)[1:]]

    def all_rows(self) -> list:
        """Of the results files where the run's row will be."""
        return results_rows(self.folder.parent, self.cell.flags.get('results_path', 'results/'))

    def row(self, rows: list = None):
        """The row of a finished run with these arguments, or None. rows: where to look, not in the files."""
        rows = self.all_rows() if rows is None else rows
        mine = [row for row in rows if row.get('seed') == str(self.seed)]
        return next(iter(matching_rows(self.cell, mine)), None)

    def last_line(self) -> str:
        """What the run printed last."""
        lines = self.log.read_text(errors='replace').splitlines() if self.log.is_file() else []
        line = next((line.strip() for line in reversed(lines) if line.strip()), '$')
        return 'it printed nothing' if line.startswith('$') else line


class Job:
    """Makes a run in a process of its own, here or on a node of a cluster. gpu: for CUDA_VISIBLE_DEVICES.
    minutes: it may take."""

    def __init__(self, run: Run, gpu: str = None, minutes: float = None):
        self.run, self.gpu, self.minutes, self.process, self.stopped = run, gpu, minutes, None, False

    def __call__(self) -> None:
        """Return when there is a row; RuntimeError: there is none.

        The process inherits the lock, so it is free again when the run has ended, whatever ended the sweep.
        """
        run = self.run
        path = run.folder / 'locks' / run.key
        try:
            for folder in (path.parent, run.log.parent):
                folder.mkdir(parents=True, exist_ok=True)
            file = open(path, 'ab')                                                         # noqa: SIM115
        except OSError as error:
            raise RuntimeError(f'cannot be started ({error.strerror}: {error.filename})') from error
        with file as lock:
            if self._lock(lock) and not run.row():              # looked at under the lock
                self._run(lock)

    def _lock(self, lock) -> bool:
        """Take the lock as soon as it is free; False if the sweep is stopped before."""
        told = False
        while not self.stopped:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if not told:
                say(f'{self.run}: is being made by a process of another sweep')
            told = True
            time.sleep(_TICK)
        return False

    def _run(self, lock) -> None:
        run = self.run
        variables = dict(OMP_NUM_THREADS=str(run.threads), PYTHONUNBUFFERED='1')
        variables |= {} if self.gpu is None else dict(CUDA_VISIBLE_DEVICES=self.gpu)
        with open(run.log, 'ab') as log:                        # what earlier tries said stays
            log.write(f'$ {shlex.join(run.words())}\n'.encode())
            log.flush()
            self.process = subprocess.Popen(
                run.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **variables}, pass_fds=(lock.fileno(),))
        if self.stopped:                                        # while it was started
            self.stop()
        try:
            code = self.process.wait(self.minutes and 60 * self.minutes)
        except subprocess.TimeoutExpired:
            self.stop()
            raise RuntimeError(f'took longer than {self.minutes:g} minutes: {run.last_line()}') from None
        if code:
            why = f'ended by {signal.Signals(-code).name}' if code < 0 else f'exit code {code}'
            raise RuntimeError(f'{why}: {run.last_line()}')
        if not run.row():
            raise RuntimeError(f'left no row among the results: {run.last_line()}')

    def stop(self, grace: float = _GRACE) -> None:
        """End the process; by force, with its group, if it has not ended after `grace` seconds."""
        self.stopped = True
        for end, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
            until = time.monotonic() + grace
            if self.process is not None and _lives(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    end(self.process.pid, number)
            while self.process is not None and _lives(self.process.pid) and time.monotonic() < until:
                time.sleep(_TICK)

    def checkpoint(self):
        """For submitit: a run that is preempted is queued again."""
        from submitit.helpers import DelayedSubmission
        self.stop()
        return DelayedSubmission(Job(self.run))


def _lives(pid: int) -> bool:
    """Whether a child is at work, whoever waits for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def parse_args(argv: list):
    """(options, extra flags: name -> value)."""
    cut = argv.index('--extra') if '--extra' in argv else len(argv)
    parser = ArgumentParser(prog='sweep.py', description=__doc__.split('\n\n')[0],
                            epilog='\n\n'.join(__doc__.strip().split('\n\n')[1:]))
    flag = parser.add_argument
    flag('experiments', nargs='+', metavar='experiments/<name>.yaml')
    flag('--seeds', type=whole(1), help='seeds 0, 1, ... of each cell (default: as many as the file says)')
    flag('--only', metavar='ROW/COLUMN', action='append',
         help='cells with such names (wildcards * and ?; without a slash, rows or columns); repeatable')
    flag('--engine', choices=('local', 'slurm'), default='local', help='where to run')
    flag('--jobs', type=whole(1),
         help='runs at a time (default: cores / threads of a run; with --gpus, what they take)')
    flag('--gpus', help='local GPUs to use, joined by commas')
    flag('--per_gpu', type=whole(1), help='runs that share a GPU (default: 1)')
    flag('--timeout', type=real(positive=True), metavar='MIN',
         help='end a run that takes longer (slurm: a day)')
    flag('--dry_run', action='store_true', help='print the commands that would be run, and run nothing')
    flag('--extra', action='store_true', help='what follows, after --, are flags for every run')
    options = parser.parse_args(argv[:cut])
    extra = _flags([word for word in argv[cut + 1:] if word != '--'])
    if options.per_gpu and not options.gpus:
        raise InputError('--per_gpu says how many runs share a GPU: give --gpus, too')
    if options.gpus and options.engine == 'slurm':
        raise InputError('--gpus names GPUs of this machine; with --engine slurm, SBATCH_GRES=gpu:1 gives '
                         'each run one')
    options.gpus = [gpu.strip() for gpu in options.gpus.split(',')] if options.gpus else []
    return options, extra


def _flags(words: list) -> dict:
    """['--lr', '.1', '--bn=frozen'] -> {'lr': '.1', 'bn': 'frozen'}."""
    words, flags = [part for word in words
                    for part in (word.split('=', 1) if word.startswith('--') else [word])], {}
    for name, value in zip(words[::2], [*words[1::2], '--']):
        if not name.startswith('--') or value.startswith('--'):
            raise InputError(f'--extra: {name}: expected flags with one value each, as in --extra -- '
                             '--weights compact')
        if name[2:] in _NOT_OF_A_SWEEP:
            raise InputError(f'--extra: {name} is not for a sweep: {_NOT_OF_A_SWEEP[name[2:]]}')
        if name[2:] in flags:
            raise InputError(f'--extra: {name} is given more than once: give it once')
        flags[name[2:]] = value
    return flags


def shares(options, extra: dict) -> tuple:
    """(runs at a time, CPU threads of each): together all cores, where both are not given."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    given, capacity = extra.get('num_threads'), len(options.gpus) * (options.per_gpu or 1)
    if given is not None and (not given.isdecimal() or int(given) < 1):
        raise InputError(f'--extra: --num_threads {given}: expected a whole number of at least 1')
    threads = given and int(given)
    if capacity and options.jobs and options.jobs > capacity:
        raise InputError(f'--jobs {options.jobs}: the GPUs have a capacity of {capacity} runs; '
                         'raise --per_gpu, or leave --jobs out')
    if options.engine == 'slurm':
        return options.jobs or 256, threads or 1
    jobs = options.jobs or capacity or max(1, cores // (threads or 1))
    return jobs, threads or max(1, cores // jobs)


def expand(options, extra: dict, threads: int, command: list) -> list:
    """All distinct runs, seeds outermost."""
    experiments = [load(path) for path in options.experiments]
    chosen = [(experiment, replace(cell, flags=cell.flags | extra)) for experiment in experiments
              for cell in experiment.cells if _is_chosen(cell, options.only)]
    for experiment in experiments:
        if not experiment.cells:
            print(f'{experiment.name}: no runs of main.py; its file says by which commands it is made',
                  file=sys.stderr)
    if not chosen:
        raise InputError(f"--only {' '.join(options.only)}: no cell has such a name" if options.only else
                         f"{' '.join(options.experiments)}: no runs are to be made")
    runs, logs = {}, set()
    for seed in range(max(options.seeds or experiment.seeds for experiment, _ in chosen)):
        for experiment, cell in chosen:
            text = json.dumps(sorted((name, str(value)) for name, value in _identity(cell).items()))
            key = hashlib.sha256(f'{seed} {text}'.encode()).hexdigest()[:24]
            if key in runs or seed >= (options.seeds or experiment.seeds):
                continue
            row, column = (re.sub(r'[^\w.+=-]+', '_', name).strip('_') for name in (cell.row, cell.column))
            run = Run(cell, seed, key, tuple(command), threads, Path())
            log = run.folder / experiment.name / f'{row}-{column}-s{seed}.log'
            log = log.with_stem(f'{log.stem}-{key[:6]}') if log in logs else log
            logs.add(log)
            runs[key] = replace(run, log=log)
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


say = functools.partial(print, flush=True)


def sweep(argv: list, command: list) -> int:
    """The exit code; `command`: the words that begin each run's command."""
    options, extra = parse_args(argv)
    jobs, threads = shares(options, extra)
    runs = expand(options, extra, threads, command)
    rows = runs[0].all_rows()
    open_runs = [run for run in runs if run.row(rows) is None]
    refused = [(run, line) for run in open_runs if (line := refusal(run.cell))]
    for run, line in refused:
        print(f'{run}: main.py refuses it: {line}', file=sys.stderr)
    if refused and len(refused) == len(open_runs):
        raise InputError(f'no run can be made: {refused[0][1]}')
    if options.dry_run:
        for run in open_runs:
            say(f'OMP_NUM_THREADS={run.threads} {shlex.join(run.words())}')
        return int(bool(refused))
    ready = [run for run in open_runs if not refusal(run.cell)]
    say(f"{len(runs)} runs, {len(runs) - len(open_runs)} of them finished"
        + (f', {len(refused)} refused' if refused else ''))
    work = _submit if options.engine == 'slurm' else _run_here
    return work(ready, jobs, options, refused) if ready else 0


def _run_here(runs: list, jobs: int, options, failed: list) -> int:
    """All runs on this machine, `jobs` at a time, until they have ended or a signal asks to stop."""
    gpus, active, made, stop, lock = queue.SimpleQueue(), set(), [], [], threading.Lock()
    for gpu in (options.gpus or [None]) * (options.per_gpu or 1 if options.gpus else jobs):
        gpus.put(gpu)

    def work(run):
        job, began = Job(run, gpus.get(), options.timeout), time.monotonic()
        active.add(job)
        try:
            if not stop:
                job()
            why = ''
        except RuntimeError as error:
            why = str(error)
        active.discard(job)
        gpus.put(job.gpu)
        if stop:
            return
        took = span(time.monotonic() - began)
        with lock:
            made.append(run)
            if why:
                failed.append((run, why))
            result = f'FAILED after {took}, {why}' if why else \
                f'{float(run.row()[run.cell.metric] or "nan"):.2f} % in {took}'
            say(f'[{len(made)}/{len(runs)}] {run}: {result}')

    before = on_stop(lambda number, _: stop.append(signal.Signals(number)))
    count = len(failed)
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, run) for run in runs]
        while wait(futures, _TICK).not_done and not stop:
            pass
        ended = [job for job in list(active) if stop]
        if ended:
            say(f'ending {len(ended)} runs; they may take a minute to write a checkpoint')
        list(ThreadPoolExecutor(len(ended) or 1).map(Job.stop, ended))
    for number, handler in before.items():
        signal.signal(number, handler)
    for future in futures:
        future.result()
    for run, why in failed:
        print(f'failed: {run}: {why}  ({run.log})', file=sys.stderr)
    if stop:
        print(f'stopped by {stop[0].name}: {len(made) - len(failed) + count} of {len(runs)} runs were made, '
              f'{len(ended)} were ended before they had finished; the same command resumes the sweep',
              file=sys.stderr)
        return 128 + stop[0]
    return int(bool(failed))


def _submit(runs: list, jobs: int, options, failed: list) -> int:
    """All runs as job arrays of submitit, `jobs` at a time; one that is preempted is queued again."""
    if importlib.util.find_spec('submitit') is None:
        raise InputError('--engine slurm needs the package submitit: pip install submitit')
    if shutil.which('sbatch') is None:
        raise InputError('--engine slurm: no sbatch here; run this where jobs are submitted')
    submitted = submit(runs, jobs, options.timeout)
    ids = ','.join(dict.fromkeys(job.job_id.split('_')[0] for job in submitted))
    say(f'{len(runs)} runs submitted as job {ids} (squeue -j {ids}); what they print is in '
        f'{runs[0].log.parent}, what SLURM says in {runs[0].folder / "slurm"}. When they have ended, the '
        'same command submits again those without a row')
    return int(bool(failed))


def submit(runs: list, jobs: int, timeout: float = None, cluster: str = 'slurm') -> list:
    """submitit's jobs, in the order of the runs. timeout: minutes a run may take (a day)."""
    import submitit
    folder = runs[0].folder.resolve() / 'slurm'
    executor = submitit.AutoExecutor(folder / '%j', cluster=cluster, slurm_max_num_timeout=0)
    setup = [f'export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}']
    executor.update_parameters(timeout_min=max(1, round(timeout or _DAY)), slurm_array_parallelism=jobs,
                               slurm_cpus_per_task=runs[0].threads, slurm_job_name='sweep',
                               slurm_setup=setup)
    return [job for first in range(0, len(runs), _LARGEST_ARRAY)
            for job in executor.submit_array([Job(run) for run in runs[first:first + _LARGEST_ARRAY]])]


def main(argv: list = None, command: list = None) -> int:
    """`sweep` for the command line: 0, 1 if a run failed, 2 after one line on what the user can mend."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command(lambda: sweep(argv, command or [
        min(str(path), os.path.relpath(path), key=len) for path in (sys.executable, ROOT / 'main.py')]))
