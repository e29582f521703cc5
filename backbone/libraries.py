"""Image networks of timm, an optional dependency, imported when one is built.

As weights, `timm:NAME` (`scroll.embedding.libraries` says where those come from), with options
behind commas:

    timm:vit_small_patch16_224                published weights, of the hub or its local cache
    timm:vit_small_patch16_224,img_size=96    the same, positions interpolated for images of 96 px
    timm:deit_tiny_patch16_224,file=deit.pth  of a file
    timm:vit_small_patch16_224,random=0       random weights, from a seed
"""

from functools import lru_cache

import torch
from torch import nn

from backbone import Mapless, register_backbone
from scroll.embedding.libraries import LibraryNetwork, timm_network
from scroll.embedding.named import with_options
from scroll.ground.errors import InputError, prefixed

_OPTIONS = ('random', 'img_size', 'file')


class LibraryBackbone(LibraryNetwork, Mapless):
    """A `LibraryNetwork` with a linear head of ours."""

    def __init__(self, net: LibraryNetwork, num_classes: int):
        super().__init__(net.body, net.input_size, ())
        self.origin.copy_(net.origin)
        with torch.no_grad():
            black = torch.zeros(1, 3, net.input_size, net.input_size)
            self.feature_dim = net.features(black).shape[1]
        self.num_classes = num_classes
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        self.train()


def is_of_a_library(name) -> bool:
    """Return whether weights of this name are those of a network of timm."""
    return str(name).startswith('timm:')


@lru_cache(maxsize=1)
def network_of(weights: str) -> tuple:
    """(`LibraryNetwork`, `Preprocessing`, options of the backbone, info) of weights so named.

    Published weights are assumed to have seen ImageNet, as nearly all have. InputError: the name is
    not as the head of this file says, or the network cannot be had."""
    _, name, arguments = with_options(weights)
    if not set(arguments) <= set(_OPTIONS):
        raise InputError(
            f'--weights {weights}: expected NAME and, behind commas, '
            f'{", ".join(f"{key}=..." for key in _OPTIONS)}'
        )
    with prefixed(f'--weights {weights}'):
        net, preprocessing = timm_network(name, **arguments)
    options = {'timm_name': name} | {k: v for k, v in arguments.items() if k == 'img_size'}
    unpublished = 'random' in arguments or arguments.get('file')
    return net, preprocessing, options, {} if unpublished else {'saw': 'ImageNet'}


@register_backbone('timm')
def timm(
    num_classes: int, timm_name: str = 'vit_small_patch16_224', img_size: int = 0
) -> LibraryBackbone:
    """Build an image network of timm's, at its random start.

    timm_name: its name.
    img_size: pixels of its images, for networks that are built for one size; 0: the usual."""
    seed = int(torch.randint(2**62, ()))  # of torch's generator, which a run seeds
    net, _ = timm_network(timm_name, random=seed, img_size=img_size or None)
    return LibraryBackbone(net, num_classes)
