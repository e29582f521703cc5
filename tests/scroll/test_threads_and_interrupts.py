"""One learner, many threads, interrupts anywhere: it is what integer sums of some of the calls are,
and nothing else.
"""

import copy
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scroll import InputError, Scroll, ScrollClassifier, Statistics
from scroll.ground.grid import quantise, sample_keys
from tests.scroll.conftest import interrupted

LABELS = np.array(['a', 'b', 'c', 'd'])


def data(n: int, d: int = 5, seed: int = 0) -> tuple:
    r = np.random.default_rng(seed)
    return r.normal(size=(n, d)).astype(np.float32), LABELS[r.integers(4, size=n)]


def at_once(*calls) -> list:
    """The errors, if any, of functions that begin together in threads of their own."""
    start = threading.Barrier(len(calls))

    def run(call):
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(run, call) for call in calls]
        return list(filter(None, (future.exception() for future in futures)))


SETTINGS = [
    {'buffer_size': 0},
    {'buffer_size': 6, 'keep_keys': True},
    {'buffer_size': 6, 'strategy': 'hash'},
    {'buffer_size': 5, 'strategy': 'random'},
    {'head': 'qda', 'buffer_size': 4},
]


def whole(learner) -> tuple:
    return (
        learner.digest(),
        learner.buffer_ and repr(learner.buffer_.state_dict()),
        learner.keys_ and repr(learner.keys_.state_dict()),
        learner.predictor().digest(),
    )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_an_interrupt_at_any_line_leaves_a_learner_as_before_or_as_after(draw):
    X, y = data(60)
    how = draw.draw(st.sampled_from(SETTINGS))
    other = Scroll(**how).partial_fit(X[40:], y[40:])
    calls = {
        'partial_fit': lambda m: m.partial_fit(X[20:40], y[20:40]),
        'merge': lambda m: m.merge(other),
        'remove': lambda m: m.remove(X[:5], y[:5]),
        'rename': lambda m: m.rename({'a': 'z'}),
        'digest': lambda m: m.digest(),
        'predict': lambda m: m.predict(X),
    }
    call = calls[draw.draw(st.sampled_from(sorted(calls)))]
    learner, before, after = (Scroll(**how).partial_fit(X[:20], y[:20]) for _ in range(3))
    call(after)
    with suppress(KeyboardInterrupt), interrupted(draw.draw(st.integers(1, 400))):
        call(learner)
    assert whole(learner) in (whole(before), whole(after))


def test_a_classifier_fitted_again_and_interrupted_has_the_old_columns_or_the_new_ones():
    X, y = data(30)
    one, two = (pd.DataFrame(X, columns=list(names)) for names in ('abcde', 'vwxyz'))

    def known(classifier) -> tuple:
        return (
            classifier.digest(),
            classifier.feature_names_in_.tolist(),
            classifier.predict(X).tolist(),
        )

    first = ScrollClassifier().fit(one[:20], y[:20])
    again = copy.deepcopy(first)
    before = known(first)
    with interrupted(1 << 20) as fit:
        again.fit(two, y)
    lines = (1 << 20) - fit.left
    for at in (*range(1, lines, 50), *range(lines - 15, lines)):
        classifier = copy.deepcopy(first)
        with suppress(KeyboardInterrupt), interrupted(at):
            classifier.fit(two, y)
        assert known(classifier) in (before, known(again))


SWAP = {'a': 'b', 'b': 'a'}


def names_in(learner, X, y) -> np.ndarray:
    """Return the name by which each sample is known, y or the one that it has after a swap; '' of
    one that is not.
    """
    keys = sample_keys(quantise(X))
    swapped = np.array([SWAP.get(label, label) for label in y.tolist()])
    names = np.full(len(y), '')
    for labels in (swapped, y):
        known = ~np.isin(np.arange(len(y)), learner.keys_.lacks(keys, labels))
        names[known] = labels[known]
    return names


