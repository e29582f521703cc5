"""ScrollClassifier: scikit-learn's own checks; the same bits under every schedule, on every scale
of features; probabilities.
"""

import contextlib
import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from scroll import Scroll, ScrollClassifier
from scroll.__main__ import main
from scroll.exports.tensors import export
from tests.scroll.conftest import cuttings, quick, refused

RAW = [{'scale': 'standard', 'limit': 100}, {'scale': None, 'limit': 100}]
SCALES = pytest.mark.parametrize('params', [{}, *RAW], ids=['unit', 'standard', 'raw'])
WINE = load_wine(return_X_y=True)


# features of different scale and mean around three centres
Y = np.arange(60) % 3
X = np.random.default_rng(0).normal(size=(60, 5)) + 2 * np.eye(5)[Y]
X = X * [1, 5, 0.1, 2, 1] + [0, 3, 9, 0, 1]


def fingerprint(estimator) -> tuple:
    """All that can be seen of what was learned."""
    return (
        estimator.digest(),
        str(estimator.classes_),
        estimator.decision_function(X).tobytes(),
        estimator.predict_proba(X).tobytes(),
    )


@parametrize_with_checks(
    [ScrollClassifier(), ScrollClassifier('lda', scale='standard', limit=1e4, calibration_size=20)]
)
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


@SCALES
@settings(quick, max_examples=5)
@given(cut=cuttings(len(Y)), head=st.sampled_from(['ridge', 'ncc', 'lda']))
def test_any_order_batching_and_sharding_ends_in_the_same_bits(params, cut, head):
    pieces = ScrollClassifier(head, **params)
    shards = []
    for at in cut:
        pieces.partial_fit(X[at], Y[at])
        shards.append(ScrollClassifier(head, **params).fit(X[at], Y[at]))
    before = [shard.digest() for shard in shards]
    expected = fingerprint(ScrollClassifier(head, **params).fit(X, Y))
    assert fingerprint(pieces) == fingerprint(sum(shards[1:], shards[0])) == expected
    assert before == [shard.digest() for shard in shards]


@SCALES
@settings(quick, max_examples=5)
@given(weights=st.lists(st.integers(0, 9), min_size=60, max_size=60).filter(any))
def test_weights_are_copies_to_the_bit(params, weights):
    new = ScrollClassifier(**params, calibration_size=30)
    weighted = clone(new).fit(X, Y, sample_weight=weights)
    repeated = clone(new).fit(X.repeat(weights, axis=0), Y.repeat(weights))
    assert fingerprint(weighted) == fingerprint(repeated)
    both = clone(new).partial_fit(X, Y).partial_fit(X, Y, sample_weight=weights)
    assert fingerprint(both) == fingerprint(clone(new).fit(X, Y, np.add(weights, 1)))


def test_heavy_weights_count_without_copies_and_to_the_end_of_what_sums_hold():
    weights = np.r_[2**26, np.ones(59)]
    learner = ScrollClassifier().fit(X, Y, weights).learner_
    assert learner.statistics_.total == 2**26 + 59
    assert learner.statistics_.counts[0] == 2**26 + 19
    with refused('134217727'):
        ScrollClassifier().fit(X, Y, 2 * weights)
    with refused('134217727 *samples|at most 134217727'):
        ScrollClassifier().fit(X, Y, weights).partial_fit(X, Y, sample_weight=weights)


@pytest.mark.parametrize(
    'weights, word',
    [
        (np.full(60, 0.5), "0.5.*head='balanced'"),
        (np.r_[-1, np.ones(59)], '-1'),
        (np.zeros(60), 'zero'),
        (np.ones(59), 'shape'),
        (np.full(60, np.nan), 'nan'),
        (np.ma.masked_equal(np.arange(60), 3), 'nan'),
        (['a'] * 60, 'shape'),
        (np.ones((60, 1)), 'shape'),
    ],
)
def test_other_weights_are_refused_and_nothing_is_changed(weights, word):
    estimator = ScrollClassifier().fit(X, Y)
    before = fingerprint(estimator)
    with refused(word):
        estimator.fit(X, Y, weights)
    # a batch of which nothing counts
    with contextlib.nullcontext() if word == 'zero' else refused(word):
        estimator.partial_fit(X, Y, sample_weight=weights)
    assert fingerprint(estimator) == before
    if word == 'zero':
        estimator.partial_fit(X, Y, [0, 1, 2, 7], weights)
        assert estimator.classes_.tolist() == [0, 1, 2, 7]


