"""Commands on features (learn, add, predict), and on learners (show, digest, merge, remove,
export)."""

import argparse
import sys

from scroll.embedding.named import embedder_of
from scroll.exports import tensors as export
from scroll.files import edits, engines, features, learning
from scroll.files.arrays import columns_of, labels_of
from scroll.ground import archive
from scroll.ground.errors import InputError, prefixed
from scroll.ground.progress import track
from scroll.ground.settings import SETTINGS, check_settings, parse
from scroll.learners.learner import Scroll
from scroll.learners.state import State
from scroll.sums.parts import list_parts, warn_of_repeated

# other defaults than those of Scroll: keep no samples, but keys, to unlearn by
_USUAL = {'buffer_size': 0, 'keep_keys': True}
_FILE = 'file of a learner, or of statistics'


def add_stream_commands(command) -> None:
    """Add learn, add and predict. `command(name, run, about, description)` adds a parser and
    returns it."""
    about = f'{features.__doc__}\n{learning.__doc__}'
    learn_parser = command('learn', learn, 'make a learner of files of features', about)
    add_parser = command('add', add, 'let a learner learn more files', about)
    predict_parser = command(
        'predict', predict, 'labels of samples, as CSV', learning.predict.__doc__
    )
    _add_file_flags(learn_parser, 'train', '*')
    for parser, split in ((add_parser, 'train'), (predict_parser, 'test')):
        parser.add_argument('state', help='file of a learner')
        _add_file_flags(parser, split, '+')
    for parser in (learn_parser, add_parser, predict_parser):
        parser.add_argument(
            '--embedder',
            metavar='WEIGHTS',
            default='',
            help='of images, bytes in Parquet (image, y): {timm,MODULE}:NAME',
        )
    _add_out(learn_parser)
    _add_out(add_parser)
    _add_out(predict_parser, 'file to write; - is standard output')
    predict_parser.add_argument(
        '--scores', action='store_true', help='the logit of each class, too'
    )
    group = learn_parser.add_argument_group('whole files, each once', engines.__doc__)
    flag = group.add_argument
    flag(
        '--from',
        dest='patterns',
        metavar='PATTERN',
        nargs='+',
        help="instead of FILE: those that match, like 'days/*.parquet'",
    )
    flag('--workers', type=parse, default=1, metavar='N', help='processes (default: 1)')
    _add_settings(learn_parser)


def _add_settings(parser) -> None:
    """Add a flag for each setting of a learner."""
    group = parser.add_argument_group('settings, as those of scroll.Scroll')
    for name, setting in SETTINGS.items():
        if name != 'adaptation':
            default = _USUAL.get(name, setting.default)
            on_off = isinstance(default, bool)
            how = {'action': argparse.BooleanOptionalAction} if on_off else {'type': parse}
            choices = f' ({", ".join(setting.choices)})' if setting.choices else ''
            group.add_argument(
                f'--{name}',
                default=argparse.SUPPRESS,
                **how,
                help=f'{setting.help}{choices}; default: {default}',
            )


def _add_file_flags(parser, split: str, number: str) -> None:
    """Add the files of features, and flags on how to read them."""
    parser.add_argument(
        'files', metavar='FILE', nargs=number, help='npz, npy, Parquet, safetensors or torch files'
    )
    _add_columns(parser)
    parser.add_argument(
        '--split',
        choices=(*features.SPLITS, features.ALL),
        help=f'of files with splits, the samples to take (default: {split})',
    )


def learn(args) -> None:
    """Make a learner of files."""
    settings = {name: value for name, value in vars(args).items() if name in SETTINGS}
    check_settings(settings)
    params = {'embedder': embedder_of(args.embedder), **_USUAL, 'keep_keys': not args.patterns}
    learner = Scroll(**params | settings)
    if bool(args.files) == bool(args.patterns):
        raise InputError('expected FILE ..., or --from PATTERN, not both')
    if args.patterns:
        _learn_once(learner, args)
    elif args.workers != 1:
        raise InputError('--workers goes with --from PATTERN')
    else:
        _learn_files(learner, args)


def _learn_once(learner: Scroll, args) -> None:
    """Count the files, each once, and write a learner with these statistics."""
    if learner.buffer_size or learner.keep_keys:
        raise InputError(
            '--from counts sums, and keeps no samples and no keys: leave out --buffer_size and '
            '--keep_keys, or give the files without --from'
        )
    params = learner.get_params()
    del params['embedder']
    sources = engines.find(args.patterns)
    _check_apart(args.out, sources)
    names = None if args.embedder else features.open_files(sources[:1], args.columns)[0].names
    counter = engines.Counter(params, args.columns, args.split, names, args.embedder)
    counted = engines.total(counter, sources, args.workers)
    if not counted.statistics.total:
        raise InputError(f'--from {args.patterns[0]}: there are no samples that are to be learned')
    warn_of_repeated(counted.known_parts())
    _note(f'learned {counted.statistics.total} samples of {len(sources)} files')
    _write(counted, args.out)


def add(args) -> None:
    """Teach a learner more files."""
    _learn_files(Scroll.load(args.state, embedder_of(args.embedder)), args, args.state)


def _check_apart(out, files) -> None:
    """InputError if the file to write is one of those to be read, or has their labels."""
    archive.check_apart(out, [*files, *filter(None, map(labels_of, files))])


def _learn_files(learner: Scroll, args, source: str = '') -> None:
    _check_apart(args.out, args.files)
    learned, total = learning.learn(learner, args.files, args.columns, args.split, source)
    _note(f'learned {learned} of {total} samples')
    _write(learner.state_for_files(), args.out)


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def predict(args) -> None:
    """Write labels, and print the share that is right."""
    _check_apart(args.out, [args.state, *args.files])
    learner = _load(args.state, embedder_of(args.embedder))
    right, total = learning.predict(
        learner, args.files, args.out, args.columns, args.split, args.scores
    )
    result = f'predicted {total} samples'
    if right is not None:
        result = f'accuracy {right / total:.4f} ({right} of {total} samples)'
    print(result, file=sys.stderr if args.out == '-' else sys.stdout)


