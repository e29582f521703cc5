"""Columns go by their names, a value and its float32 copy are one, and one rule says what is a
label.
"""

import copy
import unicodedata
import warnings
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from scroll import Adaptation, InputError, Scroll, ScrollClassifier
from scroll.ground.grid import intake, quantise
from tests.scroll.conftest import refused

pa = pytest.importorskip('pyarrow')
R = np.random.default_rng(3)
X = R.normal(size=(90, 6))
Y = R.integers(3, size=90)
NAMES = [f'f{i}' for i in range(6)]
FRAME = pd.DataFrame(X, columns=NAMES)
OTHER = FRAME[NAMES[::-1]]
GONE = FRAME.rename(columns={'f5': 'f9'})


# columns

BOTH = pytest.mark.parametrize('make', [Scroll, ScrollClassifier])


@BOTH
@pytest.mark.parametrize(
    'names',
    [
        NAMES,
        range(6),
        [1, 3, 5, 0, 2, 4],
        [0.5, 1.0, 2.0, 3.0, 4.0, 5.0],
        ['a', 1, 'b', 2.5, None, ('c', 3)],
        [(a, i) for a in 'xyz' for i in (1, 2)],
        pd.date_range('2020-01-01', periods=6),
    ],
    ids=str,
)
def test_columns_of_a_frame_are_put_in_the_order_that_was_learned(make, names, tmp_path):
    """Whatever names them. Numbers from 0 are places, in the first frame, too."""
    frame = pd.DataFrame(X[:, names] if set(names) == set(range(6)) else X)
    frame.columns = names
    other = frame.iloc[:, ::-1]
    learner = make().partial_fit(frame[:50], Y[:50]).partial_fit(other[50:], Y[50:])
    expected = make().partial_fit(X, Y)
    assert learner.digest() == expected.digest()
    for params in ({}, {'scale': 'standard'}, {'scale': None, 'limit': 100}):  # with weights
        found, whole = (
            ScrollClassifier(**params).fit(first, Y, Y + 1).partial_fit(later, Y)
            for first, later in ((frame, other), (X, X))
        )
        assert found.digest() == whole.digest()
    learner.save(tmp_path / 's.npz')
    for one in (learner, Scroll.load(tmp_path / 's.npz')):
        for table in (other, frame, pa.Table.from_pandas(other) if names is NAMES else other):
            logits = expected.decision_function(X)
            np.testing.assert_array_equal(one.decision_function(table), logits)
            assert one.score(table, Y) == expected.score(X, Y)
        one.remove(other[:20], Y[:20])
        assert one.digest() == make().partial_fit(X[20:], Y[20:]).digest()


@BOTH
@pytest.mark.parametrize(
    'table, word',
    [
        (GONE, "missing 'f5'; unknown 'f9'"),
        (FRAME[NAMES[:5]], "missing 'f5'"),
        (FRAME[[*NAMES[:5], 'f0']], "'f0' twice"),
        (FRAME.set_axis([1, '1', *NAMES[2:]], axis=1), "'1' twice"),
    ],
)
def test_other_columns_are_refused_and_nothing_is_changed(make, table, word):
    learner = make().partial_fit(FRAME, Y)
    before = learner.digest()
    for use in (
        learner.partial_fit,
        learner.remove,
        learner.score,
        lambda X, y: learner.predict(X),
    ):
        with refused(word):
            use(table, Y)
    assert learner.digest() == before
    with refused('twice') if 'twice' in word else nullcontext():
        make().partial_fit(table, Y)


def test_learners_and_classifiers_of_other_columns_are_not_merged():
    for other, word in ((OTHER, 'another order'), (GONE, 'f9')):
        with refused(word):
            Scroll().partial_fit(FRAME, Y).merge(Scroll().partial_fit(other, Y))
        with refused(word):
            ScrollClassifier().fit(FRAME, Y) + ScrollClassifier().fit(other, Y)
    both = ScrollClassifier().fit(FRAME[:40], Y[:40]) + ScrollClassifier().fit(FRAME[40:], Y[40:])
    assert both.digest() == ScrollClassifier().fit(FRAME, Y).digest()


