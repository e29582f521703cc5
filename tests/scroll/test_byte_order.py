"""Digests, keys and files are the same whatever the order of bytes in which arrays come; tests swap
them.
"""

import numpy as np
import pytest

from scroll import Scroll
from scroll.ground import archive
from tests.scroll.conftest import refused

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 5))
NUMBERS = np.arange(60) % 3
NAMES = np.array(['ant', 'bee', 'cé'])[np.arange(60) % 3]


def swapped(array: np.ndarray) -> np.ndarray:
    """The same values in the other order of bytes."""
    out = array.astype(array.dtype.newbyteorder('S'))
    assert np.array_equal(out, array)
    assert out.dtype.itemsize == 1 or out.tobytes() != array.tobytes()
    return out


def known(learner: Scroll, path) -> list:
    """Everything that has a digest, and the bytes of a saved state."""
    learner.save(path)
    loaded = Scroll.load(path)
    return [
        learner.digest(),
        learner.predictor().digest(),
        learner.buffer_.content().digest(),
        loaded.buffer_.content().digest(),
        learner.predict(X).tolist(),
        path.read_bytes(),
    ]


@pytest.mark.parametrize('labels', [NUMBERS, NUMBERS.astype('u2'), NAMES], ids=['i8', 'u2', 'text'])
@pytest.mark.parametrize('kind', ['f8', 'i4'])
def test_a_learner_of_features(tmp_path, kind, labels):
    x = (100 * X).astype(kind)
    one, two = (
        Scroll(buffer_size=9, keep_keys=True).partial_fit(a, b).remove(a[:5], b[:5])
        for a, b in ((x, labels), (swapped(x), swapped(labels)))
    )
    assert known(one, tmp_path / 'one.npz') == known(two, tmp_path / 'two.npz')
    assert known(one.partial_fit(swapped(x[:5]), labels[:5]), tmp_path / 'one.npz') == known(
        two.partial_fit(x[:5], swapped(labels[:5])), tmp_path / 'two.npz'
    )


def test_files_hold_one_order_and_facts_as_they_were_given(tmp_path):
    facts = {'words': ['ä', 'b'], 'number': 2**200, 'nothing': None}
    arrays = {'a': X, 'b': NUMBERS, 'c': NAMES, 'd': np.float32(3)}
    other = {name: swapped(np.asarray(array)) for name, array in arrays.items()}
    for path, content in ((tmp_path / 'one', arrays), (tmp_path / 'two', other)):
        archive.write(path, 'scroll-test-1', facts, content)
    assert (tmp_path / 'one').read_bytes() == (tmp_path / 'two').read_bytes()
    read, found = archive.read(tmp_path / 'two', 'scroll-test-1')
    assert read == facts
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    assert archive.kind_of(tmp_path / 'two') == 'scroll-test-1'
    assert len(list(tmp_path.iterdir())) == 2
    with refused('scroll-test-1'):
        archive.read(tmp_path / 'two', 'scroll-other-1')
