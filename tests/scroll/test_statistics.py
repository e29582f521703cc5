"""Exact statistics: integers, whatever the order, the batching and the sharding; undone by
`remove`; safe on disk.
"""

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scroll.ground.grid import GRID
from scroll.sums.lift import Lift
from scroll.sums.statistics import MAX_SAMPLES, Statistics
from tests.scroll.conftest import counted, cuttings, make_stream, of, quick, refused, streams


def naive(features, labels):
    """(classes, counts, sums, gram) with Python's own integers."""
    rows = np.insert(np.asarray(features).astype(object), 5, GRID, axis=1)
    classes = sorted(set(labels))
    members = [[i for i, label in enumerate(labels) if label == c] for c in classes]
    sums = [rows[m].sum(axis=0).tolist() for m in members]
    return classes, list(map(len, members)), sums, (rows.T @ rows).tolist()


@quick
@given(streams())
def test_the_sums_equal_those_of_python_integers(stream):
    s = of(stream)
    assert (s.classes.tolist(), s.counts.tolist(), s.sums.tolist(), s.gram.tolist()) == naive(
        stream.features, stream.labels.tolist()
    )
    assert s.total == len(stream.labels)
    by_class = counted(*stream[:2], True)
    assert np.array_equal(by_class.grams.sum(axis=0), s.gram)
    assert np.array_equal(by_class.gram, s.gram)
    one = stream.labels[0]
    expected = counted(*stream.part(np.flatnonzero(stream.labels == one))[:2], True)
    assert by_class.of_class(one) == expected
    with refused('zz'):
        by_class.of_class('zz')


@quick
@given(streams(), st.data(), st.booleans())
def test_the_digest_depends_on_neither_order_nor_batching_nor_sharding(stream, data, by_class):
    expected = counted(*stream[:2], by_class).digest()
    pieces = data.draw(cuttings(len(stream.labels)))
    one_by_one = Statistics(5, by_class=by_class)
    shards = []
    for at in pieces:
        one_by_one.add(*stream.part(at)[:2])
        if data.draw(st.booleans()):  # looking on the way changes nothing
            assert one_by_one.sums[:, -1].sum() == GRID * one_by_one.total
        if data.draw(st.booleans()):
            one_by_one.digest()
        shards.append(counted(*stream.part(at)[:2], by_class))
    merged = one_by_one.empty_like()
    for shard in [*shards[::-1], Statistics(5, by_class=by_class)]:  # also one of nothing
        before = shard.digest()
        merged.merge(shard)
        assert shard.digest() == before
    assert one_by_one.digest() == merged.digest() == expected
    assert one_by_one == merged


@quick
@given(streams(), st.data(), st.booleans())
def test_removed_is_never_seen(stream, data, by_class):
    gone, *rest = data.draw(cuttings(len(stream.labels)))
    rest = np.concatenate([*rest, np.zeros(0, np.int64)])
    whole, part, left = (
        counted(*stream.part(at)[:2], by_class) for at in ([*gone, *rest], gone, rest)
    )
    assert copy.copy(whole).remove(*stream.part(gone)[:2]) == left == whole.subtract(part)
    assert part == counted(*stream.part(gone)[:2], by_class)
    assert left.remove(*stream.part(rest)[:2]) == left.empty_like()


def test_the_digest_sees_a_single_grid_step_a_label_and_the_width():
    stream = make_stream([0, 1, 1])
    nudged = stream.features.copy()
    nudged[1, 2] += 1
    same = stream._replace(labels=[0, 0, 0])
    others = (
        Statistics(5),
        Statistics(4),
        of(stream._replace(features=nudged)),
        of(stream._replace(labels=[0, 1, 2])),
        of(same),
        counted(*same[:2], True),
        *(Statistics(5, Lift('relu', 5, 3, seed)) for seed in (0, 1)),
    )
    assert len({part.digest() for part in (of(stream), *others)}) == 9
    assert of(stream) != 'text'


