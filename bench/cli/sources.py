"""Sources of a run's values, and which of them prevails.

A `Source` is a name, as messages and `--explain` say it, and flag -> value. `collect` puts them in
order, the weakest first; `merge` takes the strongest value of each flag.
"""

import argparse
import os
from typing import NamedTuple

from bench.cli import mammoth_defaults as mammoth
from core.arguments import COLUMNS, FREE, ArgumentParser
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


def of_data_set(name: str, dataset, theirs: bool) -> list[Source]:
    """The defaults of a data set's class, and, if `theirs`, Mammoth's of it."""
    from datasets.utils.defaults import dataset_defaults

    other = mammoth.of_data(dataset) if theirs else {}
    return [
        Source(f'data set {name}', dataset_defaults(dataset)),
        Source("Mammoth's defaults", other),
    ]


def of_method(name: str, model, defaults: dict, theirs: bool) -> list[Source]:
    """The `defaults` that a method's `get_parser` sets, and, if `theirs`, Mammoth's of it."""
    once = {'n_epochs': 1} if mammoth.sees_once(model, theirs) else {}
    other = mammoth.of_method(model) if theirs else {}
    return [
        Source(f'method {name}', once | defaults),
        Source("Mammoth's defaults", {k: v for k, v in other.items() if v is not None}),
    ]


def of_saved_run(parser: ArgumentParser, path: str, saved: dict) -> Source:
    """Values of the run that `--loadcheck` names, which a run with its model continues."""
    kinds = parser.affects()
    free = FREE | {'part', 'run'}
    values = {flag: value for flag, value in saved.items() if kinds.get(flag) not in free}
    return Source(f'--loadcheck {path}', values)


def merge(parser: ArgumentParser, sources) -> dict[str, Value]:
    """flag -> `Value` of the last source that has one, for the flags of the parser.

    InputError: a value that type or choices of its flag refuse."""
    actions = _actions(parser)
    values = {}
    for source in sources:
        for name, value in source.values.items():
            flag = COLUMNS.get(name, name)
            if flag in actions:
                read = _typed(parser, actions[flag], value, f'{source.name}: {name}')
                values[flag] = Value(read, source.name)
    return values


def check_known(parser: ArgumentParser, sources) -> None:
    """InputError for flags that do not exist; files of a Mammoth checkout are only warned of."""
    actions = _actions(parser)
    for source in sources:
        for name in source.values:
            if COLUMNS.get(name, name) in actions:
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
    lines = []
    for flag, action in _actions(parser).items():
        if flag in args and flag != 'explain':
            value, source = values.get(flag, (action.default, 'default'))
            settled = '' if getattr(args, flag) == value else f': {value}'
            name = next(o for o in action.option_strings if o.startswith('--'))[2:]
            lines.append((flag in values, f'{name} {getattr(args, flag)} from {source}{settled}'))
    for _, line in sorted(lines, key=lambda item: not item[0]):
        print(line)
