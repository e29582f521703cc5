"""`python -m scroll` and hostile inputs: pipes, devices, deep JSON, readers that go, more than
memory holds. One line each, and an end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scroll import Scroll, Statistics
from scroll.files.features import open_files, read_blocks
from scroll.ground import arguments
from scroll.ground.archive import arrays_of
from scroll.sums.lift import Lift
from tests.conftest import ROOT
from tests.scroll.conftest import refused

X = np.random.default_rng(0).normal(size=(40, 5))
Y = np.arange(40) % 2


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
def test_no_output_replaces_samples(refusal, words):
    assert 'would be lost' in refusal(*words.split())
    assert set(np.load('x.npz')) == {'X', 'y'}


@pytest.mark.parametrize('words', [*INPUTS, *OUTPUTS])
def test_every_input_and_output_is_a_regular_file(refusal, words):
    paths = (
        ('pipe', '/dev/zero', 'deep.json', 'nothing', '')
        if words in INPUTS
        else ('pipe', '/dev/full', '/dev/null', *['-'] * ('predict' not in words))
    )
    for path in paths:
        err = refusal(*(path if word == '@' else word for word in words.split()))
        assert words in INPUTS or path in err
    assert sorted(os.listdir()) == ['deep.json', 'pipe', 's.npz', 'x.npz']


def test_what_killed_exports_left_goes_with_the_next_one(command):
    """A part of another target, which `e` links to, stays."""
    before = set(os.listdir())
    for name in ('e.1-0123abcd.part', 'f.1-0123abcd.part'):
        os.makedirs(f'{name}/half')
    os.symlink('there', 'e')
    for target in ('e', 'f'):
        assert command('export', 's.npz', '-o', target)[0] == 0
    assert os.readlink('e') == 'there'
    assert Path('there/certificate.json').is_file()
    assert set(os.listdir()) - before == {'e', 'e.1-0123abcd.part', 'f', 'there'}


@pytest.mark.parametrize(
    'words', ['add s.npz x.npz -o', 'predict s.npz x.npz -o', 'export s.npz -o']
)
def test_a_folder_is_not_made_without_a_word(command, words):
    code, _, err = command(*words.split(), 'new/er/s')
    assert code == 0
    assert err.endswith(f'made the folder {os.getcwd()}/new/er\n')
    assert os.path.exists('new/er/s')
    assert 'folder' not in command(*words.split(), 'new/er/t')[2]
    assert 'folder' not in command('add', 'nothing', 'x.npz', '-o', 'newer/s')[2]
    assert not os.path.exists('newer')


def test_labels_on_standard_output(command):
    assert command('predict', 's.npz', 'x.npz', '-o', 'labels.csv')[0] == 0
    code, out, err = command('predict', 's.npz', 'x.npz', '-o', '-')
    assert (code, out, len(err.splitlines())) == (0, Path('labels.csv').read_text(), 1)
    assert err.startswith('accuracy ')


@pytest.mark.parametrize(
    'words, code', [('merge s.npz s.npz --repeated -o o', 141), ('show nothing', 2)]
)
def test_a_reader_that_goes_ends_a_command_without_a_word(command, words, code):
    """Without its messages a merge is done all the same."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, '-m', 'scroll', *words.split()],
        stdout=write,
        stderr=write if code == 141 else subprocess.PIPE,
        env={'PYTHONPATH': str(ROOT)},
        text=True,
        timeout=120,
        check=False,
    )
    os.close(write)
    assert done.returncode == code
    if code == 141:
        assert Scroll.load('o').statistics_.total == 80
    else:
        assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def gigabyte(monkeypatch):
    monkeypatch.setattr(arguments, 'available_memory', lambda: 1 << 30)


@pytest.mark.parametrize(
    'message, make',
    [
        (
            'Gram matrix of 20000 features takes 3.0 GiB of memory: 1.0 GiB',
            lambda: Statistics(20_000),
        ),
        ('random matrix of lift fourier', lambda: Lift('fourier', 4000, 20_000).matrix),
        (
            'Gram matrix of 12005 features',
            lambda: Scroll(head='rp', lift_dim=12_000, buffer_size=0).partial_fit(X, Y),
        ),
        (
            'each of 40 classes takes 1.9 GiB',
            lambda: Scroll(head='qda', buffer_size=0).partial_fit(np.eye(40, 2500), np.arange(40)),
        ),
    ],
    ids=['statistics', 'lift', 'lifted', 'classes'],
)
def test_sums_that_memory_cannot_hold_are_refused_before_they_are_made(gigabyte, message, make):
    with refused(message):
        make()


def test_a_file_that_memory_cannot_hold_is_refused_before_it_is_read(command, monkeypatch):
    np.savez_compressed('big.npz', labels=np.zeros(1 << 25, np.int64))
    monkeypatch.setattr(arguments, 'available_memory', lambda: 1 << 27)
    with refused('big.npz.*0.3 GiB'):
        arrays_of('big.npz')


@pytest.mark.parametrize(
    'width, limit, expected',
    [
        (300, 300 * 8 * 7, [7] * 5 + [5]),
        (5, 300 * 8 * 7, [40]),
        (5, 300, [7] * 5 + [5]),
        (5, 1, [1] * 40),
    ],
)
def test_blocks_are_bounded_in_bytes_and_change_no_digest(
    command, monkeypatch, width, limit, expected
):
    """Bytes as float64, whatever the file has."""
    np.savez('x.npz', X=np.random.default_rng(0).normal(size=(40, width)).astype('f4'), y=Y)
    digest = command('learn', 'x.npz', '-o', 'o')[1]
    monkeypatch.setattr('scroll.files.features.BLOCK_BYTES', limit)
    assert [len(block.X) for _, block in read_blocks(open_files(['x.npz']))] == expected
    assert command('learn', 'x.npz', '-o', 'o')[1] == digest


@pytest.mark.parametrize(
    'words, hint',
    [
        ('lern x.npz -o o', 'did you mean learn?'),
        ('learn x.npz -o o --bufer_size 3', 'did you mean --buffer_size?'),
        ('learn x.npz -o o --split trian', 'did you mean train?'),
        ('learn x.npz -o o --head LDA', 'did you mean lda?'),
        ('learn x.npz -o o --strategy hard', 'expected one of herding'),
        ('show s.npz x.npz', 'one argument too many'),
        ('learn --from x.npz --head rigde -o o', 'did you mean ridge?'),
    ],
)
def test_the_nearest_name_is_offered(refusal, words, hint):
    assert hint in refusal(*words.split())
