"""SCROLL's flags of the command line, from the tables of its settings."""
import argparse
import inspect

from core.arguments import add_rehearsal_args, binary_to_boolean_type, of_signature, real, whole
from models.utils import learned_files
from models.utils.frozen_features import add_embedding_args
from scroll.adaptation import Adaptation
from scroll.embedding.images import Augmentation
from scroll.errors import InputError
from scroll.settings import DEFAULTS, SETTINGS, parse

_ONLINE = dict(predictor='head', ridge_lambda='ridge_lambda', ridge_targets='targets', ncc_bias='ncc_bias',
               shrinkage='shrinkage', pooling='pooling', lift='lift', lift_dim='lift_dim',
               lift_bandwidth='lift_bandwidth', buffer_strategy='strategy')      # flag: a name in `SETTINGS`
_ADAPTATION = {     # flag: attribute of `Adaptation`, which has its default and its choices; help
    'adaptation': ('mode', 'auto: adapters up to the threshold, full tuning above'),
    'adaptation_threshold': ('threshold', 'largest buffer for adapters'),
    'iterations': ('iterations', 'updates'),
    'adapt_lr': ('lr', 'AdaDelta: adapters or network'),
    'classifier_lr': ('classifier_lr', 'AdaDelta: classifier'),
    'scale_lr': ('scale_lr', 'AdaDelta: logit scale, where it is learned'),
    'scale': ('scale', 'initial logit scale, where it is not calibrated'),
    'calibrate_scale': ('calibrate', 'set the scale by cross-entropy first, if f_T is better than '
                                     'guessing'),
    'adapt_select': ('select', 'folds: cross-validation within the buffer chooses updates and mixture, or '
                               'f_T'),
    'adapt_select_folds': ('folds', 'folds of the buffer'),
    'adapt_select_held_out': ('held_out', 'samples to hold out at least; further folds are not asked'),
}
_LEARN = {'auto': None, '0': False, '1': True}              # --learn_scale -> learn_scale


def _reader(name: str):
    """Command-line type: a value that the setting can have."""
    def value(text):
        read = parse(text)
        try:
            SETTINGS[name].check(name, read)
        except InputError as error:
            raise argparse.ArgumentTypeError(error) from None
        return float(read) if isinstance(DEFAULTS[name], float) and not isinstance(read, str) else read
    return value


def _add_online(group) -> None:
    for flag, name in _ONLINE.items():
        setting, aliases = SETTINGS[name], ('--head',) * (name == 'head')
        how = dict(choices=setting.choices) if setting.choices else dict(type=_reader(name))
        group.add_argument(f'--{flag}', *aliases, default=setting.default, help=setting.help, **how)


def _add_adaptation(group) -> None:
    parameters = inspect.signature(Adaptation).parameters
    for flag, (name, text) in _ADAPTATION.items():
        options = of_signature(parameters[name], {int: whole(0), float: real(0)})
        if name == 'scale':
            options['type'] = real(positive=True)
        group.add_argument(f'--{flag}', help=text, **options)


def add_flags(parser) -> None:
    """All of SCROLL's flags, and its defaults of Mammoth's."""
    add_rehearsal_args(parser)
    group = parser.add_argument_group('SCROLL, online stage')
    _add_online(group)
    group.add_argument('--lift_seed', type=whole(0),
                       help="of the lift's random matrix (default: --seed)")
    add_embedding_args(parser)
    group = parser.add_argument_group('SCROLL, adaptation')
    _add_adaptation(group)
    learn = next(word for word, value in _LEARN.items() if value is Adaptation.learn_scale)
    group.add_argument('--learn_scale', choices=tuple(_LEARN), default=learn,
                       help='auto: with adapters only')
    group.add_argument('--adapt_every_task', affects='record', type=whole(0), default=0,
                       help='make and evaluate f* after each n-th task (0: after the last alone)')
    group.add_argument('--adapt_padding', type=real(0),
                       help='largest shift of a crop, as a share of the size '
                            '(default: the data set says)')
    group.add_argument('--adapt_flip', type=binary_to_boolean_type,
                       help='mirror half of the images (default: the data set says)')
    group.add_argument('--adapt_jitter', type=real(0), default=Augmentation.jitter, help='colour jitter')
    learned_files.add_file_args(parser)
    parser.set_defaults(lr=0.0, n_epochs=1, buffer_size=DEFAULTS['buffer_size'],
                        minibatch_size=Adaptation.minibatch)


def online(args) -> dict:
    """Arguments of `Scroll`, as the flags say."""
    return {name: getattr(args, flag) for flag, name in _ONLINE.items()} | dict(
        buffer_size=args.buffer_size, seed=args.seed, keep_keys=args.keep_keys,
        lift_seed=args.seed if args.lift_seed is None else args.lift_seed)


def adaptation(args, dataset) -> Adaptation:
    """How f* is made, as the flags say, else the data set: the size of its shifts, and whether it mirrors."""
    flip = getattr(dataset, 'FLIP', True) if args.adapt_flip is None else args.adapt_flip
    padding = args.adapt_padding
    if padding is None:
        padding = getattr(dataset, 'ADAPT_PADDING', 6 / 84)
    given = {name: getattr(args, flag) for flag, (name, _) in _ADAPTATION.items()}
    return Adaptation(**given, learn_scale=_LEARN[args.learn_scale], minibatch=args.minibatch_size,
                      augmentation=Augmentation(padding, flip, args.adapt_jitter))
