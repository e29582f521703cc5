"""What of a Mammoth checkout runs here, and how our methods compare with its own.

    python scripts/mammoth.py verdicts ~/mammoth --base_path data
    python scripts/mammoth.py configs ~/mammoth
    python scripts/mammoth.py compare ~/mammoth --models er derpp --seeds 10 -- --n_epochs 1 --buffer_size 200

`verdicts` runs every model and reads every data set of the checkout, each in a process of its own, for a few
batches (`--debug_mode`) of two tasks. `configs` compares the effective values of each of its configurations
(model, data set, buffer size) with those of its own parser. `compare` runs methods that both have, here and
there in turn, under several seeds. Each writes rows to `--out`, results/mammoth, at once: the same command
goes on where it stopped; `scripts/documents.py` makes the tables of docs/mammoth.md of them.
"""
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from core.arguments import ArgumentParser, whole
from core.mammoth import use_checkout
from core.plugins import FOLDERS, MAMMOTH, ROOT
from core.progress import Progress
from core.rows import read_rows
from scroll.archive import atomic_write
from scroll.errors import InputError

# what an error says -> the verdict; the first that fits
_REASONS = [
    (r'CUDA|NVIDIA', 'needs CUDA'),
    (r'ModuleNotFoundError|ImportError|[Pp]lease install', 'needs a package'),
    (r'URLError|urlopen|HTTPError|huggingface|LocalEntryNotFound|[Dd]ownload|Connection|Missing keys',
     'needs weights or data'),
    (r'No such file|not found|FileNotFound|does not exist|corrupted', 'needs weights or data')]
_LAST = re.compile(r'\[Class-IL\]: ([\d.]+) %')
_SHORT = dict(buffer_size='100', minibatch_size='16', lr='0.01', n_epochs='1', batch_size='16',
              debug_mode='1', non_verbose='1', disable_log='1', stop_after='2', noise_rate='0.2',
              device='cpu', num_threads='1')
_NOT_COMPARED = {'seed', 'base_path', 'results_path', 'checkpoint_path', 'device', 'num_workers', 'model',
                 'dataset', 'validation', 'minibatch_size', 'notes'}
_THEIR_PARSER = '''
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
'''


def run_short(model: str, dataset: str, root: str, words: list) -> None:
    """A run of a few batches, with values for whatever the method requires; raises what goes wrong."""
    import bench
    given = {word[2:] for word in words if word.startswith('--')}
    fixed = dict(mammoth=root, model=model, dataset=dataset)
    required, optional = bench.get_avail_args(**fixed)
    flags = {name: value for name, value in _SHORT.items() if name in required or name in optional}
    for name, about in required.items():
        flags.setdefault(name, next(iter(about['choices'] or ['1'])))
    flags = {name: value for name, value in flags.items() if name not in given}
    from bench.cli.parsing import parse_args
    from bench.run.building import initialize
    line = [word for name, value in (fixed | flags).items() for word in (f'--{name}', str(value))]
    method, data, args = initialize(parse_args([*line, *words]))
    bench.train(method, data, args)


def read_only(model: str, dataset: str, root: str, words: list) -> None:
    """Build a data set and take its first batch."""
    import bench
    line = dict(zip([word[2:] for word in words[::2]], words[1::2]))
    _, data = bench.load_runner(model, dataset, dict(_SHORT, mammoth=root, n_epochs=1) | line)
    next(iter(data.get_data_loaders()[0]))


def verdict_of(action: str, model: str, dataset: str, root, words: list, seconds: int) -> tuple:
    """(verdict, reason): what `run_short` or `read_only` does in a process of its own."""
    code = (f'import sys; sys.path.insert(0, {str(ROOT)!r}); from bench.checkout import {action}; '
            f'{action}({model!r}, {dataset!r}, {str(root)!r}, {list(words)!r})')
    environment = dict(os.environ, HF_HUB_OFFLINE='1', OMP_NUM_THREADS='1')
    try:
        done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=seconds,
                              env=environment)
    except subprocess.TimeoutExpired:
        return 'fails', f'not done after {seconds} s'
    if done.returncode == 0:
        return 'runs', ''
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if re.match(r'[\w.]+(Error|Exception|Exit)\b', line)),
                  lines[-1] if lines else f'exit code {done.returncode}')
    kind = next((name for pattern, name in _REASONS if re.search(pattern, reason)), 'fails')
    return kind, reason.replace(str(root), 'PATH')[:200]


