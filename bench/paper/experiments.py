"""The tables and figures of the paper as data: `experiments/*.yaml`.

A file reads like its table. `flags` go to every run; a column and a row are named sets of flags; a
row's `paper` holds what the paper reports for it, percent, in the order of the columns:

    title: ...                  # heading
    source: tab:main_comp       # label in the paper; without one there is no `paper` either
    seeds: 5
    flags: {model_config: best}
    columns:                    # 'upper heading, lower heading'
      'CIFAR-10, |M| = 200': {dataset: seq-cifar10, buffer_size: 200}
    rows:                       # paper: a value for each column, null for none
      ER: {group: offline, model: er, paper: [67.9 ± 1.1]}
      joint: {model: joint, buffer_size: null, paper: [94.2 ± 1.6]}
    cells:                      # flags of single cells
      ER: {'CIFAR-10, |M| = 200': {lr: 0.1}}
    claims: [...]               # what the paper's text says: bench/paper/claims.py

In columns and rows null takes a flag away, `metric` is no flag, but the column of the results file
to show, and `group` a heading of rows. In the place of columns and rows: `commands` that make a
picture, or a `table` in Markdown. `kind: figure` draws a line a row against the columns, `kind:
bars` a panel a column. Nothing here imports torch.
"""

import functools
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from bench import flag_words
from bench.results.keys import read_key, text_of
from core.configs import read_yaml
from core.plugins import ROOT
from core.rows import FILE, read_rows
from scroll.ground.archive import read_errors
from scroll.ground.errors import InputError

FOLDER = ROOT / 'experiments'
METRICS = (
    'final_accuracy',
    'online_accuracy',
    'adapted_accuracy',
    'anytime_accuracy',
    'average_incremental_accuracy',
)
KINDS = 'table', 'figure', 'bars'
# what rows have that were made before 0.4, when cross-validation within the buffer was a choice
_BEFORE = {'adapt_prior': 0, 'adapt_averaging': False}
_OF_SWEEPS = 'base_path', 'results_path', 'seed'
_VALUE = re.compile(r'(\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?')


@dataclass(frozen=True)
class Cell:
    """One cell of a table, or one point of a figure. flags: name without dashes -> value. paper:
    (mean, standard deviation or None), percent, or None. metric: column of the results file."""

    row: str
    column: str
    flags: dict = field(hash=False)
    paper: tuple | None
    metric: str = METRICS[0]

    def command(self, seed: int) -> list:
        """The words after `main.py`."""
        return flag_words(**{**self.flags, 'seed': seed})


@dataclass(frozen=True)
class Experiment:
    """A table or figure. path: its file. cells: (row, column) -> Cell. groups: row -> heading. x:
    the horizontal axis of a figure. gain: a figure shows what its columns have over the first. The
    rest is as in its file."""

    path: Path
    title: str
    rows: list
    columns: list
    cells: dict
    groups: dict
    kind: str = 'table'
    source: str = ''
    seeds: int = 1
    about: str = ''
    x: str = ''
    gain: bool = False
    claims: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    table: str = ''

    @property
    def name(self) -> str:
        return self.path.stem


def experiment_files() -> list:
    """Files of experiments/, figures before tables, by their number in the paper."""
    return sorted(FOLDER.glob('*.yaml'))


def load(path) -> Experiment:
    """Read an experiment; InputError, in one line, for anything that is wrong in its file."""
    path = Path(path)
    content = read_yaml(path)
    try:
        return _experiment(path, content)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(
            f'{path}: not of the form of the files in experiments/: {error}'
        ) from error


def _experiment(path: Path, content: dict) -> Experiment:
    columns, rows, flags, special = (
        content.pop(key, {}) for key in ('columns', 'rows', 'flags', 'cells')
    )
    if not all(isinstance(name, str) for name in [*rows, *columns]):
        raise InputError("rows, columns: a name is no text: write '200' for 200")
    for row, by_column in special.items():
        if row not in rows or not set(by_column) <= set(columns):
            raise InputError(f'cells: {row!r}: {by_column}: no such cells')
    cells = {}
    for row, spec in rows.items():
        paper = _paper(spec.get('paper'), list(columns), row)
        for column, of_column in columns.items():
            merged = {**flags, **of_column, **spec, **special.get(row, {}).get(column, {})}
            metric = merged.get('metric', Cell.metric)
            if metric not in METRICS:
                raise InputError(
                    f'{row!r}: metric {metric!r}: expected one of {", ".join(METRICS)}'
                )
            cells[row, column] = Cell(row, column, _flags(merged, row), paper[column], metric)
    experiment = Experiment(
        path,
        rows=list(rows),
        columns=list(columns),
        cells=cells,
        groups={row: spec.get('group', '') for row, spec in rows.items()},
        **content,
    )
    if not (cells or experiment.commands or experiment.table):
        raise InputError('expected columns and rows, or commands')
    for part in fields(experiment)[1:]:  # exactly: True is an int, too
        if type(getattr(experiment, part.name)) is not part.type:
            raise InputError(f'{part.name}: expected {part.type.__name__}')
    if experiment.seeds < 1:
        raise InputError(f'seeds {experiment.seeds!r}: expected a whole number of at least 1')
    if experiment.kind not in KINDS:
        raise InputError(f'kind {experiment.kind!r}: expected one of {", ".join(KINDS)}')
    for part, kind in ('claims', dict), ('commands', str):
        if not all(isinstance(item, kind) for item in getattr(experiment, part)):
            raise InputError(f'{part}: expected a list of {kind.__name__}')
    return experiment


