"""Samples never learned are not removed; what is removed leaves no trace that can be found; what is
saved can be loaded.
"""

import errno
import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from scroll import Embedder, InputError, Scroll
from scroll.embedding.cache import FeatureCache
from scroll.ground.grid import quantise
from scroll.sums.exemplars import STRATEGIES
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import PREPROCESSING, digests, make_stream, refused, toy_images

POOL = make_stream(np.arange(14) % 3, dim=3, seed=2)
POOL = POOL._replace(features=quantise(POOL.features))  # what a learner counts, and takes as it is
positions = st.lists(st.integers(0, len(POOL.labels) - 1), min_size=1, max_size=6)
STEPS = ['add', 'merge', 'remove', 'remove learned', 'remove with wrong label', 'save']


def part(at) -> tuple:
    return POOL.features[np.array(at, int)], POOL.labels[np.array(at, int)]


def key_counts(keys) -> Counter:
    return Counter(np.asarray(keys).tolist())


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    positions,
    st.lists(st.tuples(st.sampled_from(STEPS), positions), max_size=10),
    st.sampled_from([*STRATEGIES, 'hash', 'hash']),
    st.sampled_from([0, 2, 5, 50]),
    st.booleans(),
)
def test_after_any_steps_a_learner_knows_what_remains_and_is_loaded_as_it_was_saved(
    tmp_path_factory, first, steps, strategy, size, keep_keys
):
    path = tmp_path_factory.mktemp('steps') / 'x'
    params = {'buffer_size': size, 'strategy': strategy, 'keep_keys': keep_keys}
    learner = Scroll(**params).partial_fit(*part(first))
    # None once something passed that keys alone could have shown to be wrong
    learned = Counter(first)
    for step, at in steps:
        chosen = at
        if step.endswith('learned') and learned is not None:
            chosen = sorted((learned & Counter(at)).elements())
        (X, y), offered, before = part(chosen), Counter(chosen), digests(learner)
        if step == 'save':
            learner.save(path)
            learner = Scroll.load(path)
            assert digests(learner) == before
        elif step in ('add', 'merge'):
            learner.partial_fit(X, y) if step == 'add' else learner.merge(
                Scroll(**params).partial_fit(X, y)
            )
            learned = None if learned is None else learned + offered
        else:
            true = learned is not None and not step.endswith('label') and not offered - learned
            try:
                learner.remove(X, y + step.endswith('label'))
            except InputError:
                assert not true
                assert digests(learner) == before
            else:
                assert true or not keep_keys
                learned = None if not true else learned - offered
    learner.save(path)
    other = Scroll(**params)
    other.load_state_dict(learner.state_dict())
    assert digests(Scroll.load(path)) == digests(other) == digests(learner)
    if size:
        assert (
            Scroll.load(path).buffer_.complete == other.buffer_.complete == learner.buffer_.complete
        )
    if learned is not None:
        if learned and size and learner.buffer_.complete and strategy == 'hash':
            never = Scroll(**params).partial_fit(*part(sorted(learned.elements())))
            assert never.buffer_.complete
            assert digests(learner) == digests(never)
        expected = Counter(POOL.keys[at] for at in learned.elements())
        assert learner.digest() == Statistics(3).add(*part(sorted(learned.elements()))).digest()
        assert (
            not size
            or not len(learner.buffer_)
            or not key_counts(learner.buffer_.content().keys) - expected
        )
        assert not keep_keys or key_counts(learner.keys_.state_dict()['keys']) == expected


def test_a_buffer_that_lacks_what_it_had_let_go_says_so(command):
    """Four of six samples of one class are kept, then one of these is removed: a fifth would be,
    and is gone.
    """
    X = POOL.features[:6]
    y = np.zeros(6, int)
    learner = Scroll(buffer_size=4, strategy='hash').fit(X, y)
    kept = np.isin(POOL.keys[:6], learner.buffer_.content().keys)
    gone = []
    for at, complete in ((~kept, True), (kept, False)):
        one = np.flatnonzero(at)[:1]
        gone += one.tolist()
        learner.save('before')
        np.savez('gone.npz', X=X[one], y=y[one])
        code, _, err = command('remove', 'before', '--samples', 'gone.npz', '-o', 'after')
        assert (code, 'learn again' in err) == (0, not complete)
        assert ('incomplete' in command('show', 'after')[1]) == (not complete)
        assert learner.remove(X[one], y[one]).buffer_.complete == complete

    def new(size: int, y) -> Scroll:
        return Scroll(buffer_size=size, strategy='hash').fit(X, y)

    for incomplete in (
        learner.partial_fit(POOL.features[6:], np.zeros(8, int)),  # others have its place
        new(4, y + 1).merge(learner),
        new(9, y + 1).merge(new(2, y)),
        new(3, [0, 0, 0, 1, 1, 1]).rename({0: 2}),  # 2 + 1: 1 + 1
    ):
        assert not incomplete.buffer_.complete
    assert learner.remove_class(0, np.delete(POOL.features, gone, axis=0)).buffer_.complete


def test_a_learner_with_keys_takes_none_without_and_one_without_needs_none():
    X = POOL.features
    y = POOL.labels
    keyed = Scroll(buffer_size=2, keep_keys=True).fit(X, y)
    with refused('keep_keys'):
        keyed.merge(Scroll(buffer_size=2).fit(X, y))
    plain = Scroll().fit(X[:7], y[:7]).merge(keyed)
    assert plain.keys_ is None
    assert plain.statistics_.total == 21


IMAGES, LABELS = toy_images()


