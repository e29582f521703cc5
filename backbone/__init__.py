"""Backbones: images -> features -> logits, one architecture per file, chosen by `--backbone`.

The contract is Mammoth's: `net(x)` gives logits, `net(x, returnt='features')` the pooled features,
`net.classifier` is a replaceable linear head. A backbone file registers a class or function with
`@register_backbone('name')`; the parameters of its signature (beyond `num_classes`, and
`num_inputs` of a network over feature vectors) become command-line flags.
"""

import inspect
from typing import Literal

import torch
from torch import nn

from core.plugins import FOLDERS, keyword_flags
from scroll.ground.arguments import check_memory
from scroll.ground.errors import InputError

PLUGINS = FOLDERS['backbone']
register_backbone = PLUGINS.register
get_backbone_names = PLUGINS.names
get_backbone_class = PLUGINS.get
REGISTERED_BACKBONES = PLUGINS.registered  # those of the files imported so far
_USUAL = 2048  # options above this may mean a network that no machine can hold
ReturnTypes = Literal['out', 'features', 'both', 'full', 'all']


class MammothBackbone(nn.Module):
    """Base class of all backbones.

    A subclass defines `features(x)`, or `maps(x)`, and `classifier` (an `nn.Linear`); `forward` and
    the flat parameter vectors follow."""

    def __init__(self, **kwargs):
        super().__init__()
        self.device = torch.device('cpu')

    def to(self, *args, **kwargs):
        super().to(*args, **kwargs)
        self.device = next(self.parameters()).device
        return self

    def maps(self, x: torch.Tensor) -> list:
        """Feature maps (B, C, H, W) after the stem and each stage; `features` pools the last."""
        raise NotImplementedError(f'{type(self).__name__} has no feature maps')

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) -> (B, feature_dim): the last map, pooled, or of a subclass's `forward`."""
        kind = type(self)
        if kind.maps is MammothBackbone.maps and kind.forward is not MammothBackbone.forward:
            return self(x, returnt='features')
        return self.maps(x)[-1].mean(dim=(2, 3))

    def forward(self, x: torch.Tensor, returnt: ReturnTypes = 'out'):
        """Logits (B, K) of images (B, 3, H, W), or as `returnt` says.

        features: (B, F). both: (logits, features). full, all: (logits, list of maps)."""
        if returnt in ('full', 'all'):
            maps = self.maps(x)
            logits = self.classifier(maps[-1].mean(dim=(2, 3)))
            return logits, [m.float().contiguous() for m in maps]  # methods view them as vectors
        if returnt not in ('out', 'features', 'both'):
            raise ValueError(f"returnt={returnt!r}: expected 'out', 'features', 'both' or 'full'")
        features = self.features(x)
        if returnt == 'features':
            return features
        logits = self.classifier(features)
        return logits if returnt == 'out' else (logits, features)

    def get_params(self) -> torch.Tensor:
        """All parameters as one flat vector."""
        return torch.cat([p.reshape(-1) for p in self.parameters()])

    def set_params(self, flat: torch.Tensor) -> None:
        """Overwrite all parameters from one flat vector (the inverse of `get_params`)."""
        with torch.no_grad():
            for p, values in zip(self.parameters(), self._split(flat)):
                p.copy_(values)

    def get_grads(self) -> torch.Tensor:
        """All gradients as one flat vector, zero where a parameter has none."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters()]
        return torch.cat([g.reshape(-1) for g in gradients])

    def set_grads(self, flat: torch.Tensor) -> None:
        """Overwrite all gradients from one flat vector."""
        for p, values in zip(self.parameters(), self._split(flat)):
            p.grad = values.clone()

    def _split(self, flat: torch.Tensor) -> list:
        """Parts of a flat vector in the shapes of the parameters; RuntimeError: other lengths."""
        parameters = list(self.parameters())
        parts = flat.split([p.numel() for p in parameters])
        return [values.view_as(p) for p, values in zip(parameters, parts)]


class StagedBackbone(MammothBackbone):
    """A convolutional backbone.

    A subclass defines `stem(x)`, (B, 3, H, W) -> the first map (B, C, H', W'), and stages `layer1`,
    `layer2`, ...; a map after each.

    channels_last: let images and maps lie in memory with the channels of a pixel together, up to
        the first stage whose maps have at most CONTIGUOUS_PIXELS: faster on CPUs, the same values
        but for rounding. Parameters and gradients stay as they are, and may be viewed flat.
    precision: of the factors of convolutions and products; 'bfloat16' by autocast, with a last map
        in float32."""

    channels_last = False
    precision = 'float32'
    CONTIGUOUS_PIXELS = 7 * 7

    def maps(self, x: torch.Tensor) -> list:
        if self.precision == 'float32':
            return self._maps(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            maps = self._maps(x)
        return [*maps[:-1], maps[-1].float()]

    def _maps(self, x: torch.Tensor) -> list:
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        elif x.device.type == 'cpu':
            x = x.contiguous()  # maps would follow the layout of the loader
        maps = [self.stem(x)]
        for name, stage in self.named_children():
            if name.startswith('layer'):
                small = self.channels_last and maps[-1].shape[2:].numel() <= self.CONTIGUOUS_PIXELS
                maps.append(stage(maps[-1].contiguous() if small else maps[-1]))
        return maps


class Mapless(MammothBackbone):
    """A backbone over vectors: it has no maps, so `full` gives (logits, features)."""

    def forward(self, x: torch.Tensor, returnt: ReturnTypes = 'out'):
        return super().forward(x, 'both' if returnt in ('full', 'all') else returnt)


def get_backbone(args) -> nn.Module:
    """Build the network of `args.backbone`, `args.num_classes` and the flags of its signature."""
    build = get_backbone_class(args.backbone)
    options = {name: getattr(args, name) for name in keyword_flags(build) if hasattr(args, name)}
    parameters = inspect.signature(build).parameters
    classes = {}
    if 'num_classes' in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        classes['num_classes'] = args.num_classes
    if 'num_inputs' in parameters:
        if not hasattr(args, 'num_inputs'):
            raise InputError(
                f'--backbone {args.backbone}: it takes feature vectors, as seq-features has '
                'them, and no images'
            )
        options['num_inputs'] = args.num_inputs
    try:
        if any(type(value) is int and value > _USUAL for value in options.values()):
            with torch.device('meta'):
                size = sum(p.numel() for p in build(**classes, **options).parameters())
            check_memory(f'--backbone {args.backbone} of {size:,} parameters', 4 * size)
        return build(**classes, **options)
    except (ValueError, RuntimeError) as error:
        text = ', '.join(f'{name} {value}' for name, value in options.items())
        raise InputError(f'--backbone {args.backbone} ({text}): {error}') from error


def feature_tensors(net: nn.Module) -> dict:
    """Name -> tensor of the state of a feature extractor: without classifier and batch counters."""
    return {
        name: t
        for name, t in net.state_dict().items()
        if not name.startswith('classifier.') and not name.endswith('num_batches_tracked')
    }


def kaiming(net: nn.Module) -> None:
    """Normal weights of variance 2 / (outgoing connections) in convolutions (He et al. 2015)."""
    for module in net.modules():
        # a draw on the meta device would import torch's compiler: two seconds
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode='fan_out', nonlinearity='relu')


def xavier(module: nn.Module) -> None:
    """Xavier-uniform weights and zero bias for a linear layer; for use with `net.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def num_flat_features(x: torch.Tensor) -> int:
    """Number of values per sample of a batch."""
    return x[0].numel()
