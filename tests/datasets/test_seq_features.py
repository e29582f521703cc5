"""Feature vectors from files as a stream: every method, every schedule, SCROLL without a backbone;
what cannot be.
"""

import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from sklearn.datasets import load_digits
from torch.nn.functional import normalize

from bench.cli.parsing import parse_args
from bench.run.building import initialize
from bench.run.training import train
from core.rows import FILE
from datasets import get_dataset
from scroll import Scroll
from scroll.__main__ import main
from scroll.ground.grid import GRID, quantise
from scroll.ground.tables import Columns
from tests.conftest import files_below, words_of
from tests.models.conftest import known_flags
from tests.scroll.conftest import WORDS

X, Y = (array[:400] for array in load_digits(return_X_y=True))
TEST = np.arange(400) % 4 == 3
QUICK = {
    'scroll': '--iterations 3',
    'gdumb': '--fitting_epochs 2',
    'ens': '--n_classifiers 8 --top_k 2',
}
FROZEN = 'scroll', 'ens'
METHODS = *FROZEN, 'er', 'gdumb', 'icarl', 'lwf'


@pytest.fixture(scope='module')
def file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp('features') / 'digits.npz'
    np.savez(path, X=X, y=Y, split=np.where(TEST, 'test', 'train'))
    return str(path)


@pytest.fixture
def arguments(tmp_path):
    def parse(model, *words):
        quiet = '--dataset seq-features --non_verbose 1 --disable_log 1'
        return parse_args(words_of('--model', model, quiet, '--base_path', tmp_path, *words))

    return parse


@pytest.fixture
def run(arguments):
    """run(method, *flags): (row, model)."""

    def go(*words):
        model, dataset, args = initialize(arguments(*words))
        return train(model, dataset, args), model

    return go


@pytest.mark.parametrize(
    'method, backbone',
    [*((method, 'linear' if method in FROZEN else 'mlp') for method in METHODS), ('er', 'linear')],
)
def test_each_kind_of_method_learns_from_features(run, file, method, backbone):
    words = QUICK.get(method, '')
    if '--buffer_size' in known_flags(method):
        words += ' --buffer_size 40'
    if method not in (*FROZEN, 'er'):
        words += ' --n_epochs 1'
    common = '--schedule split:3 --batch_size 20 --permute_classes 1 --backbone'
    row, model = run(method, '--features', file, common, backbone, words.strip())
    assert row['accuracy_matrix'].rpartition('[')[2].count(',') == 2
    assert np.isfinite(row['final_accuracy'])
    if method == 'icarl':  # a vector has no mirror image
        vectors, labels = model.buffer.get_all_data()
        mean = normalize(model.net.eval()(vectors, returnt='features'))[labels == 3].mean(dim=0)
        assert (model.compute_class_means()[3] - mean / mean.norm()).abs().max() < 1e-6


@pytest.mark.parametrize(
    'schedule, labels', [('split:10,order=random', Y), ('gaussian:sigma=1,batch=8', 3 * Y - 3)]
)
def test_scroll_gives_one_digest_the_one_of_the_command_line_and_labels_of_the_file(
    run, schedule, labels, tmp_path, capsys
):
    state = tmp_path / 'run.npz'
    file = str(tmp_path / 'digits.npz')
    np.savez(file, X=X, y=labels, split=np.where(TEST, 'test', 'train'))
    row, model = run(
        'scroll',
        '--buffer_size 30 --buffer_strategy hash --iterations 3',
        '--keep_keys 1 --eval_every 100',
        *('--features', file, '--schedule', schedule, '--save_state', state),
        *('--export', tmp_path / 'out'),
    )
    for name in 'f_T', 'f_star':
        about = json.loads((tmp_path / 'out' / f'{name}.json').read_text())
        assert about['classes'] == np.unique(labels).tolist()
    expected = Scroll(buffer_size=30, strategy='hash').fit(X[~TEST], Y[~TEST])
    assert row['statistics_digest'] == expected.digest()
    assert row['online_digest'] == expected.predictor().digest()
    assert row['buffer_digest'] == expected.buffer_.content().digest()
    assert row['online_accuracy'] == pytest.approx(100 * expected.score(X[TEST], Y[TEST]), abs=1e-3)
    adapted = model.learner.adapted_.decision_function(X[TEST]).argmax(1)
    accuracy = 100 * (adapted == Y[TEST]).mean()
    assert row['adapted_accuracy'] == pytest.approx(accuracy, abs=1e-3)
    capsys.readouterr()
    assert main(['learn', file, '-o', str(tmp_path / 'line.npz')]) == 0
    assert main(['digest', str(state)]) == 0
    assert capsys.readouterr().out.split() == [Scroll().fit(X[~TEST], labels[~TEST]).digest()] * 2
    evaluate = '--adaptation none --inference_only 1 --load_state'
    again, _ = run('scroll', '--features', file, evaluate, state)
    assert again['final_accuracy'] == pytest.approx(row['online_accuracy'])


def read(arguments, *words):
    return get_dataset(arguments('scroll', *words)).images


