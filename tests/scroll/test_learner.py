"""Scroll: the same learner whatever the schedule; merging, unlearning, adapting; nothing changed by
bad input.
"""

import re
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch

from scroll import Adaptation, Embedder, Scroll, ScrollClassifier, make_schedule
from scroll.adaptation import training
from scroll.adaptation.training import adapt
from scroll.embedding.images import Augmentation
from scroll.ground.errors import InputError
from scroll.ground.grid import quantise, sample_keys
from scroll.heads.scaling import fit_scale
from tests.scroll.conftest import PREPROCESSING, digests, refused, tiny_net, toy_images

# with a calibrated scale the toy's loss starts at zero
SHORT = Adaptation(iterations=2, minibatch=4, calibrate=False)


def blobs(per_class=10, seed=0) -> tuple:
    """Features float64 (3 per_class, 4) around three centres, and labels."""
    r = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), per_class)
    return r.normal(size=(3 * per_class, 4)) + 4 * np.eye(4)[y], y


X, Y = blobs()
U = quantise(X)
K = sample_keys(quantise(X))


@pytest.mark.parametrize(
    'strategy, spec',
    [('hash', 'iid,batch=5'), ('hash', 'split:3,batch=3'), ('herding', 'split:3,order=random')],
)
def test_f_star_has_the_same_bits_under_every_schedule_that_the_strategy_promises(
    embedder, toy, strategy, spec
):
    images, labels = toy
    outcomes = []
    for seed in range(2):
        learner = Scroll(embedder, buffer_size=10, strategy=strategy, adaptation=SHORT)
        for at in make_schedule(spec, labels, seed).segments():
            learner.partial_fit(images[at], labels[at])
        f_T = learner.predictor()
        f_star = learner.adapt().adapted_
        outcomes.append((digests(learner), f_T.digest(), f_star.digest()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize('change', [{'buffer_size': 5}, {'keep_keys': True}])
def test_learning_goes_on_only_as_it_began(change):
    learner = Scroll(buffer_size=9).fit(X, Y).set_params(**change)
    with refused(*change):
        learner.partial_fit(X, Y)
    assert learner.fit(X, Y).digest() == Scroll().fit(X, Y).digest()
    classifier = ScrollClassifier(scale='standard').fit(X, Y)
    with refused('scale'):
        classifier.set_params(scale=None).partial_fit(X, Y)


def test_learners_of_different_psi_do_not_merge(embedder, toy):
    one, two = (
        Scroll(e).fit(*toy) for e in (embedder, Embedder(tiny_net(7, 8), PREPROCESSING, chunk=8))
    )
    three = Scroll().fit(X, Y)
    before = one.digest()
    for other in (two, three):
        with refused('backbone or grid mismatch'):
            one.merge(other)
        with refused('call forget'):
            one.set_params(embedder=other.embedder)
    for other in (
        Scroll().fit(X[:, :3], Y),
        'three',
        ScrollClassifier(scale='standard').fit(X, Y).learner_,
    ):
        with refused():
            three.merge(other)
    with refused('bad'):
        Scroll(head='bad').merge(three)
    assert one.digest() == before
    assert three.digest() == Scroll().fit(X, Y).digest()
    equal = Scroll(Embedder(tiny_net(width=8), PREPROCESSING, chunk=8)).fit(*toy)
    assert one.merge(equal).statistics_.total == 48


@pytest.fixture
def adapted(embedder, toy):
    return Scroll(embedder, adaptation=SHORT).fit(*toy).adapt()


@pytest.mark.parametrize(
    'change',
    [
        lambda s, X, y: s.partial_fit(X[:1], y[:1]),
        lambda s, X, y: s.remove(X[:1], y[:1]),
        lambda s, X, y: s.merge(Scroll(s.embedder).fit(X, y)),
    ],
    ids=['partial_fit', 'remove', 'merge'],
)
def test_f_star_is_dropped_by_whatever_changes_what_it_was_made_from(adapted, toy, change):
    assert adapted.adapted_ is not None
    assert change(adapted, *toy).adapted_ is None
    np.testing.assert_array_equal(
        adapted.decision_function(toy[0]),
        adapted.predictor().decision_function(adapted.embedder(toy[0])[0]),
    )


def test_predictions_are_those_of_f_star_once_there_is_one(adapted, toy):
    expected = adapted.adapted_.decision_function(toy[0])
    np.testing.assert_array_equal(adapted.decision_function(toy[0]), expected)
    assert (expected != adapted.predictor().decision_function(adapted.embedder(toy[0])[0])).any()
    z = np.exp(expected)
    np.testing.assert_allclose(
        adapted.predict_proba(toy[0]), z / z.sum(axis=1, keepdims=True), atol=1e-9
    )
    before = adapted.adapted_.digest()
    for off in (nullcontext, torch.no_grad, torch.inference_mode):
        with off():
            assert adapted.adapt().adapted_.digest() == before  # from the pristine psi again


def test_adapt_uses_the_settings_and_the_seed(embedder, toy):
    def f_star(**params):
        return (
            Scroll(embedder, **{'adaptation': replace(SHORT, iterations=1), **params})
            .fit(*toy)
            .adapt()
            .adapted_
        )

    variants = [
        f_star(),
        f_star(seed=1),
        f_star(adaptation=replace(SHORT, minibatch=5)),
        f_star(buffer_size=8),
        f_star(adaptation=replace(SHORT, augmentation=Augmentation(0, False))),
        f_star(head='ncc'),
    ]
    assert len({v.digest() for v in variants}) == len(variants)


def test_features_are_adapted_to_by_the_classifier_alone():
    learner = Scroll(adaptation=Adaptation(iterations=30)).fit(X, Y).adapt()
    assert learner.adapted_.mode == 'classifier'
    assert learner.score(*blobs(seed=1)) > 0.9
    np.testing.assert_allclose(learner.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize(
    'head, lift, counted',
    [('ridge', 'none', 80), ('ncc', 'none', 20), ('lda', 'none', 160), ('ridge', 'relu', 160)],
)
def test_f_T_counts_for_what_its_head_takes_from_all_samples(monkeypatch, head, lift, counted):
    asked = []

    def spy(embedder, predictor, exemplars, settings, *rest):
        asked.append(settings.prior)
        return adapt(embedder, predictor, exemplars, settings, *rest)

    monkeypatch.setattr(training, 'adapt', spy)
    how = replace(SHORT, prior=80.0)
    Scroll(head=head, lift=lift, lift_dim=8, adaptation=how).fit(X, Y).adapt()
    assert asked == [counted]


def test_memory_free_learns_and_cannot_adapt():
    learner = Scroll(buffer_size=0).fit(X, Y)
    full = Scroll().fit(X, Y)
    assert learner.buffer_ is None
    assert learner.predictor().digest() == full.predictor().digest()
    with refused('buffer_size'):
        learner.adapt()
    assert learner.set_params(adaptation=Adaptation(mode='none')).adapt().predict(X).shape == (30,)


def bad(x, value):
    x = x.copy()
    x[3, 1] = value
    return x


BAD = {
    'inf': lambda: (bad(X, np.inf), Y),
    'narrow': lambda: (X[:, :3], Y),
    'fewer labels': lambda: (X, Y[:-1]),
    'label column': lambda: (X, Y[:, None]),
    'labels of another type': lambda: (X, Y.astype(str)),
    'images': toy_images,
    'labels of lists': lambda: (X, [[1], [1, 2]] * 15),
}


@pytest.mark.parametrize('name', [*BAD, 'empty'])
def test_bad_input_changes_nothing(name):
    learner = Scroll(buffer_size=8).fit(X, Y)
    before = digests(learner)
    x, y = BAD[name]() if name in BAD else (X[:0], Y[:0])
    for method in ('partial_fit', 'fit', 'remove'):
        if (method == 'fit' and name in ('narrow', 'labels of another type')) or (
            method == 'remove' and name == 'empty'
        ):
            continue  # nothing wrong with it
        with refused():
            getattr(learner, method)(x, y)
        assert digests(learner) == before
    if 'another type' in name:
        with refused('strings here'):
            learner.score(x, y)
    learner.partial_fit(X, Y)  # and it goes on


@pytest.mark.parametrize('method', ['partial_fit', 'remove'])
def test_images_of_several_sizes_are_refused(embedder, toy, method):
    with refused('not an array of images'):
        getattr(Scroll(embedder).fit(*toy), method)([toy[0][0], toy[0][0, 1:]], [0, 1])


@pytest.mark.parametrize(
    'samples, keys, said',
    [
        (U, K.astype(np.int64), 'uint64'),
        (U, K[:9], '(30,)'),
        (U, np.r_[K, K], '(30,)'),
        (U, None, 'give keys'),
        (np.r_[U, U], K, '60 samples'),
    ],
    ids=['signed', 'few', 'many', 'none', 'many samples'],
)
def test_samples_and_keys_are_one_each(samples, keys, said):
    learner = Scroll(buffer_size=8, keep_keys=True).learn(U, U, K, Y)
    before = digests(learner)
    with refused(re.escape(said)):
        learner.learn(samples, U, keys, Y)
    assert digests(learner) == before


def test_the_scale_is_calibrated_on_what_f_t_has_not_seen():
    """Twenty samples in thirty dimensions: f_T separates what it saw, so its own logits would ask
    for the largest scale.
    """
    random = np.random.default_rng(0)
    X = random.normal(size=(20, 30))
    y = np.arange(20) % 2
    learner = Scroll(buffer_size=20, ridge_lambda=1e-6, adaptation=Adaptation(iterations=0)).fit(
        X, y
    )
    content = learner.buffer_.content()
    own = fit_scale(learner.predictor().decision_function(content.features), content.labels)
    assert own > 5 * learner.adapt().adapted_.initial_scale


def test_an_empty_learner_is_the_identity_of_merge():
    parts = [
        Scroll(strategy='hash').partial_fit(X[at], Y[at]) for at in np.array_split(range(len(X)), 3)
    ]
    whole = reduce(
        Scroll.merge, [Scroll(strategy='hash'), *parts, Scroll()], Scroll(strategy='hash')
    )
    assert whole.digest() == Scroll().fit(X, Y).digest()
    assert (
        whole.buffer_.content().digest()
        == Scroll(strategy='hash').fit(X, Y).buffer_.content().digest()
    )
    with pytest.raises(InputError, match='nothing yet'):
        Scroll().merge(Scroll()).predictor()


@pytest.mark.parametrize('size', [0, 5])
def test_a_bad_row_of_a_large_batch_is_named_by_its_number_and_nothing_changes(size):
    many = np.ones((70_000, 3), np.float32)
    many[69_000, 1] = np.nan
    learner = Scroll(buffer_size=size, strategy='hash')
    with pytest.raises(InputError, match='sample 69000 are not finite'):
        learner.partial_fit(many, np.zeros(70_000, int))
    assert not hasattr(learner, 'statistics_')
    many[69_000, 1] = 0
    many[::1000, 0] = np.arange(70)
    in_pieces = Scroll(buffer_size=size, strategy='hash')
    in_pieces.partial_fit(many[69_000:], np.zeros(1000, int))
    in_pieces.partial_fit(many[:69_000], np.zeros(69_000, int))
    learner.partial_fit(many, np.zeros(70_000, int))
    assert learner.digest() == in_pieces.digest()
    if size:
        assert learner.buffer_.content().digest() == in_pieces.buffer_.content().digest()
