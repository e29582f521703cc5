"""All that waits for a GPU, in one command that goes on where it was.

    python scripts/gpu.py --minutes 9           # again and again, until it says that all is done
    python scripts/gpu.py --only resnet12 --only table_2 --gpus 0,1 --per_gpu 6
    python scripts/gpu.py --toy --device cpu    # the same commands on toy data

Stages, in this order:

    integers    committed certificates, made on a CPU, checked on the GPU: equal digests of statistics and f_T
    speed       a step of `er`: eager, compiled, and as CUDA graphs
    resnet12    the paper's ResNet12 by the recipe of RFS, on all 64 training classes of miniImageNet
    table_2     table 2 with it
    resnet18    the paper's ResNet18 at 84 px, without the classes that CIFAR has
    table_1     the offline baselines of table 1, several runs a GPU at once

A stage that is done has a file <out>/<stage>.done, which says by which commands, and is skipped; what these
print is in <out>/<stage>.log. When the minutes are over the command at work is ended, and goes on the next
time: pretrain.py from its last epoch, a run of main.py from its last step. Exit code 0: all is done, 1: a
stage failed (the others were done), 75: the time is up.
"""
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from core.arguments import ArgumentParser, real, whole
from core.plugins import ROOT
from scroll.errors import InputError

STAGES = ('integers', 'speed', 'resnet12', 'table_2', 'resnet18', 'table_1')
TIME_IS_UP = 75             # EX_TEMPFAIL of sysexits.h
_TO_END = 60                # seconds that a command has to write its checkpoint
_OFFLINE = ('ER', 'BIC', 'DER', 'DER++')


def parse_args(argv=None):
    parser = ArgumentParser(prog='gpu.py', description=__doc__)
    flag = parser.add_argument
    flag('--only', choices=STAGES, action='append', help='this stage; repeatable (default: all)')
    flag('--skip', choices=STAGES, action='append', default=[], help='not this one; repeatable')
    flag('--minutes', type=real(positive=True), help='end after so many (default: when all is done)')
    flag('--seeds', type=whole(1), default=3, help='of the tables')
    flag('--gpus', default='0', help='joined by commas; a command that needs one takes the first')
    flag('--per_gpu', type=whole(1), default=6, help='runs of a table that share a GPU')
    flag('--device', help='cpu: do without a GPU')
    flag('--base_path', default='./data/', help='folder of the data, and of rows')
    flag('--out', type=Path, help='folder of weights, times and logs (default: <base_path>/gpu)')
    flag('--toy', action='store_true',
         help='toy data, networks and runs, all below --out, to try the commands')
    options = parser.parse_args(argv)
    if options.device not in (None, 'cpu'):
        raise InputError(f'--device {options.device}: expected cpu, or --gpus for a GPU')
    options.out = (options.out or Path(options.base_path) / 'gpu').absolute()
    options.base_path = (options.out / 'data' if options.toy else Path(options.base_path)).absolute()
    options.asked = [name for name in STAGES
                     if name in (options.only or STAGES) and name not in options.skip]
    return options


def commands(stage: str, options) -> list:
    """The words after `python` of each command of a stage."""
    out, base, toy = options.out, ['--base_path', options.base_path], options.toy
    device = ['--device', options.device or options.gpus.partition(',')[0]]
    mini, cifar = out / 'resnet12.safetensors', out / 'resnet18-84.safetensors'
    if stage == 'integers':
        certified = ['seq-digits', *([] if toy else ['seq-cifar10', 'seq-cifar100', 'seq-miniimg'])]
        return [['scripts/certify.py', '--check', f'results/certificates/{name}.json', '--non_verbose', '1',
                 '--feature_cache', '0', *base, *device] for name in certified]
    if stage == 'speed':
        return [['scripts/bench.py', '--er_on', options.device or f'cuda:{device[1]}', '--json',
                 '--rounds', '1' if toy else '50']]
    if stage in ('resnet12', 'resnet18'):
        small = ['--width', '4', '--input_size', '16', '--epochs', '1', '--batch_size', '16'] if toy else []
        if stage == 'resnet12':
            words = ['--out', mini, '--recipe', 'rfs', '--backbone', 'resnet12', '--leave_out', 'none',
                     *small]
        else:
            words = ['--out', cifar, '--leave_out', 'cifar100', 'cifar10',
                     *(small or ['--width', '64', '--input_size', '84', '--epochs', '60'])]
        return [['pretrain.py', *words, *base, *device]]
    if stage == 'table_2':
        only, few = (['--only', 'SCROLL (NCC)/*200'], ['--iterations', '2']) if toy else ([], [])
        return _table('experiments/table_2_miniimagenet.yaml', only, ['--weights', mini, *few], options)
    only = [word for name in (_OFFLINE[:1] if toy else _OFFLINE)
            for word in ('--only', f'{name}/CIFAR-10 *200' if toy else name)]
    more = ['--dataset', 'seq-digits', '--n_epochs', '1', '--weights', cifar] if toy else []
    return _table('experiments/table_1_cifar.yaml', only, more, options)


