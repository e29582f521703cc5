"""The scripts run, and what they write is what they say: each on the digits with a tiny psi."""
import os
import subprocess
import sys

import pytest

from bench.cli import schedule
from bench.results import show
from core.rows import append_row
from tests.conftest import ROOT, refused


@pytest.fixture
def call(monkeypatch, capsys):
    """call(script, *words): stdout of the script's main."""
    def run(script, *words):
        monkeypatch.setattr(sys, 'argv', [script.__name__, *map(str, words)])
        script.main()
        return capsys.readouterr().out
    return run


@pytest.mark.parametrize('words, code', [('show mean_accs.csv note', 141), ('show pipe note', 2), ('certify --check deep', 2)])
def test_scripts_end_in_a_line_or_where_nobody_reads_without_one(tmp_path, words, code):
    append_row(tmp_path, dict(task1=1, note='a'))
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'deep').write_text('[' * 100_000)
    read, write = os.pipe()
    os.close(read)
    name, *flags = words.split()
    done = subprocess.run([sys.executable, ROOT / 'scripts' / f'{name}.py', *flags], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE,
                          text=True, timeout=120)
    os.close(write)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, int(code == 2)), done.stderr


def test_show_prints_chosen_columns_and_rows(call, tmp_path):
    for n in (1, 2):
        append_row(tmp_path, {'task1': n, 'digest': str(n) * 64, 'note': 'a, b'})
    text = call(show, tmp_path / 'mean_accs.csv', 'note', 'digest', '--where', 'task1=2')
    assert text.splitlines() == ['| note | digest |', '|---|---|', '| a, b | 22222222 |']
    for words, said in ((['mean_accs.csv', 'not'], 'no column not'), (['mean_accs.csv', 'note', '--where', 'tas=2'], 'no column tas')):
        with refused(said):
            call(show, tmp_path / words[0], *words[1:])


def test_a_schedule_is_shown_by_its_segments(call, tiny_weights):
    out = call(schedule, 'show', 'split:5,order=9-8-7-6-5-4-3-2-1-0', '--most', 2, '--weights', tiny_weights)
    lines = out.splitlines()
    assert 'each sample once' in lines[0] and 'yes' in lines[1] and lines[3].split() == ['tasks', '5'] and 'yes' in lines[4]
    assert lines[-3].split() == ['1', '284', '8', '(140),', '9', '(144)'] and '3 more' in lines[-1]


@pytest.mark.parametrize('spec, words', [('gaussian', ['permutation                yes', 'none (general-continual)', 'segment  no']),
                                         ('imbalanced:5', ['of 1442 samples, each once', 'no method can be exactly invariant'])])
def test_a_schedule_is_checked(call, tiny_weights, spec, words):
    out = call(schedule, 'check', spec, '--weights', tiny_weights)
    assert not [word for word in words if word not in out], out


def test_a_schedule_is_drawn(call, tiny_weights, tmp_path):
    path = tmp_path / 'new' / 'picture.png'
    assert str(path) in call(schedule, 'plot', 'blurry', '--out', path, '--weights', tiny_weights)
    assert path.read_bytes().startswith(b'\x89PNG')
