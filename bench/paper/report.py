"""Tables and figures from our own rows, compared with the paper's values; what our rows say of its
claims.

    python scripts/report.py                                            # all that have rows (`make tables`)
    python scripts/report.py experiments/table_1_cifar.yaml --collect   # first take in rows of data/results
    python scripts/report.py ~/mine.yaml --collect --out mine           # an experiment of one's own

`results/rows/<experiment>.csv` has a row for each cell and seed, with accuracies, digests,
arguments,
seconds, commit and versions; `--collect` adds those that fit a cell, the newest for each seed. Rows
that a cell's command made when its defaults were others stay until there are some of today's. From
these come
`results/tables/<experiment>.md`, `.png` and `.svg`, and the index `results/README.md`.
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
from bench.results.keys import as_text, read_key
from core.arguments import ArgumentParser
from core.configs import chosen_by
from scroll.ground.archive import atomic_write, write_errors
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
_LEFT_OUT = re.compile(r'host|run|task\d+|accuracy_per_task|future_.*|test_accuracy.*')


def _committed(row: dict, args) -> dict:
    """A row without what is of this machine or of this one run."""

    def without_paths(values):
        return {
            name: Path(value).stem
            if args.affects.get(name) == 'content' and os.sep in value
            else value
            for name, value in values.items()
        }

    kept = {
        name: value
        for name, value in row.items()
        if value not in ('', None)
        and not _LEFT_OUT.fullmatch(name)
        and args.affects.get(name) not in ('place', 'display')
    }
    key = read_key(row['run_key'])
    key |= {part: without_paths(key[part]) for part in ('given', 'default')}
    return without_paths(kept) | {'run_key': as_text(key)}


def write(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with write_errors(path, '--out:'), atomic_write(path) as file:
        file.write(text.encode())


class Report:
    """What is below one `--out`: committed rows, and the pages made from them. paths: of
    experiments, in addition to those of experiments/; InputError if one has the name of another."""

    def __init__(self, out: Path, paths: list):
        self.out, self.files = out, {path.stem: path for path in experiment_files()}
        for path in paths:
            if load(path).name in self.files and not path.samefile(self.files[path.stem]):
                raise InputError(
                    f'{path}: another has this name, and rows are kept by name: rename one'
                )
            self.files[path.stem] = path
        self.get = functools.cache(
            lambda name: load(self.files.get(name, f'experiments/{name}.yaml'))
        )
        self.rows = functools.cache(lambda name: cell_rows(out / 'rows', name))
        self.findings = {}  # of each page: what the rows say of each claim

    def collect(self, name: str, pool: list) -> None:
        """Add to committed rows those of results files (`pool`); equal rows make equal files."""
        path, found = self.out / 'rows' / f'{name}.csv', []
        for cell in self.get(name).cells:
            mine = self.rows(name).get((cell.row, cell.column), [])
            today = matching_rows(cell, mine + pool)  # those of `pool` may know more
            mine = [
                _committed(row, arguments(cell)[0]) for row in today if row.get(cell.metric)
            ] or mine
            found += [{**row, 'row': cell.row, 'column': cell.column} for row in mine]
        self.rows.cache_clear()
        if not found:
            path.unlink(missing_ok=True)
            return
        table = pd.DataFrame(found)
        names = [name for name in _FIRST if name in table] + sorted(set(table) - set(_FIRST))
        write(path, table[names].to_csv(index=False, lineterminator='\n'))

    def chosen(self, name: str) -> dict:
        """How the values of the rows were chosen, as config files say, where several methods are
        run, and which rows have others than their command today: text -> names, with the columns
        where not all are alike."""
        experiment, runs, found = self.get(name), self.rows(name), {}
        cells = [cell for cell in experiment.cells if (cell.row, cell.column) in runs]
        several = len({cell.flags['model'] for cell in cells}) > 1
        for cell in cells:
            today, _ = arguments(cell)
            text = today and several and chosen_by(vars(today))
            if text and 'lr' in cell.flags:
                text = "given in the experiment's file"
            if today and not matching_rows(cell, runs[cell.row, cell.column]):
                text = 'made with earlier values than those of its command today'
            if text:
                found.setdefault(text, {}).setdefault(cell.row, []).append(cell.column)
        texts = Counter(row for rows in found.values() for row in rows)
        return {
            text: [
                row + f' ({"; ".join(columns)})' * (texts[row] > 1) for row, columns in rows.items()
            ]
            for text, rows in found.items()
        }

    def page(self, name: str) -> str:
        """Write an experiment's files; returns its line of the index, empty where nothing is to be
        shown. A figure is drawn when all of its cells have rows."""

        def runs_of(other, cell):
            return self.rows(other).get((cell.row, cell.column), [])

        experiment, runs = self.get(name), self.rows(name)
        findings = [
            claims.judge(claim, experiment, self.get, runs_of) for claim in experiment.claims
        ]
        self.findings[name] = findings
        folder = self.out / 'tables'
        picture = folder / f'{name}.png'
        if experiment.kind == 'figure' and 0 < len(experiment.cells) == len(runs):
            tables.figure(picture, experiment, runs)
        if not (runs or picture.is_file() or experiment.values):
            return ''
        about = facts(experiment, [row for rows in runs.values() for row in rows])
        text = tables.markdown(experiment, runs, findings, about, self.chosen(name))
        text += f'\n![{experiment.title}]({picture.name})\n' if picture.is_file() else ''
        write(folder / f'{name}.md', text)
        verdicts = [finding.verdict for finding in findings]
        counts = [f'{verdicts.count(what)} {what}' for what in claims.VERDICTS if what in verdicts]
        filled = f'{len(runs)} of {len(experiment.cells)}' if experiment.cells else ''
        return tables.md_row(
            [f'[{name}](tables/{name}.md)', experiment.title, filled, ', '.join(counts)]
        )

    def write(self) -> list:
        """All pages and their index; returns the pages' names."""
        lines = {name: line for name in self.files if (line := self.page(name))}
        of_the_paper = [name for name in lines if self.get(name).source]
        own = [line for name, line in lines.items() if name not in of_the_paper]
        index = [
            '# Tables and figures of the paper, from our own runs',
            '',
            (
                'Made by `make tables` (`scripts/report.py`) from `rows/`; what each cell is run with is in '
                '`experiments/`, and'
            ),
            '`scripts/tables.sh NAME` runs it all.',
            '',
            '| | what | cells with rows | claims of the paper |',
            '|---|---|---|---|',
            *map(lines.get, of_the_paper),
            *self._each_claim(of_the_paper),
        ]
        if own:
            index += [
                '',
                '## Other experiments',
                '',
                'Made by `scripts/report.py` from `rows/` and the experiment files.',
                '',
                '| | what | cells with rows | claims |',
                '|---|---|---|---|',
                *own,
            ]
        write(self.out / 'README.md', '\n'.join(index) + '\n')
        return list(lines)

    def _each_claim(self, names: list) -> list:
        """Lines of the index: each claim of the paper, and what our rows say of it."""
        found = [(name, finding) for name in names for finding in self.findings[name]]
        decided = sum(
            finding.verdict in (claims.SUPPORTED, claims.CONTRADICTED) for _, finding in found
        )
        lines = [
            tables.md_row([finding.says, f'[{name}](tables/{name}.md): {finding.verdict}'])
            for name, finding in found
        ]
        return (
            [
                '',
                '## Each claim of the paper',
                '',
                f'{len(found)} claims; our rows decide {decided}.',
                '',
                '| claim | our rows |',
                '|---|---|',
                *lines,
            ]
            if found
            else []
        )


