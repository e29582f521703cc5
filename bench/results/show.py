"""Print chosen columns of a results file as a Markdown table; digests are shortened.

    python scripts/show.py data/results/class-il/seq-cifar100/scroll/mean_accs.csv schedule online_digest
"""
from core.arguments import ArgumentParser
from core.rows import read_rows
from scroll.errors import InputError


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file')
    parser.add_argument('columns', nargs='+')
    parser.add_argument('--where', nargs='*', default=[], metavar='COLUMN=VALUE',
                        help='only rows with these values')
    options = parser.parse_args()
    rows, conditions = read_rows(options.file), [text.partition('=')[::2] for text in options.where]
    known = list(rows[0]) if rows else []
    for name in (*options.columns, *dict(conditions)):
        if name not in known:
            raise InputError(f'{options.file} has no column {name}; it has {", ".join(known) or "no rows"}')
    print(f"| {' | '.join(options.columns)} |\n|{'---|' * len(options.columns)}")
    for row in rows:
        if all(row[name] == value for name, value in conditions):
            cells = [row[name][:8] if len(row[name]) == 64 else row[name] for name in options.columns]
            print(f"| {' | '.join(cells)} |")