def test_classes_may_come_late_and_those_named_have_columns_before_they_come():
    late = ScrollClassifier().partial_fit(X[Y < 2], Y[Y < 2])
    assert late.decision_function(X).shape == (60,)
    late.partial_fit(X[Y == 2], Y[Y == 2])
    assert fingerprint(late) == fingerprint(ScrollClassifier().fit(X, Y))
    named = ScrollClassifier().partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 7])
    assert named.classes_.tolist() == [0, 1, 7]
    assert (named.predict_proba(X)[:, 2] == 0).all()
    assert (named.decision_function(X)[:, 2] == -np.inf).all()
    assert set(named.predict(X).tolist()) == {0, 1}
    named.partial_fit(X[Y == 2], Y[Y == 2])  # one that was never named
    assert named.predict_proba(X).shape == (60, 4)
    for y, classes in ((Y, ['a', 'b']), (np.array(['a', 'b', 'c'])[Y], [0, 1])):
        with refused('classes: labels'):
            ScrollClassifier().partial_fit(X, y, classes=classes)


def test_labels_that_come_later_are_not_cut_to_the_type_of_the_first():
    estimator = ScrollClassifier().fit(X, Y > 1)
    other = ScrollClassifier().fit(X, Y + 300)
    far = 2**53 + 1 + 2 * np.arange(3)  # beyond what float64 tells apart
    seen = [0, 1, 300, 301, 302]
    assert (estimator + other).classes_.tolist() == seen
    assert estimator.partial_fit(X, Y + 300).classes_.tolist() == seen
    assert estimator.partial_fit(X, far[Y]).classes_.tolist() == [*seen, *far.tolist()]
    names = np.array(['a', 'b', 'c'])
    other.remove(X, Y + 300)
    assert other.partial_fit(X, names[Y]).classes_.tolist() == names.tolist()
    declared = ScrollClassifier().partial_fit(X, Y, classes=[9]).remove(X, Y)
    with refused('strings here'):
        declared.partial_fit(X, names[Y])


@pytest.mark.parametrize('ratio', [1e-6, 1, 1e6])
def test_standardised_ridge_is_that_of_the_textbook(ratio):
    """Against scikit-learn's: z / sqrt(d) and a constant feature that is shrunk, too. What differs
    is the grid of the features.
    """
    x = X * [ratio, 1, 1, 1, 1]
    ours = ScrollClassifier(scale='standard', ridge_lambda=0.3).fit(x, Y)
    z = np.column_stack([StandardScaler().fit_transform(x) / np.sqrt(5), np.ones(60)])
    theirs = Ridge(alpha=0.3, fit_intercept=False).fit(
        z, np.where(Y[:, None] == np.arange(3), 1, -1)
    )
    np.testing.assert_allclose(ours.decision_function(x), theirs.predict(z), atol=2e-4)


def test_standardised_lda_is_that_of_the_textbook():
    ours = ScrollClassifier('lda', scale='standard', shrinkage=0.2).fit(X, Y)
    z = StandardScaler().fit_transform(X)
    means = np.stack([z[c == Y].mean(axis=0) for c in range(3)])
    within = np.cov((z - means[Y]).T, bias=True) * 60 / 57
    inverse = np.linalg.inv(0.8 * within + 0.2 * np.trace(within) / 5 * np.eye(5))
    expected = 0.8 * (z @ inverse @ means.T - np.einsum('kd,de,ke->k', means, inverse, means) / 2)
    expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(ours.decision_function(X), expected, atol=2e-3)


