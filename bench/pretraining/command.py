"""Learn a backbone by multi-class classification on classes that no stream has.

    python pretrain.py --out backbone/weights/compact.safetensors
    python pretrain.py --out wide.safetensors --width 64 --grow_from compact --small_epochs 4 --epochs 8 \\
        --batch_size 64 --lr 0.04
    python pretrain.py --out mini.safetensors --recipe rfs --backbone resnet12 --leave_out none
    python pretrain.py --out cifar.safetensors --width 64 --input_size 84 --epochs 60 \\
        --leave_out cifar100 cifar10
    python pretrain.py quantise compact

1. The compact backbone: ResNet18 of width 32 at 42 px. 2. The wide one, of the paper's width, which starts as
the compact one: what two cores learn in two hours. 3. For a GPU and miniImageNet streams: the paper's
ResNet12 with the recipe of RFS (Tian et al. 2020) on all 64 training classes. 4. For a GPU and CIFAR streams:
the paper's ResNet18 at its size. All learn from miniImageNet's training classes, less those that a stream has
(--leave_out). 5. The integer network of weights, whose features are the same on every machine, in a file
beside them (`main.py --embedding_dtype integer`).

The classes left out are not wasted: nearest-centroid accuracy on them, after every epoch, tells how well the
features serve classes they have never seen, which is what a backbone is for. Where none is left out, 50 of
the 600 images of each class are, and take their place. With `--recipe compact` half of the batches are first
shrunk to 32 px, so that the backbone meets images as coarse as CIFAR's.

A run that is killed goes on from its last epoch when it is started again, also on another machine; on a CPU,
with as many threads, it ends in the same bits as one that was not. `<out>.png` shows how far it is.
"""
import argparse
import math
import sys
import time
from functools import partial
from pathlib import Path

from core.arguments import ArgumentParser, bears, real, share, whole
from core.plugins import backbone_name
from scroll.errors import InputError

# stream -> wnid of a training class -> what it is: the stream's class that it is a kind of
SHARED = {
    'cifar100': {
        'n01704323': 'triceratops: dinosaur', 'n01749939': 'green mamba: snake',
        'n01770081': 'harvestman: spider', 'n02120079': 'Arctic fox: fox', 'n02165456': 'ladybug: beetle',
        'n02606052': 'rock beauty: aquarium_fish', 'n02747177': 'ashcan: can',
        'n02823428': 'beer bottle: bottle', 'n04389033': 'tank: tank', 'n07747607': 'orange: orange',
        'n09246464': 'cliff: mountain', 'n13054560': 'bolete: mushroom'},
    # no airplane, automobile, cat, deer, frog or truck is among them, and no horse but a carousel's
    'cifar10': {
        'n01532829': 'house finch: bird', 'n01558993': 'robin: bird', 'n01843383': 'toucan: bird',
        'n02089867': 'Walker hound: dog', 'n02091831': 'Saluki: dog', 'n02101006': 'Gordon setter: dog',
        'n02105505': 'komondor: dog', 'n02108089': 'boxer: dog', 'n02108551': 'Tibetan mastiff: dog',
        'n02108915': 'French bulldog: dog', 'n02111277': 'Newfoundland: dog',
        'n02113712': 'miniature poodle: dog', 'n02687172': 'aircraft carrier: ship',
        'n04612504': 'yawl: ship'}}

RECIPES = {     # values of the flags that a recipe has and that are not given
    'compact': dict(input_size=42, epochs=20, batch_size=128, lr=0.1, warmup=1, momentum=0.9, wd=5e-4,
                    jitter=0.4, coarse=0.5),
    'rfs': dict(input_size=84, epochs=100, batch_size=64, lr=0.05, milestones=None, lr_decay=0.1,
                momentum=0.9, wd=5e-4, jitter=0.4, padding=8)}
WIDTH = dict(compact=32, rfs=64)