@pytest.mark.parametrize('low', [GRID, GRID - 999])
def test_exact_at_the_extreme_of_2_to_the_17_rows_of_the_largest_values(low):
    features = np.random.default_rng(0).integers(low, GRID + 1, (1 << 17, 2))
    features[:, 1] *= -1
    s = Statistics(2).add(features, np.arange(1 << 17) % 2)
    rows = np.concatenate([features, np.full((1 << 17, 1), GRID)], axis=1)
    np.testing.assert_array_equal(s.gram, rows.T @ rows)  # int64, no floating point
    np.testing.assert_array_equal(s.sums, [rows[::2].sum(axis=0), rows[1::2].sum(axis=0)])


@quick
@given(streams(), st.permutations(['ant', 'bee', 'cat', 'dog', 'eel']), st.booleans())
def test_relabelled_there_and_back(stream, names, by_class):
    there = dict(enumerate(names))
    numbered = counted(*stream[:2], by_class)
    named = numbered.relabel(there)
    expected = counted(stream.features, [there[c] for c in stream.labels.tolist()], by_class)
    assert named.digest() == expected.digest()
    assert named.relabel({name: c for c, name in there.items()}).digest() == numbered.digest()


@pytest.mark.parametrize('by_class', [False, True])
@pytest.mark.parametrize('labels', [[], ['bee', 'ant', 'bee'], [-5, 2**40, 7]], ids=str)
def test_saved_is_loaded(labels, by_class, tmp_path):
    s = Statistics(5, by_class=by_class)
    if labels:
        s.add(*make_stream(labels)[:2])
    s.save(tmp_path / 's.npz')
    loaded = Statistics.load(tmp_path / 's.npz')
    assert loaded == pickle.loads(pickle.dumps(s)) == s
    assert loaded.add(_FEATURES[:0], []) == s
    assert loaded.dim == 5
    assert [p.name for p in tmp_path.iterdir()] == ['s.npz']
    more = make_stream(labels or [1], seed=9)
    assert loaded.add(*more[:2]).digest() == s.add(*more[:2]).digest()


_FEATURES = make_stream([0, 0]).features


ADDED = {
    'fewer labels': (_FEATURES, [0]),
    'other labels': (_FEATURES, ['a', 'b']),
    'narrow': (_FEATURES[:, :4], [0, 1]),
    'one axis': (_FEATURES[0], [0] * 5),
    'real': (_FEATURES / 1.0, [0, 1]),
    'off the grid': (_FEATURES * 0 - GRID - 1, [0, 1]),
    'least int64': (np.full((2, 5), -(2**63)), [0, 1]),
}


@pytest.mark.parametrize('method', ['add', 'remove'])
@pytest.mark.parametrize('wrong', ADDED)
def test_samples_that_cannot_be_leave_everything_as_it_was(method, wrong):
    s = of(make_stream([0, 0, 1]))
    before = s.digest()
    with refused():
        getattr(s, method)(*ADDED[wrong])
    assert s.digest() == before


def test_an_error_leaves_everything_as_it_was():
    s = of(make_stream([0, 0, 1]))
    before = s.digest()
    for other in (
        Statistics(4),
        Statistics(5).add(_FEATURES, ['a', 'b']),
        Statistics(5, None, True),
    ):
        for change in (s.merge, s.subtract):
            with refused():
                change(other)
    with refused('instance of Statistics'):
        s.merge('text')
    for names in ({0: 5, 1: 5}, {0: 1}, {0: 0.5, 1: 1.5}):
        with refused('relabel|y'):
            s.relabel(names)
    for arguments in (
        *zip((0, -3, 2.5, '3', None, True)),
        (5, None, 2),
        (5, 'relu'),
        (5, Lift('relu', 4, 3)),
    ):
        with refused():
            Statistics(*arguments)
    assert s.digest() == before


def test_statistics_do_not_share_memory_with_what_they_came_from():
    one = of(make_stream([0, 1]))
    two = Statistics(5).merge(one)
    renamed = one.relabel({0: 0, 1: 1})
    before = one.digest()
    stream = make_stream([0, 1])
    late = of(stream)
    stream.features[:] = 0
    assert late == one
    for other in (two, renamed):
        for array in (other.classes, other.counts, other.sums, other.gram):
            with pytest.raises(ValueError, match='read-only'):
                array[...] = 0
    assert one.digest() == before


