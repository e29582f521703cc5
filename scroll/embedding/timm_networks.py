"""Image networks of timm as backbones, with the preprocessing that timm names for them."""
import difflib
from pathlib import Path

from torch import nn

from scroll.archive import sha256
from scroll.arguments import whole
from scroll.embedding import libraries
from scroll.embedding.images import Preprocessing
from scroll.errors import InputError


def timm_network(name: str, file=None, random: int = None, img_size: int = None) -> tuple:
    """(network in eval mode, its `Preprocessing`); arguments and errors as `Embedder.from_timm`."""
    timm = libraries.imported('timm')
    libraries.check_source(random, file)
    if img_size is not None:
        whole('img_size', img_size, 1, 4096)
    if not isinstance(name, str) or not timm.is_model(name.partition('.')[0]):
        close = difflib.get_close_matches(str(name), timm.list_models(), n=3, cutoff=0.3)
        raise InputError(f'timm:{name}: timm {timm.__version__} has no such network'
                         f"{': did you mean ' + ', '.join(close) + '?' if close else ''}")
    sized = {} if img_size is None else dict(img_size=img_size)
    if random is None:
        path = libraries.existing(file) if file is not None else _published_by_timm(timm, name)
        body, origin = _timm_with(timm, name, path, sized), sha256(path)
    else:
        with libraries.seeded(random), libraries.told_in_a_line(f'timm:{name}'):
            body = timm.create_model(name, num_classes=0, **sized)
        origin = 'random', random
    preprocessing = _of_timm(name, timm.data.resolve_model_data_config(body), img_size)
    made_from = 'timm', name.partition('.')[0], img_size, origin
    return libraries.LibraryNetwork(body, preprocessing.input_size, made_from).eval(), preprocessing


def _timm_with(timm, name: str, path: Path, sized: dict) -> nn.Module:
    """The network with a file's weights, every one of them, and without its head.

    timm converts layouts of others, and compares strictly where it keeps the head: that of the published
    weights, or of as many classes as the file has, or none.
    """
    from timm.models import get_pretrained_cfg, load_state_dict
    with libraries.told_in_a_line(f'timm:{name}: {path}'), libraries.quiet('timm'):
        overlay = dict(file=str(path))
        heads = get_pretrained_cfg(name).classifier or ()
        heads, classes = (heads,) if isinstance(heads, str) else heads, 0
        if path.suffix not in ('.npz', '.npy'):             # which timm's networks read on their own
            overlay = dict(state_dict=load_state_dict(str(path), device='cpu'))
            if not overlay['state_dict']:                   # which timm would take for none given
                raise InputError(f'timm:{name}: {path} holds no tensors')
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


def _published_by_timm(timm, name: str) -> Path:
    """The file of the published weights, in the cache of the hub."""
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise InputError(f'timm:{name}: there are no weights of it on the hub: give a file or a seed '
                         f'(timm:{name},file=PATH or timm:{name},random=0)')
    given = config.hf_hub_filename
    names = libraries.WEIGHTS if not given else (str(Path(given).with_suffix('.safetensors')), given)
    return libraries.from_hub(f'timm:{name}', config.hf_hub_id, names)


def _of_timm(name: str, config: dict, img_size: int = None) -> Preprocessing:
    """From the data config of a network."""
    channels, height, width = config['input_size']
    if channels != 3 or height != width or config['crop_mode'] not in ('center', 'squash'):
        raise InputError(f'timm:{name}: it takes images {tuple(config["input_size"])} (channels, height, '
                         f'width), cut by {config["crop_mode"]}; expected three channels, squares, center or '
                         'squash')
    return Preprocessing(img_size or height, tuple(config['mean']), tuple(config['std']),
                         libraries.interpolation(f'timm:{name}', config['interpolation']),
                         float(config['crop_pct']), config['crop_mode'] == 'center')
