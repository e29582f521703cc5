"""Commands on files of learners and statistics, on exports: show, digest, merge, remove, rename, check."""
import sys
from pathlib import Path

from scroll import archive, edits
from scroll.certificates.files import table
from scroll.commands import common
from scroll.errors import InputError
from scroll.export import checking, folders
from scroll.files import features
from scroll.files import statistics as statistics_files
from scroll.files.statistics import StatisticsFile
from scroll.parts import list_parts
from scroll.state import State

_MEMBERSHIP = ('that these samples had been learned was not checked: the learner keeps no keys, and its sums '
               'show only that it is possible',
               'that these samples had been learned was checked')


def add_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    learner_or_statistics = 'file of statistics, or of a learner'
    out = command('show', show, 'what a file holds: classes, counts, digest')
    out.add_argument('file', help='file of statistics, of a learner, or of features')
    common.add_columns(out)
    out = command('digest', digest, 'the digest of its statistics alone')
    out.add_argument('file', help=learner_or_statistics)
    out = command('merge', merge, 'add the samples of all files', statistics_files.__doc__)
    out.add_argument('file', help=f'{learner_or_statistics}, whose settings are kept')
    out.add_argument('others', nargs='+', metavar='file', help='files of the same kind')
    out.add_argument('--repeated', action='store_true', help='let samples count as often as they come')
    common.add_out(out)
    out = command('rename', rename, 'call classes of a learner by other names', rename.__doc__)
    out.add_argument('file', help='file of a learner')
    out.add_argument('names', nargs='+', metavar='OLD=NEW', help='a class and its new name')
    common.add_out(out)
    out = command('remove', remove, 'take samples out of a learner, or of statistics',
                  f'{statistics_files.__doc__}\n{edits.__doc__}')
    out.add_argument('file', help=learner_or_statistics)
    _add_what(out, 'statistics files of the samples to remove; of a learner, of whole classes')
    out = command('unlearn', remove, 'make a saved learner forget', edits.__doc__)
    out.add_argument('file', metavar='state', help='file of Scroll.save, or of main.py --save_state')
    _add_what(out, 'statistics files of whole classes')
    out.add_argument('--feature_cache', metavar='FOLDER',
                     help='take the images of --samples out of the feature caches below')
    out = command('export', export, 'a learner as files for other programs', folders.__doc__)
    out.add_argument('state', help='file of a learner of features')
    common.add_out(out, metavar='FOLDER', help='new folder')
    out.add_argument('--formats', nargs='+', choices=folders.FORMATS, default=folders.USUAL,
                     help=f"(default: {', '.join(folders.USUAL)})")
    out.add_argument('--adapt', action='store_true', help='make f* from the buffer first, and export it, too')
    out = command('check', check, 'whether exported files are those of a certificate, and of a state',
                  checking.check.__doc__)
    out.add_argument('folder', help='folder of an export')
    out.add_argument('--state', metavar='FILE', help='statistics, or a learner: whether f_T follows from it')


def _add_what(parser, minus: str) -> None:
    """What is to be removed, in one of three ways, and the file to write."""
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument('--minus', nargs='+', metavar='FILE', help=minus)
    ways.add_argument('--samples', nargs='+', metavar='FILE',
                      help='files of features X and labels y (of those with splits, what is to train); or an '
                           'npz file: labels (N,), quantised or features (N, d), and keys (N,) or images '
                           '(N, H, W, C)')
    ways.add_argument('--classes', nargs='+', metavar='LABEL',
                      help='of a learner, whole classes: where there is a Gram matrix for each class (heads '
                           'balanced, qda), or the buffer has all their samples')
    parser.add_argument('--repeated', action='store_true',
                        help='remove from a learner again what was removed from it before')
    common.add_columns(parser)
    common.add_out(parser)


def show(args) -> None:
    """Print what is known of a file."""
    if archive.names_of(args.file) and archive.kind_of(args.file):
        file = common.read(args.file)
        _show_learner(file) if isinstance(file, State) else file.show()
    else:
        features.show(features.open_files([args.file], args.columns))


def _show_learner(state: State) -> None:
    buffer = state.buffer
    kept = '0' if buffer is None else f'{len(buffer)} of {buffer.capacity}, {buffer.strategy}'
    statistics_files.show(state.statistics, state.psi, buffer=kept,
                          keys='not kept' if state.keys is None else 'kept',
                          parts=list_parts(state.known_parts()),
                          learner=', '.join(f'{name}={value!r}' for name, value in state.params.items()))


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(common.read(args.file).statistics.digest())


def merge(args) -> None:
    """Statistics, or learners, of several streams as one."""
    file, words = common.read(args.file), {State: 'a learner', StatisticsFile: 'statistics'}
    for path in args.others:
        other = common.read(path)
        if type(other) is not type(file):
            raise InputError(f'{path}: is a file of {words[type(other)]}, {args.file} of '
                             f'{words[type(file)]}: expected files of one kind')
        file = (edits.merged(file, other, path, args.repeated) if isinstance(file, State) else
                file.merge(other, args.repeated))
    common.write(file, args.out)


def remove(args) -> None:
    """A learner, or statistics, without a part of the stream."""
    if args.command == 'unlearn':
        file, cache = State.read(args.file), args.feature_cache
        if cache is not None and not (args.samples and Path(cache).is_dir()):
            raise InputError(f'--feature_cache {cache}: ' + (
                'there is no such folder' if args.samples else 'it goes with --samples, which have images'))
    else:
        file, cache = common.read(args.file), None
    if isinstance(file, State):
        file = _without(file, args, cache)
    elif args.samples:
        file.remove(StatisticsFile.of_samples(args.samples, args.columns, file))
    elif args.classes:
        raise InputError(f'{args.file} holds statistics: --classes is for files of learners; give --minus or '
                         '--samples')
    for path in args.minus or () if isinstance(file, StatisticsFile) else ():
        file.remove(StatisticsFile.read(path))
    common.write(file, args.out)


def _without(state: State, args, cache) -> State:
    if args.samples:
        state = edits.without_samples(state, args.samples, cache, args.columns, args.repeated)
        print(_MEMBERSHIP[state.keys is not None], file=sys.stderr)
    for path in args.minus or ():
        state = edits.without_classes(state, path, args.repeated)
    for text in args.classes or ():
        state = state.without_class(edits.class_of(state, text, args.file))
    return state


def rename(args) -> None:
    """A learner whose classes have other names, as if the stream had had them. Labels stay numbers where all
    of them are whole numbers; otherwise all are text."""
    common.write(edits.renamed(common.read(args.file), args.names, args.file), args.out)


def export(args) -> None:
    """The files of an export."""
    learner = common.adapted(args)
    learner.export(args.out, args.formats)
    print(learner.predictor().digest())


def check(args) -> int:
    """Whether an export is what its certificate says; exit code 1 if not."""
    state = None if args.state is None else common.read(args.state)
    lines, same = table(checking.check(args.folder, state))
    print('\n'.join(lines))
    return int(not same)
