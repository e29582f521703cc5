"""Where the runs of a sweep go: side by side on this machine, or as a job array to SLURM."""
import importlib.util
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bench.paper.runs import Lock, Run, end
from core.commands import on_stop
from core.plugins import ROOT
from core.progress import span
from scroll.errors import InputError

_TICK = 0.2                         # seconds between looks at the runs
_DAY = 24 * 60                      # minutes
_LARGEST_ARRAY = 1000               # SLURM's MaxArraySize is 1001, unless it is configured


@dataclass
class Running:
    """A run that goes on. process: None if a sweep that is no more has started it: then its lock says when it
    ends. began: by `time.monotonic`, which nobody sets back.
    """
    run: Run
    pid: int
    gpu: str
    began: float
    process: subprocess.Popen = None
    timed_out: bool = False

    def alive(self) -> bool:
        return not Lock(self.run).is_free() if self.process is None else self.process.poll() is None


class Local:
    """Runs side by side on this machine; it takes over those that a killed sweep left behind.

    jobs: runs at a time. gpus: names for CUDA_VISIBLE_DEVICES, shared out evenly. timeout: minutes a run may
    take, or None. rows: those of the results files, for the time that runs of each kind take. say: prints a
    line.

    After `work`: failed: (run, why) pairs; stopped: the signal that ended it, or None.
    """

    def __init__(self, runs: list, jobs: int, gpus: list = (), timeout: float = None,
                 rows: list = (), say=print):
        self.waiting, self.running, self.failed, self.stopped = list(runs), [], [], None
        self.jobs, self.gpus, self.timeout, self.say = jobs, list(gpus), timeout, say
        self.total, self.done, self.told = len(self.waiting), 0, set()
        self.seconds = Seconds(rows)

    def work(self) -> None:
        """Until every run has ended, or a SIGINT or SIGTERM that is not ignored."""
        before = on_stop(self._stop)
        try:
            self._adopt()
            while (self.waiting or self.running) and not self.stopped:
                self._fill()
                time.sleep(_TICK)
                for one in [one for one in self.running if not one.alive()]:
                    self._ended(one)
                self._end_overdue()
        finally:
            if self.running:
                self.say(f'ending {len(self.running)} runs; they may take a minute to write a checkpoint')
            end({one.pid: one.alive for one in self.running if one.pid})
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number, _) -> None:
        self.stopped = signal.Signals(number)

    def _adopt(self) -> None:
        """Take over what a sweep of this machine that no longer lives has started, whatever `jobs` says."""
        for run in list(self.waiting):
            if not Lock(run).is_free():
                self._take_over(run)

    def _take_over(self, run: Run) -> bool:
        about = Lock(run).read()
        if about.get('host') != socket.gethostname() or _lives(about['sweep']):
            return False
        self.waiting.remove(run)
        began = time.monotonic() - max(0, time.time() - about['began'])
        self.running.append(Running(run, about['run'], about['gpu'], began))
        self.say(f'{run}: was left behind by a sweep that ended, and goes on (process {about["run"]})')
        return True

    def _fill(self) -> None:
        """Start as many as may run at a time; a run that another sweep makes is asked for again, at last."""
        for run in list(self.waiting):
            if len(self.running) >= self.jobs or self.stopped:
                return
            gpu = min(self.gpus, key=lambda gpu: sum(one.gpu == gpu for one in self.running), default=None)
            process = run.start(gpu)
            if process is not None:
                self.waiting.remove(run)
                self.running.append(Running(run, process.pid, gpu, time.monotonic(), process))
            elif self._take_over(run):
                continue
            elif Lock(run).is_free() and run.row():
                self.waiting.remove(run)
                self._told(run, 'is finished by now')
            elif run not in self.told:
                self.told.add(run)
                self.say(f'{run}: is being made by another sweep')

    def _end_overdue(self) -> None:
        for one in self.running:
            if (self.timeout and not one.timed_out and one.pid
                    and time.monotonic() > one.began + 60 * self.timeout):
                one.timed_out = True
                end({one.pid: one.alive})

    def _ended(self, one: Running) -> None:
        self.running.remove(one)
        took = time.monotonic() - one.began
        why = one.run.failure(one.process.returncode if one.process else 0)
        if why and one.timed_out:
            why = f'took longer than {self.timeout:g} minutes: {one.run.last_line()}'
        if why:
            self.failed.append((one.run, why))
            self._told(one.run, f'FAILED after {span(took)}, {why}')
        else:
            self.seconds.add(one.run, took)
            self._told(one.run, f'{float(one.run.row()[one.run.cell.metric] or "nan"):.2f} % in {span(took)}')

    def _told(self, run: Run, what: str) -> None:
        self.done += 1
        running = [(one.run, time.monotonic() - one.began) for one in self.running]
        left = self.seconds.left(self.waiting, running, self.jobs)
        self.say(f'[{self.done}/{self.total}] {run}: {what}'
                 + (f'; {left}' if self.done < self.total else ''))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


