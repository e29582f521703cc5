"""Commands on features (learn, add, predict), on what was learned (show, digest, merge, remove,
export).
"""

import argparse
import sys
from dataclasses import replace

from scroll.embedding.named import embedder_of
from scroll.exports import tensors as export
from scroll.files import edits, engines, features, learning
from scroll.files.arrays import columns_of
from scroll.ground import archive
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import Progress
from scroll.ground.settings import SETTINGS, check_settings, parse
from scroll.learners.learner import Scroll
from scroll.learners.state import State
from scroll.sums.parts import list_parts, warn_of_repeated

# other defaults than those of Scroll: keep no samples, but keys, to unlearn by
_USUAL = {'buffer_size': 0, 'keep_keys': True}


def add_stream_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    about = f'{features.__doc__}\n{learning.__doc__}'
    learned = command('learn', learn, 'make a learner of files of features', about)
    longer = command('add', add, 'let a learner learn more files', about)
    predicted = command('predict', predict, 'labels of samples, as CSV', learning.predict.__doc__)
    for out, usual in ((learned, 'train'), (longer, 'train'), (predicted, 'test')):
        if out is not learned:
            out.add_argument('state', help='file of a learner')
        out.add_argument(
            'files',
            metavar='FILE',
            nargs='*' if out is learned else '+',
            help='npz, npy, Parquet, safetensors or torch files',
        )
        add_columns(out)
        out.add_argument(
            '--split',
            choices=(*features.SPLITS, features.ALL),
            help=f'of files with splits, the samples to take (default: {usual})',
        )
        out.add_argument(
            '--block_size',
            type=parse,
            default=features.BLOCK,
            metavar='N',
            help='samples learned at once, of at most 128 MiB (default: %(default)s)',
        )
        if out is not predicted:
            out.add_argument(
                '--embedder',
                metavar='WEIGHTS',
                default='',
                help='of images, bytes in Parquet (image, y): {timm,transformers,MODULE}:NAME',
            )
        add_out(out, 'file to write' + '; - is standard output' * (out is predicted))
    flag = learned.add_argument_group('whole files, each once', engines.__doc__).add_argument
    flag(
        '--from',
        dest='patterns',
        metavar='PATTERN',
        nargs='+',
        help="instead of FILE: those that match, like 'days/*.parquet' or 's3://bucket/*.parquet'",
    )
    flag('--engine', choices=engines.ENGINES, help=f'who reads them (default: {engines.LOCAL})')
    flag('--workers', type=parse, metavar='N', help='processes (default: as the engine likes)')
    predicted.add_argument('--scores', action='store_true', help='the logit of each class, too')
    flag = learned.add_argument_group('settings, as those of scroll.Scroll').add_argument
    for name, setting in SETTINGS.items():
        if name != 'adaptation':
            default = _USUAL.get(name, setting.default)
            on_off = isinstance(default, bool)
            how = {'action': argparse.BooleanOptionalAction} if on_off else {'type': parse}
            among = f' ({", ".join(setting.choices)})' if setting.choices else ''
            flag(
                f'--{name}',
                default=argparse.SUPPRESS,
                **how,
                help=f'{setting.help}{among}; default: {default}',
            )


def learn(args) -> None:
    """A learner of files."""
    given = {name: value for name, value in vars(args).items() if name in SETTINGS}
    check_settings(given)
    learner = Scroll(
        embedder_of(args.embedder), **_USUAL | {'keep_keys': not args.patterns} | given
    )
    if bool(args.files) == bool(args.patterns):
        raise InputError('expected FILE ..., or --from PATTERN, not both')
    if args.patterns:
        _learn_with_engine(learner, args)
    elif (args.engine, args.workers) != (None, None):
        raise InputError('--engine and --workers go with --from PATTERN')
    else:
        _go_on(learner, args)