def at_the_bound(count: int) -> dict:
    """Arrays of `count` equal samples (2^18, -2^18), made by Python's integers and then wrapped, as
    int64 would.
    """
    rows = [GRID, -GRID, GRID]
    gram = np.array([[(count * a * b + 2**63) % 2**64 - 2**63 for a in rows] for b in rows])
    return {
        'classes': np.array([7]),
        'counts': np.array([count]),
        'sums': count * np.array([rows]),
        'gram': gram,
    }


def test_the_gram_matrix_at_the_bound_is_exact():
    s = Statistics.from_arrays(at_the_bound(MAX_SAMPLES))
    signs = np.outer([1, -1, 1], [1, -1, 1])
    assert np.array_equal(s.gram, MAX_SAMPLES * GRID**2 * signs)
    assert s.gram[2, 2] == 2**63 - 2**36
    one = Statistics(2).add(np.array([[GRID, -GRID]]), [7])
    before = s.digest()
    with refused(str(MAX_SAMPLES)):
        s.add(np.array([[GRID, -GRID]]), [7])
    for left, right in ((s, one), (s, s), (one, s)):
        with refused(str(MAX_SAMPLES)):
            left.merge(right)
    assert s.digest() == before
    assert one.total == 1
    less = Statistics(2).merge(s).subtract(one)
    assert less.gram[2, 2] == 2**63 - 2**37
    assert less.merge(one).digest() == before


@pytest.mark.parametrize(
    'gone, labels, said',
    [
        ([[9, 9]], [0], 'contain'),
        ([[9, 0], [1, 0]], [0, 0], 'contain'),
        ([[4, 0], [6, 0]], [0, 0], 'contain'),
        ([[4, 0], [6, 0], [0, 0]], [0, 0, 0], 'class 0 has 1 samples fewer'),
        ([[3, 0], [7, 0]], [0, 1], 'class 1 has 1 samples fewer'),
        ([[3, 0], [3, 0]], [0, 0], 'contain'),
    ],
)
def test_what_was_never_added_is_not_removed(gone, labels, said):
    s = Statistics(2).add(np.array([[3, 0], [7, 0]]), [0, 0])
    before = s.digest()
    with refused(said):
        s.remove(np.array(gone), labels)
    assert s.digest() == before
    assert s.remove(np.array([[3, 0]]), [0]).remove(np.array([[7, 0]]), [0]) == Statistics(2)


@pytest.mark.parametrize(
    'count, total, least',
    [(1, 250_001, 250_001**2), (4, 6, 1 + 1 + 4 + 4), (4, -2, 1 + 1), (5, -7, 1 + 1 + 1 + 4 + 4)],
)
def test_the_least_sum_of_squares_is_that_of_integers(count, total, least):
    """More than total^2 / count: whole numbers with this sum cannot all be equal. In 200 columns,
    where rounding errors are larger than the difference."""

    def arrays(squares: int) -> dict:
        sums = np.array([[total, *[0] * 200, GRID * count]])
        gram = np.outer(sums, sums) // count
        gram[0, 0] = squares
        return {'classes': np.array([0]), 'counts': np.array([count]), 'sums': sums, 'gram': gram}

    assert count == 1 or least - 1 >= total**2 / count
    assert Statistics.from_arrays(arrays(least)).total == count
    with refused('too small'):
        Statistics.from_arrays(arrays(least - 1))


def test_what_threads_add_merge_and_remove_at_once_is_all_counted():
    stream = make_stream(np.arange(600) % 4)
    s = Statistics(5)
    before = sys.getswitchinterval()

    def work(start: int) -> None:
        for at in range(start, 600, 24):
            for one in range(at, at + 3):
                s.add(*stream.part([one])[:2])
            s.merge(of(stream, [at])).remove(*stream.part([at])[:2])

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(0, 24, 3)))
    finally:
        sys.setswitchinterval(before)
    assert s == of(stream)


