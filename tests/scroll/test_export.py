"""Learners as files for other programs: weights and graphs give the same labels; a certificate of
digests.
"""

import copy
import json
import os
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from scroll import Adaptation, Embedder, Scroll
from scroll.embedding.integer_network import IntegerNetwork, golden_images
from scroll.embedding.quantisation import quantise_network
from scroll.exports.graphs import whole_module
from scroll.exports.tensors import FORMATS, export
from scroll.ground.archive import sha256
from scroll.ground.grid import GRID, quantise
from scroll.ground.settings import HEAD_NAMES
from scroll.heads.predictors import LinearPredictor
from tests.scroll.conftest import PREPROCESSING, WORDS, quick, refused, tiny_net, toy_images

X, Y = load_digits(return_X_y=True)
X = X.astype(np.float32)
TRAIN = slice(0, 900)
TEST = slice(900, None)
U = quantise(X[TEST])


def of_features(**settings) -> Scroll:
    settings = {'buffer_size': 60, 'adaptation': Adaptation(iterations=5)} | settings
    return Scroll(**settings).fit(X[TRAIN], WORDS[Y[TRAIN]])


@pytest.fixture(scope='module')
def exported(tmp_path_factory) -> tuple:
    """(folder, learner of digits with f*)."""
    folder = tmp_path_factory.mktemp('export') / 'digits'
    learner = of_features().adapt()
    export(learner, folder, FORMATS)
    learner.save(folder.parent / 'state.npz')
    return folder, learner


def read(folder, name: str) -> tuple:
    """Facts about a predictor, and its tensors."""
    about = json.loads((folder / f'{name}.json').read_text())
    return about, load_file(folder / f'{name}.safetensors')


def h_of(head: dict, formula: str) -> np.ndarray:
    """Factors of the logits, in units of 2^-18."""
    if 'head.matrix' not in head:
        return U
    products = U @ head['head.matrix'].astype(np.float64)
    if 'max(0' in formula:
        random = np.maximum(0, np.floor(products / 2 ** np.ceil(np.log2(64**0.5) + 1e-9)))
    elif '(u matrix)^2' in formula:
        random = np.minimum(np.floor(products**2 / 2**21), 2**18)
    else:
        turns = products / GRID * head['head.turns'] + head['head.offsets']
        random = head['head.table'][
            ((turns - np.floor(turns)) * len(head['head.table'])).astype(int)
        ]
    return np.concatenate([U, random], axis=1)


@pytest.mark.parametrize(
    'settings',
    [
        {},
        {'head': 'rff', 'lift_dim': 50},
        {'head': 'lda', 'lift': 'square', 'lift_dim': 50},
        {'head': 'qda'},
    ],
    ids=str,
)
def test_weights_and_formula_are_the_predictor(tmp_path, settings):
    learner = of_features(**settings)
    export(learner, tmp_path / 'out')
    about, head = read(tmp_path / 'out', 'f_T')
    h = h_of(head, about['formula'])
    expected = learner.decision_function(X[TEST])
    if 'head.means' in head:
        difference = h[:, None] - head['head.means']
        forms = np.empty((len(head['head.means']), 64, 64))
        rows, columns = np.triu_indices(64)
        forms[:, rows, columns] = forms[:, columns, rows] = head['head.forms']
        assert head['head.forms'].dtype == np.int32
        logits = -np.einsum('nkd,kde,nke->nk', difference, forms, difference)
        logits *= 2.0 ** int(about['formula'].split('2^')[1].split(',')[0])
    else:
        logits = h / GRID @ head['head.weight'].T + head['head.bias']
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert (
        np.array(about['classes'])[logits.argmax(1)].tolist() == learner.predict(X[TEST]).tolist()
    )
    assert about['digest'] == learner.predictor().digest()


def test_f_star_is_there_too(exported):
    folder, learner = exported
    about, head = read(folder, 'f_star')
    in_use = folder.parent / 'in_use.safetensors'
    export(learner, in_use)
    assert in_use.read_bytes() == (folder / 'f_star.safetensors').read_bytes()
    u = U / np.linalg.norm(U, axis=1)[:, None]
    logits = head['head.scale'] * (u @ head['head.weight'].T + head['head.bias'])
    assert np.allclose(logits, learner.decision_function(X[TEST]))
    assert about['digest'] == learner.adapted_.digest()


BITS = np.random.default_rng(0).integers(0, 1 << 32, (300, 64), np.uint32).view(np.float32)
# of length 2^19: 2^18 x / |x| ends in 1/2
TIES = [(445973, 175581, 108617, 31747, 179866), (141445, 327855, 350410, 109363, 112405)]
FLOATS = {
    'digits': X[TEST],
    'one': X[900:901],
    'denormal': X[TEST] * np.float32(2e-40),
    'any_bits': np.where(np.isfinite(BITS), BITS, 0),
    'ties': np.pad(np.array(TIES, np.float32), [(0, 0), (0, 59)]),
}
RUN = {
    'pt2': lambda path, samples: [
        t.detach().numpy() for t in torch.export.load(path).module()(torch.from_numpy(samples))
    ],
    'onnx': lambda path, samples: onnxruntime.InferenceSession(path).run(None, {'X': samples}),
}


