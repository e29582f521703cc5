"""Models as files: what a run keeps with `--savecheck`, and how another begins with it."""
import argparse

import pytest
import torch

import main
from tests.conftest import files_below, refused
from tests.models.conftest import few_digits  # noqa: F401
from tests.models.test_contract import QUICK, known_flags, predictions
from tests.test_resume import different, rows_below, the_end
from utils import plots, run_state, saved_models
from utils.training import train

pytestmark = pytest.mark.usefixtures('few_digits')


@pytest.fixture
def run(parse, tmp_path, monkeypatch):
    """run(method, *flags): (model, data set, row) of a whole run; its files are in `tmp_path / 'kept'`."""
    monkeypatch.setattr(plots, 'accuracy_curve', lambda path, *given: path)

    def whole(method, *flags, folder='run'):
        words = [*QUICK.get(method, []), '--n_splits', '3', '--batch_size', '16', *flags]
        if '--buffer_size' in known_flags(method) and '--buffer_size' not in words and '--loadcheck' not in words:
            words += ['--buffer_size', '25']
        if '--savecheck' in words:
            words += ['--checkpoint_path', tmp_path / 'kept']
        model, dataset, args = main.initialize(parse(method, *words, '--disable_log', '0', base_path=tmp_path / folder))
        return model, dataset, train(model, dataset, args)
    return whole


def kept(tmp_path) -> list:
    return sorted(files_below(tmp_path / 'kept'), key=lambda path: path.stat().st_mtime_ns)


def test_the_file_is_mammoths_and_holds_no_code(run, tmp_path):
    model, _, row = run('er', '--savecheck', 'last', '--ckpt_name', 'mine', '--n_epochs', '1')
    [path] = kept(tmp_path)
    day, time, name = row['run'].split('-')
    assert path.name == f'mine_er_seq-digits_None_25_1_{day}-{time}_{name}_last.pt'
    content = torch.load(path, weights_only=True)
    assert set(content) == {'model', 'optimizer', 'args', 'results', 'buffer', 'run'} and content['args']['lr'] == row['lr']
    assert list(content['model']) == list(model.state_dict()) and len(content['results'][0]) == 3
    assert len(content['buffer']['examples']) == 25


@pytest.mark.parametrize('method', ['derpp', 'icarl', 'scroll'])
def test_from_the_middle_on_the_run_ends_with_the_same_bits(run, tmp_path, method):
    """Also of a stream that is given as a whole: its accuracies before are in the row."""
    model, _, row = run(method, '--savecheck', 'task')
    whole, files = the_end(model, row), kept(tmp_path)
    assert [path.stem.rpartition('_')[2] for path in files] == ['0', '1', '2']
    model, _, row = run(method, '--loadcheck', files[0], '--start_from', '1', folder='later')
    later = the_end(model, row)
    for part in (whole, later):
        for name in ('start_from', 'loadcheck', 'savecheck', 'checkpoint_path'):
            part['row'].pop(name)
    assert not different(whole, later)
    assert [len(rows) for rows in rows_below(tmp_path / 'later')] == [1, 1]


@pytest.mark.parametrize('method', ['bic', 'ens', 'gdumb', 'icarl', 'lwf', 'scroll', 'ssil'])
def test_a_file_alone_predicts_as_its_run_did(run, tmp_path, method):
    model, dataset, row = run(method, '--savecheck', 'last')
    again, data, measured = run(method, '--loadcheck', *kept(tmp_path), '--inference_only', '1', folder='later')
    assert torch.equal(predictions(model, dataset), predictions(again, data))
    assert measured['accuracy_per_task'] == row['accuracy_per_task']


@pytest.mark.parametrize('method', ['er', 'ssil'])
def test_weights_and_buffer_are_where_another_run_begins(run, tmp_path, method):
    """A teacher, which is in the file of `ssil` and not in a new run, is made anew."""
    model, _, _ = run(method, '--savecheck', 'last', '--n_epochs', '1')
    args = main.parse_args(['--model', method, '--loadcheck', str(kept(tmp_path)[0]), '--base_path', str(tmp_path)])
    again, dataset, args = main.initialize(args)
    saved_models.load(run_state.RunState(again, dataset, args), args)
    assert all(torch.equal(a, b) for a, b in zip(model.net.state_dict().values(), again.net.state_dict().values()))
    assert torch.equal(model.buffer.examples, again.buffer.examples) and torch.equal(model.buffer.labels, again.buffer.labels)


def test_a_file_of_mammoth(run, tmp_path):
    """Its names, its namespace of arguments, its float images; and a bare network, whose classifier is another one's."""
    model, _, _ = run('er')
    tensors = {name.replace('.downsample.', '.shortcut.'): tensor + 1 for name, tensor in model.state_dict().items()}
    images = torch.rand(20, 3, 8, 8)
    theirs = tmp_path / 'theirs.pt'
    torch.save(dict(model=tensors, optimizer=None, args=argparse.Namespace(model='er', dataset='seq-digits', lr=0.25),
                    results=[[], [], {}], buffer=dict(examples=images, labels=torch.arange(20) % 10)), theirs)
    assert saved_models.saved_args(theirs) == dict(model='er', dataset='seq-digits', lr=0.25)
    again, _, row = run('er', '--loadcheck', theirs, '--n_epochs', '0', '--buffer_size', '25', folder='later')
    assert row['lr'] == 0.25 and all(torch.equal(a, b) for a, b in zip(tensors.values(), again.state_dict().values()))
    assert torch.equal(again.buffer.examples[:20], (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1))
    bare = tmp_path / 'bare.pt'
    torch.save({name.removeprefix('net.'): tensor for name, tensor in tensors.items()}, bare)
    again, _, _ = run('sgd', '--loadcheck', bare, '--n_epochs', '0', '--lr', '0.1', folder='bare')
    assert torch.equal(again.net.conv1.weight, tensors['net.conv1.weight'])
    assert not torch.equal(again.net.classifier.weight, tensors['net.classifier.weight'])


def test_what_does_not_fit_is_named(run, tmp_path):
    run('er', '--savecheck', 'task', '--n_epochs', '1')
    first, *_, last = kept(tmp_path)
    with refused('after task 1', '--start_from 1'):
        run('er', '--loadcheck', first, '--start_from', '2')
    with refused('--seed'):
        run('er', '--loadcheck', first, '--start_from', '1', '--seed', '7')
    with refused('25 samples', '--buffer_size is 10'):
        run('er', '--loadcheck', last, '--buffer_size', '10')
    content = torch.load(last, weights_only=True)
    content['model']['net.conv1.weight'] = torch.zeros(2, 2)
    content['model'].pop('net.classifier.bias')
    torch.save(content, last)
    with refused('net.conv1.weight is (2, 2)', 'net.classifier.bias is missing'):
        run('er', '--loadcheck', last)
    with refused('no such file'):
        run('er', '--loadcheck', tmp_path / 'nothing.pt')
