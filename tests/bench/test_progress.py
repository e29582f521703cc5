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
from scroll.ground.progress import track


def test_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, 'EVERY', 0.1)
    for _ in track('Counting', range(40)):
        with track('Within', total=2) as inner:
            time.sleep(0.01)
            inner.update()
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 6, lines
    assert all(re.match(r'(Counting|Within): +\d+%.* \d+/(40|2) ', line) for line in lines), lines


def test_a_stage_that_is_quiet_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, 'EVERY', 0)
    with track('Quiet', quiet=True) as stage:
        stage.update()
        stage.set_postfix(loss=0.5, refresh=False)
    assert list(track('Quiet', range(3), quiet=True)) == [0, 1, 2]
    assert capsys.readouterr().err == ''


def test_the_line_on_a_terminal_is_gone_in_the_end(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, 'stderr', screen)
    with track('Task 1', total=100, done=50) as stage:
        stage.set_postfix(loss=0.5, refresh=False)
        time.sleep(0.11)
        stage.update(20)
    shown = screen.getvalue()
    assert re.search(r'Task 1: +70%.* 70/100 .*loss=0.5', shown)
    assert re.search(r'\r +\r$', shown)
    assert '\n' not in shown


@pytest.mark.parametrize('quiet', [False, True])
def test_the_stages_of_a_run(
    command_line, tiny_weights, small_digits, tmp_path, monkeypatch, quiet
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


def test_files_are_learned_with_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(progress, 'EVERY', 0)
    np.savez(tmp_path / 'a.npz', X=np.eye(4), y=np.arange(4))
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ('learn a.npz -o 1.npz', 'Learning: '),
        ('merge 1.npz 1.npz --repeated -o 2.npz', 'Merging, files: '),
        ('predict 1.npz a.npz -o y.csv', 'Predicting: '),
    ):
        assert scroll_command(words.split()) == 0
        assert said in capsys.readouterr().err
