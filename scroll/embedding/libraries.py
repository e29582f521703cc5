"""Image networks of timm and transformers as backbones, with the preprocessing that their library
names.

Weights come from a folder or file, from the local cache of the hub, or from the hub; or they are
random, from a seed. Files are read as tensors alone: no code in them is run. Both libraries are
optional (`pip install ".[timm]"`, `pip install ".[transformers]"`).
"""

import hashlib
import importlib
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scroll.embedding.images import INTERPOLATIONS, Preprocessing
from scroll.ground.archive import read_errors, sha256
from scroll.ground.arguments import whole
from scroll.ground.errors import InputError, did_you_mean

# settings of a network that do not change what it computes
_OF_A_FILE = '_name_or_path', 'transformers_version', 'architectures', 'dtype', 'torch_dtype'
_WEIGHTS = ('model.safetensors', 'pytorch_model.bin')


class LibraryNetwork(nn.Module):
    """A network of another library: (B, 3, S, S) -> what its own head would get, (B, d).

    body: the network without its head. input_size: pixels that it is used at. made_from: what it
    is: library, name, options, digest of the weights' file or seed. Its SHA-256 is the buffer
    `origin`, uint8 (32,), part of every digest that the tensors are part of (networks of the same
    tensors may differ, as in their number
    of heads)."""

    def __init__(self, body: nn.Module, input_size: int, made_from: tuple):
        super().__init__()
        self.body = body
        self.input_size = input_size
        digest = hashlib.sha256(repr(made_from).encode()).digest()
        self.register_buffer('origin', torch.tensor(list(digest), dtype=torch.uint8))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Features (B, d) of inputs (B, 3, S, S): of transformers' outputs what a head gets:
        pooled, or the mean of the maps, or the first token. InputError where it takes images of
        another size alone."""
        try:
            out = self.body(x)
        except (AssertionError, ValueError, RuntimeError) as error:
            size = self.input_size
            if x.shape[-1] == size:
                raise
            raise InputError(
                f'the network takes images of {size} pixels, these have {x.shape[-1]}: give '
                f'--input_size {size}'
            ) from error
        if isinstance(out, torch.Tensor):
            return out
        pooled = getattr(out, 'pooler_output', None)
        if pooled is None:
            last = out.last_hidden_state
            pooled = last.mean(dim=(2, 3)) if last.dim() == 4 else last[:, 0]
        return pooled.flatten(1)


def timm_network(
    name: str, file=None, random: int | None = None, img_size: int | None = None
) -> tuple[LibraryNetwork, Preprocessing]:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_timm`."""
    timm = _imported('timm', random)
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
            with _seeded(random):
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
        _interpolation(config['interpolation']),
        float(config['crop_pct']),
        config['crop_mode'] == 'center',
    )