def check_whole(learner, X, y) -> None:
    """Sums, keys and f_T are those of one set of samples, and the buffer keeps some of these."""
    names = names_in(learner, X, y)
    known = names != ''
    again = Scroll(buffer_size=4, keep_keys=True).partial_fit(X[known], names[known])
    assert learner.digest() == again.digest()
    assert learner.predictor().digest() == again.predictor().digest()
    held = learner.buffer_.content()
    assert not len(again.keys_.lacks(held.keys, held.labels))
    assert held.features.shape[1] == X.shape[1]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_threads_that_read_write_copy_save_and_are_interrupted_leave_the_sums_of_what_was_done(
    tmp_path, draw
):
    X, y = data(90)
    parts = [slice(i, i + 5) for i in range(10, 90, 5)]
    path = tmp_path / 'state.npz'
    done = []
    learner = Scroll(buffer_size=4, keep_keys=True).partial_fit(X[:10], y[:10])

    def learn(part: slice) -> None:
        if part.start < 60:
            learner.partial_fit(X[part], y[part])
        else:
            learner.merge(Scroll(buffer_size=4, keep_keys=True).partial_fit(X[part], y[part]))
        done.append(part)

    def saved() -> Scroll:
        learner.save(path)
        return Scroll.load(path)

    copies = [
        lambda: pickle.loads(pickle.dumps(learner)),
        lambda: copy.deepcopy(learner),
        lambda: copy.copy(learner),
        saved,
    ]
    reads = [
        lambda: learner.predict(X),
        learner.digest,
        lambda: learner.statistics_.gram,
        lambda: names_in(learner, X, y),
    ]
    reads += [lambda make=make: check_whole(make(), X, y) for make in copies]
    edits = [
        lambda: learner.rename(SWAP),
        lambda: learner.remove(X[:5], y[:5]),
        lambda: learner.save(path),
    ]

    def write(call, line: int) -> None:
        # what was renamed is not removed by its old name
        with suppress(KeyboardInterrupt, InputError), interrupted(line):
            call()

    calls = [partial(learn, part) for part in parts]
    calls += draw.draw(st.lists(st.sampled_from(edits), max_size=8))
    writes = [
        partial(write, call, draw.draw(st.integers(1, 1500)))
        for call in draw.draw(st.permutations(calls))
    ]
    half = len(writes) // 2
    for some in (writes[:half], writes[half:]):
        assert at_once(*some, *draw.draw(st.lists(st.sampled_from(reads), max_size=6))) == []
    check_whole(learner, X, y)
    names = names_in(learner, X, y)
    for part in parts:
        assert len(set(names[part] == '')) == 1
        assert part not in done or names[part].all()
    if path.exists():
        check_whole(Scroll.load(path), X, y)


@pytest.mark.parametrize(
    'make',
    [
        lambda: Scroll(buffer_size=0),
        lambda: Scroll(head='balanced', buffer_size=3),
        ScrollClassifier,
        lambda: ScrollClassifier(scale='standard', limit=9),
    ],
)
def test_small_calls_from_many_threads_count_every_sample_and_threads_that_read_change_nothing(
    make,
):
    X, y = data(1000, 20)
    learner = make()
    whole = make().partial_fit(X, y)
    expected = whole.predict(X[:50])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(learner.partial_fit, np.split(X, 100), np.split(y, 100)))

    def read() -> None:  # who reads, sums up
        np.testing.assert_array_equal(learner.predict(X[:50]), expected)

    assert at_once(*[read] * 6) == []
    assert learner.digest() == whole.digest()


class Pickled(pickle.Pickler):
    """A pickle of `value`; `meanwhile` is called before its `at`-th object."""

    def __init__(self, value, at: int, meanwhile):
        self.file = io.BytesIO()
        self.left = at
        self.meanwhile = meanwhile
        super().__init__(self.file)
        self.dump(value)
        self.value = pickle.loads(self.file.getvalue())

    def persistent_id(self, value) -> None:
        self.left -= 1
        if self.left == 0:
            self.meanwhile()


