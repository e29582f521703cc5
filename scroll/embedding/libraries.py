"""Image networks of timm and transformers as backbones, with the preprocessing that their library names.

Weights come from a file, from the local cache of the hub, or from the hub, which is asked once and not waited
for; or they are random, from a seed. Files are read as tensors alone: no code in them is run. Both libraries
are optional (`pip install ".[timm]"`, `pip install ".[transformers]"`).
"""
import difflib
import hashlib
import json
import logging
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from scroll.archive import sha256
from scroll.arguments import shown, whole
from scroll.embedding.images import INTERPOLATIONS, Preprocessing
from scroll.errors import InputError

LIBRARIES = ('timm', 'transformers')
_WEIGHTS = ('model.safetensors', 'pytorch_model.bin')
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
        """Features (B, d) of inputs (B, 3, S, S); InputError where it takes images of another size alone.

        Of transformers' outputs what a head gets: pooled, or the mean of the maps, or the first token.
        """
        out = self.run(self.body, x)
        if isinstance(out, torch.Tensor):
            return out
        pooled = getattr(out, 'pooler_output', None)
        if pooled is None:
            last = out.last_hidden_state
            pooled = last.mean(dim=(2, 3)) if last.dim() == 4 else last[:, 0]
        return pooled.flatten(1)

    def run(self, part, x: torch.Tensor):
        """What a function of the network gives for images; InputError where it takes none of their size."""
        try:
            return part(x)
        except (AssertionError, ValueError, RuntimeError) as error:
            if x.shape[-1] == self.input_size:
                raise
            size = self.input_size
            raise InputError(f'the network takes images of {size} pixels, these have {x.shape[-1]} '
                             f'({_line_of(error)}): give --input_size {size}') from error


