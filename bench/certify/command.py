"""Certify how far a method depends on the schedule: many schedules, digests, accuracies, one
verdict.

    python scripts/certify.py --dataset seq-cifar100 --schedules 1000
    python scripts/certify.py --dataset seq-digits --model er-ace --buffer_size 200 --schedules 20
    python scripts/certify.py --check results/certificates/seq-cifar100.json

Schedules: label order, reversed label order, `--specs`, and random class orders in numbers of tasks
that divide the number of classes. SCROLL's predictor is that of each schedule's own statistics;
another method is trained from scratch on each, with the same flags of main.py, which go behind the
script's own. Finished schedules are kept in `--out`, so the same command resumes a killed
certificate if the code is the same: `certificate-<id>.json`, with a row for each schedule.

`--keep FILE` writes it without the schedules, to be handed on; `--check FILE` makes SCROLL's lines
again on any machine, under three schedules, with `--all 1` under all (docs/certificates.md).

Exit code 0: identical where the method claims it, or no line differs; 1: not so; 2: nothing could
be said.
"""

import hashlib
import json
import shlex
import tempfile
import time
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import flag_words
from bench.certify import measures
from bench.certify.store import Store, keep_rows
from bench.certify.trials import MethodTrials, ScrollTrials
from bench.cli import parsing as cli
from bench.resume.checkpoints import project_digest
from bench.run.building import initialize
from core.arguments import KEY, ArgumentParser, affects, column_of, whole
from core.mammoth import checkout
from core.plugins import normalise
from datasets.utils.scheduled_dataset import ScheduledDataset
from models import PLUGINS, get_model_class
from scroll.embedding.machine import describe_machine
from scroll.ground.archive import check_apart, check_target, sha256
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import little_endian
from scroll.ground.progress import track
from scroll.ground.randomness import numpy_stream
from scroll.streams.schedules import make_schedule

_FORMAT = 'schedule-certificate-1'  # of rows that are kept
_CLOUD = 'model', 'schedule', 'schedule_digest', 'final_accuracy', 'outcome'
_SCHEDULED = 'stream', 'part'  # flags that affect these would cut the stream otherwise
_OF_RUNS = ('record', 'place')
_USED = ('base_path', 'mammoth', 'cache_path_noisy_labels', 'disable_log')
_OWN = 'model', 'dataset', 'schedules', 'specs', 'curve_points', 'stream_check', 'buffers', 'adapt'


class Plan(NamedTuple):
    """A certificate to be made.

    identity: what its rows depend on besides the schedule. args: of main.py. dataset: a
    `ScheduledDataset`. specs: of its schedules. trials: `ScrollTrials` or `MethodTrials`.
    """

    identity: dict
    args: Namespace
    dataset: ScheduledDataset
    specs: list
    trials: Any


