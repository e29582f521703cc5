"""A learner on disk: it goes on as if it had never stopped; it forgets from the command line."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scroll import Adaptation, Embedder, Scroll
from scroll.__main__ import main
from scroll.embedding.images import Augmentation
from scroll.ground.grid import quantise
from scroll.sums.statistics import Statistics
from tests.scroll import conftest
from tests.scroll.conftest import (
    Stream,
    cuttings,
    digests,
    make_stream,
    of,
    quick,
    refused,
    streams,
)

RAW = make_stream(np.arange(80) % 4, seed=5)
STREAM = Stream(quantise(RAW.features), RAW.labels, RAW.keys)  # what a learner of RAW counts
STRATEGIES = ('herding', 'random', 'nearest', 'outlier', 'hash')


def fit(stream, *pieces, **params) -> Scroll:
    learner = Scroll(**params)
    for at in pieces or [np.arange(len(stream.labels))]:
        learner.partial_fit(stream.features[at], stream.labels[at])
    return learner


@settings(quick, max_examples=12)
@given(
    streams(min_size=3, max_size=20),
    st.data(),
    st.sampled_from(STRATEGIES),
    st.sampled_from([0, 3, 50]),
)
def test_a_learner_goes_on_as_if_it_had_never_stopped(
    tmp_path_factory, stream, data, strategy, size
):
    path = tmp_path_factory.mktemp('state') / 'x'
    pieces = data.draw(cuttings(len(stream.labels)))
    params = {'buffer_size': size, 'strategy': strategy, 'seed': 3}
    straight, halting = fit(stream, *pieces, **params), None
    for at in pieces:
        halting = Scroll(**params) if halting is None else Scroll.load(path)
        halting.partial_fit(stream.features[at], stream.labels[at]).save(path)
    assert digests(Scroll.load(path)) == digests(straight)
    gone = pieces[0]
    for learner in (straight, halting := Scroll.load(path)):
        learner.remove(stream.features[gone], stream.labels[gone])
    assert digests(halting) == digests(straight)


def test_settings_are_kept_and_f_star_is_made_again(embedder, toy, tmp_path):
    adaptation = Adaptation(
        select='none',
        iterations=2,
        minibatch=4,
        calibrate=False,
        augmentation=Augmentation(0.2, False, 0.1),
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
    for other in (Embedder(conftest.tiny_net(1, 8), conftest.PREPROCESSING, chunk=8), None):
        with refused('backbone or grid mismatch'):
            Scroll.load(tmp_path / 'x', other)
    assert (
        Scroll.load(
            tmp_path / 'x', Embedder(conftest.tiny_net(width=8), conftest.PREPROCESSING, chunk=8)
        ).statistics_.total
        == 24
    )
    Scroll().fit(RAW.features, STREAM.labels).save(tmp_path / 'y')
    with refused('backbone or grid mismatch'):
        Scroll.load(tmp_path / 'y', embedder)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """state(**params): a file s.npz in the working folder, of a learner of STREAM."""
    monkeypatch.chdir(tmp_path)

    def save(**params):
        fit(RAW, **{'buffer_size': 9, **params}).save('s.npz')
        return Path('s.npz')

    return save


@pytest.mark.parametrize(
    'settings',
    [
        {'ridge_lambda': Fraction(1, 4)},
        {'ridge_lambda': np.longdouble(0.25)},
        {'head': 'lda', 'shrinkage': Fraction(1, 4)},
        {'keep_keys': np.bool_(True)},
        {'head': 'rp', 'lift_dim': np.int32(9), 'lift_seed': np.uint8(2)},
        {'head': 'rff', 'lift_dim': 9, 'lift_bandwidth': np.float16(0.3)},
        {'head': 'rff', 'lift_dim': 9, 'lift_bandwidth': Fraction(3, 10)},
    ],
    ids=str,
)
def test_settings_are_numbers_of_any_kind(state, settings):
    loaded = Scroll.load(state(**settings))
    expected = fit(RAW, **loaded.get_params())  # as a file has them
    assert loaded.digest() == expected.digest()
    assert loaded.predictor().digest() == expected.predictor().digest()


@pytest.mark.parametrize('keep_keys', [False, True])
def test_classes_are_forgotten_by_their_statistics(state, capsys, keep_keys):
    path, rest = state(keep_keys=keep_keys), np.flatnonzero(STREAM.labels % 2 == 1)
    for label in (0, 2):
        of(STREAM, STREAM.labels.tolist().index(label) + 4 * np.arange(20)).save(
            f'class-{label}.npz'
        )
    assert (
        main(['unlearn', str(path), '--minus', 'class-0.npz', 'class-2.npz', '-o', 'new.npz']) == 0
    )
    assert capsys.readouterr().out == f'{of(STREAM, rest).digest()}\n'
    new = Scroll.load('new.npz')
    assert new.classes_.tolist() == [1, 3]
    assert set(new.buffer_.content().labels.tolist()) == {1, 3}
    assert new.digest() == fit(RAW, rest).digest()
    assert (
        new.keys_ is None
        or new.keys_.state_dict()['keys'].tolist()
        == fit(RAW, rest, keep_keys=True).keys_.state_dict()['keys'].tolist()
    )
    of(STREAM, np.arange(10)).save('some.npz')
    assert main(['unlearn', str(path), '--minus', 'some.npz', '-o', 'other.npz']) == 2
    assert not Path('other.npz').exists()
    assert '--samples' in capsys.readouterr().err
    assert fit(RAW, buffer_size=0).save('s.npz') is None
    # without a buffer it can be done
    assert main(['unlearn', 's.npz', '--minus', 'some.npz', '-o', 'other.npz']) == 0


def test_images_are_forgotten_by_their_pixels(embedder, toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images, labels = toy
    features, keys = embedder(images)
    Scroll(embedder, buffer_size=10).fit(images, labels).save('s.npz')
    expected = (
        Scroll(embedder, buffer_size=10).fit(images, labels).remove(images[5:12], labels[5:12])
    )
    part = {'quantised': features[5:12], 'labels': labels[5:12]}
    np.savez('old.npz', **part, keys=keys[5:12])
    assert main(['unlearn', 's.npz', '--samples', 'old.npz', '-o', 'new.npz']) == 0
    assert digests(Scroll.load('new.npz', embedder)) == digests(expected)
    np.savez('old.npz', **part)
    capsys.readouterr()
    assert main(['unlearn', 's.npz', '--samples', 'old.npz', '-o', 'new.npz']) == 2
    assert 'give keys' in capsys.readouterr().err
    Statistics(embedder.dim).add(features[:8], labels[:8]).save('class.npz')  # says nothing of psi
    assert main(['unlearn', 's.npz', '--minus', 'class.npz', '-o', 'new.npz']) == 2
    assert 'backbone or grid mismatch' in capsys.readouterr().err
