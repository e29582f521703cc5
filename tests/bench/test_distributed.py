"""Processes that share a run: shares that cover all, arrays that arrive whole, an error that is printed once."""
import os
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import distributed
from core.distributed import World, check_processes, processes
from tests.conftest import ROOT, quick, refused


@pytest.fixture
def launched(monkeypatch):
    """launched(count): as torchrun would have it, in this process alone."""
    def set_up(count, rank=0):
        for name, value in dict(RANK=rank, WORLD_SIZE=count, MASTER_ADDR='localhost', MASTER_PORT=1).items():
            monkeypatch.setenv(name, str(value))
    return set_up


@quick
@given(st.integers(0, 50), st.integers(1, 9))
def test_shares_are_consecutive_cover_all_and_differ_by_one_at_most(count, size):
    shares = []
    for rank in range(size):
        world = World()
        world.rank, world.size = rank, size
        shares.append(list(range(count))[world.share(count)])
    assert sum(shares, []) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_alone_is_the_same_with_one():
    world, array = distributed.world(), np.arange(6, dtype=np.uint64).reshape(3, 2)
    assert (world.rank, world.size, processes()) == (0, 1, 1)
    gathered = world.gather(array)
    assert gathered.dtype == array.dtype and gathered.tolist() == array.tolist()
    assert world.gather(array[:0]).shape == (0, 2) and world.from_first(b'x') == b'x'
    assert world.sum(array.astype(np.int64)).tolist() == array.tolist()
    assert world.first_then_others(lambda: 7) == 7 and world.agree('a', 'no') is None
    args = SimpleNamespace(device=None)
    assert distributed.join(args).size == 1 and vars(args) == dict(device=None)


def test_a_method_whose_work_cannot_be_shared_is_refused(launched, parse):
    with refused('--distributed ddp', 'sgd', '--distributed dp'):
        parse('sgd', '--lr', '1', '--distributed', 'ddp')
    launched(2)
    with refused('2 processes', '--model sgd', '--distributed dp'):
        parse('sgd', '--lr', '1')
    with refused('2 processes', '--model sgd'):
        parse('sgd', '--lr', '1', '--distributed', 'dp')


def test_what_scroll_is_told(launched, parse):
    with refused('--distributed dp', 'torchrun'):
        parse('scroll', '--distributed', 'dp')
    with refused('--distributed ddp', 'torchrun'):
        parse('scroll', '--distributed', 'ddp')
    launched(1)
    assert parse('scroll', '--distributed', 'ddp').distributed == 'ddp'
    launched(2)
    assert parse('scroll').distributed == 'no' and parse('scroll', '--distributed', 'ddp').distributed == 'ddp'
    check_processes(SimpleNamespace(SHARED=True), SimpleNamespace(distributed='no', model='x'))


@pytest.mark.parametrize('words, same', [
    ('--device b --base_path y --notes z', True), ('--seed 1', False), ('--schedule iid', False), ('--eval_epochs 9', False)])
def test_processes_must_run_the_same(parse, monkeypatch, words, same):
    flags = '--lr', '1', '--buffer_size', '5'
    said, ours, theirs = [], parse('er', *flags), parse('er', *flags, *words.split())

    class Two(World):
        def exchange(self, content):
            said.append(content)
            return said[-2:]
    monkeypatch.setattr(distributed, 'world', Two)
    distributed.agree_on_arguments(theirs, None)
    if same:
        distributed.agree_on_arguments(ours, None)
    else:
        with refused('different arguments'):
            distributed.agree_on_arguments(ours, None)
    with refused('different data'):
        distributed.agree_on_arguments(theirs, SimpleNamespace(digest=lambda: 'other'))


_CHILD = '''
import os, sys
sys.path.insert(0, sys.argv[1])
from types import SimpleNamespace
import numpy as np
from core import distributed
from core.commands import run_command
from scroll.errors import InputError
rank = int(os.environ['RANK'])

def work():
    distributed.mute_others()
    args = SimpleNamespace(device='cpu', tensorboard=1)
    world = distributed.join(args)
    assert distributed.join(args) is world and (world.rank, world.size) == (rank, 3)
    assert (args.disable_log if rank else not hasattr(args, 'disable_log')) and args.distributed == 'ddp'
    for dtype in (np.int32, np.uint64, np.float32, np.uint8):
        for sizes in ((2, 2, 2), (0, 3, 1), (5, 0, 0), (0, 0, 0)):
            parts = [(np.arange(6 * n).reshape(n, 2, 3) * (r + 1)).astype(dtype) for r, n in enumerate(sizes)]
            got = world.gather(parts[rank])
            assert got.dtype == dtype and got.shape == (sum(sizes), 2, 3) and (got == np.concatenate(parts)).all()
    assert [world.from_first(text if rank == 0 else b'?' * rank) for text in (b'', b'abc')] == [b'', b'abc']
    calls = []
    world.first_then_others(lambda: calls.append(os.path.exists(sys.argv[2]) or open(sys.argv[2], 'w').close()))
    assert calls == [True if rank else None]
    if 'alone' in sys.argv and rank == 1:
        raise InputError('only this one has failed')
    if 'crash' in sys.argv and rank == 2:
        os._exit(7)
    world.exchange(b'')
    print('done', rank)
    distributed.leave()

if 'first' in sys.argv:
    sys.exit(run_command(lambda: (_ for _ in ()).throw(InputError('all have failed'))))
sys.exit(run_command(work))
'''


def children(tmp_path, word) -> list:
    """(exit code, stdout, stderr) of three processes, without torchrun, which would end them."""
    (tmp_path / 'child.py').write_text(_CHILD)
    port = 20000 + os.getpid() % 20000
    running = [subprocess.Popen([sys.executable, str(tmp_path / 'child.py'), str(ROOT), str(tmp_path / 'there'), word], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={
        **os.environ, 'RANK': str(rank), 'WORLD_SIZE': '3', 'LOCAL_WORLD_SIZE': '3', 'LOCAL_RANK': str(rank), 'MASTER_ADDR': '127.0.0.1',
        'MASTER_PORT': str(port), 'OMP_NUM_THREADS': '1',
        'GLOO_SOCKET_IFNAME': 'lo'}) for rank in range(3)]
    out = [(*child.communicate(timeout=timedelta(minutes=5).total_seconds()), child.returncode) for child in running]
    return [(code, stdout, stderr) for stdout, stderr, code in out]


@pytest.mark.slow
def test_processes_exchange_arrays_and_the_first_alone_prints(tmp_path):
    assert [(code, 'done' in out, err) for code, out, err in children(tmp_path, '')] == [(0, True, ''), (0, False, ''), (0, False, '')]


@pytest.mark.slow
@pytest.mark.parametrize('word, text', [('first', 'all have failed'), ('alone', 'only this one')])
def test_an_error_of_one_or_of_all_is_told_once_and_ends_all(tmp_path, word, text):
    ended = children(tmp_path, word)
    told = [line for _, _, err in ended for line in err.splitlines() if 'error:' in line]
    assert [code for code, _, _ in ended] == [2, 2, 2] and len(told) == 1 and text in told[0]


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_in_one_line(tmp_path):
    ended = children(tmp_path, 'crash')
    told = [line for _, _, err in ended for line in err.splitlines() if 'error:' in line]
    assert [code for code, _, _ in ended] == [2, 2, 7] and len(told) == 1 and 'another process' in told[0]
