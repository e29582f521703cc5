"""Sums of classes stand for streams, digest for digest, and fast evaluation for the predictor's
own.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.certify import measures
from bench.certify.measures import TestSet, class_segments, curve_points
from scroll.heads.predictors import ridge
from scroll.learners.learner import Scroll
from scroll.streams.schedules import Schedule, make_schedule
from scroll.sums.exemplars import Exemplars
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import make_stream, quick


def samples_of(labels, seed: int = 0) -> Exemplars:
    stream = make_stream(labels, seed=seed)
    return Exemplars(stream.labels, stream.keys, stream.features, stream.features)


@st.composite
def class_orders(draw) -> tuple:
    """Labels with gaps between their names, and a schedule of whole classes over them."""
    labels = np.array(draw(st.lists(st.sampled_from([2, 3, 5, 7, 40]), min_size=6, max_size=40)))
    classes = np.unique(labels)
    n = draw(st.integers(1, len(classes)))
    order = '-'.join(map(str, draw(st.permutations(classes.tolist()))))
    return labels, make_schedule(f'split:{n},order={order}', labels, draw(st.integers(0, 9)))


@quick
@given(
    class_orders(),
    st.integers(0, 4),
    st.sampled_from([{}, {'head': 'ncc'}, {'ridge_lambda': 'auto'}, {'head': 'qda'}]),
)
def test_summed_classes_are_the_stream_at_each_point_digest_for_digest(order, most, settings):
    labels, schedule = order
    samples = samples_of(labels)
    ranks = np.unique(labels, return_inverse=True)[1]
    points = curve_points(schedule.cuts, most)
    kept = Scroll(buffer_size=5, **settings)
    sums = Scroll(buffer_size=0, **settings)
    parts = [
        sums.new_statistics(5).add(samples.features[labels == c], labels[labels == c])
        for c in np.unique(labels)
    ]
    summed = measures.summed_stream(sums, parts, class_segments(schedule, ranks)[0], points)
    streamed = measures.learn_stream(kept, samples, schedule, points)
    pairs = [
        ((a.digest(), a.predictor().digest()), (b.digest(), b.predictor().digest()))
        for a, b in zip(summed, streamed, strict=True)
    ]
    assert len(pairs) == len(points)
    assert all(a == b for a, b in pairs)


@pytest.mark.parametrize(
    'order, cuts, whole, first',
    [
        ([2, 3, 0, 1], [0, 2, 4], True, [1, 0]),
        ([0, 2, 1, 3], [0, 4], True, [0, 0]),
        ([0, 2, 1, 3], [0, 2, 4], False, [0, 0]),
        ([2, 3, 0, 1], [0, 1, 4], False, [1, 0]),
    ],
)
def test_whether_classes_arrive_whole(order, cuts, whole, first):
    schedule = Schedule(np.array(order), np.array(cuts), np.array([0, 4]), 'by hand')
    segments, alone = class_segments(schedule, np.array([0, 0, 1, 1]))
    assert segments.tolist() == first
    assert alone == whole


@pytest.mark.parametrize(
    'cuts, most, expected',
    [
        ([0, 10, 20, 30, 40], 2, [1, 3]),
        ([0, 10, 20, 30, 40], 0, [0, 1, 2, 3]),
        ([0, 1, 40], 2, [0, 1]),
        ([0, 16, 30, 40], 2, [0, 2]),
    ],
)
def test_points_are_the_segments_that_end_nearest(cuts, most, expected):
    assert curve_points(np.array(cuts), most).tolist() == expected


def test_predictions_are_the_predictors_own_also_of_a_lift():
    samples = samples_of(np.random.default_rng(0).integers(0, 4, 60) * 3)
    for head in ({'head': 'rp', 'lift_dim': 7}, {'head': 'qda'}):
        learner = Scroll(buffer_size=0, **head)
        learner.learn(samples.samples, samples.features, samples.keys, samples.labels)
        predictor = learner.predictor()
        lift = learner.new_statistics(5).lift
        test = TestSet(samples.features, samples.labels, lift)
        assert np.array_equal(
            test.predictions(predictor),
            predictor.predict(samples.features[np.argsort(samples.labels, kind='stable')]),
        )


def test_hits_are_right_answers_by_class_and_none_of_classes_unseen():
    random = np.random.default_rng(1)
    labels = random.integers(0, 4, 80)
    train = samples_of(labels, 1)
    samples = samples_of(random.integers(0, 4, 50), 2)
    test = TestSet(samples.features, samples.labels)
    seen = np.isin(labels, [1, 3])
    predictor = ridge(Statistics(5).add(train.features[seen], labels[seen]), 0.1)
    right = predictor.predict(samples.features) == samples.labels
    hits = test.class_hits(test.predictions(predictor))
    assert hits.tolist() == [int(right[samples.labels == c].sum()) for c in range(4)]
    assert hits[0] == hits[2] == 0 < hits.sum()
