"""Commands on what others are given: export, check."""
from pathlib import Path

from scroll import archive
from scroll.certificates.files import told
from scroll.commands import common
from scroll.errors import InputError
from scroll.export import checking
from scroll.export import folders as export
from scroll.files import proofs
from scroll.files import statistics as statistics_files


def add_commands(command) -> None:
    """`command(name, run, about, description)` adds a parser and returns it."""
    out = command('export', write_out, 'a learner as files for other programs', export.__doc__)
    out.add_argument('state', help='file of a learner of features')
    common.add_out(out, metavar='FOLDER', help='new folder')
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


def write_out(args) -> None:
    """The files of an export."""
    learner = common.adapted(args)
    learner.export(args.out, args.formats)
    print(learner.predictor().digest())


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
        lines, same = wrong or [proofs.claim(args.what)], not wrong
    print('\n'.join(lines))
    return int(not same)


def _counted(paths: dict) -> dict:
    """name -> (path, statistics, backbone or None) of learners, of statistics, or of samples, which count as
    they do in the others."""
    read = {name: common.read(path) for name, path in paths.items() if archive.kind_of(path)}
    found = {name: (paths[name], file.statistics, file.psi) for name, file in read.items()}
    first = next(iter(read.values()), None)
    like, how = (None, {}) if first is None else (first.statistics, dict(
        names=getattr(first, 'names', None), precision=first.precision))
    for name in paths.keys() - read.keys():
        samples = statistics_files.samples_of([paths[name]], **how)
        found[name] = paths[name], statistics_files.part_of(paths[name], samples, '', like).statistics, None
    return found
