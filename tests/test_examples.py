"""The worked example runs, and ends as it says."""
import sys

from core.commands import run_command
from examples import five_sites


def test_five_sites_end_in_the_model_of_all_and_a_difference_is_a_sample(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['five_sites.py', str(tmp_path / 'sent')])
    assert run_command(five_sites.main) == 0
    out = capsys.readouterr().out
    assert 'is that of one that had all data' in out and 'the difference is that very image' in out
    assert run_command(five_sites.main) == 2 and 'is there already' in capsys.readouterr().err
