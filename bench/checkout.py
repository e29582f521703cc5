"""Models of a Mammoth checkout that run here, and our methods compared with its own.

    python scripts/mammoth.py verdicts ~/mammoth --images 100
    python scripts/mammoth.py configs ~/mammoth
    python scripts/mammoth.py compare ~/mammoth --models er --images 960 -- --n_epochs 1
    --buffer_size 200

`verdicts` runs every model and reads every data set of the checkout for a few batches of two tasks.
`configs`
compares the effective values of its configurations with those of its own parser. `compare` runs
methods that both have, here and there in turn; flags behind a second `--` are for ours alone. Rows
go to `--out`: those of
`configs` at its end, others at once, and the same command continues; `scripts/documents.py` makes
the tables
of docs/mammoth.md from them.
"""

import ast
import inspect
import json
import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from bench.certify.store import write_csv
from core.arguments import ArgumentParser, whole
from core.mammoth import use_checkout
from core.plugins import FOLDERS, MAMMOTH, ROOT
from core.rows import read_rows
from scroll.ground.errors import InputError
from scroll.ground.progress import Progress

# what an error says -> the verdict; the first that fits
_REASONS = [
    (r'CUDA|NVIDIA', 'needs CUDA'),
    (r'ModuleNotFoundError|ImportError|[Pp]lease install', 'needs a package'),
    (
        (
            r'URLError|urlopen|HTTPError|huggingface|LocalEntryNotFound|[Dd]ownload|Connection|'
            r'Missing keys|'
            r'No such file|not found|FileNotFound|does not exist|corrupted'
        ),
        'needs weights or data',
    ),
]
# kind -> whether it runs: a few batches of two tasks; the first batch
_TRIED = {'model': 'bench.train(*run)', 'dataset': 'next(iter(run[1].get_data_loaders()[0]))'}
_LAST = re.compile(r'\[Class-IL\]: ([\d.]+) %')
_PATIENCE = 900  # seconds for one model or data set
_SHORT = {
    'buffer_size': '100',
    'minibatch_size': '16',
    'lr': '0.01',
    'batch_size': '16',
    'debug_mode': '1',
    'non_verbose': '1',
    'disable_log': '1',
    'stop_after': '2',
    'device': 'cpu',
    'num_threads': '1',
}
_NOT_COMPARED = {
    'seed',
    'base_path',
    'results_path',
    'checkpoint_path',
    'device',
    'num_workers',
    'model',
    'dataset',
    'validation',
    'minibatch_size',
    'notes',
    'model_config',
}
_THEIR_PARSER = """
import json, sys
sys.path.insert(0, ".")
from main import parse_args
for line in sys.stdin:
    sys.argv = ["main.py", *json.loads(line)]
    try:
        found = {name: repr(value) for name, value in vars(parse_args()).items()}
    except BaseException as error:
        found = f"{type(error).__name__}: {error}"
    print("ARGUMENTS " + json.dumps(found), flush=True)
"""
_MAIN = """
import os, runpy, sys, torch
fewer_images({})
torch.set_num_threads(1)
torch.set_num_threads = lambda count: None
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def fewer_images(count: int) -> None:
    """Let torchvision's CIFAR have the first `count` training images of each class."""
    import numpy as np
    from torchvision.datasets import CIFAR10

    read = CIFAR10.__init__

    def cut(self, *args, **kwargs):
        read(self, *args, **kwargs)
        if self.train and count:
            labels = np.array(self.targets)
            kept = np.concatenate(
                [np.flatnonzero(labels == label)[:count] for label in set(self.targets)]
            )
            self.data = self.data[np.sort(kept)]
            self.targets = labels[np.sort(kept)].tolist()

    CIFAR10.__init__ = cut


def short(model: str, dataset: str, root: str, words: list) -> tuple:
    """(method, data set, arguments) of a run of a few batches, with values for whatever is
    required.
    """
    import bench
    from bench.cli.parsing import parse_args
    from bench.run.building import initialize
    from models import get_model_class

    fixed = {'mammoth': root, 'model': model, 'dataset': dataset}
    required, optional = bench.get_avail_args(**fixed)
    flags = {
        name: '1'
        for name in required | optional
        if name.endswith('_epochs') and name != 'eval_epochs'
    }
    flags |= {name: value for name, value in _SHORT.items() if name in required or name in optional}
    if 'true_labels' in inspect.signature(get_model_class(model).observe).parameters:
        # they fill a buffer of purified samples, some of them in every other pass
        flags |= {'noise_rate': '0.2', 'n_epochs': '3', 'buffer_size': '50'}
    for name, about in required.items():
        flags.setdefault(name, next(iter(about['choices'] or ['1'])))
    line = {name: value for name, value in (fixed | flags).items() if f'--{name}' not in words}
    return initialize(parse_args([*bench.flag_words(**line), *words]))


