"""Integer systems against exact rational arithmetic: every entry is rounded right, whatever LAPACK
does in between.
"""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from scroll.heads.rounded import (
    Refinement,
    grid_for,
    least_shift,
    row_products,
    scaled,
    solve,
    solved_rows,
)
from tests.scroll.conftest import exact_solution, in_units, quick, refused

SEEDS = st.integers(0, 999)


def gram_of(rows: np.ndarray) -> np.ndarray:
    return rows.T.astype(np.int64) @ rows


def rounded(gram, shift: int, right, grid: int) -> list:
    """Expected result of `solve`, by Gaussian elimination on fractions."""
    return in_units(exact_solution(gram, shift, right), grid)


@quick
@given(st.integers(1, 7), st.integers(1, 12), st.integers(-20, 60), st.integers(-60, -8), SEEDS)
def test_every_entry_is_rounded_right(size, count, power, grid, seed):
    """Fewer rows than columns, repeated rows, zeros; every lambda that may be."""
    r = np.random.default_rng(seed)
    rows = r.integers(-(2**18), 2**18, (count, size))[r.integers(0, count, count)]
    gram = gram_of(rows)
    right = rows.T @ r.integers(-1, 2, (count, 3))
    shift = max(int(2.0**power), least_shift(gram))
    assert solve(gram, shift, right, grid).tolist() == rounded(gram, shift, right, grid)


@pytest.mark.parametrize('rank', [1, 12])
@pytest.mark.parametrize('scale', [2**6, 2**26], ids=['short', 'long'])
@pytest.mark.parametrize('shift', [1, 2**20, 2**46])
def test_ill_conditioned_systems_are_solved_to_the_last_bit(rank, scale, shift):
    """A dozen unknowns, lambda the least there may be, sums as of very many samples (2^62)."""
    r = np.random.default_rng(rank)
    rows = r.integers(-scale, scale, (12, rank)) @ r.integers(-1, 2, (rank, 12))
    gram = gram_of(rows)
    right = rows.T @ r.integers(-1, 2, (12, 2))
    shift = max(shift, least_shift(gram))
    assert solve(gram, shift, right, -40).tolist() == rounded(gram, shift, right, -40)


@quick
@given(
    size=st.integers(1, 4),
    rank=st.integers(0, 4),
    bits=st.sampled_from([0, 20, 21, 29]),
    power=st.sampled_from([1, 8, 22, 30]),
    lowest=st.booleans(),
    top=st.sampled_from([1, 2**21, 2**43 - 1, 2**62]),
    seed=SEEDS,
)
@example(size=2, rank=0, bits=0, power=1, lowest=True, top=2**62, seed=0)
def test_no_step_claims_more_than_it_has(size, rank, bits, power, lowest, top, seed):
    """After each step the error is below its bound, which is 2 / lambda times the residual, and
    certain entries are right. lowest: eigenvalues at -lambda / 2, where both are equal."""
    r = np.random.default_rng(seed)
    gram = gram_of(r.integers(-1 << bits, 1 << bits, (rank, size), endpoint=True))
    shift = 2 * max(2**power + 1, least_shift(gram))
    gram -= shift // 2 * lowest * np.eye(size, dtype=np.int64)
    right = r.integers(-top, top, (size, 2), endpoint=True)
    exact = np.array(exact_solution(gram, shift, right), object)
    refinement = Refinement(gram, shift, right)
    for _ in range(4):
        refinement.step()
        unit = Fraction(2) ** refinement.exponent
        missing = exact / unit - refinement.value()
        residual = gram @ missing + shift * missing
        for column, bound in enumerate(map(Fraction, refinement.error())):
            assert (missing[:, column] ** 2).sum() <= bound**2
            longest = (residual[:, column] ** 2).sum() * Fraction(2.01 / shift) ** 2
            assert bound**2 <= longest
        for grid in range(refinement.exponent + 1, refinement.exponent + 80, 13):
            if abs(exact).max() < Fraction(2) ** (grid + 62):
                values, certain = refinement.rounded(grid)
                expected = np.array(in_units(exact, grid))
                assert (values == expected)[certain].all()


