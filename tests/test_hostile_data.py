"""Data that cannot be learned from, and the smallest that can: one line and exit code 2, or a run that ends well."""
import numpy as np
import pytest
import safetensors
import safetensors.torch

import models
from core.rows import FILE, read_rows
from datasets.utils import readers, scheduled_dataset
from datasets.utils.readers import Images
from scroll import InputError, Scroll
from tests.conftest import files_below
from tests.models.conftest import small_digits  # noqa: F401
from tests.models.test_contract import QUICK, known_flags

pytestmark = pytest.mark.usefixtures('small_digits')
SMALL = '--dataset', 'seq-digits', '--weights', 'none', '--width', '2', '--batch_size', '16', '--n_splits', '2', '--non_verbose', '1'
METHODS = {'sgd': ['--lr', '0.001', '--n_epochs', '1'], 'scroll': ['--iterations', '1', '--feature_cache', '0', '--buffer_size', '9']}


def labels(change):
    return lambda few: few._replace(train_labels=change(few.train_labels))


def pixels(change):
    return lambda few: few._replace(train=change(few.train), test=change(few.test))


def one(value):
    def change(array):
        array[3] = value
        return array
    return change


def without(few, which, wanted):
    keep = getattr(few, f'{which}_labels') != wanted
    return few._replace(**{which: getattr(few, which)[keep], f'{which}_labels': getattr(few, f'{which}_labels')[keep]})


def first(images, of):
    """One image of each class, and its label."""
    at = np.unique(of, return_index=True)[1]
    return images[at], of[at]


DATA = {
    'a label out of range': (labels(one(99)), '0..9'), 'a negative label': (labels(one(-3)), '0..9'), 'a label of -1': (labels(one(-1)), '0..9'),
    'a test label out of range': (lambda few: few._replace(test_labels=one(77)(few.test_labels)), 'test labels'),
    'labels with fractions': (labels(lambda a: a + 0.5), 'whole numbers'), 'labels of NaN': (labels(lambda a: a * np.nan), 'whole numbers'),
    'labels as text': (labels(lambda a: a.astype(str)), 'whole numbers'), 'labels as objects': (labels(lambda a: a.astype(object)), 'whole numbers'),
    'labels as a list': (labels(list), 'a list'), 'labels in columns': (labels(lambda a: a[:, None]), '(80, 1)'),
    'fewer labels than images': (labels(lambda a: a[:-3]), '(77,)'), 'a class without samples': (lambda few: without(few, 'train', 3), 'class 3'),
    'no training images': (lambda few: few._replace(train=few.train[:0], train_labels=few.train_labels[:0]), 'class 0'),
    'no test images': (lambda few: few._replace(test=few.test[:0], test_labels=few.test_labels[:0]), 'no test images'),
    'no names': (lambda few: few._replace(class_names=[]), '0 classes'), 'fewer names': (lambda few: few._replace(class_names=['a']), '1 classes'),
    'images of real numbers': (pixels(lambda a: a / 255), 'float64'), 'images of NaN': (pixels(lambda a: a * np.float32('nan')), 'float32'),
    'images of whole numbers': (pixels(lambda a: a.astype(np.int64)), 'int64'), 'images as a list': (pixels(list), 'a list'),
    'two channels': (pixels(lambda a: a[..., :2]), '(80, 8, 8, 2)'), 'no pixels': (pixels(lambda a: a[:, :0]), '(80, 0, 8, 3)'),
    'vectors': (pixels(lambda a: a[:, 0, 0]), '(80, 3)'), 'nothing': (lambda few: None, 'read')}


@pytest.mark.parametrize('damage', DATA)
def test_data_that_cannot_be(command_line, tmp_path, monkeypatch, damage):
    change, word = DATA[damage]
    content = change(readers.digits())
    monkeypatch.setattr(readers, 'digits', lambda: content)
    code, _, err = command_line('--model', 'sgd', *METHODS['sgd'], *SMALL, '--base_path', tmp_path)
    assert (code, len(err.splitlines())) == (2, 1) and 'seq-digits' in err and word in err, err
    assert not [path for path in files_below(tmp_path) if path.name == FILE]


SMALLEST = {
    'one pixel': pixels(lambda a: a[:, :1, :1]), 'no colours': pixels(lambda a: a[..., 0]), 'black': pixels(lambda a: a * 0),
    'labels of eight bits': labels(lambda a: a.astype(np.uint8)), 'test images of another size': lambda few: few._replace(test=few.test[:, :4]),
    'one image a class': lambda few: Images(*first(few.train, few.train_labels), *first(few.test, few.test_labels), few.class_names)}


