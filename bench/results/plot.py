"""Picture of complete runs in results files: accuracy at the end and after tasks, forgetting.

With `--by` also accuracy against a column.

python scripts/plot.py data/results/class-il/seq-digits/*/mean_accs.csv --by lr
"""

from pathlib import Path

import pandas as pd

from bench.results import plots
from core.arguments import ArgumentParser
from core.rows import read_rows
from scroll.ground.errors import InputError

_BY = ['model', 'dataset', 'setting', 'schedule', 'weights', 'buffer_size']


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag('rows', nargs='+', type=Path, help='results files')
    flag('--by', nargs='+', default=[], help=f'columns of groups; also by {", ".join(_BY)}')
    flag('--against', default='buffer_size', help='column, x of the last panel')
    flag('--out', type=Path, default=Path('rows.png'), help='draw it, and its .svg')
    options = parser.parse_args()
    plots.check_out(options.out)
    for path in options.rows:
        read_rows(path)  # or says what is wrong with it
    try:
        runs = pd.concat(map(pd.read_csv, options.rows), ignore_index=True)
        rows = runs[runs.complete != 0] if 'complete' in runs else runs
        print(f'drawn: {len(rows)} of {len(runs)} runs, those that are complete')
        if rows.empty:
            raise ValueError('none is complete')
        columns = dict.fromkeys([*rows.columns.intersection(_BY), *options.by])
        by = rows[list(columns)].astype(str)
        print(plots.rows_picture(options.out, rows, by, options.against))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f'the rows cannot be drawn: {error}') from error
