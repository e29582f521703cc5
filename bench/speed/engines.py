"""One digest from every engine, and what it costs: `docs/engines.md` is made of these rows.

    python scripts/engines.py                                   # whatever has no row yet
    python scripts/engines.py --what speed --again 1            # the table of speed, made anew

Two streams, as Parquet files below `<base_path>/engines`: the features of CIFAR-100 (compact backbone, its
50,000 training images, 20 files), and a synthetic one of `--rows` x 256 in 80 files, 8-bit integers made from
a seed file by file, which are put on the grid as they are read, so that no more of it than a block is ever in
memory. `digests`: the same files counted in one process, under torchrun with 3, by Ray, Spark and Dask with 3
workers, by each of these when a worker is killed in the middle, and in eight shares that are merged as files.
`speed`: each engine with 1 to 4 workers on the first 16 files of the synthetic stream.

Every way runs in a process of its own. Workers say for themselves what they use: processor time from a file
to its sum, largest resident memory. A killed script goes on with what has no row.
"""
import argparse
import csv
import functools
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bench.speed.memory import peak
from core.arguments import ArgumentParser, binary_to_boolean_type, whole
from core.plugins import ROOT
from core.rows import read_rows
from scroll import engines
from scroll.archive import atomic_write
from scroll.engines import counting
from scroll.errors import InputError
from scroll.learner import Scroll
from scroll.state import State

CIFAR, SYNTHETIC = 'CIFAR-100 features', 'synthetic'
FOLDERS = {CIFAR: 'cifar100', SYNTHETIC: 'synthetic'}
DIM, CLASSES, FILES, SPEED_FILES = 256, 100, 80, 16
COLUMNS = ('what', 'stream', 'way', 'workers', 'partitions', 'samples', 'blocks', 'digest', 'seconds',
           'worker_seconds', 'worker_mb', 'mb_read', 'mb_moved', 'load')
_TORCHRUN, _MERGED = 'torchrun', 'files merged'


def ways(what: str) -> list:
    """(way, workers, partitions, whether a worker is killed) of each row."""
    if what == 'speed':
        return [('local', 1, None, False)] + [(engine, workers, None, False) for workers in (1, 2, 3, 4)
                                              for engine in ('ray', 'spark', 'dask')]
    out = [('local', 1, None, False), (_TORCHRUN, 3, None, False), ('ray', 3, None, False),
           ('spark', 3, 7, False), ('dask', 3, None, False), (_MERGED, 8, None, False)]
    return out + [(way, 3, 7 if way == 'spark' else None, True) for way in ('ray', 'spark', 'dask')]


@dataclass(frozen=True)
class Measured:
    """A counter that notes what its process has used, in a folder; `kill`: and ends the process, once, at the
    end of this file."""
    counter: counting.Counter
    folder: str
    kill: str = ''

    def __call__(self, source):
        began = time.process_time()
        counted = self.counter(source)
        used = time.process_time() - began
        if source.name == self.kill:
            try:
                os.mkdir(os.path.join(self.folder, 'killed'))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        with open(os.path.join(self.folder, f'{os.getpid()}.jsonl'), 'a', encoding='utf-8') as file:
            print(json.dumps(dict(seconds=used, mb=peak(), partial=len(pickle.dumps(counted)))), file=file)
        return counted


def make_synthetic(folder: Path, rows: int) -> None:
    """Files of the synthetic stream that are not there; each follows from its number alone."""
    import pyarrow
    from pyarrow import parquet
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path = folder / f'block-{number:03}.parquet'
        count = rows * (number + 1) // FILES - rows * number // FILES
        if path.exists():
            continue
        chance = np.random.default_rng([256, number])
        x = chance.integers(-127, 128, count * DIM, np.int8)
        y = chance.integers(0, CLASSES, count)
        table = pyarrow.table(dict(X=pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(x), DIM), y=y))
        with atomic_write(path) as file:
            parquet.write_table(table, file, row_group_size=1 << 13, compression='none')


