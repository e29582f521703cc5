"""Checkpoints of others, read as tensors of a backbone of ours; no code that they name is run.

What a file holds is recognised by its content, never by its name:

| file | recognised by | backbone |
|---|---|---|
| training checkpoint (URL, torch's examples) | dict with `state_dict` | by its tensors |
| RFS, SCROLL, Mammoth: `{model, ...}` | dict with `model` | by its tensors |
| BYOL: `{experiment_state, ...}`, Haiku names | dict with `experiment_state` | resnet50-byol |
| EfficientNet-Lite | a dict of tensors with `_conv_stem` | efficientnet-lite |
| bare state dict | a dict of tensors | by its tensors |

Heads and batch counters are left out. What fits no backbone keeps its name, and `weights.load`
reports it.
Images are expected as the architecture's published weights expect them.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch

from backbone import efficientnet_lite, feature_tensors
from backbone.resnet50_byol import ResNet50Byol
from core import safe_pickle
from core.torch_files import IGNORED, load_torch
from scroll.ground.errors import InputError


class Architecture(NamedTuple):
    """A backbone, its option of the number of channels, and the images its weights expect."""

    backbone: str
    width: str | None
    input_size: int
    mean: tuple
    std: tuple


HALF = ((0.5,) * 3, (0.5,) * 3)  # [0, 1] -> [-1, 1]
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))
MINI_IMAGENET = (
    tuple(v / 255 for v in (120.39586422, 115.59361427, 104.54012653)),  # of RFS
    tuple(v / 255 for v in (70.68188272, 68.27635443, 72.54505529)),
)
ARCHITECTURES = {  # (side of the stem's kernel or 0, convolutions of a block, blocks of each stage)
    (5, 2, (2, 2, 2, 2)): Architecture('resnet18-md', 'width', 84, *HALF),
    (0, 3, (1, 1, 1, 1)): Architecture('resnet12', 'width', 84, *MINI_IMAGENET),
    (3, 2, (2, 2, 2, 2)): Architecture('resnet18', 'num_filters', 32, *CIFAR10),
    (3, 2, (3, 4, 6, 3)): Architecture('resnet34', 'num_filters', 32, *CIFAR10),
}
_BYOL = Architecture('resnet50-byol', 'width', 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_PREFIXES = ('net.', 'module.', 'backbone.')  # of Mammoth, data parallelism, SCROLL
# the number that opens files of torch before 1.6
_LEGACY_TORCH = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'


def is_checkpoint(path) -> bool:
    """True if the file at `path` is one of torch's or a pickle, by its first bytes.

    A safetensors file begins with the length of a JSON text in 8 bytes, which may look like a
    pickle, then the text."""
    with open(path, 'rb') as file:
        start = file.read(9)
    return start.startswith((b'PK\x03\x04', b'\x80')) and not start.endswith(b'\0\0\0\0{')


def read(path) -> dict:
    """Read a file of torch's or a pickle: the fields of `weights.Weights` but name and digest.

    InputError: it is damaged, names code, or holds no network that is known here."""
    with open(path, 'rb') as file:
        start = file.read(len(_LEGACY_TORCH))
    if start.startswith(b'PK') or start == _LEGACY_TORCH:
        content = load_torch(path)
    else:
        content = safe_pickle.load(path, records=('byol', 'haiku', 'optax'))
    if not isinstance(content, dict):
        raise InputError(
            f'it holds a {type(content).__name__} where a dict of tensors was expected'
        )
    if 'experiment_state' in content:
        return from_byol(content['experiment_state'])
    for entry in ('state_dict', 'model'):
        if isinstance(content.get(entry), dict):
            return from_state_dict(content[entry])
    return from_state_dict(content)


def from_state_dict(state: dict) -> dict:
    """Read a state dict (name -> tensor), whatever its names are prefixed with."""
    state = {str(name): t for name, t in state.items()}
    for prefix in _PREFIXES:
        if any(name.startswith(prefix) for name in state):  # a method has more than its network
            state = {
                name.removeprefix(prefix): t
                for name, t in state.items()
                if prefix != 'net.' or name.startswith(prefix)
            }
    state = {
        name: t
        for name, t in state.items()
        if not any(pattern.fullmatch(name) for pattern in IGNORED.values())
    }
    for name, t in state.items():
        strided = isinstance(t, torch.Tensor) and t.layout == torch.strided
        if not strided or not t.is_floating_point():
            raise InputError(f'{name} is no ordinary tensor of real numbers')
    if '_conv_stem.weight' in state:
        tensors, variant = efficientnet_lite.from_published(state)
        size = efficientnet_lite.INPUT_SIZES[variant]
        levels = (127 / 255,) * 3, (128 / 255,) * 3
        architecture = Architecture('efficientnet-lite', None, size, *levels)
        return _checkpoint(architecture, tensors, {'variant': variant}, saw='ImageNet')
    anatomy = stem, convolutions, stages = _anatomy(state)
    if anatomy not in ARCHITECTURES:
        raise InputError(
            f'its tensors ({", ".join(list(state)[:3])}, ...) are those of no backbone that can '
            f'be read: conv1 of {stem} px, blocks {"-".join(map(str, stages)) or "none"} of '
            f'{convolutions} convolutions; known: '
            f'{", ".join(sorted(a.backbone for a in ARCHITECTURES.values()))}'
        )
    architecture = ARCHITECTURES[anatomy]
    return _checkpoint(architecture, named_for(architecture.backbone, state), {})


def named_for(backbone: str, tensors: dict) -> dict:
    """Rename projections for the backbone: Mammoth's names in its ResNets, else torch's."""
    word = 'shortcut' if backbone in ('resnet18', 'reduced-resnet18', 'resnet34') else 'downsample'
    return {
        re.sub(r'\.(shortcut|downsample)\.', f'.{word}.', name): t for name, t in tensors.items()
    }


def _checkpoint(architecture: Architecture, tensors: dict, options: dict, **info) -> dict:
    """The fields that `read` returns."""
    fields = architecture._asdict()
    width = fields.pop('width')
    norm = tensors.get('layer1.0.bn1.weight')
    if width and norm is not None:
        options = {width: len(norm.flatten()), **options}
    tensors = {name: t.detach().float() for name, t in tensors.items()}
    return fields | {'tensors': tensors, 'options': options, 'info': info}


def _anatomy(state: dict) -> tuple:
    """A key of `ARCHITECTURES`; a block counts by any of its convolutions, if one is missing."""
    blocks = set()
    convolutions = 0
    for name in state:
        match = re.fullmatch(r'(layer\d)\.(\d)\.conv(\d)\.weight', name)
        if match:
            blocks.add((match[1], match[2]))
            convolutions = max(convolutions, int(match[3]))
    stages = Counter(stage for stage, _ in sorted(blocks))
    stem = state.get('conv1.weight', torch.empty(0))
    return stem.shape[2] if stem.dim() == 4 else 0, convolutions, tuple(stages.values())


_BYOL_LEAVES = {
    'weight': 'scale',
    'bias': 'offset',
    'running_mean': 'mean_ema/average',
    'running_var': 'var_ema/average',
}


def from_byol(experiment) -> dict:
    """Read the online network's torso in BYOL's `pretrain_res50x1.pkl`.

    https://github.com/google-deepmind/deepmind-research, folder byol.

    experiment: (online parameters, target's, online state, target's, optimiser's), the first four
        {module path: {leaf: array}}; kernels are (height, width, in, out), norms' arrays (1, 1,
        1, C)."""
    try:
        arrays = {}
        for modules in (experiment[0], experiment[2]):
            for path, leaves in _mapping(modules).items():
                module = path.replace('/~', '').partition('res_net50/')[2]
                arrays |= {f'{module}/{leaf}': array for leaf, array in _mapping(leaves).items()}
        with torch.device('meta'):
            net = ResNet50Byol(1, width=arrays['initial_conv/w'].shape[-1])
        tensors = {}
        for name in feature_tensors(net):
            array = np.asarray(arrays[_in_haiku(name)], np.float32)
            if array.size == array.shape[-1]:
                array = array.reshape(-1)
            else:
                array = array.transpose(3, 2, 0, 1)
            tensors[name] = torch.from_numpy(array.copy('C'))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f'not a BYOL checkpoint known here: {error!r}') from error
    return _checkpoint(_BYOL, tensors, {}, saw='ImageNet')


def _mapping(value) -> dict:
    """A dict, or the one that Haiku's own mapping was made from."""
    return value[0] if isinstance(value, tuple) else value


def _in_haiku(name: str) -> str:
    """`layer1.1.conv3.weight` -> `block_group_0/block_1/conv_2/w`."""
    stage, block, kind, number, leaf = re.fullmatch(
        r'(?:layer(\d)\.(\d)\.)?(conv|bn|downsample\.)(\d)\.(\w+)', name
    ).groups()
    shortcut = kind == 'downsample.'
    conv = kind == 'conv' or (shortcut and number == '0')
    module = f'{"conv" if conv else "batchnorm"}/{"w" if conv else _BYOL_LEAVES[leaf]}'
    if stage is None:
        return f'initial_{module}'
    module = f'shortcut_{module}' if shortcut else module.replace('/', f'_{int(number) - 1}/', 1)
    return f'block_group_{int(stage) - 1}/block_{block}/{module}'
