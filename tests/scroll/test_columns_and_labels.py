"""Columns go by their names, a value and its float32 copy are one, and one rule says what is a label."""
import itertools
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from scroll import Scroll, ScrollClassifier, Statistics
from scroll.__main__ import main
from scroll.grid import intake, quantise
from tests.scroll.conftest import refused

pyarrow = pytest.importorskip('pyarrow')
parquet = pytest.importorskip('pyarrow.parquet')
R = np.random.default_rng(3)
X, Y = R.normal(size=(90, 6)), R.integers(3, size=90)
NAMES = [f'f{i}' for i in range(6)]
FRAME = pd.DataFrame(X, columns=NAMES)
OTHER = FRAME[NAMES[::-1]]
GONE = FRAME.rename(columns={'f5': 'f9'})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capfd):
    def run(*words) -> tuple:
        code = main([str(word) for word in words])
        return code, *capfd.readouterr()
    return run


def frames(**tables) -> None:
    for name, table in tables.items():
        table.to_parquet(f'{name}.parquet')


# columns

def test_columns_of_a_frame_are_put_in_the_order_that_was_learned():
    learner = Scroll().partial_fit(FRAME[:50], Y[:50]).partial_fit(OTHER[50:], Y[50:])
    assert learner.digest() == Scroll().partial_fit(X, Y).digest() and learner.feature_names_in_.tolist() == NAMES
    for table in (OTHER, FRAME):
        np.testing.assert_array_equal(learner.decision_function(table), learner.decision_function(FRAME))
        np.testing.assert_array_equal(learner.out_of_sample(table, Y), learner.out_of_sample(FRAME, Y))
    assert learner.remove(OTHER[:20], Y[:20]).digest() == Scroll().partial_fit(X[20:], Y[20:]).digest()


@pytest.mark.parametrize('use', [lambda m, t: m.partial_fit(t, Y), lambda m, t: m.predict(t), lambda m, t: m.remove(t, Y),
                                 lambda m, t: m.refill(t, Y), lambda m, t: m.out_of_sample(t, Y)])
@pytest.mark.parametrize('table, word', [(GONE, "missing 'f5'; unknown 'f9'"), (FRAME[NAMES[:5]], "missing 'f5'"),
                                         (FRAME[[*NAMES[:5], 'f0']], 'twice')])
def test_other_columns_are_refused_and_nothing_is_changed(use, table, word):
    learner = Scroll().partial_fit(FRAME, Y)
    before = learner.digest()
    with refused(word):
        use(learner, table)
    assert learner.digest() == before


def test_learners_and_classifiers_of_other_columns_are_not_merged():
    for other, word in ((OTHER, 'another order'), (GONE, 'f9')):
        with refused(word):
            Scroll().partial_fit(FRAME, Y).merge(Scroll().partial_fit(other, Y))
        with refused(word):
            ScrollClassifier().fit(FRAME, Y) + ScrollClassifier().fit(other, Y)
    both = ScrollClassifier().fit(FRAME[:40], Y[:40]) + ScrollClassifier().fit(FRAME[40:], Y[40:])
    assert both.digest() == ScrollClassifier().fit(FRAME, Y).digest()


def test_names_are_in_the_file_and_a_state_without_names_stays_without(here):
    Scroll().partial_fit(FRAME, Y).save('s.npz')
    assert Scroll.load('s.npz').partial_fit(OTHER, Y).digest() == Scroll().partial_fit(np.r_[X, X], np.r_[Y, Y]).digest()
    bare = Scroll().partial_fit(X, Y).partial_fit(OTHER, Y)
    assert not hasattr(bare, 'feature_names_in_') and bare.digest() != Scroll().partial_fit(np.r_[X, X], np.r_[Y, Y]).digest()
    with pytest.warns(UserWarning, match='no names of columns'):
        Scroll.load('s.npz').predict(X)


def test_polars_or_whatever_has_columns_counts_as_a_frame():
    class Table:
        columns = NAMES[::-1]

        def to_numpy(self):
            return X[:, ::-1]
    assert Scroll().partial_fit(FRAME, Y).partial_fit(Table(), Y).digest() == Scroll().partial_fit(np.r_[X, X], np.r_[Y, Y]).digest()


