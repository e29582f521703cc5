"""ScrollClassifier: scikit-learn's own checks; the same bits under every schedule, on every scale of features."""
import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from scroll import ScrollClassifier
from tests.scroll.conftest import cuttings, quick, refused

STANDARD = dict(scale='standard', limit=100)
SCALES = pytest.mark.parametrize('params', [{}, STANDARD], ids=['unit', 'standard'])
WINE = load_wine(return_X_y=True)
few = settings(quick, max_examples=5)


def blobs(count: int = 60, seed: int = 0) -> tuple:
    """Features (N, 5) of different scale and mean around three centres, and labels."""
    random, y = np.random.default_rng(seed), np.arange(count) % 3
    return (random.normal(size=(count, 5)) + 2 * np.eye(5)[y]) * [1, 5, .1, 2, 1] + [0, 3, 9, 0, 1], y


X, Y = blobs()


def fingerprint(estimator) -> tuple:
    """All that can be seen of what was learned."""
    return estimator.digest(), str(estimator.classes_), estimator.decision_function(X).tobytes(), \
        estimator.predict_proba(X).tobytes()


@parametrize_with_checks([ScrollClassifier('qda'), ScrollClassifier(scale='standard', limit=1e4)])
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@SCALES
@few
@given(cut=cuttings(len(Y)), head=st.sampled_from(['ridge', 'ncc', 'lda']))
def test_any_order_batching_and_sharding_ends_in_the_same_bits(params, cut, head):
    whole = ScrollClassifier(head, **params).fit(X, Y)
    pieces, shards = ScrollClassifier(head, **params), []
    for at in cut:
        pieces.partial_fit(X[at], Y[at])
        shards.append(ScrollClassifier(head, **params).fit(X[at], Y[at]))
    before = [shard.digest() for shard in shards]
    assert fingerprint(pieces) == fingerprint(whole) == fingerprint(sum(shards[1:], shards[0]))
    assert before == [shard.digest() for shard in shards]


@SCALES
@few
@given(weights=st.lists(st.integers(0, 9), min_size=60, max_size=60).filter(any))
def test_weights_are_copies_to_the_bit(params, weights):
    repeated = ScrollClassifier(**params).fit(X.repeat(weights, axis=0), Y.repeat(weights))
    assert fingerprint(ScrollClassifier(**params).fit(X, Y, sample_weight=weights)) == fingerprint(repeated)
    both = ScrollClassifier(**params).partial_fit(X, Y).partial_fit(X, Y, sample_weight=weights)
    assert fingerprint(both) == fingerprint(ScrollClassifier(**params).fit(X, Y, np.add(weights, 1)))


@pytest.mark.parametrize('weights', [np.full(60, .5), np.r_[-1, np.ones(59)], np.zeros(60), np.ones(59), np.full(60, np.nan), ['a'] * 60,
                                     np.r_[2 ** 27, np.ones(59)], 3])
def test_other_weights_are_refused_and_nothing_is_changed(weights):
    estimator = ScrollClassifier().fit(X, Y)
    before = fingerprint(estimator)
    for learn in (estimator.fit, estimator.partial_fit):
        with refused():
            learn(X, Y, sample_weight=weights)
    assert fingerprint(estimator) == before
    assert ScrollClassifier().fit(X, Y, np.r_[2 ** 26, np.ones(59)]).statistics_.total == 2 ** 26 + 59


def test_classes_may_come_late_and_labels_may_be_of_any_kind():
    late = ScrollClassifier().partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1])
    assert late.decision_function(X).shape == (60,)
    late.partial_fit(X[Y == 2], Y[Y == 2])
    assert fingerprint(late) == fingerprint(ScrollClassifier().fit(X, Y))
    for kind in (np.uint8, np.float64, bool, str, object):
        y = np.array(['a', 'b'])[Y % 2].astype(kind) if kind in (str, object) else (Y % 2).astype(kind)
        assert ScrollClassifier().fit(X, y).score(X, y) > .5
    with refused('labels'):
        late.partial_fit(X, np.array(['a', 'b', 'c'])[Y])


@pytest.mark.parametrize('ratio', [1e-6, 1e6])
def test_standardised_ridge_is_that_of_the_textbook(ratio):
    """Against scikit-learn's: z / sqrt(d) and a constant feature that is shrunk, too. What differs is the grid of the features."""
    x = X * [ratio, 1, 1, 1, 1]
    ours = ScrollClassifier(scale='standard', ridge_lambda=.3).fit(x, Y)
    z = np.column_stack([StandardScaler().fit_transform(x) / np.sqrt(5), np.ones(60)])
    theirs = Ridge(alpha=.3, fit_intercept=False).fit(z, np.where(Y[:, None] == np.arange(3), 1, -1))
    np.testing.assert_allclose(ours.decision_function(x), theirs.predict(z), atol=2e-4)


def test_standardised_lda_is_that_of_the_textbook():
    ours = ScrollClassifier('lda', scale='standard', shrinkage=.2).fit(X, Y)
    z = StandardScaler().fit_transform(X)
    means = np.stack([z[c == Y].mean(axis=0) for c in range(3)])
    within = np.cov((z - means[Y]).T, bias=True) * 60 / 57
    inverse = np.linalg.inv(.8 * within + .2 * np.trace(within) / 5 * np.eye(5))
    expected = .8 * (z @ inverse @ means.T - np.einsum('kd,de,ke->k', means, inverse, means) / 2)
    np.testing.assert_allclose(ours.decision_function(X), expected, atol=2e-3)


