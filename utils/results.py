"""Results files: one tidy CSV row per finished run, whatever its number of tasks, safe under parallel writers.

`<base_path>/<results_path>/<setting>/<dataset>/<model>/mean_accs.csv`, with Mammoth's historic leading columns `task1..taskT,
forward_transfer, backward_transfer, forgetting`. A row with new columns widens the file; nothing is lost. Each write makes a
new file beside the old one, under a lock, and renames it: a reader, or a writer that dies, never sees half a row.
"""
import csv
import io
import os
import re
from pathlib import Path

from filelock import FileLock

from utils.errors import UserError

FILE = 'mean_accs.csv'
_LEADING = ('forward_transfer', 'backward_transfer', 'forgetting')


def check_writable(folder: Path) -> None:
    """Make sure, before any work, that a results folder can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f'.{os.getpid()}.probe'
        probe.write_bytes(b'')
        probe.unlink()
    except OSError as error:
        raise UserError(f'results folder {folder} cannot be written ({error.strerror}): choose another --base_path or '
                        '--results_path, or --disable_log 1') from error


def append_row(folder: Path, row: dict) -> Path:
    """Add one run's row; returns the file. None becomes an empty cell."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(path) + '.lock'):
            rows = read_rows(path) if path.exists() else []
            rows.append({name: '' if value is None else str(value) for name, value in row.items()})
            _write(path, rows)
    except OSError as error:
        raise UserError(f'{path} cannot be written ({error.strerror}); the rows it held are as they were') from error
    return path


def read_rows(path: Path) -> list:
    """All rows as dicts of text."""
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def column_order(names) -> list:
    """task1, task2, ..., the historic three, then the others as they first appear."""
    tasks = sorted((name for name in names if re.fullmatch(r'task\d+', name)), key=lambda name: int(name[4:]))
    leading = [*tasks, *(name for name in _LEADING if name in names)]
    return leading + [name for name in names if name not in leading]


def _write(path: Path, rows: list) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, column_order(dict.fromkeys(name for row in rows for name in row)), restval='')
    writer.writeheader()
    writer.writerows(rows)
    side = path.with_suffix(f'.{os.getpid()}.part')
    try:
        with open(side, 'w', newline='', encoding='utf-8', errors='backslashreplace') as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(side, path)
    finally:
        side.unlink(missing_ok=True)
