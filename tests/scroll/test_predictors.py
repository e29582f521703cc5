"""Linear predictors against scikit-learn, against their defining equations in exact arithmetic, and
by hand.
"""

import hashlib
import os
import subprocess
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scroll import Scroll
from scroll.ground.grid import GRID, quantise
from scroll.ground.settings import NCC_BIASES
from scroll.heads.discriminants import lda
from scroll.heads.predictors import (
    LinearPredictor,
    exact_lambda,
    ncc,
    random_weights,
    ridge,
    ridge_system,
)
from scroll.heads.registry import HEADS
from scroll.heads.ridge_lambda import choose_lambda
from scroll.sums.lift import Lift
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import counted, in_units, left_out, make_stream, quick, refused, streams

STREAM = make_stream(np.random.default_rng(1).integers(0, 4, 60), dim=8)


def exact_ncc(s, bias: str, exponent: int) -> list:
    """Weights and biases from fractions, rounded."""
    factor = {'exact': Fraction(-1, 2), 'paper': -1, 'zero': 0}[bias]
    rows = []
    for class_sum, count in zip(s.sums[:, :-1].tolist(), s.counts.tolist()):
        mean = [Fraction(total, count * GRID) for total in class_sum]
        rows.append([*mean, factor * sum(value * value for value in mean)])
    return in_units(rows, exponent)


@quick
@given(streams(), st.sampled_from(NCC_BIASES))
def test_ncc_is_the_exact_quotient_rounded(stream, bias):
    s = counted(stream.features, stream.labels)
    ours = ncc(s, bias)
    assert ours.units.tolist() == exact_ncc(s, bias, ours.exponent)
    assert np.abs(ours.units).max() <= 2**47


def test_ncc_counts_the_longest_streams_and_halves_to_even():
    """2^27 samples a class; centroids that lie in the middle between two numbers of the grid, or
    close to it."""
    sums = [[2**45, 2**45 - 1, -(2**45) + 3, 1, 2**45], [1, 2, -1, 3 << 18, 3 << 18]]
    s = Statistics(4)
    s.assign(np.arange(2), np.array([2**27, 3]), np.array(sums), np.zeros((5, 5), np.int64))
    ours = ncc(s)
    assert ours.units.tolist() == exact_ncc(s, 'exact', ours.exponent)