def _learn_with_engine(learner: Scroll, args) -> None:
    """The state of a learner whose statistics an engine has made."""
    if learner.buffer_size or learner.keep_keys:
        raise InputError(
            '--from counts sums, and keeps no samples and no keys: leave out --buffer_size and '
            '--keep_keys, or give the files without --from'
        )
    params = {name: value for name, value in learner.get_params().items() if name != 'embedder'}
    sources = engines.find(args.patterns)
    archive.check_apart(args.out, sources)
    names = None if args.embedder else engines.names_in(sources[0], args.columns)
    counter = engines.Counter(
        params, args.columns, args.split, args.block_size, names, args.embedder
    )
    counted = engines.total(args.engine or engines.LOCAL, counter, sources, args.workers)
    if not counted.statistics.total:
        raise InputError(f'--from {args.patterns[0]}: there are no samples that are to be learned')
    warn_of_repeated(counted.parts)
    print(f'learned {counted.statistics.total} samples of {len(sources)} files', file=sys.stderr)
    state = replace(counted, params=params, names=names)
    write(state, args.out)
    _hint_on_integers(state.classes, state.parts)


def add(args) -> None:
    """A learner, and what it learns from more files."""
    _go_on(Scroll.load(args.state, embedder_of(args.embedder)), args, args.state)


def _go_on(learner: Scroll, args, source: str = '') -> None:
    archive.check_apart(args.out, args.files)
    counts = learning.learn(learner, args.files, args.columns, args.split, args.block_size, source)
    learner.save(args.out)
    print('learned {} of {} samples'.format(*counts), file=sys.stderr)
    _hint_on_integers(learner.classes_, learner.end_part())
    print(learner.digest())


def _hint_on_integers(classes, parts: dict) -> None:
    """A line on labels that each part may use for other classes."""
    if len(parts) > 1 and classes.dtype.kind == 'i':
        print(
            'labels are numbers: make sure that each means the same class in all files (names are safer)',
            file=sys.stderr,
        )


def predict(args) -> None:
    """Labels, and how many of them are right."""
    archive.check_apart(args.out, [args.state, *args.files])
    learner = load(args.state)
    right, total = learning.predict(
        learner, args.files, args.out, args.columns, args.split, args.block_size, args.scores
    )
    print(
        f'predicted {total} samples'
        if right is None
        else f'accuracy {right / total:.4f} ({right} of {total} samples)',
        file=sys.stderr if args.out == '-' else sys.stdout,
    )


def add_state_commands(command) -> None:
    """As `add_stream_commands`."""
    learner_or_statistics = 'file of a learner, or of statistics'
    out = command('show', show, 'what a file holds: classes, counts, digest')
    out.add_argument('file', help=learner_or_statistics)
    out = command('digest', digest, 'the digest of its statistics alone')
    out.add_argument('file', help=learner_or_statistics)
    out = command('merge', merge, 'add the samples of all files', edits.__doc__)
    out.add_argument('file', help=f'{learner_or_statistics}, whose settings are kept')
    out.add_argument('others', nargs='+', metavar='other', help='files of the same kind')
    out.add_argument(
        '--repeated', action='store_true', help='let samples count as often as they come'
    )
    add_out(out)
    out = command(
        'remove',
        remove,
        'take samples out of a learner, or of statistics',
        edits.__doc__,
        aliases=['unlearn'],
    )
    out.add_argument('file', help=learner_or_statistics)
    ways = out.add_mutually_exclusive_group(required=True)
    ways.add_argument(
        '--minus',
        nargs='+',
        metavar='FILE',
        help='statistics of the samples to remove; of a learner with buffer or keys, of whole '
        'classes',
    )
    ways.add_argument(
        '--samples',
        nargs='+',
        metavar='FILE',
        help='files of features X and labels y (of those with splits, what is to train); or an '
        'npz file of embedded images: quantised (N, d), labels (N,), keys (N,)',
    )
    ways.add_argument(
        '--classes',
        nargs='+',
        metavar='LABEL',
        help='whole classes: where there is a Gram matrix for each class (heads balanced, '
        'qda), or the buffer has all their samples',
    )
    out.add_argument('--repeated', action='store_true', help='remove again what was removed before')
    add_columns(out)
    add_out(out)
    out = command('export', to_folder, 'a learner as files for other programs', export.__doc__)
    out.add_argument('state', help='file of a learner of features')
    out.add_argument(
        '--formats',
        nargs='+',
        choices=export.FORMATS,
        help='safetensors: weights; torch, onnx: graphs (default: safetensors, or as -o ends)',
    )
    add_out(out, 'new folder; or a file, .onnx, .pt2 or .safetensors', metavar='FOLDER')


