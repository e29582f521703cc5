"""Wider features of a frozen network: of several of its stages, and of an image and its mirror
image.

Each part, the network's own features and the pooled last map of each stage that is asked for, is
brought to unit length, and they are laid side by side; an image's numbers and those of its mirror
image are added before that. No head gains as much on CIFAR (`docs/heads.md`), and no sample is kept
for it.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from scroll.ground.arguments import instance, on_off, whole
from scroll.ground.errors import InputError


def check_stages(stages) -> tuple[int, ...]:
    """The numbers of the stages, sorted, each once; InputError unless they are whole, above 0."""
    instance('stages', stages, Iterable)
    for stage in stages:
        whole('stages', stage, 1)
    return tuple(sorted(set(map(int, stages))))


class WideNetwork(nn.Module):
    """A network with the features above: as exact as it is, in integers see
    `IntegerNetwork.widened`.

    body: has `features(x)` and, where stages are asked for, `maps(x)`, a list of the stem's map and
    that of each stage. stages: their numbers, from 1. mirror: add the features of mirror images.

    InputError: the network has no such stage."""

    def __init__(self, body: nn.Module, stages: tuple = (), mirror: bool = False):
        super().__init__()
        on_off('mirror', mirror)
        self.stages = check_stages(stages)
        self.mirror = bool(mirror)
        self.body: Any = copy.deepcopy(body)
        self.RENAMED = {'body.': '', **getattr(body, 'RENAMED', {})}  # in digests
        self.body.classifier = nn.Identity()
        count = 0
        if hasattr(body, 'maps'):
            count = sum(name.startswith('layer') for name, _ in body.named_children())
        if any(stage > count for stage in self.stages):
            available = f'stages 1 to {count}' if count else 'no stages that are known'
            raise InputError(f'stages {list(self.stages)}: {type(body).__name__} has {available}')

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, d), parts of unit length."""
        parts = self._parts(x)
        if self.mirror:
            parts = [one + other for one, other in zip(parts, self._parts(x.flip(3)))]
        return torch.cat([F.normalize(part.float()) for part in parts], dim=1)

    def _parts(self, x: torch.Tensor) -> list:
        if not self.stages:
            return [self.body.features(x)]
        maps = self.body.maps(x)
        return [maps[stage].mean(dim=(2, 3)) for stage in (-1, *self.stages)]