def verdict_of(kind: str, model: str, dataset: str, args) -> tuple:
    """(verdict, reason) of a method or data set, as `_TRIED` tries it in a process of its own."""
    root = str(args.path)
    words = [*args.place, *args.flags]
    code = (
        f'import sys; sys.path.insert(0, {str(ROOT)!r}); import bench; from '
        'bench.checkout import *; '
        f'fewer_images({args.images}); run = short{(model, dataset, root, words)!r}; {_TRIED[kind]}'
    )
    environment = dict(os.environ, HF_HUB_OFFLINE='1', OMP_NUM_THREADS='1')
    try:
        done = subprocess.run(
            [sys.executable, '-c', code],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return 'fails', f'not done after {_PATIENCE} s'
    if done.returncode == 0:
        return 'runs', ''
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = next(
        (line for line in reversed(lines) if re.match(r'[\w.]+(Error|Exception|Exit)\b', line)),
        lines[-1] if lines else f'exit code {done.returncode}',
    )
    kind = next((name for pattern, name in _REASONS if re.search(pattern, reason)), 'fails')
    return kind, reason.replace(root, 'PATH')[:200]


def verdicts(args) -> None:
    """A row for each model and data set of the checkout."""
    import datasets
    import models  # noqa: F401  registers the folder

    path = args.out / 'verdicts.csv'
    done = {(row['kind'], row['name']) for row in read_rows(path, [])}
    jobs = [
        (kind, name)
        for kind, folder in (('model', FOLDERS['models']), ('dataset', datasets.PLUGINS))
        for name in folder.names()
        if folder.is_theirs(f'{MAMMOTH}{name}')
    ]
    jobs = [job for job in jobs if job not in done and (not args.models or job[1] in args.models)]
    with Progress('Models and data sets', len(jobs)) as progress:
        for kind, name in jobs:
            what = (
                (MAMMOTH + name, args.dataset)
                if kind == 'model'
                else (f'{MAMMOTH}sgd', MAMMOTH + name)
            )
            found = verdict_of(kind, *what, args)
            row = {'kind': kind, 'name': name, 'verdict': found[0], 'reason': found[1]}
            write_csv(path, row, [*read_rows(path, []), row])
            progress.update()


def configurations(root: Path) -> list:
    """Flags of each section of the checkout's files of values: of models, by data set and buffer
    size, and of data sets, with their defaults; a method without settings of its own goes with
    these."""
    import datasets
    from core.configs import read_yaml

    found = []
    for path in sorted((root / 'models' / 'config').glob('*.yaml')):
        for dataset, part in read_yaml(path).items():
            sizes = [size for size, flags in part.items() if isinstance(flags, dict)] or ['default']
            found += [
                {'model': path.stem, 'dataset': dataset, 'model_config': 'best'}
                | ({} if size == 'default' else {'buffer_size': size})
                for size in sizes
                if dataset != 'default'
            ]
    names = [
        name for name in datasets.PLUGINS.names() if datasets.PLUGINS.is_theirs(MAMMOTH + name)
    ]
    for name in names:
        files = sorted((root / 'datasets' / 'configs' / name).glob('*.yaml'))
        found += [
            {'model': 'sgd', 'dataset': name, 'lr': 0.1}
            | ({'dataset_config': config} if config else {})
            for config in [None, *(path.stem for path in files if path.stem != 'default')]
        ]
    return found


def configs(args) -> None:
    """A row for each configuration: which effective values differ."""
    from bench import flag_words
    from bench.cli.parsing import parse_args

    asked = configurations(args.path)
    rows = []
    with Progress("The checkout's own parser"):
        done = subprocess.run(
            [sys.executable, '-c', _THEIR_PARSER],
            cwd=args.path,
            capture_output=True,
            input='\n'.join(json.dumps(flag_words(**flags)) for flags in asked),
            text=True,
            check=False,
            env=dict(os.environ, HF_HUB_OFFLINE='1'),
        )
    theirs = [
        json.loads(line[10:]) for line in done.stdout.splitlines() if line.startswith('ARGUMENTS ')
    ]
    if len(theirs) != len(asked):
        raise InputError(
            f'{args.path}: its own parser ended: {done.stderr.strip().splitlines()[-1:]}'
        )
    for flags, their in Progress('Configurations', len(asked)).over(zip(asked, theirs)):
        named = flags | {name: MAMMOTH + flags[name] for name in ('model', 'dataset')}
        row = {
            name: flags.get(name) for name in ('model', 'dataset', 'buffer_size', 'dataset_config')
        }
        try:
            ours = vars(
                parse_args([*flag_words(mammoth=args.path, **named), *args.place, *args.flags])
            )
        except InputError as error:
            ours = str(error)
        if isinstance(their, str) or isinstance(ours, str):
            row |= {
                'equal': '',
                'difference': (ours if isinstance(ours, str) else f'theirs: {their}')[:200],
            }
        else:
            other = [
                f'{name} {their[name]} / {ours[name]!r}'
                for name in sorted(their.keys() & ours.keys())
                if name not in _NOT_COMPARED and not _same(their[name], ours[name])
            ]
            row |= {'equal': int(not other), 'difference': '; '.join(other)}
        rows.append(row)
    write_csv(args.out / 'configs.csv', dict.fromkeys(name for row in rows for name in row), rows)


def _same(theirs: str, ours) -> bool:
    """Return whether a value, as its `repr`, is ours: numbers as numbers, names however they are
    spelt.
    """
    with suppress(SyntaxError, ValueError):
        theirs = ast.literal_eval(theirs)
    plain = [str(value).replace('_', '-').removeprefix(MAMMOTH) for value in (theirs, ours)]
    return theirs == ours or plain[0] == plain[1]


def compare(args) -> None:
    """A row for each run of a method here and there, in turn."""
    path = args.out / 'compare.csv'
    given = ' '.join([*args.flags, *args.ours])
    others = {row['flags'] for row in read_rows(path, []) if row['model'] in args.models} - {given}
    if others:
        raise InputError(f'{path} has runs with other flags ({min(others)}): give another --out')
    done = {(row['model'], row['seed'], row['where']) for row in read_rows(path, [])}
    jobs = [
        (model, seed, where)
        for seed in range(args.seeds)
        for model in args.models
        for where in ('here', 'there')
        if (model, str(seed), where) not in done
    ]
    code = inspect.getsource(fewer_images) + _MAIN.format(args.images)
    with Progress('Runs', len(jobs)) as progress:
        for model, seed, where in jobs:
            line = [
                '--model',
                model,
                '--seed',
                seed,
                '--non_verbose',
                '1',
                *args.place,
                *args.flags,
            ]
            line += (
                ['--dataset', args.dataset.removeprefix(MAMMOTH)]
                if where == 'there'
                else ['--dataset', args.dataset, '--mammoth', args.path, *args.ours]
            )
            root = ROOT if where == 'here' else args.path
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run(
                [sys.executable, '-c', code, root / 'main.py', *map(str, line)],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = _LAST.findall(run.stdout + run.stderr)
            if run.returncode or not found:
                raise InputError(f'{model} {where}: {run.stderr.strip().splitlines()[-1:]}')
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            row = {
                'model': model,
                'seed': seed,
                'where': where,
                'accuracy': float(found[-1]),
                'flags': given,
                'seconds': round(took, 1),
            }
            write_csv(path, row, [*read_rows(path, []), row])
            progress.update()


def main() -> None:
    parser = ArgumentParser(
        prog='mammoth.py',
        description=__doc__.splitlines()[0],
        epilog='Flags of main.py go behind a `--`.',
    )
    parser.add_argument('action', choices=('verdicts', 'configs', 'compare'))
    parser.add_argument('path', type=Path, help='the checkout')
    parser.add_argument('--dataset', default=f'{MAMMOTH}seq-cifar10', help='what models are run on')
    parser.add_argument('--models', nargs='+', default=[], help='only these; required by `compare`')
    parser.add_argument(
        '--seeds', type=whole(1), default=10, help='runs of a method, here and there each'
    )
    parser.add_argument('--base_path', type=Path, default=Path('data'), help='where the data is')
    parser.add_argument(
        '--images',
        type=whole(0),
        default=0,
        help='training images of a class of CIFAR (default: all)',
    )
    parser.add_argument(
        '--out', type=Path, default=ROOT / 'results' / 'mammoth', help='folder of the rows'
    )
    parts = [list(part) for split, part in groupby(sys.argv[1:], '--'.__eq__) if not split]
    args = parser.parse_args(parts[0] if parts else [])
    args.flags, args.ours = ([*parts[1:], [], []])[:2]
    args.path, base = (
        Path(os.path.expanduser(path)).resolve() for path in (args.path, args.base_path)
    )
    args.place = ['--base_path', f'{base}/']
    use_checkout(args.path)
    if args.action == 'compare' and not args.models:
        raise InputError('compare: --models says which methods')
    {'verdicts': verdicts, 'configs': configs, 'compare': compare}[args.action](args)
