"""The tables and the picture of README.md and docs/, from committed rows: no number is written by hand.

    python scripts/documents.py                         # after scripts/report.py; both are `make tables`
    python scripts/documents.py --certificates data/certificates/seq-digits/*/certificate-*.json

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; `TABLES` of
`bench.paper.page_tables` has the names.
`--certificates` first puts the accuracies of these certificates, which are of one data set, into
`results/clouds/<dataset>.csv`, a row a schedule; the picture is of those of the digits.
"""
import csv
import io
import re
from pathlib import Path

from bench.paper.page_tables import TABLES, cloud_rows
from bench.paper.report import write
from bench.results import plots
from core.arguments import ArgumentParser
from core.plugins import ROOT
from scroll.archive import read_json
from scroll.errors import InputError

_BLOCK = re.compile(r'(?<=<!-- table: )(\S+)( -->\n\n).*?(?=<!-- end of table -->)', re.S)
_CLOUD = ('model', 'schedule', 'schedule_digest', 'final_accuracy', 'outcome')


def take_in(paths: list, folder: Path) -> Path:
    """Put the accuracies of certificates of one data set into a CSV file of `folder`, in place of those of
    the same methods.
    """
    rows = {}
    for path in paths:
        try:
            certificate = read_json(path)
            inputs = certificate['inputs']
            mine = [[inputs['model'], row['spec'], row['schedule_digest'], row['final_accuracy'],
                     row['outcome']]
                    for row in certificate['schedules']]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f'{path}: expected a certificate of scripts/certify.py '
                             f'({type(error).__name__})') from error
        rows.setdefault(inputs['dataset'], {})[inputs['model']] = mine
    if len(rows) != 1:
        raise InputError(f'--certificates: of {", ".join(sorted(rows)) or "no data set"}: expected those of '
                         'one data set')
    dataset, fresh = rows.popitem()
    path, kept = folder / f'{dataset}.csv', {}
    if path.is_file():
        kept = {model: [[row[name] for name in _CLOUD] for row in old]
                for model, old in cloud_rows(path).items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(_CLOUD)
    writer.writerows(row for _, mine in sorted((kept | fresh).items()) for row in mine)
    write(path, text.getvalue())
    return path


def update(root: Path, paths: list) -> list:
    """Make the tables of these Markdown files anew; returns the files that changed.

    Raises:
        InputError: a table is named that is not in `TABLES`.
    """
    changed = []
    for path in paths:
        def renewed(found, path=path):
            if found[1] not in TABLES:
                raise InputError(f'{path}: table {found[1]}: expected one of {", ".join(TABLES)}')
            return found[1] + found[2] + '\n'.join(TABLES[found[1]](root)) + '\n\n'
        text = path.read_text(encoding='utf-8')
        if (new := _BLOCK.sub(renewed, text)) != text:
            write(path, new)
            changed.append(path)
    return changed


def documents(root: Path) -> list:
    """README.md and the pages of docs/."""
    return [root / 'README.md', *sorted((root / 'docs').rglob('*.md'))]


def draw(root: Path) -> list:
    """The picture: the digits under many schedules."""
    digits = {model: [float(row['final_accuracy']) for row in rows]
              for model, rows in cloud_rows(root / 'results/clouds/seq-digits.csv').items()}
    return [plots.cloud(root / 'docs/figures/schedules.png', digits,
                        'The same data, many schedules (handwritten digits)')]


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--certificates', nargs='+', type=Path, default=[], metavar='certificate-<id>.json',
                        help='first take in the accuracies of these')
    options = parser.parse_args()
    if options.certificates:
        print(take_in(options.certificates, ROOT / 'results/clouds'))
    for path in (*draw(ROOT), *update(ROOT, documents(ROOT))):
        print(path)
