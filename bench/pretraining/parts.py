"""What pretrain.py learns from and shows: classes, augmented batches, network, accuracy, curve.

Random numbers come from a generator on the CPU and are applied wherever the images are: batches do not depend
on the device.
"""
import ast
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from backbone import get_backbone_class
from bench.results import style
from core.plugins import keyword_flags
from scroll.embedding.layout import layout_for
from scroll.embedding.transforms import colour_jitter, random_crop, random_flip, resize
from scroll.errors import InputError
from scroll.grid import little_endian

CENTROID, TEST = 150, 50        # images of a class that its centroid is the mean of, and images that test it


class Data(NamedTuple):
    """Images to learn from, and others to probe the features with.

    Attributes:
        images, labels: uint8 (N, 84, 84, 3) and int64 (N,), a label being a place in `classes`.
        classes: sorted wnids.
        probe: uint8 (C, F + T, 84, 84, 3): of each of C classes F images for its centroid, then T to test it.
        tested: T.
        unseen: whether those classes are no part of `classes`; else the T images are no part of `images`.
        digest: SHA-256 of images and labels.
    """
    images: torch.Tensor
    labels: torch.Tensor
    classes: list
    probe: torch.Tensor
    tested: int
    unseen: bool
    digest: str


def divide(images: np.ndarray, labels: np.ndarray, wnids: list, left_out) -> Data:
    """Of all images and labels (places in `wnids`): classes to learn from, all but `left_out`, and to probe.

    Where none is left out, the last twelfth of every class's images (at most 50) is held out instead.
    """
    rows = {wnid: np.flatnonzero(labels == i) for i, wnid in enumerate(wnids)}
    unseen = [rows[wnid] for wnid in wnids if wnid in left_out]
    classes = [wnid for wnid in wnids if wnid not in left_out]
    if not classes:
        raise InputError(f'all {len(wnids)} classes of the data are left out: leave fewer out')
    fewest = min(map(len, unseen or rows.values()))
    if unseen:
        count = min(fewest, CENTROID + TEST)
        tested = max(1, count * TEST // (CENTROID + TEST))
        probe = [ids[:count] for ids in unseen]
    else:
        tested = min(max(1, fewest // 12), TEST)
        fit = min(fewest - tested, CENTROID)
        probe = [np.concatenate([ids[:fit], ids[-tested:]]) for ids in rows.values()]
        rows = {wnid: ids[:-tested] for wnid, ids in rows.items()}
    x = images[np.concatenate([rows[wnid] for wnid in classes])]
    y = np.repeat(np.arange(len(classes)), [len(rows[wnid]) for wnid in classes])
    digest = hashlib.sha256(x)
    digest.update(little_endian(y))
    return Data(torch.from_numpy(x), torch.from_numpy(y), classes,
                torch.from_numpy(images[np.stack(probe)]), tested, bool(unseen), digest.hexdigest())


def training_batch(images, size: int, coarse: float, jitter: float, generator) -> torch.Tensor:
    """uint8 (B, 84, 84, 3) -> float (B, 3, size, size) in [0, 1]: crop, (shrink,) resize, jitter, flip.

    A share `coarse` of the batches is shrunk to 32 px on the way.
    """
    full, device = images.shape[1], images.device
    crop = int(torch.randint(full // 2, full + 1, (1,), generator=generator))  # of a batch; a place an image
    shift = torch.randint(0, full - crop + 1, (2, len(images), 1), generator=generator).to(device)
    span, which = torch.arange(crop, device=device), torch.arange(len(images), device=device)[:, None, None]
    x = images[which, (shift[0] + span)[:, :, None], (shift[1] + span)[:, None, :]]
    x = x.permute(0, 3, 1, 2).float().div_(255)
    if torch.rand(1, generator=generator) < coarse:
        x = resize(x, 32).clamp_(0, 1)
    return random_flip(colour_jitter(resize(x, size).clamp_(0, 1), jitter, generator), generator)


def padded_batch(images, size: int, padding: int, jitter: float, generator) -> torch.Tensor:
    """uint8 (B, 84, 84, 3) -> float (B, 3, size, size) in [0, 1]: shift (`padding`), resize, jitter, flip.

    What a shift uncovers is black. RFS: Tian et al. 2020, section 4.1; there the three jitters come in random
    order.
    """
    x = random_crop(images.permute(0, 3, 1, 2), padding, generator).float().div_(255)
    return random_flip(colour_jitter(resize(x, size).clamp_(0, 1), jitter, generator), generator)


def augment(images, args, generator) -> torch.Tensor:
    """The recipe's batch."""
    if args.recipe == 'rfs':
        return padded_batch(images, args.input_size, args.padding, args.jitter, generator)
    return training_batch(images, args.input_size, args.coarse, args.jitter, generator)


def backbone_options(name: str, width, default_width: int, given: list) -> dict:
    """Keyword arguments of a backbone, from `--width` (or the recipe's) and `--option name=value` flags."""
    known, options = keyword_flags(get_backbone_class(name)), {}
    if 'width' in known:
        options['width'] = default_width if width is None else width
    elif width is not None:
        raise InputError(f"--width {width}: --backbone {name} has no width; its options: "
                         f"{', '.join(known) or 'none'}")
    for text in given:
        key, equals, value = text.partition('=')
        if not equals or key not in known or key in options:
            raise InputError(f"--option {text}: expected NAME=VALUE, once, for an option of --backbone "
                             f"{name}: {', '.join(k for k in known if k != 'width') or 'it has none'}")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    make_net(name, 1, options)          # finds fault before the data are read
    return options


def make_net(name: str, num_classes: int, options: dict) -> torch.nn.Module:
    """A fresh network in the layout that it is trained in. InputError if these options make none."""
    try:
        net = get_backbone_class(name)(num_classes=num_classes, **options)
        return net.to(memory_format=layout_for(net))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f'--backbone {name} {options}: {error}') from error


def make_optimiser(net, args) -> torch.optim.SGD:
    """compact: Nesterov momentum, biases and batch norms do not decay; rfs: plain momentum, all decay."""
    if args.recipe == 'rfs':
        return torch.optim.SGD(net.parameters(), args.lr, args.momentum, weight_decay=args.wd)
    groups = [dict(params=[p for p in net.parameters() if p.dim() > 1], weight_decay=args.wd),
              dict(params=[p for p in net.parameters() if p.dim() <= 1], weight_decay=0)]
    return torch.optim.SGD(groups, args.lr, args.momentum, nesterov=args.momentum > 0)


def centroid_accuracy(net, preprocessing, probe: torch.Tensor, tested: int) -> float:
    """Nearest-centroid accuracy (percent).

    probe: uint8 (C, F + T, 84, 84, 3), of whose classes the last T = `tested` images are tested.
    """
    net.eval()
    with torch.inference_mode():
        u = torch.cat([net.features(preprocessing(x)) for x in probe.flatten(0, 1).split(256)])
    u = torch.nn.functional.normalize(u).view(*probe.shape[:2], -1)                 # (C, F + T, d)
    centroids = u[:, :-tested].mean(1)                                              # (C, d)
    hits = torch.cdist(u[:, -tested:], centroids).argmin(-1) == torch.arange(len(u), device=u.device)[:, None]
    return 100 * hits.float().mean().item()


def check_size(name: str, net, size: int, device) -> None:
    """InputError if the network cannot take images of `size` pixels; changes nothing in `net`."""
    net.eval()
    try:
        with torch.no_grad():
            net(torch.zeros(2, 3, size, size, device=device))
    except RuntimeError as error:
        raise InputError(f'--backbone {name} cannot take images of {size} pixels: {error}') from error


def learning_curve(path: Path, curve: list, title: str) -> None:
    """Accuracies (left axis) and loss (right axis) by epoch, into a PNG file."""
    with style.picture(path) as (_, axes):
        right, epochs = axes.twinx(), [point['epoch'] for point in curve]
        for key, label, colour in (('train', 'training batches', '#0072B2'),
                                   ('unseen', 'classes left out, nearest centroid', '#D55E00'),
                                   ('held_out', 'images held out, nearest centroid', '#009E73')):
            if key in curve[0]:
                axes.plot(epochs, [point[key] for point in curve], marker='o', color=colour, label=label)
        right.plot(epochs, [point['loss'] for point in curve], color='grey', linestyle='--', label='loss')
        axes.set(xlabel='epoch', ylabel='accuracy (%)', title=title, ylim=(0, 100))
        right.set(ylabel='loss', ylim=(0, None))
        right.grid(False)
        lines = axes.lines[:] + right.lines[:]
        axes.legend(lines, [line.get_label() for line in lines])
