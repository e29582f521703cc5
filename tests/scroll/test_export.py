"""Learners as files for other programs: the same labels on a whole test set, a certificate of digests."""
import copy
import importlib.util
import json
import warnings
from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from scroll import Adaptation, Embedder, Scroll
from scroll.__main__ import main
from scroll.archive import sha256
from scroll.embedding.integer_network import IntegerNetwork, golden_images
from scroll.embedding.quantisation import quantise_network
from scroll.export import export
from scroll.export.modules import OnGrid, torch_module, whole_module
from scroll.grid import GRID, quantise
from scroll.heads.predictors import LinearPredictor
from scroll.statistics import Statistics
from tests.scroll.conftest import PREPROCESSING, quick, refused, tiny_net, toy_images

X, Y = load_digits(return_X_y=True)
WORDS = np.array(['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine'])
TRAIN, TEST = slice(0, 900), slice(900, None)
EVERY = ('safetensors', 'torch', 'onnx')


def of_features(**settings) -> Scroll:
    settings = dict(buffer_size=60, adaptation=Adaptation(select='none', iterations=20)) | settings
    return Scroll(**settings).fit(X[TRAIN], WORDS[Y[TRAIN]])


@pytest.fixture(scope='module')
def exported(tmp_path_factory) -> tuple:
    """(folder, learner of digits with f*): all formats."""
    folder = tmp_path_factory.mktemp('export') / 'digits'
    learner = of_features().adapt()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')                         # of torch and onnxscript, about themselves
        export(learner, folder, EVERY)
    learner.save(folder.parent / 'state.npz')
    return folder, learner


def run_torch(path, samples) -> list:
    with torch.inference_mode():
        return [t.numpy() for t in torch.export.load(path).module()(torch.from_numpy(samples))]


def run_onnx(path, samples) -> list:
    return onnxruntime.InferenceSession(path).run(None, dict(X=samples))


