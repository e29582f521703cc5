"""argparse whose errors are one line, with the nearest known name where there is one. Needs no numpy."""
import argparse

from scroll.errors import InputError, did_you_mean


class LineParser(argparse.ArgumentParser):
    """No abbreviations; errors as `InputError`."""

    def __init__(self, *args, **kwargs):
        kwargs.setdefault('allow_abbrev', False)
        super().__init__(*args, **kwargs)

    def error(self, message):
        raise InputError(message + '; see --help' * ('are required' in message))

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f'{value!r}: expected one of '
                                                 f'{", ".join(map(str, action.choices))}'
                                                 f'{did_you_mean(value, action.choices)}')

    def parse_args(self, args=None, namespace=None):
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].split('=')[0]
            hint = did_you_mean(word.replace('-', '_').replace('__', '--', 1), self._options(parsed))
            if not word.startswith('-'):
                raise InputError(f'{unknown[0]}: one argument too many; see --help')
            raise InputError(f"{unknown[0]}: no such flag here{hint or '; see --help'}")
        return parsed

    def _options(self, parsed) -> list:
        """Flags of this parser, and of the command that was chosen."""
        own = [option for action in self._actions for option in action.option_strings]
        chosen = [action.choices[getattr(parsed, action.dest)] for action in self._actions
                  if isinstance(action, argparse._SubParsersAction)]
        return own + [option for parser in chosen for option in parser._options(parsed)]
