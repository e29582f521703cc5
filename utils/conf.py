"""Where a run lives (device, folders) and how its randomness begins."""
import random
import sys
from functools import cache
from pathlib import Path

from utils.errors import UserError


def get_device(wanted=None):
    """The torch device for `--device`: None picks a GPU if there is one; 'cpu', 'cuda', '1' and 'cuda:1' name one."""
    import torch
    if wanted is None or str(wanted) == 'cuda':
        if torch.cuda.is_available():
            free = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
            return torch.device(f'cuda:{free.index(max(free))}')
        if wanted is None:
            return torch.device('cpu')
    text = str(wanted).removeprefix('cuda:')
    if text == 'cpu':
        return torch.device('cpu')
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if text.isdecimal() and int(text) < count:
        return torch.device(f'cuda:{text}')
    raise UserError(f"--device {wanted}: this machine has {count} CUDA device{'s' * (count != 1)}; use cpu" +
                    (f' or 0..{count - 1}' if count else ''))


def base_path() -> str:
    """Mammoth's folder for data, with a slash at its end; flags may say another (`args.base_path`)."""
    return './data/'


def get_checkpoint_path() -> str:
    """Mammoth's folder for checkpoints."""
    return './checkpoints/'


@cache
def warn_once(message: str) -> None:
    """Print a warning the first time it is given."""
    print(f'warning: {message}', file=sys.stderr)


def optimise(net, level: int) -> None:
    """`-O`: 1 lets float32 products use TF32, 2 bfloat16; 3 also compiles the network. Results change in their last bits."""
    import torch
    if level:
        torch.set_float32_matmul_precision('high' if level == 1 else 'medium')
    if level == 3:
        net.compile()


def split_among_gpus(net):
    """`--distributed dp`: the network, with each batch split among all GPUs; attributes are those of the network."""
    import torch
    if torch.cuda.device_count() < 2:
        raise UserError(f'--distributed dp: this machine has {torch.cuda.device_count()} CUDA devices; leave the flag out')

    class Split(torch.nn.DataParallel):
        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)
    return Split(net)


def set_random_seed(seed: int) -> None:
    """Seed the global generators of random, numpy and torch (for code that draws from them; ours has its own streams)."""
    import numpy as np
    import torch
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    torch.manual_seed(seed)


def results_folder(args, setting: str) -> Path:
    """Where the results of a run go: `<base_path>/<results_path>/<setting>/<dataset>/<model>`."""
    return Path(args.base_path) / args.results_path / setting / args.dataset / args.model


def create_seeded_dataloader(args, dataset, non_verbose: bool = False, concern: str = 'loader', **options):
    """A `torch` loader of any data set, seeded; its batches do not depend on `--num_workers`.

    Args:
        non_verbose: accepted for files written for Mammoth; nothing is printed.
        concern: name of the random stream: loaders of one concern draw the same numbers.
        options: those of `DataLoader` (batch_size, shuffle, drop_last, collate_fn, ...).
    """
    from torch.utils.data import DataLoader, IterableDataset

    from scroll.randomness import stream_seed
    from utils.seeded_loader import SeededLoader
    options = dict(num_workers=getattr(args, 'num_workers', None) or 0) | options
    if isinstance(dataset, IterableDataset):
        return DataLoader(dataset, **options)
    options.pop('generator', None)
    return SeededLoader(dataset, stream_seed(getattr(args, 'seed', None) or 0, f'loader {concern}'), **options)
