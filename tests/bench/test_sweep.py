"""Sweeps: which runs there are, that each is made once whatever happens to the sweep, and what it
says of those that fail.

Most tests put a stub in the place of `main.py`: it notes when it begins and ends, may sleep or
fail, and writes a row.
"""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from bench.cli.parsing import parse_args
from bench.paper import sweep
from bench.paper.experiments import Cell, arguments
from core.commands import run_command
from core.rows import append_row, read_rows
from tests.conftest import ROOT, python, words_of

STUB = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from core.rows import append_row
flags = dict(zip([w[2:] for w in sys.argv[1::2]], sys.argv[2::2]))
here = Path(flags['base_path'])
wish = json.loads((here / 'wish.json').read_text()) if (here / 'wish.json').exists() else dict()
name = flags['model'] + ' ' + flags['seed']
def note(what):
    gpu = os.environ.get('CUDA_VISIBLE_DEVICES', '-')
    with open(here / 'calls', 'a') as file:
        print(what, name, gpu, file=file)
note('begin')
print('working')
while (here / 'hold').exists():
    time.sleep(0.02)
if flags['model'] in wish.get('fail', ()):
    print('out of memory, poor ' + name)
    sys.exit(3)
if flags['model'] not in wish.get('rowless', ()):
    folder = here / 'results' / 'class-il' / flags['dataset'] / flags['model']
    key = json.loads((here / 'keys.json').read_text())[flags['model']]
    key['default'] |= {{name: flags[name] for name in key['default'] if name in flags}}
    row = {{
        **flags,
        'run_key': json.dumps(key),
        'final_accuracy': 50 + int(flags['seed']),
        'finished': '2026',
    }}
    append_row(folder, row)
