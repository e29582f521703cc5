"""Image networks of timm and transformers, optional dependencies, imported when one is built.

As weights, `timm:NAME` and `transformers:NAME` (`scroll.embedding.libraries` says where those come
from), with options behind commas:

    timm:vit_small_patch16_224                published weights, of the hub or its local cache
    timm:vit_small_patch16_224,img_size=96    the same, positions interpolated for images of 96 px
    timm:deit_tiny_patch16_224,file=deit.pth  of a file
    transformers:facebook/dinov2-small        from the hub or its cache
    transformers:FOLDER                       of a folder
    timm:vit_small_patch16_224,random=0       random weights, from a seed
"""

from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from backbone import Mapless, register_backbone
from scroll.embedding.libraries import NETWORKS, LibraryNetwork, timm_network, transformers_network
from scroll.embedding.named import with_options
from scroll.ground.errors import InputError, prefixed

_OPTIONS = {'timm': ('random', 'img_size', 'file'), 'transformers': ('random',)}


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
    """Return whether weights of this name are those of a network of timm or transformers."""
    library, colon, _ = str(name).partition(':')
    return library in NETWORKS and colon == ':'


@lru_cache(maxsize=1)
def network_of(weights: str) -> tuple:
    """(`LibraryNetwork`, `Preprocessing`, backbone, its options, info) of weights so named.

    Published weights are assumed to have seen ImageNet, as nearly all have. InputError: the name is
    not as the head of this file says, or the network cannot be had."""
    library, name, arguments = with_options(weights)
    if not set(arguments) <= set(_OPTIONS[library]):
        raise InputError(
            f'--weights {weights}: expected NAME and, behind commas, '
            f'{", ".join(f"{key}=..." for key in _OPTIONS[library])}'
        )
    with prefixed(f'--weights {weights}'):
        net, preprocessing = NETWORKS[library](name, **arguments)
    options = {f'{library}_name': name}
    if 'img_size' in arguments:
        options['img_size'] = arguments['img_size']
    unpublished = 'random' in arguments or 'file' in arguments or Path(name).is_dir()
    return net, preprocessing, library, options, {} if unpublished else {'saw': 'ImageNet'}


@register_backbone('timm')
def timm(
    num_classes: int, timm_name: str = 'vit_small_patch16_224', img_size: int | None = None
) -> LibraryBackbone:
    """Build an image network of timm's, at its random start.

    timm_name: its name.
    img_size: pixels of its images, for networks that are built for one size."""
    seed = int(torch.randint(2**62, ()))  # of torch's generator, which a run seeds
    return LibraryBackbone(timm_network(timm_name, random=seed, img_size=img_size)[0], num_classes)


@register_backbone('transformers')
def transformers(
    num_classes: int, transformers_name: str = 'google/vit-base-patch16-224'
) -> LibraryBackbone:
    """Build an image network of transformers', at its random start.

    transformers_name: a folder with a config.json, or a model on the hub."""
    seed = int(torch.randint(2**62, ()))
    return LibraryBackbone(transformers_network(transformers_name, random=seed)[0], num_classes)
