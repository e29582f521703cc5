"""argparse as this project uses it: parser, types of flags' values, flags of replay methods. No
torch.

What a flag affects is said once, where it is declared: `add_argument('--num_workers', ...,
affects='speed')`. From it follow which rows are of one experiment, which interrupted run a command
continues, what processes must agree on, which arguments a loaded model brings, and which columns
are worth keeping.
"""

import argparse
import math
import re
import textwrap
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from scroll.commands.parser import LineParser


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows the default of each flag, as models, data sets and configs leave it, and short
    placeholders.
    """

    def __init__(self, prog):
        super().__init__(prog, max_help_position=35, width=110)

    def _get_default_metavar_for_optional(self, action):
        on_off = action.type is binary_to_boolean_type
        return '{0,1}' if on_off else action.dest.upper().rpartition('_')[2]

    def _get_help_string(self, action):
        text = action.help or ''
        default = action.default
        hidden = (
            default in (None, [], '', argparse.SUPPRESS)
            or default is False
            or not action.option_strings
        )
        if hidden or 'default' in text:
            return text
        return f'{text} (default: {str(default).replace("%", "%%")})'.strip()


class ShortHelp(_HelpFormatter):
    """A line a flag: the first words of its help."""

    def _split_lines(self, text, width):
        words, default = re.fullmatch(r'(.*?)( \(default: [^;)]{,20}\))?', text).groups('')
        return [textwrap.shorten(words, width - len(default), placeholder=' ...') + default]


AFFECTS = (
    'result',  # what is learned, from what and how, and what it is tested on
    'content',  # the result, through the file or folder that it names: a path of this machine
    'stream',  # the result, through which samples come or are tested on, and when
    'part',  # the result, and one run alone: which part of the stream it does
    'run',  # the result, and one run alone: where its values come from
    'bits',  # the arithmetic: the last digits of a result
    'record',  # what is measured and kept on the way
    'speed',  # the hardware that is used: nothing but speed, or on other hardware last digits
    'place',  # which files are written and read, and where
    'display',  # what is shown, and other words on the run
    'nothing',  # of a stage that this run does not have
)
# flag -> its column in results rows, an older name; config files and command lines may have either
COLUMNS = {
    'head': 'predictor',
    'targets': 'ridge_targets',
    'strategy': 'buffer_strategy',
    'dtype': 'embed_dtype',
    'embedding_dtype': 'embed_dtype',
}
# what tells runs apart, wherever they go
KEY = frozenset(('result', 'content', 'stream', 'part', 'run'))
# what may change when a run goes on, or between processes
FREE = frozenset(('speed', 'place', 'display', 'nothing'))


class Arguments(argparse.Namespace):
    """A parsed command line.

    Attributes (none of them among `vars`):
        affects: flag -> what it affects, one of `AFFECTS`.
        declared: flag -> the default it was declared with.
        given: flags of the command line.
        Of a run: key: what tells it from others, `bench.results.keys`.
            differs: from Mammoth's defaults, a line."""

    __slots__ = ('affects', 'declared', 'differs', 'given', 'key')


def affects(args, flag: str) -> str:
    """Return what a flag of a run affects; by default 'result'."""
    return getattr(args, 'affects', {}).get(flag, 'result')


class _Declaring:
    """`add_argument` with `affects`: what the flag affects, one of `AFFECTS`."""

    def add_argument(self, *names, affects: str = 'result', **options):
        if affects not in AFFECTS:
            raise ValueError(f'affects={affects!r}: expected one of {", ".join(AFFECTS)}')
        action = super().add_argument(*names, **options)
        action.affects = affects
        action.declared = action.default
        return action


class _Group(_Declaring, argparse._ArgumentGroup):
    pass


def argument_group(parser, *title, **options):
    """A group of flags declared with `affects`; also in a parser of argparse's own."""
    group = _Group(parser, *title, **options)
    parser._action_groups.append(group)
    return group


