"""How a run is started: from the root, through the older path, from Python; and what importing does
not do.
"""

import io
import json
import os
import subprocess
import sys

import pytest

from backbone import PLUGINS
from bench.cli.parsing import parse_args
from core.plugins import SHIPPED, keyword_flags
from scroll.commands.ending import flushed
from tests.conftest import ROOT, files_below, python, words_of

QUICK = '--model sgd --dataset seq-digits --lr 0.1 --n_epochs 0 --non_verbose --n_splits 1'


@pytest.mark.parametrize('module', ['scroll', 'scroll.__main__', 'main'])
def test_on_windows_the_last_line_says_what_is_needed(module):
    code = (
        "import os, sys; os.name = 'nt'; sys.modules['fcntl'] = "
        f"sys.modules['resource'] = None; import {module}"
    )
    result = python('-c', code, cwd=ROOT)
    assert result.returncode == 1, result.stderr
    assert result.stderr.splitlines()[-1] == (
        'ImportError: scroll runs on Linux, macOS and other POSIX systems; on Windows use WSL'
    ), result.stderr


@pytest.mark.parametrize(
    'module, policy', [('main', ''), ('scroll.__main__', ''), ('main', 'active')]
)
def test_threads_do_not_spin_for_cores_that_others_hold(module, policy):
    """GNU OpenMP's own value, 300,000, stopped a run where one core of two was held."""
    env = {name: value for name, value in os.environ.items() if 'OMP' not in name}
    env |= {'OMP_DISPLAY_ENV': 'verbose', **({'OMP_WAIT_POLICY': policy} if policy else {})}
    said = python('-c', f'import {module}, torch', cwd=ROOT, env=env).stderr
    if 'GOMP_SPINCOUNT' not in said:
        pytest.skip('another OpenMP')
    assert ("GOMP_SPINCOUNT = '5000'" in said) == (not policy)


@pytest.mark.slow
def test_mammoths_path_runs_from_anywhere_and_writes_nothing_if_asked(tiny_weights, tmp_path):
    words = words_of(QUICK, '--disable_log 1 --device cpu --weights', tiny_weights)
    result = python(ROOT / 'utils/main.py', *words, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, ''), result.stderr
    assert 'Accuracy for 1 task(s)' in result.stdout
    assert not files_below(tmp_path)


@pytest.mark.parametrize(
    'words, heavy',
    [
        ('--help', ('torch', 'numpy', 'scipy', 'models', 'datasets', 'backbone')),
        *(
            pytest.param(
                f'--model {method} --dataset seq-digits --weights WEIGHTS --device cpu '
                '--disable_log 1 --debug_mode 1 --n_splits 1',
                ('torchvision', 'torch._dynamo', 'sympy'),
                marks=pytest.mark.slow,
            )
            for method in ('er --buffer_size 9 --lr 0.1', 'scroll')
        ),
    ],
)
def test_starting_waits_for_no_library_that_is_not_needed(tiny_weights, tmp_path, words, heavy):
    """torch takes seconds to import, torchvision and torch's compiler one or two more each: a run
    trains and evaluates without them."""
    code = (
        'import sys\nfrom bench.cli.command import main\n'
        'try:\n    main()\n'
        f'finally:\n    print([name for name in {heavy!r} if name in sys.modules], '
        'file=sys.stderr)'
    )
    result = python(
        '-c',
        f'import sys; sys.path.insert(0, {str(ROOT)!r})\n' + code,
        *words.replace('WEIGHTS', tiny_weights).split(),
        cwd=tmp_path,
    )
    assert result.stderr.splitlines()[-1] == '[]', result.stderr


@pytest.mark.parametrize(
    'words, answer',
    [
        ('--dataset seq-digits --model er --wrong 3', '--wrong: no such flag here'),
        ('--dataset seq-digits --model er --bufer_size=9', 'did you mean --buffer_size?'),
        ('--dataset seq-digits --model er --buffer_size x', "--buffer_size: 'x': expected a whole"),
        ('--dataset seq-digits --model er --lr x', "--lr: 'x': expected a number"),
        ('--dataset seq-digits --model der --alpah 3', 'did you mean --alpha?'),
        ('--dataset seq-digits --model scroll --n-splits 3', 'did you mean --n_splits?'),
        ('--dataset seq-digits --model sclol', 'no such model'),
    ],
)
def test_what_is_wrong_is_refused_before_torch_is_imported(words, answer, tmp_path):
    code = (
        f'import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom main import main\n'
        'try:\n    main()\nfinally:\n    print("torch" in sys.modules)'
    )
    result = python('-c', code, *words.split(), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, 'False\n')
    assert answer in result.stderr


def test_the_flags_of_all_plug_ins_are_those_of_the_file():
    """core/flags.json: a misspelt one is refused by it, before torch is imported."""
    runs = [('er', data) for data in SHIPPED['datasets'] if data != 'seq_features']
    runs += [('sgd', 'seq_features'), *((model, 'seq_digits') for model in SHIPPED['models'])]
    flags = {f'--{name}' for net in PLUGINS.names() for name in keyword_flags(PLUGINS.get(net))}
    for model, data in runs:
        words = ['--model', model, '--dataset', data]
        flags.update(parse_args(words, True)._option_string_actions)
    flags = {flag for flag in flags if flag.startswith('--')}
    assert json.loads((ROOT / 'core/flags.json').read_text()) == sorted(flags)


@pytest.mark.parametrize(
    'module, light',
    [
        ('core.arguments', True),
        ('main', True),
        ('bench', True),
        ('models', True),
        ('datasets', True),
        ('models.utils.continual_model', False),
        ('bench.run.training', False),
    ],
)
def test_importing_does_no_work(tmp_path, module, light):
    """It stays in the working directory, and what parses arguments leaves torch alone."""
    code = (
        f'import os, sys; sys.path.insert(0, {str(ROOT)!r}); before = os.getcwd(); '
        f'import {module}\n'
        'assert os.getcwd() == before\nprint("torch" in sys.modules)'
    )
    result = python('-c', code, cwd=tmp_path)
    assert result.stdout.strip() == str(not light), result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    'words',
    [
        'main.py --model scroll --dataset seq-digits',
        'scripts/certify.py --dataset seq-digits',
        'scripts/sweep.py x.yaml --dataset seq-digits',
        '-m scroll show x.npz',
    ],
)
def test_a_python_without_the_packages_says_which_has_them(words):
    result = python('-S', *words.split(), cwd=ROOT)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert f'is not installed for {sys.executable}: pip install ' in result.stderr


@pytest.mark.parametrize('words', ['main.py', '-m scroll', '-m scroll learn', 'scripts/report.py'])
@pytest.mark.parametrize('output', ['>/dev/full', '>&-', '>&- 2>&-'])
def test_help_that_cannot_be_written_is_an_error(words, output):
    result = subprocess.run(
        f'{sys.executable} {words} --help {output}',
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, '')
    assert len(result.stderr.splitlines()) == ('2>&-' not in output)


def test_a_path_that_the_terminal_cannot_show_is_written_all_the_same(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr('sys.stdout', io.TextIOWrapper(written, 'ascii', errors='strict'))
    assert flushed('x', lambda: print('d\udcff, f*: ü') or 0) == 0
    assert written.getvalue() == b'd\\udcff, f*: \\xfc\n'