def verdicts(args) -> None:
    """A row for each model and data set of the checkout."""
    import datasets
    import models  # noqa: F401
    done = {(row['kind'], row['name']) for row in _rows(args.out / 'verdicts.csv')}
    jobs = [(kind, name) for kind, folder in (('model', FOLDERS['models']), ('dataset', datasets.PLUGINS))
            for name in folder.names() if folder.is_theirs(f'{MAMMOTH}{name}')]
    jobs = [job for job in jobs if job not in done and (not args.models or job[1] in args.models)]
    with Progress('Models and data sets', len(jobs)) as progress:
        for kind, name in jobs:
            what = (('run_short', MAMMOTH + name, args.dataset) if kind == 'model' else
                    ('read_only', f'{MAMMOTH}sgd', MAMMOTH + name))
            found = verdict_of(*what, args.path, args.flags, args.seconds)
            _append(args.out / 'verdicts.csv', dict(kind=kind, name=name, verdict=found[0], reason=found[1]))
            progress.update()


def configurations(root: Path) -> list:
    """(model, data set, buffer size or None) of the checkout's files of values."""
    from core.configs import read_yaml
    found = []
    for path in sorted((root / 'models' / 'config').glob('*.yaml')):
        for dataset, part in read_yaml(path).items():
            sizes = [size for size, flags in part.items() if isinstance(flags, dict)] or [None]
            found += [(path.stem, dataset, None if size == 'default' else size) for size in sizes
                      if dataset != 'default']
    return found


def configs(args) -> None:
    """A row for each configuration: which effective values differ."""
    (args.out / 'configs.csv').unlink(missing_ok=True)
    from bench.cli.parsing import parse_args
    asked = configurations(args.path)
    lines = [['--model', model, '--dataset', dataset, '--model_config', 'best',
              *(['--buffer_size', str(size)] if size is not None else [])] for model, dataset, size in asked]
    done = subprocess.run([sys.executable, '-c', _THEIR_PARSER], input='\n'.join(map(json.dumps, lines)),
                          cwd=args.path, capture_output=True, text=True,
                          env=dict(os.environ, HF_HUB_OFFLINE='1'))
    theirs = [json.loads(line[10:]) for line in done.stdout.splitlines() if line.startswith('ARGUMENTS ')]
    if len(theirs) != len(lines):
        raise InputError(f'{args.path}: its own parser ended: {done.stderr.strip().splitlines()[-1:]}')
    for (model, dataset, size), line, their in zip(asked, lines, theirs):
        line = [MAMMOTH + word if before in ('--model', '--dataset') else word
                for before, word in zip(['', *line], line)]
        try:
            ours = vars(parse_args(['--mammoth', str(args.path), *line, *args.flags]))
        except InputError as error:
            ours = str(error)
        row = dict(model=model, dataset=dataset, buffer_size=size)
        if isinstance(their, str) or isinstance(ours, str):
            said = f'theirs: {their}' if isinstance(their, str) else ours
            row |= dict(equal='', difference=said[:200])
        else:
            other = [f'{name} {their[name]} / {ours[name]!r}' for name in sorted(their.keys() & ours.keys())
                     if name not in _NOT_COMPARED and not _same(their[name], ours[name])]
            row |= dict(equal=int(not other), difference='; '.join(other))
        _append(args.out / 'configs.csv', row)


