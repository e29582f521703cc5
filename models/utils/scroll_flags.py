"""SCROLL's flags of the command line, from the tables of its settings."""

import argparse
import inspect

from core.arguments import (
    add_rehearsal_args,
    binary_to_boolean_type,
    of_signature,
    real,
    spellings,
    whole,
)
from models.utils.frozen_features import add_embedding_args, decide_dtype
from scroll.adaptation import Adaptation
from scroll.embedding.images import Augmentation
from scroll.exports.tensors import FORMATS
from scroll.files.shards import shard
from scroll.ground.errors import InputError
from scroll.ground.settings import DEFAULTS, SETTINGS, parse

_ONLINE = {  # flag: a name in `SETTINGS`
    'predictor': 'head',
    'ridge_lambda': 'ridge_lambda',
    'ridge_targets': 'targets',
    'ncc_bias': 'ncc_bias',
    'shrinkage': 'shrinkage',
    'pooling': 'pooling',
    'lift': 'lift',
    'lift_dim': 'lift_dim',
    'lift_bandwidth': 'lift_bandwidth',
    'buffer_strategy': 'strategy',
}
_ADAPTATION = {  # flag: attribute of `Adaptation`, which has its default and its choices; help
    'adaptation': ('mode', 'auto: adapters up to the threshold, full tuning above'),
    'adaptation_threshold': ('threshold', 'largest buffer for adapters'),
    'adapt_lr': ('lr', 'AdaDelta: adapters or network'),
    'classifier_lr': ('classifier_lr', 'AdaDelta: classifier'),
    'scale_lr': ('scale_lr', 'AdaDelta: logit scale, where it is learned'),
    'scale': ('scale', 'initial logit scale, where it is not calibrated'),
    'calibrate_scale': ('calibrate', 'set the scale by cross-entropy first, if f_T beats guessing'),
    'adapt_prior': ('prior', "exemplars that ridge's f_T counts for, in targets and f*; 0: none"),
    'adapt_averaging': ('averaging', 'f* is made of a running mean of the parameters'),
    'exact_adaptation': (
        'exact',
        'f* is the same on every machine, and takes three to five times as long',
    ),
}
_OF_F_STAR = (
    *(flag for flag in _ADAPTATION if flag != 'adaptation'),
    'iterations',
    'learn_scale',
    'minibatch_size',
    'adapt_padding',
    'adapt_flip',
    'adapt_jitter',
    'precision',
)
_LEARN = {'auto': None, '0': False, '1': True}  # --learn_scale -> learn_scale


def _reader(name: str):
    """Command-line type: a value that the setting can have."""

    def value(text):
        read = parse(text)
        try:
            SETTINGS[name].check(name, read)
        except InputError as error:
            raise argparse.ArgumentTypeError(error) from None
        return (
            float(read) if isinstance(DEFAULTS[name], float) and not isinstance(read, str) else read
        )

    return value


def add_flags(parser) -> None:
    """All of SCROLL's flags, and its defaults of Mammoth's."""
    add_rehearsal_args(parser)
    flag = parser.add_argument_group(
        'SCROLL, online stage', 'example: --head lda --lift square'
    ).add_argument
    for name, setting in _ONLINE.items():
        about = SETTINGS[setting]
        how = {'choices': about.choices} if about.choices else {'type': _reader(setting)}
        flag(*spellings(name), dest=name, default=about.default, help=about.help, **how)
    flag('--lift_seed', type=whole(0), help="of the lift's random matrix (default: --seed)")
    add_embedding_args(parser)
    flag = parser.add_argument_group(
        'SCROLL, adaptation', 'example: --adaptation full --iterations 200'
    ).add_argument
    parameters = inspect.signature(Adaptation).parameters
    for name, (attribute, text) in _ADAPTATION.items():
        numbers = {int: whole(0), float: real(0, positive=attribute == 'scale')}
        flag(f'--{name}', help=text, **of_signature(parameters[attribute], numbers))
    flag('--iterations', type=whole(0), help='updates (default: by |M|, 300 of 200 to 500 samples)')
    flag('--learn_scale', choices=tuple(_LEARN), default='auto', help='auto: with adapters only')
    flag(
        '--adapt_every_task',
        affects='record',
        type=whole(0),
        default=0,
        help='make and evaluate f* after each n-th task (0: after the last alone)',
    )
    flag(
        '--adapt_padding',
        type=real(0),
        help='largest shift of a crop, as a share of the size (default: the data set says)',
    )
    flag(
        '--adapt_flip',
        type=binary_to_boolean_type,
        help='mirror half of the images (default: the data set says)',
    )
    flag('--adapt_jitter', type=real(0), default=Augmentation.jitter, help='colour jitter')
    _add_file_flags(
        parser.add_argument_group('SCROLL, files', 'example: --save_state mine.npz').add_argument
    )
    parser.set_defaults(
        lr=0.0,
        n_epochs=1,
        buffer_size=DEFAULTS['buffer_size'],
        minibatch_size=Adaptation.minibatch,
        precision='auto',
    )


