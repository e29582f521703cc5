"""The training of pretrain.py: from images to a weights file, epoch by epoch."""

import hashlib
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from backbone import get_backbone_class, weights
from bench.pretraining import shared_classes
from core.arguments import affects
from core.environment import choose_device
from core.loss_watch import LossWatch
from core.plugins import keyword_flags
from datasets.utils.readers import mini_split
from scroll.embedding.images import Preprocessing
from scroll.embedding.machine import layout_for
from scroll.embedding.transforms import colour_jitter, random_flip, resize
from scroll.ground.errors import InputError
from scroll.ground.grid import little_endian
from scroll.ground.progress import track
from scroll.ground.randomness import stream_seed

# images of a class that its centroid is the mean of, and images that test it
CENTROID = 150
TEST = 50
COARSE = 0.5  # share of batches that are shrunk to 32 px first
JITTER = 0.4  # strength of changes of brightness, contrast and saturation
WIDTH = 32
MOMENTUM = 0.9
DECAY = 5e-4


class Data(NamedTuple):
    """Images to learn from, and others to probe the features with.

    Attributes:
        images, labels: uint8 (N, 84, 84, 3) and int64 (N,), a label being a place in `classes`,
        sorted wnids.
        probe: uint8 (C, F + T, 84, 84, 3): of each of C classes F images for its centroid, then T =
        `tested`.
        unseen: whether those classes are no part of `classes`. digest: SHA-256 of images and
        labels."""

    images: torch.Tensor
    labels: torch.Tensor
    classes: list
    probe: torch.Tensor
    tested: int
    unseen: bool
    digest: str