@pytest.mark.parametrize('order', list(itertools.permutations('abc')))
def test_parquet_columns_in_any_order_of_files_and_columns_count_the_same(here, command, order):
    frames(a=FRAME[:30].assign(y=Y[:30]), b=OTHER[30:60].assign(y=Y[30:60]), c=FRAME[NAMES[3:] + NAMES[:3]][60:].assign(y=Y[60:]))
    _, digest, _ = command('learn', *[f'{name}.parquet' for name in order], '--columns', 'X=f*', '-o', 's.npz')
    assert digest.strip() == Scroll(buffer_size=0).partial_fit(X, Y).digest()
    again = command('learn', '--from', '*.parquet', '--columns', 'X=f*', '-o', 't.npz')[1]
    assert again == digest
    assert command('predict', 's.npz', 'b.parquet', '--columns', 'X=f*', '-o', 'b.csv')[0] == 0
    expected = Scroll(buffer_size=0).partial_fit(X, Y).predict(X[30:60])
    np.testing.assert_array_equal(pd.read_csv('b.csv').label, expected)
    assert command('remove', 's.npz', '--samples', 'b.parquet', '--columns', 'X=f*', '-o', 'r.npz')[1].strip() == \
        Scroll(buffer_size=0).partial_fit(np.r_[X[:30], X[60:]], np.r_[Y[:30], Y[60:]]).digest()


def test_parquet_columns_of_other_names_are_refused(here, command):
    frames(a=FRAME.assign(y=Y), b=GONE.assign(y=Y))
    for words in (['learn', 'a.parquet', 'b.parquet'], ['learn', '--from', '*.parquet']):
        code, _, err = command(*words, '--columns', 'X=f*', '-o', 's.npz')
        assert code == 2 and err.startswith('scroll: error: ') and "b.parquet: X has other columns" in err and not Path('s.npz').exists()
    command('learn', 'a.parquet', '--columns', 'X=f*', '-o', 's.npz')
    before = Path('s.npz').read_bytes()
    for words in (['add', 's.npz', 'b.parquet', '-o', 's.npz'], ['predict', 's.npz', 'b.parquet', '-o', 'x.csv']):
        assert command(*words, '--columns', 'X=f*')[0] == 2
    assert Path('s.npz').read_bytes() == before


def test_empty_parts_and_files_without_labels_end_no_run(here, command):
    rows = pyarrow.array(X.tolist(), pyarrow.list_(pyarrow.float32()))
    whole = pyarrow.table({'X': rows, 'y': pyarrow.array(Y)})
    parquet.write_table(whole, 'a.parquet')
    parquet.write_table(whole.slice(0, 0), 'empty.parquet')
    parquet.write_table(pyarrow.table({'X': rows, 'y': pyarrow.nulls(90)}), 'null.parquet')
    parquet.write_table(pyarrow.table({'X': rows, 'y': pyarrow.array([None] * 90, pyarrow.int64())}), 'nulls.parquet')
    digest = Scroll(buffer_size=0).partial_fit(X, Y).digest()
    for files in (['a.parquet', 'empty.parquet'], ['empty.parquet', 'a.parquet']):
        assert command('learn', *files, '-o', 's.npz')[:2] == (0, digest + '\n')
    for file in ('null.parquet', 'nulls.parquet'):
        assert command('predict', 's.npz', file, '-o', 'l.csv')[1] == 'predicted 90 samples\n'
        code, _, err = command('learn', file, '-o', 't.npz')
        assert code == 2 and 'y has no label' in err
    assert command('learn', 'empty.parquet', '-o', 't.npz')[0] == 2


# precision

@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.floats(width=64, allow_nan=False, min_value=-1e30, max_value=1e30), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_value_and_its_float32_copy_are_one(rows):
    features = np.array(rows)
    copy = features.astype(np.float32)
    np.testing.assert_array_equal(intake(features), intake(copy))
    np.testing.assert_array_equal(quantise(intake(features)), quantise(intake(copy.astype(np.float64))))
    assert Scroll(buffer_size=0).partial_fit(features, [0] * len(rows)).digest() == \
        Scroll(buffer_size=0).partial_fit(copy, [0] * len(rows)).digest()


