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


def matching_rows(cell: Cell, rows: list, earlier: bool = False) -> list:
    """The rows that are runs of a cell, in order of their seeds: of several with one seed, the newest.

    A row is a run of a cell if its key has the values that the cell's command has today, flags and defaults
    alike. A flag that the key lacks, since there was none, had the default that it is declared with; of flags
    that are gone none may have been asked for.

    Args:
        earlier: where there are none, take those that the same command made when defaults were others: rows
            of runs that were asked for what the cell asks for, and for nothing else. Of these the newest, and
            those of its key.
    """
    rows = [row for row in rows if _same_stream(cell, row)
            and all(normalise(cell.flags[name]) == row.get(name) for name in ('model', 'dataset'))]
    today = arguments(cell) if rows else None
    found = [row for row in rows if today is not None and _has_arguments(row, today)]
    if not found and (earlier or today is None):
        found = _of_the_same_command(cell, today, rows)
    newest = {row.get('seed'): row for row in sorted(found, key=_finished)}
    return [newest[seed] for seed in sorted(newest, key=lambda seed: int(seed or 0))]


def arguments(cell: Cell):
    """What `main.py` makes of a cell's command, `Arguments`; None if it refuses the command."""
    return _parsed(tuple(cell.command(0)[1:]))[0]


def refusal(cell: Cell) -> str:
    """Why `main.py` refuses a cell's command, in one line, or ''."""
    return _parsed(tuple(cell.command(0)[1:]))[1]


def affects_of(cell: Cell) -> dict:
    """flag -> what it affects; where the cell's command is refused, of the flags that every run has."""
    from bench.cli.parsing import base_parser
    today = arguments(cell)
    return base_parser().affects() if today is None else today.affects


@functools.cache
def _parsed(words: tuple) -> tuple:
    from bench.cli.parsing import parse_args
    try:
        return parse_args(list(words)), ''
    except InputError as error:
        return None, ' '.join(str(error).split())


def _has_arguments(row: dict, today) -> bool:
    values, given = _of_row(row)
    # a row without a key says nothing of flags that came later; what is asked for it must say
    absent = today.declared | _BEFORE if given is not None else dict.fromkeys(today.given)
    wanted = {name: value for name, value in vars(today).items() if affects(today, name) in KEY
              and name not in _APART}
    return (given or set()) <= {*vars(today)} and all(
        same_value(value, values.get(name, text_of(absent.get(name, value))))
        for name, value in wanted.items())


def _of_the_same_command(cell: Cell, today, rows: list) -> list:
    """See `earlier`. Where the command cannot be understood (its weights are not here), its flags decide."""
    asked = cell.flags if today is None else {name: getattr(today, name) for name in today.given}
    of_flag, found = affects_of(cell), []
    asked = {name: value for name, value in asked.items() if of_flag.get(name, 'result') in KEY
             and name not in _APART}
    config = cell.flags.get('model_config') if today is None else today.model_config
    for row in rows:
        values, given = _of_row(row)
        if (given or set()) <= {*asked, *_APART} and all(
                same_value(value, values.get(name, ''))
                for name, value in {**asked, 'model_config': config}.items()):
            found.append((row, given and values))
    like = max(found, key=lambda pair: _finished(pair[0]))[1] if found else None
    return [row for row, values in found if values == like]


def _of_row(row: dict) -> tuple:
    """(flag -> text, flags that were asked for) of a row's key; (columns, None) of a row without one.

    The backbone has its name of today.
    """
    key = read_key(row['run_key']) if row.get('run_key') else None
    values = key['given'] | key['default'] if key else {name: text for name, text in row.items() if text}
    if 'backbone' in values:
        said = [name for name, text in values.items() if text]
        values['backbone'] = backbone_name(values['backbone'], said)
    return values, key and set(key['given'])


def _finished(row: dict) -> str:
    return row.get('finished', '')


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
