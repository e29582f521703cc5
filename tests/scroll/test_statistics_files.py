"""Statistics on disk: shares of several machines put together, taken out again, and what is
refused, by command line.
"""

from pathlib import Path

import numpy as np
import pytest

from scroll.files import edits
from scroll.ground.grid import GRID, quantise
from scroll.learners.state import State
from scroll.sums.statistics import Statistics, contradiction
from tests.scroll.conftest import make_stream, of

STREAM = make_stream(np.arange(60) % 4, seed=3)
A = np.arange(0, 20)
B = np.arange(20, 37)
C = np.arange(37, 60)


@pytest.fixture
def shares(tmp_path, monkeypatch):
    """In a folder with a.npz, b.npz, c.npz, all.npz, which one machine made of all samples, a
    learner's s.npz, and samples.
    """
    monkeypatch.chdir(tmp_path)
    for name, at in {'a': A, 'b': B, 'c': C, 'all': np.arange(60)}.items():
        of(STREAM, at).save(f'{name}.npz', psi='0' * 64)
    State({'seed': 3}, '0' * 64, of(STREAM)).write('s.npz')
    np.savez('old.npz', quantised=STREAM.features[A], labels=STREAM.labels[A])
    return tmp_path


def test_one_file_of_embedded_images_is_removed_at_a_time(shares, command):
    words = 'remove s.npz --samples old.npz old.npz -o x.npz'
    assert command(*words.split())[0] == 2


def test_shares_put_together_are_what_one_machine_counts(shares, command):
    expected = of(STREAM).digest()
    for number, order in enumerate((['a', 'b', 'c'], ['c', 'a', 'b'], ['b', 'c', 'a'])):
        code, out, err = command('merge', *(f'{name}.npz' for name in order), '-o', f'{number}.npz')
        assert (code, out) == (0, f'{expected}\n')
        assert err.startswith('labels are integers')
        assert len(err.splitlines()) == 1
        assert Statistics.load(f'{number}.npz').digest() == expected
    assert command('digest', 'all.npz')[1] == f'{expected}\n'


@pytest.mark.parametrize('product, possible', [(-1, True), (0, True), (-2, False)])
def test_sums_may_not_vary_less_than_not_at_all(product, possible):
    """Two classes with opposite means; of two features variance v and covariance `product` times v
    within classes, which only a matrix without what is between them shows."""
    n, a = 80, GRID // 2
    v = n * a * a // 10
    mean = np.array([[a, a, GRID], [-a, -a, GRID]])
    gram = n * mean.T @ mean
    gram[:2, :2] += v * np.array([[1, product], [product, 1]])
    wrong = contradiction(np.array([n, n]), n * mean, gram)
    assert wrong == ('' if possible else 'a Gram matrix too small for the sums')


def test_removed_is_never_seen(shares, command):
    rest = of(STREAM, A, C).digest()
    for whole in ('all.npz', 'abc.npz'):  # whether or not the part is one that the file was made of
        command('merge', 'a.npz', 'b.npz', 'c.npz', '-o', 'abc.npz')
        code, out, err = command('remove', whole, '--minus', 'b.npz', '-o', 'rest.npz')
        assert (code, out) == (0, f'{rest}\n')
        assert ('not verified' in err) == (whole == 'all.npz')
        # and it may come back
        code, out, _ = command('merge', 'rest.npz', 'b.npz', '-o', 'again.npz')
        assert code == 0
        assert out == f'{of(STREAM).digest()}\n'
        assert edits.read('again.npz').parts == edits.read(whole).parts
    out = command('remove', 'all.npz', '--minus', 'a.npz', 'b.npz', 'c.npz', '-o', 'none.npz')[1]
    assert out == f'{Statistics(5).digest()}\n'


def test_shares_of_equal_samples_count_twice_where_the_user_says_so_alone(shares, command, refusal):
    command('merge', 'a.npz', 'b.npz', 'c.npz', '-o', 'abc.npz')
    for other in ('a.npz', 'abc.npz', 'all.npz'):  # all: its sums are known, not its parts
        err = refusal('merge', 'abc.npz', other, '-o', 'out.npz')
        assert 'twice' in err
        assert other in err
        assert '--repeated' in err
    assert not Path('out.npz').exists()
    code, out, _ = command('merge', 'a.npz', 'b.npz', 'a.npz', '-o', 'out.npz', '--repeated')
    assert code == 0
    assert out == f'{of(STREAM, A, B, A).digest()}\n'
    assert edits.read('out.npz').parts == {of(STREAM, A).digest(): 2, of(STREAM, B).digest(): 1}
    assert 'x 2' in command('show', 'out.npz')[1]
    for left in ((A, B), (B,)):
        out = command('remove', 'out.npz', '--minus', 'a.npz', '-o', 'out.npz')[1]
        assert out == f'{of(STREAM, *left).digest()}\n'


