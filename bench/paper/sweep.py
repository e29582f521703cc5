"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once.

    python scripts/sweep.py experiments/table_1_cifar.yaml --seeds 3 --extra -- --weights compact --device cpu

Runs that have their row among the results are skipped, so the same command goes on after whatever ended it:
runs that a killed sweep (kill -9) has left behind are taken over, and a lock for each run keeps two sweeps
from making it at the same time. Seeds come before cells: a sweep that is stopped has whole tables of the
first seeds. What a run prints is in `<base_path>/sweeps/<experiment>/<row>-<column>-s<seed>.log`. Exit code 1
if a run failed, 2 for a command that cannot be.

--engine slurm submits a job array through submitit instead. Partition, account, GPUs are the business of the
variables that sbatch reads (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_GRES); --num_threads among the flags of
each run are its CPUs.
"""
import fnmatch
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from bench.paper.experiments import load
from bench.paper.runs import Run, base_path, key
from core.arguments import KEY, ArgumentParser, affects, real, whole
from core.commands import run_command
from core.plugins import ROOT
from scroll.errors import InputError

_NOT_OF_A_SWEEP = dict(seed='--seeds says which',
                       disable_log='a run without a row would be made again and again')


def parse_args(argv: list):
    """(options, extra flags: name -> value)."""
    cut = argv.index('--extra') if '--extra' in argv else len(argv)
    parser = ArgumentParser(prog='sweep.py', description=__doc__.split('\n\n')[0],
                            epilog='\n\n'.join(__doc__.strip().split('\n\n')[1:]))
    parser.add_argument('experiments', nargs='+', metavar='experiments/<name>.yaml')
    parser.add_argument('--seeds', type=whole(1),
                        help='seeds 0, 1, ... of each cell (default: as many as the file says)')
    parser.add_argument('--only', metavar='ROW/COLUMN', action='append',
                        help='cells with such names (* and ? stand for others; without a slash, rows or '
                             'columns); repeatable')
    parser.add_argument('--engine', choices=('local', 'slurm'), default='local', help='where to run')
    parser.add_argument('--jobs', type=whole(1),
                        help='runs at a time (default: cores / threads of a run; '
                             'with --gpus, what they take)')
    parser.add_argument('--gpus', help='local GPUs to use, joined by commas')
    parser.add_argument('--per_gpu', type=whole(1), help='runs that share a GPU (default: 1)')
    parser.add_argument('--timeout', type=real(positive=True), metavar='MIN',
                        help='end a run that takes longer (slurm: a day)')
    parser.add_argument('--dry_run', action='store_true',
                        help='print the commands that would be run, and run nothing')
    parser.add_argument('--extra', action='store_true',
                        help='what follows, after --, are flags for every run')
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
    said, capacity = extra.get('num_threads'), len(options.gpus) * (options.per_gpu or 1)
    if said is not None and (not said.isdecimal() or int(said) < 1):
        raise InputError(f'--extra: --num_threads {said}: expected a whole number of at least 1')
    threads = said and int(said)
    if capacity and options.jobs and options.jobs > capacity:
        raise InputError(f'--jobs {options.jobs}: the GPUs have a capacity of {capacity} runs; '
                         'raise --per_gpu, or leave --jobs out')
    if options.engine == 'slurm':
        return options.jobs or 256, threads or 1
    jobs = options.jobs or capacity or max(1, cores // (threads or 1))
    return jobs, threads or max(1, cores // jobs)


def expand(options, extra: dict, threads: int, command: list) -> tuple:
    """All distinct runs, seeds outermost; and what `main.py` says of cells that it refuses: run -> line."""
    experiments = [load(path) for path in options.experiments]
    chosen = [(experiment, replace(cell, flags=cell.flags | extra)) for experiment in experiments
              for cell in experiment.cells
              if _is_meant(cell, options.only)]
    for experiment in experiments:
        if not experiment.cells:
            print(f'{experiment.name}: no runs of main.py; its file says by which commands it is made',
                  file=sys.stderr)
    if not chosen:
        raise InputError(f"--only {' '.join(options.only)}: no cell has such a name" if options.only else
                         f"{' '.join(options.experiments)}: no runs are to be made")
    understood = [_arguments(cell) for _, cell in chosen]
    runs, refused, logs = {}, {}, set()
    for seed in range(max(options.seeds or experiment.seeds for experiment, _ in chosen)):
        for (experiment, cell), (arguments, line) in zip(chosen, understood):
            name = key(arguments, seed)
            if name in runs or seed >= (options.seeds or experiment.seeds):
                continue
            log = _log(experiment, cell, seed)
            log = log.with_stem(f'{log.stem}-{name[:6]}') if log in logs else log
            logs.add(log)
            runs[name] = Run(cell, seed, name, tuple(command), threads, log)
            if line:
                refused[runs[name]] = line
    return list(runs.values()), refused


def _is_meant(cell, patterns: list) -> bool:
    names = [f'{cell.row}/{cell.column}', cell.row, cell.column]
    return not patterns or any(fnmatch.fnmatchcase(name.casefold(), pattern.casefold())
                               for pattern in patterns
                               for name in names)


def _arguments(cell) -> tuple:
    """(what makes a run of the cell differ from others, why `main.py` refuses it or None)."""
    from bench.cli import parsing as cli
    try:
        args = cli.parse_args(cell.command(0)[1:])
    except InputError as error:
        return cell.flags, ' '.join(str(error).split())
    return {name: value for name, value in vars(args).items() if name == 'results_path'
            or affects(args, name) in KEY and name not in ('seed', 'model_config')}, None


def _log(experiment, cell, seed: int) -> Path:
    row, column = (re.sub(r'[^\w.+=-]+', '_', name).strip('_') for name in (cell.row, cell.column))
    return base_path(cell.flags) / 'sweeps' / experiment.name / f'{row}-{column}-s{seed}.log'


def printed(run: Run) -> str:
    """A line for bash."""
    return f'OMP_NUM_THREADS={run.threads} {shlex.join(run.words())}'


def say(line: str) -> None:
    print(line, flush=True)


def sweep(argv: list, command: list) -> int:
    """The exit code; `command`: the words that begin each run's command."""
    options, extra = parse_args(argv)
    jobs, threads = shares(options, extra)
    runs, refused = expand(options, extra, threads, command)
    rows = runs[0].all_rows()
    open_runs = [run for run in runs if run.row(rows) is None]
    refused = {run: line for run, line in refused.items() if run in open_runs}
    for run, line in refused.items():
        print(f'{run}: main.py refuses it: {line}', file=sys.stderr)
    if refused and len(refused) == len(open_runs):
        raise InputError(f'no run can be made: {next(iter(refused.values()))}')
    if options.dry_run:
        print('\n'.join(map(printed, open_runs)), end='\n' * bool(open_runs))
        return int(bool(refused))
    ready = [run for run in open_runs if run not in refused]
    say(f"{len(runs)} runs, {len(runs) - len(open_runs)} of them finished"
        + (f', {len(refused)} refused' if refused else ''))
    work = _submit if options.engine == 'slurm' else _run_here
    return work(ready, jobs, options, rows, list(refused.items())) if ready else 0


