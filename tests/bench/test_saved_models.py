"""Models as files: what a run keeps with `--savecheck`, and how another begins with it."""

import argparse
import json

import pytest
import torch

from backbone import get_backbone
from bench.cli.parsing import parse_args
from bench.resume import run_state, saved_models
from bench.run.building import initialize
from bench.run.training import train
from scroll.sums.statistics import Statistics
from tests.bench.test_model_state import different
from tests.conftest import files_below, refused, words_of
from tests.models.test_contract import QUICK, known_flags, predictions
from tests.test_resume import full, rows_below, the_end

pytestmark = pytest.mark.usefixtures('small_digits')


@pytest.fixture
def run(parse, tmp_path):
    """run(method, *flags): (model, data set, row) of a whole run; its files are in `tmp_path /
    'kept'`.
    """

    def whole(method, *flags, folder='run'):
        words = words_of(QUICK.get(method, ''), '--disable_log 0', *flags)
        usual = {'n_splits': 3, 'batch_size': 16, 'checkpoint_path': tmp_path / 'kept'}
        if '--buffer_size' in known_flags(method) and '--loadcheck' not in words:
            usual['buffer_size'] = 25
        model, dataset, args = initialize(
            parse(method, *words, base_path=tmp_path / folder, **usual)
        )
        return model, dataset, train(model, dataset, args)

    return whole


def kept(tmp_path) -> list:
    return sorted(files_below(tmp_path / 'kept'), key=lambda path: path.stat().st_mtime_ns)


