#!/usr/bin/env python3
"""Models of a Mammoth checkout that run here, and our methods compared with its own.

    python scripts/mammoth.py verdicts ~/mammoth --images 100
    python scripts/mammoth.py forks ~/forks --images 100
    python scripts/mammoth.py compare ~/mammoth --models er --images 960 -- --n_epochs 1

`verdicts` runs every model and reads every data set of the checkout for a few batches of two tasks.
`forks` does the same for the models of a list of repositories (`--list`), in a folder of checkouts.
`compare` runs methods that both have, here and there in turn. Flags of main.py go behind a `--`,
those for ours alone behind a second one. Rows go to `--out` at once, and the same command resumes;
`scripts/documents.py` makes the tables of docs/mammoth.md.
"""

if __name__ == '__main__':
    import _root

    _root.run('scripts.mammoth')

import inspect
import re
import resource
import subprocess
import sys
from argparse import Namespace
from itertools import groupby
from pathlib import Path

import bench
import datasets
import models
from bench.cli.parsing import parse_args
from core.arguments import ArgumentParser, whole
from core.configs import read_yaml
from core.mammoth import use_checkout
from core.plugins import MAMMOTH, ROOT
from core.rows import append_row, read_rows
from scroll.ground.errors import InputError
from scroll.ground.progress import track

