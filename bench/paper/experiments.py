"""The tables and figures of the paper as data: what `experiments/*.yaml` say.

A file reads like its table. `flags` go to every run; a column and a row are named sets of flags; a row's
`paper` holds what the paper reports for it, percent, in the order of the columns:

    title: ...                      # heading
    source: tab:main_comp           # label in the paper; an experiment of one's own has none, nor `paper`
    seeds: 5
    flags: {model_config: best}
    columns:
      'CIFAR-10, |M| = 200': {dataset: seq-cifar10, buffer_size: 200}       # 'upper heading, lower heading'
    rows:
      ER: {group: offline, model: er, paper: [67.9 ± 1.1]}                  # null or no list: no value
      joint: {model: joint, buffer_size: null, paper: {CIFAR-10: 94.2 ± 1.6}}   # one for all columns below
    cells: {ER: {'CIFAR-10, |M| = 200': {lr: 0.1}}}                         # flags of single cells
    claims: [...]                   # what the paper's text says, for scripts/claims.py

`like: table_1_cifar` begins with all that the other file says, flags, columns and rows name by name; claims
about it are then claims about this one, and claims of its own stand for the other's one by one. A row or a
claim of the other's for which it says null is left out.

In columns and rows null takes a flag away, `metric` is no flag, but the column of the results file to show,
and `group` a heading of rows. What other commands make has `commands` in the place of columns and rows.
Nothing here imports torch.
"""
import re
from dataclasses import dataclass, field, fields
from pathlib import Path

from core.configs import read_yaml
from core.plugins import ROOT
from core.rows import FILE, read_rows
from scroll.errors import InputError

FOLDER = ROOT / 'experiments'
KINDS = ('table', 'figure')
METRICS = ('final_accuracy', 'online_accuracy', 'adapted_accuracy', 'anytime_accuracy')
SETTINGS = ('class-il', 'general-continual')  # of tasks that bring classes, and of streams without tasks
_VALUE = re.compile(r'(\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?')


@dataclass(frozen=True)
class Cell:
    """One cell of a table, or one point of a figure.

    flags: name without dashes -> value. paper: (mean, standard deviation or None), percent, or None. metric:
    column of the results file.
    """
    row: str
    column: str
    flags: dict = field(hash=False)
    paper: tuple
    metric: str = 'final_accuracy'

    def command(self, seed: int, extra: dict = {}) -> list:       # noqa: B006  never changed
        """The words after `python`; `extra` flags are added, or replace those of the cell."""
        flags = {**self.flags, **extra, 'seed': seed}
        return ['main.py', *(word for name, value in flags.items() for word in (f'--{name}', _text(value)))]


@dataclass(frozen=True)
class Experiment:
    """A table or figure; `path`: its file; `groups`: row -> heading; `x`: the horizontal axis of a figure;
    `like`: the name of the one that it is like.

    The rest is as in its file.
    """
    path: Path
    title: str
    kind: str
    source: str
    seeds: int
    rows: list
    columns: list
    cells: list
    claims: list
    about: str = ''
    groups: dict = field(default_factory=dict)
    commands: list = field(default_factory=list)
    values: dict = field(default_factory=dict)
    x: str = ''
    like: str = ''

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def of_the_paper(self) -> bool:
        """Whether the paper has it: values of cells or flags, or, where other commands make it, its label."""
        return bool(any(cell.paper for cell in self.cells) or self.values or self.source and not self.cells)

    def cell(self, row: str, column: str) -> Cell:
        """The cell of a row and a column."""
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))


def experiment_files() -> list:
    """All files, figures before tables, by their number in the paper."""
    return sorted(FOLDER.glob('*.yaml'))


def load(path) -> Experiment:
    """Read an experiment; InputError, in one line, for anything that is wrong in its file."""
    path = Path(path)
    if not path.is_file():
        have = ', '.join(p.stem for p in experiment_files())
        raise InputError(f'{path}: no such experiment; experiments/ has: {have}')
    try:
        return _experiment(path, _whole(path))
    except InputError as error:
        raise InputError(f'{path}: {error}') from error


def _expect(holds, text: str) -> None:
    if not holds:
        raise InputError(text)


def _whole(path: Path) -> dict:
    """What a file says, merged into what the one it is like says."""
    content = read_yaml(path)
    if 'like' not in content:
        return content
    other = path.with_name(f"{content['like']}.yaml")
    base = read_yaml(other) if other.is_file() else {'like': None}
    _expect('like' not in base, f"like: {content['like']!r}: expected the name of a file in the same folder "
                                'that is like no other')
    for key in ('columns', 'rows'):
        ours, theirs = _mapping(content.get(key), key, null=key == 'rows'), _mapping(base.get(key), key)
        for name in ours:
            _expect(name in theirs, f'{key}: {name!r}: {other.name} has none of that name')
        content[key] = {name: {**spec, **ours.get(name, {})} for name, spec in theirs.items()
                        if ours.get(name, {}) is not None}
    content['flags'] = {**(base.get('flags') or {}), **(content.get('flags') or {})}
    cells = {row: cell for row, cell in (base.get('cells') or {}).items() if row in content['rows']}
    return {**base, 'cells': cells, **content}