def _add_file_flags(flag) -> None:
    flag(
        '--shard',
        affects='stream',
        type=shard,
        help='i/n: learn only the i-th of n shares of the samples, cut by their pixels, so that '
        'the shares of n runs are the whole whatever their schedules and seeds',
    )
    flag(
        '--save_statistics',
        affects='place',
        metavar='FILE',
        help='write the statistics after the last task (python -m scroll)',
    )
    flag(
        '--save_state',
        affects='place',
        metavar='FILE',
        help='write statistics and buffer after the last task (scroll.Scroll.load)',
    )
    flag(
        '--keep_keys',
        affects='record',
        type=binary_to_boolean_type,
        help='--save_state keeps the key of every sample (8 bytes each), so that unlearning '
        'knows what was learned (default: 1 with --save_state)',
    )
    flag(
        '--export',
        type=str,
        affects='place',
        metavar='FOLDER',
        help='write f_T and f* after the last task, for other programs, to a new folder, or the '
        'predictor to a file, .onnx, .pt2 or .safetensors (scroll.exports.tensors)',
    )
    flag(
        '--export_formats',
        affects='place',
        nargs='+',
        choices=FORMATS,
        help='of --export: safetensors: weights; torch, onnx: graphs (default: safetensors)',
    )
    flag(
        '--load_state',
        '--load_statistics',
        affects='content',
        metavar='FILE',
        help='with --inference_only 1: evaluate a file of --save_statistics or --save_state',
    )


def check_args(args) -> None:
    """InputError, before any work, for flags that do not go together, but for those of a loaded
    run.
    """
    decide_dtype(args)
    if args.keep_keys is None:
        args.keep_keys = bool(args.save_state)
    for flag, needed in (
        ('keep_keys', 'save_state'),
        ('load_state', 'inference_only'),
        ('export_formats', 'export'),
    ):
        if (
            getattr(args, flag)
            and not getattr(args, needed)
            and not (flag == 'keep_keys' and args.loadcheck)
        ):
            raise InputError(f'--{flag} has no effect in this run: it needs --{needed}')
    if args.loadcheck and not (args.start_from or args.inference_only):
        raise InputError(
            '--loadcheck: scroll goes on from its file with --start_from, or evaluates it with '
            '--inference_only 1'
        )
    if args.inference_only and not args.load_state and not args.loadcheck:
        raise InputError(
            '--inference_only 1: scroll knows nothing before it has learned; give --load_state'
        )
    for flag in ('shard', 'save_statistics', 'save_state'):
        if args.inference_only and getattr(args, flag) and not (flag == 'shard' and args.loadcheck):
            raise InputError(f'--{flag} has no effect with --inference_only 1: nothing is learned')
    if args.buffer_size == 0 and args.adaptation not in ('auto', 'none'):
        raise InputError(f'--adaptation {args.adaptation} needs a buffer, but --buffer_size is 0')
    if args.more_weights:
        if args.buffer_size and args.adaptation != 'none':
            raise InputError(
                '--more_weights: f* needs one network: --buffer_size 0, or --adaptation none'
            )
        if args.export:
            raise InputError('--export needs one network: leave out --more_weights')
    if not args.buffer_size or args.adaptation == 'none':
        args.affects |= dict.fromkeys(_OF_F_STAR, 'nothing')


def online(args) -> dict:
    """Arguments of `Scroll`, as the flags say."""
    return {name: getattr(args, flag) for flag, name in _ONLINE.items()} | {
        'buffer_size': args.buffer_size,
        'seed': args.seed,
        'keep_keys': args.keep_keys,
        'lift_seed': args.seed if args.lift_seed is None else args.lift_seed,
    }


def adaptation(args, dataset) -> Adaptation:
    """`Adaptation` of the flags; shifts and mirroring are the data set's unless flags say."""
    flip = args.adapt_flip
    padding = args.adapt_padding
    if flip is None:
        flip = getattr(dataset, 'FLIP', True)
    if padding is None:
        padding = getattr(dataset, 'ADAPT_PADDING', 6 / 84)
    given = {attribute: getattr(args, flag) for flag, (attribute, _) in _ADAPTATION.items()}
    return Adaptation(
        **given,
        iterations=args.iterations,
        learn_scale=_LEARN[args.learn_scale],
        minibatch=args.minibatch_size,
        augmentation=Augmentation(padding, flip, args.adapt_jitter),
        precision=args.precision,
    )
