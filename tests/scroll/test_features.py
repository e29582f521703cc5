"""Files of features from the command line: one digest whatever the kind, order and blocks; labels;
what cannot be read.
"""

import csv
import json
import os
import pickle
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from safetensors.torch import save_file
from sklearn.datasets import load_digits

from scroll import Scroll
from scroll.__main__ import main
from scroll.files.features import FeatureFile
from tests.scroll.conftest import digests, quick

DIGITS = load_digits(return_X_y=True)
X = DIGITS[0][:300].astype(np.float32)
Y = DIGITS[1][:300]
WORDS = np.array(['zero', 'one', 'two', 'three', 'four', 'five', 'six', '7', 'eight', 'neuf é'])[Y]
SPLIT = np.where(np.arange(300) % 3 == 2, 'test', 'train')
TRAIN = SPLIT == 'train'
TEST = SPLIT == 'test'


def table(path, x=X, **columns) -> None:
    """Write Parquet of small row groups; x as a column of lists, unless it is a dict of columns."""
    columns |= x if isinstance(x, dict) else {'X': list(x)}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=70)


def write(kind: str, x=X, y=Y, **more) -> list:
    """A file of such a kind in the working folder, and the flags that it needs."""
    if kind == 'wide':
        table('x.parquet', {f'f{i}': x[:, i] for i in range(x.shape[1])}, y=y, **more)
        return ['x.parquet', '--columns', 'X=f*']
    if kind == 'named':
        table(
            'x.parquet',
            {'emb': pyarrow.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])},
            label=pyarrow.array(y).dictionary_encode(),
            **more,
        )
        return ['x.parquet', '--columns', 'X=emb,y=label']
    if kind == 'parquet':
        table('x.parquet', x, y=y, **more)
        return ['x.parquet']
    if kind == 'torch':
        torch.save({'features': torch.from_numpy(x).requires_grad_(), 'label': y.tolist()}, 'x.pt')
        return ['x.pt']
    if kind == 'safetensors':
        save_file(
            {'embeddings': torch.from_numpy(x).bfloat16(), 'targets': torch.from_numpy(y)},
            'x.safetensors',
        )
        return ['x.safetensors']
    save = np.savez_compressed if kind == 'compressed' else np.savez
    x, y = (x.astype('>f4'), y.astype('>i2')) if kind == 'big-endian' else (x, y)
    save('x.npz', X=np.asfortranarray(x, np.float64) if kind == 'fortran' else x, y=y, **more)
    return ['x.npz']


CASES = [
    ('npz', Y),
    ('compressed', WORDS),
    ('fortran', Y),
    ('big-endian', Y),
    ('parquet', WORDS),
    ('wide', Y),
    ('named', WORDS),
    ('torch', WORDS),
    ('safetensors', Y),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(path) -> list:
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize('kind, y', CASES, ids=[kind for kind, _ in CASES])
def test_one_digest_whatever_the_kind_and_the_blocks(here, command, monkeypatch, kind, y):
    expected = Scroll(buffer_size=0).fit(X, y)
    for size in (7, 8192):
        monkeypatch.setattr(FeatureFile, 'block', size)
        code, out, err = command('learn', *write(kind, y=y), '-o', 's.npz')
        assert (code, out, err) == (0, f'{expected.digest()}\n', 'learned 300 of 300 samples\n')
    loaded = Scroll.load('s.npz')
    assert loaded.predictor().digest() == expected.predictor().digest()
    assert loaded.get_params()['buffer_size'] == 0


@settings(quick, max_examples=10)
@given(
    st.permutations(range(60)),
    st.lists(st.sampled_from(['npz', 'parquet']), min_size=3, max_size=3),
    st.integers(1, 61),
)
def test_one_learner_whatever_the_order_of_samples_and_files(tmp_path_factory, order, kinds, size):
    """Also to the buffer, where it keeps the samples of lowest key."""
    folder = tmp_path_factory.mktemp('files')
    words = []
    for number, (kind, at) in enumerate(zip(kinds, np.array_split(np.array(order), 3))):
        path = str(folder / f'{number}.{kind}')
        np.savez(path, X=X[at], y=Y[at]) if kind == 'npz' else table(path, X[at], y=Y[at])
        words += [path]
    expected = Scroll(
        head='lda', shrinkage=0.1, buffer_size=9, strategy='hash', seed=3, keep_keys=True
    ).fit(X[:60], Y[:60])
    flags = '--head lda --shrinkage .1 --buffer_size 9 --strategy hash --seed 3 --keep_keys'
    words += ['-o', str(folder / 's')]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureFile, 'block', size)
        assert main(['learn', *words, *flags.split()]) == 0
    learner = Scroll.load(folder / 's')
    assert learner.get_params() == expected.get_params()
    assert digests(learner) == digests(expected)