note('end')
"""


@functools.cache
def key_of(model: str, weights: str) -> dict:
    buffer = '--buffer_size 20' if model != 'sgd' else ''
    words = f'--model {model} --dataset seq-digits --weights {weights}'
    return parse_args(words_of(words, buffer)).key


class Bench:
    """An experiment of two cells (sgd and er) with a stub in the place of main.py. Called with
    words: (exit code, stdout, stderr) of a sweep."""

    def __init__(self, folder, weights, capfd, monkeypatch):
        self.folder = folder
        self.weights = weights
        self.capfd = capfd
        self.monkeypatch = monkeypatch
        self.keys = {}
        self.stub = folder / 'stub main.py'
        monkeypatch.setattr(sweep, 'PROGRAM', [sys.executable, str(self.stub)])
        self.base = folder / 'data'
        self.stub.write_text(STUB.format(root=str(ROOT)))
        self.base.mkdir()
        self.two = self.write()

    def write(self, name='two', models=('sgd', 'er'), **flags):
        rows = {f'the {m}/{m}': {'model': m} for m in models}
        for row in rows.values():
            if row['model'] != 'sgd':
                row['buffer_size'] = 20
            self.keys[row['model']] = key_of(row['model'], self.weights)
        content = {
            'title': 't',
            'source': 's',
            'seeds': 2,
            'flags': {'lr': 0.1, **flags},
            'columns': {'digits, |M| = 20': {'dataset': 'seq-digits'}},
            'rows': rows,
        }
        path = self.folder / f'{name}.yaml'
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        (self.base / 'keys.json').write_text(json.dumps(self.keys))
        return path

    def __call__(self, *words, extra=(), weights=None):
        fixed = f'--base_path {self.base} --weights {weights or self.weights}'
        return self.end_of(*words, '--extra', '--', fixed, *extra)

    def end_of(self, *words):
        self.capfd.readouterr()
        self.monkeypatch.setattr(sys, 'argv', ['sweep.py', *words_of(*words)])
        return run_command(sweep.main), *self.capfd.readouterr()

    def calls(self):
        if not (self.base / 'calls').exists():
            return []
        return [line.split() for line in (self.base / 'calls').read_text().splitlines()]

    def begun(self):
        return [' '.join(call[1:3]) for call in self.calls() if call[0] == 'begin']

    def wish(self, **what):
        (self.base / 'wish.json').write_text(json.dumps(what))


@pytest.fixture
def bench(tmp_path, tiny_weights, capfd, monkeypatch):
    yield Bench(tmp_path, tiny_weights, capfd, monkeypatch)
    (tmp_path / 'data' / 'hold').unlink(missing_ok=True)


def test_each_cell_is_made_with_each_seed_seeds_outermost_and_never_again(bench):
    code, out, _ = bench(bench.two, '--jobs 1')
    assert code == 0
    assert bench.begun() == ['sgd 0', 'er 0', 'sgd 1', 'er 1']
    assert '4 runs to make' in out
    assert '[4/4] the er/er, digits, |M| = 20, seed 1: 51.00 % in ' in out
    assert len(list((bench.base / 'sweeps' / 'two').iterdir())) == 4
    assert bench(bench.two)[:2] == (0, '0 runs to make\n')
    assert len(bench.begun()) == 4
    assert bench(bench.two, '--seeds 3 --only', 'THE SGD/*')[0] == 0
    assert bench.begun()[4:] == ['sgd 2']


def test_a_row_counts_only_with_the_same_extra_flags_and_the_same_psi(bench, tmp_path):
    other = tmp_path / 'other.safetensors'
    other.write_bytes(Path(bench.weights).read_bytes())
    words = bench.two, '--seeds 1 --only', 'the sgd*'
    assert bench(*words)[0] == 0
    assert bench(*words, '--dry_run')[1] == ''
    assert bench(*words, '--dry_run', extra=['--n_epochs 2'])[1] != ''
    assert bench(*words, '--dry_run', weights=other)[1] != ''


def test_a_committed_row_counts_as_made_if_all_experiments_that_ask_for_the_run_have_it(
    bench, tmp_path
):
    """A clean clone: no results files, and rows of `report.py --collect`."""
    more = bench.write('more', ('er', 'sgd'))
    folder = tmp_path / 'rows'
    assert bench(bench.two, '--seeds 1 --jobs 1')[0] == 0
    results = bench.base / 'results'
    rows = {path.parent.name: read_rows(path)[0] for path in results.rglob('mean_accs.csv')}
    results.rename(tmp_path / 'elsewhere')
    for name, model in (('two', 'sgd'), ('two', 'er'), ('more', 'er')):
        place = {'row': f'the {model}/{model}', 'column': 'digits, |M| = 20'}
        append_row(folder, rows[model] | place, f'{name}.csv')

    def planned(*words):
        out = bench(*words, '--seeds 1 --dry_run')[1]
        return re.findall(r'--model (\w+)', out)

    assert planned(bench.two, f'--rows {folder}') == []
    assert planned(bench.two, more, f'--rows {folder}') == ['sgd']
    assert planned(bench.two, '--rows none') == ['sgd', 'er']


def test_a_dry_run_prints_what_a_shell_can_run(bench):
    assert bench(bench.two, '--seeds 1 --only', 'the sgd/sgd/*')[0] == 0
    notes = ['--notes', 'a "b" $c; d']
    code, out, err = bench(bench.two, '--dry_run --jobs 1', extra=notes)
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, '', 3)  # the finished one is not among them
    subprocess.run(['bash', '-e'], input=lines[0], text=True, cwd='/', check=True)
    assert bench.begun() == ['sgd 0', 'er 0']
    (row,) = read_rows(next(bench.base.rglob('er/mean_accs.csv')))
    assert (row['notes'], row['seed']) == ('a "b" $c; d', '0')


def test_what_several_experiments_share_is_made_once(bench):
    more = bench.write('more', ('er', 'derpp', 'sgd'))
    flags = {'model': 'sgd', 'dataset': 'seq-digits'}
    default = arguments(Cell('', '', flags, None))[0].n_epochs
    same = bench.write('same', ('sgd',), n_epochs=default)  # said aloud: the same run
    out = bench(bench.two, more, same, '--seeds 1 --dry_run')[1]
    assert re.findall(r'--model (\w+)', out) == ['sgd', 'er', 'derpp']


def test_failed_runs_are_reported_and_the_others_go_on(bench):
    bench.wish(fail=['sgd'])
    words = bench.two, '--seeds 1 --gpus 3'
    code, out, err = bench(*words)
    assert code == 1
    assert bench.begun() == ['sgd 0', 'er 0']
    assert {call[3] for call in bench.calls()} == {'3'}
    assert '--device cuda:0' in bench(*words, '--rows none --dry_run')[1]  # never the CPU instead
    assert 'er/er, digits, |M| = 20, seed 0: 50.00 %' in out
    title = '[1/2] the sgd/sgd, digits, |M| = 20, seed 0'
    assert err.startswith(f'{title}: FAILED, exit code 3, no row: out of memory, poor sgd 0')
    assert '-s0.log' in err
    bench.wish(rowless=['sgd'])
    code, _, err = bench(*words)
    assert code == 1
    assert 'exit code 0, no row: working' in err
    assert bench.begun()[2:] == ['sgd 0']  # tried again; er is not
    (log,) = (bench.base / 'sweeps' / 'two').glob('*sgd*')
    first, *lines = log.read_text().splitlines()  # every try, with its command
    assert lines == ['working', 'out of memory, poor sgd 0', first, 'working']


def test_other_commands_of_an_experiment_are_called(bench, tmp_path):
    figure = tmp_path / 'figure.yaml'
    commands = ['-c "print(6 * 7)"', '-c "exit(3)"']
    figure.write_text(yaml.safe_dump({'title': 't', 'commands': commands}))
    assert bench(figure)[:2] == (1, '0 runs to make\n42\n')
    assert 'print(6 * 7)' in bench(figure, '--dry_run')[1]


def test_a_cell_that_main_py_refuses_does_not_keep_others_from_running(bench):
    bad = bench.write('bad', ('sgd', 'agem'))
    extra = ['--minibatch_size 5']  # sgd has no buffer
    code, _, err = bench(bad, '--seeds 1', extra=extra)
    assert code == 1
    assert bench.begun() == ['agem 0']
    assert 'the sgd/sgd, digits, |M| = 20: main.py refuses it' in err
    assert '--minibatch_size' in err
    assert bench(bad, '--dry_run --seeds 3', extra=extra)[2].count('refuses it') == 1  # for all


@pytest.mark.parametrize(
    'words, said',
    [
        ('--no_such 1', '--no_such'),
        ('--extra lr .1', 'lr'),
        ('--extra -- --lr=.1 --device=cpu', 'one value each'),
        ('--extra -- --seed 3', '--seeds'),
        ('--extra -- --num_threads many', '--num_threads many'),
        ('--extra -- --no_such_flag 1', '--no_such_flag'),
        ('--only nothing', 'nothing'),
        ('--seeds 0', 'at least 1'),
        ('missing.yaml', 'missing.yaml'),
    ],
)
def test_what_the_user_can_mend_ends_in_one_line_before_anything_runs(bench, words, said):
    code, out, err = bench.end_of(bench.two, words)
    assert (code, out, len(err.splitlines())) == (2, '', 1)
    assert said in err


def test_a_signal_ends_the_runs_and_says_how_to_go_on(bench):
    (bench.base / 'hold').touch()

    def stop():
        while len(bench.calls()) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    code, _, err = bench(bench.two, '--jobs 2')
    assert code == 143
    assert '0 of 4 runs were made' in err
    assert 'the same command resumes' in err
    (bench.base / 'hold').unlink()
    time.sleep(0.2)
    assert [call[0] for call in bench.calls()] == ['begin'] * 2  # nobody came to an end later


@pytest.mark.parametrize(
    'words, expected',
    [
        ('', (8, 1)),
        ('--extra --num_threads 3', (2, 3)),
        ('--gpus 0,0,0,1,1 --jobs 4', (4, 2)),
        ('--gpus 0 --jobs 2', (1, 8)),
    ],
)
def test_runs_times_threads_are_the_cores(monkeypatch, words, expected):
    monkeypatch.setattr(sweep, 'cpu_count', lambda: 8)
    gpus, threads = sweep.shares(*sweep.parse_args(words_of('x.yaml', words)))
    assert (len(gpus), threads) == expected


@pytest.mark.slow
def test_a_sweep_over_a_real_run(bench):
    experiment = bench.write('real', ['er-ace'], n_epochs=1, schedule='gaussian:sigma=2')
    extra = f'--base_path {bench.base} --weights {bench.weights} --device cpu'
    words = words_of('scripts/sweep.py', experiment, f'--seeds 1 --extra -- {extra}')
    first = python(*words, cwd=ROOT)
    assert first.returncode == 0, first.stderr
    folder = bench.base / 'results' / 'general-continual' / 'seq-digits' / 'er-ace'
    (row,) = read_rows(folder / 'mean_accs.csv')
    accuracy = f'{float(row["final_accuracy"]):.2f} %'
    assert f'the er-ace/er-ace, digits, |M| = 20, seed 0: {accuracy}' in first.stdout
    assert python(*words, cwd=ROOT).stdout == '0 runs to make\n'
    (log,) = (bench.base / 'sweeps' / 'real').iterdir()
    assert 'Summary' in log.read_text()