def _flags(merged: dict, row: str) -> dict:
    """The flags among a row's entries; one that is null is not given."""
    flags = {}
    for name, value in merged.items():
        if name in ('paper', 'group', 'metric') or value is None:
            continue
        if not isinstance(name, str) or not isinstance(value, (str, int, float)):
            raise InputError(
                f'{row!r}: {name}: {value!r}: expected a flag without dashes and one value'
            )
        flags[name] = value
    if flags.keys() & set(_OF_SWEEPS) or not {'model', 'dataset'} <= set(flags):
        raise InputError(
            f'{row!r}: expected a model and a dataset, and none of {", ".join(_OF_SWEEPS)}'
        )
    return flags


def _paper(values, columns: list, row: str) -> dict:
    """column -> (mean, standard deviation or None), or None."""
    paper = dict.fromkeys(columns)
    for column, text in zip(columns, values or [], strict=bool(values)):
        match = _VALUE.fullmatch(str(text))
        if match:
            paper[column] = float(match[1]), match[2] and float(match[2])
        elif text is not None:
            raise InputError(f'{row!r}: paper: {text!r}: expected a mean, or mean ± deviation')
    return paper


def results_rows(base_path, results_path='results/') -> list:
    """Rows, as text, of the results files below a folder that have accuracies among all classes."""
    # tasks that bring classes, tasks that bring domains, no tasks
    settings = 'class-il', 'domain-il', 'general-continual'
    folders = [Path(base_path) / results_path / setting for setting in settings]
    return [
        row for folder in folders for path in sorted(folder.rglob(FILE)) for row in read_rows(path)
    ]


def cell_rows(folder: Path, name: str) -> dict:
    """(row, column) -> committed rows of an experiment; empty where there is no file."""
    by_cell = {}
    path = folder / f'{name}.csv'
    with read_errors(path):
        for row in read_rows(path):
            for metric in METRICS:
                float(row.get(metric) or 0)
            by_cell.setdefault((row['row'], row['column']), []).append(row)
    return by_cell


def matching_rows(cell: Cell, rows: list) -> list:
    """The rows that are runs of a cell, in order of their seeds: of several with one seed, the
    newest. A row is a run of a cell if its key has what the cell's command has today, schedule,
    flags and defaults alike; of `--precision auto` any machine's count, whatever it makes of it. A
    flag that the key lacks, since there was none, had the default that it is declared with; of
    flags that are gone none may have been asked for. A command that `main.py` refuses has no
    rows."""
    rows = [row for row in rows if row.get('run_key')]
    today = arguments(cell)[0] if rows else None
    newest = {
        row.get('seed'): row
        for row in sorted(rows, key=lambda row: row.get('finished', ''))
        if today and _has_arguments(row, today, cell)
    }
    return sorted(newest.values(), key=lambda row: int(row.get('seed') or 0))


@functools.cache
def arguments(cell: Cell) -> tuple:
    """(the `Arguments` of a cell's command, or None if `main.py` refuses it; why, in one line, or
    '')."""
    from bench.cli.parsing import parse_args

    try:
        return parse_args(cell.command(0)), ''
    except InputError as error:
        return None, ' '.join(str(error).split())


def identity(cell: Cell, args) -> dict:
    """Flag -> text, of those that make a run differ from others, or a cell's number, and
    `schedule`; no seed."""
    key = args.key
    values = key['given'] | key['default'] | {'schedule': key['schedule']}
    values |= _apart_from_key(cell, args, vars(args))
    return {name: text for name, text in values.items() if name != 'model_config'}


def _apart_from_key(cell: Cell, args, values: dict) -> dict:
    """Flag -> text, of those that keys lack since they only record more: where the cell gives them,
    and when a method fits, where tasks on the way count. values: of a run."""
    on_the_way = cell.metric == METRICS[-1]
    return {
        name: text_of(values.get(name, args.declared[name]))
        for name, kind in args.affects.items()
        if kind == 'record'
        and (name in args.given or (on_the_way and name.endswith('_every_task')))
    }


def _has_arguments(row: dict, today, cell: Cell) -> bool:
    key = read_key(row['run_key'])
    values = key['given'] | key['default'] | {'schedule': key.get('schedule', '')}
    values |= _apart_from_key(cell, today, row)
    asked = identity(cell, today) | {'adapt_select': 'none'}
    absent = today.declared | _BEFORE
    decided = {'precision'}  # by the machine, for `auto`
    if cell.flags.get('precision') != 'auto':
        decided -= today.given | key['given'].keys()
    return vars(today).keys() >= key['given'].keys() - {'adapt_select'} and all(
        same_value(value, values.get(name, text_of(absent.get(name, value))))
        for name, value in asked.items()
        if name not in decided
    )


def same_value(value, text: str) -> bool:
    """Return whether a flag's value is a file's text: numbers as numbers, on and off in any way,
    nothing as '', a path by its name where the text, of a committed row, has no folder."""
    value = text_of(value)
    named = os.sep in value and Path(value).stem == text
    return named or _plain(value) == _plain(text)


def _plain(text: str):
    text = {'True': '1', 'False': '0', 'None': ''}.get(text, text)
    try:
        return float(text)
    except ValueError:
        return text
