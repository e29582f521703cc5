"""SCROLL on the command line: from files of features to labels; what was learned put together or taken apart.

    python -m scroll learn day1.parquet day2.npz -o state.npz            # X, y: any order, any sizes
    python -m scroll learn --from 'days/*.parquet' --engine ray -o state.npz     # or spark, dask
    python -m scroll add state.npz day3.npz -o state.npz                 # goes on
    python -m scroll predict state.npz new.npz -o labels.csv             # and the accuracy, where y is there
    python -m scroll remove state.npz --samples old.npz -o rest.npz      # as if they had never been seen
    python -m scroll merge 1.npz 2.npz 3.npz -o all.npz                  # learners, or statistics
    python -m scroll remove all.npz --minus 2.npz -o rest.npz            # as if 2 had never been seen
    python -m scroll remove state.npz --classes cat dog -o rest.npz      # where what they added is known
    python -m scroll rename state.npz cat=kitten -o renamed.npz          # classes by other names
    python -m scroll unlearn --find FOLDER --samples old.npz             # which files still hold them
    python -m scroll show all.npz                                        # classes, counts, digest
    python -m scroll export state.npz -o FOLDER                          # weights, graphs, a model card
    python -m scroll check FOLDER --state state.npz                      # whether they are what they say
    python -m scroll check proof.json --after new.npz --removed old.npz  # what `unlearn --proof FILE` wrote

Exit code 2 after one line on what can be mended; 1 of `--find` where there are such files, of `check` where
something differs.
"""
import argparse
import inspect
import sys
import zipfile
from pathlib import Path
from typing import Literal, get_args, get_origin

from scroll import engines
from scroll.certify.certificates import told
from scroll.engines import counting
from scroll.errors import InputError
from scroll.io import (
    checking,
    columns,
    export,
    features,
    files,
    learning,
    proofs,
    statistics_files,
    unlearn,
)
from scroll.io.shards import shard
from scroll.io.states import KIND, PARAMS, State, check_params
from scroll.io.statistics_files import StatisticsFile
from scroll.learner import Scroll

_USUAL = dict(buffer_size=0)            # settings whose default is another here: no sample is kept


