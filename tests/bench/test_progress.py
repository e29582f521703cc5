"""How far a stage is: lines where there is no terminal, a bar where there is one, nothing where none is wanted."""
import io
import re
import sys
import time

import pytest

from core import progress
from core.progress import Progress
from datasets.utils import readers
from tests.models.conftest import small_digits  # noqa: F401


@pytest.fixture
def soon(monkeypatch):
    """A hundredth of the usual times."""
    for name, value in (('EVERY', 0.1), ('TICK', 0.01), ('_told', time.monotonic() - 0.06)):
        monkeypatch.setattr(progress, name, value)


def test_a_line_now_and_then(soon, capsys):
    for _ in Progress('Counting', 50).over(range(50)):
        time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 8 and all(re.fullmatch(r'Counting: \d+ of 50, \d s(, about \d s left)?', line) for line in lines), lines
    assert [int(line.split()[1]) for line in lines] == sorted(int(line.split()[1]) for line in lines)


def test_a_stage_that_never_calls_and_short_ones_that_follow_each_other_are_shown(soon, capsys):
    with Progress('Reading'):
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[:2] == ['Reading: 0 s'] * 2
    for task in range(20):
        with Progress(f'Task {task}'):
            time.sleep(0.03)
    assert 2 <= len(capsys.readouterr().err.splitlines()) <= 8


def test_of_nested_stages_the_inner_one_speaks_and_none_that_is_quiet(soon, capsys):
    with Progress('Outer'), Progress('Inner', 2) as inner:
        inner.tell(loss=0.125)
        time.sleep(0.2)
    err = capsys.readouterr().err
    assert 'Inner: 0 of 2, 0 s, loss=0.125' in err and 'Outer' not in err
    with Progress('Quiet', quiet=True):
        time.sleep(0.2)
    assert capsys.readouterr().err == ''


def test_nothing_is_said_after_an_error(monkeypatch, capsys):
    monkeypatch.setattr(progress, '_told', time.monotonic() - progress.EVERY + 0.3)
    with pytest.raises(ValueError), Progress('Broken'):
        raise ValueError
    time.sleep(0.6)
    assert capsys.readouterr().err == ''


def test_time_left_counts_what_was_done_here(monkeypatch):
    monkeypatch.setattr(time, 'monotonic', lambda: 100.0)
    stage = Progress('Task 1', 100, done=50)
    stage.began = 40.0
    assert stage.line() == 'Task 1: 50 of 100, 60 s'                    # of an interrupted pass: nothing done here yet
    stage.update(20)
    assert stage.line() == 'Task 1: 70 of 100, 60 s, about 2 min left'  # 30 at 3 s


def test_a_bar_on_a_terminal_is_gone_in_the_end(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, 'stderr', screen)
    with Progress('Counting', 10) as stage:
        time.sleep(0.6)
        stage.update(10)
        stage.tell(loss=0.5)
    shown = screen.getvalue()
    assert 'Counting' in shown and '10/10' in shown and shown.split('\r')[-1].strip() == '' and '\n' not in shown


@pytest.mark.parametrize('seconds, text', [(0.4, '0 s'), (89, '89 s'), (90, '2 min'), (3599, '1 h 00 min'), (1e5, '27 h 47 min')])
def test_spans_of_time(seconds, text):
    assert progress.span(seconds) == text


@pytest.mark.parametrize('quiet', [False, True])
def test_the_stages_of_a_run(command_line, tiny_weights, small_digits, tmp_path, monkeypatch, quiet):     # noqa: F811
    for name, value in (('EVERY', 0.02), ('TICK', 0.001)):
        monkeypatch.setattr(progress, name, value)
    digits = readers.digits
    monkeypatch.setattr(readers, 'digits', lambda: time.sleep(0.1) or digits())
    code, _, err = command_line('--model', 'gdumb', '--buffer_size', '20', '--fitting_epochs', '3', '--dataset', 'seq-digits',
                                '--weights', tiny_weights, '--base_path', tmp_path, '--n_splits', '1', '--disable_log', '1',
                                '--non_verbose', int(quiet))
    said = {line.partition(': ')[0] for line in err.splitlines()}
    expected = {'Task 1 - Epoch 1', 'Fitting, epochs', 'Evaluating', 'Reading seq-digits'}
    assert code == 0 and (not said if quiet else expected <= said), said