def parse_options(words=None) -> tuple[Namespace, list]:
    """(the script's own options, the flags of main.py)."""
    parser = ArgumentParser(prog='certify.py', description=__doc__)
    flag = parser.add_argument
    flag('--dataset')
    flag('--model', type=normalise, default='scroll', help='any method')
    flag('--schedules', type=whole(), default=100, help='random class orders')
    flag(
        '--specs',
        help="further schedules, separated by ';', each sample once "
        "(default: for scroll 'iid;gaussian;blurry')",
    )
    flag(
        '--curve_points',
        type=whole(),
        default=10,
        help='scroll: points of the stream that accuracies are averaged over; 0: one a segment',
    )
    flag(
        '--stream_check',
        type=whole(),
        default=3,
        help='scroll: class orders that are streamed as well',
    )
    flag(
        '--buffers',
        type=whole(),
        default=20,
        help='scroll: first schedules whose buffer is filled; streamed, too',
    )
    flag(
        '--adapt', type=whole(0, 1), default=0, help='1: scroll: make f* where the buffer is filled'
    )
    flag('--check', type=Path, metavar='FILE', help='a certificate whose lines are made again')
    flag('--all', type=whole(0, 1), default=0, help='1, with --check: under all schedules')
    flag('--out', type=Path, help='folder of the certificate')
    flag(
        '--keep',
        type=Path,
        metavar='FILE',
        help='write it without its schedules here, too; for --check',
    )
    flag(
        '--clouds',
        type=Path,
        metavar='FOLDER',
        help='accuracies, into <FOLDER>/<dataset>.csv, for figures',
    )
    flag('--non_verbose', type=whole(0, 1), default=0, help='1: no progress')
    options, flags = parser.parse_known_args(words)
    if (options.dataset is None) == (options.check is None):
        raise InputError('give either --dataset, or --check with the file of a certificate')
    if options.keep:
        check_target(options.keep, '--keep')
        check_apart(options.keep, [*flags, *(word.partition('=')[2] for word in flags)], '--keep')
    if options.clouds:
        check_target(options.clouds, '--clouds', folder=True)
    unused = ['all']
    if options.check:
        unused = sorted({*_OWN, 'out', 'keep', 'clouds'} - {'dataset', 'adapt'})
    for name in unused:
        if getattr(options, name) != parser.get_default(name):
            raise InputError(
                f'--{name} has no effect {"with" if options.check else "without"} --check'
            )
    return options, flags


def of_main(model: str, dataset: str, flags: list) -> list:
    """Words for main.py, whose rows and progress are not wanted."""
    return ['--disable_log', '1', '--model', model, '--dataset', dataset, *flags]


def plan_specs(options, dataset, seed: int) -> list:
    """Specs of all schedules, each once: label order, reversed, `--specs`, then random class
    orders.
    """
    classes = np.unique(dataset.train_labels)
    splits = [n for n in range(2, len(classes) + 1) if len(classes) % n == 0] or [1]
    tasks = dataset.N_TASKS
    named = options.specs
    if named is None:
        named = 'iid;gaussian;blurry' if options.model == 'scroll' else ''

    def in_order(tasks, classes):
        return f'split:{tasks},order={"-".join(map(str, classes.tolist()))}'

    specs = [f'split:{tasks}', in_order(tasks, classes[::-1])]
    for spec in filter(None, map(str.strip, named.split(';'))):
        schedule_of(spec, dataset, seed)
        specs.append(spec)
    generator = numpy_stream(seed, 'certificate')
    specs += [
        in_order(generator.choice(splits), generator.permutation(classes))
        for _ in range(options.schedules)
    ]
    return list(dict.fromkeys(specs))


def schedule_of(spec: str, dataset, seed: int):
    """The schedule; InputError if it does not bring each sample once."""
    with prefixed('--specs'):
        schedule = make_schedule(spec, dataset.train_labels, seed)
    if schedule.covers != 'all':
        what = 'repeats samples' if schedule.covers == 'repeats' else 'leaves out samples'
        raise InputError(
            f'--specs {spec}: it {what}, and nothing can be invariant to that; give schedules '
            'of the whole data set'
        )
    return schedule


def data_digest(dataset) -> str:
    """SHA-256 of the images and labels that are learned and tested."""
    sha = hashlib.sha256()
    for array in (
        dataset.images.train[dataset.train_ids],
        dataset.train_labels,
        dataset.test_images,
        dataset.test_labels,
    ):
        content = little_endian(array)
        sha.update(repr((content.shape, content.dtype.str)).encode())
        sha.update(content)
    return sha.hexdigest()