def show(args) -> None:
    """Print what is known of a file, and how many samples each class has."""
    state = edits.read(args.file)
    counted, buffer = state.statistics, state.buffer
    facts = {
        'samples': counted.total,
        'classes': len(counted.classes),
        'dim': counted.dim,
        'backbone': state.psi[:16] or 'features of its own',
    }
    if state.params is not None:
        kept = (
            '0'
            if buffer is None
            else f'{len(buffer)} of {buffer.capacity}, {buffer.strategy}'
            + (
                ''
                if buffer.complete
                else ', incomplete: an edit left places whose next samples had been let go'
            )
        )
        facts |= {'buffer': kept, 'keys': 'not kept' if state.keys is None else 'kept'}
    facts |= {'parts': list_parts(state.known_parts())}
    if state.params is not None:
        facts |= {'learner': ', '.join(f'{name}={value!r}' for name, value in state.params.items())}
    for name, value in (facts | {'digest': counted.digest()}).items():
        print(f'{name:<8} {value}')
    print(f'\n{"samples":>8}  class')
    for label, count in zip(state.classes.tolist(), counted.counts.tolist()):
        print(f'{count:>8}  {label if str(label).isprintable() else repr(label)}')


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(edits.read(args.file).statistics.digest())


def merge(args) -> None:
    """Learners, or statistics, of several streams as one."""
    state = edits.read(args.file)
    for path in Progress('Merging, files', len(args.others)).over(args.others):
        state = edits.merged(state, edits.read(path), path, args.repeated, args.file)
    write(state, args.out)
    _hint_on_integers(state.classes, state.known_parts())


def remove(args) -> None:
    """A learner, or statistics, without a part of the stream."""
    archive.check_apart(args.out, args.samples or args.minus or ())
    state = edits.read(args.file)
    if args.samples:
        state = edits.without_samples(state, args.samples, args.columns, args.repeated)
    for path in args.minus or ():
        state = edits.without_statistics(state, path, args.repeated)
    for text in args.classes or ():
        state = edits.without_class(state, text, args.file)
    write(state, args.out)
    # no part that had been counted
    unknown = any(times < 0 for times in state.known_parts().values())
    if unknown and state.keys is None and not args.classes:
        print(
            'without keys (keep_keys) it is not known that what was removed had been learned: sums and '
            'buffer do not rule it out',
            file=sys.stderr,
        )
    if state.buffer is not None and not state.buffer.complete:
        print(
            'f_T is as if they had never been seen; f* may not be, since the buffer had let go of samples '
            'that would take the free places: for such an f* learn again what is left',
            file=sys.stderr,
        )


def to_folder(args) -> None:
    """The files of an export."""
    archive.check_apart(args.out, [args.state])
    learner = load(args.state)
    with Progress('Exporting'):
        export.export(learner, args.out, args.formats)
    print(learner.predictor().digest())


def add_columns(parser) -> None:
    """--columns, of files of features."""
    parser.add_argument(
        '--columns',
        metavar='X=NAME,y=NAME',
        type=_columns,
        help='columns of features with other names; X=f*: all that match',
    )


def add_out(parser, help: str = 'file to write', **how) -> None:
    """-o, the file to write."""
    parser.add_argument('-o', '--out', required=True, help=help, **how)


def _columns(text: str) -> dict:
    try:
        return columns_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(error) from error


def write(state: State, path) -> None:
    """Write a file, and print the digest of its statistics."""
    edits.write(state, path)
    print(state.statistics.digest())


def load(path) -> Scroll:
    """The learner of a file, with f_T; InputError names the file."""
    learner = Scroll.load(path)
    with prefixed(path):
        learner.predictor()
    return learner
