"""SCROLL on several machines, and from files: the digests of one process that saw it all."""

from argparse import ArgumentTypeError
from pathlib import Path

import numpy as np
import pytest

from bench.run.building import initialize
from bench.run.training import train
from scroll import InputError, Scroll
from scroll.__main__ import main as scroll_command
from scroll.files.shards import in_shard, shard
from scroll.learners.state import State
from tests.conftest import refused
from tests.scroll.conftest import refused as refused_input

DIGESTS = ('statistics_digest', 'online_digest', 'buffer_digest', 'adapted_digest')
SAME = (
    *DIGESTS,
    'final_accuracy',
    'online_accuracy',
    'adapted_accuracy',
    'task1',
    'buffered',
    'final_scale',
)
SHORT = {
    'model_config': 'base',
    'iterations': 2,
    'minibatch_size': 10,
    'buffer_size': 12,
    'feature_cache': 0,
}


@pytest.fixture
def alone(parse, small_digits):
    """alone(*flags): results row and model of one process."""

    def run(*flags):
        model, dataset, args = initialize(parse('scroll', *flags, **SHORT))
        return train(model, dataset, args), model

    return run


def test_shares_cover_all_and_overlap_nowhere():
    images = np.random.default_rng(0).integers(0, 256, (500, 4, 4, 3)).astype(np.uint8)
    for count in (1, 2, 7):
        masks = [in_shard(images, f'{i + 1}/{count}') for i in range(count)]
        assert (np.sum(masks, axis=0) == 1).all()
        assert min(mask.sum() for mask in masks) > 0.5 * 500 / count
    order = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(in_shard(images, '2/3')[order], in_shard(images[order], '2/3'))


def test_shares_that_are_none():
    for text in ('0/3', '4/3', '1', '1/0', 'a/b', '-1/3', '1/3/5', ''):
        with pytest.raises(ArgumentTypeError, match='i/n'):
            shard(text)
    assert shard('3/3') == '3/3'


