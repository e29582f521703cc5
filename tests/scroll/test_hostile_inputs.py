"""`python -m scroll` and hostile inputs: pipes, devices, deep JSON, readers that go, more than
memory holds. One line each, and an end."""

import copy
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scroll import Scroll, Statistics
from scroll.files.arrays import BLOCK_BYTES
from scroll.files.features import open_files, read_blocks
from scroll.ground import arguments
from scroll.ground.archive import arrays_of
from scroll.sums.lift import Lift
from tests.conftest import ROOT
from tests.scroll.conftest import refused

X, Y = np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % 2


@pytest.fixture
def command(command):
    """command('learn', ...) in a folder with samples x.npz and a learner s.npz -> (exit code,
    stdout, stderr); ends in time.
    """

    def late(*_):
        raise TimeoutError

    np.savez('x.npz', X=X, y=Y)
    Scroll(buffer_size=0).fit(X, Y).save('s.npz')
    os.mkfifo('pipe')
    Path('deep.json').write_text('{"format":' + '[' * 100_000 + ']' * 100_000 + '}')
    before = signal.signal(signal.SIGALRM, late)

    def run(*words):
        signal.alarm(30)
        return command(*words)

    yield run
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


INPUTS = (
    'show @',
    'digest @',
    'learn @ -o o',
    'learn x.npz @ -o o',
    'learn --from @ -o o',
    'add @ x.npz -o o',
    'add s.npz @ -o o',
    'merge s.npz @ -o o',
    'merge @ s.npz -o o',
    'remove s.npz --samples @ -o o',
    'remove s.npz --minus @ -o o',
    'unlearn @ --classes 1 -o o',
    'predict s.npz @ -o o',
    'predict @ x.npz -o o',
    'export @ -o o',
)
OUTPUTS = (
    'learn x.npz -o @',
    'add s.npz x.npz -o @',
    'merge s.npz s.npz --repeated -o @',
    'remove s.npz --samples x.npz -o @',
    'predict s.npz x.npz -o @',
    'export s.npz -o @',
)


@pytest.mark.parametrize(
    'words',
    [
        'learn x.npz -o x.npz',
        'learn --from x.npz -o ./x.npz',
        'add s.npz x.npz -o x.npz',
        'predict s.npz x.npz -o s.npz',
        'remove s.npz --samples x.npz -o x.npz',
        'remove s.npz --minus x.npz -o x.npz',
    ],
)
def test_no_output_replaces_samples(command, words):
    code, out, err = command(*words.split())
    assert (code, out) == (2, '')
    assert 'would be lost' in err
    assert set(np.load('x.npz')) == {'X', 'y'}


@pytest.mark.parametrize('words', [*INPUTS, *OUTPUTS])
def test_every_input_and_output_is_a_regular_file(command, words):
    paths = (
        ('pipe', '/dev/zero', 'deep.json', 'nothing', '')
        if words in INPUTS
        else ('pipe', '/dev/full', '/dev/null', *['-'] * ('predict' not in words))
    )
    for path in paths:
        code, out, err = command(*(path if word == '@' else word for word in words.split()))
        assert (code, out, len(err.splitlines())) == (2, '', 1)
        assert err.startswith('scroll: error: ')
        assert words in INPUTS or path in err
    assert sorted(os.listdir()) == ['deep.json', 'pipe', 's.npz', 'x.npz']


def test_what_killed_exports_left_goes_with_the_next_one(command):
    for name in ('e.1-0123abcd.part', 'f.1-0123abcd.part'):
        os.makedirs(f'{name}/half')
    os.symlink('there', 'e')
    assert command('export', 's.npz', '-o', 'e')[0] == 0
    assert os.readlink('e') == 'there'
    assert command('export', 's.npz', '-o', 'f')[0] == 0
    assert Path('there/certificate.json').is_file()
    # of another target
    assert sorted(os.listdir()) == [
        'deep.json',
        'e',
        'e.1-0123abcd.part',
        'f',
        'pipe',
        's.npz',
        'there',
        'x.npz',
    ]


@pytest.mark.parametrize(
    'words', ['add s.npz x.npz -o', 'predict s.npz x.npz -o', 'export s.npz -o']
)
def test_a_folder_is_not_made_without_a_word(command, words):
    (code, _, said), (_, _, again) = (command(*words.split(), f'new/er/{name}') for name in 'st')
    assert code == 0
    assert said.endswith(f'made the folder {os.getcwd()}/new/er\n')
    assert os.path.exists('new/er/s')
    assert 'folder' not in again + command('add', 'nothing', 'x.npz', '-o', 'newer/s')[2]
    assert not os.path.exists('newer')