@quick
@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(0, 46),
    st.sampled_from([None, 'relu', 'fourier']),
    st.integers(0, 9999),
)
def test_labels_are_those_of_exact_logits_also_where_classes_are_nearly_tied(
    dim, classes, bits, lift, seed
):
    """Classes that differ from one another by a few units, or a few bits, or not at all; some far
    below the others.
    """
    r = np.random.default_rng(seed)
    lift = lift and Lift(lift, dim, 5)
    size = dim + (5 if lift else 0) + 1
    units = np.tile(r.integers(-1 << bits, 1 << bits, size), (classes, 1))
    units += r.integers(-2, 3, units.shape) * r.choice([0, 1, 1 << bits // 2], (classes, 1))
    units[r.random(classes) < 0.2] = -1 << bits
    features = quantise(r.normal(size=(9, dim)) * (r.random((9, dim)) < 0.7))
    h = features if lift is None else lift(features)
    exact = np.hstack([h, np.full((9, 1), GRID)]).astype(object) @ units.T.astype(object)
    found = LinearPredictor(np.arange(classes), units, -40, lift).predict(features)
    assert found.tolist() == [row.index(max(row)) for row in exact.tolist()]


@quick
@given(st.integers(1, 9), st.sampled_from([0, 2.0**-27, 2.0**-17, 1e-4, 1]), st.integers(0, 999))
def test_vectors_are_predicted_as_those_that_are_quantised(classes, apart, seed):
    """Rows of any length, nearly or quite tied; labels that are not 0, 1, 2, ..."""
    r = np.random.default_rng(seed)
    units = np.rint(2.0**30 * (r.normal(size=6) + apart * r.normal(size=(classes, 6))))
    head = LinearPredictor(np.arange(classes) * 3, units.astype(np.int64), -30)
    X = r.normal(size=(300, 5)) * 2.0 ** r.integers(-20, 20, (300, 1))
    for rows in (X, X.astype(np.float32), np.rint(X).astype(int), X[:0], np.r_[X, 0 * X[:1]]):
        expected = head.predict(quantise(rows, True))
        np.testing.assert_array_equal(head.predict_vectors(rows), expected)
    with refused('features of sample 7 are not finite'):
        head.predict_vectors(np.r_[X[:7], [[1, np.nan, 1, 1, 1]], X])


def test_predicting_many_samples_of_many_classes_needs_no_memory_for_all_logits():
    predictor = LinearPredictor(np.arange(1000), np.outer(np.arange(1000), [0, 0, 0, 0, 1]), 0)
    features = np.zeros((8000, 4), np.int32)
    tracemalloc.start()
    assert (predictor.predict(features) == 999).all()
    assert tracemalloc.get_traced_memory()[1] < 8 * 1000 * 8000 / 2
    tracemalloc.stop()


def test_lambda_is_a_multiple_of_the_unit_of_the_gram_matrix_and_the_least_is_named_and_serves():
    """The least is 2^-40 of the trace, whatever a factorisation in float64 makes of it."""
    assert exact_lambda(0.1) == 6871947674 / 2**36 == exact_lambda(exact_lambda(0.1))
    assert exact_lambda(2.0**-36) == 2.0**-36
    s = counted(STREAM.features, STREAM.labels)
    assert ridge(s, 0.1).digest() == ridge(s, exact_lambda(0.1)).digest()
    least = -(-int(np.trace(s.gram)) >> 40) / 2**36
    with refused('use a larger one, .* or more') as caught:
        ridge(s, least / 2)
    for enough in (least, float(str(caught.value).split()[-3])):
        assert np.isfinite(ridge(s, enough).weight).all()


def fingerprint() -> str:
    """Digest of heads and logits on 100 features whose Gram matrix has eigenvalues over 18 orders
    of magnitude."""
    r = np.random.default_rng(0)
    sha = hashlib.sha256()
    mixed = r.normal(size=(200, 100)) @ (r.normal(size=(100, 100)) * 2.0 ** -np.arange(0, 30, 0.3))
    features = quantise(np.maximum(mixed, 0) + 1e-9)
    labels = np.arange(200) % 7
    s = counted(features, labels)
    for f_T in (
        ridge(s, 0.1),
        ridge(s, 1e-6, 'onehot'),
        ridge(s, choose_lambda(ridge_system(s, 'pm1'))),
        ncc(s),
    ):
        sha.update(f_T.digest().encode() + f_T.decision_function(features).tobytes())
    for name in ('ridge', 'ncc', 'lda', 'balanced', 'qda'):
        sums = Statistics(100, by_class=HEADS[name].by_class).add(features, labels)
        sha.update(left_out(name, sums, features[:50], labels[:50]).tobytes())
    for head in ('rp', 'lda'):
        learner = Scroll(head=head, buffer_size=0, lift_dim=20).fit(features[:, :40], labels)
        sha.update(learner.out_of_sample(features[:, :40], labels).tobytes())
    return sha.hexdigest()


@pytest.mark.slow
def test_digests_and_logits_are_those_of_another_machine():
    """The vector units of an old processor, other BLAS kernels, other threads: a process of its
    own."""
    variables = {
        'ONEDNN_MAX_CPU_ISA': 'SSE41',
        'ATEN_CPU_CAPABILITY': 'default',
        'MKL_CBWR': 'COMPATIBLE',
        'OMP_NUM_THREADS': '2',
        'OPENBLAS_CORETYPE': 'Nehalem',
        'NPY_DISABLE_CPU_FEATURES': 'AVX512F AVX512CD AVX512_SKX AVX2 FMA3',
        'PYTHONPATH': os.pathsep.join(sys.path),
    }
    call = 'from tests.scroll.test_predictors import fingerprint; print(fingerprint())'
    there = subprocess.check_output(
        [sys.executable, '-c', call], env={**os.environ, **variables}, text=True
    )
    assert there.strip() == fingerprint()


@pytest.mark.parametrize(
    'head, more', [(lda, ['oas']), (ncc, []), (random_weights, [0]), (ridge_system, ['pm1'])]
)
def test_before_the_first_sample_there_is_no_head(head, more):
    with refused('first sample'):
        head(Statistics(8), *more)