@quick
@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 99), st.sampled_from(['ridge', 'ncc', 'lda']))
def test_standardised_sums_of_few_samples_and_many_features_can_be_solved(count, dim, seed, head):
    """Also constant features, features that are others, and covariances without any shrinkage."""
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(count, dim)) * 10.0 ** random.integers(-9, 9, dim), random.integers(0, 3, count)
    x[:, ::3], x[:, 1::3] = 5, x[:, :1]
    estimator = ScrollClassifier(head, scale='standard', shrinkage=0.).fit(x, y)
    assert set(estimator.predict(x).tolist()) <= set(y.tolist()) and np.isfinite(estimator.decision_function(x)).all()


def test_beyond_the_limit_nothing_is_learned_and_all_is_predicted():
    estimator = ScrollClassifier(**STANDARD).fit(X, Y)
    before, far = fingerprint(estimator), X.copy()
    far[7, 2] = -129
    for call in (estimator.fit, estimator.partial_fit, estimator.remove):
        with refused(r'X\[7, 2\] is -129: the grid reaches 128'):
            call(far, Y)
    assert fingerprint(estimator) == before
    line = np.array([X[0], X[0] + 10, X[0] + 1e4, np.full(5, 1e300)])       # logits are linear, also out there
    logits = estimator.decision_function(line)
    np.testing.assert_allclose(logits[2] - logits[0], 1000 * (logits[1] - logits[0]), rtol=1e-3)
    assert (estimator.predict(line) == logits.argmax(axis=1)).all() and np.isfinite(estimator.predict_proba(line)).all()


@pytest.mark.parametrize('params, word', [
    (dict(scale='minmax'), 'scale'), (dict(head='svm'), 'head'), (dict(head='random', scale='standard'), 'standard'), (dict(scale='standard', limit=0), 'limit'),
    (dict(scale='standard', limit=[1, 2]), 'limit'), (dict(scale='standard', limit='a'), 'limit'), (dict(head='auto'), 'auto'),
    (dict(ridge_lambda=-1), 'ridge_lambda'), (dict(scale='standard', limit=np.inf), 'limit'), (dict(scale='standard', lift='relu'), 'lift')])
def test_parameters_that_cannot_be_are_refused(params, word):
    with refused(word):
        ScrollClassifier(**params).fit(X, Y)


def test_a_first_batch_does_not_decide_on_the_grid_and_whole_data_do():
    with refused('give limit'):
        ScrollClassifier(scale='standard').partial_fit(X, Y)
    fitted = ScrollClassifier(scale='standard').fit(X, Y)
    assert fitted.digest() == ScrollClassifier(scale='standard').fit(X[::-1], Y[::-1]).digest() and fitted.score(X, Y) > .7
    fitted.partial_fit(X[:5], Y[:5])                                        # the grid is there now
    with refused('different grids'):
        ScrollClassifier(scale='standard', limit=20).fit(X, Y) + ScrollClassifier(**STANDARD).fit(X, Y)


@SCALES
def test_removed_is_never_seen(params):
    estimator = ScrollClassifier(**params).fit(X, Y).remove(X[:20], Y[:20])
    rest = ScrollClassifier(**params).fit(X[20:], Y[20:])
    assert estimator.digest() == rest.digest()
    np.testing.assert_array_equal(estimator.decision_function(X), rest.decision_function(X))
    with refused('no part of these'):
        estimator.remove(100 * np.eye(5), Y[:5])
    assert estimator.digest() == rest.digest()


def test_data_frames_are_numbers_and_sparse_matrices_are_not():
    for params in ({}, STANDARD):
        assert ScrollClassifier(**params).fit(pd.DataFrame(X), Y).digest() == ScrollClassifier(**params).fit(X, Y).digest()
    with refused('[Ss]parse'):
        ScrollClassifier().fit(csr_array(X), Y)
    frame = pd.DataFrame(X, columns=list('abcde'))
    assert ScrollClassifier().fit(frame, Y).feature_names_in_.tolist() == list('abcde')


def test_pipelines_search_grids_and_validate():
    pipeline = make_pipeline(FunctionTransformer(), ScrollClassifier())
    search = GridSearchCV(pipeline, dict(scrollclassifier__scale=['unit', 'standard']), cv=3, error_score='raise')
    assert search.fit(*WINE).best_params_['scrollclassifier__scale'] == 'standard' and search.best_score_ > .95
    calibrated = CalibratedClassifierCV(ScrollClassifier(scale='standard'), cv=3).fit(*WINE)
    assert log_loss(WINE[1], calibrated.predict_proba(WINE[0])) < .2


@SCALES
def test_copies_go_on_the_same_and_a_changed_head_is_that_of_the_same_sums(params):
    estimator = ScrollClassifier(**params).fit(X[:40], Y[:40])
    estimator.predict_proba(X)
    for twin in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert fingerprint(twin) == fingerprint(estimator)
        assert fingerprint(twin.partial_fit(X[40:], Y[40:])) == fingerprint(ScrollClassifier(**params).fit(X, Y))
    estimator.set_params(head='lda', shrinkage=.1)
    assert fingerprint(estimator) == fingerprint(ScrollClassifier('lda', **params, shrinkage=.1).fit(X[:40], Y[:40]))
