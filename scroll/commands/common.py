"""What several commands share."""
import argparse

from scroll import edits
from scroll.errors import InputError, naming
from scroll.files import columns
from scroll.learner import Scroll
from scroll.state import State


def add_columns(parser) -> None:
    """--columns, of files of features."""
    parser.add_argument('--columns', metavar='X=NAME,y=NAME', type=_columns,
                        help='columns of features with other names; X=f*: all that match')


def add_out(parser, help: str = 'file to write', **how) -> None:
    """-o, the file to write."""
    parser.add_argument('-o', '--out', required=True, help=help, **how)


def _columns(text: str) -> dict:
    try:
        return columns.columns_of(text)
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