@pytest.mark.parametrize('kind, method', [*((kind, 'scroll') for kind in SMALLEST), *((kind, 'sgd') for kind in SMALLEST if
                                                                                   kind not in ('one pixel', 'black'))])
def test_the_smallest_data_are_learned(command_line, tmp_path, monkeypatch, kind, method):
    content = SMALLEST[kind](readers.digits())
    monkeypatch.setattr(readers, 'digits', lambda: content)
    code, _, err = command_line('--model', method, *METHODS[method], *SMALL, '--base_path', tmp_path)
    assert (code, err) == (0, ''), err


@pytest.mark.parametrize('method, size', [*((method, 13) for method in models.get_model_names()), ('sgd', 1), ('scroll', 1)])
def test_a_batch_of_one_and_one_that_is_left_over_are_learned(command_line, tmp_path, method, size):
    """At 8 pixels the last maps have one pixel, so that one sample has no batch statistics; 40 samples a task, 13 a batch."""
    flags = [*QUICK.get(method, []), '--lr', '0.01', '--input_size', '8', '--batch_size', str(size)]
    flags += ['--buffer_size', '6'] if '--buffer_size' in known_flags(method) else []
    flags += ['--n_epochs', '1'] if not models.get_model_class(method).ONLINE else []
    dropped = {'--lr'} if method in ('scroll', 'gdumb', 'ens') else set()
    flags = [word for name, value in zip(flags[::2], flags[1::2]) if name not in dropped for word in (name, value)]
    small = [word for name, value in zip(SMALL[::2], SMALL[1::2]) if name not in flags for word in (name, value)]
    code, _, err = command_line('--model', method, *flags, *small, '--base_path', tmp_path)
    assert (code, err) == (0, ''), err
    path = next(path for path in files_below(tmp_path) if path.name == FILE)
    assert 0 <= float(read_rows(path)[0]['final_accuracy']) <= 100


@pytest.mark.parametrize('method', METHODS)
def test_a_network_that_gives_nan_is_told(command_line, tmp_path, tiny_weights, method):
    tensors = {name: t * 1e30 for name, t in safetensors.torch.load_file(tiny_weights).items()}
    with safetensors.safe_open(tiny_weights, 'pt') as file:
        safetensors.torch.save_file(tensors, tmp_path / 'w.safetensors', file.metadata())
    flags = '--weights', tmp_path / 'w.safetensors', '--base_path', tmp_path
    code, _, err = command_line('--model', method, *METHODS[method], '--dataset', 'seq-digits', '--non_verbose', '1', *flags)
    assert (code, len(err.splitlines())) == (2, 1) and 'finite' in err


X, Y = np.eye(6)[[0, 1, 2, 3, 4, 5, 0, 1]], np.arange(8) % 4
VECTORS = {
    'NaN': (X * np.nan, Y), 'infinite': (X + np.inf, Y), 'text': (X.astype(str), Y), 'objects': (np.array([object()] * 8), Y), 'none': (X[:0], Y[:0]),
    'no columns': (X[:, :0], Y), 'a vector': (X[0], Y), 'ragged': ([[1], [1, 2]], Y[:2]), 'complex': (X + 0j, Y), 'nothing': (None, None),
    'fewer labels': (X, Y[:3]), 'labels with fractions': (X, Y + 0.5), 'labels of NaN': (X, Y * np.nan), 'labels of lists': (X, [[1]] * 8),
    'ragged labels': (X, [[1], [1, 2]] * 4), 'labels beyond 64 bits': (X, np.full(8, 2 ** 64 - 1, np.uint64)), 'labels as objects': (X, [object()] * 8),
    'labels of another kind': (X, list('abcdabcd')), 'wider': (np.eye(8), Y)}


@pytest.mark.parametrize('kind', VECTORS)
def test_vectors_that_cannot_be_change_nothing(kind):
    learner = Scroll(buffer_size=4).fit(X, Y)
    before, kept = learner.digest(), learner.buffer_.content().digest()
    for act in (learner.partial_fit, learner.fit, learner.remove, learner.refill):
        if kind in ('labels of another kind', 'wider') and act == learner.fit:
            continue                                            # `fit` begins anew
        if kind == 'none' and act in (learner.remove, learner.refill):
            act(*VECTORS[kind])                                 # to take away nothing changes nothing
        else:
            with pytest.raises(InputError) as caught:
                act(*VECTORS[kind])
            assert len(str(caught.value).splitlines()) == 1
        assert (learner.digest(), learner.buffer_.content().digest()) == (before, kept)


def test_the_cache_of_read_data_is_of_these_tests_alone():
    """Damaged data of one test must not be found by the next."""
    assert scheduled_dataset._read_once.cache_info().currsize == 0