def test_a_direction_that_no_sample_had_is_not_removed():
    """All diagonals stay large enough; only the matrix as a whole can tell."""
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 3)) @ random.normal(size=(3, 8)) * 2e4
    features = features.astype(np.int64).clip(-GRID, GRID)
    s = Statistics(8).add(features, np.arange(60) % 2)
    other = features[:1].copy()
    other[0, 5] *= -1
    with refused('Gram matrix'):
        s.remove(other, [0])
    with refused('Gram matrix'):  # nor where a class goes with it
        s.remove(np.concatenate([other, features[1::2]]), [0] + 30 * [1])
    assert s.remove(features[:1], [0]).total == 59
    arrays = Statistics(2).add([[999, 999]] * 4, [0] * 4).state_dict()
    scatter = np.array([[1, -2, 0], [-2, 1, 0], [0, 0, 0]])  # negative where the mean is
    with refused('too small'):
        Statistics.from_arrays(arrays | {'gram': arrays['gram'] + 99_999 * scatter})


extremes = st.sampled_from([-GRID, -GRID + 1, -1, 0, 1, GRID - 1, GRID]) | st.integers(-GRID, GRID)


@quick
@given(st.integers(1, 6), st.integers(1, 25), st.data())
def test_what_was_added_can_always_be_removed(dim, count, data):
    """However extreme: no check may take true sums for false ones."""
    features = data.draw(hnp.arrays(np.int64, (count, dim), elements=extremes))
    labels = data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, 3)))
    copies = data.draw(st.sampled_from([1, 1000]))
    s = Statistics(dim).add(np.repeat(features, copies, axis=0), np.repeat(labels, copies))
    assert Statistics.from_arrays(s.state_dict()) == s
    for at in data.draw(st.permutations(range(count))):
        s.remove(np.repeat(features[[at]], copies, axis=0), [labels[at]] * copies)
    assert s == Statistics(dim)


@pytest.mark.parametrize(
    'change, word',
    [
        ({'classes': np.array([3, 4, 4])}, 'out of order'),
        ({'classes': np.array([3, 5, 4])}, 'out of order'),
        ({'counts': np.array([2, 1, 0])}, 'without samples'),
        ({'counts': np.array([1, 1, 1], np.int32)}, 'types'),
        ({'more': np.zeros(1)}, 'shapes'),
    ],
)
@pytest.mark.parametrize('by_class', [False, True])
def test_arrays_that_cannot_be_are_refused(change, word, by_class):
    arrays = counted(*make_stream([3, 4, 5])[:2], by_class).state_dict()
    assert Statistics.from_arrays(arrays).by_class == by_class
    short = {'classes': np.array([3, 4, 5], np.int8)}
    assert Statistics.from_arrays(arrays | short).classes.dtype == np.int64
    with refused(word):
        Statistics.from_arrays(arrays | change)


@pytest.mark.parametrize(
    'places, word',
    [([(0, 1)], 'go with'), ([(0, 1), (1, 0)], 'too small'), ([(0, 2), (2, 0)], 'go with')],
)
def test_a_column_of_zeros_has_no_products(places, word):
    arrays = Statistics(2).add(np.array([[300, 0], [500, 0]]), [0, 0]).state_dict()
    gram = arrays['gram'].copy()
    for place in places:
        gram[place] = 1
    with refused(word):
        Statistics.from_arrays(arrays | {'gram': gram})


def test_arrays_of_a_lift_need_that_lift(tmp_path):
    lift = Lift('relu', 5, 3)
    lifted = Statistics(5, lift).add(make_stream([0, 1]).features, [0, 1])
    lifted.save(tmp_path / 's.npz')
    assert Statistics.load(tmp_path / 's.npz') == lifted
    with refused('shapes'):
        Statistics.from_arrays(lifted.state_dict(), Lift('relu', 5, 4))
    with refused('lifted'):
        Statistics(65, Lift('relu', 65, 3)).add(np.full((1, 65), GRID), [0])
