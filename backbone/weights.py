"""Pre-trained weights: self-describing files, read without running code from them.

A weights file is a safetensors file: every tensor of the feature extractor (no head) in half
precision, and as metadata one JSON text with the architecture and its options, input size,
normalisation, the classes and data it was trained on and how well it does. Where files lie by name,
`backbone/weight_files.py` says; others: checkpoints (`backbone/checkpoints.py`), networks of timm
(`backbone/libraries.py`).
"""

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from backbone import PLUGINS, checkpoints, feature_tensors, recorded_scales, weight_files
from backbone.libraries import is_of_a_library, network_of
from core.plugins import normalise
from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork
from scroll.ground.archive import atomic_write, sha256
from scroll.ground.errors import InputError, prefixed

DEFAULT = 'compact'
_FORMAT = 'scroll-bench-weights-1'


@dataclass
class Weights:
    """A feature extractor's tensors and what they need to be used.

    Attributes:
        name: as given.
        digest: SHA-256 of the file; of a network of another library, of its origin.
        tensors: state-dict name -> float32 tensor; no classifier, no batch counters.
        backbone: registered backbone name.
        options: its keyword arguments, for example `{'width': 32}`.
        input_size: pixels.
        mean, std: per channel, for images in [0, 1].
        info: classes seen, data digest, recipe, accuracies; a data set that it `saw` with all
            classes.
        resampling: other arguments of `Preprocessing`."""

    name: str
    digest: str
    tensors: dict
    backbone: str
    options: dict
    input_size: int
    mean: tuple
    std: tuple
    info: dict = field(default_factory=dict)
    resampling: dict = field(default_factory=dict)

    def preprocessing(self, input_size: int | None = None) -> Preprocessing:
        """Return what the network expects of its input, at its own size or another."""
        return Preprocessing(input_size or self.input_size, self.mean, self.std, **self.resampling)

    def load_into(self, net: torch.nn.Module) -> None:
        """Copy every tensor into `net`, all but its classifier; InputError if they do not fit."""
        wrong = _misfits(self.tensors, net)
        if wrong:
            raise InputError(
                f'--weights {self.name}: {wrong} --backbone {self.backbone} {self.options}'
            )
        net.load_state_dict({**net.state_dict(), **self.tensors})


def _misfits(tensors: dict, net: torch.nn.Module) -> str:
    """The first tensors that are missing on either side or have another shape, or ''."""
    shapes, wanted = (
        {name: tuple(t.shape) for name, t in part.items()}
        for part in (tensors, feature_tensors(net))
    )
    wrong = [
        f'{name} {shapes.get(name, "(missing)")} for {wanted.get(name, "(unknown)")}'
        for name in wanted | shapes
        if shapes.get(name) != wanted.get(name)
    ]
    more = f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''
    return f'{", ".join(wrong[:3])}{more}: these tensors do not fit' if wrong else ''


def save(
    path, net: torch.nn.Module, backbone: str, options: dict, input_size: int, mean, std, info: dict
) -> None:
    """Write the feature extractor of `net` to `path` in half precision, whole or not at all."""
    tensors = {name: t.detach().half().contiguous() for name, t in feature_tensors(net).items()}
    bad = [name for name, t in tensors.items() if not torch.isfinite(t).all()]
    if bad:
        raise ValueError(f'not finite in half precision: {bad[0]}')
    about = {
        'format': _FORMAT,
        'backbone': backbone,
        'options': options,
        'input_size': input_size,
        'mean': mean,
        'std': std,
        'info': info,
    }
    metadata = {'about': json.dumps(about, sort_keys=True)}
    with atomic_write(path) as file:
        file.write(safetensors_bytes(tensors, metadata=metadata))


def integer_file(name: str) -> Path:
    """Path of the integer network of weights: next to them; of packaged ones, recorded scales.

    InputError: there are no such weights, or they cannot have one."""
    if name == 'none' or is_of_a_library(name):
        raise InputError(
            f'--weights {name}: no integer network: features hold on one kind of machine '
            '(--dtype float32 or bfloat16)'
        )
    if name in weight_files.PACKAGED:
        return weight_files.SHIPPED / f'{name}.scales.json'
    return weight_files.find(name).with_suffix('.integer.npz')


def has_integers(name: str, input_size: int | None = None) -> bool:
    """True if there is an integer network of these weights, for images of this size.

    input_size: None: their own."""
    if name == 'none' or is_of_a_library(name) or not integer_file(name).is_file():
        return False
    trained_at = load(name, tensors=False).input_size
    sizes = [trained_at]
    if name in weight_files.PACKAGED:
        sizes = recorded_scales.sizes(integer_file(name))
    return (input_size or trained_at) in sizes