@pytest.mark.parametrize('kind', ['npz', 'parquet', 'wide'])
def test_the_rows_of_one_value_are_learned_and_predicted_alone(here, command, monkeypatch, kind):
    """A table may have the embeddings of several networks."""
    monkeypatch.setattr(FeatureFile, 'block', 7)  # some have no such row
    network = np.where(np.arange(300) // 50 % 2, 'vit', 'resnet')
    expected = Scroll(buffer_size=0).fit(X[network == 'vit'], Y[network == 'vit'])
    words = write(kind, network=network)
    columns = 'X=f*' if kind == 'wide' else 'y=y'
    where = [words[0], '--columns', f'{columns},where=network=vit']
    code, out, err = command('learn', *where, '-o', 's.npz')
    assert (code, out, err) == (0, f'{expected.digest()}\n', 'learned 150 of 300 samples\n')
    assert command('predict', 's.npz', *where, '-o', 'p.csv')[0] == 0
    assert [row['label'] for row in rows_of('p.csv')] == [
        str(label) for label in expected.predict(X[network == 'vit'])
    ]


def test_no_pattern_takes_labels_and_names_of_samples_for_features(here, command):
    write('wide', id=list(range(len(Y))), y=np.arange(len(Y)) % 3)
    _, of_features, _ = command('learn', 'x.parquet', '--columns', 'X=f*', '-o', 'some.npz')
    _, of_all, _ = command('learn', 'x.parquet', '--columns', 'X=*', '-o', 'all.npz')
    assert of_all == of_features


def test_what_is_to_test_is_not_learned(here, command):
    words = write('npz', split=SPLIT)
    expected = Scroll(buffer_size=0).fit(X[TRAIN], Y[TRAIN])
    assert command('learn', *words, '-o', 's.npz')[1:] == (
        f'{expected.digest()}\n',
        'learned 200 of 300 samples\n',
    )
    code, out, _ = command('predict', 's.npz', *words, '-o', 'labels.csv')
    right = round(expected.score(X[TEST], Y[TEST]) * 100)
    assert (code, out) == (0, f'accuracy {right / 100:.4f} ({right} of 100 samples)\n')
    assert [int(row['id']) for row in rows_of('labels.csv')] == np.flatnonzero(TEST).tolist()
    assert (
        command('learn', *words, '--split', 'all', '-o', 's.npz')[1]
        == f'{Scroll(buffer_size=0).fit(X, Y).digest()}\n'
    )
    assert (
        command('remove', 's.npz', '--samples', *words, '-o', 's.npz')[1]
        == f'{Scroll().fit(X[TEST], Y[TEST]).digest()}\n'
    )


@pytest.mark.parametrize(
    'x, y', [('a_features', 'a_labels'), ('X', 'y'), ('train_x', 'train_y')], ids=str
)
def test_npy_files_are_read_with_the_labels_beside_them(command, x, y):
    """Options once or with the labels; each pair a file, for all commands."""
    np.save(f'{x}.npy', X)
    np.save(f'{y}.npy', WORDS)
    digest = f'{Scroll(buffer_size=0).fit(X, WORDS).digest()}\n'
    assert command('learn', f'{x}.npy', '-o', 's.npz')[1] == digest
    assert command('learn', f'{y}.npy', f'{x}.npy', '-o', 's.npz')[1] == digest
    assert command('predict', 's.npz', f'{x}.npy', '-o', 'l')[1].endswith('of 300 samples)\n')
    os.remove(f'{y}.npy')
    assert command('predict', 's.npz', f'{x}.npy', '-o', 'l')[:2] == (0, 'predicted 300 samples\n')


@pytest.mark.parametrize(
    'name, said',
    [
        ('X', 'y/labels'),
        ('labels', 'shape (300,)'),
        ('objects_X', 'damaged'),
        ('torn_X', 'damaged'),
    ],
)
def test_npy_files_that_are_no_features_are_one_line(refusal, name, said):
    np.save('X.npy', X)
    np.save('labels.npy', Y)
    np.save('objects_X.npy', np.array([[None]]), allow_pickle=True)
    Path('torn_X.npy').write_bytes(Path('X.npy').read_bytes()[:-9])
    err = refusal('learn', f'{name}.npy', '-o', 'o')
    assert f'{name}.npy' in err
    assert said in err


@pytest.mark.parametrize('kind', ['npz', 'parquet'])
def test_labels_and_scores_are_those_of_the_library(here, command, monkeypatch, kind):
    monkeypatch.setattr(FeatureFile, 'block', 77)
    learner = Scroll(buffer_size=0, head='lda').fit(X[TRAIN], WORDS[TRAIN])
    learner.save('s.npz')
    ids = {} if kind == 'npz' else {'id': np.array([f'image "{i}", é' for i in range(300)])}
    flags = '-o labels.csv --scores'
    words = write(kind, y=WORDS, **ids)
    code, out, _ = command('predict', 's.npz', *words, *flags.split())
    rows = rows_of('labels.csv')
    assert code == 0
    assert [row['label'] for row in rows] == learner.predict(X).tolist()
    assert [row['y'] for row in rows] == WORDS.tolist()
    assert f'({sum(row["label"] == row["y"] for row in rows)} of 300' in out
    scores = [[float(row[f'score {label}']) for label in learner.classes_] for row in rows]
    assert scores == learner.decision_function(X).tolist()
    assert [row['id'] for row in rows] == list(map(str, ids.get('id', range(300))))
    np.savez('alone.npz', X=X)
    assert command('predict', 's.npz', 'alone.npz', '-o', 'labels.csv')[:2] == (
        0,
        'predicted 300 samples\n',
    )
    assert list(rows_of('labels.csv')[0]) == ['id', 'label']


@pytest.mark.parametrize('head, verb', [('qda', 'remove'), ('ridge', 'unlearn')])
def test_whole_classes_are_forgotten_by_their_names(here, command, refusal, head, verb):
    """Remove by a Gram matrix a class, or by a buffer that has kept every sample of it."""
    Scroll(head=head, buffer_size=0 if head == 'qda' else 300).fit(X, WORDS).save('s.npz')
    left = ~np.isin(WORDS, gone := ['neuf é', 'eight'])
    expected = Scroll(head=head).fit(X[left], WORDS[left]).digest()
    assert command(
        verb, 's.npz', '--classes', unicodedata.normalize('NFD', gone[0]), gone[1], '-o', 'rest.npz'
    )[:2] == (0, f'{expected}\n')
    assert f'class {str(gone[0])!r} is not among' in refusal(
        verb, 'rest.npz', '--classes', gone[0], '-o', 'rest.npz'
    )
    assert Scroll.load('rest.npz').digest() == expected
    for name, y in {'a': Y, 'b': WORDS}.items():  # the number 7 is not the text
        np.savez(f'{name}.npz', X=X[Y == 7][name == 'b' :: 2], y=y[Y == 7][name == 'b' :: 2])
    assert 'b.npz: labels are strings here and integers in a.npz' in refusal(
        verb, 's.npz', '--samples', 'a.npz', 'b.npz', '-o', 'rest.npz'
    )


def hugging(path, names: list, x=X, y=Y) -> list:
    """A Parquet file as `datasets` of Hugging Face writes it."""
    about = {
        'info': {
            'features': {'X': [{'dtype': 'float32'}], 'y': {'names': names, '_type': 'ClassLabel'}}
        }
    }
    parquet.write_table(
        pyarrow.table({'X': list(x), 'y': y}).replace_schema_metadata(
            {'huggingface': json.dumps(about)}
        ),
        path,
    )
    return [path]


@pytest.fixture
def named_files(command):
    """Files a and b of names, each in its own order, digits and plain of numbers; learners n, s."""
    names = sorted(set(WORDS))
    for path, order, at in (('a', names, slice(150)), ('b', names[::-1], slice(150, 300))):
        hugging(path, order, X[at], [order.index(word) for word in WORDS[at]])
    hugging('digits', list('0123456789'))  # names that say no more than the numbers
    table('plain', -X, y=Y)
    command('learn', 'digits', '-o', 'n')
    command('learn', 'a', 'b', '-o', 's')


@pytest.mark.parametrize(
    'words', ['learn digits plain', 'learn --from digits plain', 'add n plain']
)
def test_numbers_of_several_files_get_a_hint(named_files, command, words):
    code, out, err = command(*words.split(), '-o', 'out')
    assert (code, out) == (0, f'{Scroll(buffer_size=0).fit(np.r_[X, -X], np.r_[Y, Y]).digest()}\n')
    assert 'labels are integers' in err


@pytest.mark.parametrize('words', ['learn a b', 'learn --from a b'])
def test_names_that_stand_in_a_file_are_the_labels(named_files, command, words):
    """However each file numbers them."""
    code, out, err = command(*words.split(), '-o', 'out')
    assert (code, out) == (0, f'{Scroll(buffer_size=0).fit(X, WORDS).digest()}\n')
    assert 'labels are' not in err


@pytest.mark.parametrize(
    'words',
    [
        'learn a plain',
        'learn plain b',
        'learn --from a plain',
        'add s plain',
        'add n a',
        'merge s n',
    ],
)
def test_names_and_numbers_are_not_mixed(named_files, refusal, words):
    err = refusal(*words.split(), '-o', 'out')
    assert 'labels are' in err
    assert set(words.split()[-2:]) <= set(re.findall(r'\w+', err))


def test_text_of_another_arrow_type_is_text(here, command):
    table('x.parquet', y=pyarrow.array(WORDS.tolist(), pyarrow.string_view()))
    expected = Scroll(buffer_size=0).fit(X, WORDS).digest()
    assert command('learn', 'x.parquet', '-o', 's.npz')[1] == f'{expected}\n'


def test_true_and_false_stay_so_in_files(here, command):
    table('x.parquet', y=Y > 4)
    for words in (['x.parquet'], ['--from', 'x.parquet']):
        assert command('learn', *words, '--head', 'qda', '-o', 's.npz')[0] == 0
        assert command('predict', 's.npz', 'x.parquet', '-o', 'l.csv')[0] == 0
        assert {row['label'] for row in rows_of('l.csv')} == {'True', 'False'}
        assert 'False\n' in command('show', 's.npz')[1]
    assert command('unlearn', 's.npz', '--classes', 'True', '-o', 's.npz')[0] == 0


def changed(name: str, change):
    """Npz files: an array is another one, or not there."""

    def write_it():
        arrays = {'X': X, 'y': Y, 'id': np.arange(300), 'split': SPLIT}
        arrays[name] = change(arrays[name].copy())
        np.savez('x.npz', **{key: value for key, value in arrays.items() if value is not None})
        return ['x.npz']

    return write_it


def of_table(**columns):
    def write_it():
        known = {'X': list(X), 'y': Y} | columns
        parquet.write_table(
            pyarrow.table({name: value for name, value in known.items() if value is not None}),
            'x.parquet',
        )
        return ['x.parquet']

    return write_it


def poked(row, value):
    def change(array):
        array[row] = value
        return array

    return change


def with_other(kind: str, **arrays):
    """Sound files first, then others that do not go with them."""

    def write_it():
        np.savez('z.npz', **arrays)
        return [*write(kind), 'z.npz']

    return write_it


def torn() -> list:
    words = write('parquet')
    content = Path(words[0]).read_bytes()
    Path(words[0]).write_bytes(content[: 6 * len(content) // 10])
    return words


def test_rows_that_where_leaves_out_may_be_anything(here, command):
    network = np.where(np.arange(300) % 2, 'vit', 'resnet')
    vit = network == 'vit'
    rows = [x if taken else x[:9] for x, taken in zip(X, vit)]
    labels = [int(y) if taken else None for y, taken in zip(Y, vit)]
    table('x.parquet', {'X': rows}, y=labels, network=network)
    np.savez('x.npz', X=np.where(vit[:, None], X, np.nan), y=Y, network=network)
    digest = Scroll(buffer_size=0).fit(X[vit], Y[vit]).digest()
    for path in 'x.parquet', 'x.npz':
        words = ['learn', path, '-o', 's.npz', '--columns', 'where=network=vit']
        assert command(*words)[:2] == (0, f'{digest}\n')


WRONG = {
    'a folder': (lambda: ['.'], 'Is a directory'),
    'torn Parquet': (torn, 'damaged'),
    'no X': (
        changed('X', lambda a: None),
        'X/x/features/embeddings/embedding, y/labels/label/targets/target: it has id, split, y',
    ),
    'NaN': (changed('X', poked(7, np.nan)), 'X of sample 7 is not finite'),
    'X is text': (changed('X', lambda a: a.astype(str)), 'dtype <U'),
    'labels with fractions': (changed('y', lambda a: a + 0.5), 'y[0] is 0.5'),
    'another split': (changed('split', poked(5, 'dev')), "sample 5 is 'dev'"),
    'invalid text': (
        changed('y', lambda a: np.full(300, 0x7FFFFFFF, '<u4').view('<U1')),
        'character',
    ),
    'rows of unlike length': (of_table(X=[[1.0, 2.0], [1.0]] * 150), 'lists of 1'),
    'a number is missing': (of_table(X=[[1.0, None]] * 300), 'missing'),
    'a row is missing': (of_table(X=[None, *X[1:]]), 'missing'),
    'named, and not there': (
        lambda: [*write('npz'), '--columns', 'split=part'],
        'label/targets/target, part',
    ),
    'no such rows': (lambda: [*write('npz', a=Y), '--columns', 'where=a=12'], 'no samples'),
    'rows by a column that is not there': (
        lambda: [*write('npz'), '--columns', 'where=a=1'],
        'target, a=1: it has X, y',
    ),
    'another width': (with_other('npz', X=X[:, :9], y=Y), 'z.npz: it has X of 9'),
    'labels of both kinds': (with_other('npz', X=X, y=WORDS), 'z.npz'),
    'lists of lists': (
        of_table(X=[[[1.0], [2.0]]] * 300),
        'X holds list<element: list<element: double>>: expected one list of floats or integers',
    ),
    'a class without a name': (
        lambda: hugging('x.parquet', ['a', 'b']),
        'y is 2, which has no name',
    ),
    'two may be y': (
        lambda: np.savez('x.npz', X=X, label=Y, target=Y) or ['x.npz'],
        'y may be label or target',
    ),
    'a pickle': (
        lambda: Path('x.pkl').write_bytes(pickle.dumps(X)) and ['x.pkl'],
        'expected features in a file of kind',
    ),
    'code of torch': (
        lambda: torch.save(torch.nn.Linear(1, 1), 'x.pt') or ['x.pt'],
        'more is not read',
    ),
    'no split of this name': (changed('split', lambda a: np.full(300, 'test')), 'no samples'),
    'too wide': (changed('X', lambda a: np.zeros((300, 1 << 16), bool)), 'd from 1'),
    'Python objects': (changed('y', lambda a: a.astype(object)), 'damaged'),
}


@pytest.mark.parametrize('wrong', WRONG)
def test_what_cannot_be_learned_from_ends_in_one_line_and_writes_nothing(here, refusal, wrong):
    make, word = WRONG[wrong]
    Scroll().fit(X, Y).save('s.npz')
    words = make()
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    for start in (['learn'], ['add', 's.npz'], ['remove', 's.npz', '--samples']):
        err = refusal(*start, *words, '-o', 'out.npz')
        assert word in err or start[0] == 'remove' or 'keep to one kind' in err, err
        assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(
    'words, word',
    [
        ('', 'required: command; see --help'),
        ('learn x.npz', 'required: -o/--out'),
        ('merge s.npz -o out', 'required: other'),
        ('learn narrow_x.npy -o out', '*_y.npy next to it'),
        ('learn table.csv -o out', 'numpy.savez('),
        ('remove s.npz -o out', 'see --help'),
        ('learn -o out', 'FILE'),
        ('learn x.npz -o out --ridge_lambda 1e-12', '1e-12'),
        ('learn x.npz -o out --split test', 'no split'),
        ('learn x.npz -o out --columns z=X', 'X=<name>'),
        ('learn x.npz -o out --columns X=a,X=b', 'once'),
        ('learn x.npz -o out --columns where=y', 'where=<column>=<value>'),
        ('learn x.npz -o x.npz/out', 'x.npz'),
        ('learn x.npz -o .', 'cannot be written'),
        ('add x.npz x.npz -o out', 'scroll-state'),
        ('predict s.npz narrow.npz -o out', 'narrow.npz'),
        ('predict s.npz text.npz -o out', 'text.npz'),
        ('predict s.npz test.npz -o out --split train', 'no samples'),
        ('predict s.npz own_x.npy -o own_y.npy', 'named twice'),
        ('learn own_x.npy -o own_y.npy', 'named twice'),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_one_line(here, refusal, words, word):
    Scroll().fit(X, Y).save('s.npz')
    write('npz')
    np.savez('narrow.npz', X=X[:, 1:])
    for name, array in ('narrow_x', X), ('own_x', X), ('own_y', Y):
        np.save(f'{name}.npy', array)
    Path('table.csv').write_text('1,2,cat\n')
    np.savez('text.npz', X=X, y=WORDS)
    np.savez('test.npz', X=X, split=np.full(300, 'test'))
    before = sorted(here.iterdir())
    assert word in refusal(*words.split())
    assert sorted(here.iterdir()) == before


def test_without_pyarrow_a_parquet_file_is_one_line(here, refusal, monkeypatch):
    words = write('parquet')
    monkeypatch.setitem(sys.modules, 'pyarrow', None)
    monkeypatch.delitem(sys.modules, 'scroll.files.parquet', raising=False)
    assert 'pip install ".[parquet]"' in refusal('learn', *words, '-o', 's.npz')
