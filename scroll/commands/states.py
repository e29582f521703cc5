"""Commands on files of learners and of statistics: show, digest, merge, remove, export."""
import argparse

from scroll import edits, export
from scroll.errors import InputError, naming
from scroll.files.arrays import columns_of
from scroll.learner import Scroll
from scroll.parts import list_parts
from scroll.state import State


def add_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    learner_or_statistics = 'file of a learner, or of statistics'
    out = command('show', show, 'what a file holds: classes, counts, digest')
    out.add_argument('file', help=learner_or_statistics)
    out = command('digest', digest, 'the digest of its statistics alone')
    out.add_argument('file', help=learner_or_statistics)
    out = command('merge', merge, 'add the samples of all files', edits.__doc__)
    out.add_argument('file', help=f'{learner_or_statistics}, whose settings are kept')
    out.add_argument('others', nargs='+', metavar='file', help='files of the same kind')
    out.add_argument('--repeated', action='store_true', help='let samples count as often as they come')
    add_out(out)
    out = command('remove', remove, 'take samples out of a learner, or of statistics', edits.__doc__,
                  aliases=['unlearn'])
    out.add_argument('file', help=learner_or_statistics)
    ways = out.add_mutually_exclusive_group(required=True)
    ways.add_argument('--minus', nargs='+', metavar='FILE',
                      help='statistics of the samples to remove; of a learner with buffer or keys, of whole '
                           'classes')
    ways.add_argument('--samples', nargs='+', metavar='FILE',
                      help='files of features X and labels y (of those with splits, what is to train); or an '
                           'npz file of embedded images: quantised (N, d), labels (N,), keys (N,)')
    ways.add_argument('--classes', nargs='+', metavar='LABEL',
                      help='whole classes: where there is a Gram matrix for each class (heads balanced, '
                           'qda), or the buffer has all their samples')
    out.add_argument('--repeated', action='store_true', help='remove again what was removed before')
    add_columns(out)
    add_out(out)
    out = command('export', to_folder, 'a learner as files for other programs', export.__doc__)
    out.add_argument('state', help='file of a learner of features')
    out.add_argument('--formats', nargs='+', choices=export.FORMATS, default=list(export.USUAL),
                     help='safetensors: weights; torch, onnx: graphs (default: safetensors)')
    add_out(out, 'new folder', metavar='FOLDER')


def show(args) -> None:
    """Print what is known of a file, and how many samples each class has."""
    state = edits.read(args.file)
    counted, buffer = state.statistics, state.buffer
    facts = dict(samples=counted.total, classes=len(counted.classes), dim=counted.dim,
                 backbone=state.psi[:16] or 'features of its own')
    if state.params is not None:
        kept = '0' if buffer is None else f'{len(buffer)} of {buffer.capacity}, {buffer.strategy}'
        facts |= dict(buffer=kept, keys='not kept' if state.keys is None else 'kept')
    facts |= dict(parts=list_parts(state.known_parts()))
    if state.params is not None:
        facts |= dict(learner=', '.join(f'{name}={value!r}' for name, value in state.params.items()))
    for name, value in (facts | dict(digest=counted.digest())).items():
        print(f'{name:<8} {value}')
    print(f"\n{'samples':>8}  class")
    for label, count in zip(counted.classes.tolist(), counted.counts.tolist()):
        print(f'{count:>8}  {label if str(label).isprintable() else repr(label)}')


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(edits.read(args.file).statistics.digest())


def merge(args) -> None:
    """Learners, or statistics, of several streams as one."""
    state = edits.read(args.file)
    for path in args.others:
        state = edits.merged(state, edits.read(path), path, args.repeated)
    write(state, args.out)


def remove(args) -> None:
    """A learner, or statistics, without a part of the stream."""
    state = edits.read(args.file)
    if args.samples:
        state = edits.without_samples(state, args.samples, args.columns, args.repeated)
    for path in args.minus or ():
        state = edits.without_statistics(state, path, args.repeated)
    for text in args.classes or ():
        state = edits.without_class(state, text, args.file)
    write(state, args.out)


def to_folder(args) -> None:
    """The files of an export."""
    learner = load(args.state)
    export.export(learner, args.out, args.formats)
    print(learner.predictor().digest())


def add_columns(parser) -> None:
    """--columns, of files of features."""
    parser.add_argument('--columns', metavar='X=NAME,y=NAME', type=_columns,
                        help='columns of features with other names; X=f*: all that match')


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
    with naming(path):
        learner.predictor()
    return learner
