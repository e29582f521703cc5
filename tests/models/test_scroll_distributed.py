"""SCROLL in several processes, on several machines, and from files: the digests of one process that saw it all."""
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import models.scroll
from bench.resume.state import load_model_state, model_state
from bench.run.building import initialize
from bench.run.training import train
from core import distributed
from core.distributed import World
from core.rows import read_rows
from scroll import InputError, Scroll
from scroll.__main__ import main as scroll_command
from scroll.files.shards import in_shard, shard
from scroll.state import State
from scroll.statistics import Statistics
from tests.conftest import ROOT, refused
from tests.scroll.conftest import refused as refused_input

DIGESTS = ('statistics_digest', 'online_digest', 'buffer_digest', 'adapted_digest')
SAME = (*DIGESTS, 'final_accuracy', 'online_accuracy', 'adapted_accuracy', 'accuracy_per_task', 'task1',
        'buffered', 'final_scale')
SHORT = {'model_config': 'base', 'adapt_select': 'none', 'iterations': 2, 'minibatch_size': 10, 'buffer_size': 12, 'feature_cache': 0}


class ThreadWorld(World):
    """Processes that are threads of one."""

    def __init__(self, rank, size, barrier, table):
        self.rank, self.size, self.barrier, self.table = rank, size, barrier, table

    def exchange(self, content: bytes) -> list:
        self.table[self.rank] = content
        self.barrier.wait(60)
        out = [self.table[rank] for rank in range(self.size)]
        self.barrier.wait(60)
        return out

    def from_first(self, content: bytes) -> bytes:
        return self.exchange(content)[0]


@pytest.fixture
def together(parse, monkeypatch, small_digits):
    """together(N, *flags): results rows and models of N threads that share a run."""
    here = threading.local()
    monkeypatch.setattr(models.scroll, 'world', lambda: getattr(here, 'world', World()))
    monkeypatch.setattr(distributed, 'world', lambda: getattr(here, 'world', World()))

    def run(count, *flags):
        barrier, table, out = threading.Barrier(count), {}, [None] * count
        args = [parse('scroll', *flags, **SHORT) for _ in range(count)]
        for others in args[1:]:
            others.disable_log = True

        def one(rank):
            here.world = ThreadWorld(rank, count, barrier, table)
            try:
                model, dataset, _ = initialize(args[rank])
                out[rank] = train(model, dataset, args[rank]), model
            except InputError as error:          # which all have
                out[rank] = error, None
            except Exception as error:
                out[rank] = error, None
                barrier.abort()
        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out
    return run


@pytest.fixture
def alone(parse, small_digits):
    """alone(*flags): results row and model of one process."""
    def run(*flags):
        model, dataset, args = initialize(parse('scroll', *flags, **SHORT))
        return train(model, dataset, args), model
    return run


@pytest.mark.parametrize('count, flags', [
    (2, ()), (3, ('--n_splits', '2', '--adaptation', 'full', '--adapt_every_task', '1')),
    (2, ('--buffer_size', '0')), (2, ('--adapt_select', 'folds')),
    (3, ('--schedule', 'iid,batch=2', '--buffer_strategy', 'random'))], ids=str)
def test_every_process_stands_where_one_alone_would(together, alone, monkeypatch, count, flags):
    # so that with batch=2 a share of each segment is empty
    monkeypatch.setattr(models.scroll, '_EMBED_AT_ONCE', 1)
    expected = {name: alone(*flags)[0][name] for name in SAME}
    shared = together(count, *flags)
    for row, model in shared:
        assert {name: row[name] for name in SAME} == expected and row['processes'] == count
        assert model.world.size == count


def test_scores_of_the_training_data_are_made_together(together, alone, tmp_path):
    flags = ('--noise_rate', '0.2', '--adaptation', 'none', '--save_scores')
    expected = alone(*flags, str(tmp_path / 'alone.npz'))[0]['label_error_auc']
    assert [row['label_error_auc'] for row, _ in together(2, *flags, str(tmp_path / 'together.npz'))] == [expected] * 2
    with np.load(tmp_path / 'alone.npz') as one, np.load(tmp_path / 'together.npz') as two:
        assert all((one[name] == two[name]).all() for name in one)


