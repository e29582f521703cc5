"""Device and folders of a run, and the seeds of its randomness."""

import random
import sys
from functools import cache
from pathlib import Path

from scroll.ground.errors import InputError

# what files written for Mammoth ask for
_run = {'device': None, 'base_path': './data/', 'checkpoint_path': './checkpoints/'}


def choose_device(wanted):
    """The torch device that `--device` names; from now on `get_device()` gives it."""
    _run['device'] = _device(wanted)
    return _run['device']


def get_device(wanted=None):
    """The torch device that `wanted` names, as `--device` does; without it that
    of the run, or the best there is."""
    return _run['device'] if wanted is None and _run['device'] is not None else _device(wanted)


def _device(wanted):
    """A torch device by name: 'cpu', 'cuda', '1', 'cuda:1'. None and 'cuda': the GPU with most free
    memory; None without GPUs: the CPU."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    word = str(wanted)
    if count and word in ('None', 'cuda'):
        free = [torch.cuda.mem_get_info(i)[0] for i in range(count)]
        return torch.device(f'cuda:{free.index(max(free))}')
    number = word.strip().removeprefix('cuda:')
    if word in ('None', 'cpu'):
        return torch.device('cpu')
    if not (number.isdecimal() and int(number) < count):
        raise InputError(
            f'--device {wanted}: this machine has {count} CUDA device{"s" * (count != 1)}; '
            f'use cpu{f" or one of 0..{count - 1}" if count else ""}'
        )
    return torch.device(f'cuda:{number}')


def base_path(override=None) -> str:
    """Mammoth's folder for data, with a slash at its end: `--base_path`; from now on `override`, if
    given.
    """
    return _folder('base_path', override)


def get_checkpoint_path(override=None) -> str:
    """Mammoth's folder for checkpoints, with a slash at its end; from now on `override`, if
    given.
    """
    return _folder('checkpoint_path', override)


def _folder(name: str, override) -> str:
    if override is not None:
        _run[name] = f'{str(override).rstrip("/")}/'
    return _run[name]


@cache
def warn_once(*messages) -> None:
    """Print a warning the first time it is given."""
    print('warning:', *messages, file=sys.stderr)


def set_random_seed(seed: int) -> None:
    """Seed the global generators of random, numpy and torch (for code that draws from them; ours
    has its own streams), and let cuDNN choose only algorithms that give the same result each
    time."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def results_folder(args, setting: str) -> Path:
    """Folder of a run's results: `<base_path>/<results_path>/<setting>/<dataset>/<model>`."""
    return Path(args.base_path) / args.results_path / setting / args.dataset / args.model
