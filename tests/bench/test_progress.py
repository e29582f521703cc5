"""How far a stage is: lines where there is no terminal, a bar where there is one, nothing where none is wanted."""
import io
import re
import time

import pytest

from core import progress
from core.progress import Progress
from datasets.utils import readers
from tests.models.conftest import small_digits  # noqa: F401


@pytest.fixture
def soon(monkeypatch):
    """A hundredth of the usual times."""
    for name, value in (('FIRST', 0.04), ('EVERY', 0.1), ('_SHORT', 0.01), ('_told', time.monotonic())):
        monkeypatch.setattr(progress, name, value)


def test_a_line_now_and_then(soon, capsys):
    for _ in Progress('Counting', 50).over(range(50)):
        time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 8 and all(re.fullmatch(r'Counting: \d+ of 50, \d s(, about \d s left)?', line) for line in lines), lines
    assert [int(line.split()[1]) for line in lines] == sorted(int(line.split()[1]) for line in lines)


def test_a_stage_that_never_calls_is_heard_of(soon, capsys):
    with Progress('Reading'):
        time.sleep(0.3)
    assert capsys.readouterr().err.splitlines()[:2] == ['Reading: 0 s'] * 2


def test_nothing_is_said_after_the_end_nor_of_what_is_short_nor_if_quiet(soon, monkeypatch, capsys):
    for name in ('FIRST', '_SHORT'):                        # nothing short lasts that long, however busy
        monkeypatch.setattr(progress, name, 1.0)
    with Progress('Quiet', quiet=True):
        time.sleep(1.1)
    with Progress('Short'):
        pass
    with pytest.raises(ValueError), Progress('Broken'):
        raise ValueError
    time.sleep(1.1)
    assert capsys.readouterr().err == ''


def test_a_bar_on_a_terminal_is_gone_in_the_end(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(progress.sys, 'stderr', screen)
    with Progress('Counting', 10) as stage:
        time.sleep(0.6)
        stage.update(10)
        stage.tell(loss=0.5)
    shown = screen.getvalue()
    assert 'Counting' in shown and '10/10' in shown and shown.split('\r')[-1].strip() == '' and '\n' not in shown


@pytest.mark.parametrize('flags, stages', [
    (['--model', 'gdumb', '--buffer_size', '20', '--fitting_epochs', '3'], ['Task 1 - Epoch 1', 'Fitting, epochs', 'Evaluating', 'Reading seq-digits']),
    (['--model', 'joint', '--lr', '0.1', '--n_epochs', '3'], ['All tasks, epochs', 'Evaluating']),
    (['--model', 'scroll', '--buffer_size', '20', '--iterations', '9', '--model_config', 'base'], ['Adapting', 'Evaluating'])], ids=str)
@pytest.mark.parametrize('quiet', [False, True])
def test_the_stages_of_a_run(command_line, tiny_weights, small_digits, tmp_path, monkeypatch, flags, stages, quiet):     # noqa: F811
    for name, value in (('FIRST', 0), ('EVERY', 0.02), ('_SHORT', 0)):
        monkeypatch.setattr(progress, name, value)
    digits = readers.digits
    monkeypatch.setattr(readers, 'digits', lambda: time.sleep(0.1) or digits())
    code, _, err = command_line(*flags, '--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', tmp_path, '--n_splits', '1',
                                '--disable_log', '1', '--non_verbose', int(quiet))
    said = {line.partition(': ')[0] for line in err.splitlines()}
    assert code == 0 and (not said if quiet else set(stages) <= said), said