@pytest.mark.parametrize('named', [False, True])
def test_what_is_to_test_depends_on_the_sample_alone(arguments, tmp_path, named):
    """Neither on order nor on the others; with ids, all samples of an id go together."""
    ids = np.array([f'patient {i // 3}' for i in range(400)])
    order = np.random.default_rng(0).permutation(400)
    for name, at in {'whole': np.arange(400), 'half': order[:200]}.items():
        columns = {'id': ids[at]} if named else {}
        np.savez(tmp_path / f'{name}.npz', X=X[at], y=WORDS[Y[at]], **columns)
    whole, half = (
        read(arguments, '--features', tmp_path / f'{name}.npz', '--test_share .3')
        for name in ('whole', 'half')
    )

    def rows(array):
        return {row.tobytes() for row in array}

    assert rows(half.test) == rows(whole.test) & (rows(half.test) | rows(half.train))
    assert 80 < len(whole.test) < 160
    assert whole.class_names == sorted(WORDS)
    units = (quantise(X) / GRID).astype(np.float32)
    drawn = [
        sum(row.tobytes() in rows(whole.test) for row in units[ids == name])
        for name in np.unique(ids)
    ]
    assert not named or set(drawn[:-1]) == {0, 3}


def test_samples_to_test_from_files_of_their_own(run, tmp_path):
    np.savez(tmp_path / 'train.npz', X=X[~TEST], y=Y[~TEST])
    np.savez(tmp_path / 'test.npz', X=X[TEST], y=Y[TEST], id=np.arange(100))
    files = '--features', tmp_path / 'train.npz', '--test_features', tmp_path / 'test.npz'
    row, model = run('scroll', '--buffer_size 0', *files)
    assert row['statistics_digest'] == Scroll().fit(X[~TEST], Y[~TEST]).digest()
    assert len(model.dataset.images.test) == 100


def test_a_saved_model_goes_on_with_vectors_in_its_buffer(run, file, tmp_path):
    words = '--n_epochs 1 --lr .1 --buffer_size 20 --backbone mlp --n_splits 2 --features'
    run('er', words, file, '--savecheck last --checkpoint_path', tmp_path / 'kept')
    [path] = files_below(tmp_path / 'kept')
    _, model = run('er', words, file, '--loadcheck', path)
    assert model.buffer.examples.shape == (20, 64)


def test_a_parquet_file(arguments, tmp_path):
    parquet.write_table(pyarrow.table({'emb': list(X), 'label': Y}), tmp_path / 'x')
    np.savez(tmp_path / 'x.npz', X=X, y=Y)
    one = read(arguments, '--features', tmp_path / 'x', '--feature_columns X=emb,y=label')
    two = read(arguments, '--features', tmp_path / 'x.npz')
    assert all(map(np.array_equal, one, two))
    assert one.train.dtype == np.float32


@pytest.mark.parametrize(
    'words, word',
    [
        ('', '--features is missing'),
        ('--features nothing.npz', 'nothing.npz'),
        ('--features {file} --feature_columns X', 'X=<name>'),
        ('--features {file} --feature_columns where=y=77', 'where let none through'),
        ('--features {file} --weights compact', '--weights'),
        ('--features {file} --backbone resnet18', 'linear or mlp'),
        ('--features {file} --n_splits 11', '1..10'),
        ('--features {file} --input_size 32', '--input_size'),
        ('--features {file} --test_features {folder}/plain.npz --test_share .1', '--test_share'),
        ('--features {file} --test_features {folder}/narrow.npz', '--test_features'),
        ('--features {folder}/apart.npz', 'class 1'),
        ('--features {folder}/plain.npz --test_share 0', 'no test'),
        ('--features {file} --test_share .1', '--test_share has no effect'),
        (
            '--features {folder}/plain.npz --inference_only 1 --load_state {folder}/state',
            'it has 63 features',
        ),
        (
            (
                '--features {folder}/named --feature_columns X=f* --inference_only 1 '
                '--load_state {folder}/turned'
            ),
            'in another order',
        ),
        ('--features {file} --save_state {file}', 'would be lost'),
        ('--features {file} --test_features {file}', 'named twice'),
        ('--features {file} --schedule=', '--schedule'),
        ('--features {file} --save_state {folder}/s --save_statistics {folder}/s', 'would be lost'),
    ],
)
def test_what_cannot_be_is_one_line(command_line, tmp_path, file, words, word):
    np.savez(tmp_path / 'apart.npz', X=X[:2], y=[0, 1], split=['train', 'test'])
    for name, part in {'narrow': X[:, 1:], 'plain': X}.items():
        np.savez(tmp_path / f'{name}.npz', X=part, y=Y)
    names = tuple(f'f{i}' for i in range(64))
    parquet.write_table(pyarrow.table(dict(zip(names, X.T)) | {'y': Y}), tmp_path / 'named')
    Scroll(buffer_size=0).fit(X[:, 1:], Y).save(tmp_path / 'state')
    Scroll(buffer_size=0).fit(Columns(X, names[::-1]), Y).save(tmp_path / 'turned')
    code, _, err = command_line(
        '--model scroll --dataset seq-features --base_path',
        tmp_path,
        *words.format(file=file, folder=tmp_path).split(),
    )
    assert (code, len(err.splitlines())) == (2, 1)
    assert word in err
    assert not [path for path in files_below(tmp_path) if path.name == FILE]