def divide(images: np.ndarray, labels: np.ndarray, wnids: list, left_out) -> Data:
    """Split images and labels (places in `wnids`): classes to learn from, `left_out` or the same to
    probe.
    """
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
    return Data(
        torch.from_numpy(x),
        torch.from_numpy(y),
        classes,
        torch.from_numpy(probe),
        max(1, count * TEST // (CENTROID + TEST)),
        bool(unseen),
        digest.hexdigest(),
    )


def training_batch(images: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    """uint8 (B, 84, 84, 3) -> float (B, 3, size, size) in [0, 1]: crop, (shrink,) resize, jitter,
    flip.
    """
    full = images.shape[1]
    device = images.device
    # of a batch; a place an image
    crop = int(torch.randint(full // 2, full + 1, (1,), generator=generator))
    shift = torch.randint(0, full - crop + 1, (2, len(images), 1), generator=generator).to(device)
    span = torch.arange(crop, device=device)
    which = torch.arange(len(images), device=device)[:, None, None]
    x = images[which, (shift[0] + span)[:, :, None], (shift[1] + span)[:, None, :]]
    x = x.permute(0, 3, 1, 2).float().div_(255)
    if torch.rand(1, generator=generator) < COARSE:
        x = resize(x, 32).clamp_(0, 1)
    return random_flip(colour_jitter(resize(x, size).clamp_(0, 1), JITTER, generator), generator)


def backbone_options(name: str, width: int | None) -> dict:
    """Keyword arguments of a backbone: its width, if it has one."""
    known = keyword_flags(get_backbone_class(name))
    if 'timm_name' in known:
        raise InputError(f'--backbone {name}: its weights are published, as --weights timm:NAME')
    if 'width' not in known and width is not None:
        raise InputError(
            f'--width {width}: --backbone {name} has no width; its options: '
            f'{", ".join(known) or "none"}'
        )
    return {'width': width or WIDTH} if 'width' in known else {}


def make_net(name: str, num_classes: int, options: dict, size: int) -> torch.nn.Module:
    """A fresh network in the layout that it is trained in. InputError if these options make none,
    or it cannot take images of `size` pixels."""
    try:
        net = get_backbone_class(name)(num_classes=num_classes, **options)
        with torch.no_grad():
            net.eval()(torch.zeros(2, 3, size, size))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f'--backbone {name} {options} cannot take images of {size} pixels: {error}'
        ) from error
    return net.to(memory_format=layout_for(net))


def make_optimiser(net, lr: float) -> torch.optim.SGD:
    """Nesterov momentum; biases and batch norms do not decay."""
    groups = [
        {'params': [p for p in net.parameters() if p.dim() > 1], 'weight_decay': DECAY},
        {'params': [p for p in net.parameters() if p.dim() <= 1], 'weight_decay': 0},
    ]
    return torch.optim.SGD(groups, lr, MOMENTUM, nesterov=True)


def centroid_accuracy(net, preprocessing, probe: torch.Tensor, tested: int) -> float:
    """Nearest-centroid accuracy (percent) of the last T = `tested` images of each class of
    `probe`.
    """
    net.eval()
    with torch.inference_mode():
        parts = probe.flatten(0, 1).split(256)
        u = torch.cat([net.features(preprocessing(x)) for x in track('Probing', parts)])
    u = torch.nn.functional.normalize(u).view(*probe.shape[:2], -1)  # (C, F + T, d)
    centroids = u[:, :-tested].mean(1)  # (C, d)
    hits = (
        torch.cdist(u[:, -tested:], centroids).argmin(-1)
        == torch.arange(len(u), device=u.device)[:, None]
    )
    return 100 * hits.float().mean().item()


def learning_rate(step: int, per_epoch: int, epochs: int) -> float:
    """Rate of a step, as a share of --lr: up linearly for an epoch, down half a cosine."""
    if step < per_epoch:
        return (step + 1) / per_epoch
    return 0.5 * (1 + math.cos(math.pi * (step - per_epoch) / max(1, (epochs - 1) * per_epoch)))


def train(args) -> None:
    """Read the images, learn epoch by epoch, write the weights."""
    device = choose_device(args.device)
    args.dtype = 'bfloat16' if device.type == 'cuda' else 'float32'
    torch.backends.cudnn.benchmark = device.type == 'cuda'  # all batches have one shape
    options = backbone_options(args.backbone, args.width)
    args.width = options.get('width')
    shared = shared_classes()
    left_out = {}
    for stream in args.leave_out:
        left_out |= shared.get(stream, {})
    data = divide(*mini_split(args.base_path, 'train'), left_out)
    per_epoch = len(data.images) // args.batch_size
    if per_epoch == 0:
        raise InputError(
            f'--batch_size {args.batch_size}: there are {len(data.images)} images to learn from'
        )
    torch.manual_seed(args.seed)
    net = make_net(args.backbone, len(data.classes), options, args.input_size).to(device)
    preprocessing = Preprocessing(args.input_size)
    probe = data.probe.to(device)
    optimiser = make_optimiser(net, args.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: learning_rate(step, per_epoch, args.epochs)
    )
    recipe = {
        name: value
        for name, value in vars(args).items()
        if affects(args, name) == 'result' and value is not None
    }
    measure = 'unseen' if data.unseen else 'seen'
    images = data.images.to(device)
    labels = data.labels.to(device)
    for epoch in range(args.epochs):
        generator = torch.Generator().manual_seed(1000 * args.seed + epoch)
        torch.manual_seed(stream_seed(args.seed, f'dropout {epoch}'))
        order = torch.randperm(len(images), generator=generator).to(device)
        total_loss = torch.zeros((), dtype=torch.float64, device=device)
        losses = LossWatch(f'epoch {epoch + 1}')
        net.train()
        batches = order[: per_epoch * args.batch_size].split(args.batch_size)
        for ids in track(f'Epoch {epoch + 1}', batches):
            x = preprocessing.normalise(training_batch(images[ids], args.input_size, generator))
            x = x.contiguous(memory_format=layout_for(net))  # (B, 3, size, size)
            with torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == 'bfloat16'):
                logits = net(x)  # (B, K)
            loss = F.cross_entropy(logits.float(), labels[ids])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total_loss += loss.detach()
            losses.add(loss)
        losses.check()
        loss = total_loss.item() / per_epoch
        accuracy = centroid_accuracy(net, preprocessing, probe, data.tested)
        print(f'epoch {epoch + 1}: loss {loss:.3f}, {measure} classes {accuracy:.1f} %', flush=True)

    info = {
        'classes': data.classes,
        'left_out': left_out,
        'data': 'miniImageNet, training split',
        'data_digest': data.digest,
        'recipe': recipe,
        f'{measure}_ncc_accuracy': accuracy,
    }
    try:
        weights.save(
            args.out,
            net.cpu(),
            args.backbone,
            options,
            args.input_size,
            preprocessing.mean,
            preprocessing.std,
            info,
        )
    except ValueError as error:
        raise InputError(f'{args.out} is not written: {error}; give a smaller --lr') from error
