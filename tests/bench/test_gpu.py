"""What waits for a GPU: its commands are ones that there are, go on where they were, and are tried on toys."""
import pytest

from bench.paper import gpu
from tests.conftest import ROOT, python


@pytest.mark.parametrize('words', [[], ['--toy', '--device', 'cpu']], ids=['GPU', 'toy'])
@pytest.mark.parametrize('stage', gpu.STAGES)
def test_commands_name_files_that_are_there(stage, words, tmp_path):
    for command in gpu.commands(stage, gpu.parse_args([*words, '--out', str(tmp_path)])):
        files = [word for word in map(str, command) if word.startswith(('scripts/', 'experiments/', 'results/')) or word.endswith('.py')]
        assert files and all((ROOT / name).is_file() for name in files)


def commands_that(monkeypatch, *ends):
    """Each stage is one command that ends so."""
    monkeypatch.setattr(gpu, 'commands', lambda stage, options: [['-c', ends[gpu.STAGES.index(stage)]]])


def test_what_is_done_is_not_done_again_and_what_fails_is_said(monkeypatch, tmp_path, capsys):
    commands_that(monkeypatch, 'print(1)', 'raise SystemExit(3)', 'print(2)')
    words = ['--out', str(tmp_path), *(word for stage in gpu.STAGES[:3] for word in ('--only', stage))]
    assert gpu.main(words) == 1
    said = [line.split(',')[0].split(' (')[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ['integers: done', 'speed: failed', 'resnet12: done']
    commands_that(monkeypatch, 'print(1)', 'print(3)', 'raise SystemExit(1)')           # other commands: not done yet
    assert gpu.main([*words, '--skip', 'resnet12']) == 0
    assert (tmp_path / 'integers.log').read_text().count('\n1\n') == 1 and (tmp_path / 'speed.log').read_text().endswith('3\n')


def test_when_the_time_is_up_a_command_may_write_what_it_has(monkeypatch, tmp_path, capsys):
    waits = (f'import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (open({str(tmp_path / "kept")!r}, "w"), sys.exit(1)))\n'
             'time.sleep(60)')
    commands_that(monkeypatch, waits)
    assert gpu.main(['--out', str(tmp_path), '--only', 'integers', '--minutes', '0.05']) == gpu.TIME_IS_UP
    assert (tmp_path / 'kept').exists() and 'goes on' in capsys.readouterr().out and not (tmp_path / 'integers.done').exists()


@pytest.mark.slow
def test_all_of_it_on_toys(tmp_path):
    words = ['scripts/gpu.py', '--toy', '--device', 'cpu', '--out', tmp_path]
    done = python(*words, cwd=ROOT)
    logs = {path.stem: path.read_text()[-2000:] for path in tmp_path.glob('*.log')}
    assert done.returncode == 0, (done.stdout, done.stderr, logs)
    assert 'traced' in logs['speed'] and all('[1/1]' in logs[table] for table in ('table_1', 'table_2'))
    assert python(*words, cwd=ROOT).stdout.count('done') == len(gpu.STAGES)
