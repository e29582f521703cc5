"""A learner on disk: settings, backbone, f*; it forgets from the command line."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from scroll import Adaptation, Embedder, Scroll
from scroll.embedding.images import Augmentation
from scroll.ground.grid import quantise
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import PREPROCESSING, Stream, digests, make_stream, of, refused, tiny_net

RAW = make_stream(np.arange(80) % 4, seed=5)
STREAM = Stream(quantise(RAW.features), RAW.labels, RAW.keys)  # what a learner of RAW counts


def fit(at=slice(None), **params) -> Scroll:
    return Scroll(**params).fit(RAW.features[at], RAW.labels[at])


def test_settings_are_kept_and_f_star_is_made_again(embedder, toy, tmp_path):
    adaptation = Adaptation(
        iterations=2, minibatch=4, calibrate=False, augmentation=Augmentation(0.2, False, 0.1)
    )
    learner = (
        Scroll(embedder, 'ncc', 0.7, 'onehot', 'paper', 10, 'hash', adaptation, 4).fit(*toy).adapt()
    )
    learner.save(tmp_path / 'x')
    loaded = Scroll.load(tmp_path / 'x', embedder)
    assert loaded.get_params() == learner.get_params()
    assert loaded.adapted_ is None
    assert loaded.predictor().digest() == learner.predictor().digest()
    assert loaded.adapt().adapted_.digest() == learner.adapted_.digest()
    assert [p.name for p in tmp_path.iterdir()] == ['x']


def test_another_psi_is_refused(embedder, toy, tmp_path):
    Scroll(embedder).fit(*toy).save(tmp_path / 'x')
    for other in (Embedder(tiny_net(1, 8), PREPROCESSING, chunk=8), None):
        with refused('backbone or grid mismatch'):
            Scroll.load(tmp_path / 'x', other)
    equal = Embedder(tiny_net(width=8), PREPROCESSING, chunk=8)
    assert Scroll.load(tmp_path / 'x', equal).statistics_.total == 24
    fit().save(tmp_path / 'y')
    with refused('backbone or grid mismatch'):
        Scroll.load(tmp_path / 'y', embedder)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """state(**params): a file s.npz in the working folder, of a learner of STREAM."""
    monkeypatch.chdir(tmp_path)

    def save(**params):
        fit(buffer_size=9, **params).save('s.npz')
        return Path('s.npz')

    return save


@pytest.mark.parametrize(
    'settings',
    [
        {'ridge_lambda': Fraction(1, 4)},
        {'keep_keys': np.bool_(True)},
        {'head': 'rp', 'lift_dim': np.int32(9), 'lift_seed': np.uint8(2)},
        {'head': 'rff', 'lift_dim': 9, 'lift_bandwidth': np.float16(0.3)},
        {'head': 'rff', 'lift_dim': 9, 'lift_bandwidth': Fraction(3, 10)},
    ],
    ids=str,
)
def test_settings_are_numbers_of_any_kind(state, settings):
    loaded = Scroll.load(state(**settings))
    expected = fit(**loaded.get_params())  # as a file has them
    assert loaded.digest() == expected.digest()
    assert loaded.predictor().digest() == expected.predictor().digest()


@pytest.mark.parametrize('keep_keys', [False, True])
def test_classes_are_forgotten_by_their_statistics(state, command, refusal, keep_keys):
    path = state(keep_keys=keep_keys).absolute()
    left = STREAM.labels % 2 == 1
    for label in (0, 2):
        of(STREAM, np.flatnonzero(STREAM.labels == label)).save(f'class-{label}.npz')
    of(STREAM, np.arange(10)).save('some.npz')
    code, out, _ = command('unlearn', path, '--minus', 'class-0.npz', 'class-2.npz', '-o', 'new')
    assert (code, out) == (0, f'{of(STREAM, np.flatnonzero(left)).digest()}\n')
    new = Scroll.load('new')
    expected = fit(left, keep_keys=keep_keys)
    assert digests(new)[::4] == digests(expected)[::4]  # statistics and keys
    assert set(new.buffer_.content().labels.tolist()) == {1, 3}
    assert 'class 0 is only partly in this file: give --samples' in refusal(
        'unlearn', path, '--minus', 'some.npz', '-o', 'other'
    )
    assert not Path('other').exists()
    fit(buffer_size=0).save('s.npz')  # without a buffer it can be done
    assert command('unlearn', 's.npz', '--minus', 'some.npz', '-o', 'other')[0] == 0


def test_images_are_forgotten_by_their_pixels(embedder, toy, command, refusal):
    images, labels = toy
    features, keys = embedder(images)
    expected = Scroll(embedder, buffer_size=10).fit(images, labels)
    expected.save('s.npz')
    expected.remove(images[5:12], labels[5:12])
    part = {'quantised': features[5:12], 'labels': labels[5:12]}
    words = ['unlearn', 's.npz', '-o', 'new.npz']
    np.savez('old.npz', **part, keys=keys[5:12])
    assert command(*words, '--samples', 'old.npz')[0] == 0
    assert digests(Scroll.load('new.npz', embedder)) == digests(expected)
    np.savez('old.npz', **part)
    Statistics(embedder.dim).add(features[:8], labels[:8]).save('class.npz')  # says nothing of psi
    for way, path, word in (
        ('--samples', 'old.npz', 'give keys'),
        ('--minus', 'class.npz', 'backbone or grid mismatch'),
    ):
        assert word in refusal(*words, way, path)