def test_statistics_of_another_psi_are_refused(shares, refusal):
    of(STREAM, B).save('other.npz', psi='1' * 64)
    of(STREAM, B).save('plain.npz')
    for path in ('other.npz', 'plain.npz'):
        for words in (['merge', 'a.npz', path], ['remove', 'all.npz', '--minus', path]):
            err = refusal(*words, '-o', 'out.npz')
            assert 'backbone' in err
            assert path in err
    assert not Path('out.npz').exists()


def test_what_is_shown(shares, command):
    command('remove', 'all.npz', '--minus', 'a.npz', '-o', 'rest.npz')
    out = command('show', 'rest.npz')[1]
    facts = dict(line.split(maxsplit=1) for line in out.splitlines()[:6])
    assert facts == facts | {
        'samples': '40',
        'classes': '4',
        'dim': '5',
        'backbone': '0' * 16,
        'digest': of(STREAM, B, C).digest(),
        'parts': f'2: {of(STREAM).digest()[:16]}, -{of(STREAM, A).digest()[:16]}',
    }
    counts = [line.split() for line in out.splitlines()[8:]]
    assert counts == [[str(n), str(c)] for c, n in enumerate(np.bincount(STREAM.labels[20:]))]


@pytest.mark.parametrize(
    'words',
    [
        'remove all.npz --minus a.npz --samples b.npz -o x',
        'merge a.npz s.npz -o x',
        'unlearn s.npz --samples s.npz -o x',
        'unlearn s.npz --classes 0 -o x',
    ],
)
def test_a_command_that_cannot_be_carried_out_is_one_line(shares, refusal, words):
    before = sorted(shares.iterdir())
    refusal(*words.split())
    assert sorted(shares.iterdir()) == before


NINE = {'labels': STREAM.labels[:9], 'quantised': STREAM.features[:9]}
SAMPLES = {
    'no labels': ({'quantised': STREAM.features}, 'labels'),
    'features of X': ({'X': STREAM.features[:9], 'y': STREAM.labels[:9]}, 'quantised'),
    'narrow features': (NINE | {'quantised': quantise(np.eye(9, 3) + 1)}, '3'),
    'long features': (NINE | {'quantised': STREAM.features[:9] * 2}, 'grid'),
    'a number': (NINE | {'quantised': np.array(3)}, ''),
    'real labels': (NINE | {'labels': STREAM.labels[:9] / 2}, 'y[1] is 0.5'),
    'fewer keys': (NINE | {'keys': STREAM.keys[:8]}, 'keys'),
    'keys as text': (NINE | {'keys': np.array(['a'] * 9)}, 'keys'),
}


@pytest.mark.parametrize('wrong', SAMPLES)
def test_samples_that_cannot_be_are_refused(shares, refusal, wrong):
    content, word = SAMPLES[wrong]
    np.savez('old.npz', **content)
    err = refusal('remove', 'all.npz', '--samples', 'old.npz', '-o', 'rest.npz')
    assert 'old.npz' in err
    assert word in err
    assert not Path('rest.npz').exists()


def test_a_class_is_shown_on_its_line_whatever_its_name(shares, command):
    names = ['a', 'a\0b', 'b\nc', '\ud800']
    Statistics(5).add(STREAM.features, [names[label] for label in STREAM.labels]).save('named.npz')
    code, out, err = command('show', 'named.npz')
    assert (code, err) == (0, '')
    assert [line.split()[-1] for line in out.splitlines()[-4:]] == ['a', *map(repr, names[1:])]
    command('merge', 'named.npz', 'named.npz', '--repeated', '-o', 'twice.npz')
    assert Statistics.load('twice.npz').classes.tolist() == names
    assert Statistics.load('twice.npz').counts.tolist() == [30] * 4
    assert command('remove', 'twice.npz', '--minus', 'named.npz', '-o', 'once.npz')[0] == 0
    assert Statistics.load('once.npz') == Statistics.load('named.npz')


@pytest.mark.parametrize(
    'parts, said',
    [
        ({of(STREAM, B).digest(): 1}, 'not those of their parts'),
        ({}, 'invalid'),
        ({of(STREAM, A).digest(): 1.0}, 'invalid'),
    ],
)
def test_statistics_that_are_not_those_of_their_part_are_refused(shares, refusal, parts, said):
    of(STREAM, A).save('forged.npz', parts=parts)
    assert said in refusal('show', 'forged.npz')
