"""How far a stage is: lines where there is no terminal, one line where there is one, nothing where
none is wanted.
"""

import io
import re
import sys
import time

import numpy as np
import pytest

from scroll.__main__ import main as scroll_command
from scroll.ground import progress
from scroll.ground.progress import Progress


@pytest.fixture
def soon(monkeypatch):
    for name, value in (('EVERY', 0.1), ('TICK', 0.01), ('_told', time.monotonic() - 0.06)):
        monkeypatch.setattr(progress, name, value)


def test_a_line_now_and_then(soon, capsys):
    for _ in Progress('Counting', 30).over(range(30)):
        time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 6, lines
    assert all(
        re.fullmatch(r'Counting: \d+ of 30, \d s(, about \d s left)?', line) for line in lines
    ), lines
    assert [int(line.split()[1]) for line in lines] == sorted(
        int(line.split()[1]) for line in lines
    )


def test_a_stage_that_is_quiet_says_nothing(soon, capsys):
    with Progress('Quiet', quiet=True) as stage:
        time.sleep(0.1)
        stage.update()
    assert capsys.readouterr().err == ''


def test_time_left_counts_what_was_done_here(monkeypatch):
    monkeypatch.setattr(time, 'monotonic', lambda: 100.0)
    stage = Progress('Task 1', 100, done=50)
    stage.began = 40.0
    # of an interrupted pass: nothing done here yet
    assert stage.line() == 'Task 1: 50 of 100, 60 s'
    stage.update(20)
    assert stage.line() == 'Task 1: 70 of 100, 60 s, about 2 min left'  # 30 at 3 s
    assert [progress.span(s) for s in (0.4, 89, 90, 3599, 1e5)] == [
        '0 s',
        '89 s',
        '2 min',
        '1 h 00 min',
        '27 h 47 min',
    ]


def test_the_line_on_a_terminal_is_gone_in_the_end(soon, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, 'stderr', screen)
    with Progress('Counting', 10) as stage:
        time.sleep(0.02)
        stage.tell(loss=0.5)
        stage.update(10)
    shown = screen.getvalue()
    assert 'Counting: 10 of 10, 0 s, loss=0.5' in shown
    assert shown.endswith('\r\x1b[K')
    assert '\n' not in shown


@pytest.mark.parametrize('quiet', [False, True])
def test_the_stages_of_a_run(
    command_line,
    tiny_weights,
    small_digits,
    tmp_path,
    monkeypatch,
    quiet,
):
    monkeypatch.setattr(progress, 'EVERY', 0)
    code, _, err = command_line(
        '--model gdumb --buffer_size 20 --fitting_epochs 3 --dataset seq-digits',
        '--weights',
        tiny_weights,
        '--base_path',
        tmp_path,
        '--n_splits 1 --disable_log 1',
        '--non_verbose',
        int(quiet),
    )
    said = {line.partition(': ')[0] for line in err.splitlines()}
    assert code == 0, said
    assert not said if quiet else 'Fitting the buffer, epochs' in said, said


def test_a_step_of_a_stage_names_it_and_files_are_learned_with_a_line(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(progress, 'EVERY', 0)
    with (
        Progress('Schedules', 3, done=1),
        Progress('Preparing'),
        Progress('Quiet', 2, quiet=True),
        Progress('Task 1', 10),
    ):
        assert capsys.readouterr().err.splitlines()[-1] == 'Schedules 1 of 3, Task 1: 0 of 10, 0 s'
    np.savez(tmp_path / 'a.npz', X=np.eye(4), y=np.arange(4))
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ('learn a.npz -o 1.npz', 'Learning: 4 of 4'),
        ('merge 1.npz 1.npz --repeated -o 2.npz', 'Merging, files'),
        ('predict 1.npz a.npz -o y.csv', 'Predicting: 4 of 4'),
        ('remove 2.npz --samples a.npz -o 2.npz', 'Reading: 1'),
        ('export 1.npz -o model', 'Exporting'),
    ):
        assert scroll_command(words.split()) == 0
        assert said in capsys.readouterr().err