def test_labels_on_standard_output(command):
    assert command('predict', 's.npz', 'x.npz', '-o', 'labels.csv')[0] == 0
    code, out, err = command('predict', 's.npz', 'x.npz', '-o', '-')
    assert (code, out) == (0, Path('labels.csv').read_text())
    assert err.startswith('accuracy ')
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    'words, stderr', [('merge s.npz s.npz --repeated -o o', True), ('show nothing', False)]
)
def test_a_reader_that_goes_ends_a_command_without_a_word(command, words, stderr):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, '-m', 'scroll', *words.split()],
        stdout=write,
        stderr=write if stderr else subprocess.PIPE,
        env={'PYTHONPATH': str(ROOT)},
        text=True,
        timeout=120,
    )
    os.close(write)
    if stderr:  # what was asked for is done all the same
        assert done.returncode == 141
        assert Scroll.load('o').statistics_.total == 80
    else:
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


# -- memory
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def gigabyte(monkeypatch):
    monkeypatch.setattr(arguments, 'available_memory', lambda: 1 << 30)


def test_a_gram_matrix_that_memory_cannot_hold_is_refused_before_it_is_made(
    command, gigabyte, monkeypatch
):
    with refused('Gram matrix of 20000 features takes 3.0 GiB of memory: 1.0 GiB'):
        Statistics(20_000)
    with refused('Gram matrix of 20000 features'):
        Scroll(buffer_size=0).partial_fit(np.ones((2, 20_000), np.float32), [0, 1])
    np.savez('x.npz', X=np.ones((2, 20_000), np.float32), y=[0, 1])
    code, _, err = command('learn', 'x.npz', '-o', 'o')
    assert code == 2
    assert len(err.splitlines()) == 1
    assert 'x.npz' in err
    assert '3.0 GiB' in err
    with refused('Gram matrix of 12005 features'):
        Scroll(head='rp', lift_dim=12_000, buffer_size=0).partial_fit(X, Y)
    with refused('random matrix of lift fourier'):
        _ = Lift('fourier', 4000, 20_000).matrix
    with refused('each of 40 classes takes'):  # a matrix a class
        Scroll(head='qda', buffer_size=0).partial_fit(
            np.random.default_rng(0).normal(size=(40, 2500)), np.arange(40)
        )
    assert Scroll(buffer_size=0).partial_fit(np.ones((2, 100)), [0, 1]).statistics_.dim == 100
    s = Statistics(6000)
    monkeypatch.setattr(arguments, 'available_memory', lambda: 1 << 20)
    # what is there is there
    assert (
        copy.copy(s).dim
        == copy.deepcopy(s).dim
        == Statistics.from_arrays(s.state_dict()).dim
        == 6000
    )


def test_a_file_that_memory_cannot_hold_is_refused_before_it_is_read(command, monkeypatch):
    monkeypatch.setattr(arguments, 'available_memory', lambda: 1 << 27)
    with (
        zipfile.ZipFile('big.npz', 'w', zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open('labels.npy', 'w') as file,
    ):
        np.lib.format.write_array_header_1_0(
            file, {'descr': '<i8', 'fortran_order': False, 'shape': (1 << 25,)}
        )
        for _ in range(1 << 6):  # 256 MiB of nothing
            file.write(bytes(1 << 22))
    with refused('big.npz.*0.3 GiB'):
        arrays_of('big.npz')


def test_blocks_are_bounded_in_bytes_and_change_no_digest(command, monkeypatch):
    wide = np.random.default_rng(0).normal(size=(40, 30_000)).astype(np.float32)
    np.savez('wide.npz', X=wide, y=Y)
    np.savez('narrow.npz', X=wide[:, :5], y=Y)

    def sizes(path) -> list:
        return [len(block.X) for _, block in read_blocks(open_files([path]))]

    expected = command('learn', 'narrow.npz', '-o', 'o')[1]
    monkeypatch.setattr('scroll.files.arrays.BLOCK_BYTES', 30_000 * 8 * 7)
    # as float64, whatever the file has
    assert sizes('wide.npz') == [7] * 5 + [5]
    assert sizes('narrow.npz') == [40]
    monkeypatch.setattr('scroll.files.arrays.BLOCK_BYTES', 300)
    assert sizes('narrow.npz') == [7] * 5 + [5]
    assert command('learn', 'narrow.npz', '-o', 'o')[1] == expected
    monkeypatch.setattr('scroll.files.arrays.BLOCK_BYTES', 1)
    assert sizes('narrow.npz') == [1] * 40
    assert BLOCK_BYTES == 1 << 27


# -- names that are nearly right
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'words, hint',
    [
        ('lern x.npz -o o', 'did you mean learn?'),
        ('learn x.npz -o o --bufer_size 3', 'did you mean --buffer_size?'),
        ('learn x.npz -o o --split trian', 'did you mean train?'),
        ('learn x.npz -o o --head LDA', 'did you mean lda?'),
        ('learn x.npz -o o --strategy hard', 'expected one of herding'),
        ('show s.npz x.npz', 'one argument too many'),
        ('learn --from x.npz --engine sparc -o o', 'did you mean spark?'),
    ],
)
def test_the_nearest_name_is_offered(command, words, hint):
    code, out, err = command(*words.split())
    assert (code, out, len(err.splitlines())) == (2, '', 1)
    assert hint in err