def _table(experiment: str, only: list, flags: list, options) -> list:
    """The runs of a table, and its page; `flags` for every run."""
    flags, where = [*flags, '--base_path', options.base_path], ['--gpus', options.gpus]
    where += ['--per_gpu', options.per_gpu]
    if options.device:
        where, flags = ['--jobs', '1'], [*flags, '--device', options.device]
    words = ['--seeds', 1 if options.toy else options.seeds, *only, *where, '--extra', '--', *flags]
    weights = flags[flags.index('--weights'):][:2] if '--weights' in flags else []
    page = ['scripts/report.py', experiment, '--collect', '--base_path', options.base_path, *weights,
            '--out', options.out / 'results' if options.toy else 'results']
    return [['scripts/sweep.py', experiment, *words], page]


def make_toys(folder: Path) -> None:
    """miniImageNet's files with random pictures: of 4 classes to learn from, 20 of the streams."""
    random = np.random.default_rng(0)
    names = [['n01558993', 'n02747177', 'n00000001', 'n99999999'], [f'n1{i:07}' for i in range(20)]]
    folder.mkdir(parents=True, exist_ok=True)
    for split, wnids, count in zip(('train', 'test'), names, (40, 110)):
        rows = {wnid: list(range(i * count, (i + 1) * count)) for i, wnid in enumerate(wnids)}
        images = random.integers(256, size=(count * len(wnids), 84, 84, 3), dtype=np.uint8)
        with open(folder / f'mini-imagenet-cache-{split}.pkl', 'wb') as file:
            pickle.dump(dict(image_data=images, class_dict=rows), file)


def run(stage: str, options, ends: float) -> bool | None:
    """Whether all commands of a stage ended well; None where the time was up before."""
    with open(options.out / f'{stage}.log', 'ab', buffering=0) as log:
        for words in commands(stage, options):
            words = [str(word) for word in words]
            log.write(f"$ python {' '.join(words)}\n".encode())
            process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=log,
                                       stderr=subprocess.STDOUT)
            try:
                code = process.wait(max(ends - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(process)
            if code:
                return False
    return True


def _end(process) -> None:
    """Let a command that is still at work end, so that it can go on from where it was."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(argv=None) -> int:
    options = parse_args(argv)
    ends, failed = time.monotonic() + 60 * (options.minutes or 1e6), []
    options.out.mkdir(parents=True, exist_ok=True)
    if options.toy and not (options.base_path / 'MINIIMAGENET').is_dir():
        make_toys(options.base_path / 'MINIIMAGENET')
    for stage in options.asked:
        done = options.out / f'{stage}.done'
        by = json.dumps(commands(stage, options), default=str)
        if done.is_file() and done.read_text() == by:
            print(f'{stage}: done', flush=True)
            continue
        began, well = time.monotonic(), run(stage, options, ends)
        log = options.out / f'{stage}.log'
        if well is None:
            print(f'{stage}: not done, the time is up: the same command goes on from here ({log})',
                  flush=True)
            return TIME_IS_UP
        said = 'done' if well else 'failed'
        print(f'{stage}: {said}, {time.monotonic() - began:.0f} s ({log})', flush=True)
        if well:
            done.write_text(by)
        else:
            failed.append(stage)
    return int(bool(failed))
