"""The scripts run, and what they write is what they say: each on the digits with a tiny psi."""

import os
import subprocess
import sys

import pytest

from bench.cli import schedule
from tests.conftest import ROOT


@pytest.fixture
def call(monkeypatch, capsys):
    """call(script, *words): stdout of the script's main."""

    def run(script, *words):
        monkeypatch.setattr(sys, 'argv', [script.__name__, *map(str, words)])
        script.main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    'words, code',
    [
        ('certify --check deep', 2),
        ('certify --dataset seq-digits --keep /dev/full', 2),
        ('schedule plot iid --out pipe.png', 2),
    ],
)
def test_scripts_end_in_a_line_of_its_own(tmp_path, words, code):
    os.mkfifo(tmp_path / 'pipe.png')
    (tmp_path / 'deep').write_text('[' * 100_000)
    read, write = os.pipe()
    os.close(read)
    name, *flags = words.split()
    done = subprocess.run(
        [sys.executable, ROOT / 'scripts' / f'{name}.py', *flags],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(write)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, int(code == 2)), done.stderr


def test_a_schedule_is_drawn(call, tiny_weights, tmp_path):
    path = tmp_path / 'new' / 'picture.png'
    assert str(path) in call(schedule, 'blurry', '--out', path, '--weights', tiny_weights)
    assert path.read_bytes().startswith(b'\x89PNG')
