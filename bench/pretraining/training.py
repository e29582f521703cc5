"""The training of pretrain.py: from images and a recipe to a weights file, epoch by epoch."""
import math
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from bench.pretraining import parts as pretraining
from bench.pretraining.recipes import SHARED, WIDTH
from core.arguments import affects
from core.environment import choose_devices
from datasets.utils.readers import mini_split
from scroll.embedding.images import Preprocessing
from scroll.embedding.layout import layout_for
from scroll.errors import InputError
from scroll.randomness import stream_seed


def learning_rate(step: int, per_epoch: int, args) -> float:
    """Of a step, as a share of --lr. compact: up linearly, down half a cosine; rfs: by milestones."""
    if args.recipe == 'rfs':
        return args.lr_decay ** sum(step >= epoch * per_epoch for epoch in args.milestones)
    total, warm = args.epochs * per_epoch, args.warmup * per_epoch
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def train_epoch(net, optimiser, schedule, batch, labels, order, args) -> tuple:
    """One pass over the images `order` (N,): mean loss, accuracy (percent), seconds.

    batch: ids -> input of the network.

    Nothing waits for the device but a look at the loss every 50 steps.
    """
    device = labels.device
    net.train()
    began = time.time()
    total_loss, hits = (torch.zeros((), dtype=dtype, device=device) for dtype in (torch.float64, torch.int64))
    steps = order.split(args.batch_size)[:len(order) // args.batch_size]            # whole batches only
    for step, ids in enumerate(steps):
        x = batch(ids)                                                              # (B, 3, size, size)
        with torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == 'bfloat16'):
            logits = net(x)                                                         # (B, K)
        loss = F.cross_entropy(logits.float(), labels[ids])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        total_loss += loss.detach()
        hits += (logits.argmax(1) == labels[ids]).sum()
        if (step % 50 == 49 or step == len(steps) - 1) and not math.isfinite(total_loss.item()):
            raise InputError(f'the loss is not finite any more; give a smaller --lr than {args.lr:g}')
    seen = len(steps) * args.batch_size
    return total_loss.item() / len(steps), 100 * hits.item() / seen, time.time() - began


def train(args, checkpoint: Path) -> None:
    """Read the images, learn epoch by epoch, write the weights."""
    training = Training(args)
    training.resume(checkpoint)
    training.measure_speed()
    for epoch in range(len(training.curve), args.epochs):
        training.learn(epoch)
        training.show()
        training.save(checkpoint)
    training.write_weights()
    checkpoint.unlink(missing_ok=True)


