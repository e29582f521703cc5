#!/usr/bin/env python3
"""Learn psi: a backbone trained by multi-class classification on classes that no stream has.

    python pretrain.py --out backbone/weights/compact.safetensors

The default is the compact psi: ResNet18 of width 32 at 42 px, on the 64 training classes of miniImageNet less those that
CIFAR-100 also has. The 12 classes left out are not wasted: nearest-centroid accuracy on them, after every epoch, tells
how well the features serve classes they have never seen, which is what psi is for. Half of the batches are first shrunk
to 32 px, so that psi meets images as coarse as CIFAR's. A run that is killed continues from its last epoch.
"""
import argparse
import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path

# wnid -> why it is left out (CIFAR-100's class)
SHARED_WITH_CIFAR100 = {
    'n01704323': 'triceratops: dinosaur', 'n01749939': 'green mamba: snake', 'n01770081': 'harvestman: spider',
    'n02120079': 'Arctic fox: fox', 'n02165456': 'ladybug: beetle', 'n02606052': 'rock beauty: aquarium_fish',
    'n02747177': 'ashcan: can', 'n02823428': 'beer bottle: bottle', 'n04389033': 'tank: tank',
    'n07747607': 'orange: orange', 'n09246464': 'cliff: mountain', 'n13054560': 'bolete: mushroom'}


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument('--out', required=True, help='weights file to write (.safetensors)')
    parser.add_argument('--base_path', default='./data/', help='folder that holds MINIIMAGENET')
    parser.add_argument('--backbone', default='resnet18', help='registered backbone')
    parser.add_argument('--width', type=int, default=32, help='channels of the first stage')
    parser.add_argument('--input_size', type=int, default=42, help='pixels')
    parser.add_argument('--epochs', type=int, default=20)
    parser.add_argument('--batch_size', type=int, default=128)
    parser.add_argument('--lr', type=float, default=0.1, help='peak of the warm-up and cosine schedule')
    parser.add_argument('--wd', type=float, default=5e-4)
    parser.add_argument('--coarse', type=float, default=0.5, help='share of batches shrunk to 32 px first')
    parser.add_argument('--seed', type=int, default=0)
    return parser.parse_args(argv)