def facts(experiment, rows: list) -> list:
    """Where it comes from: lines of Markdown."""
    source = f'`{experiment.source}` of the paper; made by ' if experiment.source else 'Made by '
    script, file = f'tables.sh {experiment.name}', f'experiments/{experiment.path.name}'
    if experiment.path.resolve() not in experiment_files():
        script, file = 'sweep.py', experiment.path.name
    lines = [f'{source}`scripts/{script}`, which runs what `{file}` says.']
    if not rows:
        return lines

    def values(name: str, length: int, rows=rows) -> str:
        return ', '.join(sorted({row[name][:length] for row in rows if row.get(name)}))

    backbones = []
    for name in sorted({row.get('weights', '') for row in rows}):
        digests = values('psi_digest', 8, [row for row in rows if row.get('weights', '') == name])
        backbones.append(f'{name} ({digests})' if digests else name)
    devices = ', '.join(sorted({re.sub(r':\d+$', '', row.get('device') or 'cpu') for row in rows}))
    networks = values(
        'embedding_digest', 8, [row for row in rows if row.get('embed_dtype') == 'integer']
    )
    in_integers = f'; in integers: {networks}' if networks else ''
    return [
        *lines,
        '',
        (
            f'Backbone: {", ".join(backbones)}{in_integers}; hardware: {devices}; '
            f'torch {values("torch", 20)}; commits {values("git_commit", 8)}; '
            f'seeds planned: {experiment.seeds}.'
        ),
    ]


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
    made = report.write()
    for path in paths:
        if path.stem in made:
            print(options.out / 'tables' / f'{path.stem}.md')
        elif options.experiments:
            print(
                f'{path}: no rows: scripts/sweep.py makes them, --collect takes them in',
                file=sys.stderr,
            )
