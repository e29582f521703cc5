"""Command that makes SCROLL a method of a Mammoth checkout."""

from pathlib import Path

from scroll.ground.archive import write_errors
from scroll.ground.errors import InputError

_LINES = b'''"""SCROLL, by `python -m scroll mammoth`: --model scroll."""

from models.utils.continual_model import ContinualModel
from scroll.libraries.mammoth import MammothScroll, get_parser  # noqa: F401


class Scroll(MammothScroll, ContinualModel):
    NAME = 'scroll'
'''


def add_mammoth_command(command) -> None:
    """Add mammoth; `command` as of `states.add_stream_commands`."""
    about = 'SCROLL as a method of a Mammoth checkout, or a fork: --model scroll there'
    command('mammoth', write_method, about).add_argument('path', type=Path, help='the checkout')


def write_method(args) -> None:
    """Write models/scroll.py."""
    models = args.path.expanduser() / 'models'
    if not (models / 'utils' / 'continual_model.py').is_file():
        raise InputError(f'{args.path}: expected a Mammoth, with models/utils/continual_model.py')
    file = models / 'scroll.py'
    with write_errors(file):
        if file.exists() and file.read_bytes() != _LINES:
            raise InputError(f'{file} is there, and not of this command: move it away')
        file.write_bytes(_LINES)
    print(f'{file}: --model scroll')