SECONDS = 900  # for one model or data set
# what an error says -> the verdict; the first that fits
REASONS = {
    r'CUDA|NVIDIA': 'needs CUDA',
    r'ModuleNotFoundError|ImportError|[Pp]lease install': 'needs a package',
    r'URLError|urlopen|HTTPError|huggingface|LocalEntryNotFound|[Dd]ownload|Connection|Missing keys'
    r'|No such file|not found|FileNotFound|does not exist|corrupted|see error above': (
        'needs weights or data'
    ),
}
FEW_BATCHES = {
    'buffer_size': 100,
    'minibatch_size': 16,
    'lr': 0.01,
    'batch_size': 16,
    'debug_mode': 1,
    'non_verbose': 1,
    'disable_log': 1,
    'stop_after': 2,
    'device': 'cpu',
}
THEIR_MAIN = """
import os, runpy, sys, torch
fewer_images({})
torch.set_num_threads(1)
torch.set_num_threads = lambda count: None
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def fewer_images(count: int, test: bool = False) -> None:
    """Let torchvision's CIFAR have the first `count` training images of each class, or test images,
    too; 0: all."""
    import numpy as np
    from torchvision.datasets import CIFAR10

    read = CIFAR10.__init__

    def read_few(self, *args, **kwargs):
        read(self, *args, **kwargs)
        if count and (self.train or test):
            labels = np.array(self.targets)
            first = [np.flatnonzero(labels == label)[:count] for label in set(self.targets)]
            ids = np.sort(np.concatenate(first))
            self.data = self.data[ids]
            self.targets = labels[ids].tolist()

    CIFAR10.__init__ = read_few


def try_out(kind: str, model: str, dataset: str, root: str, images: int, words: list) -> None:
    """Run a model for a few batches, or read the first batch of a data set, with values for
    whatever is required.
    """
    fewer_images(images, test=True)
    flags = {'mammoth': root, 'model': model, 'dataset': dataset}
    given = {word.lstrip('-').partition('=')[0] for word in words}
    required, optional = bench.get_avail_args(**flags)
    available = required | optional
    for name in available:
        if name.endswith('_epochs') and name != 'eval_epochs':
            flags[name] = 1
    flags |= {name: value for name, value in FEW_BATCHES.items() if name in available}
    if 'true_labels' in inspect.signature(models.get_model_class(model).observe).parameters:
        # they fill a buffer of purified samples, some of them in every other pass
        flags |= {'noise_rate': 0.2, 'n_epochs': 3, 'buffer_size': 50}
    for name, about in required.items():
        flags.setdefault(name, (about['choices'] or [1])[0])
    flags = {name: value for name, value in flags.items() if name not in given}
    from bench.run.building import initialize

    run = initialize(parse_args([*bench.flag_words(**flags), *words]))
    if kind == 'model':
        bench.train(*run)
    else:
        next(iter(run[1].get_data_loaders()[0]))


def verdict_of(kind: str, model: str, dataset: str, args) -> tuple[str, str]:
    """(verdict, reason) of a method or data set, from `try_out` in a process of its own."""
    root = str(args.path)
    words = [*args.place, *args.flags]
    code = (
        'import os, sys; os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1"); '
        f'sys.path.insert(0, {str(ROOT)!r}); from scripts.mammoth import try_out; '
        f'try_out{(kind, model, dataset, root, args.images, words)!r}'
    )
    try:
        done = python(['-c', code], timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 'fails', f'not done after {SECONDS} s'
    if done.returncode == 0:
        return 'runs', ''
    lines = list(filter(str.strip, done.stderr.splitlines()))
    errors = [line for line in lines if re.match(r'[\w.]+(Error|Exception|Exit)\b', line)]
    reason = [f'exit code {done.returncode}', *lines[-1:], *errors[-1:]][-1]
    verdicts = [verdict for pattern, verdict in REASONS.items() if re.search(pattern, reason)]
    reason = reason.removeprefix('scroll.ground.errors.InputError: ').replace(f' of {root}', '')
    return [*verdicts, 'fails'][0], reason.replace(root, 'PATH')[:200]


def python(words: list, **options) -> subprocess.CompletedProcess:
    """A Python process, with what it printed."""
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False, **options
    )


def verdicts(args) -> None:
    """A row for each model and data set of the checkout."""
    jobs = []
    for kind, plugins in (('model', models.PLUGINS), ('dataset', datasets.PLUGINS)):
        for name in plugins.names():
            if name in (args.models or [name]) and plugins.is_theirs(MAMMOTH + name):
                pair = f'{MAMMOTH}sgd', MAMMOTH + name
                if kind == 'model':
                    pair = MAMMOTH + name, args.dataset
                jobs.append((kind, name, kind, *pair, args))
    judge(args.out / 'verdicts.csv', jobs)


def forks(args) -> None:
    """A row for each model of a list of repositories, which are cloned where they are missing."""
    jobs = []
    for repository, about in read_yaml(args.list).items():
        root = args.path / repository.replace('/', '+')
        if not root.is_dir():
            source = f'https://github.com/{repository}'
            git('clone', '-q', source, root)
        git('-C', root, 'checkout', '-q', about['commit'])
        common = [] if 'dataset' in about else args.flags  # its data set may bring a network
        for model, flags in about['models'].items():
            own = Namespace(**vars(args) | {'path': root, 'flags': common + (flags or '').split()})
            job = ('model', MAMMOTH + model, about.get('dataset', args.dataset), own)
            jobs.append((about['part'], f'{repository} {model}', *job))
    judge(args.out / 'forks.csv', jobs)


def git(*words) -> None:
    """Run git, which prints what goes wrong."""
    if subprocess.run(['git', *words], check=False).returncode:
        raise InputError(f'git {" ".join(map(str, words))} fails')


def judge(path: Path, jobs: list) -> None:
    """Append a row for each (kind, name, *what `verdict_of` takes) that has none."""
    done = {(row['kind'], row['name']) for row in read_rows(path)}
    jobs = [job for job in jobs if job[:2] not in done]
    for kind, name, *trial in track('Models and data sets', jobs):
        verdict, reason = verdict_of(*trial)
        row = {'kind': kind, 'name': name, 'verdict': verdict, 'reason': reason}
        append_row(path.parent, row, path.name)


def compare(args) -> None:
    """A row for each run of a method here and there, in turn."""
    if not args.models:
        raise InputError('compare: --models says which methods')
    path = args.out / 'compare.csv'
    flags = ' '.join([*args.flags, *args.ours])
    before = [row for row in read_rows(path) if row['model'] in args.models]
    others = {row['flags'] for row in before} - {flags}
    if others:
        raise InputError(f'{path} has runs with other flags ({min(others)}): give another --out')
    done = {(row['model'], row['seed'], row['where']) for row in before}
    jobs = [
        (model, seed, where)
        for seed in range(args.seeds)
        for model in args.models
        for where in ('here', 'there')
        if (model, str(seed), where) not in done
    ]
    places = {
        'here': (ROOT, ['--dataset', args.dataset, '--mammoth', args.path, *args.ours]),
        'there': (args.path, ['--dataset', args.dataset.removeprefix(MAMMOTH)]),
    }
    code = inspect.getsource(fewer_images) + THEIR_MAIN.format(args.images)
    for model, seed, where in track('Runs', jobs):
        root, more = places[where]
        words = bench.flag_words(model=model, seed=seed, non_verbose=1)
        before = processor_time()
        run = python(
            ['-c', code, root / 'main.py', *words, *args.place, *args.flags, *more], cwd=root
        )
        accuracies = re.findall(r'\[Class-IL\]: ([\d.]+) %', run.stdout + run.stderr)
        if run.returncode or not accuracies:
            raise InputError(f'{model} {where}: {run.stderr.strip().splitlines()[-1:]}')
        append_row(
            args.out,
            {
                'model': model,
                'seed': seed,
                'where': where,
                'accuracy': float(accuracies[-1]),
                'flags': flags,
                'seconds': round(processor_time() - before, 1),
            },
            'compare.csv',
        )


def processor_time() -> float:
    """Seconds of processor time of all processes that have ended."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def main() -> None:
    actions = {action.__name__: action for action in (verdicts, forks, compare)}
    parser = ArgumentParser(prog='mammoth.py', description=__doc__)
    flag = parser.add_argument
    flag('action', choices=list(actions))
    flag('path', type=Path, help='the checkout; of `forks` the folder of checkouts')
    flag('--dataset', default=f'{MAMMOTH}seq-cifar10', help='what models are run on')
    flag('--models', nargs='+', default=[], help='only these; required by `compare`')
    flag('--seeds', type=whole(1), default=10, help='runs of a method, here and there each')
    flag('--base_path', type=Path, default=Path('data'), help='where the data is')
    flag('--images', type=whole(), default=0, help='training images of a class (default: all)')
    flag('--list', type=Path, default=ROOT / 'scripts' / 'forks.yaml', help='of `forks`')
    flag('--out', type=Path, default=ROOT / 'results' / 'mammoth', help='folder of the rows')
    parts = [list(part) for split, part in groupby(sys.argv[1:], '--'.__eq__) if not split]
    own, *others = [*parts, [], [], []]
    args = parser.parse_args(own)
    args.flags, args.ours, *_ = others
    args.path = args.path.expanduser().resolve()
    args.place = ['--base_path', f'{args.base_path.expanduser().resolve()}/']
    if args.action != 'forks':
        use_checkout(args.path)
    actions[args.action](args)