@contextmanager
def _seeded(seed: int):
    """A block in which torch draws by this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


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


def transformers_network(
    name: str, random: int | None = None
) -> tuple[LibraryNetwork, Preprocessing]:
    """(network in eval mode, its `Preprocessing`); arguments and errors as
    `Embedder.from_transformers`.
    """
    transformers = _imported('transformers', random)
    name = str(name)
    with read_errors(f'transformers:{name}'), _quiet(transformers.utils.logging):
        folder = str(_file_of(name, ('config.json',)).parent)
        _file_of(name, ('preprocessor_config.json',))
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        if getattr(config, 'mask_ratio', 0):
            raise InputError('it masks its input at random: no features to rely on')
        # by Pillow: both kinds have the same settings, the other needs torchvision
        processor = transformers.AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, backend='pil'
        )
        preprocessing = _of_processor(processor.to_dict())
        config = getattr(config, 'vision_config', config)
        if random is None:
            origin = sha256(_file_of(name, _WEIGHTS))
            body, report = transformers.AutoModel.from_pretrained(
                folder, config=config, local_files_only=True, output_loading_info=True
            )
            _check_complete(body, report)
            body = body.float()
        else:
            with _seeded(random):
                body = transformers.AutoModel.from_config(config)
            origin = 'random', int(random)
    if _learned_pooler(body):
        body.pooler = None  # of pre-training alone; heads get the class token
    described = {key: value for key, value in config.to_dict().items() if key not in _OF_A_FILE}
    made_from = 'transformers', json.dumps(described, sort_keys=True, default=str), origin
    return LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _check_complete(body: nn.Module, report: dict) -> None:
    """Raise InputError if a file lacked tensors of the network, other than those of its pooler."""
    wrong = [*report['missing_keys'], *map(str, report.get('mismatched_keys', ()))]
    if _learned_pooler(body):
        wrong = [key for key in wrong if not key.startswith('pooler.')]
    if wrong:
        raise InputError(
            f'its file lacks tensors, or has them in another shape: {sorted(wrong)[0]}'
        )


NETWORKS = {'timm': timm_network, 'transformers': transformers_network}


def _learned_pooler(body) -> bool:
    return isinstance(getattr(getattr(body, 'pooler', None), 'dense', None), nn.Linear)


_UNSUPPORTED = 'do_flip_channel_order', 'do_pad', 'do_thumbnail', 'rescale_offset', 'include_top'


def _of_processor(settings: dict) -> Preprocessing:
    """The preprocessing of an image processor, whose settings have these names."""
    odd = [name for name in _UNSUPPORTED if settings.get(name)]
    for name in ('do_resize', 'do_rescale', 'do_normalize'):
        if not settings.get(name, True):
            odd.append(name)
    if abs(255 * settings.get('rescale_factor', 1 / 255) - 1) > 1e-9:
        odd.append('rescale_factor')
    size = {key: value for key, value in dict(settings['size']).items() if value}
    keep_ratio = 'shortest_edge' in size
    side = size['shortest_edge'] if keep_ratio else size['height']
    pixels = side
    crop_size = settings.get('crop_size')
    if settings.get('do_center_crop') and crop_size:
        pixels = crop_size['height'] if isinstance(crop_size, dict) else crop_size
    if odd or pixels > side or size.get('height') != size.get('width'):
        raise InputError(
            f'its image processor has unsupported steps ({", ".join(odd)}; {size} cut to '
            f'{crop_size}); expected to resize, crop and normalise squares'
        )
    crop = pixels / side
    if 'crop_pct' in settings:  # as ConvNeXt's processor has it
        keep_ratio = side < 384
        crop = float(settings['crop_pct'] or 224 / 256) if keep_ratio else 1.0
    interpolation = _interpolation(settings.get('resample'))
    mean = tuple(settings['image_mean'])
    std = tuple(settings['image_std'])
    return Preprocessing(pixels, mean, std, interpolation, crop, keep_ratio)


def _interpolation(kind) -> str:
    """The name of an interpolation, for one of timm's or a number of Pillow's."""
    name = {1: 'lanczos', 2: 'bilinear', 3: 'bicubic'}.get(kind, str(kind))
    if name not in INTERPOLATIONS:
        raise InputError(f'images are resized by {name}; expected {", ".join(INTERPOLATIONS)}')
    return name


def _file_of(name: str, files: tuple) -> Path:
    """The first of these files that there is in a folder, or that a model on the hub has."""
    if not Path(name).is_dir():
        return _from_hub(name, files)
    for file in files:
        if (Path(name) / file).is_file():
            return Path(name) / file
    raise InputError(f'the folder has no {" or ".join(files)}')


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


def _imported(name: str, random):
    """The library; InputError where it is not installed."""
    if random is not None:
        whole('random', random, 0, 2**63 - 1)
    try:
        return __import__(name)
    except ImportError as error:
        raise InputError(f'{name} is not installed ({error}): pip install {name}') from error


@contextmanager
def _quiet(logging):
    """Silence transformers' warnings, tables and bars: what is wrong is an error here."""
    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
