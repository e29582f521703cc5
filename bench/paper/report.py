"""Tables and figures from our own rows, next to the values and the claims of the paper.

    python scripts/report.py                                    # all with rows (`make tables`)
    python scripts/report.py experiments/blurry.yaml --collect  # first take in rows of data/results
    python scripts/report.py ~/mine.yaml --collect --out mine   # an experiment of one's own

`results/rows/<experiment>.csv` has a row for each cell and seed, with accuracies, digests,
arguments, seconds, commit and versions; `--collect` adds those that fit a cell, the newest for each
seed. Rows that a cell's command made when its defaults were others stay until there are some of
today's. From these come `results/tables/<experiment>.md`, `.png` and `.svg`, and the index
`results/README.md`.
"""

import functools
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

from bench.paper import claims, tables
from bench.paper.experiments import (
    arguments,
    cell_rows,
    experiment_files,
    load,
    matching_rows,
    results_rows,
)
from bench.paper.grids import SPACES
from bench.results.keys import as_text, read_key
from core.arguments import ArgumentParser
from core.configs import chosen_by
from scroll.ground.archive import alone, read_errors, write_text
from scroll.ground.errors import InputError

_FIRST = (
    'row',
    'column',
    'seed',
    'final_accuracy',
    'online_accuracy',
    'adapted_accuracy',
    'average_incremental_accuracy',
)
_ORIGIN = [
    'weights',
    'psi_digest',
    'embedding_digest',
    'embed_dtype',
    'device',
    'torch',
    'git_commit',
    'permute_classes',
    'schedule',
]
_DRAWN = 'random|blurry|resample'  # schedules that draw an order of the classes
_LEFT_OUT = re.compile(
    r'host|run|setting|task\d+|accuracy_per_task|.*_matrix|future_.*|test_accuracy.*'
)
_INDEX = """# Tables and figures of the paper, from our own runs

Made by `make tables` (`scripts/report.py`) from `rows/`; what each cell is run with is \
in `experiments/`, and
`scripts/tables.sh NAME` runs it all.

| | what | cells with rows | claims of the paper |
|---|---|---|---|
"""
_OTHERS = """
## Other experiments

Made by `scripts/report.py` from `rows/` and the experiment files.

| | what | cells with rows | claims |
|---|---|---|---|
"""


def _committed(row: dict, args) -> dict:
    """A row without what is of this machine or of this one run."""

    def without_paths(values):
        return {
            name: Path(value).stem
            if args.affects.get(name) == 'content' and os.sep in value
            else value
            for name, value in values.items()
        }

    lasting = {
        name: value
        for name, value in row.items()
        if value not in ('', None)
        and not _LEFT_OUT.fullmatch(name)
        and args.affects.get(name) not in ('place', 'display', 'nothing')
    }
    key = read_key(row['run_key'])
    for part in ('given', 'default'):
        key[part] = without_paths(key[part])
    return without_paths(lasting) | {'run_key': as_text(key)}


