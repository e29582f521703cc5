"""Checkpoints of others, read as tensors of a backbone of ours; no code that they name is run.

What a file holds is recognised by its content, never by its name:

| file | recognised by | backbone |
|---|---|---|
| training checkpoint (URL, torch's examples) | dict with `state_dict` | by its tensors |
| RFS, SCROLL: `{opt or epoch, model}` | dict with `model` | by its tensors |
| Mammoth: `{model, args, optimizer, ...}` | names `net.*` under `model` | by its tensors; input by data set |
| BYOL: `{experiment_state, step, rng}`, Haiku names | dict with `experiment_state` | resnet50-byol |
| EfficientNet-Lite | a dict of tensors with `_conv_stem` | efficientnet-lite |
| bare state dict (torchvision) | a dict of tensors | by its tensors |

Every tensor becomes one of the backbone's or falls under a rule that says why it is not needed
(`Checkpoint.info['ignored']`). What fits neither keeps its name, and the check against the backbone reports
it. Where a file does not say how its images were normalised, it is what the architecture's published weights
expect.
"""
import argparse
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch

from backbone import efficientnet_lite
from core import safe_pickle
from core.torch_files import IGNORED, load_torch
from scroll.errors import InputError

HALF = ((0.5,) * 3, (0.5,) * 3)  # [0, 1] -> [-1, 1]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
EFFICIENTNET_LITE = ((127 / 255,) * 3, (128 / 255,) * 3)
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615))
CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
TINY_IMAGENET = ((0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821))
MINI_IMAGENET = (tuple(v / 255 for v in (120.39586422, 115.59361427, 104.54012653)),                # of RFS
                 tuple(v / 255 for v in (70.68188272, 68.27635443, 72.54505529)))


class Architecture(NamedTuple):
    """A backbone, the option of its number of channels, and the images its published weights expect."""
    backbone: str
    width: str | None
    input_size: int
    normalisation: tuple


ARCHITECTURES = {   # (side of the stem's kernel or 0, convolutions of a block, blocks of each stage)
    (5, 2, (2, 2, 2, 2)): Architecture('resnet18-md', 'width', 84, HALF),
    (0, 3, (1, 1, 1, 1)): Architecture('resnet12', 'width', 84, MINI_IMAGENET),
    (3, 2, (2, 2, 2, 2)): Architecture('resnet18', 'num_filters', 32, CIFAR10),
    (3, 2, (3, 4, 6, 3)): Architecture('resnet34', 'num_filters', 32, CIFAR10),
    (3, 2, (5, 5, 5)): Architecture('resnet32', 'num_filters', 32, CIFAR10),
    (7, 2, (2, 2, 2, 2)): Architecture('resnet18-tv', None, 224, IMAGENET),
    (7, 3, (3, 4, 6, 3)): Architecture('resnet50-tv', None, 224, IMAGENET),
}
BYOL = Architecture('resnet50-byol', 'width', 224, IMAGENET)
MAMMOTH_INPUT = {'seq-cifar10': (32, CIFAR10), 'seq-cifar100': (32, CIFAR100),
                 'seq-tinyimg': (64, TINY_IMAGENET)}

_HIDDEN_OPTIONS = {'stem_padding': (1, 2), 'stride_on': ('3x3', '1x1')}     # no tensor shows them
_MOST_NUMBERS = 10 ** 9
_PREFIXES = ('net.', 'module.', 'backbone.')        # of Mammoth, data parallelism, SCROLL
_LEGACY_TORCH = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'  # the number that opens files of torch before 1.6


class Checkpoint(NamedTuple):
    """What a file holds, in our terms; the fields are those of `backbone.weights.Weights`.

    `info`: `format`; `ignored`: rule -> how many tensors or which entries it took out; `saw`: a data set all
    of whose classes it was trained on, where that is known and limits what it may be tested on.
    """
    tensors: dict
    backbone: str
    options: dict
    input_size: int
    mean: tuple
    std: tuple
    info: dict


