"""Integer systems against exact rational arithmetic: every entry is rounded right, whatever LAPACK
does in between.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scroll.heads.rounded import smallest_units, solve, solved_rows
from tests.scroll.conftest import exact_solution, in_units, quick, refused


def gram_of(rows: np.ndarray) -> np.ndarray:
    return rows.T.astype(np.int64) @ rows


def rounded(gram, units: int, right, grid: int) -> list:
    """What `solve` must give, by Gaussian elimination on fractions."""
    return in_units(exact_solution(gram, units, right), grid)


@quick
@given(
    st.integers(1, 7),
    st.integers(1, 12),
    st.integers(-20, 60),
    st.integers(-60, -8),
    st.integers(0, 999),
)
def test_every_entry_is_rounded_right(size, count, power, grid, seed):
    """Fewer rows than columns, repeated rows, zeros; every lambda that may be."""
    r = np.random.default_rng(seed)
    rows = r.integers(-(2**18), 2**18, (count, size))[r.integers(0, count, count)]
    gram, right = gram_of(rows), rows.T @ r.integers(-1, 2, (count, 3))
    units = max(int(2.0**power), smallest_units(gram))
    assert solve(gram, units, right, grid).tolist() == rounded(gram, units, right, grid)


@quick
@given(
    st.integers(1, 5),
    st.integers(0, 4),
    st.integers(1, 62),
    st.integers(0, 40),
    st.integers(0, 999),
)
def test_solutions_with_many_bits_above_the_point_are_rounded_right(size, top, bits, grid, seed):
    """Small matrices and right-hand sides of up to 2^62: tight classes of very many samples."""
    r = np.random.default_rng(seed)
    gram, right = (
        gram_of(r.integers(-top, top, (size, size), endpoint=True)),
        r.integers(-1 << bits, 1 << bits, (size, 2)),
    )
    for units in (1, 5):
        assert solve(gram, units, right, grid).tolist() == rounded(gram, units, right, grid)


@pytest.mark.parametrize('rank', [1, 12])
@pytest.mark.parametrize('scale', [2**6, 2**26], ids=['short', 'long'])
def test_ill_conditioned_systems_are_solved_to_the_last_bit(rank, scale):
    """A dozen unknowns, lambda the least there may be, sums as of very many samples (2^62)."""
    r = np.random.default_rng(rank)
    rows = r.integers(-scale, scale, (12, rank)) @ r.integers(-1, 2, (rank, 12))
    gram, right = gram_of(rows), rows.T @ r.integers(-1, 2, (12, 2))
    for units in (smallest_units(gram), 2**20, 2**46):
        units = max(units, smallest_units(gram))
        assert solve(gram, units, right, -40).tolist() == rounded(gram, units, right, -40)


@pytest.mark.parametrize('sign', [-1, 1])
@pytest.mark.parametrize('q', [0, -7])
def test_float64_could_not_tell_on_which_side_of_the_middle_it_lies(q, sign):
    """X = q + 1/2 +- 2^-46."""
    a = 2**45 + 1
    assert solve(
        np.array([[a - 1]]), 1, np.array([[(a * (2 * q + 1) + sign) // 2]]), 0
    ).item() == q + (sign > 0)


@pytest.mark.parametrize('q, even', [(0, 0), (1, 2), (-1, 0), (12345, 12346)])
def test_the_middle_goes_to_the_even_neighbour_also_beside_thirds(q, even):
    """X = q + 1/2 exactly, in a column of its own and in one whose other entry, 1/3, never ends."""
    right = np.array([[2 * q + 1, 2 * q + 1], [0, 1]])
    assert solve(np.diag([1, 2]), 1, right, 0).tolist() == [[even, even], [0, 0]]
    assert solve(np.diag([1, 2]), 1, right, -30)[1].tolist() == [0, round(2**30 / 3)]


@quick
@given(st.integers(1, 5), st.sampled_from([1, 3, 40]), st.integers(-10, 60), st.integers(0, 999))
def test_solved_rows_are_the_exact_solutions_of_few_rows_and_of_many(size, count, power, seed):
    r = np.random.default_rng(seed)
    gram, rows = (
        gram_of(r.integers(-(2**18), 2**18, (6, size))),
        r.integers(-(2**19), 2**19, (count, size), endpoint=True),
    )
    units = max(int(2.0**power), smallest_units(gram))
    exact = np.array(exact_solution(gram, units, rows.T), object).T.astype(float)
    np.testing.assert_allclose(
        solved_rows(gram, units, rows), exact, rtol=0, atol=size * 2.0 ** (20 - 50) / units
    )


def test_a_worse_lapack_makes_the_same_integers(monkeypatch):
    """Another library's factor, and solutions that are wrong in the fifth digit."""
    r = np.random.default_rng(1)
    rows = r.integers(0, 2**18, (300, 60))
    gram, right = gram_of(rows), rows.T @ r.integers(-1, 2, (300, 5))
    expected = solve(gram, 2**33, right, -50)

    def factor(system, **_):
        return torch.linalg.cholesky(torch.from_numpy(system))

    def solution(factor, right, **_):
        exact = torch.cholesky_solve(torch.from_numpy(right), factor).numpy()
        return exact * (1 + 1e-5 * r.normal(size=exact.shape))

    monkeypatch.setattr('scroll.heads.rounded.cho_factor', factor)
    monkeypatch.setattr('scroll.heads.rounded.cho_solve', solution)
    np.testing.assert_array_equal(solve(gram, 2**33, right, -50), expected)


@pytest.mark.parametrize(
    'gram, said',
    [
        ([[-9]], 'never added'),
        ([[2**40, 2**40 + 1], [2**40 + 1, 2**40]], 'never added'),
        (np.full((3, 3), 2**60), '^these sums .* larger'),
    ],
)
def test_a_removal_is_blamed_only_where_integers_prove_it(gram, said):
    with refused(said):
        solve(np.array(gram), 1, np.ones((len(gram), 1), np.int64), -9)


@pytest.mark.parametrize('bits', [21, 43, 65])
@pytest.mark.parametrize('below', [1, 2**18])
def test_diagonals_next_to_the_end_of_a_limb(bits, below):
    """Just below 2^21, 2^43 and 2^65 the highest limb, rounded, carries over."""
    units = 2**bits - below
    exact = Fraction(2**40, units + 5)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - 40
    assert solve(np.array([[5]]), units, np.array([[2**40]]), exponent).tolist() == [
        [round(exact / Fraction(2) ** exponent)]
    ]
