"""Learn a backbone by multi-class classification on classes that no stream has.

    python pretrain.py --out backbone/weights/compact.safetensors
    python pretrain.py --out mini.safetensors --backbone resnet12 --width 64 --input_size 84
    --leave_out none
    python pretrain.py quantise compact

1. The compact backbone. 2. For a GPU and miniImageNet streams: the paper's ResNet12 on all 64
classes. 3. The integer network of weights, in a file next to them.

Networks learn from miniImageNet's training classes, less those that a stream has (--leave_out),
half of the batches as coarse as CIFAR's images. Nearest-centroid accuracy on the classes left out
(or, where none is, on the classes learned), after every epoch, tells how well the features serve
classes they have never seen.

On a CPU with the same number of threads the weights are the same to the last bit.
"""

import argparse
import sys
from pathlib import Path

from bench.pretraining import shared_classes
from core.arguments import ArgumentParser, real, whole
from core.plugins import normalise
from scroll.ground.errors import InputError


def parse_args(argv=None) -> argparse.Namespace:
    """The command line. InputError for streams that are none, or no place for the file."""
    parser = ArgumentParser(description=__doc__)
    flag = parser.add_argument
    flag('--out', affects='place', required=True, help='weights file to write (.safetensors)')
    flag('--base_path', affects='place', default='./data/', help='folder that holds MINIIMAGENET')
    flag('--backbone', default='resnet18-md', type=normalise, help='registered backbone')
    flag('--width', type=whole(1), help='channels of the first stage (default: 32)')
    flag(
        '--leave_out',
        nargs='+',
        default=['cifar100'],
        metavar='STREAM',
        help='streams whose classes are left out: cifar100, cifar10 or both, or none '
        '(default: cifar100)',
    )
    flag('--input_size', type=whole(1), default=42, help='pixels')
    flag('--epochs', type=whole(1), default=20)
    flag('--batch_size', type=whole(2), default=128)
    flag('--lr', type=real(positive=True), default=0.1, help='learning rate at its highest')
    flag('--seed', type=whole(0), default=0)
    flag(
        '--device',
        affects='speed',
        help='cpu, cuda or the number of a GPU (default: a GPU, if there is one)',
    )
    args = parser.parse_args(argv)
    args.leave_out = sorted(set(args.leave_out))
    shared = shared_classes()
    if args.leave_out != ['none'] and not set(args.leave_out) <= set(shared):
        raise InputError(
            f'--leave_out {" ".join(args.leave_out)}: expected {", ".join(shared)} or both, or none'
        )
    from scroll.ground.archive import check_target  # numpy: --help needs none

    check_target(args.out, '--out')
    return args


def main(argv=None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ['quantise']:
        from bench.pretraining import quantising

        print(quantising.quantise(quantising.parse_args(words[1:])))
        return 0
    args = parse_args(words)
    from bench.pretraining.training import train

    train(args)
    print(f'{args.out}: {Path(args.out).stat().st_size / 1e6:.1f} MB')
    return 0
