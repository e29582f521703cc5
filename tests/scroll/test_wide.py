"""Wider features: parts of unit length, side by side; exact in integers; adapted, exported and run
like others.
"""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from backbone import weights
from scroll import Adaptation, Scroll
from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork
from scroll.embedding.wide import WideNetwork
from scroll.exports.tensors import export
from scroll.ground.grid import GRID, quantise
from tests.scroll.conftest import refused, tiny_net, toy_images

IMAGES, LABELS = toy_images(12, 24)
PREPROCESSING = Preprocessing(24)


@pytest.fixture(scope='module')
def small():
    return weights.embedder('small', stages=(3, 2, 3), mirror=True)


def test_the_parts_are_those_of_the_network_and_have_unit_length():
    net = tiny_net().eval()
    x = torch.rand(5, 3, 24, 24)
    with torch.no_grad():
        maps = [
            one.mean(dim=(2, 3)) + other.mean(dim=(2, 3))
            for one, other in zip(net.maps(x), net.maps(x.flip(3)))
        ]
        expected = torch.cat([F.normalize(maps[i]) for i in (-1, 1, 3)], dim=1)
        found = WideNetwork(net, (3, 1), True).features(x)
    torch.testing.assert_close(found, expected)
    assert torch.equal(WideNetwork(net).features(x), F.normalize(net.features(x)))
    assert str(WideNetwork(net, [np.int64(3), 1]).stages) == '(1, 3)'


def test_in_integers_they_are_the_same_by_every_kernel_and_batch(small, monkeypatch, rounding):
    u = small(IMAGES)[0]
    assert u.shape == (len(IMAGES), 128 + 32 + 64)
    assert small.valid_on == 'every machine'
    parts = np.split(u.astype(float), [128, 160], axis=1)
    assert all(
        np.allclose((part**2).sum(axis=1) ** 0.5, GRID / 3**0.5, rtol=1e-4) for part in parts
    )
    assert np.array_equal(small(IMAGES[7:10])[0], u[7:10])
    monkeypatch.setenv('SCROLL_EIGHT_BIT', '0')
    rounding(torch.backends.cudnn.conv, 'ieee')  # after which torch's own cudnn.flags fails
    again = weights.embedder('small', stages=(2, 3), mirror=True)
    assert again.digest == small.digest
    assert np.array_equal(again(IMAGES)[0], u)
    floats = Embedder(*weights.network('small'), stages=(2, 3), mirror=True)(IMAGES)[0]
    assert (u.astype(float) * floats).sum(axis=1).min() / GRID**2 > 0.99
    plain = weights.embedder('small')
    assert plain.psi_digest == small.psi_digest
    assert plain.digest != small.digest


def test_own_features_alone_are_those_without(small):
    """Integers: the image's and its mirror image's sums, added before they are rounded."""
    net = weights.embedder('small').net
    x = torch.from_numpy(IMAGES)
    sums = net.features(net.prepare(x)).double() + net.features(net.prepare(x).flip(3)).double()
    assert np.array_equal(
        weights.embedder('small', mirror=True)(IMAGES)[0], quantise(quantise(sums.numpy()))
    )


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_they_are_adapted(mode):
    embedder = Embedder(tiny_net(), PREPROCESSING, stages=(2,), mirror=True)
    how = Adaptation(mode=mode, iterations=3)
    learner = Scroll(embedder, buffer_size=12, adaptation=how).fit(IMAGES, LABELS).adapt()
    assert len(learner.adapted_.losses) == 3
    assert learner.adapted_.decision_function(IMAGES).shape == (len(IMAGES), len(np.unique(LABELS)))


def test_exported_they_predict_the_same(small, tmp_path):
    learner = Scroll(small, buffer_size=0).fit(IMAGES, LABELS)
    export(learner, tmp_path / 'out', ('torch',), IMAGES.shape[1:])
    logits, label = torch.export.load(tmp_path / 'out/f_T.pt2').module()(torch.from_numpy(IMAGES))
    assert np.array_equal(learner.classes_[label], learner.predict(IMAGES))
    assert np.array_equal(logits, learner.decision_function(IMAGES))
    export(learner, tmp_path / 'tensors')
    about = json.loads((tmp_path / 'tensors' / 'certificate.json').read_text())['embedder']
    assert (about['stages'], about['mirror']) == ([2, 3], True)


def test_files_of_integer_networks_say_that_there_is_a_mirror(tmp_path):
    net = weights.embedder('small', stages=(2,), mirror=True).net
    net.save(tmp_path / 'net.npz', {})
    assert IntegerNetwork.load(tmp_path / 'net.npz')[0].digest() == net.digest()


@pytest.mark.parametrize(
    'stages, mirror, says',
    [
        ((5,), False, 'stages 1 to 4'),
        ((0,), False, 'stages'),
        (3, False, 'stages'),
        (None, False, 'stages'),
        ((), 0, 'mirror'),
        ((1.5,), True, 'stages'),
        ((), 'no', 'mirror'),
    ],
)
def test_what_is_no_stage_is_refused(stages, mirror, says):
    with refused(says):
        Embedder(tiny_net(), PREPROCESSING, stages=stages, mirror=mirror)
