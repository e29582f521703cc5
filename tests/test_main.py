"""The command line: exit codes, one line for whatever a user got wrong, nothing half-written."""
import shutil

import pandas
import pytest
import safetensors.torch

import main
from bench.cli.parsing import parse_args
from datasets.utils import readers
from tests.conftest import ROOT, files_below, python, save_tiny

FEW = ['--model_config', 'base', '--iterations', '2', '--buffer_size', '20']


@pytest.fixture
def fails(command_line, tiny_weights, tmp_path):
    """fails(*flags): the one line on stderr of a SCROLL run on the digits that must end with exit code 2 and leave no file."""
    def run(*flags, base=tmp_path / 'base'):
        given = {word.split('=')[0] for word in map(str, flags)}
        fixed = {'--model': 'scroll', '--dataset': 'seq-digits', '--weights': tiny_weights, '--base_path': base}
        code, out, err = command_line(*(word for flag, value in fixed.items() if flag not in given for word in (flag, value)), *flags)
        assert code == 2 and out == '', (code, out, err)
        assert len(err.splitlines()) == 1 and err.startswith('main.py: error: ') and err.endswith('\n'), err
        assert not files_below(tmp_path / 'base')
        return err
    return run


@pytest.mark.parametrize('flags, words', [
    (['--model', 'scrol'], ['--model scrol', 'did you mean', 'scroll']),
    (['--model', 'zzz'], ['--model zzz', 'known:', 'sgd']),
    (['--model', '../scroll'], ['--model ../scroll']), (['--dataset', 'seq-digit'], ['--dataset seq-digit', 'did you mean seq-digits']),
    (['--backbone', 'vit'], ['--backbone vit', 'resnet18']), (['--bufer_size', '3'], ['--bufer_size', 'did you mean --buffer_size?']),
    (['--seed', '1', '--seed', '2'], ['--seed is given 2 times']), (['--n_splits', '11'], ['--n_splits 11', '10 classes', '1..10']),
    (['--n_splits', 'many'], ['--n_splits', 'many', 'whole number']), (['--buffer_size', '-1'], ['--buffer_size', '-1', 'at least 0']),
    (['--ridge_lambda', '0'], ['--ridge_lambda', 'number from']), (['--predictor', 'svm'], ['--predictor', 'ridge', 'ncc']),
    (['--schedule', 'gauss'], ['--schedule', "'gauss'", 'gaussian']), (['--schedule', 'split:5\nbatch=3'], ['schedule']),
    (['--schedule', 'iid', '--n_splits', '3'], ['--n_splits and --schedule']), (['--weights', 'no-such'], ['--weights no-such', "'none'"]),
    (['--weights', 'none', '--width', '0'], ['width', '0']), (['--dataset_config', 'nope'], ['--dataset_config nope']),
    (['--device', '99'], ['--device 99', 'use cpu']), (['--dataset', 'seq-folder'], ['--data_dir is missing']),
    (['--dataset', 'seq-folder', '--data_dir', '/nonexistent'], ['/nonexistent', 'train/<class>/']),
    (['--dataset', 'seq-miniimg'], ['MINIIMAGENET', 'mini-imagenet-cache-test.pkl']), (['--n_epochs', '5'], ['--n_epochs 5']),
    (['--model', 'sgd', '--model_config', 'base'], ['--lr is missing', 'learning rate']),
    (['--model', 'sgd', '--lr', '0.1', '--optim_nesterov', '1'], ['optim_nesterov', 'optim_mom']),
    (['--model', 'sgd', '--lr', '0.1', '--alpha', '5'], ['--alpha', 'no such flag']),
], ids=lambda value: ' '.join(value).replace('\n', ' ') if value and value[0].startswith('--') else '')
def test_what_a_user_gets_wrong_is_one_line(fails, flags, words):
    line = fails(*flags)
    assert not [word for word in words if word not in line], line


@pytest.mark.parametrize('words, expected', [([], '--model is missing; models: '), (['--model', 'sgd'], '--dataset is missing; datasets: ')])
def test_without_model_or_data_set_those_there_are_get_listed(command_line, words, expected):
    code, out, err = command_line(*words)
    assert (code, out, len(err.splitlines())) == (2, '', 1) and expected in err
    assert 'scroll' in err or 'seq-digits' in err