def _same(theirs: str, ours) -> bool:
    """Whether a value, as its `repr`, is ours: numbers as numbers, names however they are spelt."""
    try:
        return float(theirs) == float(ours)
    except (TypeError, ValueError):
        plain = [str(value).strip('\'"').replace('_', '-').removeprefix(MAMMOTH) for value in (theirs, ours)]
        return plain[0] == plain[1]


def compare(args) -> None:
    """A row for each run of a method here and there, in turn; prints what they say of the method."""
    done = {(row['model'], row['seed'], row['where']) for row in _rows(args.out / 'compare.csv')}
    jobs = [(model, seed, where) for model in args.models for seed in range(args.seeds)
            for where in ('here', 'there') if (model, str(seed), where) not in done]
    with Progress('Runs', len(jobs)) as progress:
        for model, seed, where in jobs:
            line = ['--model', model, '--seed', str(seed), '--non_verbose', '1', *args.flags]
            if where == 'there':
                line = ['main.py', *line, '--dataset', args.dataset.removeprefix(MAMMOTH)]
            else:
                line = [ROOT / 'main.py', '--mammoth', args.path, *line, '--dataset', args.dataset]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = subprocess.run([sys.executable, *map(str, line)], capture_output=True, text=True,
                                 cwd=args.path if where == 'there' else None)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = _LAST.findall(run.stdout + run.stderr)
            if run.returncode or not found:
                last = [text for text in run.stderr.splitlines() if text.strip()][-1:] or ['']
                raise InputError(f'{model} {where}: {last[0]}')
            _append(args.out / 'compare.csv', dict(
                model=model, seed=seed, where=where, accuracy=float(found[-1]), flags=' '.join(args.flags),
                seconds=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)))
            progress.update()
    for model in args.models:
        print(side_by_side(model, _rows(args.out / 'compare.csv')))


def side_by_side(model: str, rows: list) -> str:
    """A line on a method: means and deviations here and there, their difference with its 95 % interval
    (Welch), and the ratio of processor times."""
    from scipy import stats
    ours, theirs = ([(float(row['accuracy']), float(row['seconds'])) for row in rows
                     if row['model'] == model and row['where'] == where] for where in ('here', 'there'))
    (a, s), (b, t) = (np.array(values).T for values in (ours, theirs))
    interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    return (f'{model}: {a.mean():.1f} +- {a.std(ddof=1):.1f} here, '
            f'{b.mean():.1f} +- {b.std(ddof=1):.1f} there, '
            f'difference {a.mean() - b.mean():+.1f} ({interval.low:+.1f} to {interval.high:+.1f}), '
            f'{np.median(s) / np.median(t):.2f} of its processor time')


def _rows(path: Path) -> list:
    return read_rows(path) if path.exists() else []


def _append(path: Path, row: dict) -> None:
    import pandas
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(pandas.DataFrame([*_rows(path), row]).to_csv(index=False).encode())


def main() -> None:
    parser = ArgumentParser(prog='mammoth.py', description=__doc__.splitlines()[0],
                            epilog='Flags of main.py go behind a `--`.')
    parser.add_argument('action', choices=('verdicts', 'configs', 'compare'))
    parser.add_argument('path', type=Path, help='the checkout')
    parser.add_argument('--dataset', default=f'{MAMMOTH}seq-cifar10', help='what models are run on')
    parser.add_argument('--models', nargs='+', default=[], help='only these; required by `compare`')
    parser.add_argument('--seeds', type=whole(1), default=10, help='runs of a method, here and there each')
    parser.add_argument('--seconds', type=whole(1), default=300, help='patience with one model or data set')
    parser.add_argument('--out', type=Path, default=ROOT / 'results' / 'mammoth', help='folder of the rows')
    words = [*sys.argv[1:], '--']
    at = words.index('--')
    args = parser.parse_args(words[:at])
    args.flags = words[at + 1:-1]
    args.path = args.path.expanduser().resolve()
    use_checkout(args.path)
    if args.action == 'compare' and not args.models:
        raise InputError('compare: --models says which methods')
    dict(verdicts=verdicts, configs=configs, compare=compare)[args.action](args)