def add_state_commands(command) -> None:
    """Add show, digest, merge, remove and export; `command` as of `add_stream_commands`."""
    command('show', show, 'what a file holds: classes, counts, digest').add_argument(
        'file', help=_FILE
    )
    command('digest', digest, 'the digest of its statistics alone').add_argument('file', help=_FILE)
    parser = command('merge', merge, 'add the samples of all files', edits.__doc__)
    parser.add_argument('file', help=f'{_FILE}, whose settings are kept')
    parser.add_argument('others', nargs='+', metavar='other', help='files of the same kind')
    parser.add_argument(
        '--repeated', action='store_true', help='let samples count as often as they come'
    )
    _add_out(parser)
    _add_remove(command)
    parser = command(
        'export', export_learner, 'a learner as files for other programs', export.__doc__
    )
    parser.add_argument('state', help='file of a learner of features')
    parser.add_argument(
        '--formats',
        nargs='+',
        choices=export.FORMATS,
        help='safetensors: weights; torch, onnx: graphs (default: safetensors, or as -o ends)',
    )
    _add_out(parser, 'new folder; or a file, .onnx, .pt2 or .safetensors', 'FOLDER')


def _add_remove(command) -> None:
    parser = command(
        'remove',
        remove,
        'take samples out of a learner, or of statistics',
        edits.__doc__,
        aliases=['unlearn'],
    )
    parser.add_argument('file', help=_FILE)
    ways = parser.add_mutually_exclusive_group(required=True)
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
    parser.add_argument(
        '--repeated', action='store_true', help='remove again what was removed before'
    )
    _add_columns(parser)
    _add_out(parser)


def show(args) -> None:
    """Print the content of a file, and the number of samples of each class."""
    state = edits.read(args.file)
    statistics = state.statistics
    buffer = state.buffer
    facts = {
        'samples': statistics.total,
        'classes': len(statistics.classes),
        'dim': statistics.dim,
        'backbone': state.psi[:16] or 'features of its own',
    }
    if state.params is not None:
        facts['buffer'] = '0'
        if buffer is not None:
            facts['buffer'] = f'{len(buffer)} of {buffer.capacity}, {buffer.strategy}'
            if not buffer.complete:
                facts['buffer'] += (
                    ', incomplete: an edit left places whose next samples had been let go'
                )
        facts['keys'] = 'not kept' if state.keys is None else 'kept'
    facts['parts'] = list_parts(state.known_parts())
    if state.params is not None:
        facts['learner'] = ', '.join(f'{name}={value!r}' for name, value in state.params.items())
    facts['digest'] = statistics.digest()
    for name, value in facts.items():
        print(f'{name:<8} {value}')
    print(f'\n{"samples":>8}  class')
    for label, count in zip(state.classes.tolist(), statistics.counts.tolist()):
        print(f'{count:>8}  {label if str(label).isprintable() else repr(label)}')


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(edits.read(args.file).statistics.digest())


def merge(args) -> None:
    """Add learners, or statistics, of several streams."""
    state = edits.read(args.file)
    for path in track('Merging, files', args.others):
        state = edits.merged(state, edits.read(path), path, args.repeated, args.file)
    _write(state, args.out)


def remove(args) -> None:
    """Remove a part of the stream from a learner, or from statistics."""
    _check_apart(args.out, args.samples or args.minus or ())
    state = edits.read(args.file)
    if args.samples:
        state = edits.without_samples(state, args.samples, args.columns, args.repeated)
    for path in args.minus or ():
        state = edits.without_statistics(state, path, args.repeated)
    for text in args.classes or ():
        state = edits.without_class(state, text, args.file)
    edits.write(state, args.out)
    print(state.statistics.digest())
    # no part that had been counted
    unknown = any(times < 0 for times in state.known_parts().values())
    if unknown and state.keys is None and not args.classes:
        _note('not verified: without keep_keys, removed samples may never have been learned')
    if state.buffer is not None and not state.buffer.complete:
        _note(
            'f_T is as if they had never been seen; f* may not be, since the buffer had let go of '
            'samples that would take the free places: for such an f* learn again what is left'
        )


def export_learner(args) -> None:
    """Export a learner, and print the digest of f_T."""
    archive.check_apart(args.out, [args.state])
    learner = _load(args.state)
    export.export(learner, args.out, args.formats)
    print(learner.predictor().digest())


def _add_columns(parser) -> None:
    parser.add_argument(
        '--columns',
        metavar='X=NAME,y=NAME',
        type=_columns,
        help='columns with other names; X=f*: all that match; where=COLUMN=VALUE: the rows with it',
    )


def _add_out(parser, help: str = 'file to write', metavar: str | None = None) -> None:
    parser.add_argument('-o', '--out', required=True, help=help, metavar=metavar)


def _columns(text: str) -> dict:
    try:
        return columns_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(error) from error


def _write(state: State, path) -> None:
    """Write a file, and print the digest of its statistics; hint at labels that each of its parts
    may use for other classes."""
    edits.write(state, path)
    print(state.statistics.digest())
    if len(state.known_parts()) > 1 and state.classes.dtype.kind == 'i':
        _note(
            'labels are integers: make sure each means the same class in every file (text labels '
            'are safer)'
        )


def _load(path, embedder=None) -> Scroll:
    """Load a learner, with f_T; InputError names the file."""
    learner = Scroll.load(path, embedder)
    with prefixed(path):
        learner.predictor()
    return learner
