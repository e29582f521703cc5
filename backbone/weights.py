"""Pre-trained weights: files that say all that is needed to use them, read without running code from them.

A weights file is a safetensors file: every tensor of the feature extractor (no head) in half precision, and as metadata
one JSON text with the architecture and its options, input size, normalisation, the classes and data it was trained on and
how well it does. Shipped files lie in `backbone/weights/` and go by their stem: `--weights compact`.
"""
import difflib
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from utils.errors import UserError

SHIPPED = Path(__file__).resolve().parent / 'weights'
DEFAULT = 'compact'
_FORMAT = 'scroll-bench-weights-1'


@dataclass
class Weights:
    """A feature extractor's tensors and what they need to be used.

    Attributes:
        name: stem of the file, or the path as given.
        tensors: state-dict name -> float32 tensor; no classifier, no batch counters.
        backbone: registered backbone name. options: its keyword arguments, for example `{'width': 32}`.
        input_size: pixels. mean, std: per channel, for images in [0, 1].
        digest: SHA-256 of the file.
        info: classes seen, data digest, recipe, accuracies.
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

    def load_into(self, net: torch.nn.Module) -> None:
        """Copy every tensor into `net`, leaving its classifier alone.

        Raises:
            UserError: a tensor is missing on either side or has another shape (the first few are named).
        """
        wanted = {name: t for name, t in net.state_dict().items() if _is_feature_tensor(name)}
        wrong = sorted(set(wanted) ^ set(self.tensors))
        wrong += [f'{name} {tuple(self.tensors[name].shape)} for {tuple(t.shape)}' for name, t in wanted.items()
                  if name in self.tensors and t.shape != self.tensors[name].shape]
        if wrong:
            more = f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''
            raise UserError(f"--weights {self.name}: made for --backbone {self.backbone} {self.options}; "
                            f"these tensors do not fit: {', '.join(wrong[:3])}{more}")
        net.load_state_dict({**net.state_dict(), **self.tensors})


def _is_feature_tensor(name: str) -> bool:
    return not name.startswith('classifier.') and not name.endswith('num_batches_tracked')


def save(path, net: torch.nn.Module, backbone: str, options: dict, input_size: int, mean, std, info: dict) -> None:
    """Write the feature extractor of `net` to `path` in half precision, whole or not at all."""
    tensors = {name: t.detach().half().contiguous() for name, t in net.state_dict().items() if _is_feature_tensor(name)}
    bad = [name for name, t in tensors.items() if not torch.isfinite(t).all()]
    if bad:
        raise ValueError(f'not finite in half precision: {bad[0]}')
    about = dict(format=_FORMAT, backbone=backbone, options=options, input_size=input_size, mean=list(mean),
                 std=list(std), info=info)
    side = Path(f'{path}.part')
    side.write_bytes(safetensors_bytes(tensors, metadata={'about': json.dumps(about, sort_keys=True)}))
    os.replace(side, path)


def names() -> list:
    """Names of the shipped weights."""
    return sorted(p.stem for p in SHIPPED.glob('*.safetensors'))


def find(name: str) -> Path:
    """The file for a shipped name or a path; UserError, with the nearest known names, where there is none."""
    for path in (SHIPPED / f'{name}.safetensors', Path(name)):
        if path.is_file():
            return path
    close = difflib.get_close_matches(str(name), names(), n=1, cutoff=0.4)
    hint = f'did you mean {close[0]}?' if close else f"shipped: {', '.join(names()) or 'none'}"
    raise UserError(f"--weights {name}: neither shipped weights nor a file; {hint} ('none' starts from scratch)")


def load(name: str, tensors: bool = True) -> Weights:
    """Read weights by shipped name or path; `tensors=False` reads only what the file says about itself.

    Raises:
        UserError: there is no such file, or it is damaged, or it is not in this format.
    """
    path = find(name)
    try:
        with safe_open(path, framework='pt') as file:
            about = json.loads((file.metadata() or {}).get('about', '{}'))
            names = file.keys()     # safe_open is no mapping
            values = {key: file.get_tensor(key).float() for key in names} if tensors else {}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f'--weights {name}: {path} is damaged or not a safetensors file ({error})') from error
    wanted = {'backbone', 'options', 'input_size', 'mean', 'std', 'info'}
    if not isinstance(about, dict) or about.get('format') != _FORMAT or not wanted <= set(about):
        raise UserError(f"--weights {name}: {path} does not say what it is; expected the metadata that pretrain.py writes")
    bad = [key for key, t in values.items() if not torch.isfinite(t).all()]
    if bad:
        raise UserError(f'--weights {name}: tensor {bad[0]} is not finite; the file is damaged')
    return Weights(name=str(name), tensors=values, backbone=about['backbone'], options=about['options'],
                   input_size=int(about['input_size']), mean=tuple(about['mean']), std=tuple(about['std']),
                   digest=hashlib.sha256(path.read_bytes()).hexdigest(), info=about['info'])