def test_processes_that_would_not_count_the_same_are_refused(together, monkeypatch):
    original = models.scroll.make_embedder

    def other_backbone(net, args, dataset, device):
        embedder = original(net, args, dataset, device)
        embedder.digest += threading.current_thread().name
        return embedder
    monkeypatch.setattr(models.scroll, 'make_embedder', other_backbone)
    for error, _ in together(2):
        assert isinstance(error, InputError) and 'different backbones' in str(error)


def torchrun(count, *flags, cwd) -> subprocess.Popen:
    fixed = ['--model', 'scroll', '--dataset', 'seq-digits', '--device', 'cpu', '--base_path', 'data', *flags]
    for name, value in SHORT.items():
        fixed += [] if f'--{name}' in flags else [f'--{name}', str(value)]
    launch = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--local_addr', '127.0.0.1',
              '--nproc_per_node']
    return subprocess.Popen([*launch, str(count), str(ROOT / 'main.py'), *fixed], cwd=cwd, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            # this machine's name may mean nothing
                            env={**os.environ, 'GLOO_SOCKET_IFNAME': 'lo'})


@pytest.mark.slow
def test_processes_of_torchrun_have_the_digests_of_one(tiny_weights, parse, tmp_path):
    model, dataset, args = initialize(parse('scroll', **SHORT))
    expected = train(model, dataset, args)
    for count in (1, 2, 3):
        running = torchrun(count, '--weights', tiny_weights, '--feature_cache', '1', '--save_statistics',
                           f'{count}.npz', cwd=tmp_path)
        out, error = running.communicate(timeout=600)
        assert running.returncode == 0, error
        row = read_rows(tmp_path / 'data' / 'results' / 'class-il' / 'seq-digits' / 'scroll' / 'mean_accs.csv')[-1]
        assert {name: row[name] for name in SAME} == {name: str(expected[name]) for name in SAME}
        assert row['processes'] == str(count)
        assert len(re.findall('Accuracy for 5 task', out)) == len(re.findall('Summary', out)) == 1
        assert Statistics.load(tmp_path / f'{count}.npz').digest() == expected['statistics_digest']
    rows = read_rows(tmp_path / 'data' / 'results' / 'class-il' / 'seq-digits' / 'scroll' / 'mean_accs.csv')
    assert len(rows) == 3 and len(list((tmp_path / 'data').rglob('*.png'))) == 3


@pytest.mark.slow
@pytest.mark.parametrize('flags, word',
                         [(['--ridge_lambda', '-1'], '--ridge_lambda'), (['--adapt_lr', '1e37'], 'diverged')],
                         ids=str)
def test_a_mistake_is_reported_once_and_ends_all_processes(tiny_weights, tmp_path, flags, word):
    """Seen by all at once, or by the first alone while the others wait for it."""
    running = torchrun(2, '--weights', tiny_weights, *flags, cwd=tmp_path)
    error = running.communicate(timeout=600)[1]
    assert running.returncode != 0
    lines = [line for line in error.splitlines() if 'main.py: error' in line]
    assert len(lines) == 1 and word in lines[0]
    assert re.search(r'exitcode *: *2 ', error) and 'main.py", line' not in error


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_torchrun_goes_on_after_a_process_was_killed(tiny_weights, parse, tmp_path, number):
    """One process dies at once; or all are asked to end. The same command with fewer processes ends the run."""
    flags = ['--buffer_size', '0', '--batch_size', '4', '--eval_every', '16']
    expected = train(*initialize(parse('scroll', *flags, **{**SHORT, 'buffer_size': 0})))
    flags += ['--weights', tiny_weights, '--checkpoint_every', '1e-9']
    first = torchrun(3, *flags, cwd=tmp_path)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob('data/unfinished/*.pt')) and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    children = Path(f'/proc/{first.pid}/task/{first.pid}/children').read_text().split()
    os.kill(int(children[-1]) if number == signal.SIGKILL else first.pid, number)
    assert first.communicate(timeout=300) and first.returncode != 0
    second = torchrun(2, *flags, cwd=tmp_path)
    out, error = second.communicate(timeout=600)
    assert second.returncode == 0, error
    row, = read_rows(next(tmp_path.glob('data/results/class-il/**/mean_accs.csv')))
    names = [*SAME, 'anytime_curve']
    assert 'continuing the run' in out and row['processes'] == '2'
    assert {name: row[name] for name in names} == {name: str('' if expected[name] is None else expected[name]) for name in names}