@pytest.fixture
def cached(net, tmp_path):
    """cached(): an embedder with a cache below tmp_path; the features of all images are there, in
    two files.
    """

    def make():
        return Embedder(net, PREPROCESSING, chunk=8, cache=tmp_path / 'cache')

    for images in (IMAGES[:14], IMAGES[14:]):
        embedder = make()
        embedder(images)
        embedder.cache.flush()
    return make


def rows_on_disk(folder) -> set:
    """The features in all files of a cache, each as bytes, whatever their keys."""
    return {row.tobytes() for path in folder.rglob('*.npy') for row in np.load(path)[:, 2:]}


def test_what_is_removed_leaves_the_cache_too(cached, tmp_path, embedder):
    gone = [3, 15, 16]
    features = embedder(IMAGES)[0]
    learner = Scroll(cached(), buffer_size=50).fit(IMAGES, LABELS)
    assert {features[at].tobytes() for at in range(24)} == rows_on_disk(tmp_path)
    learner.remove(IMAGES[gone], LABELS[gone])
    learner.embedder.cache.flush()
    left = {features[at].tobytes() for at in range(24) if at not in gone}
    assert rows_on_disk(tmp_path) == left
    held = learner.buffer_.content()
    assert len(held) == 21
    assert not {image.tobytes() for image in held.samples} & {IMAGES[at].tobytes() for at in gone}
    seen = []
    again = cached()
    again.net.features = lambda x, compute=again.net.features: seen.append(x) or compute(x)
    # what remains is read, what was removed is computed
    np.testing.assert_array_equal(again(IMAGES)[0], features)
    assert len(seen) == 1
    again.cache.flush()  # and learned again, it is there again
    assert len(rows_on_disk(tmp_path)) == 24
    assert all(FeatureCache(path.parent, embedder.dim) for path in tmp_path.rglob('*.npy'))


def test_a_cache_that_cannot_be_changed_is_one_line_and_changes_nothing(
    cached, tmp_path, monkeypatch
):
    learner = Scroll(cached()).fit(IMAGES, LABELS)
    before = digests(learner)
    files = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}

    def full(*given):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'replace', full)
    with refused('feature cache .*No space left'):
        learner.remove(IMAGES[:5], LABELS[:5])
    assert digests(learner) == before
    assert {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()} == files


@pytest.mark.parametrize('named', [False, True])
def test_a_class_is_removed_as_if_it_had_never_been(named):
    """Remove by its samples, or by its name where the buffer has them all."""
    (X, y), rest = (part(np.flatnonzero(at)) for at in (POOL.labels == 2, POOL.labels != 2))
    learner = Scroll(buffer_size=14, keep_keys=True).fit(POOL.features, POOL.labels)
    given_ = {} if named else {'X': X}
    assert learner.remove_class(2, **given_) is learner
    assert digests(learner) == digests(Scroll(buffer_size=14, keep_keys=True).fit(*rest))
    with refused('class 2 is not among'):
        learner.remove_class(2, **given_)
    assert digests(learner.partial_fit(X, y)) == digests(
        Scroll(buffer_size=14, keep_keys=True).fit(POOL.features, POOL.labels)
    )


@pytest.mark.parametrize(
    'given_, word',
    [
        ({}, '3 of 5 samples of class 0 are in the buffer: give all'),
        ({'X': POOL.features[:2]}, '2 of 5 samples of class 0 are given'),
        ({'X': csr_array(POOL.features[:5])}, 'sparse'),
        ({'X': -POOL.features[:5]}, 'class|part|learned'),
    ],
)
def test_what_is_not_a_whole_class_is_refused_and_nothing_is_changed(given_, word):
    learner = Scroll(buffer_size=8, keep_keys=True).fit(POOL.features, POOL.labels)
    before = digests(learner)
    with refused(word):
        learner.remove_class(0, **given_)
    assert digests(learner) == before


@pytest.mark.parametrize(
    'names', [{0: 2, 2: 0}, {0: 'x', 1: 'y', 2: 'a'}, {0: 1, 1: 2, 2: 0}], ids=repr
)
@pytest.mark.parametrize('head', ['ridge', 'qda', 'balanced'])
def test_renamed_is_learned_under_that_name(names, head, tmp_path):
    how = {'head': head, 'buffer_size': 14, 'keep_keys': True}
    learner = Scroll(**how).fit(POOL.features, POOL.labels)
    assert learner.rename(names) is learner
    labels = [names.get(label, label) for label in POOL.labels.tolist()]
    expected = Scroll(**how).fit(POOL.features, labels)
    assert digests(learner) == digests(expected)
    assert learner.predict(POOL.features).tolist() == expected.predict(POOL.features).tolist()
    learner.save(tmp_path / 'x')
    assert digests(Scroll.load(tmp_path / 'x')) == digests(expected)


@pytest.mark.parametrize(
    'names, word',
    [
        ({9: 1}, 'class 9'),
        ({0: 1}, 'same name'),
        ({0: 'x'}, 'labels'),
        ({0: 'x', 1: 'y\0', 2: 'z'}, 'NUL'),
        (['a'], 'mapping'),
    ],
)
def test_names_that_cannot_be_are_refused(names, word):
    learner = Scroll(buffer_size=7, keep_keys=True).fit(POOL.features, POOL.labels)
    before = digests(learner)
    with refused(word):
        learner.rename(names)
    assert digests(learner) == before


def test_which_samples_were_never_learned_is_known_by_their_keys():
    learner = Scroll(keep_keys=True).fit(*part(range(9)))
    with refused('1 of 2 samples were never learned.* at 1'):
        learner.remove(*part([0, 9]))
