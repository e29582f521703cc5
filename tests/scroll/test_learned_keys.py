"""LearnedKeys: a multiset, checked against Python's own."""

import copy
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scroll.sums.learned_keys import LearnedKeys
from tests.scroll.conftest import quick, refused

samples = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 2**64 - 1]), st.sampled_from(['ant', 'bee'])), max_size=12
)


def arrays(pairs) -> tuple:
    keys, labels = zip(*pairs) if pairs else ((), ())
    return np.array(keys, np.uint64), np.array(labels, str)


def content(known: LearnedKeys) -> Counter:
    keys, labels = known.samples()
    return Counter(zip(keys.tolist(), labels.tolist()))


@quick
@given(
    st.lists(st.tuples(st.sampled_from(['add', 'merge', 'remove', 'drop']), samples), max_size=12)
)
def test_it_is_a_multiset(steps):
    known = LearnedKeys()
    expected = Counter()
    for step, pairs in steps:
        before = copy.copy(known)
        kept = Counter(expected)
        wanted = Counter(pairs)
        if step == 'remove' and wanted - expected:
            with refused(str((wanted - expected).total())):
                known.remove(*arrays(pairs))
        elif step == 'remove':
            known.remove(*arrays(pairs))
            expected -= wanted
        elif step == 'drop':
            known.drop(np.array(['ant']))
            expected = Counter({pair: n for pair, n in expected.items() if pair[1] != 'ant'})
        elif step == 'add':
            known.add(*arrays(pairs))
            expected += wanted
        else:
            known.add(*LearnedKeys().add(*arrays(pairs)).samples())
            expected += wanted
        assert content(known) == expected
        assert content(before) == kept  # what was copied stays as it was


@quick
@given(samples, samples)
def test_what_is_lacking_is_named_by_its_place(held, asked):
    left = Counter(held)
    expected = []
    for at, pair in enumerate(asked):
        if left[pair] == 0:
            expected.append(at)
        left[pair] -= left[pair] > 0
    assert LearnedKeys().add(*arrays(held)).lacks(*arrays(asked)).tolist() == expected


def test_many_small_segments_are_one_large_one():
    keys = np.random.default_rng(0).integers(0, 2**63, 3000, dtype=np.uint64)
    known = LearnedKeys()
    for at in range(3000):
        known.add(keys[at : at + 1], [at % 3])
    whole = LearnedKeys().add(keys, np.arange(3000) % 3)
    assert content(known) == content(whole)
    assert len(known.lacks(keys, np.arange(3000) % 3)) == 0
