"""Image networks of transformers as backbones, with the preprocessing of their image processors."""
import json
from pathlib import Path

import torch
from torch import nn

from scroll.archive import sha256
from scroll.embedding import libraries
from scroll.embedding.images import Preprocessing
from scroll.errors import InputError


def transformers_network(name: str, file=None, random: int = None) -> tuple:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_transformers`."""
    transformers = libraries.imported('transformers')
    libraries.check_source(random, file)
    told, folder = f'transformers:{name}', None
    with libraries.quiet('transformers'):
        if name in transformers.CONFIG_MAPPING:
            if random is None and file is None:
                raise InputError(f'{told}: a type of model, which has no weights of its own: give the name '
                                 'of a model on the hub, a file or a seed '
                                 f'({told},file=PATH or {told},random=0)')
            with libraries.told_in_a_line(told):
                config = transformers.AutoConfig.for_model(name)
        else:
            folder = _folder(told, str(name))
            with libraries.told_in_a_line(told):
                config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        with libraries.told_in_a_line(told):
            if getattr(config, 'mask_ratio', 0):
                raise InputError(f'{told}: it masks its input at random: no features to rely on')
            preprocessing = _of_transformers(told, *_processor(transformers, told, folder, config))
            config = getattr(config, 'vision_config', config)
            if random is None:
                path = libraries.existing(file) if file is not None else _weights_of(told, str(name), folder)
                body, origin = _transformers_with(transformers, told, path, config), sha256(path)
            else:
                with libraries.seeded(random):
                    body = transformers.AutoModel.from_config(config)
                origin = 'random', random
    if _learned_pooler(body):
        body.pooler = None              # of pre-training alone; heads get the class token
    described = config.to_dict()
    for of_a_file in ('_name_or_path', 'transformers_version', 'architectures', 'dtype', 'torch_dtype'):
        described.pop(of_a_file, None)
    made_from = 'transformers', json.dumps(described, sort_keys=True, default=str), origin
    return libraries.LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _learned_pooler(body) -> bool:
    return isinstance(getattr(getattr(body, 'pooler', None), 'dense', None), nn.Linear)


def _transformers_with(transformers, told: str, path: Path, config) -> nn.Module:
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
        raise InputError(f"{told}: {path} lacks tensors of {kind.__name__}, or has them in another shape: "
                         f"{', '.join(sorted(wrong)[:3])}{more}")
    return body.float()


def _folder(told: str, name: str) -> Path:
    """Where the config of a model lies: a folder of the user's, or in the cache of the hub."""
    if (Path(name) / 'config.json').is_file():
        return Path(name)
    if Path(name).is_absolute() or name.count('/') != 1 or Path(name).exists():
        raise InputError(f'{told}: no folder with a config.json, no name of a model on the hub (as '
                         'facebook/dinov2-small), and no type of model that transformers has')
    path = libraries.from_hub(told, name, ('config.json',))
    libraries.from_hub(told, name, ('preprocessor_config.json',), needed=False)
    return path.parent


def _weights_of(told: str, name: str, folder: Path) -> Path:
    found = [folder / file for file in libraries.WEIGHTS if (folder / file).is_file()]
    if found:
        return found[0]
    if folder == Path(name):
        raise InputError(f"{told}: the folder has no {' or '.join(libraries.WEIGHTS)}")
    return libraries.from_hub(told, name, libraries.WEIGHTS)


def _processor(transformers, told: str, folder, config) -> tuple:
    """(settings of the image processor, pixels that the network is made for or None)."""
    if folder is not None and (folder / 'preprocessor_config.json').is_file():
        # by Pillow: both kinds have the same settings, the other needs torchvision
        processor = transformers.AutoImageProcessor.from_pretrained(str(folder), local_files_only=True,
                                                                    backend='pil')
        return processor.to_dict(), None
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING
    kinds = IMAGE_PROCESSOR_MAPPING.get(type(config), None)
    if not kinds:
        raise InputError(f'{told}: {type(config).__name__} has no image processor, and there is no '
                         'preprocessor_config.json beside its config.json: save one there')
    size = getattr(getattr(config, 'vision_config', config), 'image_size', None)
    return kinds['pil']().to_dict(), size if isinstance(size, int) else None


def _of_transformers(told: str, settings: dict, made_for: int = None) -> Preprocessing:
    """From the settings of an image processor, whose names these are."""
    odd = [name for name in ('do_flip_channel_order', 'do_pad', 'do_thumbnail', 'rescale_offset',
                             'include_top') if settings.get(name)]
    if odd or not settings.get('do_resize', True):
        raise InputError(f"{told}: its image processor does more than to resize, cut and normalise, or less: "
                         f"{', '.join(odd) or 'no resizing'}")
    size = {key: value for key, value in dict(settings['size']).items() if value}
    keep_ratio = 'shortest_edge' in size
    side = size['shortest_edge'] if keep_ratio else size['height']
    kept, crop_size = side, settings.get('crop_size')
    if settings.get('do_center_crop') and crop_size:
        kept = crop_size['height'] if isinstance(crop_size, dict) else crop_size
    if kept > side or len({size.get('height'), size.get('width')}) > 1:
        raise InputError(f'{told}: its image processor resizes to {size} and keeps {crop_size}: expected '
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
                         libraries.interpolation(told, settings.get('resample')), crop, keep_ratio)