def test_machines_with_a_share_each_count_what_one_counts(alone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole, _ = alone()
    schedules = (
        '--n_splits 5',
        '--schedule iid,batch=7 --seed 3',
        '--n_splits 2 --permute_classes 1 --seed 9',
    )
    kept = '--adaptation none --savecheck last --checkpoint_path'
    rows = [
        alone('--shard', f'{i + 1}/3', '--save_statistics', f'{i}.npz', kept, i, schedules[i])[0]
        for i in range(3)
    ]
    loaded, _ = alone('--loadcheck', next(Path('1').iterdir()), '--inference_only 1')
    assert loaded['statistics_digest'] == rows[1]['statistics_digest']
    assert [row['shard'] for row in rows] == ['1/3', '2/3', '3/3']
    assert len({row['statistics_digest'] for row in rows}) == 3
    capsys.readouterr()
    assert scroll_command(['merge', '0.npz', '1.npz', '2.npz', '-o', 'all.npz']) == 0
    assert capsys.readouterr().out == f'{whole["statistics_digest"]}\n'
    merged, model = alone('--load_statistics all.npz --inference_only 1')
    for name in ('statistics_digest', 'online_digest', 'online_accuracy'):
        assert merged[name] == whole[name]
    assert merged['buffered'] == 0
    assert merged['adapted_digest'] is None
    assert model.learner.adapted_ is None
    # another schedule, the same share
    alone('--shard 2/3 --save_statistics 3.npz --adaptation none')
    assert scroll_command(['merge', 'all.npz', '3.npz', '-o', 'more.npz']) == 2
    with pytest.raises(InputError, match=r'all.npz.* backbone or grid mismatch'):
        alone('--load_statistics all.npz --inference_only 1 --embed_dtype bfloat16')


def test_a_run_that_keeps_keys_unlearns_what_it_learned(alone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, model = alone(
        '--save_state state.npz --keep_keys 1 --eval_every 50 --savecheck last '
        '--checkpoint_path checkpoints'
    )
    images = model.dataset.images.train
    labels = model.dataset.images.train_labels
    command = ['unlearn', 'state.npz', '--samples', 'old.npz', '-o', 'new.npz']
    for at, code in (([5, 7], 0), ([5, 5], 2)):
        features, keys = model.embedder(images[at])
        np.savez('old.npz', quantised=features, labels=labels[at], keys=keys)
        assert scroll_command(command) == code
    assert 'never learned' in capsys.readouterr().err
    rest = np.setdiff1d(np.arange(len(labels)), [5, 7])
    state = State.read('new.npz')
    assert state.statistics == Scroll(model.embedder).fit(images[rest], labels[rest]).statistics_
    assert len(state.keys.state_dict()['keys']) == len(rest)
    # it keeps keys, too
    _, again = alone('--loadcheck', next(Path('checkpoints').iterdir()), '--inference_only 1')
    with refused_input('never learned'):
        again.learner.remove(images[[5, 5]], labels[[5, 5]])
    again.learner.remove(images[[5, 7]], labels[[5, 7]])
    assert again.learner.digest() == state.statistics.digest()


def test_a_state_is_evaluated_with_the_bits_it_had(alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row, _ = alone('--save_state deep/state.npz')
    again, _ = alone('--load_state deep/state.npz --inference_only 1')
    for name in set(SAME) - {'task1'}:
        assert again[name] == row[name]
    bare, _ = alone('--load_state deep/state.npz --inference_only 1 --adaptation none')
    assert bare['online_digest'] == row['online_digest']
    assert bare['adapted_digest'] is None


@pytest.mark.parametrize(
    'flags, words',
    [
        ('--keep_keys 1', ['--keep_keys', '--save_state']),
        ('--buffer_size 0 --adaptation full', ['--buffer_size is 0']),
        ('--load_state x', ['--load_state', '--inference_only']),
        ('--inference_only 1', ['--inference_only', '--load_state']),
        ('--inference_only 1 --load_state x --shard 1/2', ['--shard', 'nothing is learned']),
        ('--inference_only 1 --load_state x --save_state y', ['--save_state', 'nothing']),
        ('--export_formats onnx', ['--export_formats', '--export']),
    ],
)
def test_flags_that_do_not_go_together(parse, flags, words):
    with refused(*words):
        parse('scroll', flags)


@pytest.mark.parametrize(
    'flags, words',
    [
        ('--export e --export_formats onnx --precision bfloat16', ['--precision float32']),
        ('--export e.pt2 --precision bfloat16', ['--precision float32']),
        ('--export e.safetensors --weights small', ['integer backbone', 'give a folder']),
        ('--export .', ['is there already']),
        ('--export file', ['is there already']),
    ],
)
def test_an_export_that_cannot_be_ends_a_run_before_it_learns(
    alone, tmp_path, monkeypatch, capsys, flags, words
):
    monkeypatch.chdir(tmp_path)
    Path('file').write_text('')
    with refused('--export', *words):
        alone(flags)
    assert 'Accuracy' not in capsys.readouterr().out


@pytest.mark.parametrize('flag', ['--save_statistics', '--save_state', '--export'])
def test_a_folder_that_takes_no_files_ends_a_run_before_it_learns(
    alone, tmp_path, monkeypatch, capsys, flag
):
    monkeypatch.chdir(tmp_path)
    flags = flag, 'deep/down/x' if flag == '--export' else 'deep/down/x.npz'
    Path('deep').write_text('a file')
    with refused(flag, 'deep/down', 'Not a directory'):
        alone(*flags)
    Path('deep').unlink()
    Path('deep/down/x').mkdir(parents=True)
    with refused('--save_state', 'Is a directory'):
        alone('--save_state deep/down')

    def read_only(**_):
        raise OSError(30, 'Read-only file system')

    monkeypatch.setattr('tempfile.TemporaryFile', read_only)
    with refused(flag, 'deep/down', 'Read-only'):
        alone(*flags)
    assert 'Accuracy' not in capsys.readouterr().out
