"""The buffer: how many of each class, which ones, and that neither depends on the schedule where it
need not.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from scroll.ground.grid import GRID
from scroll.sums.exemplars import STRATEGIES, ExemplarBuffer, herding_order, quotas
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import Stream, cuttings, make_stream, quick, refused, streams

COUNTS = st.lists(st.integers(0, 30), min_size=1, max_size=8)
CAPACITY = st.integers(1, 60)


@quick
@given(COUNTS, CAPACITY, st.lists(st.integers(0, 12), min_size=8, max_size=8))
def test_quotas_fill_the_buffer_and_are_as_even_as_can_be(counts, capacity, more):
    q = quotas(counts, capacity)
    counts = np.array(counts)
    assert q.sum() == min(capacity, counts.sum())
    assert (q >= 0).all()
    assert (q <= counts).all()
    wanting = q[q < counts]  # of classes that have more
    if len(wanting):
        assert q.max() - wanting.min() <= 1
        assert (np.diff(wanting) <= 0).all()  # the surplus goes to the first
    later = quotas(counts + more[: len(counts)], capacity)
    # what a class has lost it would not be allowed to keep later
    assert ((later <= q) | (q == counts)).all()


def exact_herding(f, total, count, k) -> list:
    """Greedy herding in Python's integers; of equal distances the first."""
    f = f.astype(object)
    total = total.astype(object)
    s = np.zeros(f.shape[1], object)
    chosen = []
    for i in range(min(k, len(f))):
        distance = [((count * (row + s) - (i + 1) * total) ** 2).sum() for row in f]
        chosen.append(min((j for j in range(len(f)) if j not in chosen), key=lambda j: distance[j]))
        s = s + f[chosen[-1]]
    return chosen