def is_checkpoint(path) -> bool:
    """Whether the file at `path` is one of torch's or a pickle, by its first bytes, and no safetensors file.

    The latter begins with the length of a JSON text in 8 bytes, which may look like a pickle, then the text.
    """
    with open(path, 'rb') as file:
        start = file.read(9)
    return start.startswith((b'PK\x03\x04', b'\x80')) and not start.endswith(b'\0\0\0\0{')


def read(path) -> Checkpoint:
    """The checkpoint in a file of torch's or a pickle.

    Raises:
        InputError: it is damaged, names code, or holds no network that is known here.
    """
    with open(path, 'rb') as file:
        start = file.read(len(_LEGACY_TORCH))
    if start.startswith(b'PK') or start == _LEGACY_TORCH:
        content = load_torch(path)
    else:
        content = safe_pickle.load(path, records=('byol', 'haiku', 'optax'))
    try:
        if isinstance(content, dict) and 'experiment_state' in content:
            return from_byol(content)
        return from_state_dict(*_state_dict(content))
    except InputError as error:
        raise InputError(f'{path}: {error}') from error


def _state_dict(content) -> tuple:
    """(state dict, format, what else is in the file, arguments of the run) of what torch loaded."""
    if not isinstance(content, dict) or not content:
        raise InputError(f'it holds a {type(content).__name__} where a dict of tensors was expected')
    for entry, kind in (('state_dict', 'checkpoint with state_dict'), ('model', 'checkpoint with model')):
        if isinstance(content.get(entry), dict):
            given = content.get('args')
            args = vars(given) if isinstance(given, argparse.Namespace) else given
            if any(str(name).startswith('net.') for name in content[entry]):
                kind = 'Mammoth checkpoint'
            beside = sorted(str(name) for name in content if name != entry)
            return content[entry], kind, beside, args if isinstance(args, dict) else {}
    return content, 'state dict', [], {}


def from_state_dict(state: dict, kind: str = 'state dict', beside=(), args=None) -> Checkpoint:
    """The checkpoint that a state dict is, whatever its names are prefixed with.

    Args:
        state: name -> tensor. kind: of file it comes from. beside: entries of the file that are not used.
        args: of the run that wrote it: its data set says what images were like, and some options show in no
            tensor.

    Raises:
        InputError: it is no architecture known here, or has what is no tensor of real numbers, or two tensors
            of one name.
    """
    _refuse([name for name, t in state.items()
             if not isinstance(name, str) or not isinstance(t, torch.Tensor)])
    if sum(t.numel() for t in state.values()) > _MOST_NUMBERS:      # a stride of 0 makes any number of one
        raise InputError(f'its tensors stand for more than {_MOST_NUMBERS:,} numbers, more than any backbone '
                         'here has')
    ignored = {'beside the network': list(beside)} if beside else {}
    for prefix in _PREFIXES:
        if any(name.startswith(prefix) for name in state):
            if prefix == 'net.':                            # what a method of Mammoth has beside its network
                ignored['of the method'] = sum(not name.startswith(prefix) for name in state)
                state = {name: t for name, t in state.items() if name.startswith(prefix)}
            state = _renamed(state, [name.removeprefix(prefix) for name in state])
    for rule, pattern in IGNORED.items():
        ignored[rule] = sum(bool(pattern.fullmatch(name)) for name in state)
        state = {name: t for name, t in state.items() if not pattern.fullmatch(name)}
    _refuse([name for name, t in state.items()
             if not t.is_floating_point() or t.layout != torch.strided or t.is_meta])
    if '_conv_stem.weight' in state:
        return _from_efficientnet_lite(state, kind, ignored)
    state = _renamed(state, [name.replace('.shortcut.', '.downsample.') for name in state])  # Mammoth's word
    stem, convolutions, stages = _anatomy(state)
    architecture = ARCHITECTURES.get((stem, convolutions, stages))
    if architecture is None:
        raise InputError(f"its tensors ({_first(list(state))}) are those of no backbone that can be read: "
                         f"conv1 of {stem} px, blocks {'-'.join(map(str, stages)) or 'none'} of "
                         f"{convolutions} convolutions; known: "
                         f"{', '.join(sorted(a.backbone for a in ARCHITECTURES.values()))}")
    args = {name: value for name, value in (args or {}).items() if type(value) in (int, str)}
    if architecture.backbone == 'resnet50-tv' and args.get('backbone') == BYOL.backbone:    # the same tensors
        architecture = BYOL
    input_size, normalisation = MAMMOTH_INPUT.get(str(args.get('dataset')).replace('_', '-'),
                                                  architecture[2:])
    architecture = architecture._replace(input_size=input_size, normalisation=normalisation)
    return _checkpoint(architecture, state, kind, ignored,
                       {name: args[name] for name, values in _HIDDEN_OPTIONS.items()
                        if args.get(name) in values})