def _experiment(path: Path, content: dict) -> Experiment:
    known = {'columns', 'rows', 'cells', 'flags', *(f.name for f in fields(Experiment))} - {'path', 'groups'}
    for name in content:
        _expect(name in known, f'unknown key {name!r}; expected some of: {", ".join(sorted(known))}')
    of = dict(kind='table', source='', seeds=1) | content
    for key in ('title', 'source'):
        _expect(isinstance(of.get(key), str), f'{key}: expected a text, found {of.get(key)!r}')
    _expect(of['kind'] in KINDS, f'kind {of["kind"]!r}: expected one of {", ".join(KINDS)}')
    _expect(type(of['seeds']) is int and of['seeds'] >= 1,
            f'seeds {of["seeds"]!r}: expected a whole number of at least 1')
    columns, rows = (_mapping(of.get(key), key) for key in ('columns', 'rows'))
    _expect(columns and rows or of.get('commands'), 'expected columns and rows, or commands')
    for key in ('claims', 'commands'):
        of[key] = of.get(key) or []
        _expect(isinstance(of[key], list), f'{key}: expected a list, found {of[key]!r}')
        _expect(None not in of[key] or 'like' in of,
                f'{key}: null leaves out what another file says; this one is like no other')
    of |= dict(values=_mapping(of.get('values'), 'values'), columns=list(columns), rows=list(rows),
               cells=_cells(of, columns, rows),
               groups={row: spec.get('group', '') for row, spec in rows.items()})
    experiment = Experiment(path, **{name: value for name, value in of.items() if name != 'flags'})
    _expect(experiment.source or not experiment.of_the_paper,
            'source: expected the label in the paper, since there are values of the paper')
    return experiment


def _mapping(value, what: str, null: bool = False) -> dict:
    """A mapping of mappings, and where `null` of nulls; nothing is an empty one."""
    value = {} if value is None else value
    _expect(isinstance(value, dict), f'{what}: expected a mapping, found {value!r}')
    for name, entry in value.items():
        _expect(isinstance(name, str) and (isinstance(entry, dict) or null and entry is None),
                f'{what}: {name!r}: expected a name with a mapping, found {entry!r}')
    return value


def _cells(content: dict, columns: dict, rows: dict) -> list:
    special, cells = _mapping(content.get('cells'), 'cells'), []
    for row, by_column in special.items():
        for column, flags in by_column.items():
            _expect(row in rows and column in columns and isinstance(flags, dict),
                    f'cells: {row!r}, {column!r}: expected a row, a column and flags')
    for row, spec in rows.items():
        paper = _paper(spec.get('paper'), list(columns), row)
        for column, of_column in columns.items():
            merged = {**(content.get('flags') or {}), **of_column, **spec,
                      **special.get(row, {}).get(column, {})}
            metric = merged.get('metric', METRICS[0])
            _expect(metric in METRICS, f'{row!r}: metric {metric!r}: expected one of {", ".join(METRICS)}')
            cells.append(Cell(row, column, _flags(merged, row), paper[column], metric))
    return cells


def _flags(merged: dict, row: str) -> dict:
    """The flags among a row's entries; one that is null is not given."""
    flags = {name: value for name, value in merged.items() if name not in ('paper', 'group', 'metric')
             and value is not None}
    for name, value in flags.items():
        _expect(re.fullmatch(r'[a-z]\w*', str(name)) and isinstance(value, (str, int, float)),
                f'{row!r}: {name}: {value!r}: expected a flag without dashes and one value')
    for name in ('model', 'dataset'):
        _expect(name in flags, f'{row!r}: no {name}')
    return flags


def _paper(given, columns: list, row: str) -> dict:
    """column -> (mean, standard deviation or None), or None."""
    if isinstance(given, dict):
        for heading in given:
            _expect(heading in map(upper, columns), f'{row!r}: paper: no column is headed {heading!r}')
        given = [given.get(upper(column)) for column in columns]
    given = [None] * len(columns) if given is None else given
    _expect(isinstance(given, list) and len(given) == len(columns),
            f'{row!r}: paper: expected {len(columns)} values, one for each column, found {given!r}')
    found = [None if text is None else _VALUE.fullmatch(str(text)) for text in given]
    for text, match in zip(given, found):
        _expect(text is None or match, f'{row!r}: paper: {text!r}: expected a mean, or mean ± deviation')
    return {column: match and (float(match[1]), None if match[2] is None else float(match[2]))
            for column, match in zip(columns, found)}


def upper(column: str) -> str:
    """'CIFAR-10 5-split, |M| = 200' -> 'CIFAR-10 5-split'."""
    return column.split(', ')[0]


def lower(column: str) -> str:
    """'CIFAR-10 5-split, |M| = 200' -> '|M| = 200'; empty where there is one heading only."""
    return ', '.join(column.split(', ')[1:])


def results_rows(base_path, results_path='results/') -> list:
    """All rows of all results files below it that have accuracies among all classes, text values."""
    folders = [Path(base_path) / results_path / setting for setting in SETTINGS]
    return [row for folder in folders for path in sorted(folder.rglob(FILE)) for row in read_rows(path)]


def _text(value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
