"""Commands on files of learners and statistics: show, digest, merge, remove, rename, unlearn."""
import sys
from pathlib import Path

from scroll import archive
from scroll import edits as unlearn
from scroll.commands import common
from scroll.errors import InputError
from scroll.files import features, learning, proofs
from scroll.files import statistics as statistics_files
from scroll.files.statistics import StatisticsFile
from scroll.parts import list_parts
from scroll.state import State


def add_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    out = command('show', show, 'what a file holds: classes, counts, digest')
    out.add_argument('file', help='file of statistics, of a learner, or of features')
    common.add_columns(out)
    command('digest', digest, 'the digest of its statistics alone').add_argument(
        'file', help='file of statistics, or of a learner')
    out = command('merge', merge, 'add the samples of all files', statistics_files.__doc__)
    out.add_argument('file', help='file of statistics, or of a learner, whose settings go on')
    out.add_argument('others', nargs='+', metavar='file', help='files of the same kind')
    out.add_argument('--repeated', action='store_true', help='let samples count as often as they come')
    common.add_out(out)
    out = command('rename', rename, 'call classes of a learner by other names', rename.__doc__)
    out.add_argument('file', help='file of a learner')
    out.add_argument('names', nargs='+', metavar='OLD=NEW', help='a class and its new name')
    common.add_out(out)
    _add_removing(command)


def _add_removing(command) -> None:
    out = command('remove', remove, 'take samples out of a learner, or of statistics',
                  f'{statistics_files.__doc__}\n{unlearn.__doc__}')
    out.add_argument('file', help='file of statistics, or of a learner')
    _add_what(out, 'statistics files of the samples to remove; of a learner, of whole classes')
    common.add_out(out)
    out = command('unlearn', forget, 'make a saved learner forget', unlearn.__doc__)
    out.add_argument('state', nargs='?', help='file of Scroll.save, or of main.py --save_state')
    _add_what(out, 'statistics files of whole classes')
    common.add_out(out, required=False)
    out.add_argument('--feature_cache', metavar='FOLDER',
                     help='take the images of --samples out of the feature caches below')
    out.add_argument('--find', metavar='FOLDER',
                     help='change nothing: list the files below that hold --samples, or may')
    out.add_argument('--proof', metavar='FILE', help='write a record of the digests, for `check`')
    out.add_argument('--key', metavar='FILE', help='sign the record with the bytes of this file')


def _add_what(parser, minus: str) -> None:
    """What is to be removed, in one of three ways."""
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument('--minus', nargs='+', metavar='FILE', help=minus)
    ways.add_argument('--samples', nargs='+', metavar='FILE',
                      help='files of features X and labels y (of those with splits, what is to train); or an '
                           'npz file: labels (N,), quantised or features (N, d), and keys (N,) or images '
                           '(N, H, W, C)')
    ways.add_argument('--classes', nargs='+', metavar='LABEL',
                      help='of a learner, whole classes: where there is a Gram matrix a class (heads '
                           'balanced, qda), or the buffer has every sample of them')
    parser.add_argument('--repeated', action='store_true',
                        help='remove from a learner again what was removed from it before')
    common.add_columns(parser)


def show(args) -> None:
    """Print what is known of a file."""
    if archive.is_npz(args.file) and archive.kind_of(args.file):
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
    file = common.read(args.file)
    for path in args.others:
        other = common.read(path)
        if type(other) is not type(file):
            raise InputError(f'{path}: is a file of {_what(other)}, {args.file} of {_what(file)}: expected '
                             'files of one kind')
        if isinstance(file, State):
            file = learning.merged(file, other, path, args.repeated)
        else:
            file.merge(other, args.repeated)
    common.write(file, args.out)


def _what(file) -> str:
    return 'a learner' if isinstance(file, State) else 'statistics'


def remove(args) -> None:
    """A learner, or statistics, without a part of the stream."""
    file = common.read(args.file)
    if isinstance(file, State):
        file = _without(file, args.file, args)
    elif args.samples:
        samples = statistics_files.samples_of(args.samples, args.columns, precision=file.precision)
        file.remove(statistics_files.part_of(args.samples[0], samples, file.psi, file.statistics,
                                             file.precision))
    elif args.classes:
        raise InputError(f'{args.file} holds statistics: --classes is for files of learners; give --minus or '
                         '--samples')
    else:
        for path in args.minus:
            file.remove(StatisticsFile.read(path))
    common.write(file, args.out)


def rename(args) -> None:
    """A learner whose classes have other names, as if the stream had had them. Labels stay numbers where all
    of them are whole numbers; otherwise all are text."""
    common.write(unlearn.renamed(common.read(args.file), args.names, args.file), args.out)


def forget(args) -> int:
    """A learner without some samples; or where they still are, with exit code 1 if they are anywhere."""
    if args.find is not None:
        if args.samples is None or args.state or args.out or args.feature_cache or args.proof or args.key:
            raise InputError('--find FOLDER goes with --samples FILE and nothing else')
        from scroll.files.traces import find
        return int(find(args.find, args.samples, args.columns))
    if not (args.state and args.out):
        raise InputError('expected a state file and -o FILE (or --find FOLDER)')
    if args.feature_cache is not None and not (args.samples and Path(args.feature_cache).is_dir()):
        raise InputError(f'--feature_cache {args.feature_cache}: ' + (
            'there is no such folder' if args.samples else 'it goes with --samples, which have images'))
    if args.proof:
        archive.check_target(args.proof, '--proof')
    if args.key and not args.proof:
        raise InputError('--key FILE signs a record: it goes with --proof FILE')
    if args.key:
        proofs.secret_of(args.key)
    before = State.read(args.state)
    after = _without(before, args.state, args, args.feature_cache)
    common.write(after, args.out)
    if args.proof:
        proofs.write(args.proof, proofs.record(before.statistics, after.statistics, before.psi,
                                               _membership_is_known(before, args)), args.key)
    return 0


def _without(state: State, origin, args, cache=None) -> State:
    if args.samples:
        state = unlearn.without_samples(state, args.samples, cache, args.columns, args.repeated)
    for path in args.minus or ():
        state = unlearn.without_classes(state, path, args.repeated)
    for text in args.classes or ():
        state = state.without_class(unlearn.class_of(state, text, origin))
    if args.samples:
        print(proofs.MEMBERSHIP[_membership_is_known(state, args)], file=sys.stderr)
    return state


def _membership_is_known(state: State, args) -> bool:
    """Whether all that was removed had surely been learned: by its keys, or as all that a class has added."""
    return state.keys is not None or bool(args.classes)