class Report:
    """The files below one `--out`: committed rows, and the pages made from them.

    out: the folder. paths: of experiments, in addition to those of experiments/.

    InputError: two experiments have one name."""

    def __init__(self, out: Path, paths: list):
        self.out = out
        self.files = {path.stem: path for path in experiment_files()}
        for path in paths:
            load(path)
            if not path.samefile(self.files.setdefault(path.stem, path)):
                raise InputError(
                    f'{path}: another has this name, and rows are kept by name: rename one'
                )
        self.get = functools.cache(
            lambda name: load(self.files.get(name, f'experiments/{name}.yaml'))
        )
        self.rows = functools.cache(lambda name: cell_rows(out / 'rows', name))
        self.findings = {}  # of each page: what the rows say of each claim

    def collect(self, name: str, pool: list) -> None:
        """Add to committed rows those of results files (`pool`); equal rows make equal files."""
        path = self.out / 'rows' / f'{name}.csv'
        collected = []
        with alone(path):
            committed = cell_rows(path.parent, name)
            every = [row for rows in committed.values() for row in rows]
            for place, cell in self.get(name).cells.items():
                before = committed.get(place, [])  # none: of a row or column that has a new name
                today = matching_rows(cell, (before or every) + pool)  # `pool` may know more
                today = [
                    _committed(row, arguments(cell)[0]) for row in today if row.get(cell.metric)
                ]
                collected += [
                    {**row, 'row': cell.row, 'column': cell.column} for row in today or before
                ]
            if collected:
                table = pd.DataFrame(collected)
                first = [name for name in _FIRST if name in table]
                table = table[first + sorted(table.columns.difference(first))]
                write_text(path, table.to_csv(index=False, lineterminator='\n'))
        self.rows.cache_clear()

    def choices(self, name: str) -> dict:
        """Origins of the values of the rows, as config files say, and rows that have others than
        their command today: text -> names, with the columns where not all are alike."""
        experiment = self.get(name)
        runs = self.rows(name)
        columns = {}
        for place, cell in experiment.cells.items():
            if place not in runs:
                continue
            today, text = arguments(cell)
            if today:
                text = chosen_by(vars(today))
                given = ', '.join(sorted(cell.flags.keys() & set().union(*SPACES.values())))
                if given:
                    text = f"{text or 'defaults'}; {given} from the experiment's file"
                if not matching_rows(cell, runs[place]):
                    text = 'made with earlier values than those of its command today'
            if text:
                columns.setdefault(text, {}).setdefault(cell.row, []).append(cell.column)
        texts = Counter(row for rows in columns.values() for row in rows)
        return {
            text: [
                f'{row} ({"; ".join(some)})' if texts[row] > 1 else row
                for row, some in rows.items()
            ]
            for text, rows in columns.items()
        }

    def page(self, name: str) -> str:
        """Write an experiment's files; returns its line of the index, empty where nothing is to be
        shown. A figure is drawn when all of its cells have rows."""

        def runs_of(other, cell):
            return self.rows(other).get((cell.row, cell.column), [])

        experiment = self.get(name)
        runs = self.rows(name)
        with read_errors(experiment.path):
            findings = [
                claims.judge(claim, experiment, self.get, runs_of) for claim in experiment.claims
            ]
        self.findings[name] = findings
        folder = self.out / 'tables'
        picture = folder / f'{name}.png'
        if experiment.kind == 'figure' and 0 < len(experiment.cells) == len(runs):
            tables.figure(picture, experiment, runs)
        if experiment.kind == 'bars' and runs:
            tables.bars(picture, experiment, runs)
        if not (runs or picture.is_file() or experiment.table):
            return ''
        text = tables.markdown(
            experiment,
            runs,
            findings,
            origin(experiment, [row for rows in runs.values() for row in rows]),
            self.choices(name),
        )
        if picture.is_file():
            text += f'\n![{experiment.title}]({picture.name})\n'
        write_text(folder / f'{name}.md', text)
        verdicts = [finding.verdict for finding in findings]
        counts = [f'{verdicts.count(v)} {v}' for v in claims.VERDICTS if v in verdicts]
        link = f'[{name}](tables/{name}.md)'
        filled = f'{len(runs)} of {len(experiment.cells)}' if experiment.cells else ''
        return f'{tables.md_row([link, experiment.title, filled, ", ".join(counts)])}\n'

    def write(self) -> list:
        """Write all pages and their index; returns the pages' names."""
        lines = {name: line for name in self.files if (line := self.page(name))}
        papers = [name for name in lines if self.get(name).source]
        others = [line for name, line in lines.items() if name not in papers]
        findings = [(name, finding) for name in papers for finding in self.findings[name]]
        text = _INDEX + ''.join(lines[name] for name in papers)
        if findings:
            decided = (claims.SUPPORTED, claims.CONTRADICTED)
            count = sum(finding.verdict in decided for _, finding in findings)
            rows = [[f.says, f'[{name}](tables/{name}.md): {f.verdict}'] for name, f in findings]
            text += (
                f'\n## Each claim\n\n{len(rows)} claims, once for each table, of the paper unless '
                f'one says otherwise; our rows decide {count}. A pair of cells '
                'supports "above" if a one-sided t-test over their common seeds has p < 0.05, with '
                "the test samples' error counted. A claim is supported by all of its pairs, "
                'contradicted by one the other way (p < 0.05 / pairs), else undecided.\n\n'
                f'{tables.md_table(["claim", "our rows"], rows)}\n'
            )
        if others:
            text += _OTHERS + ''.join(others)
        write_text(self.out / 'README.md', text)
        return list(lines)


def origin(experiment, rows: list) -> str:
    """The command, backbones, machines and versions that a page's rows come from, as Markdown."""
    source = f'`{experiment.source}` of the paper; made by ' if experiment.source else 'Made by '
    script = f'tables.sh {experiment.name}'
    file = f'experiments/{experiment.path.name}'
    if experiment.path.resolve() not in experiment_files():
        script = 'sweep.py'
        file = experiment.path.name
    text = f'{source}`scripts/{script}`, which runs what `{file}` says.'
    if not rows:
        return text

    def values(texts) -> str:
        return ', '.join(sorted(set(texts) - {''}))

    table = pd.DataFrame(rows, columns=_ORIGIN, dtype=object).fillna('')
    backbones = []
    for name, column in table.groupby('weights').psi_digest:
        digests = values(column.str[:8])
        backbones.append(f'{name} ({digests})' if digests else name)
    networks = values(table.embedding_digest[table.embed_dtype == 'integer'].str[:8])
    in_integers = f'; in integers: {networks}' if networks else ''
    commits = table.git_commit.str[:8] + table.git_commit.str[40:]  # `+`: of changed files
    drawn = (table.permute_classes == 'True') | table.schedule.str.contains(_DRAWN)
    orders = drawn.map({True: 'one a seed', False: 'one for all seeds'})
    devices = table.device.replace('', 'cpu').str.partition(':')[0]
    return (
        f'{text}\n\nBackbone: {", ".join(backbones)}{in_integers}; '
        f'hardware: {values(devices)}; torch {values(table.torch)}; '
        f'commits {values(commits)}; seeds planned: {experiment.seeds}; '
        f'orders of the classes: {values(orders)}.'
    )


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        'experiments',
        nargs='*',
        type=Path,
        metavar='experiments/<name>.yaml',
        help='files, wherever they are (default: all of experiments/)',
    )
    parser.add_argument(
        '--collect', action='store_true', help='first take in the rows of results files'
    )
    parser.add_argument('--base_path', default='./data/', help='of the runs')
    parser.add_argument(
        '--out', type=Path, default=Path('results'), help='where rows and tables are kept'
    )
    options = parser.parse_args()
    paths = options.experiments or experiment_files()
    report = Report(options.out, paths)
    if options.collect:
        rows = results_rows(options.base_path)
        for path in paths:
            report.collect(path.stem, rows)
    names = report.write()
    for path in paths:
        if path.stem in names:
            print(options.out / 'tables' / f'{path.stem}.md')
        elif options.experiments:
            print(
                f'{path}: no rows: scripts/sweep.py makes them, --collect takes them in',
                file=sys.stderr,
            )
