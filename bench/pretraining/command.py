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
import sys
from pathlib import Path

from bench.pretraining.recipes import RECIPES, SHARED
from core.arguments import ArgumentParser, real, share, whole
from core.plugins import backbone_name
from scroll.errors import InputError


def parse_args(argv=None) -> argparse.Namespace:
    """The command line, with the recipe's values for flags not given and None for those of the other."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument('--out', affects='place', required=True, help='weights file to write (.safetensors)')
    parser.add_argument('--base_path', affects='place', default='./data/',
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
    parser.add_argument('--device', affects='speed',
                        help='cpu, cuda or the number of a GPU (default: a GPU, if there is one)')
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'),
                        help='of convolutions and products (default: bfloat16 on a GPU, float32 on a CPU)')
    parser.add_argument('--compile', affects='speed', action='store_true', help='compile the network')
    group = parser.add_argument_group('numbers of the recipe')
    for name, kind, text in (
            ('input_size', whole(1), 'pixels'), ('epochs', whole(1), ''), ('batch_size', whole(2), ''),
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
    from scroll.archive import check_target  # numpy: --help needs none
    check_target(args.out, '--out')


def main(argv=None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ['quantise']:
        from bench.pretraining import quantising
        print(quantising.quantise(quantising.parse_args(words[1:])))
        return 0
    args = parse_args(words)
    checkpoint = Path(f'{args.out}.checkpoint')
    from bench.pretraining.training import train
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
