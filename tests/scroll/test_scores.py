"""Out-of-sample scores: those of learning again without each sample, in the form that cleanlab
takes.
"""

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from scroll import Adaptation, Scroll
from scroll.ground.grid import intake, quantise
from scroll.ground.settings import HEAD_NAMES
from scroll.heads.scaling import cross_entropies, fit_scale
from tests.scroll.conftest import left_out, make_stream, quick, refused, toy_images


def photographs(count: int = 60, wrong: int = 0) -> tuple:
    """Features (N, 6) of three classes, text labels (N,), the first `wrong` of which are wrong."""
    random = np.random.default_rng(0)
    classes = np.arange(count) % 3
    X = np.eye(6)[classes] + 0.35 * random.normal(size=(count, 6))
    classes[:wrong] = (classes[:wrong] + 1) % 3
    return X, np.array(['cat', 'dog', 'owl'])[classes]


def test_they_are_logits_without_the_sample_at_the_scale_of_least_cross_entropy():
    """Leaving out is learning without it: `test_heads.py`; the scale: `test_adaptation.py`."""
    X, y = photographs(31)
    learner = Scroll(buffer_size=0).partial_fit(X, y)
    logits = left_out(
        'ridge', learner.statistics_, quantise(intake(X)), y, ridge_lambda=learner.ridge_lambda_
    )
    scale = fit_scale(logits, np.searchsorted(learner.classes_, y))
    np.testing.assert_allclose(learner.out_of_sample(X, y), softmax(scale * logits, axis=1))


@pytest.mark.parametrize('head', HEAD_NAMES)
def test_every_head_has_them_in_the_same_form_whatever_the_schedule(head):
    X, y = photographs()
    new = Scroll(head=head, buffer_size=30, strategy='hash', lift_dim=40)
    scores = new.fit(X, y).out_of_sample(X, y)
    assert scores.shape == (60, 3)
    assert scores.dtype == np.float64
    assert scores.min() >= 0
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-12)
    if head != 'random':
        assert (new.classes_[scores.argmax(axis=1)] == y).mean() > 0.7
    late_first = new.fit(X[40:], y[40:]).partial_fit(X[:40], y[:40])
    assert (late_first.out_of_sample(X, y) == scores).all()


@pytest.mark.parametrize('head', HEAD_NAMES)
def test_the_only_sample_of_a_class_is_of_an_unknown_class_without_itself(head):
    """Label-error search must ask about it, not trust it; also where another sample of the class is
    left."""
    X, y = photographs(31)
    y[28:] = ['bee', 'bee', 'ant']
    learner = Scroll(head=head, buffer_size=31, strategy='hash', lift_dim=20).fit(X, y)
    scores = learner.out_of_sample(X, y)
    assert scores[30, 0] == 0
    assert (scores[28:30, 1] > 0).all()
    assert (scores[:30, 0] > 0).any()
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-12)
    assert learner.fit(X[:1], y[:1]).out_of_sample(X[:1], y[:1]).tolist() == [[1]]


@pytest.mark.parametrize('head', ['ridge', 'lda', 'qda', 'balanced'])
def test_f_star_is_calibrated_on_classes_that_are_known_without_the_sample(head):
    X, y = photographs(31)
    y[30] = 'ant'
    how = Adaptation(iterations=1, lr=0.0, classifier_lr=0.0, scale_lr=0.0)
    learner = Scroll(head=head, buffer_size=31, adaptation=how).partial_fit(X, y)
    before = learner.predict(X)
    scale = learner.adapt().adapted_.scale
    assert 0 < scale < np.inf
    assert np.array_equal(learner.predict(X), before)
    assert np.isfinite(learner.decision_function(X)).all()


@quick
@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 999),
    st.sampled_from([1e-6, 0.3, 1, 40, 1e6]),
    st.sampled_from([0, 0.1]),
)
def test_cross_entropies_are_scipys(count, classes, seed, scale, smoothing):
    r = np.random.default_rng(seed)
    logits = 3 * r.normal(size=(count, classes))
    targets = r.integers(0, classes, count)
    onehot = np.eye(classes)[targets]
    if not smoothing:
        logits[(r.random(logits.shape) < 0.3) & (onehot == 0)] = -np.inf
    shares = (1 - smoothing) * onehot + smoothing / classes
    logs = log_softmax(scale * logits, axis=1)
    expected = -(shares * np.where(shares > 0, logs, 0)).sum(axis=1)
    losses = cross_entropies(logits, targets, scale, smoothing)
    np.testing.assert_allclose(losses, expected, rtol=1e-12, atol=1e-12)


def test_cleanlab_finds_wrong_labels_by_them():
    X, y = photographs(300, wrong=30)
    learner = Scroll(buffer_size=0).partial_fit(X, y)
    labels = np.searchsorted(learner.classes_, y)
    scores = learner.out_of_sample(X, y)
    ranked = find_label_issues(labels, scores, return_indices_ranked_by='self_confidence', n_jobs=1)
    assert len(ranked) >= 25
    assert (ranked[:25] < 30).mean() > 0.9
    confidence = scores[ranked, labels[ranked]]
    assert (np.diff(confidence) >= 0).all()  # the ranking is that of our numbers


def test_images_are_scored_through_the_backbone(embedder):
    images, labels = toy_images()
    learner = Scroll(embedder, buffer_size=0).partial_fit(images, labels)
    features = embedder(images)[0]
    alone = Scroll(buffer_size=0).learn(features, features, np.arange(24, dtype=np.uint64), labels)
    np.testing.assert_allclose(
        learner.out_of_sample(images, labels), alone.out_of_sample(features, labels), atol=1e-6
    )


def test_what_was_not_learned_has_none():
    X, y = photographs()
    learner = Scroll(buffer_size=0, keep_keys=True).partial_fit(X[:50], y[:50])
    other = make_stream([0] * 3, dim=7)
    for samples, labels, said in (
        (X[50:], y[50:], 'only samples that were learned'),
        (X[:3], ['fox'] * 3, 'never learned with these labels'),
        (X[:2], y[1:3], 'only samples that were learned'),
        (other.features, y[:3], '7 features'),
        (X[:0], y[:0], 'no samples'),
        (X[:3], y[:2], 'expected .3,.'),
        (X[:2] * np.nan, y[:2], 'not finite'),
    ):
        with refused(said):
            learner.out_of_sample(samples, labels)
    with refused('learned nothing yet'):
        Scroll().out_of_sample(X, y)