class Training:
    """A network on its way: data, optimiser, schedule of learning rates, and the curve so far."""

    def __init__(self, args):
        self.args, self.curve = args, []
        self.device = choose_devices(args.device)[0]
        args.dtype = args.dtype or ('bfloat16' if self.device.type == 'cuda' else 'float32')
        torch.backends.cudnn.benchmark = self.device.type == 'cuda'         # all batches have one shape
        self.options = pretraining.backbone_options(args.backbone, args.width, WIDTH[args.recipe],
                                                    args.option)
        args.width = self.options.get('width')
        self.left_out = {wnid: why for stream in args.leave_out
                         for wnid, why in SHARED.get(stream, {}).items()}
        self.data = data = pretraining.divide(*mini_split(args.base_path, 'train'), self.left_out)
        self.per_epoch = len(data.images) // args.batch_size
        if self.per_epoch == 0:
            raise InputError(f'--batch_size {args.batch_size}: there are {len(data.images)} images to learn '
                             'from')
        self.images, self.labels, self.probe = (part.to(self.device)
                                                for part in (data.images, data.labels, data.probe))
        torch.manual_seed(args.seed)
        self.net = pretraining.make_net(args.backbone, len(data.classes), self.options).to(self.device)
        if args.grow_from:
            pretraining.grow(self.net, args.grow_from, self.left_out, args.seed)
        self.preprocessing = Preprocessing(args.input_size)
        self.optimiser = pretraining.make_optimiser(self.net, args)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: learning_rate(step, self.per_epoch, args))
        self.recipe = {name: value for name, value in vars(args).items()
                       if affects(args, name) == 'result' and value not in (None, [])}
        self.measure, self.measured = (('unseen', 'unseen classes') if data.unseen
                                       else ('held_out', 'held-out images of seen classes'))
        self.batch = pretraining.beside(self._augmented, self.device)

    def _augmented(self, ids, size, generator) -> torch.Tensor:
        x = pretraining.augment(self.images[ids], size, self.args, generator)
        return self.preprocessing.normalise(x).contiguous(memory_format=layout_for(self.net))

    @property
    def settings(self) -> dict:
        """What a checkpoint must have been made with."""
        return {**self.recipe, 'data': self.data.digest}

    def resume(self, checkpoint: Path) -> None:
        """Go on from the last epoch of a run that was killed, if there was one."""
        if checkpoint.is_file():
            state = pretraining.load_checkpoint(checkpoint, self.settings)
            self.net.load_state_dict(state['net'])
            self.optimiser.load_state_dict(state['optimiser'])
            self.schedule.load_state_dict(state['schedule'])
            self.curve = state['curve']
            print(f'{checkpoint}: {len(self.curve)} of {self.args.epochs} epochs are done', flush=True)

    def measure_speed(self) -> None:
        """What an image costs at each size, and what the device could do; then compile, if asked to."""
        self.flops = {size: pretraining.training_flops(self.args.backbone, self.net, size, self.device)
                      for size in {self._size(epoch) for epoch in range(self.args.epochs)}}
        self.peak = pretraining.matmul_peak(self.device, getattr(torch, self.args.dtype))
        if self.args.compile:
            pretraining.compile_net(self.net)

    def _size(self, epoch: int) -> int:
        """Pixels of the images of an epoch."""
        return self.args.small_size if epoch < self.args.small_epochs else self.args.input_size

    def learn(self, epoch: int) -> None:
        """One epoch; a resumed run sees the same batches and drops the same values."""
        generator = torch.Generator().manual_seed(1000 * self.args.seed + epoch)
        torch.manual_seed(stream_seed(self.args.seed, f'dropout {epoch}'))
        order = torch.randperm(len(self.images), generator=generator).to(self.device)
        batch = partial(self.batch, size=self._size(epoch), generator=generator)
        loss, accuracy, seconds = train_epoch(self.net, self.optimiser, self.schedule, batch, self.labels,
                                              order, self.args)
        self.curve.append({'epoch': epoch + 1, 'loss': loss, 'train': accuracy, 'seconds': seconds,
                           self.measure: pretraining.centroid_accuracy(self.net, self.preprocessing,
                                                                       self.probe, self.data.tested)})

    def show(self) -> None:
        """The last epoch in a line, all in a picture."""
        last, args = self.curve[-1], self.args
        speed = self.per_epoch * args.batch_size / last['seconds']
        share = speed * self.flops[self._size(last['epoch'] - 1)] / self.peak
        print(f"epoch {last['epoch']}: loss {last['loss']:.3f}, train {last['train']:.1f} %, "
              f'{self.measured} {last[self.measure]:.1f} %, {speed:.0f} images/s, '
              f'{100 * share:.0f} % of {self.peak / 1e12:.3g} TFLOP/s', flush=True)
        title = ', '.join([args.backbone, *(f'{name} {value}' for name, value in self.options.items())])
        pretraining.learning_curve(Path(f'{args.out}.png'), self.curve, title)

    def save(self, checkpoint: Path) -> None:
        """Write what `resume` reads."""
        pretraining.save_checkpoint(checkpoint, dict(
            settings=self.settings, net=self.net.state_dict(), optimiser=self.optimiser.state_dict(),
            schedule=self.schedule.state_dict(), curve=self.curve))

    def write_weights(self) -> None:
        """The weights file, with what it was learned from and how well it serves."""
        args, data, last = self.args, self.data, self.curve[-1]
        also = {f'also_in_{stream}': {wnid: why for wnid, why in shared.items() if wnid in data.classes}
                for stream, shared in SHARED.items() if stream not in args.leave_out}
        held_out = {} if data.unseen else dict(held_out_images_per_class=data.tested)
        info = {'classes': data.classes, 'left_out': self.left_out, **also,
                'data': 'miniImageNet, training split', **held_out, 'data_digest': data.digest,
                'recipe': self.recipe, 'curve': self.curve, 'train_accuracy': last['train'],
                f'{self.measure}_ncc_accuracy': last[self.measure]}
        pretraining.save_weights(args.out, self.net.cpu(), args.backbone, self.options, self.preprocessing,
                                 info)