@pytest.mark.parametrize('make', [lambda: Scroll(keep_keys=True), lambda: ScrollClassifier(), lambda: ScrollClassifier(scale=None, limit=8),
                                  lambda: ScrollClassifier(scale='standard', limit=8)])
def test_what_was_learned_in_float64_is_removed_as_its_float32_copy(make):
    learner = make().partial_fit(X, Y)
    learner.remove(X[:30].astype(np.float32), Y[:30])
    assert learner.digest() == make().partial_fit(X[30:], Y[30:]).digest()


def test_denormals_are_zero_whatever_the_processor_does_with_them():
    rows = np.array([[1e-310, 0, 1e-310], [1e-40, 3e-39, 0], [2.0 ** -126, 0, 0], [2.0 ** -126 - 2.0 ** -152, 0, 0], [1, 1e-40, 0]])
    expected = [[0, 0, 0], [0, 0, 0], [1 << 18, 0, 0], [1 << 18, 0, 0], [1 << 18, 0, 0]]
    assert quantise(intake(rows)).tolist() == expected
    with np.errstate(under='ignore'):
        assert quantise(intake(rows.astype(np.float32))).tolist() == expected
    tiny = np.array([[3e-310, 4e-310], [2.0 ** -1022, 2.0 ** -1023], [1, 1e-310]])
    plain = quantise(tiny).tolist(), quantise(rows.astype(np.float32)).tolist()
    assert plain[0] == [[0, 0], [1 << 18, 0], [1 << 18, 0]]
    torch.set_flush_denormal(True)
    try:
        assert quantise(intake(rows)).tolist() == expected
        assert (quantise(tiny).tolist(), quantise(rows.astype(np.float32)).tolist()) == plain
    finally:
        torch.set_flush_denormal(False)


def test_beyond_float32_is_refused_and_half_precision_is_said():
    with refused('sample 1 has values beyond float32'):
        Scroll().partial_fit([[1, 2], [1e39, 1]], [0, 1])
    learner = Scroll(buffer_size=0).partial_fit(X, Y)
    with pytest.warns(UserWarning, match='float16'), pytest.raises(ValueError):
        Scroll(keep_keys=True).partial_fit(X, Y).remove(X[:3].astype(np.float16), Y[:3])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        learner.remove(X[:3].astype(np.float32), Y[:3])


def test_a_grid_whose_centre_is_far_off_keeps_float64():
    far = X + 1e9
    apart = ScrollClassifier(scale='standard').fit(far, Y)
    assert apart.score(far, Y) == ScrollClassifier(scale='standard').fit(X, Y).score(X, Y)


def test_an_older_state_goes_on_in_its_own_precision(here, command):
    """A file of version 0.2: features were summed as float64."""
    old = Statistics(6).add(quantise(X), Y)
    from scroll.state import State
    State(dict(head='ridge', buffer_size=0), '', old, precision='float64').write('old.npz')
    learner = Scroll.load('old.npz')
    assert learner.partial_fit(X[:9], Y[:9]).digest() == Statistics(6).add(quantise(X), Y).add(quantise(X[:9]), Y[:9]).digest()
    assert learner.remove(X[:9], Y[:9]).digest() == old.digest()
    with refused('taken in as float64'):
        learner.merge(Scroll(buffer_size=0).partial_fit(X, Y))
    np.savez('gone.npz', X=X[:9], y=Y[:9])
    assert command('remove', 'old.npz', '--samples', 'gone.npz', '-o', 'new.npz')[1].strip() == Statistics(6).add(quantise(X[9:]), Y[9:]).digest()


def test_a_removal_says_whether_membership_was_checked(here, command):
    np.savez('all.npz', X=X, y=Y), np.savez('gone.npz', X=X[:9].astype('f4'), y=Y[:9]), np.savez('never.npz', X=X[:9] + .01, y=Y[:9])
    command('learn', 'all.npz', '-o', 'keyed.npz')
    command('learn', 'all.npz', '--no-keep_keys', '-o', 'bare.npz')
    checked, unchecked = 'had been learned was checked', 'had been learned was not checked'
    for state, words in (('keyed.npz', checked), ('bare.npz', unchecked)):
        assert words in command('unlearn', state, '--samples', 'gone.npz', '-o', 'rest.npz')[2]
    assert command('unlearn', 'keyed.npz', '--samples', 'never.npz', '-o', 'x.npz')[0] == 2
    assert unchecked in command('unlearn', 'bare.npz', '--samples', 'never.npz', '-o', 'x.npz')[2]