@pytest.mark.parametrize('size, bits', [(1, 29), (2, 29), (3, 28), (6, 28), (7, 27), (62, 25)])
def test_a_step_adds_as_many_bits_as_sums_can_hold(size, bits):
    refinement = Refinement(np.zeros((size, size), np.int64), 3, np.ones((size, 1), np.int64))
    for step in range(1, 4):
        refinement.step()
        assert refinement.exponent == -step * (bits + 1)
        assert refinement.error().max() <= size**0.5


@pytest.mark.parametrize('q, even', [(0, 0), (1, 2), (2, 2), (-1, 0), (-2, -2), (12345, 12346)])
def test_the_middle_goes_to_the_even_neighbour_also_next_to_thirds(q, even):
    """X = q + 1/2 exactly, in a column of its own and in one whose other entry, 1/3, never ends."""
    right = np.array([[2 * q + 1, 2 * q + 1], [0, 1]])
    assert solve(np.diag([1, 2]), 1, right, 0).tolist() == [[even, even], [0, 0]]
    assert solve(np.diag([1]), 1, right[:1], 0).tolist() == [[even] * 2]
    assert solve(np.diag([1, 2]), 1, right, -30)[1].tolist() == [0, round(2**30 / 3)]


@pytest.mark.parametrize('offset, expected', [(-7, 0), (-3, 0), (3, 0), (7, 1)])
def test_the_middle_ends_at_two_to_the_minus_64(offset, expected):
    """X = 1 / 2 + offset 2^-66 in units of 1 / 4, which float64 cannot tell from 1 / 2."""
    shift = 2**65 - 1 - offset
    assert solve(np.array([[1]]), shift, np.array([[2**62]]), -2).item() == expected