@quick
@given(
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(0, 99),
    st.sampled_from(['ridge', 'ncc', 'lda']),
)
def test_standardised_sums_of_few_samples_and_many_features_can_be_solved(count, dim, seed, head):
    """Also constant features, features that are others, and covariances without any shrinkage."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, dim)) * 10.0 ** random.integers(-9, 9, dim)
    y = random.integers(0, 3, count)
    x[:, ::3], x[:, 1::3] = 5, x[:, :1]
    estimator = ScrollClassifier(head, scale='standard', shrinkage=0.0).fit(x, y)
    assert set(estimator.predict(x).tolist()) <= set(y.tolist())
    assert np.isfinite(estimator.decision_function(x)).all()


@pytest.mark.parametrize('params', RAW, ids=['standard', 'raw'])
def test_beyond_the_limit_nothing_is_learned_and_all_is_predicted(params):
    estimator = ScrollClassifier(**params).fit(X, Y)
    before = fingerprint(estimator)
    far = X.copy()
    far[7, 2] = -129
    for call in (estimator.fit, estimator.partial_fit, estimator.remove):
        with refused(r'X\[7, 2\] is -129: the grid reaches 128'):
            call(far, Y)
    assert fingerprint(estimator) == before
    line = np.array([X[0], np.full(5, 1e4), np.full(5, 1e300)])
    logits = estimator.decision_function(line)
    assert (logits[1] == logits[2]).all()
    assert (estimator.predict(line) == logits.argmax(axis=1)).all()
    assert np.isfinite(estimator.predict_proba(line)).all()


@pytest.mark.parametrize(
    'params, word',
    [
        ({'scale': 'minmax'}, 'scale'),
        ({'head': 'svm'}, 'head'),
        ({'head': 'random', 'scale': 'standard'}, 'standard'),
        ({'scale': None, 'limit': 0}, 'limit'),
        ({'scale': None, 'limit': [1, 2]}, 'limit'),
        ({'scale': None, 'limit': 'a'}, 'limit'),
        ({'scale': None, 'limit': True}, 'limit'),
        ({'calibration_size': -1}, 'calibration_size'),
        ({'ridge_lambda': -1}, 'ridge_lambda'),
        ({'scale': 'standard', 'limit': np.inf}, 'limit'),
    ],
)
def test_parameters_that_cannot_be_are_refused(params, word):
    with refused(word):
        ScrollClassifier(**params).fit(X, Y)


@pytest.mark.parametrize('scale', ['standard', None])
def test_a_first_batch_does_not_decide_on_the_grid_and_whole_data_do(scale, tmp_path):
    def new(**params) -> ScrollClassifier:
        return ScrollClassifier(scale=scale, **params)

    with refused('give limit'):
        new().partial_fit(X, Y)
    fitted = new().fit(X, Y)
    assert fitted.digest() == new().fit(X[::-1], Y[::-1]).digest()
    assert fitted.score(X, Y) > 0.7
    zeros = [np.resize(values, 60) for values in ([0.0, -0.0], [-0.0, 0.0], [0.0])]
    assert len({new().fit(np.c_[X, column], Y).digest() for column in zeros}) == 1
    fitted.partial_fit(X[:5], Y[:5])  # the grid is there now
    with refused('unit length'):
        fitted.save(tmp_path / 'x')
    with refused('unit length'):
        export(fitted, tmp_path / 'x')
    with refused('backbone or grid mismatch'):
        new(limit=20).fit(X, Y) + new(limit=100).fit(X, Y)


@SCALES
def test_removed_is_never_seen(params):
    estimator = ScrollClassifier(**params).fit(X, Y).remove(X[:20], Y[:20])
    assert fingerprint(estimator) == fingerprint(ScrollClassifier(**params).fit(X[20:], Y[20:]))
    with refused('not among those learned'):
        estimator.remove(X[:1], Y[:1])
    few = ScrollClassifier(**params, calibration_size=3).fit(X, Y).remove(X[:57], Y[:57])
    # there is nothing to calibrate on
    assert len(few.learner_.buffer_) <= 1
    assert few.predict_proba(X).shape == (60, 3)


@SCALES
@pytest.mark.parametrize('head', ['ridge', 'ncc', 'lda'])
def test_probabilities_are_scaled_by_leaving_each_sample_out(params, head):
    """Twenty samples: twenty classifiers of nineteen."""
    x = X[:20]
    y = Y[:20]
    logits = np.empty((20, 3))
    for i in range(20):
        others = ScrollClassifier(head, **params).fit(np.delete(x, i, axis=0), np.delete(y, i))
        logits[i] = others.decision_function(x[i : i + 1])

    def loss(t):
        z = np.exp(t) * logits
        p = np.exp(z - np.logaddexp.reduce(z, axis=1, keepdims=True))
        target = 20 / 21 * np.eye(3)[y] + 1 / 21 / 3  # one more sample, of every class equally
        return -(target * np.log(p)).sum()

    scale = np.exp(minimize_scalar(loss, bounds=(-12, 12), method='bounded').x)
    estimator = ScrollClassifier(head, **params).fit(x, y)
    z = scale * estimator.decision_function(X)
    np.testing.assert_allclose(
        estimator.predict_proba(X), np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), atol=2e-3
    )


@pytest.mark.parametrize('make', [Scroll, ScrollClassifier])
def test_class_weight_is_a_head_here(make):
    with refused("class_weight.*; head='balanced'"):
        make().set_params(class_weight='balanced')


def test_scroll_itself_is_a_classifier_of_scikit_learn():
    for cv in (cross_val_predict, cross_val_score):  # stratified, as of a classifier
        np.testing.assert_array_equal(cv(Scroll(), X, Y), cv(ScrollClassifier(), X, Y))
    pipeline = make_pipeline(StandardScaler(), Scroll())
    with pytest.raises(NotFittedError):
        pipeline.predict(X)
    search = GridSearchCV(
        pipeline, {'scroll__head': ['lda']}, scoring='neg_log_loss', error_score='raise'
    ).fit(X, Y)
    z = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(
        search.predict_proba(X), Scroll(head='lda').fit(z, Y).predict_proba(z)
    )


@pytest.mark.parametrize('scale', [None, 'standard'])
def test_other_features_than_unit_ones_have_neither_f_star_nor_scores_out_of_sample(scale):
    learner = ScrollClassifier(scale=scale).fit(X, Y).learner_
    for call in learner.adapt, lambda: learner.out_of_sample(X, Y):
        with refused('unit length'):
            call()


def test_classifiers_are_saved_and_exported_as_learners_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=list('abcde'))
    one = ScrollClassifier('lda').fit(frame, Y.astype(float))
    one.save('1.npz')
    two = Scroll.load('1.npz')
    for name, learner in {'one': one, 'two': two}.items():
        export(learner, f'{name}.safetensors')
    assert Path('one.safetensors').read_bytes() == Path('two.safetensors').read_bytes()
    assert two.digest() == one.digest()
    assert two.feature_names_in_.tolist() == one.feature_names_in_.tolist()
    for longer in (
        one + ScrollClassifier('lda').fit(frame + 1, Y),
        one.partial_fit(frame, Y, sample_weight=Y),
    ):
        longer.save('2.npz')
        # of which the first would count twice
        assert main(['merge', '1.npz', '2.npz', '-o', 'x.npz']) == 2


@pytest.mark.parametrize(
    'head, other',
    [
        ('lda', LinearDiscriminantAnalysis()),
        ('qda', QuadraticDiscriminantAnalysis(solver='eigen', shrinkage=0.1)),
        ('ncc', NearestCentroid()),
        *((head, RidgeClassifier()) for head in ('ridge', 'balanced', 'rp', 'rff')),
    ],
)
def test_columns_are_calibrated_and_ranked_one_by_one_as_those_of_scikit_learn(head, other):
    """Nested, and in a pipeline; rankings by class and of all. The exact logits differ by a number
    a sample alone."""
    x, y = (part[:300] for part in load_digits(n_class=5, return_X_y=True))
    half = slice(0, None, 2)
    rest = slice(1, None, 2)
    how = {'lift_dim': 40}
    ours = ScrollClassifier(head, calibration_size=50, **how)
    truth = np.eye(5)[y[rest]]
    found = []
    for model in (ours, other):
        calibrated = CalibratedClassifierCV(make_pipeline(FunctionTransformer(), model), cv=2)
        scores = model.fit(x[half], y[half]).decision_function(x[rest])
        found.append([cross_val_score(calibrated, x, y, cv=2).mean()])
        for score in (roc_auc_score, average_precision_score):
            found[-1] += [score(truth, scores, average=average) for average in ('micro', 'macro')]
    assert (np.subtract(*found) > -0.05).all()
    learner = Scroll(head=head, buffer_size=50, strategy='hash', **how).fit(x[half], y[half])
    assert roc_auc_score(y[rest], learner.predict_proba(x[rest]), multi_class='ovr') > 0.94
    offset = learner.decision_function(x[rest]) - ours.decision_function(x[rest])
    assert np.ptp(offset, axis=1).max() <= 1e-12 * np.abs(offset).max() + 1e-12


@pytest.mark.filterwarnings('error')
def test_features_of_different_scale_on_unit_length_get_a_hint():
    with pytest.warns(UserWarning, match="scale='standard'") as caught:
        ScrollClassifier().fit(*WINE)
    assert [warning.filename for warning in caught] == [__file__]
    for x, y in (load_digits(return_X_y=True), (X, Y), (np.zeros((4, 2)), [0, 0, 1, 1])):
        ScrollClassifier().fit(x, y)


@SCALES
def test_a_changed_head_is_that_of_the_same_sums(params):
    estimator = ScrollClassifier(**params).fit(X[:40], Y[:40])
    copy.copy(estimator).set_params(head='ncc').predict(X)  # a learner of its own
    assert estimator.learner_.head == 'ridge'
    estimator.set_params(head='lda', shrinkage=0.1)
    assert fingerprint(estimator) == fingerprint(
        ScrollClassifier('lda', **params, shrinkage=0.1).fit(X[:40], Y[:40])
    )
