"""The grid: numbers as float32, what is refused, and the rows that `quantise` can have made."""

import hashlib
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scroll.ground.grid import GRID, check_quantised, intake, on_grid, quantise, sample_keys
from tests.conftest import refused
from tests.scroll.conftest import quick

SMALLEST = 2.0**-126


def nearest(row) -> list:
    """2^18 x / |x|, rounded to the nearest, ties to even, by whole numbers."""
    scaled = [Fraction(float(value)) for value in row]
    squares = sum(value * value for value in scaled)
    out = []
    for value in scaled:
        square = value * value * GRID * GRID / squares if squares else Fraction(0)
        low = isqrt(square.numerator // square.denominator)
        middle = Fraction(2 * low + 1, 2) ** 2
        up = square > middle or (square == middle and low % 2)
        out.append((low + up) * (1 if value >= 0 else -1))
    return out


@quick
@given(
    st.lists(st.lists(st.integers(-40, 40), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(-60, 60),
)
def test_quotients_of_small_numbers_are_rounded_exactly(rows, power):
    x = np.array(rows) * 2.0**power
    assert quantise(x).tolist() == [nearest(row) for row in x]


@pytest.mark.parametrize('dim', [2, 7, 60])
def test_quotients_next_to_ties_are_rounded_exactly(dim):
    """The last number puts the first at half of a multiple, or a last bit from there."""
    r = np.random.default_rng(dim)
    for odd in r.integers(1, GRID, 40) | 1:
        row = np.zeros(dim)
        row[0] = odd
        row[1] = np.sqrt(4.0 * GRID * GRID - float(odd) ** 2)
        for moved in (row[1], np.nextafter(row[1], 0), np.nextafter(row[1], np.inf)):
            row[1] = moved
            assert quantise([row]).tolist() == [nearest(row)]


def test_ties_go_to_the_even_neighbour():
    """Halves of a row of length 2^19."""
    row = [1, 3, 5, -7, 524_287, 1023, 39, -21]
    assert quantise([row]).tolist() == [[0, 2, 2, -4, 262_144, 512, 20, -10]]


@pytest.mark.parametrize(
    'dtype, least', [('f4', SMALLEST), ('f8', 2.0**-1022), ('f2', 2.0**-24), ('i8', 1)]
)
def test_denormals_and_rows_of_zeros_stay_zero(dtype, least):
    x = np.array([[least, 0], [least / 4, 0], [0, 0]]).astype(dtype)
    assert quantise(x).tolist() == [[GRID, 0], [0, 0], [0, 0]]


def test_rows_wide_huge_or_of_other_types_are_quantised():
    assert quantise([[3e200, 4e200], [3e-200, 4e-200]]).tolist() == [[157286, 209715]] * 2
    assert (quantise(np.ones((2, 40_000))) == 1311).all()  # 2^18 / 200 = 1310.72
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        assert quantise(torch.tensor([[3.0, 4.0]], dtype=dtype)).tolist() == [[157286, 209715]]
    x = np.array([[1.5 + 1e-9, GRID]])  # float32 has 1.5
    assert quantise(x).tolist() == [[2, GRID]]
    assert quantise(x, as_float32=True).tolist() == [[1, GRID]]


def test_errors_count_from_the_first_sample_of_the_stream():
    x = np.ones((3, 40_000))
    for value, said in (np.nan, 'sample 6 are not'), (1e39, 'sample 6 has'):
        x[1:, 7] = value
        with refused(said):
            quantise(x, as_float32=True, first=5)


@pytest.mark.parametrize(
    'value, expected',
    [
        (SMALLEST, SMALLEST),
        (SMALLEST * (1 + 2.0**-23), SMALLEST * (1 + 2.0**-23)),
        (SMALLEST - 2.0**-150, SMALLEST),  # which float32 rounds up
        (np.nextafter(SMALLEST - 2.0**-150, 0), 0.0),
        (2.0**-149, 0.0),
        (0.0, 0.0),
        (np.inf, np.inf),
    ],
)
@pytest.mark.parametrize('flush', [False, True])
def test_numbers_that_float32_holds_in_full_are_kept_and_smaller_ones_are_zero(
    value, expected, flush
):
    torch.set_flush_denormal(flush)
    try:
        out = intake(np.array([[value, -value, 1.0]]))
    finally:
        torch.set_flush_denormal(False)
    assert out.dtype == np.float32
    assert out.astype(np.float64).tolist() == [[expected, -expected, 1.0]]
    assert not np.signbit(out[0, 1]) or expected


def test_whole_numbers_and_what_is_no_number_come_as_they_are():
    assert intake(np.array([[1, -3]])).tolist() == [[1.0, -3.0]]
    words = np.array([['a']])
    assert intake(words) is words


def test_the_first_sample_beyond_float32_is_named():
    x = np.ones((4, 2))
    x[2, 1] = -1e39
    x[1, 0] = np.nan  # which is refused later
    x[3, 0] = 1e39
    with refused('sample 2', 'float32'):
        intake(x)


@pytest.mark.parametrize(
    'x, said',
    [
        ([1.0, 2.0], '(2,)'),
        (np.ones((2, 0)), '(2, 0)'),
        (np.ones((2, 1, 1)), '(2, 1, 1)'),
        ([['a', 'b']], 'numbers'),
        ([[1j]], 'complex'),
        ([[0.0], [np.nan], [np.inf]], 'sample 1'),
        ([[1.0, 0.0], [np.inf, 0.0]], 'sample 1'),
        ([[1.0], [1.0, 2.0]], 'numbers'),
    ],
)
def test_what_is_no_table_of_finite_numbers_is_refused(x, said):
    with refused(said):
        quantise(x)


def test_features_on_the_grid():
    edge = [[GRID, -GRID]]
    assert on_grid(edge).tolist() == edge
    assert on_grid(np.zeros((0, 3), np.int32), 3).shape == (0, 3)
    for x, dim, said in (
        (edge, 3, '2 features'),
        ([[0.5]], None, 'float64'),
        ([1, 2], None, '(2,)'),
        ([[GRID + 1]], None, 'off the grid'),
        ([[0, -GRID - 1]], None, 'off the grid'),
    ):
        with refused(said):
            on_grid(x, dim)


@pytest.mark.parametrize('dim', [1, 4, 100])
def test_lengths_that_rounding_can_give_are_taken_and_the_next_ones_refused(dim):
    """Each of d numbers is rounded by a half at most, so the length by half of the root of d."""
    unit = np.eye(dim, dtype=int)[0]
    least = int(np.ceil(GRID - dim**0.5 / 2))
    check_quantised(np.outer([0, least, GRID], unit))
    for wrong in (least - 1, 1):
        with refused('sample 1', 'length'):
            check_quantised(np.outer([0, wrong, wrong], unit))


def test_keys_are_digests_of_the_bytes_of_each_sample_lowest_byte_first():
    x = np.arange(6, dtype='>i4').reshape(2, 3)
    expected = [
        int.from_bytes(hashlib.sha256(row.astype('<i4').tobytes()).digest()[:8], 'big') for row in x
    ]
    assert sample_keys(x).tolist() == sample_keys(np.asfortranarray(x)).tolist() == expected
    assert sample_keys([b'no', b'no']).tolist() == sample_keys(np.array([b'no'])).tolist() * 2
    assert sample_keys(x[:0]).tolist() == []
    assert sample_keys(x).dtype == np.uint64
