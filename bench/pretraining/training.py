"""The training of pretrain.py: from images to a weights file, epoch by epoch."""
import math
import time

import torch
import torch.nn.functional as F

from backbone import weights
from bench.pretraining import parts
from bench.pretraining.command import SHARED
from core.arguments import affects
from core.environment import choose_device
from datasets.utils.readers import mini_split
from scroll.embedding.images import Preprocessing
from scroll.embedding.layout import layout_for
from scroll.errors import InputError
from scroll.randomness import stream_seed


def learning_rate(step: int, per_epoch: int, epochs: int) -> float:
    """Of a step, as a share of --lr: up linearly for an epoch, down half a cosine."""
    if step < per_epoch:
        return (step + 1) / per_epoch
    return 0.5 * (1 + math.cos(math.pi * (step - per_epoch) / max(1, (epochs - 1) * per_epoch)))


def train(args) -> None:
    """Read the images, learn epoch by epoch, write the weights."""
    device = choose_device(args.device)
    args.dtype = 'bfloat16' if device.type == 'cuda' else 'float32'
    torch.backends.cudnn.benchmark = device.type == 'cuda'          # all batches have one shape
    options = parts.backbone_options(args.backbone, args.width)
    args.width = options.get('width')
    left_out = {wnid: why for stream in args.leave_out for wnid, why in SHARED.get(stream, {}).items()}
    data = parts.divide(*mini_split(args.base_path, 'train'), left_out)
    per_epoch = len(data.images) // args.batch_size
    if per_epoch == 0:
        raise InputError(f'--batch_size {args.batch_size}: there are {len(data.images)} images to learn from')
    torch.manual_seed(args.seed)
    net = parts.make_net(args.backbone, len(data.classes), options, args.input_size).to(device)
    preprocessing, probe = Preprocessing(args.input_size), data.probe.to(device)
    optimiser = parts.make_optimiser(net, args.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: learning_rate(step, per_epoch, args.epochs))
    recipe = {name: value for name, value in vars(args).items()
              if affects(args, name) == 'result' and value is not None}
    measure = 'unseen' if data.unseen else 'seen'
    curve = []

    images, labels = data.images.to(device), data.labels.to(device)
    for epoch in range(args.epochs):
        generator = torch.Generator().manual_seed(1000 * args.seed + epoch)
        torch.manual_seed(stream_seed(args.seed, f'dropout {epoch}'))
        order, began = torch.randperm(len(images), generator=generator).to(device), time.time()
        total_loss = torch.zeros((), dtype=torch.float64, device=device)
        hits = torch.zeros((), dtype=torch.int64, device=device)
        net.train()
        for step, ids in enumerate(order[:per_epoch * args.batch_size].split(args.batch_size)):
            x = preprocessing.normalise(parts.training_batch(images[ids], args.input_size, generator))
            x = x.contiguous(memory_format=layout_for(net))                         # (B, 3, size, size)
            with torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == 'bfloat16'):
                logits = net(x)                                                     # (B, K)
            loss = F.cross_entropy(logits.float(), labels[ids])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total_loss += loss.detach()
            hits += (logits.argmax(1) == labels[ids]).sum()
            # checks every 50 steps: a check synchronises the GPU
            if (step % 50 == 49 or step == per_epoch - 1) and not math.isfinite(total_loss.item()):
                raise InputError(f'the loss is not finite any more; give a smaller --lr than {args.lr:g}')
        seen, seconds = per_epoch * args.batch_size, time.time() - began
        curve.append(last := {'epoch': epoch + 1, 'loss': total_loss.item() / per_epoch,
                              'train': 100 * hits.item() / seen, 'seconds': seconds,
                              measure: parts.centroid_accuracy(net, preprocessing, probe, data.tested)})
        print(f"epoch {epoch + 1}: loss {last['loss']:.3f}, train {last['train']:.1f} %, {measure} classes "
              f'{last[measure]:.1f} %, {seen / seconds:.0f} images/s', flush=True)

    last = curve[-1]
    info = {'classes': data.classes, 'left_out': left_out, 'data': 'miniImageNet, training split',
            'data_digest': data.digest, 'recipe': recipe, 'curve': curve, 'train_accuracy': last['train'],
            f'{measure}_ncc_accuracy': last[measure]}
    try:
        weights.save(args.out, net.cpu(), args.backbone, options, args.input_size, preprocessing.mean,
                     preprocessing.std, info)
    except ValueError as error:
        raise InputError(f'{args.out} is not written: {error}; give a smaller --lr') from error
