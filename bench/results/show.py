"""Print chosen columns of a results file as a Markdown table; digests are shortened.

    python scripts/show.py data/results/class-il/seq-cifar100/scroll/mean_accs.csv schedule online_digest
"""

import pandas as pd

from core.arguments import ArgumentParser
from scroll.archive import open_file
from scroll.errors import InputError


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file')
    parser.add_argument('columns', nargs='+')
    parser.add_argument('--where', nargs='*', default=[], metavar='COLUMN=VALUE',
                        help='only rows with these values')
    options = parser.parse_args()
    try:
        with open_file(options.file) as file:
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f'{options.file} cannot be read: {error}') from error
    conditions = [condition.partition('=')[::2] for condition in options.where]
    unknown = [name for name in (*options.columns, *dict(conditions)) if name not in table.columns]
    if unknown:
        raise InputError(f'{options.file} has no column {unknown[0]}; it has {", ".join(table.columns)}')
    for column, value in conditions:
        table = table[table[column] == value]
    table = table[options.columns].map(lambda cell: cell[:8] if len(cell) == 64 else cell)
    print(f"| {' | '.join(options.columns)} |\n|{'---|' * len(options.columns)}")
    for row in table.itertuples(index=False):
        print(f"| {' | '.join(row)} |")