def test_the_file_is_mammoths_and_holds_no_code(run, tmp_path, caplog):
    """The log says where it lies, and what run it is of, as scripts for Mammoth look for it."""
    caplog.set_level('DEBUG')
    model, _, row = run(
        'er',
        (
            '--savecheck last --ckpt_name mine --n_epochs 2 --lr_scheduler multisteplr '
            '--lr_milestones 1'
        ),
    )
    [path] = kept(tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert f'Saving checkpoint into: {path.stem.removesuffix("_last")}' in said
    assert f'Using backbone: {row["backbone"]}' in said
    assert any(line.startswith('Namespace(') and "model='er'" in line for line in said)
    day, time, name = row['run'].split('-')
    assert path.name == f'mine_er_seq-digits_None_25_2_{day}-{time}_{name}_last.pt'
    content = torch.load(path, weights_only=True)
    assert content['scheduler']['milestones'] == {1: 1}
    assert content['scheduler']['last_epoch'] == 2
    assert set(content) == {'model', 'optimizer', 'scheduler', 'args', 'results', 'buffer', 'run'}
    assert content['args']['lr'] == row['lr']
    assert list(content['model']) == list(model.state_dict())
    assert len(content['results'][0]) == 3
    assert len(content['buffer']['examples']) == 25


@pytest.mark.parametrize('method', ['icarl', 'scroll'])
def test_from_the_middle_on_the_run_ends_with_the_same_bits(run, tmp_path, method):
    """Also of a stream that is given as a whole: its accuracies before are in the row. A file of
    the end predicts as its run did.
    """
    model, dataset, row = run(method, '--savecheck task')
    whole = the_end(model, row)
    files = kept(tmp_path)
    assert [path.stem.rpartition('_')[2] for path in files] == ['0', '1', '2']
    again, _, second = run(method, '--loadcheck', files[0], '--start_from 1', folder='later')
    later = the_end(again, second)
    for part in (whole, later):
        for name in ('start_from', 'loadcheck', 'savecheck', 'checkpoint_path'):
            part['row'].pop(name)
    assert not different(whole, later)
    assert [len(rows) for rows in rows_below(tmp_path / 'later')] == [1, 1]
    again, data, measured = run(
        method, '--loadcheck', files[2], '--inference_only 1', folder='alone'
    )
    assert torch.equal(predictions(model, dataset), predictions(again, data))
    assert measured['accuracy_matrix'] == row['accuracy_matrix']
    assert (row['complete'], measured['complete']) == (1, 0)


def test_weights_and_buffer_are_where_another_run_begins(run, tmp_path):
    """A teacher, which is in the file of `ssil` and not in a new run, is made again."""
    model, _, _ = run('ssil', '--savecheck last --n_epochs 1')
    args = parse_args(
        words_of('--model ssil --loadcheck', kept(tmp_path)[0], '--base_path', tmp_path)
    )
    again, dataset, args = initialize(args)
    saved_models.load(run_state.RunState(again, dataset, args), args)
    assert all(map(torch.equal, model.net.state_dict().values(), again.net.state_dict().values()))
    assert torch.equal(model.buffer.examples, again.buffer.examples)
    assert torch.equal(model.buffer.labels, again.buffer.labels)


def test_what_ens_learned_is_in_its_file(run, tmp_path):
    model, _, row = run('ens', '--savecheck last')
    again, _, other = run('ens', '--lr 0 --n_splits 1 --loadcheck', kept(tmp_path)[0])
    assert torch.equal(again.weight, model.weight)
    assert other['final_accuracy'] == row['final_accuracy']


def test_scroll_begins_with_no_file(run, tmp_path):
    run('scroll', '--savecheck last')
    with refused('--loadcheck', '--start_from', '--inference_only 1'):
        run('scroll', '--loadcheck', kept(tmp_path)[0])


def test_a_loaded_run_may_have_another_stream(run, tmp_path):
    run('sgd', '--savecheck last --n_epochs 0')
    words = words_of('--model sgd --base_path', tmp_path, '--loadcheck', kept(tmp_path)[0])
    assert parse_args(words).n_splits == 3
    for cut in ('--schedule iid,batch=10', '--inc 5', '--joint 1'):
        assert parse_args([*words, *cut.split()]).n_splits != 3


def save_as_mammoth(path, tensors, arguments, results=((), (), {})):
    """Write a file as Mammoth does; returns the images of its buffer, two of each class."""
    images = torch.rand(20, 3, 8, 8)
    buffer = {'examples': images, 'labels': torch.arange(20) % 10}
    content = {'model': tensors, 'optimizer': None, 'args': arguments, 'buffer': buffer}
    torch.save(content | {'results': list(results)}, path)
    return images


def test_a_file_of_mammoth(run, tmp_path):
    """Its names, its namespace of arguments, its float images."""
    model, _, _ = run('er', '--n_epochs 0')
    tensors = {'classes_so_far': torch.arange(3)} | {
        name: tensor + 1 for name, tensor in model.state_dict().items()
    }
    theirs = tmp_path / 'theirs.pt'
    arguments = argparse.Namespace(model='er', dataset='seq-digits', lr=0.25)
    images = save_as_mammoth(theirs, tensors, arguments)
    again, _, row = run(
        'er', '--loadcheck', theirs, '--n_epochs 0 --buffer_size 25', folder='later'
    )
    assert row['lr'] == 0.25
    assert all(map(torch.equal, tensors.values(), again.state_dict().values()))
    assert torch.equal(
        again.buffer.examples[:20], (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    )


def test_without_its_run_a_file_is_loaded_when_earlier_tasks_have_ended(run, tmp_path):
    """iCaRL fills its buffer at the ends of tasks."""
    run('icarl', '--savecheck task')
    path = kept(tmp_path)[1]
    later = '--start_from 2 --n_epochs 0'
    exact, *_ = run('icarl', '--loadcheck', path, later)
    torch.save({**torch.load(path, weights_only=True), 'run': None}, path)
    again, *_ = run('icarl', '--loadcheck', path, later)
    assert torch.equal(exact.buffer.examples, again.buffer.examples)


def test_what_does_not_fit_is_named(run, tmp_path):
    run('er', '--savecheck task --n_epochs 1')
    first, *_, last = kept(tmp_path)
    with refused('after task 1', '--start_from 1'):
        run('er', '--loadcheck', first, '--start_from 2')
    with refused('--seed'):
        run('er', '--loadcheck', first, '--start_from 1 --seed 7')
    with refused('25 samples', '--buffer_size is 10'):
        run('er', '--loadcheck', last, '--buffer_size 10')
    for method in ('der', 'derpp', 'gem', 'agem'):
        with refused('examples, labels of each sample', method):
            run(method, '--loadcheck', last, '--n_epochs 1 --buffer_size 25')
    # whose first task has no exemplars
    run('bic', '--loadcheck', last, '--n_epochs 1 --buffer_size 25')
    content = torch.load(last, weights_only=True)
    content['model']['net.conv1.weight'] = torch.zeros(2, 2)
    content['model'].pop('net.classifier.bias')
    torch.save(content, last)
    with refused('net.conv1.weight', 'net.classifier.bias'):
        run('er', '--loadcheck', last)
    with refused('no such file'):
        run('er', '--loadcheck', tmp_path / 'nothing.pt')


ER = '--model er --lr 0.05 --buffer_size 25 --n_epochs 1'
SCROLL = '--model scroll --model_config base --adaptation none --buffer_size 25'


@pytest.fixture
def typed(command_line, tiny_weights, tmp_path):
    """typed(*flags): (exit code, stdout, stderr) of a run of three tasks on the digits."""

    def run(*flags):
        return command_line(
            '--dataset seq-digits --weights',
            tiny_weights,
            '--base_path',
            tmp_path / 'run',
            '--n_splits 3',
            '--non_verbose 1',
            *flags,
        )

    return run


def rows_of(tmp_path) -> list:
    return [len(rows) for rows in rows_below(tmp_path / 'run')]


@pytest.mark.parametrize(
    'flags, writer, name',
    [
        (f'{ER} --savecheck last --checkpoint_path', 'bench.resume.saved_models.write', 'kept'),
        (f'{SCROLL} --save_statistics', 'numpy.savez', 'x.npz'),
    ],
)
def test_on_a_full_disk_the_row_comes_first_and_the_same_command_writes_the_file(
    typed, tmp_path, monkeypatch, flags, writer, name
):
    with monkeypatch.context() as disk:
        disk.setattr(writer, full)
        code, out, err = typed(flags, tmp_path / 'full' / name)
    assert (code, len(err.splitlines()), rows_of(tmp_path)) == (2, 1, [1, 1])
    assert 'final accuracy' in out
    assert not files_below(tmp_path / 'full')
    assert 'cannot be written (No space left on device)' in err
    code, out, err = typed(flags, tmp_path / 'elsewhere' / name)
    assert (code, err, rows_of(tmp_path)) == (0, '', [1, 1])
    assert 'after task 3' in out
    assert not files_below(tmp_path / 'run' / 'unfinished')
    [late] = files_below(tmp_path / 'elsewhere')
    row = rows_below(tmp_path / 'run')[0][0]
    if name == 'x.npz':
        assert Statistics.load(late).digest() == row['statistics_digest']
        return
    content = torch.load(late, weights_only=True)
    assert [round(a, 4) for a in content['results'][0][-1]] == json.loads(row['accuracy_matrix'])[
        -1
    ]
    assert len(content['buffer']['examples']) == 25


def test_a_folder_that_cannot_take_the_files_is_told_before_anything_is_learned(typed, tmp_path):
    (tmp_path / 'file').touch()
    folder = tmp_path / 'file' / 'below'
    code, out, err = typed(ER, '--savecheck task --checkpoint_path', folder)
    assert (code, out, len(err.splitlines()), rows_of(tmp_path)) == (2, '', 1, [])
    assert f'--checkpoint_path {folder} cannot be written' in err


def test_a_checkpoint_of_mammoths_goes_on_on_a_data_set_file_of_its_kind(parse, foreign, tmp_path):
    """Its backbone is named in it, its buffer holds float images, which its transforms take when
    they are replayed.
    """
    flags = '--buffer_size 20 --n_epochs 1 --batch_size 64 --lr 0.01'
    net = get_backbone(
        parse('er', '--weights none --backbone resnet18 --num_filters 2 --num_classes 10', flags)
    )
    tensors = {f'net.{name}': tensor for name, tensor in net.state_dict().items()}
    arguments = {
        'model': 'er',
        'dataset': 'picture-digits',
        'backbone': 'resnet18',
        'num_filters': 2,
        'seed': None,
        'conf_jobnum': 'x',
        'device': 'cuda:0',
    }
    theirs = tmp_path / 'theirs.pt'
    save_as_mammoth(theirs, tensors, arguments, [[[50.0]], [[60.0]], {}])
    words = words_of(
        '--model er --loadcheck', theirs, '--start_from 1 --non_verbose 1 --disable_log 1', flags
    )
    model, dataset, args = initialize(parse_args(words))
    assert (args.backbone, args.weights, args.num_filters) == ('resnet18', 'none', 2)
    row = train(model, dataset, args)
    assert row['task1'] == 50
    assert 0 <= row['task2'] <= 100
    assert len(model.buffer) == 20
    assert model.buffer.examples.dtype == torch.float32
    assert model.buffer.num_seen_examples > 20