def digest_of(content) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def prepare(options, words: list) -> Plan:
    """Read the data, build the method and plan its schedules. words: for main.py."""
    words = [*words, '--non_verbose', str(options.non_verbose)]
    args = cli.parse_args(words)
    for flag in sorted(args.given):
        if affects(args, flag) in _SCHEDULED:
            raise InputError(
                f'--{flag}: every schedule is to bring the whole data set, as --schedules '
                'and --specs say; leave the flag out'
            )
        if options.model == 'scroll' and affects(args, flag) in _OF_RUNS and flag not in _USED:
            raise InputError(
                f'--{flag} has no effect: no run of main.py certifies SCROLL; leave it out'
            )
    arguments = {
        flag: value
        for flag, value in vars(args).items()
        if affects(args, flag) not in {*_SCHEDULED, 'place', 'display', 'nothing'}
    }
    model, dataset, args = initialize(args)
    if not isinstance(dataset, ScheduledDataset):
        raise InputError(
            f'--dataset {options.dataset}: only data sets that any schedule can cut can be '
            'certified'
        )
    theirs = PLUGINS.is_theirs(args.model)
    identity = {
        'arguments': arguments,
        'model': f'{checkout().name}:{model.NAME}' if theirs else model.NAME,
        'dataset': dataset.NAME,
        'seed': args.seed,
        'data_digest': data_digest(dataset),
        'psi_digest': model.psi_digest,
        'machine': describe_machine(model.device),
    }
    if dataset.decoded_by:
        identity['decoded_by'] = dataset.decoded_by
    if args.loadcheck:
        identity['loaded'] = sha256(args.loadcheck)
    specs = plan_specs(options, dataset, args.seed)
    if model.NAME == 'scroll':
        trials = ScrollTrials(options, model, dataset, len(specs))
    else:
        trials = MethodTrials(words, model, specs)
    return Plan(identity, args, dataset, specs, trials)


def run_all(plan: Plan, store: Store, quiet: bool) -> list:
    """Rows of all schedules in the order of the plan; those in the store are not run again."""
    rows = {}
    code = project_digest()
    for number, spec in enumerate(track('Schedules', plan.specs, quiet=quiet)):
        schedule = schedule_of(spec, plan.dataset, plan.args.seed)
        digest = schedule.digest()
        key = digest_of([_FORMAT, code, plan.identity, digest, plan.trials.asks(number)])
        row = store.find(key)
        if row is None:
            began = time.perf_counter()
            trial = plan.trials.run(number, spec, schedule)
            row = {
                'spec': spec,
                'schedule_digest': digest,
                **trial.row,
                'seconds': round(time.perf_counter() - began, 3),
            }
            row = store.add(key, row, trial.weights, trial.predictions)
        rows[digest] = row
    return list(rows.values())


def lines_of(plan: Plan, rows: list) -> dict:
    """The parts `anywhere` and `here` of a certificate, from the rows of its schedules."""
    anywhere = {
        'data': plan.identity['data_digest'],
        'backbone': plan.identity['psi_digest'],
        'schedules': f'{digest_of([row["schedule_digest"] for row in rows])} ({len(rows)})',
    }
    travelling, bound = plan.trials.lines(rows)
    return {
        'anywhere': anywhere | travelling,
        'here': {'machine': plan.identity['machine']} | bound,
    }