class ArgumentParser(_Declaring, LineParser):
    """argparse with underscored flags only, no abbreviations, and errors as `InputError` of one
    line.

    once: refuse a flag that is given twice, by any name; else the last one counts."""

    add_argument_group = argument_group

    def __init__(self, *args, once: bool = False, **kwargs):
        self.once = once
        kwargs.setdefault('formatter_class', _HelpFormatter)
        super().__init__(*args, **kwargs)

    def _get_values(self, action, words):
        if action.option_strings:
            if self.once and action.dest in self._given:
                raise argparse.ArgumentError(action, 'it is given 2 times: give it once')
            self._given.add(action.dest)
        return super()._get_values(action, words)

    def parse_known_args(self, args=None, namespace=None):
        self._given = set()
        parsed, unknown = super().parse_known_args(args, namespace or Arguments())
        if isinstance(parsed, Arguments):
            parsed.given = self._given
            parsed.affects = self.affects()
            parsed.declared = {
                action.dest: getattr(action, 'declared', action.default)
                for action in reversed(self._actions)
            }
        return parsed, unknown

    def affects(self) -> dict:
        """flag -> what it affects; of several names of a flag, the first is its own."""
        return {
            action.dest: getattr(action, 'affects', 'result') for action in reversed(self._actions)
        }


class Flag(NamedTuple):
    """A flag of a method. kind: its type, or the words to choose from. affects: of `AFFECTS`."""

    kind: Callable | tuple
    default: object
    help: str
    affects: str = 'result'


def column_of(flag: str, columns) -> str:
    """The name that these columns have of a flag: its own, else an older one."""
    return flag if flag in columns else COLUMNS.get(flag, flag)


def spellings(column: str) -> list[str]:
    """The names of the flag that a column of results rows has, the first of them first."""
    return [f'--{name}' for name, own in [*COLUMNS.items(), (column, column)] if own == column]


def of_signature(parameter, types: dict | None = None) -> dict:
    """Default, type and choices (from `Literal`) of a flag for an `inspect.Parameter`. types:
    annotation -> command-line type, where it is not the annotation itself."""
    known = {bool: binary_to_boolean_type} | (types or {})
    kind = parameter.annotation
    default = None if parameter.default is parameter.empty else parameter.default
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else None
    if choices or kind not in (int, float, str, bool):
        kind = type(choices[0] if choices else '' if default is None else default)
    return {'default': default, 'type': known.get(kind, kind), 'choices': choices}


def binary_to_boolean_type(value) -> bool:
    """Command-line type of an on/off flag: true/1/t/y/yes or false/0/f/n/no, in any case."""
    text = str(value).lower()
    if text in ('true', '1', 't', 'y', 'yes'):
        return True
    if text in ('false', '0', 'f', 'n', 'no'):
        return False
    raise argparse.ArgumentTypeError(f'{value!r}: expected 0 or 1')


def none_or_float(value):
    """Command-line type of a number that may be absent: `None` or a float."""
    return None if str(value) == 'None' else float(value)


def custom_str_underscore(value) -> str:
    """Command-line type of a plug-in name: underscores are read as dashes."""
    return str(value).replace('_', '-')


def real(least: float = -math.inf, most: float = math.inf, positive: bool = False, kind=float):
    """Command-line type: a finite number from `least` to `most`, or above zero. kind: float or
    int.
    """
    expected = 'expected a number' if kind is float else 'expected a whole number'
    if positive:
        expected += ' above 0'
    if least > -math.inf:
        expected += f', at least {least}'
    if most < math.inf:
        expected += f', at most {most}'

    def number(text):
        with suppress(ValueError, OverflowError):  # no number, or one beyond the largest float
            value = kind(str(text))
            if least <= value <= most and math.isfinite(value) and (value > 0 or not positive):
                return value
        raise argparse.ArgumentTypeError(f'{text!r}: {expected}')

    return number


def whole(least: int = 0, most: float = math.inf):
    """Command-line type: a whole number from `least` to `most`."""
    return real(least, most, kind=int)


share = real(0, 1)  # of all samples, say
labelled = real(most=1, positive=True)  # without a label there is nothing to learn


def noise_type(text: str) -> str:
    """Command-line type: `sym`, `symm` and `asym`, `asymm` are short for the choices."""
    short = {'sym': 'symmetric', 'symm': 'symmetric', 'asym': 'asymmetric', 'asymm': 'asymmetric'}
    return short.get(text, text)


def add_rehearsal_args(parser) -> None:
    """Replay buffer."""
    group = parser.add_argument_group('replay buffer', 'example: --buffer_size 200')
    group.add_argument(
        '--buffer_size',
        type=whole(0, 10**9),
        required=True,
        help='samples in the buffer, all classes together',
    )
    group.add_argument(
        '--minibatch_size',
        type=whole(1, 10**9),
        help='samples replayed at once (default: batch_size)',
    )