@BOTH
def test_names_on_one_side_alone_are_taken_in_order_with_a_warning(make):
    bare = make().partial_fit(X, Y)
    named = make().partial_fit(FRAME, Y)
    assert not hasattr(bare, 'feature_names_in_')
    assert named.feature_names_in_.tolist() == NAMES
    for learner, table, whose in (
        (bare, FRAME, 'what was learned'),
        (named, X, 'X'),
        (named, pd.DataFrame(X), 'X'),
    ):
        with pytest.warns(UserWarning, match=f'{whose} has no names'):
            np.testing.assert_array_equal(learner.predict(table), bare.predict(X))


# precision


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(
            st.floats(width=64, allow_nan=False, min_value=-1e30, max_value=1e30),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_value_and_its_float32_copy_are_one(rows):
    features = np.array(rows)
    copy = features.astype(np.float32)
    np.testing.assert_array_equal(intake(features), intake(copy))
    np.testing.assert_array_equal(
        quantise(intake(features)), quantise(intake(copy.astype(np.float64)))
    )
    one, two = (Scroll(buffer_size=0).fit(x, [0] * len(rows)) for x in (features, copy))
    assert one.digest() == two.digest()


@pytest.mark.filterwarnings('error')
@pytest.mark.parametrize(
    'make',
    [
        lambda: Scroll(keep_keys=True),
        ScrollClassifier,
        lambda: ScrollClassifier('ncc'),
        lambda: ScrollClassifier(scale='standard', limit=8),
    ],
)
def test_what_was_learned_in_float64_is_removed_as_its_float32_copy(make):
    learner = make().partial_fit(X, Y)
    learner.remove(X[:30].astype(np.float32), Y[:30])
    assert learner.digest() == make().partial_fit(X[30:], Y[30:]).digest()


@pytest.mark.parametrize(
    'make',
    [
        lambda: Scroll(buffer_size=0),
        ScrollClassifier,
        lambda: ScrollClassifier(scale=None, limit=512),
    ],
)
@pytest.mark.parametrize('kind', ['float16', 'bfloat16', 'float8_e4m3fn'])
def test_numbers_of_few_bits_are_the_float32_that_they_equal_and_other_samples(make, kind):
    types = pytest.importorskip('ml_dtypes')
    tensor = torch.tensor(X).to(getattr(torch, kind))
    values = tensor.float().numpy()
    expected = make().partial_fit(values, Y).digest()
    for few in (tensor, values.astype(getattr(types, kind, kind))):
        assert make().partial_fit(few, torch.tensor(Y).bfloat16()).digest() == expected
        with suppress(InputError), pytest.warns(UserWarning, match=kind):
            make().partial_fit(X, Y).remove(few[:2], Y[:2])


def test_a_half_precision_copy_is_said_to_be_another_sample(command):
    np.savez('x.npz', X=X[:2].astype(np.float16), y=Y[:2])
    Scroll(buffer_size=0).partial_fit(X, Y).save('s.npz')
    assert 'float16' in command('remove', 's.npz', '--samples', 'x.npz', '-o', 's.npz')[2]


@pytest.mark.parametrize('how, said', [('--no-keep_keys', True), ('--keep_keys', False)])
def test_a_removal_says_where_it_is_not_known_whether_the_samples_were_learned(command, how, said):
    for name, at in {'a': slice(60), 'b': slice(60, 90), 'c': slice(70, 75)}.items():
        np.savez(f'{name}.npz', X=X[at], y=Y[at])
    command('learn', 'a.npz', 'b.npz', how, '-o', 's.npz')
    for removed, unknown in (('b.npz', False), ('c.npz', said)):  # b is a part that was counted
        code, _, err = command('remove', 's.npz', '--samples', removed, '-o', 'out')
        assert (code, 'not verified' in err) == (0, unknown)


@pytest.mark.parametrize('flush', [False, True])
def test_denormals_are_zero_whatever_the_processor_does_with_them(flush):
    least = 2.0**-126
    rows = np.array([[1e-310, 0], [1e-40, 3e-39], [least, 0], [least - 2.0**-152, 0], [1, 1e-40]])
    tiny = np.array([[3e-310, 4e-310], [2.0**-1022, 2.0**-1023], [1, 1e-310]])
    zero = [0, 0]
    unit = [1 << 18, 0]
    expected = [zero, zero, unit, unit, unit]
    copy = rows.astype(np.float32)
    torch.set_flush_denormal(flush)
    try:
        assert quantise(intake(rows)).tolist() == quantise(intake(copy)).tolist() == expected
        assert quantise(tiny).tolist() == [zero, unit, unit]
    finally:
        torch.set_flush_denormal(False)


def test_beyond_float32_is_refused():
    with refused('sample 1 has values beyond float32'):
        Scroll().partial_fit([[1, 2], [1e39, 1]], [0, 1])


def test_parquet_columns_go_by_their_names(command, refusal):
    for name, table in (('a', FRAME[:30]), ('b', OTHER[30:]), ('c', GONE)):
        table.assign(y=Y[table.index]).to_parquet(f'{name}.parquet')
    digest = Scroll(buffer_size=0).partial_fit(X, Y).digest()
    for words in (
        ['a.parquet', 'b.parquet'],
        ['b.parquet', 'a.parquet'],
        ['--from', '[ab].parquet'],
    ):
        code, out, err = command('learn', *words, '--columns', 'X=f*', '-o', 's.npz')
        assert (code, out) == (0, f'{digest}\n')
        assert 'has no names' not in err
    before = Path('s.npz').read_bytes()
    for words in (
        'add s.npz c.parquet -o s.npz',
        'predict s.npz c.parquet -o x.csv',
        'learn --from *.parquet -o s.npz',
    ):
        assert 'c.parquet: X has other columns' in refusal(*words.split(), '--columns', 'X=f*')
    assert Path('s.npz').read_bytes() == before


# labels

INTEGERS = [np.int8, np.uint16, np.float64, object, 'Int64', 'int64[pyarrow]', 'category']


@BOTH
def test_whole_numbers_are_labels_whatever_holds_them(make):
    expected = make().partial_fit(X, Y)
    for dtype in INTEGERS:
        labels = pd.Series(Y).astype(dtype)
        for given_ in (labels, labels.to_numpy(), labels.tolist()):
            learner = make().partial_fit(X, given_)
            assert learner.digest() == expected.digest()
            assert learner.score(X, given_) == expected.score(X, Y)
    mixed = [2**53 + 1, -3.0, np.uint64(2**53)]  # numpy rounds
    assert make().partial_fit(X[:3], mixed).classes_.tolist() == [-3, 2**53, 2**53 + 1]
    text = np.array(Y.astype(str), np.dtypes.StringDType())
    assert make().partial_fit(X, text).digest() == make().partial_fit(X, Y.astype(str)).digest()


@BOTH
def test_other_labels_are_refused_in_one_line(make):
    learner = make().partial_fit(X, Y)
    for labels in (
        [0, 1.5, 1],
        [0, np.nan, 1],
        ['a', None, 'b'],
        [True, 'b', 'c'],
        [2.0**63, 0, 1],
        [1 << 70, 0, 1],
        [b'a', b'b', b'c'],
        np.array([b'a', b'b', b'c']),
        {'a': 1},
        None,
        5,
        'abc',
        torch.ones(3).to_sparse(),
        torch.ones(3, device='meta'),
        [{}, {}, {}],
        pd.array([1, pd.NA, 0], 'Int64'),
        [1j, 0, 1],
        torch.ones(3, requires_grad=True),
        np.array([*np.array([1, 2, 3], 'm8[ns]')], object),
        np.array([*np.array([1, 2, 3], 'm8[s]')], object),
    ):
        for use in (make().partial_fit, learner.score, learner.remove):
            with refused():
                use(X[:3], labels)
        if make is ScrollClassifier and labels is not None:
            with refused('classes'):
                make().partial_fit(X, Y, classes=labels)


@BOTH
def test_true_and_false_are_predicted_as_such(make):
    yes = Y > 0
    expected = make().partial_fit(X, (Y > 0).astype(int))
    for labels in (
        yes,
        yes.tolist(),
        pd.Series(yes).astype('boolean'),
        torch.tensor(yes),
        pa.array(yes),
    ):
        learner = make().partial_fit(X[:50], labels[:50]).partial_fit(X[50:], labels[50:])
        assert learner.digest() == expected.digest()
        assert learner.score(X, labels) == expected.score(X, yes)
        assert learner.classes_.dtype == learner.predict(X).dtype == bool
    assert learner.partial_fit(X, Y).predict(X).dtype == np.int64


def test_true_and_false_stay_so_in_what_is_made_of_a_learner(tmp_path):
    learner = Scroll(adaptation=Adaptation(iterations=1)).partial_fit(X, Y > 0)
    numbers = Scroll().partial_fit(X, Y)
    learner.save(tmp_path / 's.npz')
    for other, kind in (
        (Scroll.load(tmp_path / 's.npz'), bool),
        (copy.copy(learner).rename({True: False, False: True}), bool),
        (copy.copy(learner).rename({True: 7}), int),
        (copy.copy(learner).merge(learner), bool),
        (copy.copy(learner).merge(numbers), int),
        (numbers.merge(learner), int),
        (learner.adapt(), bool),
    ):
        assert other.classes_.dtype == other.predict(X).dtype == kind


@BOTH
def test_a_column_of_lists_is_a_table(make):
    rows = X.tolist()
    for column in (pd.Series(rows), pd.Series(list(X)), pa.chunked_array([rows[:40], rows[40:]])):
        assert make().partial_fit(column, Y).digest() == make().partial_fit(X, Y).digest()
    with refused('inhomogeneous'):
        make().partial_fit(pd.Series([*rows[1:], [1.0]]), Y)


@BOTH
def test_two_spellings_of_a_letter_are_one_class(make):
    composed, apart = (unicodedata.normalize(form, 'café') for form in ('NFC', 'NFD'))
    learner = make().partial_fit(X[:4], [composed, apart, 'tea', apart])
    assert composed != apart
    assert learner.classes_.tolist() == [composed, 'tea']
    assert learner.score(X[:4], learner.predict(X[:4])) == 1.0
    if make is Scroll:
        assert learner.rename({apart: 'x'}).classes_.tolist() == ['tea', 'x']


@BOTH
def test_what_is_masked_or_no_number_is_not_learned(make):
    learner = make().partial_fit(X, Y)
    for x, word in (
        (np.ma.masked_array(X, mask=X > 1), 'masked'),
        (X.astype('M8[s]'), 'dates'),
        (FRAME.astype('m8[s]'), 'times'),
        (torch.tensor(X, requires_grad=True), 'grad'),
        ([[10**400] * 6] * 90, 'large'),
        (csr_array(X), 'toarray'),
        (torch.tensor(X).to_sparse(), 'Sparse'),
        (torch.empty(90, 6, device='meta'), 'meta'),
        (dict(FRAME), 'dict'),
        (X > 0, 'True'),
        (X.astype(str), 'text'),
        (X.astype('S'), 'text'),
    ):
        for use in (
            make().partial_fit,
            learner.remove,
            learner.score,
            lambda X, y: learner.predict(X),
        ):
            with refused(word):
                use(x, Y)
    assert (
        make().partial_fit(np.ma.masked_array(X), Y).digest() == make().partial_fit(X, Y).digest()
    )


def test_tables_that_are_not_read_are_refused_and_columns_with_gaps_are_read():
    with refused('is not a table'):
        Scroll().partial_fit(SimpleNamespace(columns=['unread']), Y)
    for names in (NAMES, range(6)):
        gaps = FRAME.set_axis(names, axis=1).astype('Float64')
        for table in (gaps, gaps.to_numpy(object)):
            assert Scroll().partial_fit(table, Y).digest() == Scroll().partial_fit(X, Y).digest()
        gaps.iloc[3, 2] = pd.NA
        with refused('missing'):
            Scroll().partial_fit(gaps, Y)


def test_predictions_are_of_one_state_whoever_learns_meanwhile(monkeypatch):
    frame = pd.DataFrame(R.normal(size=(2002, 2)) * [5, 1], columns=['a', 'b'])
    labels = np.r_[np.zeros(2000, int), 1, 1]
    learner = Scroll(buffer_size=0).fit(frame, labels)
    expected = Scroll(buffer_size=0).fit(frame, labels).decision_function(frame)
    # the hint on uneven classes comes when f_T is made
    monkeypatch.setattr(warnings, 'warn', lambda *_, **__: learner.fit(frame[['b', 'a']], labels))
    assert (learner.decision_function(frame) == expected).all()


def test_classes_of_uneven_size_get_a_hint_that_names_balanced():
    many = R.normal(size=(2002, 4))
    labels = np.r_[np.zeros(2000, int), 1, 1]
    with pytest.warns(UserWarning, match="head='balanced'"):
        Scroll(buffer_size=0).partial_fit(many, labels).predictor()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        Scroll(head='balanced', buffer_size=0).partial_fit(many, labels).predictor()
        Scroll(buffer_size=0).partial_fit(X, Y).predictor()
