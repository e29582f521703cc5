"""Integer random features: what they are, for ever; sums of a lift; what states, merging and
removal know of it.
"""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scroll import InputError, Statistics
from scroll.ground.grid import GRID, quantise
from scroll.sums.lift import Lift
from tests.conftest import ROOT
from tests.scroll.conftest import quick, refused

KINDS = ('relu', 'relu7', 'square', 'fourier')


def units(count=8, dim=5, seed=0):
    return quantise(np.random.default_rng(seed).normal(size=(count, dim)))


@pytest.mark.parametrize(
    'kind, digest',
    [('relu', '2db9642a'), ('relu7', '523ae6a4'), ('square', '457dfdbc'), ('fourier', 'e49c26a5')],
)
def test_what_a_seed_draws_never_changes(kind, digest):
    """If this fails, files that others have written no longer mean what they meant."""
    assert Lift(kind, 256, {'fourier': 3000}.get(kind, 10)).digest[:8] == digest


def test_relu_is_what_its_text_says():
    """By Python's integers, from the stream of bits."""
    d, M, u = 5, 7, units()
    bits = hashlib.shake_256(b'scroll lift relu 3 5').digest(-(-d * M // 4))
    pairs = [bits[i // 4] >> 2 * (i % 4) & 3 for i in range(d * M)]
    columns = [
        [{2: 1, 3: -1}.get(pair, 0) for pair in pairs[j * d : (j + 1) * d]] for j in range(M)
    ]
    expected = [
        [
            *row,
            *(
                min(max(sum(a * r for a, r in zip(row, column)), 0) >> 2, GRID)
                for column in columns
            ),
        ]
        for row in u.tolist()
    ]  # 2^2 is the least power above 5 ** .5
    assert Lift('relu', d, M, 3)(u).tolist() == expected


def test_seven_bits_are_what_their_text_says():
    u = units(6, 70)
    lift = Lift('relu7', 70, 40)
    exact = [
        [min(max(int(a) >> 13, 0), 127) << 13 - 4 for a in row]
        for row in u.astype(np.int64) @ lift.matrix.astype(np.int64)
    ]
    assert lift(u)[:, 70:].tolist() == exact
    assert lift.shift == 4


def test_sums_of_seven_bits_are_the_same_by_every_kernel():
    """Rows that are nearly alike, and large: sums in float32 have to be cut into parts."""
    script = """
import sys
if sys.argv[1] == 'numpy':
    sys.modules['torch'] = None
else:
    import torch
import numpy as np
from scroll import Statistics
from scroll.ground.grid import quantise
from scroll.sums.lift import Lift
u = quantise(np.r_[1 + .01 * np.random.default_rng(0).normal(size=(4600, 200)), np.eye(200), -np.eye(200)])
print(Statistics(200, Lift('relu7', 200, 600)).add(u, np.arange(5000) % 7).digest())
"""
    one, other = (
        subprocess.run(
            [sys.executable, '-c', script, by], capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
        for by in ('numpy', 'torch')
    )
    u = quantise(
        np.r_[
            1 + 0.01 * np.random.default_rng(0).normal(size=(4600, 200)), np.eye(200), -np.eye(200)
        ]
    )
    # whose products are exact
    h = np.c_[Lift('relu7', 200, 600)(u), np.full(5000, GRID)].astype(np.float64)
    own = Statistics(200, Lift('relu7', 200, 600)).add(u, np.arange(5000) % 7)
    assert np.array_equal(own.gram, h.T @ h)
    assert ((h[:, 200:-1] // 512) ** 2).sum(axis=0).max() > 1 << 24
    assert one == other == f'{own.digest()}\n'


def test_squares_are_what_their_text_says():
    u = units(6, 5)
    lift = Lift('square', 5, 40)
    exact = [
        [min(int(a) ** 2 >> 21, GRID) for a in row]
        for row in u.astype(np.int64) @ lift.matrix.astype(np.int64)
    ]
    assert lift(u)[:, 5:].tolist() == exact
    np.testing.assert_allclose(
        lift(u)[:, 5:] / GRID, np.minimum((u / GRID @ lift.matrix) ** 2 / 8, 1), atol=1e-5
    )


def test_fourier_features_have_the_kernel_of_their_bandwidth():
    u, width = units(10, 6), 1 << 14
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
    u, less = units(4, dim, seed), min(less, width)
    h = Lift(kind, dim, width, seed)(u)
    assert h.shape == (4, dim + width)
    assert np.abs(h).max() <= GRID
    assert np.array_equal(h[:, :dim], u)
    assert np.array_equal(h[:, : dim + less], Lift(kind, dim, less, seed)(u))
    assert np.array_equal(h[2:3], Lift(kind, dim, width, seed)(u[2:3]))  # of its row alone
    assert (
        dim * width < 30
        or Lift(kind, dim, width, seed).digest != Lift(kind, dim, width, seed + 1).digest
    )


@pytest.mark.parametrize('kind', KINDS)
def test_sums_of_a_lift_are_those_of_lifted_features_and_hold_those_of_no_lift(tmp_path, kind):
    u, y = units(50, 6), np.arange(50) % 3
    lift = Lift(kind, 6, 1100)  # wider than a panel of the product
    lifted, plain, both = (
        Statistics(6, lift).add(u, y),
        Statistics(6).add(u, y),
        Statistics(1106).add(lift(u), y),
    )
    assert np.array_equal(lifted.sums, both.sums)
    assert np.array_equal(lifted.gram, both.gram)
    assert lifted.without_lift() == plain
    assert lifted != both
    lifted.save(tmp_path / 's.npz')
    assert Statistics.load(tmp_path / 's.npz') == lifted
    other = Statistics(6, lift).add(u[40:], y[40:]).merge(Statistics(6, lift).add(u[:40], y[:40]))
    assert other == lifted
    assert other.remove(u[7:9], y[7:9]) == Statistics(6, lift).add(
        np.delete(u, [7, 8], 0), np.delete(y, [7, 8])
    )


def test_sums_of_other_lifts_do_not_mix():
    u, y = units(6), np.zeros(6, int)
    ones = [
        Statistics(5, lift).add(u, y)
        for lift in (
            Lift('relu', 5, 4),
            Lift('relu', 5, 4, seed=1),
            Lift('fourier', 5, 4),
            Lift('relu', 5, 3),
        )
    ]
    for other in ones[1:]:
        before = other.digest()
        with refused('lift'):
            other.merge(ones[0])
        with refused('lift'):
            other.subtract(ones[0])
        assert other.digest() == before
    assert len({one.digest() for one in ones}) == 4
    # which has no bandwidth; the same angles
    for alike in (Lift('relu', 5, 4, bandwidth=3.0), Lift('fourier', 5, 4, bandwidth=1 + 1e-9)):
        (other,) = (one for one in ones[::2] if one.lift == alike)
        assert Statistics(5, alike).add(u, y) == other
        assert hash(alike) == hash(other.lift)
        assert other.merge(Statistics(5, alike).add(u, y)).total == 12


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
