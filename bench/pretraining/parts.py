"""What pretrain.py learns from: classes, augmented batches, network, accuracy.

Random numbers come from a generator on the CPU and are applied wherever the images are: batches do not depend
on the device.
"""
import hashlib
from typing import NamedTuple

import numpy as np
import torch

from backbone import get_backbone_class
from core.plugins import keyword_flags
from scroll.embedding.layout import layout_for
from scroll.embedding.transforms import colour_jitter, random_flip, resize
from scroll.errors import InputError
from scroll.grid import little_endian

CENTROID, TEST = 150, 50        # images of a class that its centroid is the mean of, and images that test it
COARSE = 0.5                    # share of batches that are shrunk to 32 px first
JITTER = 0.4                    # strength of changes of brightness, contrast and saturation
WIDTH = 32
MOMENTUM, DECAY = 0.9, 5e-4


class Data(NamedTuple):
    """Images to learn from, and others to probe the features with.

    Attributes:
        images, labels: uint8 (N, 84, 84, 3) and int64 (N,), a label being a place in `classes`, sorted wnids.
        probe: uint8 (C, F + T, 84, 84, 3): of each of C classes F images for its centroid, then T = `tested`.
        unseen: whether those classes are no part of `classes`. digest: SHA-256 of images and labels."""
    images: torch.Tensor
    labels: torch.Tensor
    classes: list
    probe: torch.Tensor
    tested: int
    unseen: bool
    digest: str


def divide(images: np.ndarray, labels: np.ndarray, wnids: list, left_out) -> Data:
    """Of images and labels (places in `wnids`): classes to learn from, and those `left_out`, or the same, to
    probe."""
    rows = {wnid: np.flatnonzero(labels == i) for i, wnid in enumerate(wnids)}
    unseen = [rows[wnid] for wnid in wnids if wnid in left_out]
    classes = [wnid for wnid in wnids if wnid not in left_out]
    if not classes:
        raise InputError(f'all {len(wnids)} classes of the data are left out: leave fewer out')
    probed = unseen or list(rows.values())
    count = min(CENTROID + TEST, *map(len, probed))
    x = images[np.concatenate([rows[wnid] for wnid in classes])]
    y = np.repeat(np.arange(len(classes)), [len(rows[wnid]) for wnid in classes])
    digest = hashlib.sha256(x)
    digest.update(little_endian(y))
    probe = images[np.stack([ids[:count] for ids in probed])]
    return Data(torch.from_numpy(x), torch.from_numpy(y), classes, torch.from_numpy(probe),
                max(1, count * TEST // (CENTROID + TEST)), bool(unseen), digest.hexdigest())


def training_batch(images: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """uint8 (B, 84, 84, 3) -> float (B, 3, size, size) in [0, 1]: crop, (shrink,) resize, jitter, flip."""
    full, device = images.shape[1], images.device
    crop = int(torch.randint(full // 2, full + 1, (1,), generator=generator))  # of a batch; a place an image
    shift = torch.randint(0, full - crop + 1, (2, len(images), 1), generator=generator).to(device)
    span, which = torch.arange(crop, device=device), torch.arange(len(images), device=device)[:, None, None]
    x = images[which, (shift[0] + span)[:, :, None], (shift[1] + span)[:, None, :]]
    x = x.permute(0, 3, 1, 2).float().div_(255)
    if torch.rand(1, generator=generator) < COARSE:
        x = resize(x, 32).clamp_(0, 1)
    return random_flip(colour_jitter(resize(x, size).clamp_(0, 1), JITTER, generator), generator)


def backbone_options(name: str, width: int = None) -> dict:
    """Keyword arguments of a backbone: its width, if it has one."""
    known = keyword_flags(get_backbone_class(name))
    if 'width' not in known and width is not None:
        raise InputError(f"--width {width}: --backbone {name} has no width; its options: "
                         f"{', '.join(known) or 'none'}")
    return {'width': width or WIDTH} if 'width' in known else {}


def make_net(name: str, num_classes: int, options: dict, size: int) -> torch.nn.Module:
    """A fresh network in the layout that it is trained in. InputError if these options make none, or it
    cannot take images of `size` pixels."""
    try:
        net = get_backbone_class(name)(num_classes=num_classes, **options)
        with torch.no_grad():
            net.eval()(torch.zeros(2, 3, size, size))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f'--backbone {name} {options} cannot take images of {size} pixels: '
                         f'{error}') from error
    return net.to(memory_format=layout_for(net))


def make_optimiser(net, lr: float) -> torch.optim.SGD:
    """Nesterov momentum; biases and batch norms do not decay."""
    groups = [dict(params=[p for p in net.parameters() if p.dim() > 1], weight_decay=DECAY),
              dict(params=[p for p in net.parameters() if p.dim() <= 1], weight_decay=0)]
    return torch.optim.SGD(groups, lr, MOMENTUM, nesterov=True)


def centroid_accuracy(net, preprocessing, probe: torch.Tensor, tested: int) -> float:
    """Nearest-centroid accuracy (percent) of the last T = `tested` images of each class of `probe`."""
    net.eval()
    with torch.inference_mode():
        u = torch.cat([net.features(preprocessing(x)) for x in probe.flatten(0, 1).split(256)])
    u = torch.nn.functional.normalize(u).view(*probe.shape[:2], -1)                 # (C, F + T, d)
    centroids = u[:, :-tested].mean(1)                                              # (C, d)
    hits = torch.cdist(u[:, -tested:], centroids).argmin(-1) == torch.arange(len(u), device=u.device)[:, None]
    return 100 * hits.float().mean().item()
