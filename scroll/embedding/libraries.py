"""Image networks of timm as backbones, with the preprocessing that timm names.

Weights come from a file, from the local cache of the hub, or from the hub; or they are random, from
a seed. Files are read as tensors alone: no code in them is run. timm is optional (`pip install
".[timm]"`).
"""

import hashlib
import importlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scroll.embedding.images import Preprocessing
from scroll.ground.archive import read_errors, sha256
from scroll.ground.arguments import MAX_SEED, whole
from scroll.ground.errors import InputError, did_you_mean

_WEIGHTS = ('model.safetensors', 'pytorch_model.bin')


class LibraryNetwork(nn.Module):
    """A network of timm: (B, 3, S, S) -> what its own head would get, (B, d).

    body: the network without its head. input_size: pixels that it is used at. made_from: what it
    is: library, name, options, digest of the weights' file or seed. Its SHA-256 is the buffer
    `origin`, uint8 (32,), part of every digest that the tensors are part of (networks of the same
    tensors may differ, as in their number of heads)."""

    def __init__(self, body: nn.Module, input_size: int, made_from: tuple):
        super().__init__()
        self.body = body
        self.input_size = input_size
        digest = hashlib.sha256(repr(made_from).encode()).digest()
        self.register_buffer('origin', torch.tensor(list(digest), dtype=torch.uint8))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Features (B, d) of inputs (B, 3, S, S); InputError where it takes images of another size
        alone."""
        try:
            return self.body(x)
        except (AssertionError, ValueError, RuntimeError) as error:
            size = self.input_size
            if x.shape[-1] == size and not isinstance(error, AssertionError):
                raise
            raise InputError(
                f'the network takes images of {size} pixels, these have {x.shape[-1]}: give '
                f'--input_size {size} ({error})'
            ) from error


def timm_network(
    name: str, file=None, random: int | None = None, img_size: int | None = None
) -> tuple[LibraryNetwork, Preprocessing]:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_timm`."""
    if random is not None:
        whole('random', random, 0, MAX_SEED)
        if file is not None:
            raise InputError('random and file: give one of them')
    try:
        timm: Any = importlib.import_module('timm')
    except ImportError as error:
        raise InputError(f'timm is not installed ({error}): pip install timm') from error
    label = f'timm:{name}'
    if not isinstance(name, str) or not timm.is_model(name.partition('.')[0]):
        raise InputError(
            f'{label}: timm {timm.__version__} has no such network'
            f'{did_you_mean(str(name), timm.list_models())}'
        )
    sized = {}
    if img_size is not None:
        whole(f'{label}: img_size', img_size, 1, 1 << 13)
        sized['img_size'] = int(img_size)
    with read_errors(label if file is None else f'{label}: {file}'):
        if random is None:
            path = Path(file or _published_by_timm(timm, name))
            origin = sha256(path)
            state = timm.models.load_state_dict(str(path), weights_only=True)
            if not state:  # which timm would take for none given
                raise InputError('it holds no tensors')
            # with its head, timm compares strictly
            body = timm.create_model(
                name, True, pretrained_cfg_overlay={'state_dict': state}, **sized
            )
            body.reset_classifier(0)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(random)
                body = timm.create_model(name, num_classes=0, **sized)
            origin = 'random', int(random)
        preprocessing = _of_timm(timm.data.resolve_model_data_config(body), img_size)
    made_from = 'timm', name.partition('.')[0], sized.get('img_size'), origin
    return LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _of_timm(config: dict, img_size: int | None) -> Preprocessing:
    """The preprocessing that timm names for a network."""
    channels, height, width = config['input_size']
    if channels != 3 or height != width or config['crop_mode'] not in ('center', 'squash'):
        raise InputError(
            f'it takes images {tuple(config["input_size"])} (channels, height, width), cut '
            f'by {config["crop_mode"]}; expected three channels, squares, center or squash'
        )
    return Preprocessing(
        img_size or height,
        tuple(config['mean']),
        tuple(config['std']),
        config['interpolation'],
        float(config['crop_pct']),
        config['crop_mode'] == 'center',
    )


def _published_by_timm(timm, name: str) -> Path:
    """The file of the published weights, in the cache of the hub."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise InputError(
            'there are no weights of it on the hub: give a file or a seed (,file=PATH or '
            ',random=0 behind its name)'
        )
    file = config.hf_hub_filename
    names = (str(Path(file).with_suffix('.safetensors')), file) if file else _WEIGHTS
    return _from_hub(config.hf_hub_id, names)


def _from_hub(repository: str, names: tuple) -> Path:
    """The path in the local cache of the first of these files that a model on the hub has; may
    fetch it.
    """
    hub: Any = importlib.import_module('huggingface_hub')

    for name in names:
        path = hub.try_to_load_from_cache(repository, name)
        if isinstance(path, str):
            return Path(path)
    with read_errors(
        f'{" or ".join(names)} of {repository} is not in {hub.constants.HF_HUB_CACHE}, and '
        'cannot be fetched'
    ):
        for name in names:
            if hub.file_exists(repository, name):  # which does not try for long
                return Path(hub.hf_hub_download(repository, name))
        raise InputError('the hub does not have it')
