"""Every file that is replaced is whole at any moment: the one way in which this project writes such files."""
import os

import pytest

from scroll.io.files import atomic_write
from tests.conftest import files_below


def test_a_file_appears_with_its_folder_when_the_block_ends(tmp_path):
    path = tmp_path / 'new' / 'folder' / 'file.txt'
    for content in (b'first', b'second'):
        with atomic_write(path) as file:
            file.write(content)
            assert not path.exists() or path.read_bytes() == b'first'
        assert path.read_bytes() == content and files_below(tmp_path) == [path]


@pytest.mark.parametrize('moment', ['block', 'fsync', 'replace'])
def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch, moment):
    def fail(*given):
        raise OSError(28, 'No space left on device')
    path = tmp_path / 'file'
    path.write_bytes(b'old')
    if moment != 'block':
        monkeypatch.setattr(os, moment, fail)
    with pytest.raises(OSError, match='No space left'), atomic_write(path) as file:
        file.write(b'half of the new')
        if moment == 'block':
            fail()
    assert path.read_bytes() == b'old' and files_below(tmp_path) == [path]


def test_a_killed_process_leaves_what_was_there(tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(b'old')
    child = os.fork()
    if not child:
        with atomic_write(path) as file:
            file.write(b'new')
            file.flush()
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9 and path.read_bytes() == b'old'
    with atomic_write(path) as file:                            # takes nobody else's half file for its own
        file.write(b'newer')
    assert path.read_bytes() == b'newer'
