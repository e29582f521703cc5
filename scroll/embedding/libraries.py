"""What networks of timm and of transformers have in common: how they are called, and where weights come from.

From a file, from the local cache of the hub, or from the hub, which is asked once and not waited for; or they
are random, from a seed. Files are read as tensors alone: no code in them is run. Both libraries are optional
(`pip install ".[timm]"`, `pip install ".[transformers]"`).
"""
import hashlib
import logging
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from scroll.arguments import shown, whole
from scroll.embedding.images import INTERPOLATIONS
from scroll.errors import InputError

LIBRARIES = ('timm', 'transformers')
WEIGHTS = ('model.safetensors', 'pytorch_model.bin')
_SECONDS = 5                        # that the hub has to answer


class LibraryNetwork(nn.Module):
    """A network of another library: (B, 3, S, S) -> what its own head would get, (B, d).

    Args:
        body: the network without its head. input_size: pixels that it is used at. made_from: what it is:
            library, name, options, digest of the weights' file or seed.

    Attributes:
        origin: uint8 (32,), SHA-256 of `made_from`, a buffer: so it is part of every digest and key that the
            tensors are part of (two networks of the same tensors may differ, as in their number of heads).
    """

    def __init__(self, body: nn.Module, input_size: int, made_from: tuple):
        super().__init__()
        self.body, self.input_size = body, input_size
        digest = hashlib.sha256(repr(made_from).encode()).digest()
        self.register_buffer('origin', torch.tensor(list(digest), dtype=torch.uint8))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Features (B, d) of inputs (B, 3, S, S); InputError where it takes images of another size alone."""
        out = self.run(self.body, x)
        return out if isinstance(out, torch.Tensor) else _pooled(out)

    def run(self, part, x: torch.Tensor):
        """What a function of the network gives for images; InputError where it takes none of their size."""
        try:
            return part(x)
        except (AssertionError, ValueError, RuntimeError) as error:
            if x.shape[-1] == self.input_size:
                raise
            size = self.input_size
            raise InputError(f'the network takes images of {size} pixels, these have {x.shape[-1]} '
                             f'({line_of(error)}): give --input_size {size}') from error


def _pooled(out) -> torch.Tensor:
    """What a head of transformers' gets: pooled, or the mean of the maps, or the first token."""
    pooled = getattr(out, 'pooler_output', None)
    if pooled is None:
        last = out.last_hidden_state
        pooled = last.mean(dim=(2, 3)) if last.dim() == 4 else last[:, 0]
    return pooled.flatten(1)


def interpolation(told: str, kind) -> str:
    """A name of ours for one of timm's or a number of Pillow's."""
    name = {1: 'lanczos', 2: 'bilinear', 3: 'bicubic'}.get(kind, str(kind))
    if name not in INTERPOLATIONS:
        raise InputError(f'{told}: images are resized by {name}; expected {", ".join(INTERPOLATIONS)}')
    return name


def from_hub(told: str, repository: str, names: tuple, needed: bool = True):
    """The path in the local cache of the first of these files that a model on the hub has; None where it has
    none of them and they are not needed.

    Raises:
        InputError: it is not in the cache, and the hub may not be asked, does not answer or does not have it.
    """
    import huggingface_hub as hub
    repository, _, revision = repository.partition('@')
    revision = revision or None
    for name in names:
        path = hub.try_to_load_from_cache(repository, name, revision=revision)
        if isinstance(path, str):
            return Path(path)
    instead = f'put it there, or give a file or a seed ({told},file=PATH or {told},random=0)'
    where = f"{' or '.join(names)} of {repository} is not in {hub.constants.HF_HUB_CACHE}"
    if hub.constants.HF_HUB_OFFLINE:
        raise InputError(f'{told}: {where}, and HF_HUB_OFFLINE is set: {instead}')
    try:
        about = hub.HfApi().model_info(repository, revision=revision, timeout=_SECONDS)
        offered = {file.rfilename for file in about.siblings}
        if not offered & set(names):
            if not needed:
                return None
            raise InputError(f"{told}: {repository} on the hub has no {' or '.join(names)}")
        name = next(name for name in names if name in offered)
        return Path(hub.hf_hub_download(repository, name, revision=revision))
    except InputError:
        raise
    except Exception as error:              # whatever a network, a proxy or the hub says
        raise InputError(f'{told}: {where}, and the hub does not give it ({line_of(error)}): '
                         f'{instead}') from error


def imported(name: str):
    """The imported library; InputError where it is not installed."""
    try:
        return __import__(name)
    except ImportError as error:
        raise InputError(f'{name} is not installed ({error}): pip install {name}') from error


def check_source(random, file) -> None:
    """InputError unless weights are from a seed, from a file or published, one of them."""
    if random is not None:
        whole('random', random, 0, 2 ** 63 - 1)
        if file is not None:
            raise InputError(f'file {shown(str(file))} with random {random}: weights are from a file or from '
                             'a seed: give one of them')


def existing(file) -> Path:
    """The path of a file; InputError where there is none."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f'{file}: no such file of weights')
    return path


def line_of(error: Exception) -> str:
    """An error of a library in one line, its kind first."""
    return f'{type(error).__name__}: {" ".join(str(error).split())[:200]}'


@contextmanager
def told_in_a_line(what: str):
    """Whatever a library says of it, in one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f'{what}: {line_of(error)}') from error


@contextmanager
def seeded(seed: int):
    """torch's generator on the CPU begins with a seed, and is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def quiet(name: str):
    """A library's warnings, tables and bars are left out: what is wrong is an error here."""
    logger, bars = logging.getLogger(name), None
    if name == 'transformers':
        from transformers.utils import logging as bars
    before, shown = logger.level, bars is not None and bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    if shown:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if shown:
            bars.enable_progress_bar()
