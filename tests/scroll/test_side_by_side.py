"""Embedders side by side: their features are those of each, and so are the rules."""

import numpy as np
import pytest
import torch

from backbone import weights
from scroll import Embedder, Preprocessing, Scroll
from scroll.embedding.named import embedder_of
from scroll.embedding.side_by_side import SideBySide
from scroll.exports.tensors import export
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
LABELS = np.arange(6) % 2


class Network(torch.nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.matrix = torch.nn.Parameter(torch.randn(8 * 8 * 3, 3 + seed, generator=generator))

    def features(self, x):
        return x.flatten(1) @ self.matrix


def embedder(seed: int, cache=None) -> Embedder:
    return Embedder(Network(seed), Preprocessing(8), chunk=2, cache=cache)


@pytest.fixture(scope='module')
def both() -> SideBySide:
    return SideBySide(embedder(1), embedder(2))


def test_features_are_those_of_each_over_the_root_of_their_number(both):
    features, keys = both(IMAGES)
    assert both.dim == 4 + 5 == features.shape[1]
    first, its_keys = embedder(1)(IMAGES)
    second = embedder(2)(IMAGES)[0]
    np.testing.assert_array_equal(keys, its_keys)
    np.testing.assert_allclose(features, np.hstack([first, second]) / np.sqrt(2), atol=1)
    np.testing.assert_allclose(np.linalg.norm(features / GRID, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(both(IMAGES[4:])[0], features[4:])


def test_raw_features_have_parts_of_unit_length(both):
    features = both.features(IMAGES) / GRID
    np.testing.assert_allclose(np.linalg.norm(features[:, :4], axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(features[:, 4:], axis=1), 1, atol=1e-5)


def test_the_digest_is_of_all_in_their_order(both):
    assert both.digest == SideBySide(embedder(1), embedder(2)).digest
    assert both.digest != SideBySide(embedder(2), embedder(1)).digest
    assert both.digest != SideBySide(embedder(1), embedder(1)).digest
    assert both.valid_on == embedder(1).valid_on


def test_integer_networks_side_by_side_are_the_same_on_every_machine():
    one = weights.embedder('compact')
    assert SideBySide(one, one).valid_on == 'every machine'
    mixed = SideBySide(one, embedder(1))
    assert mixed.valid_on == embedder(1).valid_on
    assert (SideBySide(one, one).dtype, mixed.dtype) == ('exact', 'float32')


def test_a_learner_on_both_learns_saves_and_merges_but_has_no_f_star(both, tmp_path):
    learner = Scroll(both, buffer_size=4).partial_fit(IMAGES, LABELS)
    first = Scroll(both, buffer_size=4).partial_fit(IMAGES[:2], LABELS[:2])
    rest = Scroll(both, buffer_size=4).partial_fit(IMAGES[2:], LABELS[2:])
    assert first.merge(rest).digest() == learner.digest()
    learner.save(tmp_path / 'state.npz')
    assert Scroll.load(tmp_path / 'state.npz', both).predict(IMAGES).tolist() == LABELS.tolist()
    with pytest.raises(InputError, match='backbone'):
        Scroll.load(tmp_path / 'state.npz', embedder(1))
    with pytest.raises(InputError, match='adaptation needs one network: 2 are side by side'):
        learner.adapt()
    with pytest.raises(InputError, match='an export needs one network'):
        export(learner, tmp_path / 'out')


def test_each_keeps_and_forgets_features_on_disk(tmp_path):
    caches = [tmp_path / name for name in 'ab']
    both = SideBySide(*(embedder(seed, cache) for seed, cache in enumerate(caches, 1)))
    features = both(IMAGES)[0]
    both.flush()
    assert all(any(path.is_file() for path in cache.rglob('*')) for cache in caches)
    both.forget(IMAGES[:2])
    np.testing.assert_array_equal(both(IMAGES)[0], features)


def test_it_tells_how_far_it_is(both):
    done = []
    both(IMAGES, done.append)
    assert sum(done) == len(IMAGES)


def test_two_are_needed():
    with pytest.raises(InputError, match='1 embedders'):
        SideBySide(embedder(1))


def test_a_text_names_both():
    name = 'tests.scroll.test_side_by_side:embedder,seed='
    assert embedder_of(f'{name}1+{name}2').digest == SideBySide(embedder(1), embedder(2)).digest