@pytest.mark.parametrize('power', range(62))
def test_solutions_of_every_size_are_rounded_right(power):
    """Thirds, since a step adds 29 bits at most: larger ones begin above the point."""
    right = [2**power, 3 * 2**power // 2]
    expected = [[round(Fraction(value, 3)) for value in right]]
    assert solve(np.array([[2]]), 1, np.array([right]), 0).tolist() == expected


@quick
@given(st.integers(1, 5), st.sampled_from([1, 3, 40]), st.integers(-10, 60), SEEDS)
def test_solved_rows_are_the_exact_solutions_of_few_rows_and_of_many(size, count, power, seed):
    r = np.random.default_rng(seed)
    gram = gram_of(r.integers(-(2**18), 2**18, (6, size)))
    rows = r.integers(-(2**19), 2**19, (count, size), endpoint=True)
    shift = max(int(2.0**power), least_shift(gram))
    exact = np.array(exact_solution(gram, shift, rows.T), object).T.astype(float)
    np.testing.assert_allclose(
        solved_rows(gram, shift, rows), exact, rtol=0, atol=size * 2.0 ** (20 - 50) / shift
    )


@pytest.mark.parametrize(
    'count, shift, digest',
    [
        (6, 77, '027367fc7a5ca60e'),
        (6, 100, '03c2e7eae36b5f47'),
        (7, 77, '596a540d61dc4a7d'),
        (2500, 77, '1aa2bdcc5b0167ff'),
    ],
)
def test_solved_rows_have_the_same_bits_on_every_machine(count, shift, digest):
    rows = np.arange(-5, 7500 - 5).reshape(2500, 3) ** 2 % 499_979
    out = solved_rows(gram_of(rows[:9] % 1000), shift, rows[:count])
    assert hashlib.sha256(out.astype('<f8').tobytes()).hexdigest()[:16] == digest


def test_many_solutions_may_be_as_far_apart_as_int64_reaches():
    most = 2**60 - 1
    right = np.array([[-most, most, 0, 1, 2, 3]])
    assert np.array_equal(solve(np.zeros((1, 1), np.int64), 1, right, -2), 4 * right)


def test_parts_of_a_solution_may_be_larger_than_int64_holds():
    direction = np.array([[3], [7]])
    gram = direction @ direction.T << 34
    right = direction * [-(1 << 56), 1 << 56, 3, 1 << 40, 5, 6, 7, 8, 9]
    assert solve(gram, 1, right, -38).tolist() == rounded(gram, 1, right, -38)


def test_right_sides_may_differ_much_in_one_row_and_little_in_another():
    gram = gram_of(np.array([[3, 1], [1, 2]]))
    right = np.array([np.arange(9) << 52, np.arange(9) % 2])
    assert solve(gram, 7, right, -3).tolist() == rounded(gram, 7, right, -3)


def test_a_row_does_not_depend_on_the_others():
    r = np.random.default_rng(0)
    rows = r.integers(-9, 9, (1040, 520))
    gram = gram_of(rows[:20])
    out = solved_rows(gram, 5, rows)
    np.testing.assert_array_equal(out[1020:], solved_rows(gram, 5, rows[1020:]))


def test_products_of_very_many_columns_are_exact_in_pieces_of_4096():
    """More would not be: 2^19 (2^21 - 1) 2^13 is at 2^53."""
    r = np.random.default_rng(0)
    matrix = 2**21 - 1 - 2 * r.integers(0, 2**9, (20481, 60))
    rows = 2**19 - 1 - 2 * r.integers(0, 2**9, (1, 20481))
    expected = np.zeros(60)
    for start in range(0, 20481, 4096):
        expected += rows[0, start : start + 4096] @ matrix[start : start + 4096]
    np.testing.assert_array_equal(row_products(rows, matrix)[0], expected)
    np.testing.assert_array_equal(row_products(rows, -matrix << 22)[0], -expected * 2.0**22)


def test_a_worse_lapack_makes_the_same_integers(monkeypatch):
    """Another library's factor, and solutions that are wrong in the fifth digit."""
    r = np.random.default_rng(1)
    rows = r.integers(0, 2**18, (300, 60))
    gram = gram_of(rows)
    right = rows.T @ r.integers(-1, 2, (300, 5))
    expected = solve(gram, 2**33, right, -50)

    def factor(system, **_):
        return torch.linalg.cholesky(torch.from_numpy(system))

    def solution(factor, right, **_):
        exact = torch.cholesky_solve(torch.from_numpy(right), factor).numpy()
        return exact * (1 + 1e-5 * r.normal(size=exact.shape))

    monkeypatch.setattr('scroll.heads.rounded.cho_factor', factor)
    monkeypatch.setattr('scroll.heads.rounded.cho_solve', solution)
    np.testing.assert_array_equal(solve(gram, 2**33, right, -50), expected)
    monkeypatch.setattr('scroll.heads.rounded.cho_solve', lambda *_: np.full(right.shape, 1e-30))
    with refused('these sums'):
        solve(gram, 2**33, right, -50)


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
    shift = 2**bits - below
    exact = Fraction(2**40, shift + 5)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length() - 40
    assert solve(np.array([[5]]), shift, np.array([[2**40]]), exponent).tolist() == [
        [round(exact / Fraction(2) ** exponent)]
    ]


def test_quotients_are_rounded_half_to_even():
    values = np.array([*range(-40, 41), 2**61 - 1, 1 - 2**61])
    for times in (1, 2, 3, 7, 2**31 - 1, 2**31):
        for over in (1, 2, 3, 4, 10, 2**31 - 1, 2**31):
            part = values if times <= over else values[:-2]
            expected = [round(Fraction(int(value) * times, over)) for value in part]
            assert scaled(part, times, over).tolist() == expected


@pytest.mark.parametrize('power', [-9, -1, 0, 1, 12])
def test_the_grid_is_the_finest_one_that_holds_the_largest_number(power):
    """Numbers are at most 2^power, then a little more, then a little less."""
    square = Fraction(4) ** power
    assert grid_for(square, 47) == power - 47
    assert grid_for(square * Fraction(10**9 + 1, 10**9), 47) == power - 46
    assert grid_for(square * Fraction(10**9 - 1, 10**9), 47) == power - 47
    assert grid_for(square * 2, 47) == grid_for(square * 3, 47) == power - 46


@pytest.mark.parametrize('trace, expected', [(0, 1), (2**40, 1), (2**40 + 2, 2), (2**62, 2**22)])
def test_the_least_lambda_is_a_share_of_the_trace(trace, expected):
    assert least_shift(np.diag([trace // 2, trace // 2])) == expected