@pytest.mark.parametrize('run, ending', [(run_torch, 'pt2'), (run_onnx, 'onnx')])
def test_f_t_is_the_same_to_the_last_bit_and_f_star_gives_the_same_labels(exported, run, ending):
    """On the whole test set, in batches of any size."""
    folder, learner = exported
    online = copy.copy(learner)
    online.use_adapted(None)
    for at in (TEST, slice(900, 901), slice(900, 907)):
        logits, label = run(folder / f'f_T.{ending}', X[at])
        assert np.array_equal(logits, online.decision_function(X[at]))
        assert np.array_equal(learner.classes_[label], online.predict(X[at]))
    logits, label = run(folder / f'f_star.{ending}', X[TEST])
    assert np.array_equal(learner.classes_[label], learner.predict(X[TEST]))
    assert np.allclose(logits, learner.decision_function(X[TEST]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('head', ['ncc', 'rff', 'auto'])
def test_every_kind_of_head_has_a_module(head):
    learner = of_features(head=head)
    logits, label = whole_module(learner.predictor())(torch.from_numpy(X[TEST]))
    assert np.array_equal(logits.numpy(), learner.decision_function(X[TEST]))
    assert np.array_equal(learner.classes_[label.numpy()], learner.predict(X[TEST]))


@quick
@given(st.integers(1, 1200), st.integers(1, 4), st.integers(0, 2 ** 32), st.integers(-80, 20), st.booleans())
def test_logits_are_exact_whatever_the_weights(dim, classes, seed, exponent, tie):
    """Also of largest weights, and of weights that differ in the last bit alone."""
    random = np.random.default_rng(seed)
    units = random.integers(-2 ** 47, 2 ** 47, (classes, dim + 1), endpoint=True)
    if tie:
        units[:] = units[0]
        units[-1, 0] += 1 if units[-1, 0] < 2 ** 47 else -1
    predictor = LinearPredictor(np.arange(classes), units, exponent)
    features = quantise(random.normal(size=(9, dim)))
    logits, label = torch_module(predictor)(torch.from_numpy(features).double())
    assert np.array_equal(logits.numpy(), predictor.decision_function(features))
    assert np.array_equal(label.numpy(), predictor.predict(features))


@quick
@given(st.integers(1, 600), st.integers(0, 2 ** 32), st.sampled_from([1e-300, 1e-3, 1.0, 1e300]), st.sampled_from([np.float32, np.float64]))
def test_features_come_to_the_same_place_on_the_grid(dim, seed, size, kind):
    with np.errstate(over='ignore', under='ignore'):
        features = np.nan_to_num(np.random.default_rng(seed).normal(size=(8, dim)) * size).astype(kind)
    features[3] = 0
    features = np.nan_to_num(features, posinf=1, neginf=-1)
    assert np.array_equal(OnGrid()(torch.from_numpy(features)).numpy(), quantise(features))


def test_tensors_are_the_weights_and_say_what_they_are_for(exported):
    """f_T and f* with numpy alone."""
    folder, learner = exported
    about, tensors = json.loads((folder / 'f_T.json').read_text()), load_file(folder / 'f_T.safetensors')
    units = quantise(X[TEST]) / GRID
    labels = np.array(about['classes'])[(units @ tensors['head.weight'].T + tensors['head.bias']).argmax(1)]
    assert np.array_equal(tensors['head.weight'], learner.predictor().weight)
    assert np.array_equal(labels, learner.predictor().predict(quantise(X[TEST]))) and about['digest'] == learner.predictor().digest()
    about, tensors = json.loads((folder / 'f_star.json').read_text()), load_file(folder / 'f_star.safetensors')
    logits = tensors['head.scale'] * (units / np.linalg.norm(units, axis=1)[:, None] @ tensors['head.weight'].T + tensors['head.bias'])
    assert np.allclose(logits, learner.decision_function(X[TEST])) and about['digest'] == learner.adapted_.digest()
    assert 'weight' in about['formula'] and about['input'] == dict(name='X', dtype='float64', shape=['samples', 64])


def test_the_certificate_has_the_digest_of_each_file(exported):
    folder, learner = exported
    facts = json.loads((folder / 'certificate.json').read_text())
    assert facts['files'] == {path.name: sha256(path) for path in folder.iterdir() if path.name != 'certificate.json'}
    assert facts['anywhere'] == dict(statistics=learner.digest(), f_T=learner.predictor().digest())
    assert facts['here']['f*'] == learner.adapted_.digest() and facts['classes'] == learner.classes_.tolist()


def test_the_command_line_exports_what_the_library_does(exported, tmp_path, capsys):
    folder, learner = exported
    state, out = str(folder.parent / 'state.npz'), tmp_path / 'out'
    assert main(['export', state, '-o', str(out), '--formats', 'safetensors']) == 0
    assert sorted(path.name for path in out.iterdir()) == ['certificate.json', 'f_T.json', 'f_T.safetensors']
    assert (out / 'f_T.safetensors').read_bytes() == (folder / 'f_T.safetensors').read_bytes()
    for words, word in (([state, '-o', str(out)], 'is there already'), ([state, '-o', str(tmp_path / 'x'), '--formats', 'coreml'], 'coreml'),
                        ([str(tmp_path / 'none.npz'), '-o', str(tmp_path / 'x')], 'none.npz')):
        assert main(['export', *words]) == 2
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1 and word in err and not (tmp_path / 'x').exists()


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    learner, folder = of_features(), tmp_path / 'out'
    for formats, word in (((), 'formats'), ('torch', 'formats'), (('coreml',), 'coreml')):
        with refused(word):
            export(learner, folder, formats)
    with refused('qda'):
        export(of_features(head='qda'), folder)
    with refused('learned nothing'):
        export(Scroll(), folder)
    for package, formats in (('torch', ('torch',)), ('safetensors', ('safetensors',)), ('onnxscript', ('onnx',))):
        with monkeypatch.context() as patch:
            find = importlib.util.find_spec
            patch.setattr(importlib.util, 'find_spec', lambda name, gone=package, find=find: None if name == gone else find(name))
            with refused(f'needs {package}'):
                export(learner, folder, formats)

    def full(*_):
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(torch.export, 'save', full)
    with refused('No space left'):
        export(learner, folder)
    assert not list(tmp_path.iterdir())


IMAGES, LABELS = toy_images(12)


@cache
def integers() -> IntegerNetwork:
    return quantise_network(tiny_net(width=8), PREPROCESSING, golden_images())


def of_images(kind: str, shape=(12, 12, 3), **settings) -> tuple:
    """(learner of images of this shape, images to test)."""
    images = IMAGES if len(shape) == 3 else IMAGES.mean(axis=3).astype(np.uint8)
    images = np.repeat(np.repeat(images, shape[0] // 12, axis=1), shape[1] // 12, axis=2)
    embedder = Embedder(tiny_net(width=8), PREPROCESSING, kind, chunk=8, integers=integers() if kind == 'integer' else None)
    learner = Scroll(embedder, adaptation=Adaptation(select='none', iterations=3, minibatch=10), **settings)
    return learner.fit(images[::2], LABELS[::2]), images


@pytest.mark.parametrize('kind, shape', [('float32', (24, 12)), ('integer', (12, 12, 3))])
def test_images_to_labels_in_one_graph(kind, shape, tmp_path):
    """Of any size, grey or not; an integer backbone gives the same bits in every batch."""
    learner, images = of_images(kind, shape, buffer_size=12)
    export(learner, tmp_path / 'out')
    logits, label = run_torch(tmp_path / 'out' / 'f_T.pt2', images)
    assert np.array_equal(learner.classes_[label], learner.predict(images))
    expected = learner.decision_function(images)
    assert np.array_equal(logits, expected) if kind == 'integer' else np.allclose(logits, expected, atol=1e-3)
    facts = json.loads((tmp_path / 'out' / 'certificate.json').read_text())
    assert facts['anywhere']['backbone'] == learner.embedder.psi_digest and facts['embedder']['digest'] == learner.embedder.digest
    assert facts['input']['shape'] == ['samples', *images.shape[1:]]


def test_the_backbone_is_there_too(tmp_path):
    """As it was given; of f*, as it was adapted."""
    learner, images = of_images('float32', buffer_size=12)
    export(learner.adapt(), tmp_path / 'out')
    net, tensors = tiny_net(seed=1, width=8), load_file(tmp_path / 'out' / 'f_T.safetensors')
    net.load_state_dict({key[9:]: torch.from_numpy(value) for key, value in tensors.items() if key.startswith('backbone.')}, strict=False)
    again = Scroll(Embedder(net, PREPROCESSING, chunk=8)).fit(images[::2], LABELS[::2])
    assert again.predictor().digest() == learner.predictor().digest()
    _, label = run_torch(tmp_path / 'out' / 'f_star.pt2', images)
    assert np.array_equal(learner.classes_[label], learner.predict(images))
    learner, _ = of_images('integer', buffer_size=0)
    export(learner, tmp_path / 'integer', ('safetensors',))
    assert IntegerNetwork.load(tmp_path / 'integer' / 'backbone.integer.npz')[0].digest() == learner.embedder.digest
    assert set(load_file(tmp_path / 'integer' / 'f_T.safetensors')) == {'head.weight', 'head.bias'}


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['float32', 'integer'])
def test_images_to_labels_in_onnx(kind, tmp_path):
    """An integer backbone gives the library's bits also there, with all its optimisations."""
    learner, images = of_images(kind, buffer_size=12)
    online = copy.copy(learner)
    export(learner.adapt(), tmp_path / 'out', ('onnx',))
    logits, label = run_onnx(tmp_path / 'out' / 'f_T.onnx', images)
    assert np.array_equal(learner.classes_[label], online.predict(images))
    expected = online.decision_function(images)
    assert np.array_equal(logits, expected) if kind == 'integer' else np.allclose(logits, expected, atol=1e-3)
    assert np.array_equal(learner.classes_[run_onnx(tmp_path / 'out' / 'f_star.onnx', images)[1]], learner.predict(images))


class Branching(torch.nn.Module):
    def features(self, x):
        return x.mean(dim=(2, 3)) if x.sum() > 0 else x.amax(dim=(2, 3))


def test_a_backbone_that_no_graph_can_hold_is_one_line(tmp_path):
    learner = Scroll(Embedder(Branching(), PREPROCESSING, chunk=8), buffer_size=0, seed=np.int64(3)).fit(IMAGES, LABELS)
    with refused('bfloat16'):
        export(of_images('bfloat16', buffer_size=0)[0], tmp_path / 'out')
    with refused('cannot be exported as a graph'):
        export(learner, tmp_path / 'out')
    assert not list(tmp_path.iterdir())
    export(learner, tmp_path / 'out', ('safetensors',))
    assert json.loads((tmp_path / 'out' / 'certificate.json').read_text())['settings']['seed'] == 3


def test_what_is_exported_is_of_statistics_alone(tmp_path):
    """Whatever the schedule: the same bytes of weights."""
    learners = [Scroll(buffer_size=0).fit(X[TRAIN], Y[TRAIN]), Scroll(buffer_size=0)]
    for at in np.array_split(np.random.default_rng(0).permutation(900), 7):
        learners[1].partial_fit(X[at], Y[at])
    for name, learner in zip('ab', learners):
        export(learner, tmp_path / name, ('safetensors',))
    one, two = ((tmp_path / name / 'f_T.safetensors').read_bytes() for name in 'ab')
    assert one == two and isinstance(learners[0].statistics_, Statistics)