def _from_efficientnet_lite(state: dict, kind: str, ignored: dict) -> Checkpoint:
    tensors, variant = efficientnet_lite.from_published(state)
    architecture = Architecture('efficientnet-lite', None, efficientnet_lite.INPUT_SIZES[variant],
                                EFFICIENTNET_LITE)
    found = _checkpoint(architecture, tensors, kind, ignored, dict(variant=variant))
    return found._replace(info=found.info | dict(saw='ImageNet'))


def _checkpoint(architecture: Architecture, tensors: dict, kind: str, ignored: dict,
                options: dict) -> Checkpoint:
    tensors = {name: t.detach().float() for name, t in tensors.items()}
    channels = [tensors[name].shape[0] for name in ('layer1.0.bn1.weight', 'layer1.0.bn1.bias')
                if name in tensors and tensors[name].dim() == 1]
    if architecture.width and channels:
        options = {architecture.width: channels[0], **options}
    return Checkpoint(tensors, architecture.backbone, options, architecture.input_size,
                      *architecture.normalisation,
                      dict(format=kind, ignored={rule: what for rule, what in ignored.items() if what}))


def _refuse(odd: list) -> None:
    if odd:
        raise InputError(f'not a checkpoint known here: {_first(odd)}: not an ordinary tensor of real '
                         'numbers under a name')


def _renamed(state: dict, names: list) -> dict:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f'two of its tensors are {twice[0]} of the network')
    return dict(zip(names, state.values()))


def _anatomy(state: dict) -> tuple:
    """A key of `ARCHITECTURES`; all convolutions of a stage count, so that a missing one hides nothing."""
    found = [re.fullmatch(r'layer(\d)\.(\d)\.conv(\d)\.weight', name) for name in state]
    blocks = sorted({(m[1], m[2]) for m in found if m})
    stages = [stage for stage, _ in blocks]
    stem = state.get('conv1.weight', torch.empty(0))
    return (stem.shape[2] if stem.dim() == 4 else 0, max((int(m[3]) for m in found if m), default=0),
            tuple(stages.count(stage) for stage in sorted(set(stages))))


def _first(names: list) -> str:
    return ', '.join(map(str, names[:3])) + (f' and {len(names) - 3} more' if len(names) > 3 else '')


# -- BYOL: parameters as Haiku names and lays them out -------------------------------------------------------

_BYOL_HEADS = {'projector', 'predictor', 'classifier'}
_BYOL_MODULE = re.compile(r'(?:.*/)?res_net\w*/'
                          r'(?:initial_|block_group_(?P<stage>\d)/block_(?P<block>\d)/(?P<shortcut>shortcut_)?)'
                          r'(?P<kind>conv|batchnorm)(?:_(?P<index>\d))?')
_BYOL_LEAVES = {('conv', 'w'): 'weight', ('batchnorm', 'scale'): 'weight', ('batchnorm', 'offset'): 'bias',
                ('batchnorm', 'mean_ema/average'): 'running_mean',
                ('batchnorm', 'var_ema/average'): 'running_var'}


