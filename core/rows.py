"""Results files: a CSV row for each finished run, whatever its number of tasks, safe under parallel
writers.

`<base_path>/<results_path>/<setting>/<dataset>/<model>/mean_accs.csv`, with Mammoth's historic
leading columns `task1..taskT, forward_transfer, backward_transfer, forgetting`. A writer holds a
lock, and replaces the file by one with its row added: readers see whole files only, and a writer
that is killed loses its own row only.
"""

import csv
import io
import re
import tempfile
from pathlib import Path

from scroll.ground.archive import alone, atomic_write, open_file, write_errors
from scroll.ground.errors import InputError

FILE = 'mean_accs.csv'
csv.field_size_limit(2**31 - 1)  # a curve may be longer than csv expects
LEADING = ('forward_transfer', 'backward_transfer', 'forgetting')


def check_writable(folder: Path) -> None:
    """Make sure, before any work, that a results folder can be written, and its file take a row."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        read_rows(folder / FILE)
    except OSError as error:
        raise InputError(
            f'results cannot be written to {error.filename or folder} ({error.strerror}): '
            'choose another --base_path or --results_path, or --disable_log 1'
        ) from error


def append_row(folder: Path, row: dict, name: str = FILE) -> Path:
    """Add the row of a run, unless it is there; returns the file. None becomes an empty cell."""
    path = folder / name
    with alone(path):
        rows = read_rows(path)
        if 'run' in row and any(known.get('run') == str(row['run']) for known in rows):
            return path  # written just before the run was interrupted
        rows.append({name: '' if value is None else str(value) for name, value in row.items()})
        with write_errors(path), atomic_write(path) as file:
            file.write(_as_text(rows))
    return path


def read_rows(path: Path) -> list:
    """All rows as dicts of text; none where there is no file. InputError if it is not a results
    file.
    """
    if not path.exists():
        return []
    try:
        with open_file(path) as file:
            text = io.TextIOWrapper(file, 'utf-8-sig', newline='')
            reader = csv.DictReader(text, restval='', strict=True)
            columns = reader.fieldnames or []
            rows = list(reader)
        if len(set(columns)) < len(columns) or any(None in row for row in rows):
            raise csv.Error('columns of one name, or cells without a column')
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'{path} is not a results file ({error}): move it away') from error
    return rows


def column_order(names) -> list:
    """task1, task2, ..., the historic three, then the others as they first appear."""
    tasks = sorted(
        (name for name in names if re.fullmatch(r'task\d+', name)), key=lambda name: int(name[4:])
    )
    return list(dict.fromkeys([*tasks, *(name for name in LEADING if name in names), *names]))


def _as_text(rows: list) -> bytes:
    text = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, column_order(names), restval='')
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode('utf-8', 'backslashreplace')