def certify(options, flags) -> int:
    """Run what is not run yet, judge, write, report; the exit code."""
    began = time.perf_counter()
    plan = prepare(options, of_main(options.model, options.dataset, flags))
    identity, args, dataset, _, trials = plan
    model = identity['model']
    store = Store(options.out or Path(args.base_path) / 'certificates' / dataset.NAME / model)
    rows = run_all(plan, store, options.non_verbose)
    verdict = measures.judge(
        *trials.claims(rows),
        {
            digest: (sum(row['outcome'] == digest for row in rows), *store.outcome(digest))
            for digest in {row['outcome'] for row in rows}
        },
        [row['final_accuracy'] for row in rows],
        [row['average_incremental_accuracy'] for row in rows],
    )
    judged = asdict(verdict)
    if not np.isfinite(verdict.weight_difference):
        judged['weight_difference'] = None
    remarks = []
    if dataset.decoded_by:
        remarks.append(
            f'images decoded by {dataset.decoded_by}: with other versions, pixels and all digests '
            'may differ'
        )
    own = {name: getattr(options, name) for name in _OWN}
    settings = settings_of(args, dataset)
    more = {
        flag: getattr(args, flag)
        for flag in sorted(args.given)
        if affects(args, flag) in KEY and flag not in {*settings, 'model', 'dataset'}
    }
    certificate = {
        'format': measures.FORMAT,
        'id': digest_of([identity, [row['schedule_digest'] for row in rows]]),
        'model': model,
        'dataset': dataset.NAME,
        'command': shlex.join(['python', 'scripts/certify.py', *flag_words(**own), *flags]),
        **lines_of(plan, rows),
        'options': own,
        'flags': flag_words(**more),
        'settings': settings,
        'verdict': {'sentence': verdict.sentence()} | judged,
        'remarks': remarks,
        'finished': time.strftime('%Y-%m-%d %H:%M:%S'),
    }
    path = store.folder / f'certificate-{certificate["id"][:12]}.json'
    measures.write(path, certificate | {'inputs': identity, 'schedules': rows})
    if options.clouds:
        cloud = [row | {'schedule': row['spec']} for row in rows]
        keep_rows(options.clouds / f'{dataset.NAME}.csv', _CLOUD, model, cloud)
    if options.keep:
        measures.write(options.keep, certificate | {'numpy': np.__version__})
    print(
        f'{model} on {dataset.NAME}: {verdict.report()}',
        *remarks,
        f'{time.perf_counter() - began:.1f} s',
        f'certificate: {path}',
        sep='\n  ',
        flush=True,
    )
    return 0 if verdict.identical else 1


def settings_of(args, dataset) -> dict:
    """flag -> value, of what a method's lines depend on besides the data: its own flags, the
    backbone and the seed. Written out, since defaults may change."""
    own = ArgumentParser(add_help=False)
    model = get_model_class(args.model)
    cli.add_model_args(own, model)
    cli.add_missing_flags(own, model)
    names = [flag.dest for flag in own._actions if affects(args, flag.dest) == 'result']
    values = {name: getattr(args, name, None) for name in ('weights', 'seed', *names)}
    return {
        name: value
        for name, value in values.items()
        if name not in dataset.REFUSED_FLAGS and isinstance(value, (str, int, float))
    }


def check(options, flags) -> int:
    """Make the lines of a certificate again; 0 if none differs."""
    certificate = measures.read(options.check)
    if certificate['model'] != 'scroll':
        raise InputError(
            f"{options.check}: a certificate of {certificate['model']}; only SCROLL's hold on "
            'other machines'
        )
    own = {name: value for name, value in certificate['options'].items() if name in _OWN}
    asked, _ = parse_options(flag_words(**own))
    words = of_main(certificate['model'], certificate['dataset'], flags)

    def flag(word):
        return column_of(word[2:].partition('=')[0], ())

    given = set(map(flag, flags))
    more = [*certificate['flags'], *flag_words(**certificate['settings'])]
    taken = True
    for word in more:
        taken = flag(word) not in given if word.startswith('--') else taken
        words += [word] * taken
    unasked = {}
    asked.adapt = int(options.adapt or 'f*' in certificate['anywhere'])
    asked.non_verbose = options.non_verbose
    if not asked.adapt:
        unasked['f*'] = '--adapt 1 makes it'
    if not options.all:
        vars(asked).update(schedules=0, specs='iid', curve_points=1, stream_check=0, buffers=1)
    plan = prepare(asked, words)
    with tempfile.TemporaryDirectory() as folder:
        rows = run_all(plan, Store(Path(folder)), asked.non_verbose)
    if not options.all:
        unasked['schedules'] = f'{len(rows)} were learned; --all 1 learns all'
    lines, same = measures.compare(certificate, lines_of(plan, rows), unasked)
    print(
        f'{options.check}: scroll on {plan.dataset.NAME}',
        f'it says: {certificate["verdict"]["sentence"]}',
        f'made by: {certificate["command"]}',
        f'checked on: {plan.identity["machine"]}',
        *lines,
        sep='\n  ',
        flush=True,
    )
    return 0 if same else 1


def main() -> int:
    options, flags = parse_options()
    return check(options, flags) if options.check else certify(options, flags)
