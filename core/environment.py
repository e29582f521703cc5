"""Where a run lives (device, folders) and how its randomness begins."""
import random
import sys
from functools import cache
from pathlib import Path

from scroll.errors import InputError

# what files written for Mammoth ask for
_run = dict(device=None, base_path='./data/', checkpoint_path='./checkpoints/')


def choose_devices(wanted=None, several: bool = False) -> list:
    """The torch devices that `--device` names; from now on the first is what `get_device()` gives."""
    devices = _devices(wanted, several)
    _run['device'] = devices[0]
    return devices


def get_device(wanted=None):
    """The torch device that `wanted` names, as `--device` does; without it that
    of the run, or the best there is."""
    return _run['device'] if wanted is None and _run['device'] is not None else _devices(wanted)[0]


def _devices(wanted=None, several: bool = False) -> list:
    """Torch devices by name: 'cpu', 'cuda', '1', 'cuda:1', or, if `several` are allowed, '0,1'. None and
    'cuda': the GPU with most free memory, or all if `several` are allowed; None without GPUs: the CPU."""
    import torch
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    words = [word.strip().removeprefix('cuda:') for word in str(wanted).split(',')]
    if count and str(wanted) in ('None', 'cuda'):
        free = [torch.cuda.mem_get_info(i)[0] for i in range(count)]
        words = [str(i) for i in (range(count) if several else [free.index(max(free))])]
    elif wanted is None:
        words = ['cpu']
    unknown = [word for word in words if word != 'cpu' and not (word.isdecimal() and int(word) < count)]
    if unknown or len(set(words)) < len(words) or 'cpu' in words[1:]:
        raise InputError(f"--device {wanted}: this machine has {count} CUDA device{'s' * (count != 1)}; "
                         f'use cpu{f" or 0..{count - 1}" if count else ""}')
    if len(words) > 1 and not several:
        raise InputError(f'--device {wanted}: a run uses one device, unless it has --distributed dp')
    return [torch.device('cpu' if word == 'cpu' else f'cuda:{word}') for word in words]


def base_path(override=None) -> str:
    """Mammoth's folder for data, with a slash at its end: `--base_path`; from now on `override`, if given."""
    return _folder('base_path', override)


def get_checkpoint_path(override=None) -> str:
    """Mammoth's folder for checkpoints, with a slash at its end; from now on `override`, if given."""
    return _folder('checkpoint_path', override)


def _folder(name: str, override) -> str:
    if override is not None:
        _run[name] = f"{str(override).rstrip('/')}/"
    return _run[name]


@cache
def warn_once(*messages) -> None:
    """Print a warning the first time it is given."""
    print('warning:', *messages, file=sys.stderr)


def set_random_seed(seed: int) -> None:
    """Seed the global generators of random, numpy and torch (for code that draws from them; ours has its own
    streams), and let cuDNN choose only algorithms that give the same result each time."""
    import numpy as np
    import torch
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


def results_folder(args, setting: str) -> Path:
    """Where the results of a run go: `<base_path>/<results_path>/<setting>/<dataset>/<model>`."""
    return Path(args.base_path) / args.results_path / setting / args.dataset / args.model