def _run_here(runs: list, jobs: int, options, rows: list, failed: list) -> int:
    from bench.paper.engines import Local
    engine = Local(runs, jobs, options.gpus, options.timeout, rows, say)
    engine.work()
    failed = failed + engine.failed
    for run, why in failed:
        print(f'failed: {run}: {why}  ({run.log})', file=sys.stderr)
    if engine.stopped:
        print(f'stopped by {engine.stopped.name}: {engine.done - len(engine.failed)} of {len(runs)} runs '
              f'were made, {len(engine.running)} were ended before they had finished; the same command goes '
              'on from here', file=sys.stderr)
        return 128 + engine.stopped
    return int(bool(failed))


def _submit(runs: list, jobs: int, options, rows: list, failed: list) -> int:
    from bench.paper.engines import check_slurm, queued, slurm_folder, submit
    check_slurm()
    waiting = queued(runs)
    runs = [run for run in runs if run not in waiting]
    if waiting:
        say(f'{len(waiting)} of them are in the queue already')
    if runs:
        ids = ','.join(dict.fromkeys(job.job_id.split('_')[0] for job in submit(runs, jobs, options.timeout)))
        say(f'{len(runs)} runs submitted as job {ids} (squeue -j {ids}); what they say is in '
            f'{runs[0].log.parent}, what SLURM says in {slurm_folder(runs[0])}. The same command, given '
            'again, submits those that ended without a row')
    return int(bool(failed))


def main(argv: list = None, command: list = None) -> int:
    """`sweep` for the command line: 0, 1 if a run failed, 2 after one line on what the user can mend."""
    argv = sys.argv[1:] if argv is None else argv
    return run_command(lambda: sweep(argv, command or [_here(sys.executable), _here(ROOT / 'main.py')]))


def _here(path) -> str:
    """As short as it can be said in this folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith('..') else relative
