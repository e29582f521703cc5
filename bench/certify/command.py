"""Certify how far a method depends on the schedule: many schedules of one data set, digests, accuracies, one verdict.

    python scripts/certify.py --dataset seq-cifar100 --schedules 1000
    python scripts/certify.py --dataset seq-digits --model er-ace --buffer_size 200 --schedules 20 --num_threads 1

Label order, reversed label order, `--specs`, and random class orders. SCROLL's predictor is solved from each schedule's own
statistics: class sums where classes arrive whole (`--stream_check` of them are streamed too, and must agree), streamed
otherwise. Any other method is trained from scratch on each schedule, with the same seed and flags; those of main.py go
behind the script's own. Every finished schedule is kept, so the same command continues a killed certificate.

Written to `--out` (default `<base_path>/certificates/<dataset>/<model>`): `certificate-<id>.json`, a row a schedule in
`.csv`, the anytime curves in `.png`. Exit code 0: identical where the method claims it (SCROLL: statistics and f_T always,
buffer and f* where classes arrive whole; other methods: net and predictions); 1: not identical; 2: nothing could be said.
Of a buffer the digest is that of its content at the end of the stream, all that f* is made from (`Exemplars.digest`).
"""
import argparse
import csv
import hashlib
import io
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bench.cli import parsing as cli
from bench.cli.flags import whole
from bench.core.arguments import ArgumentParser, bears, binary_to_boolean_type
from bench.core.plugins import normalise
from bench.core.progress import Progress
from bench.run.building import initialize
from scroll.errors import InputError
from scroll.io.files import atomic_write

_FORMAT = 'schedule-certificate-1'
_REFUSED = {'--schedule', '--n_splits', '--joint', '--custom_task_order', '--start_from', '--stop_after', '--inference_only',
            '--debug_mode', '--label_perc', '--label_perc_by_task', '--lpt', '--label_perc_by_class', '--lpc',
            '--validation_mode'}


def parse_options(words=None) -> tuple:
    """(the script's own options, the words for main.py)."""
    parser = ArgumentParser(prog='certify.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset', required=True)
    flag('--model', default='scroll', help='any method')
    flag('--schedules', type=whole(0), default=100, help='random class orders')
    flag('--splits', help='numbers of tasks drawn from, as 5,10,50 (default: the divisors of the number of classes but 1)')
    flag('--specs', help="further schedules, separated by ';', each sample once (default: for scroll 'iid;gaussian;blurry')")
    flag('--curve_points', type=whole(0), default=10, help='scroll: points of an anytime curve; 0: after each segment')
    flag('--stream_check', type=whole(0), default=3, help='scroll: class orders that are streamed as well')
    flag('--buffers', type=whole(0), default=20, help='scroll: first schedules whose buffer is filled; streamed, too')
    flag('--adapt', type=whole(0, 1), default=0, help='1: scroll: make f* where the buffer is filled; on one job')
    flag('--jobs', type=whole(1), default=1, help='schedules at a time; changes no result')
    flag('--fresh', type=whole(0, 1), default=0, help='1: run schedules again that have been run')
    flag('--out', type=Path, help='folder of the certificate')
    flag('--non_verbose', type=binary_to_boolean_type, default=False, help='no progress; that of single runs is never shown')
    options, flags = parser.parse_known_args(words)
    for word in flags:
        if word.split('=')[0] in _REFUSED:
            raise InputError(f"{word.split('=')[0]}: every schedule is to bring the whole data set, as --schedules, --splits and "
                            '--specs say; leave the flag out')
    flags += [] if '--disable_log' in {word.split('=')[0] for word in flags} else ['--disable_log', '1']   # its rows are its own
    return options, ['--non_verbose', '1','--model', options.model, '--dataset', options.dataset, *flags]


def plan_specs(options, dataset, seed: int) -> list:
    """Specs of all schedules, each once: label order, reversed, `--specs`, then random class orders."""
    from scroll.randomness import numpy_stream
    classes = np.unique(dataset.train_labels)
    splits = [n for n in range(2, len(classes) + 1) if len(classes) % n == 0] or [1]
    if options.splits is not None:
        try:
            splits = [whole(1, len(classes))(word) for word in options.splits.split(',')]
        except argparse.ArgumentTypeError as error:
            raise InputError(f'--splits {options.splits}: {error}; give numbers of tasks, 1..{len(classes)}, as 5,10') from None
    by_default = 'iid;gaussian;blurry' if normalise(options.model) == 'scroll' else ''
    named = (by_default if options.specs is None else options.specs).split(';')
    tasks, random = dataset.N_TASKS, numpy_stream(seed, 'certificate')
    specs = [f'split:{tasks}', f'split:{tasks},order={_joined(classes[::-1])}', *(s.strip() for s in named if s.strip())]
    for spec in specs[2:]:
        schedule_of(spec, dataset, seed)
    specs += [f'split:{random.choice(splits)},order={_joined(random.permutation(classes))}' for _ in range(options.schedules)]
    return list(dict.fromkeys(specs))


