"""Schedules: permutations cut in pieces, as the text says, or an InputError."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scroll.ground.randomness import stream_seed
from scroll.streams.schedule_forms import class_splits
from scroll.streams.schedules import Schedule, make_schedule
from tests.scroll.conftest import quick, refused

LABELS = np.repeat(np.arange(6), 10)


@st.composite
def labels_and_specs(draw):
    labels = draw(st.lists(st.integers(-1, 6), min_size=1, max_size=40))
    splits = draw(st.integers(1, len(set(labels))))
    spec = draw(st.sampled_from(['iid', f'split:{splits}', f'split:{splits},order=random']))
    batch = draw(st.none() | st.integers(1, 50))
    return labels, spec, batch, draw(st.integers(0, 9))


@quick
@given(labels_and_specs())
def test_each_class_of_a_split_is_whole_in_one_task_and_tasks_differ_by_at_most_one_class(case):
    labels, spec, batch, seed = case
    if spec == 'iid':
        spec = 'split:1'
    schedule = make_schedule(spec if batch is None else f'{spec},batch={batch}', labels, seed)
    held = [set(np.asarray(labels)[schedule.task(t)[0]]) for t in range(len(schedule.tasks) - 1)]
    assert sum(map(len, held)) == len(set(labels)) == len(set.union(*held))
    assert [len(h) for h in held] == class_splits(len(set(labels)), len(held))
    if 'random' not in spec:
        assert [c for h in held for c in sorted(h)] == sorted(set(labels))


@quick
@given(labels_and_specs())
def test_batch_cuts_each_task_in_pieces_and_changes_neither_order_nor_tasks(case):
    labels, spec, batch, seed = case
    batch = batch or 3
    whole = make_schedule(spec, labels, seed)
    cut = make_schedule(f'{spec},batch={batch}', labels, seed)
    np.testing.assert_array_equal(whole.order, cut.order)
    np.testing.assert_array_equal(whole.tasks, cut.tasks)
    for t in range(len(cut.tasks) - 1):
        ids, ends = cut.task(t)
        pieces = np.diff(ends, prepend=0)
        assert (pieces[:-1] == batch).all()
        assert 1 <= pieces[-1] <= batch
        assert pieces.sum() == len(ids)


def test_the_parts_of_a_schedule_by_hand():
    schedule = Schedule(
        np.array([3, 1, 0, 2, 4]), np.array([0, 2, 3, 5]), np.array([0, 3, 5]), 'by hand'
    )
    assert [s.tolist() for s in schedule.segments()] == [[3, 1], [0], [2, 4]]
    assert [[a.tolist() for a in schedule.task(t)] for t in (0, 1)] == [
        [[3, 1, 0], [2, 3]],
        [[2, 4], [2]],
    ]


def test_the_digest_changes_with_order_and_with_cuts_only():
    order = np.arange(4)
    cuts = np.array([0, 2, 4])
    digest = Schedule(order, cuts, cuts, 'a').digest()
    assert digest == Schedule(order.astype(np.int32), cuts, cuts[[0, 2]], 'b').digest()
    assert digest != Schedule(order[::-1], cuts, cuts, 'a').digest()
    assert digest != Schedule(order, np.array([0, 1, 4]), cuts[[0, 2]], 'a').digest()


@pytest.mark.parametrize(
    'order, cuts, tasks',
    [
        ([0, 0, 1], [0, 3], [0, 3]),
        ([1, 2, 3], [0, 3], [0, 3]),
        ([0, 1, 2], [0, 2], [0, 2]),
        ([0, 1, 2], [1, 3], [1, 3]),
        ([0, 1, 2], [0, 2, 2, 3], [0, 3]),
        ([0, 1, 2], [0, 3], [0, 1, 3]),
        ([0, 1, 2], [3], [3]),
        ([], [0, 0], [0, 0]),
    ],
)
def test_a_schedule_that_is_none_is_refused(order, cuts, tasks):
    with refused():
        Schedule(np.array(order, int), np.array(cuts), np.array(tasks), 'x')


MALFORMED = [
    '',
    ':',
    'split',
    'split:0',
    'split:7',
    'split:2:3',
    'inc',
    'inc:7',
    'inc:2,b=7',
    'iid:',
    'iid:3',
    'iid,batch',
    'iid,batch=0',
    'iid,batch=2,batch=2',
    'iid,order=label',
    'split:2,order=alphabet',
    'split:2,order=0-1',
    'split:2,order=0-1-2-3-4-4',
    'split:2,colour=red',
    'iid\nbatch=2',
    'split:²',
    'split:1e9',
    None,
    3,
    'x' * 5000,
    *(
        f'{name}{"9" * 5000}'
        for name in ('split:', 'iid,batch=', 'split:2,order=', 'gaussian:sigma=')
    ),
    *(
        f'{name}=999999999999999'
        for name in ('gaussian-resample:batches', 'blurry:tasks', 'recurring:2,times')
    ),
    'imbalanced:999999999999999',
    'gaussian:sigma=0',
    'gaussian:sigma=nan',
    'gaussian:0.5',
    'blurry:major=101',
    'blurry:tasks=0',
    'recurring:2,times=0',
    'imbalanced:2,ratio=0',
    'imbalanced:2,ratio=1e300',
    'gaussian-resample:batches=5',
    'gaussian-resample:batch=',
    'gaussian-resample:width=0',
    'single:3',
    'siblurry:major=1e9',
    'file',
    'file:',
    'file:/dev/zero',
    'file:no/such/file',
]


@pytest.mark.parametrize('spec', MALFORMED, ids=lambda spec: str(spec)[:30])
def test_a_malformed_spec_is_refused_in_one_line(spec):
    with refused('schedule'):
        make_schedule(spec, LABELS)


def test_labels_that_are_none_are_refused():
    for labels in ([[0, 1], [1, 0]], [0, np.nan, 1], None, 3, [1, None]):
        with refused('^y'):
            make_schedule('iid', labels)


@pytest.mark.parametrize('seed', [None, 'a', 0.5, np.random.default_rng(0)], ids=str)
def test_a_seed_that_is_none_is_refused(seed):
    with refused('^seed'):
        make_schedule('iid', LABELS, seed)
    assert len(make_schedule('iid', LABELS, 2**63 - 1).order) == len(LABELS)


@pytest.mark.parametrize(
    'spec, word',
    [
        ('guassian', 'gaussian[?]$'),
        ('Split:2', 'split[?]$'),
        ('gaussian:sgima=1', 'sigma[?]'),
        ('split:2,order=randm', 'random[?]'),
    ],
)
def test_the_nearest_word_is_offered(spec, word):
    with refused(f'did you mean {word}'):
        make_schedule(spec, [0, 1, 0, 1])


def test_each_concern_has_a_random_stream_of_its_own():
    concerns = 'schedule', 'buffer', 'adaptation'
    assert len({stream_seed(seed, name) for seed in range(20) for name in concerns}) == 60


@pytest.mark.parametrize(
    'spec, sizes',
    [
        ('inc:4', [4, 4, 2]),
        ('inc:2,b=6', [6, 2, 2]),
        ('inc:3,b=2', [2, 3, 3, 2]),
        ('inc:1,b=10', [10]),
        ('inc:10', [10]),
    ],
)
def test_b_and_inc_are_the_classes_of_the_first_task_and_of_the_others(spec, sizes):
    labels = np.arange(200) % 10
    schedule = make_schedule(f'{spec},batch=7', labels)
    tasks = [set(labels[schedule.order[a:b]]) for a, b in zip(schedule.tasks, schedule.tasks[1:])]
    assert list(map(len, tasks)) == sizes
    assert set.union(*tasks) == set(range(10))
    assert sorted(schedule.order) == list(range(200))