def timm_network(name: str, file=None, random: int = None, img_size: int = None) -> tuple:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_timm`."""
    timm, label = _imported('timm', file, random), f'timm:{name}'
    if img_size is not None:
        whole('img_size', img_size, 1, 4096)
    if not isinstance(name, str) or not timm.is_model(name.partition('.')[0]):
        close = difflib.get_close_matches(str(name), timm.list_models(), n=3, cutoff=0.3)
        raise InputError(f'{label}: timm {timm.__version__} has no such network'
                         f"{': did you mean ' + ', '.join(close) + '?' if close else ''}")
    sized = {} if img_size is None else dict(img_size=img_size)
    if random is None:
        path = Path(file) if file is not None else _published_by_timm(timm, label, name)
        body, origin = _timm_with_weights(timm, label, name, path, sized), sha256(path)
    else:
        with _seeded(random), _one_line_errors(label):
            body = timm.create_model(name, num_classes=0, **sized)
        origin = 'random', random
    config = timm.data.resolve_model_data_config(body)
    channels, height, width = config['input_size']
    if channels != 3 or height != width or config['crop_mode'] not in ('center', 'squash'):
        raise InputError(f'{label}: it takes images {tuple(config["input_size"])} (channels, height, width), '
                         f'cut by {config["crop_mode"]}; expected three channels, squares, center or squash')
    preprocessing = Preprocessing(img_size or height, tuple(config['mean']), tuple(config['std']),
                                  _interpolation(label, config['interpolation']),
                                  float(config['crop_pct']), config['crop_mode'] == 'center')
    made_from = 'timm', name.partition('.')[0], img_size, origin
    return LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _timm_with_weights(timm, label: str, name: str, path: Path, sized: dict) -> nn.Module:
    """The network with a file's weights, every one of them, and without its head.

    timm converts layouts of others, and compares strictly where it keeps the head: that of the published
    weights, or of as many classes as the file has, or none.
    """
    from timm.models import get_pretrained_cfg, load_state_dict
    with _one_line_errors(f'{label}: {path}'), _quiet('timm'):
        overlay = dict(file=str(path))
        heads = get_pretrained_cfg(name).classifier or ()
        heads, classes = (heads,) if isinstance(heads, str) else heads, 0
        if path.suffix not in ('.npz', '.npy'):             # which timm's networks read on their own
            overlay = dict(state_dict=load_state_dict(str(path), device='cpu'))
            if not overlay['state_dict']:                   # which timm would take for none given
                raise InputError(f'{label}: {path} holds no tensors')
            classes = max([len(t) for key, t in overlay['state_dict'].items()
                           if key.removesuffix('.weight') in heads and t.dim()], default=0)
        try:
            net = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **sized)
        except RuntimeError:
            if 'state_dict' not in overlay:
                raise
            overlay = dict(state_dict=load_state_dict(str(path), device='cpu'), num_classes=classes,
                           label_offset=0)
            net = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay,
                                    num_classes=classes, **sized)
        net.reset_classifier(0)
    return net


def _published_by_timm(timm, label: str, name: str) -> Path:
    """The file of the published weights, in the cache of the hub."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise InputError(f'{label}: there are no weights of it on the hub: give a file or a seed '
                         f'({label},file=PATH or {label},random=0)')
    given = config.hf_hub_filename
    names = _WEIGHTS if not given else (str(Path(given).with_suffix('.safetensors')), given)
    return _from_hub(label, config.hf_hub_id, names)


def transformers_network(name: str, file=None, random: int = None) -> tuple:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_transformers`."""
    transformers, label = _imported('transformers', file, random), f'transformers:{name}'
    with _quiet('transformers'), _one_line_errors(label):
        if name in transformers.CONFIG_MAPPING:
            if random is None and file is None:
                raise InputError(f'{label}: a type of model, which has no weights of its own: give the name '
                                 'of a model on the hub, a file or a seed '
                                 f'({label},file=PATH or {label},random=0)')
            folder, config = None, transformers.AutoConfig.for_model(name)
        else:
            folder = _folder_of(label, str(name))
            config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        if getattr(config, 'mask_ratio', 0):
            raise InputError(f'{label}: it masks its input at random: no features to rely on')
        preprocessing = _of_processor(label, *_processor(transformers, label, folder, config))
        config = getattr(config, 'vision_config', config)
        if random is None:
            path = Path(file) if file is not None else _weights_in(label, str(name), folder)
            body, origin = _transformers_with_weights(transformers, label, path, config), sha256(path)
        else:
            with _seeded(random):
                body = transformers.AutoModel.from_config(config)
            origin = 'random', random
    if _learned_pooler(body):
        body.pooler = None              # of pre-training alone; heads get the class token
    described = config.to_dict()
    for of_a_file in ('_name_or_path', 'transformers_version', 'architectures', 'dtype', 'torch_dtype'):
        described.pop(of_a_file, None)
    made_from = 'transformers', json.dumps(described, sort_keys=True, default=str), origin
    return LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _learned_pooler(body) -> bool:
    return isinstance(getattr(getattr(body, 'pooler', None), 'dense', None), nn.Linear)


def _transformers_with_weights(transformers, label: str, path: Path, config) -> nn.Module:
    """The network with a file's weights; InputError unless all of its features' tensors are in it."""
    from safetensors.torch import load_file
    tensors = (load_file(path) if path.suffix == '.safetensors'
               else torch.load(path, map_location='cpu', weights_only=True))
    with torch.device('meta'):
        kind = type(transformers.AutoModel.from_config(config))
    body, report = kind.from_pretrained(None, config=config, state_dict=tensors, output_loading_info=True)
    wrong = [key for key in report['missing_keys']
             if not (_learned_pooler(body) and key.startswith('pooler.'))]
    wrong += [str(key) for key in report.get('mismatched_keys', ())]
    if wrong:
        more = f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''
        raise InputError(f"{label}: {path} lacks tensors of {kind.__name__}, or has them in another shape: "
                         f"{', '.join(sorted(wrong)[:3])}{more}")
    return body.float()


def _folder_of(label: str, name: str) -> Path:
    """Where the config of a model lies: a folder of the user's, or in the cache of the hub."""
    if (Path(name) / 'config.json').is_file():
        return Path(name)
    if Path(name).is_absolute() or name.count('/') != 1 or Path(name).exists():
        raise InputError(f'{label}: no folder with a config.json, no name of a model on the hub (as '
                         'facebook/dinov2-small), and no type of model that transformers has')
    path = _from_hub(label, name, ('config.json',))
    _from_hub(label, name, ('preprocessor_config.json',), needed=False)
    return path.parent


def _weights_in(label: str, name: str, folder: Path) -> Path:
    found = [folder / file for file in _WEIGHTS if (folder / file).is_file()]
    if found:
        return found[0]
    if folder == Path(name):
        raise InputError(f"{label}: the folder has no {' or '.join(_WEIGHTS)}")
    return _from_hub(label, name, _WEIGHTS)


def _processor(transformers, label: str, folder, config) -> tuple:
    """(settings of the image processor, pixels that the network is made for or None)."""
    if folder is not None and (folder / 'preprocessor_config.json').is_file():
        # by Pillow: both kinds have the same settings, the other needs torchvision
        processor = transformers.AutoImageProcessor.from_pretrained(str(folder), local_files_only=True,
                                                                    backend='pil')
        return processor.to_dict(), None
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
    kinds = IMAGE_PROCESSOR_MAPPING.get(type(config), None)
    if not kinds:
        raise InputError(f'{label}: {type(config).__name__} has no image processor, and there is no '
                         'preprocessor_config.json next to its config.json: save one there')
    size = getattr(getattr(config, 'vision_config', config), 'image_size', None)
    return kinds['pil']().to_dict(), size if isinstance(size, int) else None


