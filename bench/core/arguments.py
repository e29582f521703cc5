"""argparse as this project uses it: the parser, the types of flags' values, the flags of replay methods. No torch."""
import argparse
import difflib
import math

from scroll.errors import InputError


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Says the default of each flag that has one, as it stands after models, data sets and configs had their say."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=36, width=120)

    def _get_help_string(self, action):
        text = action.help or ''
        hidden = action.default is None or action.default is False or action.default in ([], argparse.SUPPRESS)
        if hidden or 'default' in text or not action.option_strings:
            return text
        return f"{text} (default: {str(action.default).replace('%', '%%')})".strip()


class ArgumentParser(argparse.ArgumentParser):
    """argparse with underscored flags only, no abbreviations, and errors as `InputError` (one line, exit code 2)."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault('allow_abbrev', False)
        kwargs.setdefault('formatter_class', _HelpFormatter)
        super().__init__(*args, **kwargs)

    def error(self, message):
        raise InputError(message)

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].split('=')[0]
            known = [o for action in self._actions for o in action.option_strings]
            close = difflib.get_close_matches(flag.replace('-', '_').replace('__', '--', 1), known, n=1)
            raise InputError(f"{unknown[0]}: no such flag here" + (f'; did you mean {close[0]}?' if close else '; see --help'))
        return parsed


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


def whole(least: int = 0, most: int = None):
    """Command-line type: a whole number of at least `least`, and at most `most`."""
    def number(text):
        try:
            value = int(str(text))
        except ValueError:
            raise argparse.ArgumentTypeError(f'{text!r} is not a whole number') from None
        if value < least:
            raise argparse.ArgumentTypeError(f'{value} is too small: expected at least {least}')
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f'{value} is too large: expected at most {most}')
        return value
    return number


def real(least: float = -math.inf, positive: bool = False):
    """Command-line type: a finite number of at least `least`, or above zero."""
    def number(text):
        try:
            value = float(text)
        except (TypeError, ValueError):
            raise argparse.ArgumentTypeError(f'{text!r} is not a number') from None
        if not math.isfinite(value) or value < least or (positive and value <= 0):
            expected = 'a number above 0' if positive else 'a finite number' if least == -math.inf else f'at least {least:g}'
            raise argparse.ArgumentTypeError(f'{text}: expected {expected}')
        return value
    return number


def negated(text) -> bool:
    """Command-line type of an on/off flag that turns another one off."""
    return not binary_to_boolean_type(text)


def share(text) -> float:
    """Command-line type: a number from 0 to 1."""
    value = real(0)(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f'{text}: expected a share from 0 to 1')
    return value


def labelled(text) -> float:
    """Command-line type: a share of labelled samples, above 0 and up to 1."""
    value = share(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f'{text}: expected a share above 0: without a label there is nothing to learn')
    return value


def noise_type(text: str) -> str:
    """Command-line type: `sym`, `symm` and `asym`, `asymm` are short for the choices."""
    return {'sym': 'symmetric', 'symm': 'symmetric', 'asym': 'asymmetric', 'asymm': 'asymmetric'}.get(text, text)


def add_rehearsal_args(parser) -> None:
    """Replay buffer."""
    group = parser.add_argument_group('replay buffer')
    group.add_argument('--buffer_size', type=whole(0, 10 ** 9), required=True, help='samples in the buffer, all classes together')
    group.add_argument('--minibatch_size', type=whole(1, 10 ** 9), help='samples replayed at once (default: batch_size)')
