"""What several commands share: arguments, and files that may be of two kinds."""
import argparse

from scroll import archive
from scroll.errors import InputError, naming
from scroll.files import columns
from scroll.files.statistics import StatisticsFile
from scroll.learner import Scroll
from scroll.state import KIND, State


def add_columns(parser) -> None:
    """--columns, of files of features."""
    parser.add_argument('--columns', metavar='X=NAME,y=NAME', type=_columns,
                        help='columns of features with other names; X=f*: all that match')


def add_out(parser, **how) -> None:
    """-o, the file to write."""
    parser.add_argument('-o', '--out', **dict(required=True, help='file to write') | how)


def _columns(text: str) -> dict:
    try:
        return columns.columns_of(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(error) from error


def read(path):
    """A `StatisticsFile`, or the `State` of a learner."""
    return (State if archive.kind_of(path) == KIND else StatisticsFile).read(path)


def write(what, path) -> None:
    """Write statistics or a state, and print the digest of its statistics."""
    what.write(path)
    print(what.statistics.digest())


def adapted(args) -> Scroll:
    """The learner of the file args.state, with f_T, and with args.adapt f*; InputError names the file."""
    learner = Scroll.load(args.state)
    with naming(args.state):
        learner.predictor()
        return learner.adapt() if args.adapt else learner