# Machines that know nothing of each other

def test_shares_cover_all_and_overlap_nowhere():
    images = np.random.default_rng(0).integers(0, 256, (500, 4, 4, 3)).astype(np.uint8)
    for count in (1, 2, 7):
        masks = [in_shard(images, f'{i + 1}/{count}') for i in range(count)]
        assert (np.sum(masks, axis=0) == 1).all() and min(mask.sum() for mask in masks) > 0.5 * 500 / count
    order = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(in_shard(images, '2/3')[order], in_shard(images[order], '2/3'))


@pytest.mark.parametrize('text', ['0/3', '4/3', '1', '1/0', 'a/b', '-1/3', '1/3/5', ''])
def test_shares_that_are_none(parse, text):
    with refused('--shard', 'i/n'):
        parse('scroll', f'--shard={text}')
    assert shard('3/3') == '3/3'


def test_machines_with_a_share_each_count_what_one_counts(alone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole, _ = alone()
    schedules = (('--n_splits', '5'), ('--schedule', 'iid,batch=7', '--seed', '3'),
                 ('--n_splits', '2', '--permute_classes', '1', '--seed', '9'))
    rows = [alone('--shard', f'{i + 1}/3', '--save_statistics', f'{i}.npz', '--adaptation', 'none',
                  *schedules[i])[0] for i in range(3)]
    assert [row['shard'] for row in rows] == ['1/3', '2/3', '3/3']
    assert len({row['statistics_digest'] for row in rows}) == 3
    capsys.readouterr()
    assert scroll_command(['merge', '0.npz', '1.npz', '2.npz', '-o', 'all.npz']) == 0
    assert capsys.readouterr().out == f"{whole['statistics_digest']}\n"
    merged, model = alone('--load_statistics', 'all.npz', '--inference_only', '1')
    for name in ('statistics_digest', 'online_digest', 'online_accuracy'):
        assert merged[name] == whole[name]
    assert merged['buffered'] == 0 and merged['adapted_digest'] is None and model.learner.adapted_ is None
    # another schedule, the same share
    alone('--shard', '2/3', '--save_statistics', '3.npz', '--adaptation', 'none')
    assert scroll_command(['merge', 'all.npz', '3.npz', '-o', 'more.npz']) == 2
    with pytest.raises(InputError, match='all.npz.* another backbone'):
        alone('--load_statistics', 'all.npz', '--inference_only', '1', '--embed_dtype', 'bfloat16')


def test_a_class_is_forgotten_as_if_it_had_never_come(alone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    row, model = alone('--save_statistics', 'classes', '--by_class', '1', '--save_state', 'state.npz',
                       '--permute_classes', '1')
    names = sorted(path.name for path in Path('classes').iterdir())
    assert names == [f'class-{c}.npz' for c in range(10)]
    capsys.readouterr()
    scroll_command(['merge', *(f'classes/{name}' for name in names), '-o', 'all.npz'])
    assert capsys.readouterr().out == f"{row['statistics_digest']}\n"
    assert scroll_command(['remove', 'all.npz', '--minus', 'classes/class-3.npz', '-o', 'rest.npz']) == 0
    assert scroll_command(['unlearn', 'state.npz', '--minus', 'classes/class-3.npz', '-o', 'new.npz']) == 0
    rest = Statistics.load('rest.npz')
    assert capsys.readouterr().out == 2 * f'{rest.digest()}\n'
    assert rest.classes.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    images, labels = model.dataset.images.train, model.dataset.images.train_labels
    assert Scroll(model.embedder).fit(images[labels != 3], labels[labels != 3]).digest() == rest.digest()


def test_a_run_that_keeps_keys_unlearns_what_it_learned(alone, parse, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ['--save_state', 'state.npz', '--keep_keys', '1', '--eval_every', '50']
    _, model = alone(*flags, '--savecheck', 'last', '--checkpoint_path', 'checkpoints')
    images, labels = model.dataset.images.train, model.dataset.images.train_labels
    for at, code in (([5, 7], 0), ([5, 5], 2)):
        features, keys = model.embedder(images[at])
        np.savez('old.npz', quantised=features, labels=labels[at], keys=keys)
        assert scroll_command(['unlearn', 'state.npz', '--samples', 'old.npz', '-o', 'new.npz']) == code
    assert 'never learned' in capsys.readouterr().err
    rest = np.setdiff1d(np.arange(len(labels)), [5, 7])
    state = State.read('new.npz')
    assert state.statistics == Scroll(model.embedder).fit(images[rest], labels[rest]).statistics_
    assert len(state.keys.state_dict()['keys']) == len(rest)
    again = initialize(parse('scroll', *flags, **SHORT))[0]
    load_model_state(again, model_state(model))
    with refused_input('never learned'):
        again.learner.remove(images[[5, 5]], labels[[5, 5]])
    assert again.learner.remove(images[[5, 7]], labels[[5, 7]]).digest() == state.statistics.digest()


def test_a_state_is_evaluated_with_the_bits_it_had(alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row, _ = alone('--save_state', 'deep/state.npz')
    again, _ = alone('--load_state', 'deep/state.npz', '--inference_only', '1')
    names = [name for name in SAME if name != 'task1']
    assert {name: again[name] for name in names} == {name: row[name] for name in names}
    bare, _ = alone('--load_state', 'deep/state.npz', '--inference_only', '1', '--adaptation', 'none')
    assert bare['online_digest'] == row['online_digest'] and bare['adapted_digest'] is None


@pytest.mark.parametrize('flags, words', [
    (['--by_class', '1'], ['--by_class', '--save_statistics']),
    (['--keep_keys', '1'], ['--keep_keys', '--save_state']),
    (['--load_state', 'x'], ['--load_state x', '--inference_only']),
    (['--inference_only', '1'], ['--inference_only', '--load_state']),
    (['--inference_only', '1', '--load_state', 'x', '--shard', '1/2'], ['--shard', 'nothing is learned']),
    (['--inference_only', '1', '--load_state', 'x', '--save_state', 'y'],
     ['--save_state', 'nothing is learned']),
    (['--save_statistics', '{tmp}'], ['--save_statistics', 'file']),
    (['--save_state', '{tmp}/file/x'], ['--save_state', 'file in a folder']),
    (['--save_statistics', '{tmp}/file', '--by_class', '1'], ['--save_statistics', 'folder']),
    (['--export', '{tmp}'], ['is there already']), (['--export', '{tmp}/file'], ['is there already']),
    (['--export', '{tmp}/file/x'], ['--export', 'folder'])], ids=str)
def test_flags_that_do_not_go_together(parse, tmp_path, flags, words):
    (tmp_path / 'file').write_text('')
    with refused(*words):
        parse('scroll', *(flag.replace('{tmp}', str(tmp_path)) for flag in flags))


@pytest.mark.parametrize('flags',
                         [['--save_statistics', 'deep/down/x.npz'],
                          ['--save_statistics', 'deep/down', '--by_class', '1'],
                          ['--save_state', 'deep/down/x.npz'], ['--export', 'deep/down/x']], ids=str)
def test_a_folder_that_takes_no_files_ends_a_run_before_it_learns(alone, tmp_path, monkeypatch, capsys, flags):
    monkeypatch.chdir(tmp_path)
    Path('deep').write_text('a file')
    with refused(*flags[:2], 'deep/down', 'Not a directory'):
        alone(*flags)
    Path('deep').unlink()

    def read_only(**_):
        raise OSError(30, 'Read-only file system')
    monkeypatch.setattr('tempfile.TemporaryFile', read_only)
    with refused(*flags[:2], 'deep/down', 'Read-only'):
        alone(*flags)
    assert 'Accuracy' not in capsys.readouterr().out
