"""Results files: a tidy CSV row a finished run, whatever its number of tasks, safe under parallel writers.

`<base_path>/<results_path>/<setting>/<dataset>/<model>/mean_accs.csv`, with Mammoth's historic leading
columns `task1..taskT, forward_transfer, backward_transfer, forgetting`. Under a lock, which the system takes
from a writer that dies, a row is put behind the others. A row with new columns widens the file: a new one is
made beside it and renamed. What a killed writer leaves of a row is left out by readers, and moved to
`mean_accs.torn` by the next writer, who says so; other rows are never touched.
"""
import csv
import fcntl
import io
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path

from scroll.archive import atomic_write, open_file
from scroll.errors import InputError

FILE = 'mean_accs.csv'
_LEADING = ('forward_transfer', 'backward_transfer', 'forgetting')


def check_writable(folder: Path) -> None:
    """Make sure, before any work, that a results folder can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f'.{os.getpid()}.probe'
        with _locked(probe):
            probe.unlink()
        if (folder / FILE).exists():
            read_rows(folder / FILE)  # what is no results file cannot take a row
    except OSError as error:
        raise InputError(f'results cannot be written to {error.filename or folder} ({error.strerror}): '
                         'choose another --base_path or --results_path, or --disable_log 1') from error


def append_row(folder: Path, row: dict) -> Path:
    """Add one run's row, unless it is there; returns the file. None becomes an empty cell."""
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(Path(f'{path}.lock')):
            content = _mended(path)
            cells = {name: '' if value is None else str(value) for name, value in row.items()}
            columns = next(_records(path, content), [])
            if _has_run(path, content, cells.get('run')):
                return path  # written just before the run was interrupted
            if cells and columns and set(cells) <= set(columns):
                _append(path, _as_text(columns, [cells], header=False))
            else:
                _write(path, [*_dicts(path, content), cells])
    except OSError as error:
        raise InputError(f'{path} cannot be written ({error.strerror}); '
                         'the rows it held are as they were') from error
    _confirm(path)
    return path


def read_rows(path: Path) -> list:
    """All whole rows as dicts of text. InputError if it is no results file."""
    content = _content(path)
    return _dicts(path, content[:_whole(path, content)])


def _content(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read()


def column_order(names) -> list:
    """task1, task2, ..., the historic three, then the others as they first appear."""
    tasks = sorted((name for name in names if re.fullmatch(r'task\d+', name)), key=lambda name: int(name[4:]))
    leading = [*tasks, *(name for name in _LEADING if name in names)]
    return leading + [name for name in names if name not in leading]


@contextmanager
def _locked(path: Path):
    """Wait until no other process holds the lock, in the system's queue: who polls leaves it idle."""
    with open(path, 'ab') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _records(path: Path, content: bytes):
    """Yield the cells of each record, the header first."""
    try:
        yield from csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding='utf-8-sig', newline=''))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f'{path} is not a results file ({error}): move it away') from error


def _dicts(path: Path, content: bytes) -> list:
    columns, *records = _records(path, content) if content else [[]]
    if len(set(columns)) < len(columns) or any(len(record) > len(columns) for record in records):
        raise InputError(f'{path} is not a results file (columns of one name, or cells without a column): '
                         'move it away')
    return [dict(zip(columns, record + [''] * (len(columns) - len(record)))) for record in records if record]


def _has_run(path: Path, content: bytes, run: str) -> bool:
    return (bool(run) and run.encode() in content
            and any(row.get('run') == run for row in _dicts(path, content)))


def _whole(path: Path, content: bytes) -> int:
    """Length of the content without a torn last row: one that ends inside quotes, or without a line's end."""
    if content.endswith(b'\n') and _closed(content):
        return len(content)
    next(_records(path, content), [])
    lines = list(io.StringIO(content.decode('utf-8', 'surrogateescape'), newline=''))
    reader, starts = csv.reader(lines), [0]
    try:
        starts += [reader.line_num for _ in reader]
    except csv.Error as error:
        raise InputError(f'{path} is not a results file ({error}): move it away') from error
    last = lines[starts[-2] if len(starts) > 1 else 0:]
    try:
        list(csv.reader(last, strict=True))
        torn = not last[-1].endswith('\n')
    except (csv.Error, IndexError):
        torn = True
    return len(content) - torn * len(''.join(last).encode('utf-8', 'surrogateescape'))


def _closed(content: bytes) -> bool:
    """Whether quotes are where a writer puts them, around cells and doubled within, and all are closed."""
    first, *pieces = content.split(b'"')
    outside = [first, *pieces[1::2]]
    return (len(pieces) % 2 == 0 and all(piece[-1:] in b',\n' for piece in outside[:-1])
            and all(piece[:1] in b',\r\n' for piece in outside[1:]))


def _mended(path: Path) -> bytes:
    """The file's content, nothing if there is none; half a row at its end is moved away first."""
    content = _content(path) if path.exists() else b''
    whole = _whole(path, content) if content else 0
    if whole < len(content):
        _dicts(path, content[:whole])                               # what is no results file is left alone
        torn = path.with_suffix('.torn')
        with open(torn, 'ab') as file:
            file.write(content[whole:] + b'\n')
        os.truncate(path, whole)
        print(f'warning: the last row of {path} was not whole, its writer was killed: moved to {torn.name}',
              file=sys.stderr)
    return content[:whole]


def _append(path: Path, text: bytes) -> None:
    """All of it behind what is there, or nothing."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    size = os.fstat(file).st_size
    try:
        while text:
            text = text[os.write(file, text):]
    except BaseException:
        os.ftruncate(file, size)
        raise
    finally:
        os.close(file)


def _confirm(path: Path) -> None:
    """Wait until the disk has it; outside of the lock, so that many writers wait together."""
    try:
        with open(path, 'rb') as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f'{path} is written, but the disk does not confirm it ({error.strerror})') from error


def _as_text(columns: list, rows: list, header: bool = True) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval='')
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode('utf-8', 'backslashreplace')


def _write(path: Path, rows: list) -> None:
    """A new file in place of the old one, if any."""
    with atomic_write(path) as file:
        file.write(_as_text(column_order(dict.fromkeys(name for row in rows for name in row)), rows))
