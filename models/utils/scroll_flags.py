"""SCROLL's flags of the command line, from the signatures of `Scroll` and `Adaptation`."""
import argparse
import inspect

from core.arguments import add_rehearsal_args, binary_to_boolean_type, of_signature, real, share, whole
from models.utils import learned_files
from models.utils.frozen_features import add_embedding_args
from scroll.adaptation import Adaptation
from scroll.embedding.images import Augmentation
from scroll.errors import InputError
from scroll.heads.lda import OAS
from scroll.heads.predictors import exact_lambda
from scroll.heads.ridge_lambda import AUTO
from scroll.learner import Scroll


def _or(word: str, kind):
    """Command-line type: what `kind` takes, or this word."""
    def value(text):
        try:
            return text if text == word else kind(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f'{error} (or {word})') from None
    return value


def _ridge_lambda(text) -> float:
    """Command-line type: a number above 0 that is not rounded to 0."""
    value = real(positive=True)(text)
    try:
        exact_lambda(value)
    except InputError as error:
        raise argparse.ArgumentTypeError(error) from None
    return value


_ONLINE = {         # flag: parameter of `Scroll`, which has its default and its choices; help
    'predictor': ('head', "classifier of f_T; rp, rff: ridge on lifted features; 'auto': the best on the "
                          'buffer, leave-one-out'),
    'ridge_lambda': ('ridge_lambda', "ridge: added to the Gram matrix (sum, not mean); 'auto': "
                                     'chosen from the statistics (GCV)'),
    'ridge_targets': ('targets', 'ridge: +-1 or one-hot'),
    'ncc_bias': ('ncc_bias', "ncc: -|c|^2/2, the paper's -|c|^2, or none"),
    'shrinkage': ('shrinkage', "lda, qda: share of the identity in the covariance, below 1; 'oas': chosen "
                               'from the statistics'),
    'pooling': ('pooling', 'qda: share of the common covariance in that of each class'),
    'lift': ('lift', 'lift the features before they are counted: integer random features (default: as the '
                     'head says)'),
    'lift_dim': ('lift_dim', 'random features'),
    'lift_bandwidth': ('lift_bandwidth', 'fourier: length scale of its kernel'),
    'buffer_strategy': ('strategy', 'which samples of a class are kept'),
}
_ADAPTATION = {     # the same, of `Adaptation`
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
    'adapt_select_folds': ('folds', 'of it, of which as many are asked as'),
    'adapt_select_held_out': ('held_out', 'have so many samples together'),
}
_LEARN = {'auto': None, '0': False, '1': True}              # --learn_scale -> learn_scale
_ALIASES = {'predictor': ('--head',)}
_TYPES = dict(ridge_lambda=_or(AUTO, _ridge_lambda), shrinkage=_or(OAS, share),
              scale=real(positive=True))


def _add_flags(group, build, table: dict) -> None:
    parameters = inspect.signature(build).parameters
    for flag, (name, text) in table.items():
        options = of_signature(parameters[name], {int: whole(0), float: real(0)})
        options['type'] = _TYPES.get(flag, options['type'])
        group.add_argument(f'--{flag}', *_ALIASES.get(flag, ()), help=text, **options)


def _given(args, table: dict) -> dict:
    """The parameters of a table, as the flags say."""
    return {name: getattr(args, flag) for flag, (name, _) in table.items()}


def add_flags(parser) -> None:
    """All of SCROLL's flags, and its defaults of Mammoth's."""
    add_rehearsal_args(parser)
    group = parser.add_argument_group('SCROLL, online stage')
    _add_flags(group, Scroll, _ONLINE)
    group.add_argument('--lift_seed', type=whole(0),
                       help="of the lift's random matrix (default: --seed)")
    add_embedding_args(parser)
    group = parser.add_argument_group('SCROLL, adaptation')
    _add_flags(group, Adaptation, _ADAPTATION)
    learn = next(word for word, value in _LEARN.items() if value is Adaptation.learn_scale)
    group.add_argument('--learn_scale', choices=tuple(_LEARN), default=learn,
                       help='auto: with adapters only')
    group.add_argument('--adapt_every_task', affects='record', type=whole(0), default=0,
                       help='make and evaluate f* after every so many tasks, 1: after each (0: after the '
                            'last alone)')
    group.add_argument('--adapt_padding', type=real(0),
                       help='largest shift of a crop, as a share of the size '
                            '(default: the data set says)')
    group.add_argument('--adapt_flip', type=binary_to_boolean_type,
                       help='mirror half of the images (default: the data set says)')
    group.add_argument('--adapt_jitter', type=real(0), default=Augmentation.jitter, help='colour jitter')
    learned_files.add_file_args(parser)
    parser.set_defaults(lr=0.0, n_epochs=1, buffer_size=Scroll().buffer_size,
                        minibatch_size=Adaptation.minibatch)


def online(args) -> dict:
    """Arguments of `Scroll`, as the flags say."""
    return _given(args, _ONLINE) | dict(
        buffer_size=args.buffer_size, seed=args.seed, keep_keys=args.keep_keys,
        lift_seed=args.seed if args.lift_seed is None else args.lift_seed)


def adaptation(args, dataset) -> Adaptation:
    """How f* is made, as the flags say, else the data set: the size of its shifts, and whether it mirrors."""
    flip = getattr(dataset, 'FLIP', True) if args.adapt_flip is None else args.adapt_flip
    padding = args.adapt_padding
    if padding is None:
        padding = getattr(dataset, 'ADAPT_PADDING', 6 / 84)
    return Adaptation(**_given(args, _ADAPTATION), learn_scale=_LEARN[args.learn_scale],
                      minibatch=args.minibatch_size,
                      augmentation=Augmentation(padding, flip, args.adapt_jitter))