def _of_processor(label: str, settings: dict, made_for: int = None) -> Preprocessing:
    """From the settings of an image processor, whose names these are."""
    odd = [name for name in ('do_flip_channel_order', 'do_pad', 'do_thumbnail', 'rescale_offset',
                             'include_top') if settings.get(name)]
    if odd or not settings.get('do_resize', True):
        raise InputError(f"{label}: its image processor has unsupported steps ({', '.join(odd)}); expected "
                         'resize, crop, normalise')
    size = {key: value for key, value in dict(settings['size']).items() if value}
    keep_ratio = 'shortest_edge' in size
    side = size['shortest_edge'] if keep_ratio else size['height']
    kept, crop_size = side, settings.get('crop_size')
    if settings.get('do_center_crop') and crop_size:
        kept = crop_size['height'] if isinstance(crop_size, dict) else crop_size
    if kept > side or len({size.get('height'), size.get('width')}) > 1:
        raise InputError(f'{label}: its image processor resizes to {size} and keeps {crop_size}: expected '
                         'squares, and no padding')
    crop = kept / side
    if 'crop_pct' in settings:                              # as ConvNeXt's processor has it
        keep_ratio = side < 384
        crop = float(settings['crop_pct'] or 224 / 256) if keep_ratio else 1.0
    factor = settings.get('rescale_factor', 1 / 255) if settings.get('do_rescale', True) else 1
    unit = 1.0 if abs(255 * factor - 1) < 1e-9 else 255 * factor
    levels = [settings[name] for name in ('image_mean', 'image_std')]
    if not settings.get('do_normalize', True):
        levels = (0.0,) * 3, (1.0,) * 3
    return Preprocessing(made_for or kept, *(tuple(value / unit for value in values) for values in levels),
                         _interpolation(label, settings.get('resample')), crop, keep_ratio)


def _interpolation(label: str, kind) -> str:
    """A name of ours for one of timm's or a number of Pillow's."""
    name = {1: 'lanczos', 2: 'bilinear', 3: 'bicubic'}.get(kind, str(kind))
    if name not in INTERPOLATIONS:
        raise InputError(f'{label}: images are resized by {name}; expected {", ".join(INTERPOLATIONS)}')
    return name


def _from_hub(label: str, repository: str, names: tuple, needed: bool = True):
    """The path in the local cache of the first of these files that a model on the hub has; None where it has
    none of them and they are not needed.

    InputError: it is not in the cache, and the hub may not be asked, does not answer or does not have it.
    """
    import huggingface_hub as hub
    for name in names:
        path = hub.try_to_load_from_cache(repository, name)
        if isinstance(path, str):
            return Path(path)
    instead = f'put it there, or give a file or a seed ({label},file=PATH or {label},random=0)'
    where = f"{label}: {' or '.join(names)} of {repository} is not in {hub.constants.HF_HUB_CACHE}"
    if hub.constants.HF_HUB_OFFLINE:
        raise InputError(f'{where}, and HF_HUB_OFFLINE is set: {instead}')
    with _one_line_errors(f'{where}, and the hub does not give it; {instead}'):
        about = hub.HfApi().model_info(repository, timeout=_SECONDS)
        offered = {file.rfilename for file in about.siblings}
        name = next((name for name in names if name in offered), None)
        if name is None and needed:
            raise InputError(f"{label}: {repository} on the hub has no {' or '.join(names)}")
        return name and Path(hub.hf_hub_download(repository, name))


def _imported(name: str, file, random):
    """The library; InputError where it is not installed, or weights are not from one place that exists."""
    if random is not None:
        whole('random', random, 0, 2 ** 63 - 1)
        if file is not None:
            raise InputError(f'file {shown(str(file))} with random {random}: weights are from a file or from '
                             'a seed: give one of them')
    if file is not None and not Path(file).is_file():
        raise InputError(f'{file}: no such file of weights')
    try:
        return __import__(name)
    except ImportError as error:
        raise InputError(f'{name} is not installed ({error}): pip install {name}') from error


def _line_of(error: Exception) -> str:
    """An error of a library in one line, its kind first."""
    return f'{type(error).__name__}: {" ".join(str(error).split())[:200]}'


@contextmanager
def _one_line_errors(what: str):
    """Turn whatever a library raises into an InputError of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f'{what}: {_line_of(error)}') from error


@contextmanager
def _seeded(seed: int):
    """torch's generator on the CPU begins with a seed, and is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _quiet(name: str):
    """Silence a library's warnings, tables and bars: what is wrong is an error here."""
    logger, bars = logging.getLogger(name), None
    if name == 'transformers':
        from transformers.utils import logging as bars
    before, with_bars = logger.level, bars is not None and bars.is_progress_bar_enabled()
    logger.setLevel(logging.ERROR)
    if with_bars:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if with_bars:
            bars.enable_progress_bar()
