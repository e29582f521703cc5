"""Commands that read features: learn, add, predict."""
import argparse
import sys

from scroll import engines
from scroll.commands import states
from scroll.embedding.named import embedder_of
from scroll.errors import InputError
from scroll.files import features, learning
from scroll.learner import Scroll
from scroll.settings import SETTINGS, check_settings, parse
from scroll.state import State

# other defaults than those of Scroll: keep no samples, but keys, to unlearn by
_USUAL = dict(buffer_size=0, keep_keys=True)


def add_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    about = f'{features.__doc__}\n{learning.__doc__}'
    learned = command('learn', learn, 'make a learner of files of features', about)
    longer = command('add', add, 'let a learner learn more files', about)
    predicted = command('predict', predict, 'labels of samples, as CSV', learning.predict.__doc__)
    for out, usual in ((learned, 'train'), (longer, 'train'), (predicted, 'test')):
        if out is not learned:
            out.add_argument('state', help='file of a learner')
        out.add_argument('files', metavar='FILE', nargs='*' if out is learned else '+',
                         help='npz, npy or Parquet files')
        states.add_columns(out)
        out.add_argument('--split', choices=(*features.SPLITS, features.ALL),
                         help=f'of files with splits, the samples to take (default: {usual})')
        out.add_argument('--block_size', type=parse, default=features.BLOCK, metavar='N',
                         help='samples learned at once, of at most 128 MiB (default: %(default)s)')
        if out is not predicted:
            out.add_argument('--embedder', metavar='WEIGHTS', default='',
                             help='of images, bytes in Parquet (image, y): {timm,transformers,MODULE}:NAME')
        states.add_out(out, 'file to write' + '; - is standard output' * (out is predicted))
    flag = learned.add_argument_group('whole files, each once', engines.__doc__).add_argument
    flag('--from', dest='patterns', metavar='PATTERN', nargs='+',
         help="instead of FILE: those that match, like 'days/*.parquet' or 's3://bucket/*.parquet'")
    flag('--engine', choices=engines.ENGINES, help=f'who reads them (default: {engines.LOCAL})')
    flag('--workers', type=parse, metavar='N', help='processes (default: as the engine likes)')
    predicted.add_argument('--scores', action='store_true', help='the logit of each class, too')
    flag = learned.add_argument_group('settings, as those of scroll.Scroll').add_argument
    for name, setting in SETTINGS.items():
        if name != 'adaptation':
            default = _USUAL.get(name, setting.default)
            on_off = isinstance(default, bool)
            how = dict(action=argparse.BooleanOptionalAction) if on_off else dict(type=parse)
            among = f' ({", ".join(setting.choices)})' if setting.choices else ''
            flag(f'--{name}', default=argparse.SUPPRESS, **how,
                 help=f'{setting.help}{among}; default: {default}')


def learn(args) -> None:
    """A learner of files."""
    given = {name: value for name, value in vars(args).items() if name in SETTINGS}
    check_settings(given)
    learner = Scroll(embedder_of(args.embedder), **_USUAL | dict(keep_keys=not args.patterns) | given)
    if args.patterns:
        _learn_with_engine(learner, args)
        return
    for name in ('engine', 'workers'):
        if getattr(args, name):
            raise InputError(f'--{name} goes with --from PATTERN')
    if not args.files:
        raise InputError('expected FILE ..., or --from PATTERN')
    _go_on(learner, args)


def _learn_with_engine(learner: Scroll, args) -> None:
    """The state of a learner whose statistics an engine has made."""
    if args.files:
        raise InputError(f'{args.files[0]}: expected files or --from PATTERN, not both')
    if learner.buffer_size or learner.keep_keys:
        raise InputError('--from counts sums, and keeps no samples and no keys: leave out --buffer_size and '
                         '--keep_keys, or give the files without --from')
    params = {name: value for name, value in learner.get_params().items() if name != 'embedder'}
    sources = engines.find(args.patterns)
    names = None if args.embedder else engines.names_in(sources[0], args.columns)
    counter = engines.Counter(params, args.columns, args.split, args.block_size, names, args.embedder)
    counted = engines.total(args.engine or engines.LOCAL, counter, sources, args.workers)
    if not counted.statistics.total:
        raise InputError(f'--from {args.patterns[0]}: there are no samples that are to be learned')
    print(f'learned {counted.statistics.total} samples of {len(sources)} files', file=sys.stderr)
    states.write(State(params, counted.psi, counted.statistics, parts=counted.parts, names=names), args.out)


def add(args) -> None:
    """A learner, and what it learns from more files."""
    _go_on(Scroll.load(args.state, embedder_of(args.embedder)), args)


def _go_on(learner: Scroll, args) -> None:
    counts = learning.learn(learner, args.files, args.columns, args.split, args.block_size)
    learner.save(args.out)
    print('learned {} of {} samples'.format(*counts), file=sys.stderr)
    print(learner.digest())


def predict(args) -> None:
    """Labels, and how many of them are right."""
    learner = states.load(args.state)
    right, total = learning.predict(learner, args.files, args.out, args.columns, args.split, args.block_size,
                                    args.scores)
    print(f'predicted {total} samples' if right is None else
          f'accuracy {right / total:.4f} ({right} of {total} samples)',
          file=sys.stderr if args.out == '-' else sys.stdout)
