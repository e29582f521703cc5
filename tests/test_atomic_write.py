"""Every file that is replaced is whole at any moment: the one way in which this project writes such
files.
"""

import itertools
import os
import stat
import threading

import numpy as np
import pytest

from bench.certify.store import keep_rows
from core.rows import append_row, read_rows
from scroll import Scroll
from scroll.ground.archive import alone, atomic_write, locked, open_file
from tests.conftest import files_below
from tests.scroll.conftest import interrupted

SUMS = Scroll(buffer_size=0).partial_fit(np.eye(3), [0, 1, 2])


def test_a_file_appears_with_its_folder_when_the_block_ends(tmp_path):
    path = tmp_path / 'new' / 'folder' / 'file.txt'
    for content in (b'first', b'second'):
        with atomic_write(path) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b'first'
        assert path.read_bytes() == content
        assert files_below(tmp_path) == [path]


@pytest.mark.parametrize('moment', ['block', 'fsync', 'replace'])
def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch, moment):
    def fail(*given):
        raise OSError(28, 'No space left on device')

    path = tmp_path / 'file'
    path.write_bytes(b'old')
    if moment != 'block':
        monkeypatch.setattr(os, moment, fail)
    with pytest.raises(OSError, match='No space left'), atomic_write(path) as file:  # noqa: PT012 (the block is under test)
        file.write(b'half of the new')
        if moment == 'block':
            fail()
    assert path.read_bytes() == b'old'
    assert files_below(tmp_path) == [path]


def test_a_killed_process_leaves_what_was_there_and_the_next_write_removes_its_half(tmp_path):
    path = tmp_path / 'file'
    names = ('file.part', 'file.1-x.part', 'afile.1-00000000.part')
    others = [tmp_path / name for name in names]
    for kept in (path, *others):
        kept.write_bytes(b'old')
    child = os.fork()
    if not child:
        with atomic_write(path) as file:
            file.write(b'new')
            file.flush()
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert path.read_bytes() == b'old'
    assert len(files_below(tmp_path)) == 5
    with atomic_write(path) as file:  # takes nobody else's half file for its own
        file.write(b'newer')
    assert path.read_bytes() == b'newer'
    assert sorted(files_below(tmp_path)) == sorted([path, *others])


def test_what_another_process_is_writing_survives(tmp_path):
    path = tmp_path / 'file'
    with atomic_write(path) as first:
        first.write(b'first')
        with atomic_write(path) as second:  # while the first has not ended
            second.write(b'second')
        assert path.read_bytes() == b'second'
    assert path.read_bytes() == b'first'
    assert files_below(tmp_path) == [path]


@pytest.mark.parametrize('there', [True, False])
def test_a_link_is_followed(tmp_path, there):
    target = tmp_path / 'elsewhere' / 'target'
    link = tmp_path / 'link'
    link.symlink_to('second')
    (tmp_path / 'second').symlink_to('elsewhere/target')
    if there:
        target.parent.mkdir()
        target.write_bytes(b'old')
    with atomic_write(link) as file:
        file.write(b'new')
    assert target.read_bytes() == link.read_bytes() == b'new'
    assert os.readlink(link) == 'second'
    assert not (tmp_path / 'second').is_file() or (tmp_path / 'second').is_symlink()
    assert os.listdir(target.parent) == ['target']


def test_what_is_protected_stays_so(tmp_path):
    path = tmp_path / 'file'
    path.touch(0o600)
    with atomic_write(path) as file:
        file.write(b'secret')
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo('pipe')
    os.symlink('pipe', 'to-pipe')
    os.symlink('loop', 'loop')
    os.mkdir('folder')
    for path in ('pipe', 'to-pipe', 'loop', 'folder', '/dev/null', '/dev/full', '-', '.', ''):
        with pytest.raises(OSError), atomic_write(path):  # noqa: PT011 (each system has its words)
            raise AssertionError('it was begun')
        if os.path.exists(path) and path not in ('folder', '.'):
            with pytest.raises(OSError, match='not a regular file'):
                open_file(path)
    assert stat.S_ISFIFO(os.stat('pipe').st_mode)
    assert stat.S_ISCHR(os.stat('/dev/null').st_mode)
    assert sorted(os.listdir()) == ['folder', 'loop', 'pipe', 'to-pipe']


def test_a_lock_is_that_of_the_file_that_is_there_now(tmp_path):
    """Who waited for a file that was replaced meanwhile holds the new one: increments of two
    processes do not get lost.
    """
    path = tmp_path / 'number'
    path.write_bytes(b'0')
    children = []
    for _ in range(3):
        children.append(os.fork())
        if not children[-1]:
            for _ in range(20):
                with locked(path):
                    number = int(path.read_bytes())
                    with atomic_write(path) as file:
                        file.write(b'%d' % (number + 1))
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
    assert path.read_bytes() == b'60'


@pytest.mark.parametrize(
    'name, write',
    [
        ('state.npz', lambda folder: SUMS.save(folder / 'state.npz')),
        ('mean_accs.csv', lambda folder: append_row(folder, {'run': '1'})),
    ],
)
def test_an_interrupt_at_any_line_keeps_nobody_from_writing_the_file(
    tmp_path, monkeypatch, name, write
):
    monkeypatch.setattr(os, 'fsync', lambda file: None)  # a disk may be slow
    write(tmp_path)
    names = ('/archive.py', '/rows.py', '/learner.py', 'contextlib.py', 'filelock')
    error = None
    for at in itertools.count(1):
        try:
            with interrupted(at, names) as interrupt:
                write(tmp_path)
        except KeyboardInterrupt as last:
            error = last  # as a notebook does: its frames hold what they held
        other = threading.Thread(target=write, args=(tmp_path,), daemon=True)
        other.start()
        other.join(5)
        assert not other.is_alive(), error
        if not interrupt.hit:
            break
    error = None
    write(tmp_path)
    assert {path.name for path in files_below(tmp_path)} - {f'{name}.lock'} == {name}


def test_rows_that_several_methods_keep_wait_for_each_other(tmp_path):
    path = tmp_path / 'new' / 'rows.csv'
    with alone(path):  # which is not there yet
        other = threading.Thread(target=keep_rows, args=(path, ['model'], 'scroll', [{}]))
        other.start()
        other.join(0.5)
        assert other.is_alive()
    other.join()
    for _ in range(2):  # new rows replace those of the same method
        keep_rows(path, ['model'], 'er', [{}])
    keep_rows(path, ['model'], 'der', [{}])
    assert [row['model'] for row in read_rows(path)] == ['der', 'er', 'scroll']
