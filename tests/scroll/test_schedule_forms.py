"""Each form of schedule: what its formula says, checked by hand or by counting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from scroll.streams.schedule_forms import FORMS
from scroll.streams.schedules import is_task_free, make_schedule
from tests.scroll.conftest import quick, refused

LABELS = np.repeat(np.arange(10), 60)
WHOLE = 'batch=999999'  # segments as the form makes them
SPECS = [
    'split:3',
    'split:2,order=random',
    'iid',
    'single',
    'gaussian',
    'gaussian:sigma=3,order=random',
    'gaussian-resample:batch=4',
    'blurry',
    'blurry:tasks=3,major=0,minor=100',
    'siblurry',
    'siblurry:tasks=2,major=30,minor=50',
    'recurring:2',
    'recurring:3,times=4,order=random',
    'imbalanced:2',
    'imbalanced:3,ratio=5',
]


def table(spec, labels=LABELS, seed=0) -> np.ndarray:
    """int (segments, classes): how many samples of each class each segment has."""
    schedule = make_schedule(f'{spec},{WHOLE}', labels, seed)
    return np.array(
        [
            np.bincount(labels[segment], minlength=labels.max() + 1)
            for segment in schedule.segments()
        ]
    )


@quick
@given(
    st.lists(st.integers(0, 5), min_size=6, max_size=40),
    st.sampled_from(SPECS),
    st.integers(0, 9),
    st.lists(st.integers(-50, 50), min_size=6, max_size=6, unique=True),
)
def test_each_form_covers_the_data_as_it_says_however_classes_are_numbered(
    labels, spec, seed, names
):
    labels = np.array([*labels, 0, 1, 2])  # enough classes for every split
    schedule = make_schedule(spec, labels, seed)
    assert schedule.digest() == make_schedule(spec, np.sort(names)[labels], seed).digest()
    times = np.bincount(schedule.order, minlength=len(labels))
    assert {
        'all': (times == 1).all(),
        'part': times.max() == 1 and len(schedule.order) <= len(labels),
        'repeats': True,
    }[schedule.covers]
    assert schedule.covers == FORMS[spec.partition(':')[0]].covers
    assert schedule.task_free == is_task_free(spec)
    if schedule.covers != 'repeats':
        assert set(labels[schedule.order]) == set(labels)  # no class is lost
    if schedule.task_free:
        assert schedule.tasks.tolist() == [0, len(schedule.order)]


def test_the_seed_fixes_each_form():
    for spec in SPECS:
        digests = [make_schedule(spec, LABELS, seed).digest() for seed in (0, 0, 1, 2)]
        assert digests[0] == digests[1], spec
        assert len(set(digests)) == 3, spec


@pytest.mark.parametrize('sizes, sigma', [([500] * 100, 0.5), ([4000, 200, 2000, 100], 1)])
def test_a_gaussian_stream_follows_its_bells_to_the_end(sizes, sigma):
    """Shares of the classes in each tenth, and in the first and the last hundredth, compared with
    those of the bells there.
    """
    labels = np.repeat(np.arange(len(sizes)), sizes)
    arrived = labels[make_schedule(f'gaussian:sigma={sigma}', labels).order]
    peaks = (np.arange(len(sizes)) + 0.5) / len(sizes)
    width = sigma / len(sizes)
    time = np.linspace(-5 * width, 1 + 5 * width, 20001)
    come = norm.cdf(time[:, None], peaks, width) * sizes  # of each class, up to each time
    for start, end in [*((i / 10, (i + 1) / 10) for i in range(10)), (0, 0.01), (0.99, 1)]:
        at = [
            np.interp(u * len(labels), come.sum(axis=1), np.arange(len(time))).round().astype(int)
            for u in (start, end)
        ]
        expected = (come[at[1]] - come[at[0]]) / (come[at[1]] - come[at[0]]).sum()
        part = arrived[round(start * len(labels)) : round(end * len(labels))]
        shares = np.bincount(part, minlength=len(sizes)) / len(part)
        chance = np.sqrt(expected / len(part)).sum()  # of a sample of that size
        assert np.abs(shares - expected).sum() / 2 < chance + 0.01
        assert not shares[expected < 1e-6].any()  # none where its bell has ended


@pytest.mark.parametrize('classes, drawn', [(10, 1.21), (100, 12.03)])
def test_the_published_gaussian_has_as_many_classes_at_once_as_its_formula_says(classes, drawn):
    """`drawn`: classes in the first draw, on average; where that may be empty, drawing again leaves
    more.
    """
    labels = np.repeat(np.arange(classes), 100)
    peaks = 1000 // classes * (np.arange(classes) + 0.5)
    starts = np.arange(0, 1000, 5)[:, None]
    present = []
    p = np.exp(-((starts - peaks) ** 2) / (2 * 50**2))
    assert p.sum(axis=1).mean() == pytest.approx(drawn, abs=0.005)
    expected = (p.sum(axis=1) / (1 - (1 - p).prod(axis=1))).mean()
    for seed in range(2):
        schedule = make_schedule('gaussian-resample:batch=60', labels, seed)
        assert len(schedule.order) == 60_000
        assert len(schedule.cuts) == 1001
        assert schedule.covers == 'repeats'
        present += [
            len(np.unique(labels[schedule.order[a : a + 300]])) for a in range(0, 60_000, 300)
        ]
    assert np.mean(present) == pytest.approx(expected, rel=0.05)


def test_major_classes_of_a_blurry_stream_have_one_task_and_the_others_leave_theirs_by_the_share():
    counts = table('blurry:tasks=5,major=50,minor=20')
    assert counts.shape == (5, 10)
    assert (counts.sum(axis=0) == 60).all()
    tasks_of = (counts > 0).sum(axis=0)
    assert sorted(tasks_of) == [1] * 5 + [5] * 5
    blurred = counts[:, tasks_of == 5]
    # 12 over four tasks
    assert (blurred.max(axis=0) == 48).all()
    assert (np.sort(blurred, axis=0)[:4] == 3).all()
    # one major, one other each
    assert ((counts == 60).sum(axis=1) == 1).all()
    assert ((counts == 48).sum(axis=1) == 1).all()
    assert (table('blurry:major=100') > 0).sum() == 10
    assert (table('blurry:major=0,minor=0') > 0).sum() == 10


def test_si_blurry_moves_the_share_of_all_blurred_samples_and_loses_none():
    numbers = set()
    for seed in range(12):
        counts = table('siblurry:tasks=4,major=40,minor=25', seed=seed)
        assert counts.sum() == 600
        majors = (counts == 60).sum()
        spread = 600 - counts.max(axis=0).sum()  # samples outside their class's largest task
        assert majors >= 4
        assert spread <= 0.25 * 360
        numbers.add(tuple((counts > 0).sum(axis=1)))
    assert len(numbers) > 6  # the tasks' numbers of classes are random


def test_classes_of_a_recurring_stream_return_with_other_samples():
    counts = table('recurring:5,times=3')
    assert counts.shape == (15, 10)
    for visit in range(3):
        assert (
            counts[5 * visit : 5 * visit + 5] == np.repeat(np.eye(5, dtype=int), 2, axis=1) * 20
        ).all()


def test_an_imbalanced_split_decays_exponentially():
    counts = table('imbalanced:5,ratio=10')
    np.testing.assert_array_equal(counts.sum(axis=0), np.round(60 * 10.0 ** (-np.arange(10) / 9)))
    assert counts.sum(axis=0)[[0, -1]].tolist() == [60, 6]
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert table('imbalanced:2,ratio=100000').sum(axis=0).min() == 1


@quick
@given(
    st.sampled_from(['split:3', 'iid', 'gaussian', 'blurry', 'imbalanced:2,ratio=2']),
    st.integers(1, 40),
    st.integers(1, 9),
)
def test_every_keeps_the_first_of_so_many_pieces_in_its_task(form, batch, every):
    whole = make_schedule(f'{form},batch={batch}', LABELS)
    spec = f'{form},batch={batch},every={every}'
    pieces = list(whole.segments())[::every]
    lost = set(LABELS[whole.order]) - set(LABELS[np.concatenate(pieces)])
    if lost:
        with refused(f'no sample of {len(lost)} classes'):
            make_schedule(spec, LABELS)
        return
    kept = make_schedule(spec, LABELS)
    assert list(map(list, kept.segments())) == list(map(list, pieces))
    numbers = np.searchsorted(whole.cuts, whole.tasks)  # of the piece that begins each task
    assert np.searchsorted(kept.cuts, kept.tasks).tolist() == (-(-numbers // every)).tolist()
    assert kept.covers == (whole.covers if every == 1 else 'part')


@pytest.mark.parametrize(
    'spec, word',
    [
        ('split:2,every=2', 'batch=32'),
        ('split:10,batch=60,every=2', 'no sample of 5 classes'),
        ('gaussian-resample:every=2', 'cannot read'),
        ('iid,batch=2,every=0', 'positive'),
    ],
)
def test_what_cannot_be_skipped_is_said(spec, word):
    with refused(word):
        make_schedule(spec, LABELS)


def test_a_file_is_taken_as_it_is(tmp_path):
    path = tmp_path / 'stream.txt'
    path.write_text('2 0\n\n1 4 3\n')
    schedule = make_schedule(f'file:{path}', [0, 0, 1, 1, 1])
    assert schedule.order.tolist() == [2, 0, 1, 4, 3]
    assert schedule.cuts.tolist() == [0, 2, 5]
    assert schedule.task_free
    assert make_schedule(f'file:{path},batch=2', [0, 0, 1, 1, 1]).cuts.tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize(
    'text, word',
    [
        ('0 1 2\n\n3 4 1\n', 'ids from 0 to 4, each once'),
        ('-1 0 1 2 3', 'each once'),
        ('9' * 30, 'no list'),
        ('0 1 2\n3', 'each once'),
        ('0 1\na b', 'no list'),
        ('\u00e9', 'no list'),
        ('0 ' * 10_000, 'file of 5 ids'),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, word):
    (tmp_path / 'x').write_text(text, encoding='utf-8')
    with refused(f'file:.*{word}') as caught:
        make_schedule(f'file:{tmp_path / "x"}', np.arange(5) // 2)
    assert 'a schedule is' not in str(caught.value)
    assert len(str(caught.value)) < 400