@pytest.mark.parametrize('damage', ['truncated', 'text', 'empty', 'other width', 'no tensors', 'not finite'])
def test_weights_that_cannot_be_used(fails, tmp_path, tiny_weights, damage):
    path = tmp_path / 'w.safetensors'
    shutil.copy(tiny_weights, path)
    flags = []
    if damage == 'truncated':
        path.write_bytes(path.read_bytes()[:-100])
    elif damage in ('text', 'empty'):
        path.write_text('nothing of the kind\n' if damage == 'text' else '')
    elif damage == 'other width':
        save_tiny(path, width=8)
        flags = ['--width', '4']
    else:
        with safetensors.safe_open(path, 'pt') as file:
            metadata = file.metadata()
        tensors = {} if damage == 'no tensors' else safetensors.torch.load_file(path)
        if tensors:
            tensors['conv1.weight'][0, 0, 0, 0] = float('nan')
        safetensors.torch.save_file(tensors, path, metadata)
    assert f'--weights {path}' in fails('--weights', path, *flags)


def test_a_results_folder_that_cannot_be_is_told_before_the_data_are_read(fails, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('in the way')
    monkeypatch.setattr(readers, 'digits', None)                # nobody may come that far
    line = fails(base=tmp_path / 'file' / 'below')
    assert str(tmp_path / 'file' / 'below') in line and '--disable_log 1' in line
    assert (tmp_path / 'file').read_text() == 'in the way'


def test_interrupting_writes_no_row(command_line, tiny_weights, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr('models.scroll.ScrollModel.end_task', interrupt)
    code, _, err = command_line('--model', 'scroll', '--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', tmp_path, *FEW)
    assert code == 130 and 'interrupted' in err and len(err.splitlines()) == 1
    assert not [p for p in files_below(tmp_path) if p.suffix in ('.csv', '.part', '.png')]


@pytest.mark.parametrize('asked', ['--help', '--help_all'])
@pytest.mark.parametrize('chosen', [[], ['--model', 'scroll', '--dataset', 'seq-digits']])
def test_help_ends_well_and_knows_the_flags_of_what_is_chosen(tiny_weights, capsys, chosen, asked):
    with pytest.raises(SystemExit) as end:
        parse_args([*chosen, asked, *(['--weights', tiny_weights] if chosen else [])])
    out = capsys.readouterr().out
    assert end.value.code in (0, None) and out.startswith('usage: main.py') and '--weights' in out and '--help_all' in out
    assert chosen or all(name in out for name in ('scroll', 'sgd', 'seq-digits', 'seq-cifar100', 'resnet18'))
    assert ('--ridge_lambda' in out and '--n_splits' in out and '--stem_padding' in out) == bool(chosen)
    assert ('--permute_classes' in out) == (asked == '--help_all') == (len(out.splitlines()) > 105)


def test_from_python_a_refused_run_raises_with_its_code(monkeypatch, capsys):
    monkeypatch.setattr(main.sys, 'argv', ['main.py', '--model', 'sgd', '--dataset', 'seq-digits', '--lr', '-1'])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2 and '--lr' in capsys.readouterr().err


@pytest.mark.slow
def test_a_whole_run_from_another_folder_twice(tiny_weights, tmp_path):
    """As a user does it: a fresh process, a working directory elsewhere, relative paths; and once more."""
    for _ in range(2):
        result = python(ROOT / 'main.py', '--model', 'scroll', '--dataset', 'seq_digits', '--n_splits', '3', '--weights', tiny_weights,
                        '--adapt_select', 'none', '--base_path', 'here', '--notes', 'a, "b"\n\u00fc', '--num_threads', '1', '--non_verbose', '1', *FEW, cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, '')
    assert result.stdout.count('Accuracy for') == 3 and 'Summary' in result.stdout
    home = tmp_path / 'here' / 'results'
    for setting in ('class-il', 'task-il'):
        table = pandas.read_csv(home / setting / 'seq-digits' / 'scroll' / 'mean_accs.csv')
        assert len(table) == 2 and table.columns[:3].tolist() == ['task1', 'task2', 'task3']
        assert table['notes'].tolist() == ['a, "b"\n\u00fc'] * 2 and table['task3'].nunique() == 1
        assert str(home / setting / 'seq-digits' / 'scroll' / 'mean_accs.csv').removeprefix(f'{tmp_path}/') in result.stdout
    table = pandas.read_csv(home / 'class-il' / 'seq-digits' / 'scroll' / 'mean_accs.csv')
    for name in ('statistics_digest', 'online_digest', 'buffer_digest', 'adapted_digest', 'schedule_digest'):
        assert table[name].nunique() == 1 and table[name].str.len().eq(64).all()
    assert table['run'].nunique() == 2
    assert {p.name for p in tmp_path.iterdir()} == {'here'}