def _joined(classes) -> str:
    return '-'.join(map(str, classes.tolist()))


def schedule_of(spec: str, dataset, seed: int):
    """The schedule; InputError if it does not bring each sample once."""
    from scroll.errors import InputError
    from scroll.schedules import make_schedule
    try:
        schedule = make_schedule(spec, dataset.train_labels, seed)
    except InputError as error:
        raise InputError(f'--specs: {error}') from error
    if schedule.covers != 'all':
        what = 'repeats samples' if schedule.covers == 'repeats' else 'leaves out samples'
        raise InputError(f'--specs {spec}: it {what}, and nothing can be invariant to that; give schedules of the whole data set')
    return schedule


class Store:
    """What has been run: a line of JSON a schedule in `runs.jsonl`; weights and predictions in files named by their digest, one
    for each that differs (of a network, 4 bytes a weight; `outcomes/` may be deleted, and the schedules are then run again).
    """

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / 'runs.jsonl'
        try:
            (folder / 'outcomes').mkdir(parents=True, exist_ok=True)
            with open(self.path, 'a+b') as file:
                if file.tell() and (file.seek(-1, os.SEEK_END), file.read())[1] != b'\n':
                    file.write(b'\n')           # a run was killed while it wrote its last line
        except OSError as error:
            raise InputError(f'{folder} cannot be written ({error.strerror}): choose another --out') from error
        self.rows = {}
        for line in self.path.read_text().splitlines():
            try:
                kept = json.loads(line)
                self.rows[kept['key']] = kept['row']
            except (ValueError, KeyError, TypeError):
                continue

    def find(self, key: str):
        """The row of a schedule that has been run, or None."""
        row = self.rows.get(key)
        return row if row is not None and self.outcome(row['outcome']) is not None else None

    def add(self, key: str, row: dict, weights, predictions) -> dict:
        """Keep a row, its weights (P,) and its predictions (N,); returns the row with the digest of these."""
        digest = hashlib.sha256(weights.tobytes() + b'/' + predictions.tobytes()).hexdigest()
        path = self.folder / 'outcomes' / f'{digest[:32]}.npz'
        if self.outcome(digest) is None:
            with atomic_write(path) as file:
                np.savez(file, weights=weights, predictions=predictions)
        row = {**row, 'outcome': digest}
        with open(self.path, 'a') as file:
            file.write(json.dumps(dict(key=key, row=row)) + '\n')
        self.rows[key] = row
        return row

    def outcome(self, digest: str):
        """(weights, predictions), or None if the file is gone or damaged."""
        try:
            with np.load(self.folder / 'outcomes' / f'{digest[:32]}.npz', allow_pickle=False) as file:
                weights, predictions = file['weights'], file['predictions']
        except Exception:       # damaged archives raise almost anything
            return None
        sound = hashlib.sha256(weights.tobytes() + b'/' + predictions.tobytes()).hexdigest() == digest
        return (weights, predictions) if sound else None


def data_digest(dataset) -> str:
    """SHA-256 of the images and labels that are learned and tested."""
    sha = hashlib.sha256()
    for array in (dataset.images.train[dataset.train_ids], dataset.train_labels, dataset.test_images, dataset.test_labels):
        sha.update(repr((array.shape, array.dtype.str)).encode())
        sha.update(np.ascontiguousarray(array))
    return sha.hexdigest()


def make_trials(options, words, model, dataset, specs):
    """What runs a schedule for this method."""
    if model.NAME == 'scroll':
        from bench.certify.trials import ScrollTrials
        return ScrollTrials(options, model, dataset, specs)
    from bench.certify.trials import MethodTrials
    return MethodTrials(options, words, model, dataset, specs)


def run_all(trials, specs, dataset, args, identity: dict, store: Store, options) -> tuple:
    """(rows of all schedules in the order of `specs`, how many of them had been run before)."""
    known = 0

    def run(numbered):
        nonlocal known
        number, spec = numbered
        schedule = schedule_of(spec, dataset, args.seed)
        about = dict(spec=spec, schedule_digest=schedule.digest(), segments=len(schedule.cuts) - 1)
        key = _digest([_FORMAT, identity, about['schedule_digest'], trials.asks(number)])
        row = None if options.fresh else store.find(key)
        if row is not None:
            known += 1
            return row
        began = time.perf_counter()
        row, weights, predictions = trials.run(number, spec, schedule)
        return store.add(key, about | row | dict(seconds=round(time.perf_counter() - began, 3)), weights, predictions)

    jobs = 1 if options.adapt else options.jobs
    pool = ThreadPoolExecutor(jobs) if jobs > 1 else None
    try:
        mapped = pool.map(run, enumerate(specs)) if pool else map(run, enumerate(specs))
        rows = list(Progress('Schedules', len(specs), quiet=options.non_verbose).over(mapped))
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)
        trials.close()
    return list({row['schedule_digest']: row for row in rows}.values()), known