@pytest.mark.parametrize('ending', RUN)
def test_graphs_of_f_t_have_its_bits_and_those_of_f_star_its_labels(exported, ending):
    """Any float32, in batches of any size."""
    folder, learner = exported
    online = copy.copy(learner).set_params(adaptation=Adaptation(mode='none')).adapt()
    for name, samples in FLOATS.items():
        logits, label = RUN[ending](folder / f'f_T.{ending}', samples)
        assert np.array_equal(logits, online.decision_function(samples)), name
        assert np.array_equal(learner.classes_[label], online.predict(samples)), name
    logits, label = RUN[ending](folder / f'f_star.{ending}', X[TEST])
    assert np.array_equal(learner.classes_[label], learner.predict(X[TEST]))
    assert np.allclose(logits, learner.decision_function(X[TEST]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    'settings',
    [
        *({'head': head, 'lift_dim': 30} for head in HEAD_NAMES),
        {'head': 'qda', 'lift': 'square', 'lift_dim': 20},
    ],
    ids=str,
)
def test_every_head_has_a_module(settings):
    """f_T to the last bit, f* to its rounding."""
    learner = of_features(**settings)
    logits, label = whole_module(learner.predictor())(torch.from_numpy(X[TEST]))
    assert np.array_equal(logits, learner.decision_function(X[TEST]))
    assert np.array_equal(learner.classes_[label], learner.predict(X[TEST]))
    logits, _ = whole_module(learner.adapt().adapted_)(torch.from_numpy(X[TEST]))
    assert np.allclose(logits.numpy(), learner.decision_function(X[TEST]), rtol=1e-6)


@quick
@given(
    st.integers(1, 600),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.sampled_from([1e-40, 1e-38, 1.0, 1e37]),
)
def test_logits_are_exact_whatever_the_weights(dim, classes, seed, size):
    """Weights that differ in the last bit alone, and features of any length."""
    random = np.random.default_rng(seed)
    units = np.tile(random.integers(-(2**47), 2**47, dim + 1), (classes, 1))
    units[-1, 0] += 1
    predictor = LinearPredictor(np.arange(classes), units, -47)
    features = np.float32(random.normal(size=(5, dim)) * size)
    logits, label = whole_module(predictor)(torch.from_numpy(features))
    assert np.array_equal(logits, predictor.decision_function(quantise(features)))
    assert np.array_equal(label, predictor.predict(quantise(features)))


def test_the_certificate_has_the_digest_of_each_file(exported):
    folder, learner = exported
    facts = json.loads((folder / 'certificate.json').read_text())
    assert facts['files'] == {
        path.name: sha256(path) for path in folder.iterdir() if path.name != 'certificate.json'
    }
    assert facts['anywhere'] == {
        'statistics': learner.digest(),
        'f_T': learner.predictor().digest(),
    }
    assert facts['here']['f*'] == learner.adapted_.digest()
    assert facts['classes'] == learner.classes_.tolist()


def test_the_command_line_exports_what_the_library_does(exported, command):
    folder, _ = exported
    words = ['export', folder.parent / 'state.npz', '-o']
    assert command(*words, 'out', '--formats', 'safetensors', 'torch')[0] == 0
    names = ['certificate.json', 'f_T.json', 'f_T.pt2', 'f_T.safetensors']
    assert sorted(os.listdir('out')) == names
    weights = 'f_T.safetensors'
    assert Path('out', weights).read_bytes() == (folder / weights).read_bytes()
    for ending, run in RUN.items():  # a file where the name says so, and again
        for _ in range(2):
            assert command(*words, f'out.{ending}')[0] == 0
        expected = run(folder / f'f_T.{ending}', X[TEST])
        for one, two in zip(run(f'out.{ending}', X[TEST]), expected):
            np.testing.assert_array_equal(one, two)
    assert sorted(os.listdir()) == ['out', 'out.onnx', 'out.pt2']


@pytest.mark.parametrize(
    'words, said',
    [
        ('{state} -o old', 'is there already'),
        ('none.npz -o x', 'none.npz'),
        ('{state} -o out.onnx --formats torch', 'of the format onnx'),
        ('{state} -o old.onnx', 'Is a directory'),
    ],
)
def test_an_export_that_cannot_be_is_one_line(exported, refusal, words, said):
    for folder in ('old/full', 'old.onnx'):
        os.makedirs(folder)
    state = exported[0].parent / 'state.npz'
    assert said in refusal('export', *(word.format(state=state) for word in words.split()))
    assert sorted(os.listdir()) == ['old', 'old.onnx']


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    for formats in ((), 'torch', ('coreml',)):
        with refused('formats'):
            export(of_features(), tmp_path / 'out', formats)
    for nothing, word in ((Scroll(), 'learned nothing'), (5, 'learner 5')):
        with refused(word):
            export(nothing, tmp_path / 'out')
    for shape in (5, (0, 12), (12, 12, 4)):
        with refused('image_shape'):
            export(of_images('float32', buffer_size=0), tmp_path / 'out', image_shape=shape)

    def full(*_, **__):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('safetensors.numpy.save_file', full)
    with refused('No space left'):
        export(of_features(), tmp_path / 'out')
    assert not list(tmp_path.iterdir())


IMAGES, LABELS = toy_images(12)


def of_images(kind: str, **settings) -> Scroll:
    net = tiny_net(width=8)
    integers = quantise_network(net, PREPROCESSING, golden_images()) if kind == 'integer' else None
    learner = Scroll(
        Embedder(net, PREPROCESSING, kind, chunk=8, integers=integers),
        adaptation=Adaptation(iterations=3, minibatch=10),
        **settings,
    )
    return learner.fit(IMAGES[::2], LABELS[::2])


def test_the_backbone_is_there_too(tmp_path):
    """The network as it was given; of f*, as it was adapted."""
    learner = of_images('float32', buffer_size=12)
    export(learner.adapt(), tmp_path / 'out')
    net = tiny_net(seed=1, width=8)
    tensors = load_file(tmp_path / 'out' / 'f_T.safetensors')
    net.load_state_dict(
        {
            key[9:]: torch.from_numpy(value)
            for key, value in tensors.items()
            if key.startswith('backbone.')
        },
        strict=False,
    )
    again = Scroll(Embedder(net, PREPROCESSING, chunk=8)).fit(IMAGES[::2], LABELS[::2])
    assert again.predictor().digest() == learner.predictor().digest()
    facts = json.loads((tmp_path / 'out' / 'certificate.json').read_text())
    assert facts['anywhere']['backbone'] == learner.embedder.psi_digest
    assert facts['embedder']['digest'] == learner.embedder.digest
    learner = of_images('integer', buffer_size=0)
    export(learner, tmp_path / 'integer')
    assert (
        IntegerNetwork.load(tmp_path / 'integer' / 'backbone.integer.npz')[0].digest()
        == learner.embedder.digest
    )
    assert set(load_file(tmp_path / 'integer' / 'f_T.safetensors')) == {'head.weight', 'head.bias'}
    with refused('give a folder'):
        export(learner, tmp_path / 'integer.safetensors')


@pytest.mark.parametrize(
    'kind, sides',
    [('float32', (24, 12)), pytest.param('integer', (24, 12), marks=pytest.mark.slow)],
)
def test_images_to_labels_in_one_graph(kind, sides, tmp_path):
    """An integer backbone gives the library's bits; a graph of f* has its backbone."""
    learner = of_images(kind, buffer_size=12)
    images = np.repeat(np.repeat(IMAGES, sides[0] // 12, axis=1), sides[1] // 12, axis=2)
    ending = 'onnx' if kind == 'integer' else 'pt2'
    expected = learner.decision_function(images)
    export(
        learner,
        tmp_path / 'out',
        ['onnx'] if kind == 'integer' else ['torch'],
        image_shape=images.shape[1:],
    )
    logits, label = RUN[ending](tmp_path / 'out' / f'f_T.{ending}', images)
    assert np.array_equal(learner.classes_[label], learner.predict(images))
    assert (
        np.array_equal(logits, expected)
        if kind == 'integer'
        else np.allclose(logits, expected, atol=1e-3)
    )
    module = whole_module(learner.adapt().adapted_, learner.adapted_.embedder, images.shape[1:])
    assert np.array_equal(
        learner.classes_[module(torch.from_numpy(images))[1].numpy()], learner.predict(images)
    )


def test_an_exact_f_star_is_exported_in_float32():
    learner = of_images('exact', buffer_size=12)
    learner.set_params(adaptation=Adaptation(iterations=2, exact=True)).adapt()
    module = whole_module(learner.adapted_, learner.adapted_.embedder, IMAGES.shape[1:])
    logits, _ = module(torch.from_numpy(IMAGES))
    assert np.allclose(logits, learner.decision_function(IMAGES), atol=1e-3)


def test_what_no_graph_can_hold_is_one_line(tmp_path, monkeypatch):
    with refused('bfloat16'):
        export(of_images('bfloat16', buffer_size=0), tmp_path / 'out', ('torch',))
    monkeypatch.setattr('torch.export.export', lambda *_, **__: 1 / 0)
    with refused('cannot be exported as a graph'):
        export(of_images('float32', buffer_size=0), tmp_path / 'out', ('torch',))
    assert not list(tmp_path.iterdir())
