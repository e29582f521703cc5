"""Out-of-sample scores: those of learning again without each sample, in the form that cleanlab takes."""
import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

from scroll import Scroll
from scroll.io.states import CLASSIFIERS
from tests.scroll.conftest import make_stream, refused, toy_images


def photographs(count: int = 60, wrong: int = 0, seed: int = 0) -> tuple:
    """Features (N, 6) of three classes, text labels (N,), of which the first so many are wrong."""
    random = np.random.default_rng(seed)
    classes = np.arange(count) % 3
    X = np.eye(6)[classes] + 0.35 * random.normal(size=(count, 6))
    classes[:wrong] = (classes[:wrong] + 1) % 3
    return X, np.array(['cat', 'dog', 'owl'])[classes]


@pytest.mark.parametrize('params', [dict(classifier='ridge', targets='pm1'), dict(classifier='ridge', targets='onehot'),
                                    dict(classifier='ncc')], ids=lambda params: ' '.join(params.values()))
def test_they_are_what_learning_without_the_sample_says(params):
    X, y = photographs(31)
    learner = Scroll(buffer_size=0, **params).partial_fit(X, y)
    found, own = learner.out_of_sample(X, y), np.searchsorted(learner.classes_, y)
    logits = np.array([Scroll(buffer_size=0, **params).partial_fit(np.delete(X, i, 0), np.delete(y, i)).decision_function(X[i:i + 1])[0]
                       for i in range(len(y))])
    scales = np.geomspace(0.1, 300, 3000)                           # of least cross-entropy, by looking at all
    scale = scales[np.argmin([-log_softmax(s * logits, axis=1)[np.arange(len(y)), own].mean() for s in scales])]
    np.testing.assert_allclose(found, softmax(scale * logits, axis=1), atol=5e-3)


@pytest.mark.parametrize('classifier', CLASSIFIERS)
def test_every_head_has_them_in_the_same_form_whatever_the_schedule(classifier):
    X, y = photographs()
    params = dict(classifier=classifier, buffer_size=30, strategy='hash')
    one, two = Scroll(**params).partial_fit(X, y), Scroll(**params).partial_fit(X[40:], y[40:]).partial_fit(X[:40], y[:40])
    found = one.out_of_sample(X, y)
    assert found.shape == (60, 3) and found.dtype == np.float64 and found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    assert (two.out_of_sample(X, y) == found).all()
    if classifier != 'random':
        assert (one.classes_[found.argmax(axis=1)] == y).mean() > 0.7


def test_cleanlab_finds_wrong_labels_by_them():
    X, y = photographs(300, wrong=30)
    learner = Scroll(buffer_size=0).partial_fit(X, y)
    labels, found = np.searchsorted(learner.classes_, y), learner.out_of_sample(X, y)
    ranked = find_label_issues(labels, found, return_indices_ranked_by='self_confidence', n_jobs=1)
    assert len(ranked) >= 25 and (ranked[:25] < 30).mean() > 0.9
    own = found[np.arange(300), labels]
    assert (np.diff(own[ranked]) >= 0).all()                        # the ranking is that of our numbers
    clean = np.setdiff1d(np.arange(300), ranked)
    kept = LogisticRegression().fit(X[clean], y[clean])             # without them others learn better, too
    truth = photographs(300)[1]
    assert (kept.predict(X) == truth).mean() >= (LogisticRegression().fit(X, y).predict(X) == truth).mean()


def test_images_are_scored_through_the_backbone(embedder):
    images, labels = toy_images()
    learner = Scroll(embedder, buffer_size=0).partial_fit(images, labels)
    features = embedder(images)[0]
    alone = Scroll(buffer_size=0).learn(features, features, np.arange(24, dtype=np.uint64), labels)
    np.testing.assert_allclose(learner.out_of_sample(images, labels), alone.out_of_sample(features, labels), atol=1e-6)


def test_of_some_samples_they_are_in_the_order_given():
    X, y = photographs()
    learner, some = Scroll(buffer_size=0, classifier='ncc').partial_fit(X, y), [7, 3, 50]
    assert (learner.out_of_sample(X[some], y[some]).argmax(axis=1) == learner.out_of_sample(X, y)[some].argmax(axis=1)).all()


def test_what_was_not_learned_has_none():
    X, y = photographs()
    learner = Scroll(buffer_size=0, keep_keys=True).partial_fit(X[:50], y[:50])
    other = make_stream([0] * 3, dim=7)
    for samples, labels, said in ((X[50:], y[50:], 'only samples that were learned'), (X[:3], ['fox'] * 3, 'never learned with these labels'),
                                  (X[:2], y[1:3], 'only samples that were learned'), (other.features, y[:3], '7 features'),
                                  (X[:0], y[:0], 'no samples'), (X[:3], y[:2], 'expected .3,.'), (X[:2] * np.nan, y[:2], 'not finite')):
        with refused(said):
            learner.out_of_sample(samples, labels)
    with refused('learned nothing yet'):
        Scroll().out_of_sample(X, y)