@pytest.mark.parametrize(
    'make',
    [
        lambda X, y: Scroll(head='rff', lift_dim=8, buffer_size=4).fit(X, y),
        lambda X, y: Scroll(head='qda', buffer_size=4).fit(X, y),
        lambda X, y: ScrollClassifier(scale='standard', calibration_size=8).fit(X, y),
        lambda X, y: Scroll().fit(X, y).predictor(),
    ],
)
def test_a_pickle_that_is_made_while_others_predict_and_learn_is_whole(make):
    X, y = data(20)
    times = (1 << 20) - Pickled(make(X, y), 1 << 20, None).left
    grid = quantise(X)
    for at in range(1, times, max(times // 15, 1)):
        one = make(X, y)
        before = one.digest()

        def meanwhile(one=one):
            if hasattr(one, 'predict_proba'):
                one.predict_proba(X)
                one.partial_fit(X, y)
            one.predict(grid)

        assert Pickled(one, at, meanwhile).value.digest() in (before, one.digest())


def test_a_setting_that_changes_while_a_head_is_made_is_not_mixed_with_it():
    class Busy(float):
        def __repr__(self):  # another thread, at this moment
            learner.set_params(head='ncc', ridge_lambda=1.0)
            return '1.0'

    learner = Scroll(buffer_size=0).fit(*data(30)).set_params(ridge_lambda=Busy(1))
    learner.predictor()
    ridge = Scroll(buffer_size=0, ridge_lambda=1.0).fit(*data(30)).predictor()
    assert learner.set_params(head='ridge').predictor().digest() == ridge.digest()


@pytest.mark.parametrize('how', SETTINGS)
def test_labels_and_samples_that_the_caller_writes_over_stay_as_they_were_learned(how):
    X, y = data(30)
    own = X.copy()
    labels = y.copy()
    expected = whole(Scroll(**how).partial_fit(X, y))
    learner = Scroll(**how).partial_fit(own, labels)
    own[:], labels[:] = 0, 'z'
    assert whole(learner) == expected
    held = pickle.loads(pickle.dumps(learner.state_dict()))
    other = Scroll(**how)
    other.load_state_dict(held)
    for array in held['arrays'].values():
        array[...] = array.dtype.type()
    other.end_part().clear()
    if other.buffer_:
        other.buffer_.drop(LABELS, other.statistics_)
    if other.keys_:
        other.keys_.drop(LABELS)
    assert whole(other) == expected
    assert other.end_part()
    features = quantise(X)
    labels = y.copy()
    s = Statistics(5).add(features, labels)
    features[:], labels[:] = 0, 'z'
    assert s == Statistics(5).add(quantise(X), y)


def test_a_feature_cache_that_some_read_while_others_fill_and_empty_it_gives_each_key_its_own(
    tmp_path,
):
    cache_of = pytest.importorskip('scroll.embedding.cache').FeatureCache
    cache = cache_of(tmp_path, 3)
    features = quantise(data(100, 3)[0])
    keys = np.random.default_rng(1).permutation(100).astype(np.uint64)

    def fill(start: int) -> None:
        for i in range(start, 100, 4):
            cache.add(keys[i : i + 1], features[i : i + 1])
            cache.flush()
            if i % 3 == 0:
                cache.remove(keys[i : i + 1])

    def look() -> None:
        for _ in range(60):
            out = np.zeros((100, 3), np.int32)
            known = np.setdiff1d(np.arange(100), cache.read(keys, out))
            np.testing.assert_array_equal(out[known], features[known])

    assert at_once(*[lambda start=start: fill(start) for start in range(4)], look, look) == []
    kept = np.setdiff1d(np.arange(100), cache.read(keys, np.zeros((100, 3), np.int32)))
    assert kept.tolist() == [i for i in range(100) if i % 3]
