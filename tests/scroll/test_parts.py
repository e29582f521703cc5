"""Files of learners know their parts, so that nothing counts twice; several processes lose nothing
of each other's.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scroll import Scroll, Statistics
from scroll.__main__ import main
from scroll.files import edits
from scroll.ground import archive
from scroll.ground.grid import quantise
from scroll.learners.state import State
from tests.conftest import ROOT
from tests.scroll.conftest import refused

SHARES = [np.random.default_rng(i).normal(size=(12, 4)).astype(np.float32) for i in range(4)]
LABELS = np.arange(12) % 3


def digest_of(shares: Counter) -> str:
    """Digest of a learner that has seen each share as often."""
    out = Statistics(4)
    for i in shares.elements():
        out.add(quantise(SHARES[i]), LABELS)
    return out.digest()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """In a folder with the samples 0.npz ... 3.npz, and learners of them, s0.npz ..."""
    monkeypatch.chdir(tmp_path)
    for i, X in enumerate(SHARES):
        np.savez(f'{i}.npz', X=X, y=LABELS)
        assert main(['learn', f'{i}.npz', '-o', f's{i}.npz']) == 0
    return tmp_path


share = st.integers(0, 3)
place = st.integers(0, 9)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(['add', 'merge', 'remove']), place, place, share), max_size=9
    )
)
def test_any_sequence_of_commands_counts_nothing_twice(home, steps):
    files_ = [Counter({i: 1}) for i in range(4)]  # shares in each file
    gone = [set() for _ in range(4)]  # and those that were, and are not
    for kind, first, second, i in steps:
        a = first % len(files_)
        b = second % len(files_)
        out = f's{len(files_)}.npz'
        if kind == 'add':
            code = main(['add', f's{a}.npz', f'{i}.npz', '-o', out])
            new = files_[a] + Counter([i])
            lost = gone[a] - {i}
            expected = 0
        elif kind == 'merge':
            code = main(['merge', f's{a}.npz', f's{b}.npz', '-o', out])
            new = files_[a] + files_[b]
            lost = (gone[a] | gone[b]) - set(new)
            expected = 2 if files_[a] & files_[b] else 0
        else:
            if not files_[a][i] and i not in gone[a]:  # no part of it: sums alone can tell
                continue
            code = main(['remove', f's{a}.npz', '--samples', f'{i}.npz', '-o', out])
            new = files_[a] - Counter([i])
            lost = gone[a] | ({i} - set(new))
            expected = 0 if files_[a][i] else 2
        assert code == expected, (kind, files_[a], files_[b], i)
        if code == 0:
            files_.append(new)
            gone.append(lost)
            assert State.read(out).statistics.digest() == digest_of(new)
            assert {part: times for part, times in State.read(out).parts.items() if times} == {
                digest_of(Counter([j])): times for j, times in new.items() if times
            }


def test_a_file_that_counts_twice_is_named(home, capsys):
    for words in ('learn 0.npz 0.npz', 'add s0.npz 0.npz'):
        assert main([*words.split(), '-o', 'x.npz']) == 0
        assert f'{digest_of(Counter([0]))[:16]} x 2' in capsys.readouterr().err
    words = 'learn --from 0.npz --from 1.npz --buffer_size 0 -o x.npz'
    assert main(words.split()) == 0
    assert 'x 2' not in capsys.readouterr().err


def merge_codes(name: str) -> list[int]:
    """Return exit codes of a merge with each learner."""
    return [main(['merge', name, f's{i}.npz', '-o', 'x.npz']) for i in range(4)]


def test_a_learner_knows_its_parts_in_python_too(home):
    one, two = (Scroll(buffer_size=0).partial_fit(SHARES[i], LABELS) for i in range(2))
    one.merge(two).save('both.npz')  # neither was ever saved
    assert main(['merge', 'both.npz', 's1.npz', '-o', 'x.npz']) == 2
    more = (
        Scroll.load('both.npz')
        .partial_fit(SHARES[2][:6], LABELS[:6])
        .partial_fit(SHARES[2][6:], LABELS[6:])
    )
    more.save('more.npz')
    assert merge_codes('more.npz') == [2, 2, 2, 0]
    # what it has saved is a part of what it saves next
    more.partial_fit(SHARES[3], LABELS).save('all.npz')
    assert merge_codes('all.npz') == [2] * 4
    more.remove(SHARES[0], LABELS).save('less.npz')
    assert merge_codes('less.npz') == [0, 2, 2, 2]
    assert main(['remove', 'less.npz', '--samples', '0.npz', '-o', 'x.npz']) == 2
    more.fit(SHARES[0], LABELS).save('again.npz')  # and nothing of what it has forgotten
    assert list(State.read('again.npz').parts) == [digest_of(Counter([0]))]


@pytest.mark.parametrize(
    'name, version', [('s0.npz', 'scroll-state-1'), ('sums.npz', 'scroll-statistics-2')]
)
def test_files_of_before_features_were_rounded_to_float32_are_refused(home, name, version):
    State.read('s0.npz').statistics.save('sums.npz')
    facts, arrays = archive.read(name, version)
    del facts['precision']
    archive.write('old.npz', version, facts, arrays)
    with refused('old.npz: of a version before 0.3'):
        edits.read('old.npz')


def start(*words, cwd) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, '-m', 'scroll', *words],
        cwd=cwd,
        env={'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_commands_that_change_one_file_at_once_lose_nothing(home):
    (home / 'link.npz').symlink_to('s0.npz')
    names = ['s0.npz', 'link.npz', './s0.npz']  # one file
    with archive.locked('s0.npz'):  # so that all of them have begun, and wait
        running = [
            start('add', name, f'{i}.npz', '-o', name, cwd=home)
            for i, name in zip((1, 2, 3), names)
        ]
        for process in running:
            assert 'waiting' in process.stderr.readline()
    assert [process.wait(60) for process in running] == [0, 0, 0]
    for process in running:
        process.communicate()
    assert State.read('s0.npz').statistics.digest() == digest_of(Counter(range(4)))
    assert Path('link.npz').is_symlink()
    assert sorted(path.name for path in home.iterdir()) == sorted(
        [*(f'{i}.npz' for i in range(4)), *(f's{i}.npz' for i in range(4)), 'link.npz']
    )