def _digest(content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def write(folder: Path, certificate: dict, rows: list) -> Path:
    """The certificate as JSON, its rows as CSV, their curves as PNG; returns the path of the first."""
    from bench.results import plots
    path = folder / f"certificate-{certificate['id'][:12]}.json"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval='')
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows)
    with atomic_write(path.with_suffix('.csv')) as file:
        file.write(text.getvalue().encode())
    plots.anytime_curves(path.with_suffix('.png'), [row['curve'] for row in rows],
                         f"{certificate['inputs']['model']} on {certificate['inputs']['dataset']}, {len(rows)} schedules")
    with atomic_write(path) as file:
        file.write(json.dumps(certificate, indent=1).encode())
    return path


def report(certificate: dict, verdict, path: Path, known: int, seconds: float) -> None:
    """The verdict, in lines."""
    final, incremental = verdict.final, verdict.incremental
    print(f"{certificate['inputs']['model']} on {certificate['inputs']['dataset']}: {verdict.sentence()}")
    print('  digests: ' + ', '.join(f'{count} of {name}' for name, count in verdict.distinct.items() if count))
    print(f'  final accuracy {final.mean:.2f} +- {final.deviation:.2f} %, worst {final.worst:.2f}, CVaR 10 % {final.cvar10:.2f}, '
          f'range {final.range:.2f}, (mean - worst) / mean {100 * final.relative_loss:.2f} %')
    print(f'  average incremental accuracy {incremental.mean:.2f} +- {incremental.deviation:.2f} %, '
          f'worst {incremental.worst:.2f}')
    print(f'  largest weight difference {verdict.weight_difference:.3g}, disagreement {verdict.disagreement:.2f} %, '
          f'AOPD {verdict.aopd:.2f}, MOPD {verdict.mopd:.2f} (classes)')
    for line in certificate['remarks']:
        print(f'  {line}')
    print(f'  {seconds:.1f} s, {known} schedules had been run before\n  certificate: {path}', flush=True)


def certify(options, words) -> int:
    """Run what is not run yet, judge, write, report; the exit code."""
    began = time.perf_counter()
    with Progress(f'Preparing {options.model} on {options.dataset}', quiet=options.non_verbose):
        from bench.certify.trials import about_machine
        from datasets.utils.scheduled_dataset import ScheduledDataset
        from scroll.certify.robustness import judge
        from scroll.embedding.embedder import state_digest
        args = cli.parse_args(words)
        identity = dict(arguments={k: v for k, v in vars(args).items() if k not in ('schedule', 'n_splits')
                                   and bears(args, k) not in ('place', 'display')})
        model, dataset, args = initialize(args)
        if not isinstance(dataset, ScheduledDataset):
            raise InputError(f'--dataset {options.dataset}: only data sets that any schedule can cut can be certified')
        identity |= dict(model=model.NAME, dataset=dataset.NAME, seed=args.seed, data_digest=data_digest(dataset),
                         psi_digest=state_digest(model.net), machine=about_machine())
        specs = plan_specs(options, dataset, args.seed)
        store = Store(options.out or Path(args.base_path) / 'certificates' / dataset.NAME / model.NAME)
        trials = make_trials(options, words, model, dataset, specs)
    rows, known = run_all(trials, specs, dataset, args, identity, store, options)
    digests, claimed = trials.claims(rows)
    outcomes = {d: (sum(row['outcome'] == d for row in rows), *store.outcome(d)) for d in {row['outcome'] for row in rows}}
    verdict = judge(digests, claimed, outcomes, trials.labels, *([row[name] for row in rows] for name in (
        'final_accuracy', 'average_incremental_accuracy')))
    judged = {**vars(verdict), 'final': verdict.final._asdict(), 'incremental': verdict.incremental._asdict(),
              'weight_difference': verdict.weight_difference if np.isfinite(verdict.weight_difference) else None}
    number = _digest([identity, [row['schedule_digest'] for row in rows]])
    certificate = dict(format=_FORMAT, id=number, command=sys.argv, finished=time.strftime('%Y-%m-%d %H:%M:%S'),
                       inputs=identity, verdict=judged, remarks=trials.remarks(rows), schedules=rows)
    path = write(store.folder, certificate, rows)
    report(certificate, verdict, path, known, time.perf_counter() - began)
    return 0 if verdict.identical else 1


def main():
    try:
        return certify(*parse_options())
    except KeyboardInterrupt:
        print('interrupted: the schedules that were finished are kept, and the same command goes on from there', file=sys.stderr)
        return 130
