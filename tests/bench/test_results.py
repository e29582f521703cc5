"""Results files: nothing lost, nothing torn, readable by anyone."""

import os
import subprocess
import sys
import time

import pandas
import pytest

from core.rows import FILE, append_row, check_writable, column_order, read_rows
from tests.conftest import ROOT, files_below, refused

AWKWARD = {
    'task1': 1.5,
    'notes': 'comma, "quote"\nnew line; \u00fcml\u00e4ut \u6f22 \U0001f600 \r tab\t',
    'forgetting': None,
    'empty': '',
}


def test_a_row_comes_back_as_written_and_none_is_an_empty_cell(tmp_path):
    path = append_row(tmp_path / 'made' / 'on the way', AWKWARD)
    assert path == tmp_path / 'made' / 'on the way' / FILE
    assert read_rows(path) == [
        {'task1': '1.5', 'notes': AWKWARD['notes'], 'forgetting': '', 'empty': ''}
    ]
    append_row(path.parent, {'task1': 1, 'notes': AWKWARD['notes'], 'task2': 0.25})
    table = pandas.read_csv(path)
    assert table['notes'].tolist() == [AWKWARD['notes']] * 2
    assert table['task2'].isna().tolist() == [True, False]
    append_row(path.parent, {'task1': 1, 'curve': '1' * 200_000})  # of an evaluation at each sample
    # of a latin-1 terminal: utf-8 cannot hold it
    append_row(path.parent, {'task1': 1, 'notes': 'caf\udce9'})
    assert read_rows(path)[3]['task1'] == '1'
    assert read_rows(path)[3]['notes'].startswith('caf')


def test_columns_are_tasks_by_number_then_the_historic_three_then_as_they_came():
    names = 'model task10 forgetting task2 seed backward_transfer task1 forward_transfer taskless'
    order = 'task1 task2 task10 forward_transfer backward_transfer forgetting model seed taskless'
    assert column_order(names.split()) == order.split()


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from core.rows import append_row
for i in range(20):
    me = f'{sys.argv[3]}-{i}'
    row = {'id': me, 'check': me * 50, 'notes': 'a "b"\\n'}
    for t in range(int(sys.argv[3]) % 3 + 1):
        row[f'task{t + 1}'] = t
    append_row(Path(sys.argv[2]), row)
"""


@pytest.mark.slow
def test_four_processes_lose_nothing(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, '-c', WRITER, ROOT, tmp_path, str(n)]) for n in range(4)
    ]
    while any(writer.poll() is None for writer in writers):
        rows = read_rows(tmp_path / FILE)  # never a torn file
        assert all(row['check'] == row['id'] * 50 for row in rows)
        time.sleep(0.01)
    assert [writer.returncode for writer in writers] == [0] * 4
    ids = [row['id'] for row in read_rows(tmp_path / FILE)]
    for n in range(4):  # each writer's rows are in its order
        assert [i for i in ids if i.startswith(f'{n}-')] == [f'{n}-{i}' for i in range(20)]
    assert not list(tmp_path.glob('*.part'))


def test_a_full_disk_leaves_the_old_rows_and_nothing_else(tmp_path, monkeypatch):
    before = append_row(tmp_path, {'task1': 1}).read_bytes()

    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with refused(str(tmp_path / FILE), 'No space left'):
        append_row(tmp_path, {'task1': 2})
    assert (tmp_path / FILE).read_bytes() == before
    assert {p.name for p in files_below(tmp_path)} <= {FILE, f'{FILE}.lock'}


@pytest.mark.parametrize(
    'content',
    [
        b'\x89PNG\r\n\x1a\n\0\xff\xfe',
        b'task1,task1\r\n1,2\r\n',
        b'task1\r\n1,2,3\r\n',
        b'task1\n"' + b'x' * 200_000,
    ],
)
def test_a_file_of_another_kind_is_left_alone(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with refused(str(tmp_path / FILE), 'not a results file'):
        read_rows(tmp_path / FILE)
    with refused(str(tmp_path / FILE), 'not a results file'):
        append_row(tmp_path, {'task1': 1, 'task2': 2})
    assert (tmp_path / FILE).read_bytes() == content


def test_an_empty_file_has_no_rows(tmp_path):
    (tmp_path / FILE).touch()
    assert read_rows(tmp_path / FILE) == []


def test_what_a_spreadsheet_saves_goes_on(tmp_path):
    (tmp_path / FILE).write_bytes(b'\xef\xbb\xbftask1,notes\n5,"a ""b"""\n\n6\n')
    append_row(tmp_path, {'task1': 7})
    cells = [list(row.values()) for row in read_rows(tmp_path / FILE)]
    assert cells == [['5', 'a "b"'], ['6', ''], ['7', '']]


def test_a_folder_that_cannot_be_made_is_told_before_any_work(tmp_path):
    blocked = tmp_path / 'file' / 'below'
    blocked.parent.write_text('in the way')
    with refused(str(blocked)):
        check_writable(blocked)
    with refused(str(blocked)):
        append_row(blocked, {'task1': 1})
    check_writable(tmp_path / 'new')
    assert blocked.parent.read_text() == 'in the way'
    assert files_below(tmp_path) == [blocked.parent]
