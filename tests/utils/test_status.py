"""The line that tells how far an epoch has come."""
import io
import sys

import torch

from utils.status import progress_bar


class Loss:
    """Counts how often it is looked at."""
    looks = 0

    def __float__(self):
        self.looks += 1
        return 0.5


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_line_takes_the_place_of_the_one_before(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'stderr', Terminal())
    for i in range(4):
        progress_bar(i, 4, 1, 2, torch.tensor(0.25 * i))
    lines = sys.stderr.getvalue().split('\r')
    assert lines[0] == capsys.readouterr().out == ''
    assert lines[1] == 'Task 3 - Epoch 2 [#####...............] 1/4 loss 0.0000'
    assert lines[-1] == 'Task 3 - Epoch 2 [####################] 4/4 loss 0.7500\n' and len(lines) == 5


def test_a_name_stands_for_the_task_and_losses_are_looked_at_a_hundred_times(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', Terminal())
    loss = Loss()
    for i in range(5000):
        progress_bar(i, 5000, 0, 'J', loss)
    assert 100 <= loss.looks <= 102 and 'Task J - Epoch 1' in sys.stderr.getvalue()


def test_a_file_gets_one_line_an_epoch(capsys):
    for i in range(20):
        progress_bar(i, 20, 0, 0, 1)
    assert capsys.readouterr().err == f'Task 1 - Epoch 1 [{"#" * 20}] 20/20 loss 1.0000\n'
