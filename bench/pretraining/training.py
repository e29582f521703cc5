"""The training of pretrain.py: from images and a recipe to a weights file, epoch by epoch."""
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from backbone import weights
from bench.pretraining import parts
from bench.pretraining.recipes import SHARED, WIDTH
from core.arguments import affects
from core.environment import choose_devices
from datasets.utils.readers import mini_split
from scroll.archive import atomic_write
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


def train(args, checkpoint: Path) -> None:
    """Read the images, learn epoch by epoch, write the weights."""
    training = Training(args)
    if checkpoint.is_file():
        training.resume(checkpoint)
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
        self.options = parts.backbone_options(args.backbone, args.width, WIDTH[args.recipe], args.option)
        args.width = self.options.get('width')
        self.left_out = {wnid: why for stream in args.leave_out
                         for wnid, why in SHARED.get(stream, {}).items()}
        self.data = data = parts.divide(*mini_split(args.base_path, 'train'), self.left_out)
        self.per_epoch = len(data.images) // args.batch_size
        if self.per_epoch == 0:
            raise InputError(f'--batch_size {args.batch_size}: there are {len(data.images)} images to learn '
                             'from')
        self.images, self.labels, self.probe = (part.to(self.device)
                                                for part in (data.images, data.labels, data.probe))
        torch.manual_seed(args.seed)
        self.net = parts.make_net(args.backbone, len(data.classes), self.options).to(self.device)
        parts.check_size(args.backbone, self.net, args.input_size, self.device)
        self.preprocessing = Preprocessing(args.input_size)
        self.optimiser = parts.make_optimiser(self.net, args)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: learning_rate(step, self.per_epoch, args))
        self.recipe = {name: value for name, value in vars(args).items()
                       if affects(args, name) == 'result' and value not in (None, [])}
        self.settings = self.recipe | {'data': data.digest}     # what a checkpoint must be made with
        self.measure, self.measured = (('unseen', 'unseen classes') if data.unseen
                                       else ('held_out', 'held-out images of seen classes'))

    def resume(self, checkpoint: Path) -> None:
        """Continue after the last epoch of a killed run; InputError for a file of other settings, or none."""
        try:
            state = torch.load(checkpoint, map_location='cpu', weights_only=True)
            saved = state['settings']
            differ = sorted(key for key in {*saved, *self.settings}
                            if saved.get(key) != self.settings.get(key))
        except Exception as error:          # whatever damage makes of the file
            raise InputError(f'{checkpoint} cannot be read ({type(error).__name__}: {error}): '
                             'delete it to start again') from error
        if differ:
            key = differ[0]
            raise InputError(f'{checkpoint} belongs to other settings: delete it to start again, or go on '
                             f'with its own ({key} {saved.get(key)}, not {self.settings.get(key)})')
        for name in ('net', 'optimiser', 'schedule'):
            getattr(self, name).load_state_dict(state[name])
        self.curve = state['curve']
        print(f'{checkpoint}: {len(self.curve)} of {self.args.epochs} epochs are done', flush=True)

    def save(self, checkpoint: Path) -> None:
        """Write what `resume` reads, whole or not at all."""
        with atomic_write(checkpoint) as file:
            torch.save(dict(settings=self.settings, curve=self.curve, net=self.net.state_dict(),
                            optimiser=self.optimiser.state_dict(), schedule=self.schedule.state_dict()), file)

    def learn(self, epoch: int) -> None:
        """One epoch; a resumed run sees the same batches and drops the same values."""
        generator = torch.Generator().manual_seed(1000 * self.args.seed + epoch)
        torch.manual_seed(stream_seed(self.args.seed, f'dropout {epoch}'))
        order = torch.randperm(len(self.images), generator=generator).to(self.device)
        loss, accuracy, seconds = self._pass(order, generator)
        self.curve.append({'epoch': epoch + 1, 'loss': loss, 'train': accuracy, 'seconds': seconds,
                           self.measure: parts.centroid_accuracy(self.net, self.preprocessing, self.probe,
                                                                 self.data.tested)})

    def _pass(self, order, generator) -> tuple:
        """Learn from the images `order` (N,), whole batches only: mean loss, accuracy (percent), seconds.

        The loss is read every 50 steps: reading it synchronises a GPU.
        """
        net, args, device, began = self.net, self.args, self.device, time.time()
        net.train()
        total_loss = torch.zeros((), dtype=torch.float64, device=device)
        hits = torch.zeros((), dtype=torch.int64, device=device)
        for step in range(self.per_epoch):
            ids = order[step * args.batch_size:(step + 1) * args.batch_size]
            x = self.preprocessing.normalise(parts.augment(self.images[ids], args, generator))
            x = x.contiguous(memory_format=layout_for(net))                         # (B, 3, size, size)
            with torch.autocast(device.type, torch.bfloat16, enabled=args.dtype == 'bfloat16'):
                logits = net(x)                                                     # (B, K)
            loss = F.cross_entropy(logits.float(), self.labels[ids])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            total_loss += loss.detach()
            hits += (logits.argmax(1) == self.labels[ids]).sum()
            if (step % 50 == 49 or step == self.per_epoch - 1) and not math.isfinite(total_loss.item()):
                raise InputError(f'the loss is not finite any more; give a smaller --lr than {args.lr:g}')
        return (total_loss.item() / self.per_epoch, 100 * hits.item() / (self.per_epoch * args.batch_size),
                time.time() - began)

    def show(self) -> None:
        """The last epoch in a line, all in a picture."""
        last, args = self.curve[-1], self.args
        speed = self.per_epoch * args.batch_size / last['seconds']
        print(f"epoch {last['epoch']}: loss {last['loss']:.3f}, train {last['train']:.1f} %, "
              f'{self.measured} {last[self.measure]:.1f} %, {speed:.0f} images/s', flush=True)
        title = ', '.join([args.backbone, *(f'{name} {value}' for name, value in self.options.items())])
        parts.learning_curve(Path(f'{args.out}.png'), self.curve, title)

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
        try:
            weights.save(args.out, self.net.cpu(), args.backbone, self.options, args.input_size,
                         self.preprocessing.mean, self.preprocessing.std, info)
        except ValueError as error:
            raise InputError(f'{args.out} is not written: {error}; give a smaller --lr') from error