def training_batch(images, size, coarse, generator):
    """uint8 (B, 84, 84, 3) -> augmented float (B, 3, size, size) in [0, 1]: crop, (shrink,) resize, jitter, flip."""
    import torch

    from scroll.images import colour_jitter, random_flip, resize
    full = images.shape[1]
    crop = int(torch.randint(full // 2, full + 1, (1,), generator=generator))       # one size a batch, a place an image
    shift = torch.randint(0, full - crop + 1, (2, len(images), 1), generator=generator)
    span, which = torch.arange(crop), torch.arange(len(images))[:, None, None]
    x = images[which, (shift[0] + span)[:, :, None], (shift[1] + span)[:, None, :]]
    x = x.permute(0, 3, 1, 2).float().div_(255)
    if torch.rand(1, generator=generator) < coarse:
        x = resize(x, 32).clamp_(0, 1)
    return random_flip(colour_jitter(resize(x, size).clamp_(0, 1), 0.4, generator), generator)


def unseen_accuracy(net, preprocessing, images, labels):
    """Nearest-centroid accuracy (percent) on classes psi never saw: centroids from 150 images each, tested on 50."""
    import torch
    net.eval()
    with torch.inference_mode():
        u = torch.cat([net.features(preprocessing(x)) for x in images.split(256)])
    u = torch.nn.functional.normalize(u).view(len(labels) // 200, 200, -1)          # (K, 200, d)
    centroids = u[:, :150].mean(1)                                                  # (K, d)
    hits = torch.cdist(u[:, 150:], centroids).argmin(-1) == torch.arange(len(u))[:, None]
    return 100 * hits.float().mean().item()


def main(argv=None):
    args = parse_args(argv)
    import numpy as np
    import torch
    import torch.nn.functional as F

    from backbone import get_backbone_class, weights
    from datasets.utils.readers import mini_split
    from scroll.images import Preprocessing

    images, labels, wnids = mini_split(args.base_path, 'train')
    kept = [w for w in wnids if w not in SHARED_WITH_CIFAR100]
    keep = np.isin(labels, [wnids.index(w) for w in kept])
    x_train = torch.from_numpy(images[keep])
    y_train = torch.from_numpy(np.searchsorted([wnids.index(w) for w in kept], labels[keep]))
    left_out = [np.flatnonzero(labels == wnids.index(w))[:200] for w in wnids if w not in kept]
    x_unseen = torch.from_numpy(images[np.concatenate(left_out)])
    y_unseen = torch.from_numpy(labels[np.concatenate(left_out)])
    digest = hashlib.sha256(x_train.numpy().tobytes() + y_train.numpy().tobytes()).hexdigest()

    torch.manual_seed(args.seed)
    net = get_backbone_class(args.backbone)(num_classes=len(kept), width=args.width).to(memory_format=torch.channels_last)
    preprocessing = Preprocessing(args.input_size)
    decay = [p for p in net.parameters() if p.dim() > 1]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    optimiser = torch.optim.SGD([dict(params=decay, weight_decay=args.wd), dict(params=rest, weight_decay=0)],
                                lr=args.lr, momentum=0.9, nesterov=True)
    per_epoch = len(x_train) // args.batch_size
    total, warm = args.epochs * per_epoch, per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: (i + 1) / warm if i < warm else
                                                 0.5 * (1 + math.cos(math.pi * (i - warm) / max(1, total - warm))))
    checkpoint, curve, first = Path(f'{args.out}.checkpoint'), [], 0
    settings = json.dumps({**vars(args), 'data': digest}, sort_keys=True)
    if checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        if state['settings'] != settings:
            sys.exit(f'{checkpoint} belongs to other settings: delete it to start again')
        net.load_state_dict(state['net'])
        optimiser.load_state_dict(state['optimiser'])
        schedule.load_state_dict(state['schedule'])
        curve, first = state['curve'], len(state['curve'])

    for epoch in range(first, args.epochs):
        generator = torch.Generator().manual_seed(1000 * args.seed + epoch)         # so a resumed run sees the same batches
        order = torch.randperm(len(x_train), generator=generator)
        net.train()
        began, total_loss, hits = time.time(), 0.0, 0
        for step in range(per_epoch):
            ids = order[step * args.batch_size:(step + 1) * args.batch_size]
            x = preprocessing.normalise(training_batch(x_train[ids], args.input_size, args.coarse, generator))
            logits = net(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, y_train[ids])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total_loss += loss.item()
            hits += (logits.argmax(1) == y_train[ids]).sum().item()
        seconds, seen = time.time() - began, per_epoch * args.batch_size
        curve.append(dict(epoch=epoch + 1, loss=total_loss / per_epoch, train=100 * hits / seen, seconds=seconds,
                          unseen=unseen_accuracy(net, preprocessing, x_unseen, y_unseen)))
        print('epoch {epoch}: loss {loss:.3f}, train {train:.1f} %, unseen classes {unseen:.1f} %, '.format(**curve[-1])
              + f'{seen / seconds:.0f} images/s', flush=True)
        side = f'{checkpoint}.part'
        torch.save(dict(settings=settings, net=net.state_dict(), optimiser=optimiser.state_dict(),
                        schedule=schedule.state_dict(), curve=curve), side)
        os.replace(side, checkpoint)

    info = dict(classes=kept, left_out=SHARED_WITH_CIFAR100, data='miniImageNet, training split', data_digest=digest,
                recipe={k: v for k, v in vars(args).items() if k not in ('out', 'base_path')}, curve=curve,
                train_accuracy=curve[-1]['train'], unseen_ncc_accuracy=curve[-1]['unseen'])
    weights.save(args.out, net, args.backbone, dict(width=args.width), args.input_size, preprocessing.mean,
                 preprocessing.std, info)
    checkpoint.unlink(missing_ok=True)
    print(f'{args.out}: {os.path.getsize(args.out) / 1e6:.1f} MB')


if __name__ == '__main__':
    from utils.errors import run_command
    sys.exit(run_command(main))
