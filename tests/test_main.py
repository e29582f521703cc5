"""The command line: exit codes, one line for whatever a user got wrong, nothing half-written."""

import pandas
import pytest

import main
from bench.cli.parsing import parse_args
from tests.conftest import ROOT, python, words_of

FEW = '--model_config base --iterations 2 --buffer_size 20'


@pytest.mark.parametrize(
    'words, expected',
    [([], '--model is missing; models: '), (['--model sgd'], '--dataset is missing; datasets: ')],
)
def test_without_model_or_data_set_those_there_are_get_listed(command_line, words, expected):
    code, out, err = command_line(*words)
    assert (code, out, len(err.splitlines())) == (2, '', 1)
    assert expected in err
    assert 'scroll' in err or 'seq-digits' in err


@pytest.mark.parametrize('asked', ['--help', '--help_all'])
@pytest.mark.parametrize('chosen', [[], ['--model', 'scroll', '--dataset', 'seq-digits']])
def test_help_ends_well_and_knows_the_flags_of_what_is_chosen(tiny_weights, capsys, chosen, asked):
    with pytest.raises(SystemExit) as end:
        parse_args([*chosen, asked, *(['--weights', tiny_weights] if chosen else [])])
    out = capsys.readouterr().out
    assert end.value.code in (0, None)
    assert out.startswith('usage: main.py')
    assert '--weights' in out
    assert '--help_all' in out
    assert chosen or all(
        name in out for name in ('scroll', 'sgd', 'seq-digits', 'seq-cifar100', 'resnet18')
    )
    assert ('--ridge_lambda' in out and '--n_splits' in out and '--stem_padding' in out) == bool(
        chosen
    )
    assert ('--permute_classes' in out) == (asked == '--help_all') == (len(out.splitlines()) > 130)


def test_from_python_a_refused_run_raises_with_its_code(monkeypatch, capsys):
    words = 'main.py --model sgd --dataset seq-digits --lr -1'
    monkeypatch.setattr(main.sys, 'argv', words.split())
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2
    assert '--lr' in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_run_from_another_folder_twice(tiny_weights, tmp_path):
    """Do as a user does: a fresh process, a working directory elsewhere, relative paths; and once
    more.
    """
    for _ in range(2):
        result = python(
            ROOT / 'main.py',
            *words_of('--model scroll --dataset seq_digits --n_splits 3'),
            *words_of('--base_path here --num_threads 1 --non_verbose 1', FEW, '--weights'),
            tiny_weights,
            '--notes',
            'a, "b"\n\u00fc',
            cwd=tmp_path,
        )
        assert (result.returncode, result.stderr) == (0, '')
    assert result.stdout.count('Accuracy for') == 3
    assert 'Summary' in result.stdout
    home = tmp_path / 'here' / 'results'
    for setting in ('class-il', 'task-il'):
        table = pandas.read_csv(home / setting / 'seq-digits' / 'scroll' / 'mean_accs.csv')
        assert len(table) == 2
        assert table.columns[:3].tolist() == ['task1', 'task2', 'task3']
        assert table['notes'].tolist() == ['a, "b"\n\u00fc'] * 2
        assert table['task3'].nunique() == 1
        assert f'here/results/{setting}/seq-digits/scroll/mean_accs.csv' in result.stdout
    table = pandas.read_csv(home / 'class-il' / 'seq-digits' / 'scroll' / 'mean_accs.csv')
    for name in ('statistics', 'online', 'buffer', 'adapted', 'schedule'):
        digests = table[f'{name}_digest']
        assert digests.nunique() == 1
        assert digests.str.len().eq(64).all()
    assert table['run'].nunique() == 2
    pictures = {p.stem for p in home.rglob('*.svg')}
    assert pictures == set(table['run'])
    assert f'{table["run"].iloc[-1]}.svg' in result.stdout
    assert {p.name for p in tmp_path.iterdir()} == {'here'}