@pytest.mark.parametrize('seed', range(60))
def test_choices_are_those_of_pythons_integers(seed):
    """Candidates a unit or two apart, or equal, and a mean that is as near to one as to another but
    for a few units: of equal distances the first."""
    r = np.random.default_rng(seed)
    n, dim, k = r.integers(1, [41, 7, 41]).tolist()
    f = r.integers(-GRID // 2, GRID // 2, dim) + r.integers(-2, 3, (n, dim))
    count = n + (1 << int(r.choice([0, 9, 24, 27])))
    total = f[0] * count + r.integers(-2, 3, (2, dim)).T @ [count // 2, 1]
    assert herding_order(f, total, count, k).tolist() == exact_herding(f, total, count, k)
    stats = Statistics(dim)
    stats.assign(
        np.zeros(1, int),
        np.array([count]),
        np.append(total, count << 18)[None],
        np.zeros((dim + 1,) * 2, np.int64),
    )
    distance = ((count * f.astype(object) - total.astype(object)) ** 2).sum(axis=1).tolist()
    for strategy, sign in ('nearest', 1), ('outlier', -1):
        buffer = ExemplarBuffer(k, strategy)
        buffer.update(np.arange(n, dtype=np.uint64), f, f, np.zeros(n, int), stats)
        order = sorted(range(n), key=lambda j: sign * distance[j])
        assert buffer.content().keys.tolist() == sorted(order[:k])


def pictures(stream: Stream) -> np.ndarray:
    """Return samples to store, key and features, so that mix-ups show."""
    return np.hstack([stream.keys[:, None].view(np.int32).reshape(-1, 2), stream.features])


def offer(buffer: ExemplarBuffer, part: Stream, statistics: Statistics) -> None:
    statistics.add(part.features, part.labels)
    buffer.update(part.keys, part.features, pictures(part), part.labels, statistics)


def fill(buffer: ExemplarBuffer, stream: Stream, pieces) -> Statistics:
    statistics = Statistics(stream.features.shape[1])
    for at in pieces:
        offer(buffer, stream.part(at), statistics)
    return statistics


def check_content(content, stream: Stream):
    """Canonical order, nothing twice, and each row belongs together as it did in the stream."""
    pairs = list(zip(content.labels.tolist(), content.keys.tolist()))
    assert pairs == sorted(set(pairs))
    row = {key: i for i, key in enumerate(stream.keys.tolist())}
    at = [row[key] for key in content.keys.tolist()]
    np.testing.assert_array_equal(content.features, stream.features[at])
    np.testing.assert_array_equal(content.labels, stream.labels[at])
    np.testing.assert_array_equal(content.samples, pictures(stream.part(at)))


@quick
@given(st.sampled_from(STRATEGIES), streams(), st.data(), st.integers(1, 30))
def test_the_buffer_is_always_as_full_as_can_be_and_divided_by_the_quotas(
    strategy, stream, data, capacity
):
    buffer = ExemplarBuffer(capacity, strategy)
    statistics = Statistics(5)
    for at in data.draw(cuttings(len(stream.labels))):
        offer(buffer, stream.part(at), statistics)
        assert len(buffer) == min(capacity, statistics.total) == len(buffer.content())
    content = buffer.content()
    check_content(content, stream)
    expected = np.repeat(statistics.classes, quotas(statistics.counts, capacity))
    assert content.labels.tolist() == expected.tolist()


@quick
@given(
    st.sampled_from(['herding', 'nearest', 'outlier', 'hash']),
    streams(),
    st.permutations(range(5)),
    st.randoms(),
    st.integers(1, 30),
    st.integers(0, 4),
)
def test_whole_classes_in_any_order_give_the_same_buffer(
    strategy, stream, classes, random, capacity, together
):
    """Also with some classes in one segment, and whatever the order of the samples in a segment."""
    groups = [[c] for c in classes[together:]] + [classes[:together]]
    pieces = [np.flatnonzero(np.isin(stream.labels, group)).tolist() for group in groups]
    for piece in pieces:
        random.shuffle(piece)
    one, two = (ExemplarBuffer(capacity, strategy) for _ in range(2))
    fill(one, stream, pieces)
    fill(two, stream, [np.arange(len(stream.labels))])
    assert one.content().digest() == two.content().digest()


@quick
@given(streams(), st.data(), CAPACITY)
def test_hash_keeps_the_lowest_keys_under_every_schedule_and_sharding(stream, data, capacity):
    pieces = data.draw(cuttings(len(stream.labels)))
    buffer = ExemplarBuffer(capacity, 'hash')
    total = fill(buffer, stream, pieces)
    expected = []
    for c, quota in zip(total.classes, quotas(total.counts, capacity)):
        expected += sorted(stream.keys[stream.labels == c].tolist())[:quota]
    content = buffer.content()
    check_content(content, stream)
    assert content.keys.tolist() == expected
    merged = ExemplarBuffer(capacity, 'hash')
    statistics = Statistics(5)
    for at in pieces[::-1]:
        shard = ExemplarBuffer(capacity, 'hash')
        counted = fill(shard, stream, [at])
        before = shard.content().digest()
        merged.merge(shard, statistics.merge(counted))
        assert shard.content().digest() == before
    assert merged.content().digest() == content.digest()
    assert merged.complete


def test_random_keeps_every_sample_with_equal_chance_however_the_class_arrives():
    """Chi-square over 200 seeds, 16 samples in four pieces among those of another class; at the
    1e-4 level.
    """
    stream = make_stream(np.repeat([0, 1], [16, 4]))
    pieces = [[0, 1, 2, 3, 4, 5, 6, 7], [16, 17, 8], [9, 10, 11, 18, 19], [12, 13, 14, 15]]
    kept = np.zeros(16)
    for seed in range(200):
        buffer = ExemplarBuffer(8, 'random', seed)
        fill(buffer, stream, pieces)
        kept += np.isin(stream.keys[:16], buffer.content().keys)
    assert kept.sum() == 200 * 4
    assert len(set(buffer.state_dict()['coins'].tolist())) == 8
    # Inclusions of 4 of 16 without replacement: the statistic below is chi-square of 15 degrees of
    # freedom
    statistic = ((kept - 50) ** 2).sum() / (200 * 0.25 * 0.75) * 15 / 16
    assert statistic < chi2.isf(1e-4, 15)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_the_removed_are_gone_and_their_places_are_filled_by_the_new(strategy):
    stream = make_stream(np.repeat([0, 1, 2], 8))
    buffer = ExemplarBuffer(12, strategy)
    statistics = fill(buffer, stream, [np.arange(16)])
    before = buffer.content()
    assert before.at([0]).digest() != before.at([1]).digest()
    gone = np.flatnonzero(stream.keys == before.keys[0])
    statistics.remove(*stream.part(gone)[:2])
    buffer.remove(stream.keys[gone], stream.labels[gone], statistics)
    assert buffer.content().keys.tolist() == before.keys[1:].tolist()
    assert len(buffer) == 11
    assert not buffer.complete
    offer(buffer, stream.part(np.arange(16, 24)), statistics)
    assert len(buffer) <= 12
    assert 2 in buffer.content().labels
    assert not np.isin(stream.keys[gone], buffer.content().keys).any()
    rest = np.flatnonzero(~np.isin(stream.keys, [*buffer.content().keys, *stream.keys[gone]]))
    statistics.remove(*stream.part(rest)[:2])
    buffer.remove(stream.keys[rest], stream.labels[rest], statistics)
    assert buffer.complete  # it has all that was learned


def test_classes_renamed_are_a_buffer_of_the_new_names():
    stream = make_stream([0, 0, 0, 1, 1, 1])
    names = {0: 'b', 1: 'a'}
    buffers = [ExemplarBuffer(6) for _ in range(2)]
    statistics = fill(buffers[0], stream, [np.arange(6)])
    buffers[0].rename(names, statistics.relabel(names))
    fill(buffers[1], stream._replace(labels=np.array(list('bbbaaa'))), [np.arange(6)])
    digests = [buffer.content().digest() for buffer in buffers]
    assert digests[0] == digests[1]
    small = ExemplarBuffer(5)
    small.rename(names, fill(small, stream, [np.arange(6)]).relabel(names))
    assert not small.complete  # the class that is first now has let its third sample go


CHANGES = {
    'a class twice': (
        {'labels': np.array([0, 1, 1]), 'sizes': np.array([2, 2, 0])},
        'arrays of the buffer',
    ),
    'classes out of order': ({'labels': np.array([1, 0])}, 'arrays of the buffer'),
    'one array more': ({'more': np.zeros(1)}, 'arrays of the buffer'),
    'no sample of a class': ({'sizes': np.array([2, 0])}, 'quota'),
    'a class never seen': ({'labels': np.array([0, 7])}, 'quota is 0'),
    'too many of a class': ({'sizes': np.array([1, 3])}, 'quota'),
    'fewer keys': ({'keys': np.arange(3, dtype=np.uint64)}, 'go together'),
    'other keys': ({'keys': np.arange(4)}, 'go together'),
    'other features': ({'features': np.zeros((4, 5))}, 'go together'),
    'other numbers': ({'coins': np.zeros(4, np.float32)}, 'go together'),
    'tables of numbers': ({'coins': np.zeros((4, 1))}, 'go together'),
    'long features': ({'features': np.full((4, 5), 1 << 17, np.int32)}, 'unit length'),
}


@pytest.mark.parametrize('change', CHANGES)
def test_arrays_that_no_buffer_has_are_refused(change):
    stream = make_stream([0, 0, 1, 1, 1])
    buffer = ExemplarBuffer(4)
    statistics = fill(buffer, stream, [np.arange(5)])
    arrays = buffer.state_dict()
    facts = {'capacity': 4, 'strategy': 'herding', 'random': arrays.pop('random')}
    seen = []
    for known in ({}, {'complete': False}, {'capacity': 5}):
        again = ExemplarBuffer.from_arrays(arrays, facts | known, statistics, seen.append)
        assert again.content().digest() == buffer.content().digest()
        assert again.complete == (not known)
        assert again.state_dict()['random'] == facts['random']
    assert len(seen) == 3
    other, word = CHANGES[change]
    with refused(word):
        ExemplarBuffer.from_arrays(arrays | other, facts, statistics, seen.append)


@pytest.mark.parametrize('arguments', [(0,), ('9',), (5, 'best'), (5, 'random', -1)])
def test_a_buffer_that_cannot_be_is_refused(arguments):
    with refused():
        ExemplarBuffer(*arguments)
    with refused('empty'):
        ExemplarBuffer(5).content()


def test_a_dropped_class_is_gone_and_its_places_stay_free():
    stream = make_stream(np.repeat([0, 1], 8))
    buffer = ExemplarBuffer(10)
    statistics = fill(buffer, stream, [np.arange(16)])
    held = buffer.content()
    buffer.drop([0], statistics.remove(stream.features[:8], stream.labels[:8]))
    assert buffer.content().keys.tolist() == held.keys[held.labels == 1].tolist()
    assert not buffer.complete
    buffer.check(held.samples)
    for samples in (held.samples[:, 1:], held.samples.astype(np.int64)):
        with refused('the buffer holds'):
            buffer.check(samples)
    with refused('16'):
        buffer.update(stream.keys, stream.features, held.samples, stream.labels[:3], statistics)


@pytest.mark.parametrize('other', [None, ExemplarBuffer(3), ExemplarBuffer(4, 'hash')])
def test_a_merge_with_a_buffer_of_another_kind_is_not_complete(other):
    buffer = ExemplarBuffer(4)
    statistics = fill(buffer, make_stream([0] * 8), [np.arange(8)])
    buffer.merge(ExemplarBuffer(4), statistics)
    assert buffer.complete
    buffer.merge(other, statistics)
    assert not buffer.complete
