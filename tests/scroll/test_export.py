"""Learners as files for other programs: numpy alone gives the same labels from the weights; a certificate of digests."""
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

from scroll import Adaptation, Embedder, Scroll
from scroll.__main__ import main
from scroll.archive import sha256
from scroll.embedding.integer_network import IntegerNetwork, golden_images
from scroll.embedding.quantisation import quantise_network
from scroll.export import export
from scroll.grid import GRID, quantise
from tests.scroll.conftest import PREPROCESSING, refused, tiny_net, toy_images

X, Y = load_digits(return_X_y=True)
WORDS = np.array(['zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine'])
TRAIN, TEST = slice(0, 900), slice(900, None)
U = quantise(X[TEST])


def of_features(**settings) -> Scroll:
    settings = dict(buffer_size=60, adaptation=Adaptation(select='none', iterations=5)) | settings
    return Scroll(**settings).fit(X[TRAIN], WORDS[Y[TRAIN]])


@pytest.fixture(scope='module')
def exported(tmp_path_factory) -> tuple:
    """(folder, learner of digits with f*)."""
    folder = tmp_path_factory.mktemp('export') / 'digits'
    learner = of_features().adapt()
    export(learner, folder)
    learner.save(folder.parent / 'state.npz')
    return folder, learner


def h_of(head: dict, formula: str) -> np.ndarray:
    """What the logits are made of, in units of 2^-18."""
    if 'head.matrix' not in head:
        return U
    products = U @ head['head.matrix'].astype(np.float64)
    if 'max(0' in formula:
        random = np.maximum(0, np.floor(products / 2 ** np.ceil(np.log2(64 ** .5) + 1e-9)))
    elif '(u matrix)^2' in formula:
        random = np.minimum(np.floor(products ** 2 / 2 ** 21), 2 ** 18)
    else:
        turns = products / GRID * head['head.turns'] + head['head.offsets']
        random = head['head.table'][((turns - np.floor(turns)) * len(head['head.table'])).astype(int)]
    return np.concatenate([U, random], axis=1)


@pytest.mark.parametrize('settings', [dict(), dict(head='rff', lift_dim=50), dict(head='lda', lift='square', lift_dim=50), dict(head='qda')], ids=str)
def test_weights_and_formula_are_the_predictor(tmp_path, settings):
    learner = of_features(**settings)
    export(learner, tmp_path / 'out')
    about, head = json.loads((tmp_path / 'out/f_T.json').read_text()), load_file(tmp_path / 'out/f_T.safetensors')
    h, expected = h_of(head, about['formula']), learner.decision_function(X[TEST])
    if 'head.means' in head:
        difference = h[:, None] - head['head.means']
        logits = -np.einsum('nkd,kde,nke->nk', difference, head['head.forms'].astype(float), difference) * 2. ** int(about['formula'].split('2^')[1].split(',')[0])
    else:
        logits = h / GRID @ head['head.weight'].T + head['head.bias']
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert np.array(about['classes'])[logits.argmax(1)].tolist() == learner.predict(X[TEST]).tolist() and about['digest'] == learner.predictor().digest()


def test_f_star_is_there_too(exported):
    folder, learner = exported
    about, head = json.loads((folder / 'f_star.json').read_text()), load_file(folder / 'f_star.safetensors')
    u = U / np.linalg.norm(U, axis=1)[:, None]
    logits = head['head.scale'] * (u @ head['head.weight'].T + head['head.bias'])
    assert np.allclose(logits, learner.decision_function(X[TEST])) and about['digest'] == learner.adapted_.digest()


def test_the_certificate_has_the_digest_of_each_file(exported):
    folder, learner = exported
    facts = json.loads((folder / 'certificate.json').read_text())
    assert facts['files'] == {path.name: sha256(path) for path in folder.iterdir() if path.name != 'certificate.json'}
    assert facts['anywhere'] == dict(statistics=learner.digest(), f_T=learner.predictor().digest())
    assert facts['here']['f*'] == learner.adapted_.digest() and facts['classes'] == learner.classes_.tolist()


def test_the_command_line_exports_what_the_library_does(exported, tmp_path, capsys):
    folder, _ = exported
    state, out = str(folder.parent / 'state.npz'), tmp_path / 'out'
    assert main(['export', state, '-o', str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ['certificate.json', 'f_T.json', 'f_T.safetensors']
    assert (out / 'f_T.safetensors').read_bytes() == (folder / 'f_T.safetensors').read_bytes()
    for words, word in (([state, '-o', str(out)], 'is there already'), ([str(tmp_path / 'none.npz'), '-o', str(tmp_path / 'x')], 'none.npz')):
        assert main(['export', *words]) == 2
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1 and word in err and not (tmp_path / 'x').exists()


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    with refused('learned nothing'):
        export(Scroll(), tmp_path / 'out')

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
    learner = Scroll(Embedder(net, PREPROCESSING, kind, chunk=8, integers=integers), adaptation=Adaptation(select='none', iterations=3, minibatch=10), **settings)
    return learner.fit(IMAGES[::2], LABELS[::2])


def test_the_backbone_is_there_too(tmp_path):
    """As it was given; of f*, as it was adapted."""
    learner = of_images('float32', buffer_size=12)
    export(learner.adapt(), tmp_path / 'out')
    net, tensors = tiny_net(seed=1, width=8), load_file(tmp_path / 'out' / 'f_T.safetensors')
    net.load_state_dict({key[9:]: torch.from_numpy(value) for key, value in tensors.items() if key.startswith('backbone.')}, strict=False)
    again = Scroll(Embedder(net, PREPROCESSING, chunk=8)).fit(IMAGES[::2], LABELS[::2])
    assert again.predictor().digest() == learner.predictor().digest()
    facts = json.loads((tmp_path / 'out' / 'certificate.json').read_text())
    assert facts['anywhere']['backbone'] == learner.embedder.psi_digest and facts['embedder']['digest'] == learner.embedder.digest
    learner = of_images('integer', buffer_size=0)
    export(learner, tmp_path / 'integer')
    assert IntegerNetwork.load(tmp_path / 'integer' / 'backbone.integer.npz')[0].digest() == learner.embedder.digest
    assert set(load_file(tmp_path / 'integer' / 'f_T.safetensors')) == {'head.weight', 'head.bias'}


def test_what_is_exported_is_of_statistics_alone(tmp_path):
    """Whatever the schedule: the same bytes of weights."""
    learners = [Scroll(buffer_size=0).fit(X[TRAIN], Y[TRAIN]), Scroll(buffer_size=0)]
    for at in np.array_split(np.random.default_rng(0).permutation(900), 7):
        learners[1].partial_fit(X[at], Y[at])
    for name, learner in zip('ab', learners):
        export(learner, tmp_path / name)
    one, two = ((tmp_path / name / 'f_T.safetensors').read_bytes() for name in 'ab')
    assert one == two
