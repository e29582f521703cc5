"""The runs of an unfinished certificate, on disk."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from core.rows import read_rows
from scroll.ground.archive import alone, atomic_write, read_errors, write_errors, write_text
from scroll.ground.grid import little_endian


class Store:
    """A line of JSON for each schedule that has been run in `runs.jsonl`; weights and predictions
    in files named by their digest (`outcomes/` may be deleted: the schedules are then run
    again)."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / 'runs.jsonl'
        self.rows = {}
        with write_errors(folder, '--out'):
            (folder / 'outcomes').mkdir(parents=True, exist_ok=True)
            self.path.touch()
        for line in self.path.read_text(errors='replace').splitlines():
            with suppress(ValueError, KeyError, TypeError):  # killed while it wrote this line
                kept = json.loads(line)
                self.rows[kept['key']] = kept['row']

    def find(self, key: str):
        """The row of a schedule that has been run, or None."""
        row = self.rows.get(key)
        return row if row and self.outcome(row['outcome']) else None

    def add(self, key: str, row: dict, weights, predictions) -> dict:
        """Keep a row, its weights (P,) and its predictions (N,); returns the row with the digest of
        these.
        """
        content = (little_endian(array).tobytes() for array in (weights, predictions))
        digest = hashlib.sha256(b'/'.join(content)).hexdigest()
        if self.outcome(digest) is None:
            with atomic_write(self._file(digest)) as file:
                np.savez(file, weights=weights, predictions=predictions)
        self.rows[key] = {**row, 'outcome': digest}
        with open(self.path, 'a') as file:
            # behind what was cut off
            file.write('\n' + json.dumps({'key': key, 'row': self.rows[key]}))
        return self.rows[key]

    def outcome(self, digest: str):
        """(weights, predictions), or None if the file is gone or damaged."""
        try:
            with np.load(self._file(digest), allow_pickle=False) as file:
                return file['weights'], file['predictions']
        except Exception:  # noqa: BLE001  damaged archives raise almost anything
            return None

    def _file(self, digest: str) -> Path:
        return self.folder / 'outcomes' / f'{digest[:32]}.npz'


def keep_rows(path: Path, columns, model: str, rows: list) -> None:
    """Put a method's rows into a CSV file in place of its earlier ones. InputError if it
    cannot be written."""
    with alone(path), read_errors(path):  # of several methods at once none loses its rows
        kept = [row for row in read_rows(path) if row['model'] != model]
        kept += [{**row, 'model': model} for row in rows]
        kept.sort(key=lambda row: row['model'])
        table = pd.DataFrame(kept, columns=list(columns), dtype=object)
        write_text(path, table.to_csv(index=False, lineterminator='\n'))


def single(digests) -> str:
    """The digest, if all are the same, but for those that are None; else how many there are."""
    distinct = {*digests} - {None}
    return distinct.pop() if len(distinct) == 1 else f'{len(distinct)} different digests'