def make_cifar(folder: Path, base_path: str) -> None:
    """The training images' features, which are on the grid, in 20 files; computed unless they are cached."""
    if len(list(folder.glob('*.parquet'))) == 20:
        return
    import pyarrow
    from pyarrow import parquet

    from bench.cli.parsing import parse_args
    from bench.run.building import initialize
    model, dataset, _ = initialize(parse_args(['--model', 'scroll', '--dataset', 'seq-cifar100',
                                               '--base_path', base_path, '--disable_log', '1',
                                               '--non_verbose', '1']))
    features, labels = model.embedder(dataset.images.train)[0], dataset.images.train_labels
    model.embedder.cache.flush()
    folder.mkdir(parents=True, exist_ok=True)
    for number, at in enumerate(np.array_split(np.arange(len(labels)), 20)):
        flat = pyarrow.array(features[at].ravel())
        table = pyarrow.table(dict(X=pyarrow.FixedSizeListArray.from_arrays(flat, features.shape[1]),
                                   y=labels[at]))
        with atomic_write(folder / f'block-{number:03}.parquet') as file:
            parquet.write_table(table, file, row_group_size=1 << 13, compression='none')


def measure(way: str, workers: int, partitions, patterns: list, kill: bool) -> dict:
    """Count in this process, or by its workers; the cells of a row."""
    sources = counting.find(patterns)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        if way == _MERGED:
            counted, notes = _merged(sources, folder, workers)
        else:
            counter = Measured(counting.Counter(_params()), folder,
                               sources[len(sources) // 2].name if kill else '')
            if way == _TORCHRUN:
                counted, folder = _with_torchrun(counter, sources)
            else:
                counted = engines.total(way, counter, sources, workers if way != 'local' else None,
                                        partitions)
            notes = [json.loads(line) for path in Path(folder).glob('*.jsonl')
                     for line in path.read_text(encoding='utf-8').splitlines()]
    partial = max((note['partial'] for note in notes), default=0) / 1e6
    sent = workers if way in (_TORCHRUN, _MERGED) else 0 if way == 'local' else partitions or len(sources)
    return dict(samples=counted.statistics.total, blocks=len(counted.parts),
                digest=counted.statistics.digest(), seconds=round(time.perf_counter() - began, 1),
                worker_seconds=round(sum(note['seconds'] for note in notes), 1),
                worker_mb=round(max((note['mb'] for note in notes), default=0)),
                mb_read=round(sum(os.path.getsize(source.path) for source in sources) / 1e6, 1),
                mb_moved=round(sent * partial, 1))


def _params() -> dict:
    params = Scroll(buffer_size=0).get_params()
    del params['embedder']
    return params


def _with_torchrun(counter: Measured, sources: list) -> tuple:
    """Each process counts its share of the files; sums are all-reduced, as `models/scroll.py` does. All
    processes come here, and write their notes to the folder of the first."""
    from core import distributed
    distributed.mute_others()
    world = distributed.join(SimpleNamespace(device='cpu'))
    folder = world.from_first(counter.folder.encode()).decode()
    part = engines.total('local', Measured(counter.counter, folder), sources[world.share(len(sources))])
    told = [json.loads(text) for text in world.exchange(json.dumps([part.statistics.classes.tolist(),
                                                                    part.parts]).encode())]
    classes = np.unique(np.concatenate([np.array(own) for own, _ in told]))
    part.statistics = part.statistics.summed(classes, world.sum)
    part.parts = functools.reduce(lambda a, b: a | b, (own for _, own in told))
    distributed.leave()
    return part, folder


def _merged(sources: list, folder: str, shares: int) -> tuple:
    """Shares of the files, each learned by a command of its own, merged by another in another order."""
    scroll, states, notes = [sys.executable, '-m', 'scroll'], [], []
    for number in range(shares):
        states.append(f'{folder}/{number}.npz')
        before, files = os.times(), [source.path for source in sources[number::shares]]
        _run([*scroll, 'learn', '--from', *files, '-o', states[-1]])
        used = os.times().children_user + os.times().children_system
        notes.append(dict(seconds=used - before.children_user - before.children_system, mb=0,
                          partial=os.path.getsize(states[-1])))
    random.Random(0).shuffle(states)
    _run([*scroll, 'merge', *states, '-o', f'{folder}/all.npz'])
    state = State.read(f'{folder}/all.npz')
    return SimpleNamespace(statistics=state.statistics, parts=state.blocks), notes


def _run(words: list) -> str:
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise InputError(f'{" ".join(words[:8])} ...: exit code {done.returncode}: {done.stderr[-500:]}')
    return done.stdout


def in_a_process(way: str, workers: int, partitions, patterns: list, kill: bool) -> dict:
    """`measure` in a new process, or under torchrun in several."""
    launch = [sys.executable]
    if way == _TORCHRUN:
        launch += ['-m', 'torch.distributed.run', '--standalone', '--local_addr', '127.0.0.1',
                   '--nproc_per_node', str(workers)]
    request = json.dumps(dict(way=way, workers=workers, partitions=partitions, patterns=patterns, kill=kill))
    out = _run([*launch, '-m', 'bench.speed.engines', '--one', request])
    return json.loads(out.strip().splitlines()[-1])


def main() -> None:
    parser = ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag('--what', nargs='+', choices=('digests', 'speed'), default=('digests', 'speed'))
    flag('--streams', nargs='+', choices=tuple(FOLDERS.values()), default=tuple(FOLDERS.values()))
    flag('--rows', type=whole(1), default=5_000_000, help='of the synthetic stream (default: %(default)s)')
    flag('--base_path', default='data', help='where the streams are (default: %(default)s)')
    flag('--out', type=Path, default=ROOT / 'results' / 'bench' / 'engines.csv',
         help='(default: %(default)s)')
    flag('--again', type=binary_to_boolean_type, default=False,
         help='also what has a row, which is replaced')
    flag('--one', help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    if args.one:
        print(json.dumps(measure(**json.loads(args.one))), flush=True)
        return
    home = Path(args.base_path).resolve() / 'engines'
    rows = read_rows(args.out) if args.out.exists() else []
    for what in args.what:
        for stream, name in FOLDERS.items():
            if name in args.streams and (what, stream) != ('speed', CIFAR):
                rows = _measure_all(what, stream, home / name, args, rows)


def _measure_all(what: str, stream: str, folder: Path, args, rows: list) -> list:
    if stream == CIFAR:
        make_cifar(folder, args.base_path)
    else:
        make_synthetic(folder, args.rows)
    files = sorted(map(str, folder.glob('*.parquet')))
    patterns = files[:SPEED_FILES] if what == 'speed' else [f'{folder}/*.parquet']
    for way, workers, partitions, kill in ways(what):
        about = dict(what=what, stream=stream, way=way + ', a worker killed' * kill, workers=str(workers),
                     partitions=str(partitions or ''))
        known = [row for row in rows if about.items() <= row.items()]
        if known and not args.again:
            continue
        load = os.getloadavg()[0]
        row = about | in_a_process(way, workers, partitions, patterns, kill) | dict(load=round(load, 1))
        print(row['what'], row['stream'], row['way'], row['workers'], row['digest'][:16], row['seconds'],
              flush=True)
        rows = [other for other in rows if other not in known] + [row]
        _write(args.out, rows)
    return rows


def _write(path: Path, rows: list) -> None:
    text = io.StringIO(newline='')
    table = csv.DictWriter(text, COLUMNS, lineterminator='\n')
    table.writeheader()
    table.writerows(rows)
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


if __name__ == '__main__':              # a measurement in a process of its own
    from bench.speed import engines as this  # so that workers find its classes by the module's name
    this.main()
