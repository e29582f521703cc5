"""Integer random features: what they are, for ever; sums of a lift; what states, merging and
removal know of it.
"""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scroll import InputError, Statistics
from scroll.ground.grid import GRID, quantise
from scroll.sums.lift import Lift
from tests.scroll.conftest import quick, refused

KINDS = ('relu', 'square', 'fourier')


def units(count=8, dim=5, seed=0):
    return quantise(np.random.default_rng(seed).normal(size=(count, dim)))


@pytest.mark.parametrize(
    'kind, digest', [('relu', '2db9642a'), ('square', '457dfdbc'), ('fourier', 'e49c26a5')]
)
def test_what_a_seed_draws_never_changes(kind, digest):
    """If this fails, files that others have written no longer mean what they meant."""
    assert Lift(kind, 256, {'fourier': 3000}.get(kind, 10)).digest[:8] == digest


def test_relu_is_what_its_text_says():
    """Compare with Python's integers, from the stream of bits."""
    d = 5
    M = 7
    u = units()
    bits = hashlib.shake_256(b'scroll lift relu 3 5').digest(-(-d * M // 4))
    pairs = [bits[i // 4] >> 2 * (i % 4) & 3 for i in range(d * M)]
    R = np.array([{2: 1, 3: -1}.get(pair, 0) for pair in pairs]).reshape(M, d).T
    random = np.clip(u @ R >> 2, 0, GRID)  # 2^2 is the least power above 5 ** .5
    assert np.array_equal(Lift('relu', d, M, 3)(u), np.hstack([u, random]))


def test_squares_are_what_their_text_says():
    u = units(6)
    lift = Lift('square', 5, 40)
    products = u.astype(np.int64) @ lift.matrix.astype(np.int64)
    assert np.array_equal(lift(u)[:, 5:], np.minimum(products**2 >> 21, GRID))


def test_fourier_features_have_the_kernel_of_their_bandwidth():
    u = units(10, 6)
    width = 1 << 14
    for bandwidth in (0.5, 1.0, 2.5):
        h = Lift('fourier', 6, width, 0, bandwidth)(u)[:, 6:] / GRID
        distances = ((u[:, None] - u[None]) / GRID) ** 2
        kernel = np.exp(-distances.sum(axis=2) / (2 * bandwidth**2))
        np.testing.assert_allclose(h @ h.T * 512 / width, kernel, atol=0.04)


@quick
@given(
    kind=st.sampled_from(KINDS),
    dim=st.integers(1, 40),
    width=st.integers(1, 30),
    less=st.integers(1, 30),
    seed=st.integers(0, 3),
)
def test_a_lift_stays_on_the_grid_and_begins_with_u_and_with_narrower_ones(
    kind, dim, width, less, seed
):
    u = units(4, dim, seed)
    less = min(less, width)
    lift = Lift(kind, dim, width, seed)
    h = lift(u)
    assert h.shape == (4, dim + width)
    assert np.abs(h).max() <= GRID
    assert np.array_equal(h[:, :dim], u)
    assert np.array_equal(h[:, : dim + less], Lift(kind, dim, less, seed)(u))
    assert np.array_equal(h[2:3], lift(u[2:3]))  # of its row alone
    assert dim * width < 30 or lift.digest != Lift(kind, dim, width, seed + 1).digest


@pytest.mark.parametrize('kind', KINDS)
def test_sums_of_a_lift_are_those_of_lifted_features_and_hold_those_of_no_lift(tmp_path, kind):
    u = units(50, 6)
    y = np.arange(50) % 3
    lift = Lift(kind, 6, 1100)  # wider than a panel of the product
    lifted = Statistics(6, lift).add(u, y)
    both = Statistics(1106).add(lift(u), y)
    assert np.array_equal(lifted.sums, both.sums)
    assert np.array_equal(lifted.gram, both.gram)
    alone = Statistics(6).add(u, y)
    u_of_h = np.r_[:6, lifted.size]
    assert np.array_equal(lifted.gram[u_of_h[:, None], u_of_h], alone.gram)
    assert lifted != both
    lifted.save(tmp_path / 's.npz')
    assert Statistics.load(tmp_path / 's.npz') == lifted
    rest = Statistics(6, lift).add(u[2:], y[2:])
    assert Statistics(6, lift).add(u[:2], y[:2]).merge(rest) == lifted
    assert lifted.remove(u[:2], y[:2]) == rest


def test_sums_of_other_lifts_do_not_mix():
    u = units(6)
    y = np.zeros(6, int)
    lifts = [
        Lift('relu', 5, 4),
        Lift('relu', 5, 4, seed=1),
        Lift('fourier', 5, 4),
        Lift('relu', 5, 3),
    ]
    ones = [Statistics(5, lift).add(u, y) for lift in lifts]
    for other in ones[1:]:
        before = other.digest()
        with refused('lift'):
            other.merge(ones[0])
        with refused('lift'):
            other.subtract(ones[0])
        assert other.digest() == before
    assert len({one.digest() for one in ones}) == 4


@pytest.mark.parametrize(
    'facts',
    [
        {'kind': 'sine'},
        {'width': 0},
        {'dim': 5000},
        {'kind': 'fourier', 'bandwidth': 1e-6},
        {'dim': 4.0},
        {'dim': float('inf')},
        {'kind': 'fourier', 'bandwidth': 1e-310},
        {'kind': 'fourier', 'bandwidth': 1e9},
    ],
)
def test_a_lift_that_cannot_be_is_refused(facts):
    with pytest.raises(InputError):
        Lift(**{'kind': 'relu', 'dim': 8, 'width': 4, **facts})
