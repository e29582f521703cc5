"""SCROLL's files on the command line: look at them, put them together, take samples out.

    python -m scroll show all.npz                                        # or state.npz: classes, digest
    python -m scroll merge 1.npz 2.npz 3.npz -o all.npz                  # statistics of three machines
    python -m scroll remove all.npz --minus 2.npz -o rest.npz            # as if 2 had never been seen
    python -m scroll remove all.npz --samples old.npz -o rest.npz
    python -m scroll unlearn state.npz --samples old.npz -o new.npz      # a learner: its buffer and keys, too
    python -m scroll unlearn --find FOLDER --samples old.npz             # which files still hold them
    python -m scroll check proof.json --after new.npz --removed old.npz  # what `unlearn --proof FILE` wrote

Exit code 2 after one line on what can be mended; 1 of `--find` where there are such files, and of `check`
where a record is not true.
"""
import argparse
import sys
from pathlib import Path

from scroll.errors import InputError
from scroll.io import files, proofs, statistics_files, unlearn
from scroll.io.states import KIND, State
from scroll.io.statistics_files import StatisticsFile


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

    for name, run, about in (('show', show, 'what a file holds: classes, counts, digest'),
                             ('digest', digest, 'the digest of its statistics alone')):
        command(name, run, about).add_argument('file', help='file of statistics, or of a learner')
    out = command('merge', merge, 'add the samples of all files', statistics_files.__doc__)
    out.add_argument('file', help='statistics file')
    out.add_argument('others', nargs='+', metavar='file', help='statistics files')
    out.add_argument('--repeated', action='store_true', help='let a part count as often as it comes')
    out.add_argument('-o', '--out', required=True, help='file to write')
    out = command('remove', remove, 'take samples out of statistics', statistics_files.__doc__)
    out.add_argument('file', help='statistics file')
    what = out.add_mutually_exclusive_group(required=True)
    what.add_argument('--minus', nargs='+', metavar='FILE', help='statistics files of the samples to remove')
    what.add_argument('--samples', metavar='FILE',
                      help='npz file: labels (N,), and quantised or features (N, d)')
    out.add_argument('-o', '--out', required=True, help='file to write')
    out = command('unlearn', forget, 'make a saved learner forget', unlearn.__doc__)
    out.add_argument('state', nargs='?', help='file of Scroll.save, or of main.py --save_state')
    what = out.add_mutually_exclusive_group(required=True)
    what.add_argument('--samples', metavar='FILE', help='npz file: labels (N,), quantised or features '
                                                        '(N, d), and keys (N,) or images (N, H, W, C)')
    what.add_argument('--minus', nargs='+', metavar='FILE', help='statistics files of whole classes')
    out.add_argument('-o', '--out', help='file to write')
    out.add_argument('--feature_cache', metavar='FOLDER',
                     help='take the images of --samples out of the feature caches below')
    out.add_argument('--find', metavar='FOLDER',
                     help='change nothing: list the files below that hold --samples, or may')
    out.add_argument('--proof', metavar='FILE', help='write a record of the digests, for `check`')
    out.add_argument('--key', metavar='FILE', help='sign the record with the bytes of this file')
    out = command('check', check, 'whether a record of unlearning is true of files', proofs.__doc__)
    out.add_argument('file', help='record of unlearn --proof')
    for name in proofs.PARTS:
        out.add_argument(f'--{name}', metavar='FILE', help='learner, statistics or samples; two of the three')
    out.add_argument('--key', metavar='FILE', help='with which the record was signed')
    return parser


def _read(path):
    """A `StatisticsFile`, or the `State` of a learner."""
    return (State if files.kind_of(path) == KIND else StatisticsFile).read(path)


def show(args) -> None:
    """Print what is known of a file."""
    _read(args.file).show()


def digest(args) -> None:
    """Print the digest of a file's statistics."""
    print(_read(args.file).statistics.digest())


def merge(args) -> None:
    """Statistics of several streams as one."""
    file = StatisticsFile.read(args.file)
    for path in args.others:
        file.merge(StatisticsFile.read(path), args.repeated)
    _write(file, args.out)


def remove(args) -> None:
    """Statistics without those of a part of their stream."""
    file = StatisticsFile.read(args.file)
    if args.samples:
        parts = [statistics_files.part_of(args.samples, statistics_files.samples_of(args.samples), file.psi,
                                          file.statistics.dim)]
    else:
        parts = [StatisticsFile.read(path) for path in args.minus]
    for part in parts:
        file.remove(part)
    _write(file, args.out)


def forget(args) -> int:
    """A learner without some samples; or where they still are, with exit code 1 if they are anywhere."""
    if args.find is not None:
        if args.samples is None or args.state or args.out or args.feature_cache or args.proof or args.key:
            raise InputError('--find FOLDER goes with --samples FILE and nothing else')
        from scroll.io.traces import find
        return int(find(args.find, args.samples))
    if not (args.state and args.out):
        raise InputError('expected a state file and -o FILE (or --find FOLDER)')
    if args.feature_cache is not None and not (args.samples and Path(args.feature_cache).is_dir()):
        raise InputError(f'--feature_cache {args.feature_cache}: ' + (
            'there is no such folder' if args.samples else 'it goes with --samples, which have images'))
    if args.key and not args.proof:
        raise InputError('--key FILE signs a record: it goes with --proof FILE')
    state = before = State.read(args.state)
    if args.samples:
        state = unlearn.without_samples(state, args.samples, args.feature_cache)
    for path in args.minus or ():
        state = unlearn.without_classes(state, path)
    _write(state, args.out)
    if args.proof:
        proofs.write(args.proof, proofs.record(before.statistics, state.statistics, state.psi), args.key)
    return 0


def check(args) -> int:
    """Say whether a record is true, with exit code 1 if it is not."""
    paths = {name: getattr(args, name) for name in proofs.PARTS if getattr(args, name)}
    wrong = proofs.check(args.file, {name: _counted(path) for name, path in paths.items()}, args.key)
    for line in wrong or ['true: before, less what was removed, is after']:
        print(line)
    return int(bool(wrong))


def _counted(path) -> tuple:
    """(path, statistics, backbone or None) of a learner, of statistics, or of samples."""
    if files.kind_of(path):
        found = _read(path)
        return path, found.statistics, found.psi
    samples = statistics_files.samples_of(path)
    return path, statistics_files.part_of(path, samples, '', samples['features'].shape[1]).statistics, None


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