def from_byol(content: dict) -> Checkpoint:
    """The online network's torso of BYOL's `pretrain_res50x1.pkl`.

    The file is of https://github.com/google-deepmind/deepmind-research, folder byol. `experiment_state` is
    (online parameters, target's, online state, target's, optimiser's). Parameters and state are
    {module path: {leaf: array}}, where a batch norm's running statistics are modules `mean_ema` and
    `var_ema` of its own.

    Raises:
        InputError: it is not made like that. What it has beside the torso and the three heads keeps its Haiku
            name.
    """
    experiment = content['experiment_state']
    if not isinstance(experiment, tuple) or len(experiment) != 5:
        raise InputError('not a BYOL checkpoint known here: its experiment_state has not the five parts of '
                         'BYOL')
    ignored = {'target network, optimiser': ['target_params', 'target_state', 'opt_state'],
               'beside the network': sorted(str(name) for name in content if name != 'experiment_state')}
    tensors, counts = {}, {'head': 0, 'average without correction, and its counter': 0}
    for path, leaf, array in [*_leaves(experiment[0]), *_leaves(experiment[2])]:
        parts = [part for part in path.split('/') if part != '~']
        if _BYOL_HEADS & set(parts):
            counts['head'] += 1
        elif parts[-1].endswith('_ema') and leaf in ('hidden', 'counter'):
            counts['average without correction, and its counter'] += 1
        else:
            name, tensor = _from_haiku(parts, leaf, array)
            if name in tensors:
                raise InputError(f'two of its arrays are {name} of the network')
            tensors[name] = tensor
    return _checkpoint(BYOL, tensors, 'BYOL experiment', ignored | counts, {})


def _leaves(modules):
    """(module path, leaf, array) of Haiku's parameters or state."""
    for path, leaves in _mapping(modules).items():
        for leaf, array in _mapping(leaves).items():
            array = np.asarray(array if isinstance(array, (np.ndarray, int, float)) else '')
            if array.dtype.kind not in 'fiu':
                raise InputError(f'{path}/{leaf} is no array of real numbers')
            yield str(path), str(leaf), array


def _mapping(value) -> dict:
    """A dict, or the one that a mapping of Haiku's own was made from."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        raise InputError(f'not a BYOL checkpoint known here: it has a {type(value).__name__} where a dict of '
                         'arrays was expected')
    return value


def _from_haiku(parts: list, leaf: str, array: np.ndarray) -> tuple:
    """(name in the backbone, tensor) of an array of the torso; its own name where it is none of those.

    `res_net50/block_group_0/block_1/conv_2` `w`, (height, width, in, out), is `layer1.1.conv3.weight`,
    (out, in, height, width). What a batch norm has is (1, 1, 1, channels).
    """
    if parts[-1].endswith('_ema'):
        parts, leaf = parts[:-1], f'{parts[-1]}/{leaf}'
    module = _BYOL_MODULE.fullmatch('/'.join(parts))
    kind = module['kind'] if module else None
    if (kind, leaf) not in _BYOL_LEAVES or array.dtype.kind != 'f':
        return '/'.join([*parts, leaf]), torch.from_numpy(np.array(array, np.float32))
    if module['shortcut']:
        name = 'downsample.0' if kind == 'conv' else 'downsample.1'
    else:
        name = f"{'conv' if kind == 'conv' else 'bn'}{int(module['index'] or 0) + 1}"
    stage = '' if module['stage'] is None else f"layer{int(module['stage']) + 1}.{module['block']}."
    if kind == 'conv' and array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif kind == 'batchnorm' and array.shape[-1:] == (array.size,):
        array = array.reshape(-1)
    tensor = torch.from_numpy(np.array(array, np.float32, order='C'))
    return f'{stage}{name}.{_BYOL_LEAVES[kind, leaf]}', tensor
