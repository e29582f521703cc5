"""Which rows of results are runs of a cell of an experiment: those with its key (`bench.results.keys`)."""
import functools
import re

from bench.paper.experiments import Cell
from bench.results.keys import read_key, text_of
from core.arguments import KEY, affects
from core.plugins import backbone_name, normalise
from scroll.errors import InputError

_STREAM = ('n_splits', 'schedule')
_BEFORE = dict(adapt_select='none')                    # what was the default before rows had the flag
_APART = ('seed', 'model_config', *_STREAM)            # looked at by themselves


def matching_rows(cell: Cell, rows: list) -> list:
    """The rows that are runs of a cell, in order of their seeds: of several with one seed, the newest.

    A row is a run of a cell if its key has the values that the cell's command has today, flags and defaults
    alike. A flag that the key lacks, since there was none, had the default that it is declared with; of flags
    that are gone none may have been asked for. A command that `main.py` refuses has no rows."""
    rows = [row for row in rows if row.get('run_key') and _same_stream(cell, row)
            and all(normalise(cell.flags[name]) == row.get(name) for name in ('model', 'dataset'))]
    today = arguments(cell) if rows else None
    found = [row for row in rows if today is not None and _has_arguments(row, today)]
    newest = {row.get('seed'): row for row in sorted(found, key=lambda row: row.get('finished', ''))}
    return [newest[seed] for seed in sorted(newest, key=lambda seed: int(seed or 0))]


def arguments(cell: Cell):
    """What `main.py` makes of a cell's command, `Arguments`; None if it refuses the command."""
    return _parsed(tuple(cell.command(0)[1:]))[0]


def refusal(cell: Cell) -> str:
    """Why `main.py` refuses a cell's command, in one line, or ''."""
    return _parsed(tuple(cell.command(0)[1:]))[1]


@functools.cache
def _parsed(words: tuple) -> tuple:
    from bench.cli.parsing import parse_args
    try:
        return parse_args(list(words)), ''
    except InputError as error:
        return None, ' '.join(str(error).split())


def _has_arguments(row: dict, today) -> bool:
    key = read_key(row['run_key'])
    values, absent = key['given'] | key['default'], today.declared | _BEFORE
    if 'backbone' in values:                           # by its name of today
        said = [name for name, text in values.items() if text]
        values['backbone'] = backbone_name(values['backbone'], said)
    wanted = {name: value for name, value in vars(today).items() if affects(today, name) in KEY
              and name not in _APART}
    return set(key['given']) <= {*vars(today)} and all(
        same_value(value, values.get(name, text_of(absent.get(name, value))))
        for name, value in wanted.items())


def _same_stream(cell: Cell, row: dict) -> bool:
    """Whether a row is of a cell's schedule; a cell without one (joint training) takes any class split."""
    schedule, named = row.get('schedule', ''), [name for name in _STREAM if name in cell.flags]
    specs = {f'split:{cell.flags[name]}' if name == 'n_splits' else cell.flags[name] for name in named}
    if not named:
        return bool(re.fullmatch(r'split:\d+', schedule))
    return all(same_value(spec, schedule) for spec in specs)


def same_value(value, text: str) -> bool:
    """Whether a flag's value is a file's text: numbers as numbers, on and off in any way, nothing as ''."""
    return _plain(text_of(value)) == _plain(text)


def _plain(text: str):
    text = {'True': '1', 'False': '0', 'None': ''}.get(text, text)
    try:
        return float(text)
    except ValueError:
        return text
