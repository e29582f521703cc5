"""Sources of a run's values, and which of them prevails.

A `Source` is a name, as messages and `--explain` say it, and flag -> value. `bench.cli.parsing`
puts them in order, the weakest first; `merge` takes the strongest value of each flag.
"""

import argparse
import os
from inspect import isfunction
from typing import NamedTuple

from core.arguments import ArgumentParser, column_of
from core.configs import Source
from core.environment import warn_once
from core.mammoth import checkout
from scroll.ground.errors import InputError, did_you_mean


class Value(NamedTuple):
    """A value of a flag: with the type of the flag, and the name of its source."""

    value: object
    source: str


def environment() -> Source:
    """Flags that environment variables set."""
    asked = os.environ.get('MAMMOTH_DEFAULTS')
    return Source('variable MAMMOTH_DEFAULTS', {'mammoth_defaults': asked} if asked else {})


def merge(parser: ArgumentParser, sources) -> dict[str, Value]:
    """flag -> `Value` of the last source that has one, for the flags of the parser.

    InputError: a value that type or choices of its flag refuse."""
    actions = _actions(parser)
    values = {}
    for source in sources:
        for name, value in source.values.items():
            if action := actions.get(column_of(name, actions)):
                read = _typed(parser, action, value, f'{source.name}: {name}')
                values[action.dest] = Value(read, source.name)
    return values


def check_known(parser: ArgumentParser, sources) -> None:
    """InputError for flags that do not exist; files of a Mammoth checkout are only warned of."""
    actions = _actions(parser)
    for source in sources:
        for name in source.values:
            if column_of(name, actions) in actions:
                continue
            message = f'{source.name}: {name} is not a flag of this run'
            if not source.name.startswith(f'{checkout()}/'):
                raise InputError(f'{message}{did_you_mean(name, actions)}')
            warn_once(f'{message}, and has no effect')


def _actions(parser: ArgumentParser) -> dict:
    """flag -> action; of several actions for one flag, the first is its own."""
    actions = {}
    for action in parser._actions:
        actions.setdefault(action.dest, action)
    return actions


def _typed(parser: ArgumentParser, action, value, where: str):
    """A value of a config file as the command line would give it."""
    if value is None or value == 'None':
        return None
    many = action.nargs not in (None, 0, '?')
    if isinstance(value, list) != many:
        raise InputError(f'{where}: {value!r}: expected {"a list" if many else "one value"}')
    items = []
    for item in value if many else [value]:
        word = int(item) if isinstance(item, bool) and action.type else item
        if isfunction(action.type):  # which expects text
            word = str(word)
        try:
            items.append(parser._get_value(action, word))
            parser._check_value(action, items[-1])
        except argparse.ArgumentError as error:
            raise InputError(f'{where}: {error.message}') from error
    return items if many else items[0]


def explain(parser: ArgumentParser, args, values: dict[str, Value]) -> None:
    """Print each value of a run with its source, defaults of flags last. A value that the run
    settled from others (`auto`, None) is followed by what its source says.

    values: flag -> `Value`, where a source has one."""
    lines = {True: [], False: []}
    for flag, action in _actions(parser).items():
        if flag in args and flag != 'explain':
            value = getattr(args, flag)
            said, source = values.get(flag, (action.default, 'default'))
            name = next(o for o in action.option_strings if o.startswith('--'))[2:]
            line = f'{name} {value} from {source}'
            lines[flag in values].append(line if value == said else f'{line}: {said}')
    print('\n'.join(lines[True] + lines[False]))