def parse_args(argv=None) -> argparse.Namespace:
    """The command line, with the recipe's values for flags not given and None for those of the other."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--out', bears='place', required=True, help='weights file to write (.safetensors)')
    parser.add_argument('--base_path', bears='place', default='./data/',
                        help='folder that holds MINIIMAGENET')
    parser.add_argument('--recipe', choices=tuple(RECIPES), default='compact',
                        help='compact: crops of any size, warm-up and cosine, Nesterov; rfs: shifts, steps')
    parser.add_argument('--backbone', default='resnet18-md', type=backbone_name, help='registered backbone')
    parser.add_argument('--width', type=whole(1), help='channels of the first stage (compact: 32, rfs: 64)')
    parser.add_argument('--option', action='append', default=[], metavar='NAME=VALUE',
                        help='another option of the backbone')
    parser.add_argument('--leave_out', nargs='+', default=['cifar100'], metavar='STREAM',
                        help='streams whose classes are left out: cifar100, cifar10 or both, or none '
                             '(default: cifar100)')
    parser.add_argument('--seed', type=whole(0), default=0)
    parser.add_argument('--grow_from', metavar='WEIGHTS',
                        help='start as this narrower network, which has learned already')
    parser.add_argument('--small_size', type=whole(1), default=32,
                        help='pixels in the first --small_epochs epochs')
    parser.add_argument('--small_epochs', type=whole(0), default=0,
                        help='epochs at --small_size, which are the cheaper ones')
    parser.add_argument('--device', bears='speed',
                        help='cpu, cuda or the number of a GPU (default: a GPU, if there is one)')
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'),
                        help='of convolutions and products (default: bfloat16 on a GPU, float32 on a CPU)')
    parser.add_argument('--compile', bears='speed', action='store_true', help='compile the network')
    group = parser.add_argument_group('numbers of the recipe')
    for name, kind, text in (
            ('input_size', whole(1), 'pixels'), ('epochs', whole(1), ''), ('batch_size', whole(1), ''),
            ('lr', real(positive=True), 'learning rate at its highest'), ('momentum', share, ''),
            ('wd', real(0), 'weight decay'),
            ('jitter', share, 'strength of changes of brightness, contrast and saturation'),
            ('coarse', share, 'share of batches shrunk to 32 px first'),
            ('warmup', whole(0), 'epochs of rising learning rate'),
            ('padding', whole(0), 'largest shift in pixels'),
            ('lr_decay', real(positive=True), 'factor of the learning rate at each milestone')):
        values = ', '.join(f'{recipe}: {numbers[name]:g}' for recipe, numbers in RECIPES.items()
                           if name in numbers)
        group.add_argument(f'--{name}', type=kind, help=f'{text} ({values})'.strip())
    group.add_argument('--milestones', type=whole(1), nargs='+',
                       help='epochs after which lr falls (rfs: 60 %% and 80 %% of all)')
    args = parser.parse_args(argv)
    fill_in(args)
    return args


def fill_in(args) -> None:
    """Take the recipe's values; InputError where flags contradict each other."""
    recipe = RECIPES[args.recipe]
    for name in {name: None for numbers in RECIPES.values() for name in numbers}:
        if name not in recipe and getattr(args, name) is not None:
            raise InputError(f'--{name} is no part of --recipe {args.recipe}')
        if getattr(args, name) is None:
            setattr(args, name, recipe.get(name))
    if args.recipe == 'rfs':
        usual = {round(part * args.epochs) for part in (0.6, 0.8)} - {0, args.epochs}
        args.milestones = args.milestones or sorted(usual)
        if (sorted(set(args.milestones)) != args.milestones
                or args.milestones and args.milestones[-1] >= args.epochs):
            raise InputError(f"--milestones {' '.join(map(str, args.milestones))}: expected rising numbers "
                             f'below --epochs {args.epochs}')
    args.leave_out = sorted({name for text in args.leave_out for name in text.split(',')})
    if args.leave_out != ['none'] and not set(args.leave_out) <= set(SHARED):
        raise InputError(f"--leave_out {' '.join(args.leave_out)}: expected {', '.join(SHARED)} or both, or "
                         'none')
    if args.small_epochs > args.epochs:
        raise InputError(f'--small_epochs {args.small_epochs}: there are {args.epochs} epochs')
    if not Path(args.out).absolute().parent.is_dir() or Path(args.out).is_dir():
        raise InputError(f'--out {args.out}: expected a file name in a folder that exists')


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
    import torch
    import torch.nn.functional as F
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
    import torch

    from bench.pretraining import parts as pretraining
    from core.environment import choose_devices
    from datasets.utils.readers import mini_split
    from scroll.embedding.images import Preprocessing
    from scroll.embedding.layout import layout_for
    from scroll.randomness import stream_seed

    device = choose_devices(args.device)[0]
    args.dtype = args.dtype or ('bfloat16' if device.type == 'cuda' else 'float32')
    torch.backends.cudnn.benchmark = device.type == 'cuda'  # all batches have one shape
    options = pretraining.backbone_options(args.backbone, args.width, WIDTH[args.recipe], args.option)
    args.width = options.get('width')
    left_out = {wnid: why for stream in args.leave_out for wnid, why in SHARED.get(stream, {}).items()}
    data = pretraining.divide(*mini_split(args.base_path, 'train'), left_out)
    per_epoch = len(data.images) // args.batch_size
    if per_epoch == 0:
        raise InputError(f'--batch_size {args.batch_size}: there are {len(data.images)} images to learn from')
    images, labels, probe = data.images.to(device), data.labels.to(device), data.probe.to(device)

    torch.manual_seed(args.seed)
    net = pretraining.make_net(args.backbone, len(data.classes), options).to(device)
    if args.grow_from:
        pretraining.grow(net, args.grow_from, left_out, args.seed)
    preprocessing = Preprocessing(args.input_size)
    optimiser = pretraining.make_optimiser(net, args)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: learning_rate(step, per_epoch, args))
    recipe = {name: value for name, value in vars(args).items()
              if bears(args, name) == 'result' and value not in (None, [])}
    settings, curve = {**recipe, 'data': data.digest}, []
    if checkpoint.is_file():
        state = pretraining.load_checkpoint(checkpoint, settings)
        net.load_state_dict(state['net'])
        optimiser.load_state_dict(state['optimiser'])
        schedule.load_state_dict(state['schedule'])
        curve = state['curve']
        print(f'{checkpoint}: {len(curve)} of {args.epochs} epochs are done', flush=True)
    sizes = [args.small_size if epoch < args.small_epochs else args.input_size
             for epoch in range(args.epochs)]
    flops = {size: pretraining.training_flops(args.backbone, net, size, device)     # of an image
             for size in set(sizes)}
    peak = pretraining.matmul_peak(device, getattr(torch, args.dtype))
    if args.compile:
        pretraining.compile_net(net)

    def augmented(ids, size, generator):
        x = pretraining.augment(images[ids], size, args, generator)
        return preprocessing.normalise(x).contiguous(memory_format=layout_for(net))
    batch = pretraining.beside(augmented, device)
    measure, measured = (('unseen', 'unseen classes') if data.unseen
                         else ('held_out', 'held-out images of seen classes'))

    for epoch in range(len(curve), args.epochs):
        size = sizes[epoch]
        # so that a resumed run sees the same batches and drops the same values
        generator = torch.Generator().manual_seed(1000 * args.seed + epoch)
        torch.manual_seed(stream_seed(args.seed, f'dropout {epoch}'))
        order = torch.randperm(len(images), generator=generator).to(device)
        loss, accuracy, seconds = train_epoch(
            net, optimiser, schedule, partial(batch, size=size, generator=generator), labels, order, args)
        curve.append({'epoch': epoch + 1, 'loss': loss, 'train': accuracy, 'seconds': seconds,
                      measure: pretraining.centroid_accuracy(net, preprocessing, probe, data.tested)})
        speed = per_epoch * args.batch_size / seconds
        print(f'epoch {epoch + 1}: loss {loss:.3f}, train {accuracy:.1f} %, '
              f'{measured} {curve[-1][measure]:.1f} %, {speed:.0f} images/s, '
              f'{100 * speed * flops[size] / peak:.0f} % of {peak / 1e12:.3g} TFLOP/s', flush=True)
        title = ', '.join([args.backbone, *(f'{name} {value}' for name, value in options.items())])
        pretraining.learning_curve(Path(f'{args.out}.png'), curve, title)
        pretraining.save_checkpoint(checkpoint, dict(
            settings=settings, net=net.state_dict(), optimiser=optimiser.state_dict(),
            schedule=schedule.state_dict(), curve=curve))

    also = {f'also_in_{stream}': {wnid: why for wnid, why in shared.items() if wnid in data.classes}
            for stream, shared in SHARED.items() if stream not in args.leave_out}
    held_out = {} if data.unseen else dict(held_out_images_per_class=data.tested)
    info = {'classes': data.classes, 'left_out': left_out, **also,
            'data': 'miniImageNet, training split', **held_out, 'data_digest': data.digest, 'recipe': recipe,
            'curve': curve, 'train_accuracy': curve[-1]['train'],
            f'{measure}_ncc_accuracy': curve[-1][measure]}
    pretraining.save_weights(args.out, net.cpu(), args.backbone, options, preprocessing, info)
    checkpoint.unlink(missing_ok=True)


def main(argv=None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ['quantise']:
        from bench.pretraining import quantising
        print(quantising.quantise(quantising.parse_args(words[1:])))
        return 0
    args = parse_args(words)
    checkpoint = Path(f'{args.out}.checkpoint')
    try:
        train(args, checkpoint)
    except KeyboardInterrupt:
        if not checkpoint.is_file():
            raise
        print(f'interrupted: {checkpoint} has what was learned; the same command goes on from there',
              file=sys.stderr)
        return 130
    print(f'{args.out}: {Path(args.out).stat().st_size / 1e6:.1f} MB')
    return 0