# labels

INTEGERS = [np.int8, np.int64, np.uint16, np.float32, np.float64, object, 'Int64', 'Int8', 'UInt8', 'Float64', 'int64[pyarrow]', 'category']


@pytest.mark.parametrize('dtype', INTEGERS)
@pytest.mark.parametrize('make', [Scroll, ScrollClassifier])
def test_whole_numbers_are_labels_whatever_holds_them(make, dtype):
    labels = pd.Series(Y).astype(dtype)
    expected = make().partial_fit(X, Y).digest()
    for given_ in (labels, labels.to_numpy(), labels.tolist()):
        learner = make().partial_fit(X, given_)
        assert learner.digest() == expected and learner.score(X, given_) == make().partial_fit(X, Y).score(X, Y)


def test_labels_are_the_same_in_a_column_of_mixed_values():
    table = FRAME.assign(name='x', y=Y)
    assert Scroll().partial_fit(X, table.values[:, -1]).digest() == Scroll().partial_fit(X, Y).digest()
    texts = np.array(['a', 'b', 'c'])[Y]
    for dtype in (object, 'string', 'category', str, 'string[pyarrow]'):
        assert Scroll().partial_fit(X, pd.Series(texts).astype(dtype)).digest() == Scroll().partial_fit(X, texts).digest()


@pytest.mark.parametrize('make', [Scroll, ScrollClassifier])
@pytest.mark.parametrize('labels', [[0, 1.5, 1], [0, np.nan, 1], [0, None, 1], ['a', 1, 'b'], ['a', None, 'b'], [True, 'b', 'c'], [2.0 ** 63, 0, 1],
                                    [1 << 70, 0, 1], [b'a', b'b', b'c'], pd.array([1, pd.NA, 0], 'Int64'), [1j, 0, 1], [np.inf, 0, 1]])
def test_other_labels_are_refused_in_one_line(make, labels):
    with refused():
        make().partial_fit(X[:3], labels)


@pytest.mark.parametrize('make', [Scroll, ScrollClassifier])
def test_two_spellings_of_a_letter_are_one_class(make):
    composed, apart = (unicodedata.normalize(form, 'café') for form in ('NFC', 'NFD'))
    learner = make().partial_fit(X[:4], [composed, apart, 'tea', apart])
    assert composed != apart and learner.classes_.tolist() == [composed, 'tea']
    assert learner.score(X[:4], learner.predict(X[:4])) == 1.0


@pytest.mark.parametrize('make', [Scroll, ScrollClassifier])
def test_what_is_masked_is_not_learned(make):
    with refused('masked'):
        make().partial_fit(np.ma.masked_array(X, mask=X > 1), Y)
    assert make().partial_fit(np.ma.masked_array(X), Y).digest() == make().partial_fit(X, Y).digest()


def test_sparse_matrices_are_named_and_columns_with_gaps_are_read():
    with refused('ScrollClassifier'):
        Scroll().partial_fit(csr_array(X), Y)
    gaps = FRAME.astype('Float64')
    assert Scroll().partial_fit(gaps, Y).digest() == Scroll().partial_fit(X, Y).digest()
    gaps.iloc[3, 2] = pd.NA
    with refused('missing'):
        Scroll().partial_fit(gaps, Y)


def test_classes_of_uneven_size_get_a_hint_that_names_balanced():
    many, labels = R.normal(size=(2002, 4)), np.r_[np.zeros(2000, int), 1, 1]
    with pytest.warns(UserWarning, match="head='balanced'"):
        Scroll(buffer_size=0).partial_fit(many, labels).predictor()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        Scroll(head='balanced', buffer_size=0).partial_fit(many, labels).predictor()
        Scroll(buffer_size=0).partial_fit(X, Y).predictor()