def integers_of(name: str, net: torch.nn.Module, preprocessing, cache=None) -> IntegerNetwork:
    """Read the integer network of weights; of packaged ones, make it and keep it in `cache`.

    InputError: there is none, or it is of other weights, or for images of another size."""
    path = integer_file(name)
    if not path.is_file():
        raise InputError(
            f'--dtype integer: {path} is not there: python pretrain.py quantise {name}'
        )
    if name in weight_files.PACKAGED:
        return recorded_scales.network(path, name, net, preprocessing, cache)
    network, about = IntegerNetwork.load(path)
    recorded_scales.check_source(about.get('psi'), net, path, name)
    if network.input_size != preprocessing.input_size:
        raise InputError(
            f'--dtype integer: {path} takes images of {network.input_size} pixels: '
            f'--input_size {preprocessing.input_size} needs one of its own'
        )
    return network


def network(name: str, input_size: int | None = None) -> tuple:
    """(network in eval mode, `Preprocessing` for its own size or another) of these weights."""
    about = load(name)
    with torch.device('cpu'):  # and float32, whatever torch's defaults are
        net = PLUGINS.get(about.backbone)(num_classes=1, **about.options).float()
    about.load_into(net)
    return net.eval(), about.preprocessing(input_size)


def embedder(
    name: str = DEFAULT,
    cache=None,
    input_size: int | None = None,
    stages: tuple = (),
    mirror: bool = False,
) -> Embedder:
    """An `Embedder` of these weights, in integers where they have an integer network.

    cache: folder for features, or None.
    stages, mirror: as of `Embedder`."""
    net, preprocessing = network(name, input_size)
    integers = None
    if has_integers(name, input_size):
        folder = cache and Path(cache) / 'integers'
        integers = integers_of(name, net, preprocessing, folder)
    dtype = 'integer' if integers else 'float32'
    return Embedder(
        net, preprocessing, dtype, cache=cache, integers=integers, stages=stages, mirror=mirror
    )


def load(name: str, tensors: bool = True) -> Weights:
    """Read weights by name or path; `tensors=False` gives only their description.

    InputError: there is no such file, or it is damaged, or in no format known here, or does not fit
    its backbone."""
    name = str(name)
    if is_of_a_library(name):
        return _of_a_library(name, tensors)
    path = weight_files.find(name)
    with prefixed(f'--weights {name}'):
        try:
            status = path.stat()
            content, digest = _read(path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            raise InputError(f'{path}: {error.strerror}') from error
    fields = content | {'options': dict(content['options']), 'tensors': {}}
    if tensors:
        fields['tensors'] = dict(content['tensors'])
    return Weights(name, digest, **fields)


def _of_a_library(name: str, tensors: bool) -> Weights:
    net, preprocessing, options, info = network_of(name)
    fields = asdict(preprocessing)
    levels = [fields.pop(key) for key in ('input_size', 'mean', 'std')]
    state = feature_tensors(net) if tensors else {}
    digest = bytes(net.origin.tolist()).hex()
    return Weights(name, digest, state, 'timm', dict(options), *levels, dict(info), fields)


@lru_cache(maxsize=2)  # a run asks several times, and BYOL's file takes seconds
def _read(path: Path, size: int, modified: int) -> tuple:
    """(content, digest) of a file, whose tensors are all of its backbone, and finite.

    size, modified: of the file; they tell the cache when it is another."""
    content = checkpoints.read(path) if checkpoints.is_checkpoint(path) else _read_safetensors(path)
    try:
        with torch.device('meta'):
            net = PLUGINS.get(content['backbone'])(1, **content['options'])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(str(error)) from error
    wrong = _misfits(content['tensors'], net)
    if wrong:
        raise InputError(f'{wrong} --backbone {content["backbone"]} {content["options"]}')
    for key, t in content['tensors'].items():
        if not torch.isfinite(t).all():
            raise InputError(f'tensor {key} is not finite; the file is damaged')
    return content, sha256(path)


def _read_safetensors(path: Path) -> dict:
    """A file of ours, or a bare state dict, which has no metadata."""
    try:
        with safe_open(path, framework='pt') as file:
            about = json.loads((file.metadata() or {}).get('about', 'null'))
            names = file.keys()  # safe_open is no mapping
            values = {key: file.get_tensor(key) for key in names}
    except (SafetensorError, ValueError, RecursionError) as error:
        raise InputError(
            f'damaged, or neither a safetensors file nor a checkpoint ({error})'
        ) from error
    if about is None:
        return checkpoints.from_state_dict(values)
    try:
        if about['format'] != _FORMAT or len(about['mean']) != 3:
            raise ValueError('another format')
        options = dict(about['options'])
        info = dict(about['info'])
        backbone = normalise(about['backbone'])
        preprocessing = Preprocessing(about['input_size'], about['mean'], about['std'])
        if backbone == 'resnet18' and 'width' in options:  # as the shipped files call it
            backbone = 'resnet18-md'
        PLUGINS.check(backbone)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise InputError(
            'it does not say what it is; expected the metadata that pretrain.py writes'
        ) from error
    tensors = {key: t.float() for key, t in checkpoints.named_for(backbone, values).items()}
    return {
        'tensors': tensors,
        'backbone': backbone,
        'options': options,
        'input_size': preprocessing.input_size,
        'mean': preprocessing.mean,
        'std': preprocessing.std,
        'info': info,
    }