class _LineParser(argparse.ArgumentParser):
    """argparse with errors as `InputError`."""

    def error(self, message):
        raise InputError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _LineParser(prog='python -m scroll', description=__doc__, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)

    def command(name: str, run, about: str, description: str = None):
        out = commands.add_parser(name, help=about, description=description or about, allow_abbrev=False,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        out.set_defaults(run=run)
        return out
    _add_learning(command)
    _add_files(command)
    return parser


def _add_learning(command) -> None:
    """Commands that read features."""
    about = f'{features.__doc__}\n{learning.__doc__}'
    learned = command('learn', learn, 'make a learner of files of features', about)
    longer = command('add', add, 'let a learner go on with more files', about)
    predicted = command('predict', predict, 'labels of samples, as CSV', learning.predict.__doc__)
    for out, usual in ((learned, 'train'), (longer, 'train'), (predicted, 'test')):
        if out is not learned:
            out.add_argument('state', help='file of a learner')
        out.add_argument('files', metavar='FILE', nargs='*' if out is learned else '+',
                         help='npz, npy or Parquet files')
        _add_columns(out)
        out.add_argument('--split', choices=(*features.SPLITS, features.ALL),
                         help=f'of files with splits, the samples to take (default: {usual})')
        out.add_argument('--block_size', type=_setting, default=features.BLOCK, metavar='N',
                         help='samples in memory at once (default: %(default)s)')
        out.add_argument('-o', '--out', required=True, help='file to write')
    learned.add_argument('--shard', type=shard, metavar='i/n',
                         help='learn the i-th of n shares of the samples, cut by their features or pixels')
    _add_engines(learned.add_argument_group('whole files, by name and content, each once', engines.__doc__))
    predicted.add_argument('--scores', action='store_true', help='the logit of each class, too')
    predicted.add_argument('--adapt', action='store_true', help='make f* from the buffer first, and ask it')
    flag = learned.add_argument_group('settings, as those of scroll.Scroll').add_argument
    for name, parameter in inspect.signature(Scroll).parameters.items():
        if name in PARAMS and name != 'adaptation':
            default, kind = _USUAL.get(name, parameter.default), parameter.annotation
            among = get_args(kind) if get_origin(kind) is Literal else ()
            how = dict(action='store_true') if default is False else dict(type=_setting)
            flag(f'--{name}', default=argparse.SUPPRESS, **how,
                 help=f"{', '.join(map(str, among))} (default: {default})".lstrip())


def _add_engines(group) -> None:
    flag = group.add_argument
    flag('--from', dest='patterns', metavar='PATTERN', nargs='+',
         help="instead of FILE: those that match, like 'days/*.parquet' or 's3://bucket/*.parquet'")
    flag('--engine', choices=engines.ENGINES, help=f'who reads them (default: {engines.LOCAL})')
    flag('--workers', type=_setting, metavar='N', help='processes (default: as the engine likes)')
    flag('--partitions', type=_setting, metavar='N',
         help='parts that the files are dealt into (default: one each)')
    flag('--embedder', metavar='MODULE:NAME', default='',
         help='what makes an Embedder, for Parquet files of images as bytes (columns image, y)')
    flag('--gpus', type=_setting, default=0, metavar='N', help='GPUs of a worker, 0.5 for two workers on one')


def _add_files(command) -> None:
    """Commands on what was learned."""
    out = command('export', write_out, 'a learner as files for other programs', export.__doc__)
    out.add_argument('state', help='file of a learner of features')
    out.add_argument('-o', '--out', required=True, metavar='FOLDER', help='new folder')
    out.add_argument('--formats', nargs='+', choices=export.FORMATS, default=export.USUAL,
                     help=f"(default: {', '.join(export.USUAL)})")
    out.add_argument('--adapt', action='store_true', help='make f* from the buffer first, and export it, too')
    out = command('check', check, 'whether an export, or a record of unlearning, is true of files',
                  f'{checking.__doc__}\n{proofs.__doc__}')
    out.add_argument('what', help='folder of an export, or record of unlearn --proof')
    out.add_argument('--state', metavar='FILE',
                     help='of an export: statistics, or a learner: whether f_T follows from it')
    for name in proofs.PARTS:
        out.add_argument(f'--{name}', metavar='FILE',
                         help='of a record: learner, statistics or samples; two of the three')
    out.add_argument('--key', metavar='FILE', help='of a record: with which it was signed')
    out = command('show', show, 'what a file holds: classes, counts, digest')
    out.add_argument('file', help='file of statistics, of a learner, or of features')
    _add_columns(out)
    command('digest', digest, 'the digest of its statistics alone').add_argument(
        'file', help='file of statistics, or of a learner')
    out = command('merge', merge, 'add the samples of all files', statistics_files.__doc__)
    out.add_argument('file', help='file of statistics, or of a learner, whose settings go on')
    out.add_argument('others', nargs='+', metavar='file', help='files of the same kind')
    out.add_argument('--repeated', action='store_true', help='let samples count as often as they come')
    out.add_argument('-o', '--out', required=True, help='file to write')
    out = command('remove', remove, 'take samples out of a learner, or of statistics',
                  f'{statistics_files.__doc__}\n{unlearn.__doc__}')
    out.add_argument('file', help='file of statistics, or of a learner')
    what = out.add_mutually_exclusive_group(required=True)
    what.add_argument('--minus', nargs='+', metavar='FILE',
                      help='statistics files of the samples to remove; of a learner, of whole classes')
    what.add_argument('--samples', nargs='+', metavar='FILE', help=_SAMPLES)
    what.add_argument('--classes', nargs='+', metavar='LABEL', help=_CLASSES)
    _add_columns(out)
    out.add_argument('-o', '--out', required=True, help='file to write')
    out = command('rename', rename, 'call classes of a learner by other names', rename.__doc__)
    out.add_argument('file', help='file of a learner')
    out.add_argument('names', nargs='+', metavar='OLD=NEW', help='a class and its new name')
    out.add_argument('-o', '--out', required=True, help='file to write')
    out = command('unlearn', forget, 'make a saved learner forget', unlearn.__doc__)
    out.add_argument('state', nargs='?', help='file of Scroll.save, or of main.py --save_state')
    what = out.add_mutually_exclusive_group(required=True)
    what.add_argument('--samples', nargs='+', metavar='FILE', help=_SAMPLES)
    what.add_argument('--minus', nargs='+', metavar='FILE', help='statistics files of whole classes')
    what.add_argument('--classes', nargs='+', metavar='LABEL', help=_CLASSES)
    _add_columns(out)
    out.add_argument('-o', '--out', help='file to write')
    out.add_argument('--feature_cache', metavar='FOLDER',
                     help='take the images of --samples out of the feature caches below')
    out.add_argument('--find', metavar='FOLDER',
                     help='change nothing: list the files below that hold --samples, or may')
    out.add_argument('--proof', metavar='FILE', help='write a record of the digests, for `check`')
    out.add_argument('--key', metavar='FILE', help='sign the record with the bytes of this file')


_SAMPLES = ('files of features X and labels y (of those with splits, what is to train); or an npz file: '
            'labels (N,), quantised or features (N, d), and keys (N,) or images (N, H, W, C)')
_CLASSES = ('of a learner, whole classes: where there is a Gram matrix a class (heads balanced, qda), or the '
            'buffer has every sample of them')


def _add_columns(out) -> None:
    out.add_argument('--columns', metavar='X=NAME,y=NAME', type=_columns,
                     help='columns of features that are called otherwise; X=f*: all that match')


def _columns(text: str) -> dict:
    try:
        return columns.columns_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(error) from error


def _setting(text: str):
    """A number, or else text; `scroll.io.states.PARAMS` says what it may be."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read(path):
    """A `StatisticsFile`, or the `State` of a learner."""
    return (State if files.kind_of(path) == KIND else StatisticsFile).read(path)


def show(args) -> None:
    """Print what is known of a file."""
    if zipfile.is_zipfile(args.file) and files.kind_of(args.file):
        _read(args.file).show()
    else:
        features.show(features.open_files([args.file], args.columns))


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(_read(args.file).statistics.digest())


def learn(args) -> None:
    """A learner of files."""
    given = {name: value for name, value in vars(args).items() if name in PARAMS}
    check_params(given)
    learner = Scroll(**_USUAL | given)
    if args.patterns:
        _learn_with_engine(learner, args)
        return
    for name in ('engine', 'workers', 'partitions', 'embedder', 'gpus'):
        if getattr(args, name):
            raise InputError(f'--{name} goes with --from PATTERN')
    if not args.files:
        raise InputError('expected FILE ..., or --from PATTERN')
    _go_on(learner, args, args.shard)


def _learn_with_engine(learner: Scroll, args) -> None:
    """The state of a learner whose statistics an engine has made."""
    if args.files:
        raise InputError(f'{args.files[0]}: expected files or --from PATTERN, not both')
    if learner.buffer_size or learner.keep_keys:
        raise InputError('--from counts sums, and keeps no samples and no keys: leave out --buffer_size and '
                         '--keep_keys, or give the files without --from')
    params = {name: value for name, value in learner.get_params().items() if name != 'embedder'}
    counter = counting.Counter(params, args.columns, args.split, args.block_size, args.shard, args.embedder,
                               'cuda' if args.gpus else 'cpu')
    counted = engines.total(args.engine or engines.LOCAL, counter, counting.find(args.patterns), args.workers,
                            args.partitions, args.gpus)
    if not counted.statistics.total:
        raise InputError(f'--from {args.patterns[0]}: there are no samples that are to be learned')
    rows = sum(map(counting.rows_of, counted.parts))
    print(f'learned {counted.statistics.total} of {rows} samples in {len(counted.parts)} blocks',
          file=sys.stderr)
    _write(State(params, counted.psi, counted.statistics, blocks=counted.parts), args.out)


def add(args) -> None:
    """A learner, and what it learns from more files."""
    _go_on(Scroll.load(args.state), args)


def _go_on(learner: Scroll, args, share: str = None) -> None:
    counts = learning.learn(learner, args.files, args.columns, args.split, args.block_size, share)
    learner.save(args.out)
    print('learned {} of {} samples'.format(*counts), file=sys.stderr)
    print(learner.digest())


def predict(args) -> None:
    """Labels, and how many of them are right."""
    learner = _adapted(args)
    right, total = learning.predict(learner, args.files, args.out, args.columns, args.split, args.block_size,
                                    args.scores)
    print(f'predicted {total} samples' if right is None else
          f'accuracy {right / total:.4f} ({right} of {total} samples)')


def write_out(args) -> None:
    """The files of an export."""
    learner = _adapted(args)
    learner.export(args.out, args.formats)
    print(learner.predictor().digest())


def _adapted(args) -> Scroll:
    learner = Scroll.load(args.state)
    return learner.adapt() if args.adapt else learner


def check(args) -> int:
    """Whether an export is what its certificate says, or a record of unlearning true; exit code 1 if not."""
    paths = {name: getattr(args, name) for name in proofs.PARTS if getattr(args, name)}
    if Path(args.what).is_dir():
        if paths or args.key:
            raise InputError(f'{args.what} is the folder of an export: only --state goes with it')
        lines, same = told(checking.check(args.what, args.state))
    else:
        if args.state:
            raise InputError(f'{args.what} is no folder of an export: --state does not go with it')
        wrong = proofs.check(args.what, _counted(paths), args.key)
        lines, same = wrong or ['true: before, less what was removed, is after'], not wrong
    print('\n'.join(lines))
    return int(not same)


def merge(args) -> None:
    """Statistics, or learners, of several streams as one."""
    file = _read(args.file)
    for path in args.others:
        other = _read(path)
        if type(other) is not type(file):
            raise InputError(f'{path}: is a file of {_what(other)}, {args.file} of {_what(file)}: expected '
                             'files of one kind')
        if isinstance(file, State):
            file = learning.merged(file, other, path, args.repeated)
        else:
            file.merge(other, args.repeated)
    _write(file, args.out)


def _what(file) -> str:
    return 'a learner' if isinstance(file, State) else 'statistics'


def remove(args) -> None:
    """A learner, or statistics, without a part of the stream."""
    file = _read(args.file)
    if isinstance(file, State):
        file = _without(file, args.file, args)
    elif args.samples:
        samples = statistics_files.samples_of(args.samples, args.columns)
        file.remove(statistics_files.part_of(args.samples[0], samples, file.psi, file.statistics))
    elif args.classes:
        raise InputError(f'{args.file} holds statistics: --classes is for files of learners; give --minus or '
                         '--samples')
    else:
        for path in args.minus:
            file.remove(StatisticsFile.read(path))
    _write(file, args.out)


def forget(args) -> int:
    """A learner without some samples; or where they still are, with exit code 1 if they are anywhere."""
    if args.find is not None:
        if args.samples is None or args.state or args.out or args.feature_cache or args.proof or args.key:
            raise InputError('--find FOLDER goes with --samples FILE and nothing else')
        from scroll.io.traces import find
        return int(find(args.find, args.samples, args.columns))
    if not (args.state and args.out):
        raise InputError('expected a state file and -o FILE (or --find FOLDER)')
    if args.feature_cache is not None and not (args.samples and Path(args.feature_cache).is_dir()):
        raise InputError(f'--feature_cache {args.feature_cache}: ' + (
            'there is no such folder' if args.samples else 'it goes with --samples, which have images'))
    if args.key and not args.proof:
        raise InputError('--key FILE signs a record: it goes with --proof FILE')
    before = State.read(args.state)
    after = _without(before, args.state, args, args.feature_cache)
    _write(after, args.out)
    if args.proof:
        proofs.write(args.proof, proofs.record(before.statistics, after.statistics, before.psi), args.key)
    return 0


def _without(state: State, origin, args, cache=None) -> State:
    if args.samples:
        state = unlearn.without_samples(state, args.samples, cache, args.columns)
    for path in args.minus or ():
        state = unlearn.without_classes(state, path)
    for text in args.classes or ():
        state = state.without_class(unlearn.class_of(state, text, origin))
    return state


def rename(args) -> None:
    """A learner whose classes have other names, as if the stream had had them. Labels stay numbers where all
    of them are whole numbers; otherwise all are text."""
    _write(unlearn.renamed(_read(args.file), args.names, args.file), args.out)


def _counted(paths: dict) -> dict:
    """name -> (path, statistics, backbone or None) of learners, of statistics, or of samples, which count as
    they do in the others."""
    read = {name: _read(path) for name, path in paths.items() if files.kind_of(path)}
    found = {name: (paths[name], file.statistics, file.psi) for name, file in read.items()}
    like = next((file.statistics for file in read.values()), None)
    for name in paths.keys() - read.keys():
        samples = statistics_files.samples_of([paths[name]])
        found[name] = paths[name], statistics_files.part_of(paths[name], samples, '', like).statistics, None
    return found


def _write(what, path) -> None:
    what.write(path)
    print(what.statistics.digest())


def main(words=None) -> int:
    """Exit code of `python -m scroll` with these words, by default those of the command line."""
    try:
        args = _parser().parse_args(words)
        return args.run(args) or 0
    except InputError as error:
        print(f"scroll: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