class Seconds:
    """How long runs of each kind (model, data set) take: as in this sweep, or as the results files say."""

    def __init__(self, rows: list = ()):
        self.here, self.before = {}, {}
        for row in rows:
            if row.get('seconds_total'):
                self.before.setdefault((row['model'], row['dataset']), []).append(float(row['seconds_total']))

    def add(self, run: Run, seconds: float) -> None:
        self.here.setdefault(run.kind, []).append(seconds)

    def of(self, run: Run):
        """Seconds, or None where no such run has finished."""
        known = self.here.get(run.kind) or self.before.get(run.kind)
        return statistics.mean(known) if known else None

    def left(self, waiting: list, running: list, jobs: int) -> str:
        """In words. running: (run, seconds so far) pairs; when one that takes longer than its kind does will
        end is not known.
        """
        times = [self.of(run) for run in waiting]
        times += [self.of(run) and self.of(run) - so_far for run, so_far in running]
        known = [seconds for seconds in times if seconds is not None and seconds > 0]
        if not known:
            return 'time left unknown'
        left = max(sum(known) / jobs, max(known), 1)
        return f"{'about' if len(known) == len(times) else 'at least'} {span(left)} left"


class Job:
    """A run as submitit calls it on a node; when it is preempted, it ends its process and is queued again."""

    def __init__(self, run: Run):
        self.run, self.process = run, None

    def __call__(self) -> None:
        self.process = self.run.start()
        if self.process is None:
            print(f'{self.run}: is finished, or being made: {Lock(self.run).read()}')
            return
        why = self.run.failure(self.process.wait())
        if why:
            raise RuntimeError(f'{self.run}: {why}')

    def checkpoint(self):
        from submitit.helpers import DelayedSubmission
        # a signal has interrupted its `wait`, so that only the lock can be asked
        if self.process is not None:
            end({self.process.pid: lambda: not Lock(self.run).is_free()})
        return DelayedSubmission(Job(self.run))


def check_slurm() -> None:
    """InputError where runs cannot be submitted."""
    if importlib.util.find_spec('submitit') is None:
        raise InputError('--engine slurm needs the package submitit: pip install submitit')
    for command in ('sbatch', 'squeue'):
        if shutil.which(command) is None:
            raise InputError(f'--engine slurm: there is no {command} here; run this where jobs are submitted')


def submit(runs: list, jobs: int, timeout: float = None, cluster: str = 'slurm') -> list:
    """Submit runs as job arrays with at most `jobs` at a time; returns submitit's jobs in their order.

    Partition, account, GPUs and so on are left to the variables that sbatch reads (SBATCH_PARTITION,
    SBATCH_GRES, ...). A run that takes longer than `timeout` minutes (a day) is ended; one that is preempted
    is queued again.
    """
    import submitit
    folder = slurm_folder(runs[0])
    folder.mkdir(parents=True, exist_ok=True)
    executor = submitit.AutoExecutor(folder / '%j', cluster=cluster, slurm_max_num_timeout=0)
    setup = [f'export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}']
    executor.update_parameters(timeout_min=max(1, round(timeout or _DAY)), slurm_array_parallelism=jobs,
                               slurm_cpus_per_task=runs[0].threads, slurm_job_name='sweep',
                               slurm_setup=setup)
    submitted = []
    for first in range(0, len(runs), _LARGEST_ARRAY):
        submitted += executor.submit_array([Job(run) for run in runs[first:first + _LARGEST_ARRAY]])
    for run, job in zip(runs, submitted):
        _submitted_as(run).write_text(job.job_id)
    return submitted


def queued(runs: list) -> list:
    """Those of the runs that wait or run as jobs already."""
    jobs = subprocess.run(['squeue', '--noheader', '--array', '--format=%i'], capture_output=True, text=True)
    if jobs.returncode:
        raise InputError(f'--engine slurm: squeue: {jobs.stderr.strip() or "no answer"}')
    jobs = set(jobs.stdout.split())
    return [run for run in runs if _submitted_as(run).is_file() and _submitted_as(run).read_text() in jobs]


def slurm_folder(run: Run) -> Path:
    """Where submitit's files are, and for each run the job that it was last submitted as."""
    return run.base_path.resolve() / 'sweeps' / 'slurm'


def _submitted_as(run: Run) -> Path:
    return slurm_folder(run) / run.key
