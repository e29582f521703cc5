"""Sweeps: which runs there are, that each is made once whatever happens to the sweep, and what it
says of those that fail.

Most tests put a stub in the place of `main.py`: it notes when it begins and ends, may sleep or
fail, and writes a row.
"""

import functools
import json
import os
import shlex
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
from tests.conftest import ROOT, python

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
    with open(here / 'calls', 'a') as file:
        print(what, name, os.environ.get('CUDA_VISIBLE_DEVICES', '-'), os.environ['OMP_NUM_THREADS'], flags['num_threads'], file=file)
note('begin')
print('working')
time.sleep(wish.get('seconds', 0))
while (here / 'hold').exists():
    time.sleep(0.02)
if flags['model'] in wish.get('fail', ()):
    print('out of memory, poor ' + name)
    sys.exit(3)
if flags['model'] not in wish.get('rowless', ()):
    folder = here / 'results' / 'class-il' / flags['dataset'] / flags['model']
    values = json.loads((here / 'keys.json').read_text())[flags['model']]
    key = json.dumps(dict(given=dict(), default=values | dict((name, flags[name]) for name in values if name in flags)))
    append_row(folder, dict(flags, run_key=key, schedule='split:5', final_accuracy=50 + int(flags['seed']), finished='2026'))
note('end')
"""


@functools.cache
def values_of(model: str, weights: str) -> dict:
    buffer = ['--buffer_size', '20'] if model != 'sgd' else []
    key = parse_args(
        ['--model', model, '--dataset', 'seq-digits', '--weights', weights, *buffer]
    ).key
    return key['given'] | key['default']


@pytest.fixture
def bench(tmp_path, tiny_weights, capfd):
    """An experiment of two cells (sgd and er) with a stub; bench(*words): (exit code, stdout,
    stderr) of a sweep.
    """
    stub, base, keys = tmp_path / 'stub main.py', tmp_path / 'data', {}
    stub.write_text(STUB.format(root=str(ROOT)))
    base.mkdir()

    def write(name='two', models=('sgd', 'er'), **flags):
        content = {
            'title': 't',
            'source': 's',
            'seeds': 2,
            'flags': dict(lr=0.1, **flags),
            'columns': {'digits, |M| = 20': {'dataset': 'seq-digits'}},
            'rows': {
                f'the {m}/{m}': {'model': m} | ({'buffer_size': 20} if m != 'sgd' else {})
                for m in models
            },
        }
        path = tmp_path / f'{name}.yaml'
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        keys.update((m, values_of(m, tiny_weights)) for m in models)
        (base / 'keys.json').write_text(json.dumps(keys))
        return path

    def words(*more, extra=()):
        return [
            *map(str, more),
            '--extra',
            '--',
            '--base_path',
            str(base),
            '--weights',
            tiny_weights,
            *map(str, extra),
        ]

    def run(*more, extra=()):
        capfd.readouterr()
        return end_of(words(*more, extra=extra), [sys.executable, str(stub)]), *capfd.readouterr()

    def calls():
        return (
            [line.split() for line in (base / 'calls').read_text().splitlines()]
            if (base / 'calls').exists()
            else []
        )

    def wish(**what):
        (base / 'wish.json').write_text(json.dumps(what))

    two = write()
    run.__dict__.update(
        two=two, base=base, write=write, words=words, calls=calls, wish=wish, stub=stub
    )
    yield run
    (base / 'hold').unlink(missing_ok=True)


def end_of(words, command) -> int:
    """Exit code of a sweep."""
    return run_command(lambda: sweep.sweep(words, command))


def begun(calls):
    return [' '.join(call[1:3]) for call in calls if call[0] == 'begin']


def test_each_cell_is_made_with_each_seed_seeds_outermost_and_never_again(bench):
    code, out, _ = bench(bench.two, '--jobs', 1)
    assert code == 0
    assert begun(bench.calls()) == ['sgd 0', 'er 0', 'sgd 1', 'er 1']
    assert '4 runs, 0 of them finished' in out
    assert '[4/4] the er/er, digits, |M| = 20, seed 1: 51.00 % in ' in out
    assert len(list((bench.base / 'sweeps' / 'two').iterdir())) == 4
    assert bench(bench.two)[:2] == (0, '4 runs, 4 of them finished\n')
    assert len(begun(bench.calls())) == 4
    assert bench(bench.two, '--seeds', 3, '--only', 'THE SGD/*')[0] == 0
    assert begun(bench.calls())[4:] == ['sgd 2']


def test_a_row_counts_only_with_the_same_extra_flags_and_the_same_psi(
    bench, tmp_path, tiny_weights
):
    other, words = (
        tmp_path / 'other.safetensors',
        (bench.two, '--seeds', 1, '--only', 'the sgd*', '--dry_run'),
    )
    other.write_bytes(Path(tiny_weights).read_bytes())
    assert bench(*words[:-1])[0] == 0
    assert bench(*words)[1] == '' != bench(*words, extra=['--n_epochs', 2])[1]
    assert (
        end_of(
            [str(other) if word == tiny_weights else word for word in bench.words(*words)], ['x']
        )
        == 0
    )
    assert begun(bench.calls()) == ['sgd 0']


def test_a_committed_row_counts_as_made_if_all_experiments_that_ask_for_the_run_have_it(
    bench, tmp_path
):
    """As in a clean clone: no results files, and rows of `report.py --collect`."""
    more, folder = bench.write('more', ('er', 'sgd')), tmp_path / 'rows'
    assert bench(bench.two, '--jobs', 1)[0] == 0
    made = [
        row
        for path in sorted((bench.base / 'results').rglob('mean_accs.csv'))
        for row in read_rows(path)
    ]
    rows = [
        row | {'row': f'the {row["model"]}/{row["model"]}', 'column': 'digits, |M| = 20'}
        for row in made
    ]
    (bench.base / 'results').rename(tmp_path / 'elsewhere')
    for name, kept in (('two', rows[:3]), ('more', rows[:1])):  # er 0, er 1, sgd 0 of 4; er 0
        for row in kept:
            append_row(folder, row, f'{name}.csv')

    def planned(*words):
        return sorted(
            (line.split('--model ')[1].split()[0], line.split('--seed ')[1])
            for line in bench(*words, '--dry_run')[1].splitlines()
        )

    assert planned(bench.two, '--rows', folder) == [('sgd', '1')]
    assert planned(bench.two, more, '--rows', folder) == [('er', '1'), ('sgd', '0'), ('sgd', '1')]
    assert (
        len(planned(bench.two, '--rows', 'none')) == len(planned(bench.two, '--rows', folder)) + 3
    )
    assert bench(bench.two, '--rows', folder)[1].startswith('4 runs, 3 of them finished')
    assert begun(bench.calls())[4:] == ['sgd 1']


def test_a_dry_run_prints_what_a_shell_can_run(bench):
    assert bench(bench.two, '--seeds', 1, '--only', 'the sgd/sgd/*')[0] == 0
    code, out, err = bench(bench.two, '--dry_run', '--jobs', 1, extra=['--notes', 'a "b" $c; d'])
    lines = out.splitlines()
    # the finished one is not among them
    assert (code, err, len(lines)) == (0, '', 3)
    assert begun(bench.calls()) == ['sgd 0']
    variable, interpreter, stub, *flags = shlex.split(lines[0])
    assert (interpreter, stub) == (sys.executable, str(bench.stub))
    assert variable.startswith('OMP_NUM_THREADS=')
    flags = dict(zip(flags[::2], flags[1::2]))
    assert flags['--model'] == 'er'
    assert flags['--notes'] == 'a "b" $c; d'
    assert flags['--seed'] == '0'
    assert subprocess.run(['bash', '-e'], input=lines[0], text=True, cwd='/').returncode == 0
    assert begun(bench.calls()) == ['sgd 0', 'er 0']
    assert bench(bench.two, '--dry_run')[1].count('main.py') == 2


def test_what_several_experiments_share_is_made_once(bench):
    more = bench.write('more', ('er', 'derpp', 'sgd'))
    same = bench.write('same', ('sgd',), n_epochs=50)  # the default, said aloud: the same run
    default = arguments(Cell('', '', {'model': 'sgd', 'dataset': 'seq-digits', 'lr': 0.1}, None))[
        0
    ].n_epochs
    same.write_text(same.read_text().replace('50', str(default)))
    lines = bench(bench.two, more, same, '--seeds', 1, '--dry_run')[1].splitlines()
    assert [line.split('--model ')[1].split()[0] for line in lines] == ['sgd', 'er', 'derpp']


def test_failed_runs_are_reported_and_the_others_go_on(bench):
    bench.wish(fail=['sgd'])
    code, out, err = bench(bench.two, '--seeds', 1, '--jobs', 1)
    assert code == 1
    assert begun(bench.calls()) == ['sgd 0', 'er 0']
    assert 'er/er, digits, |M| = 20, seed 0: 50.00 %' in out
    assert err.startswith(
        '[1/2] the sgd/sgd, digits, |M| = 20, seed 0: FAILED, exit code 3, no row: out of memory, poor sgd 0'
    )
    assert '-s0.log' in err
    bench.wish(rowless=['sgd'])
    code, _, err = bench(bench.two, '--seeds', 1, '--jobs', 1)
    # tried again; er is not
    assert code == 1
    assert 'exit code 0, no row: working' in err
    assert begun(bench.calls())[2:] == ['sgd 0']
    (log,) = (bench.base / 'sweeps' / 'two').glob('*sgd*')
    lines = log.read_text().splitlines()  # every try, with its command
    assert [line for line in lines if not line.startswith('$')] == [
        'working',
        'out of memory, poor sgd 0',
        'working',
    ]
    assert len({line for line in lines if line.startswith('$')}) == 1
    assert shlex.split(lines[0])[1:3] == [sys.executable, str(bench.stub)]


def test_other_commands_of_an_experiment_are_called(bench, tmp_path, capfd):
    figure = tmp_path / 'figure.yaml'
    figure.write_text(
        yaml.safe_dump({'title': 't', 'commands': ['-c "print(6 * 7)"', '-c "exit(3)"']})
    )
    assert bench(figure)[:2] == (1, '42\n')
    assert 'print(6 * 7)' in bench(figure, '--dry_run')[1]


def test_a_cell_that_main_py_refuses_does_not_keep_others_from_running(bench):
    bad = bench.write('bad', ('sgd', 'agem'))
    code, _, err = bench(bad, '--seeds', 1, extra=['--minibatch_size', 5])  # sgd has no buffer
    assert code == 1
    assert begun(bench.calls()) == ['agem 0']
    assert 'the sgd/sgd, digits, |M| = 20: main.py refuses it' in err
    assert '--minibatch_size' in err
    # for all seeds
    assert (
        bench(bad, '--dry_run', '--seeds', 3, extra=['--minibatch_size', 5])[2].count('refuses it')
        == 1
    )


@pytest.mark.parametrize(
    'words, said',
    [
        (['--no_such', '1'], '--no_such'),
        (['--extra', 'lr', '.1'], 'lr'),
        (['--extra', '--', '--seed', '3'], '--seeds'),
        (['--extra', '--', '--num_threads', 'many'], '--num_threads many'),
        (['--extra', '--', '--no_such_flag', '1'], '--no_such_flag'),
        (['--only', 'nothing'], 'nothing'),
        (['--seeds', '0'], 'too small'),
        (['missing.yaml'], 'missing.yaml'),
    ],
)
def test_what_the_user_can_mend_ends_in_one_line_before_anything_runs(bench, words, said, capfd):
    assert end_of([str(bench.two), *words], ['x']) == 2
    out, err = capfd.readouterr()
    assert said in err
    assert 'Traceback' not in err
    assert out == ''


def test_a_signal_ends_the_runs_and_says_how_to_go_on(bench):
    (bench.base / 'hold').touch()

    def stop():
        while len(bench.calls()) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    code, _, err = bench(bench.two, '--jobs', 2)
    assert code == 143
    assert '0 of 4 runs were made' in err
    assert 'the same command resumes' in err
    (bench.base / 'hold').unlink()
    time.sleep(0.2)
    assert [call[0] for call in bench.calls()] == ['begin'] * 2  # nobody came to an end later


def test_gpus_are_shared_out_evenly_and_cores_are_used_up(bench, monkeypatch):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(8)), raising=False)
    bench.wish(seconds=0.5)
    assert bench(bench.two, '--gpus', '3,7,3,7')[0] == 0
    assert sorted(call[3] for call in bench.calls() if call[0] == 'begin') == ['3', '3', '7', '7']
    assert {tuple(call[4:]) for call in bench.calls()} == {('2', '2')}  # 8 cores, 4 places


@pytest.mark.parametrize(
    'words, threads, expected',
    [
        ((), None, (8, 1)),
        ((), '3', (2, 3)),
        (('--gpus', '0,0,0,1,1', '--jobs', '4'), None, (4, 2)),
        (('--gpus', '0', '--jobs', '2'), None, (1, 8)),
    ],
)
def test_runs_times_threads_are_the_cores(monkeypatch, words, threads, expected):
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(8)), raising=False)
    options, extra = sweep.parse_args(
        ['x.yaml', *words, *(['--extra', '--num_threads', threads] if threads else [])]
    )
    places, threads = sweep.shares(options, extra)
    assert (len(places), threads) == expected


@pytest.mark.slow
def test_a_sweep_over_a_real_run(bench, tiny_weights):
    experiment = bench.write('real', ['er-ace'], n_epochs=1, schedule='gaussian:sigma=2')
    words = [
        'scripts/sweep.py',
        experiment,
        '--seeds',
        1,
        '--extra',
        '--',
        '--base_path',
        bench.base,
        '--weights',
        tiny_weights,
        '--device',
        'cpu',
    ]
    first = python(*words, cwd=ROOT)
    assert first.returncode == 0, first.stderr
    (row,) = read_rows(
        bench.base / 'results' / 'general-continual' / 'seq-digits' / 'er-ace' / 'mean_accs.csv'
    )
    assert (
        f'the er-ace/er-ace, digits, |M| = 20, seed 0: {float(row["final_accuracy"]):.2f} %'
        in first.stdout
    )
    assert python(*words, cwd=ROOT).stdout == '1 runs, 1 of them finished\n'
    log = next((bench.base / 'sweeps' / 'real').glob('*er-ace*')).read_text()
    assert 'Summary' in log
