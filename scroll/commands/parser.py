"""argparse whose errors are one line, with the nearest known name where there is one. Needs no
numpy."""

import argparse
from typing import NoReturn

from scroll.ground.errors import InputError, did_you_mean


class LineParser(argparse.ArgumentParser):
    """No abbreviations; errors as `InputError`."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault('allow_abbrev', False)
        super().__init__(*args, **kwargs)

    def print_help(self, file=None):
        print(self.format_help(), end='', file=file)  # argparse's own hides that the disk is full

    def error(self, message):
        hint = '; see --help' if 'required' in message else ''
        raise InputError(message + hint)

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            choices = ', '.join(map(str, action.choices))
            hint = did_you_mean(value, action.choices)
            raise argparse.ArgumentError(action, f'{value!r}: expected one of {choices}{hint}')

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.refuse(unknown[0], self._options(parsed))
        return parsed

    def refuse(self, word: str, options) -> NoReturn:
        """Raise InputError for a word of the command line, with the nearest of these options."""
        name = word.split('=')[0]
        hint = did_you_mean(name.replace('-', '_').replace('__', '--', 1), options)
        what = 'no such flag here' if name.startswith('-') else 'one argument too many'
        raise InputError(f'{word}: {what}{hint or "; see --help"}')

    def _options(self, parsed) -> list:
        """Flags of this parser, and of the command that was chosen."""
        chosen = [
            action.choices[getattr(parsed, action.dest)]
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
        ]
        return [
            *self._option_string_actions,
            *(flag for one in chosen for flag in one._options(parsed)),
        ]
