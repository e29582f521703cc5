"""Adaptation: f* from f_T and the buffer; the start, the first step, what each mode trains, and
that bits repeat.
"""

import copy
from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch import nn

from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import adapt
from scroll.embedding import precision
from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Augmentation
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID
from scroll.heads.predictors import ncc
from scroll.heads.scaling import better_than_guessing, fit_scale
from scroll.learners.learner import Scroll
from scroll.sums.exemplars import Exemplars
from scroll.sums.statistics import Statistics
from tests.scroll.conftest import PREPROCESSING, make_stream, quick

PLAIN = Augmentation(padding=0, flip=False)


def parts(embedder, images, labels) -> tuple:
    """Statistics of the images, and all of them as a buffer's content."""
    features, keys = embedder(images)
    statistics = Statistics(features.shape[1]).add(features, labels)
    return statistics, Exemplars(labels, keys, features, images)


@pytest.fixture(scope='module')
def f_T(embedder, toy):
    return ncc(parts(embedder, *toy)[0])


@pytest.fixture(scope='module')
def buffer(embedder, toy):
    return parts(embedder, *toy)[1]


@pytest.fixture
def run(embedder, f_T, buffer):
    """adapt() on the toy images, two updates of six samples unless told otherwise."""

    def call(seed=0, embedder=embedder, left_out=None, **settings):
        settings = Adaptation(**{'iterations': 2, 'minibatch': 6, **settings})
        return adapt(embedder, f_T, buffer, settings, seed, left_out=left_out)

    return call


def cross_entropy(logits, targets):
    return -log_softmax(logits, axis=1)[np.arange(len(targets)), targets].mean()


@quick
@given(st.integers(2, 30), st.integers(2, 5), st.integers(0, 99), st.sampled_from([0.1, 1, 20]))
def test_the_calibrated_scale_minimises_cross_entropy(count, classes, seed, spread):
    r = np.random.default_rng(seed)
    logits = spread * r.normal(size=(count, classes))
    targets = r.integers(0, classes, count)
    logits[np.arange(count), targets] += spread * r.uniform(0, 2)
    scale = fit_scale(logits, targets)
    best = min(cross_entropy(s * logits, targets) for s in np.geomspace(1e-2, 1e3, 400))
    assert 1e-2 <= scale <= 1e3
    assert cross_entropy(scale * logits, targets) <= best * (1 + 1e-5) + 1e-6


@quick
@given(st.integers(1, 30), st.sampled_from([1, 2, 4]), st.integers(0, 99))
def test_logits_are_better_than_guessing_if_a_small_scale_is(count, classes, seed):
    r = np.random.default_rng(seed)
    logits = r.integers(-3, 4, size=(count, classes))
    targets = r.integers(0, classes, count)
    gain = np.log(classes) - cross_entropy(1e-5 * logits, targets)
    # a slope, if not 0, is 1 / (30 * 4) or more
    assert better_than_guessing(logits, targets) == (gain > 1e-9)


def test_a_start_that_says_nothing_of_the_labels_keeps_its_scale(f_T, run, embedder, toy):
    """The scale of least cross-entropy would be next to nothing, and with it all gradients but its
    own.
    """
    logits = f_T.decision_function(embedder(toy[0])[0])
    best = fit_scale(logits, toy[1])
    assert run(iterations=0, scale=2, left_out=-logits).initial_scale == 2 < best
    calibrated = run(iterations=0, scale=2, left_out=logits)
    unit = calibrated.weight[0, 0] / f_T.weight[0, 0]  # of weights as long as those of ridge
    assert calibrated.initial_scale == pytest.approx(best / unit)
    assert log2(unit) == round(log2(unit))


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_without_updates_f_star_is_f_T(run, embedder, f_T, toy, mode):
    f_star = run(mode=mode, iterations=0, adapter_scale=0, calibrate=False)
    np.testing.assert_allclose(
        f_star.decision_function(toy[0]), f_T.decision_function(embedder(toy[0])[0]), atol=1e-5
    )
    assert f_star.losses.shape == (0,)
    assert f_star.scale == 1
    assert f_star.mode == mode


def by_hand(f_T, buffer, scale):
    """Gradients of the cross-entropy at the start, in float64: of weight, bias and scale."""
    u = buffer.features / GRID
    logits = u @ f_T.weight.T + f_T.bias
    targets = np.eye(len(f_T.classes))[buffer.labels]
    error = (np.exp(log_softmax(scale * logits, axis=1)) - targets) / len(u)  # (N, K)
    return scale * error.T @ u, scale * error.sum(axis=0), (error * logits).sum()


def first_step(gradient, lr):
    """AdaDelta from rest, rho 0.9, eps 1e-6."""
    return lr * np.sqrt(1e-6) / np.sqrt(0.1 * gradient**2 + 1e-6) * gradient


@pytest.fixture(scope='module')
def flat():
    """f_T and a buffer of features, without a network."""
    stream = make_stream(np.arange(12) % 3)
    order = np.lexsort((stream.keys, stream.labels))
    part = stream.part(order)
    predictor = ncc(Statistics(5).add(*stream[:2]))
    return predictor, Exemplars(part.labels, part.keys, part.features, part.features)


@pytest.mark.parametrize('learn_scale, minibatch', [(None, 12), (True, 50), (False, 50)])
def test_the_first_update_of_a_classifier_of_features_by_hand(flat, learn_scale, minibatch):
    f_T, buffer = flat
    rates = {'scale': 2.0, 'classifier_lr': 0.5, 'scale_lr': 3.0, 'learn_scale': learn_scale}
    how = Adaptation(
        iterations=1, minibatch=minibatch, calibrate=False, prior=0.0, averaging=False, **rates
    )
    f_star = adapt(None, f_T, buffer, how)
    weight, bias, scale = by_hand(f_T, buffer, 2.0)
    np.testing.assert_allclose(f_star.weight, f_T.weight - first_step(weight, 0.5), atol=1e-6)
    np.testing.assert_allclose(f_star.bias, f_T.bias - first_step(bias, 0.5), atol=1e-6)
    moved = 0 if learn_scale is False else first_step(scale, 3.0)
    assert f_star.scale == pytest.approx(2 - moved, abs=1e-6)
    logits = buffer.features / GRID @ f_T.weight.T + f_T.bias
    assert f_star.losses == pytest.approx([cross_entropy(2 * logits, buffer.labels)], rel=1e-5)
    assert f_star.mode == 'classifier'
    assert f_star.embedder is None
    assert np.abs(first_step(weight, 0.5)).max() > 1e-4  # above the tolerance


def equal_tensors(one: dict, two: dict) -> set:
    """Names of the tensors of two state dicts that are equal, bit for bit."""
    return {name for name in one if torch.equal(one[name], two[name])}


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_psi_the_predictor_and_the_buffer_are_left_alone(run, embedder, f_T, buffer, mode):
    before = copy.deepcopy([net.state_dict() for net in (embedder.pristine, embedder.net)])
    digests = (embedder.digest, f_T.digest(), buffer.digest())
    samples = buffer.samples.copy()
    run(mode=mode)
    for state, net in zip(before, (embedder.pristine, embedder.net)):
        assert equal_tensors(state, net.state_dict()) == state.keys()
    assert digests == (embedder.digest, f_T.digest(), buffer.digest())
    np.testing.assert_array_equal(samples, buffer.samples)
    assert not embedder.pristine.training
    assert not any(p.requires_grad for p in embedder.pristine.parameters())


def test_adapters_change_the_centres_of_the_blocks_kernels_and_no_batch_norm(run, embedder):
    after = run(mode='adapters').embedder.net.state_dict()
    for name, tensor in embedder.net.state_dict().items():
        changed = (after[name] != tensor).nonzero()
        if '.conv' in name and name.endswith('weight'):
            assert len(changed)
            assert (changed[:, 2:] == 1).all()
        else:
            assert not len(changed), name


def test_full_tuning_changes_every_parameter_but_the_head_and_the_batch_norm_statistics(
    run, embedder
):
    f_star = run(mode='full', lr=0.1)
    states = [e.pristine.state_dict() for e in (embedder, f_star.embedder)]
    assert equal_tensors(*states) == {'classifier.weight', 'classifier.bias'}


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_equal_input_gives_equal_bits_and_another_seed_other_ones(run, toy, mode):
    torch.manual_seed(1)
    one = run(mode=mode)
    torch.manual_seed(2)
    two = run(mode=mode)
    other = run(mode=mode, seed=1)
    assert one.digest() == two.digest() != other.digest()
    np.testing.assert_array_equal(one.losses, two.losses)
    np.testing.assert_array_equal(one.decision_function(toy[0]), two.decision_function(toy[0]))


def test_f_star_has_the_running_mean_of_the_parameters(flat):
    """Weight 3 / (t + 2) for the t-th: 1, 3/4, 3/5."""

    def weights(**how):
        settings = Adaptation(minibatch=12, classifier_lr=5.0, prior=0.0, **how)
        return adapt(None, *flat, settings).weight

    one, two, three = (weights(iterations=n, averaging=False) for n in (1, 2, 3))
    mean = (3 * three + 2 * (3 * two + one) / 4) / 5
    np.testing.assert_allclose(weights(iterations=3), mean, rtol=1e-5)
    assert np.abs(mean - three).max() > 1e-3


def test_f_star_goes_the_further_from_f_T_the_more_exemplars_there_are(flat):
    """12 beside a prior of 36: a quarter of the way. f_T is sure here, so targets are labels."""
    sure = 100.0 * np.eye(3)[flat[1].labels]

    def weights(prior, iterations):
        how = Adaptation(iterations=iterations, minibatch=12, classifier_lr=5.0, prior=prior)
        return adapt(None, *flat, how, left_out=sure).weight

    start, far, near = (weights(*how) for how in ((0.0, 0), (0.0, 2), (36.0, 2)))
    np.testing.assert_allclose(near - start, (far - start) / 4, atol=1e-6)
    assert np.abs(far - start).max() > 1e-3


@pytest.mark.parametrize('prior', [0.0, 12.0, 1e9])
def test_targets_are_labels_and_leave_one_out_probabilities(flat, prior):
    """The loss before the first step; the only sample of a class has its label alone."""
    f_T, buffer = flat
    left_out = np.random.default_rng(0).normal(size=(12, 3)) + 2 * np.eye(3)[buffer.labels]
    left_out[0, buffer.labels[0]] = -np.inf
    how = Adaptation(iterations=1, minibatch=12, prior=prior)
    share = prior / (prior + 12)
    f_star = adapt(None, f_T, buffer, how, left_out=left_out)
    scale = fit_scale(left_out, buffer.labels)
    targets = np.eye(3)[buffer.labels]
    told = np.exp(log_softmax(scale * left_out[1:], axis=1))
    targets[1:] = (1 - share) * targets[1:] + share * told
    logits = scale * (buffer.features / GRID @ f_T.weight.T + f_T.bias)
    loss = -(targets * log_softmax(logits, axis=1)).sum(axis=1).mean()
    assert f_star.losses == pytest.approx([loss], rel=1e-5)


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_bfloat16_rounds_products_and_its_f_star_says_so(run, toy, mode):
    plain, coarse, again = (
        run(mode=mode, precision=precision) for precision in ('float32', 'bfloat16', 'bfloat16')
    )
    assert coarse.made_on == f'{plain.made_on}, bfloat16'
    assert coarse.embedder.dtype == 'bfloat16'
    assert coarse.digest() == again.digest() != plain.digest()
    assert coarse.weight.dtype == plain.weight.dtype == np.float32
    logits = [f_star.decision_function(toy[0]) for f_star in (plain, coarse)]
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.05 * np.abs(logits[0]).max()


@pytest.mark.parametrize(
    'limit, units, expected',
    [
        (None, 'amx_bf16', 'bfloat16'),
        (None, 'avx512_bf16', 'bfloat16'),
        (None, 'avx512_vnni', 'float32'),
        ('AVX512_CORE_AMX', 'amx_bf16', 'bfloat16'),
        ('AVX512_CORE_BF16', 'avx512_bf16', 'bfloat16'),
        ('AVX512_CORE_BF16', 'amx_bf16', 'float32'),
        ('AVX512_CORE_VNNI', 'avx512_bf16', 'float32'),
        ('AVX2', 'amx_bf16', 'float32'),
    ],
)
def test_precision_auto_is_bfloat16_where_there_are_units_for_it(
    monkeypatch, tmp_path, limit, units, expected
):
    about = tmp_path / 'cpuinfo'
    about.write_text(f'flags : avx2 {units} amx_int8\n')
    monkeypatch.setattr(precision, 'CPU_INFO', about)
    monkeypatch.delenv('ONEDNN_MAX_CPU_ISA', raising=False)
    if limit:
        monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', limit)
    assert precision.resolve_precision('auto') == expected
    assert [precision.resolve_precision(name) for name in ('float32', 'bfloat16')] == [
        'float32',
        'bfloat16',
    ]


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU()
        self.first = nn.Sequential(nn.Sequential(*layers, nn.Conv2d(8, 9, 1)))

    def features(self, x):
        return self.first(x).mean((2, 3))


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_depthwise_networks_are_adapted_in_bfloat16(toy, mode):
    how = Adaptation(mode, iterations=2, precision='bfloat16')
    learner = Scroll(Embedder(Depthwise(), PREPROCESSING), adaptation=how)
    f_star = learner.partial_fit(*toy).adapt().adapted_
    assert f_star.embedder.dtype == 'bfloat16'
    assert np.isfinite(f_star.decision_function(toy[0])).all()


def test_exact_adaptation_has_no_other_precision(run):
    with pytest.raises(InputError, match=r'bfloat16.*exact'):
        Adaptation(exact=True, precision='bfloat16')
    assert run(exact=True, precision='auto').made_on == 'every machine'


def test_string_labels_and_classes_that_left_the_buffer(embedder, toy):
    """The buffer holds two of three classes; the columns are those of f_T."""
    names = np.array(['ant', 'bee', 'cat'])
    statistics, buffer = parts(embedder, toy[0], names[toy[1]])
    few = buffer.at(np.flatnonzero(toy[1]))
    f_star = adapt(embedder, ncc(statistics), few, Adaptation(iterations=1, augmentation=PLAIN))
    assert f_star.classes.tolist() == names.tolist()
    logits = f_star.decision_function(toy[0])
    assert logits.shape == (24, 3)
    assert (logits.argmax(axis=1) == toy[1]).mean() > 0.8


@pytest.mark.parametrize(
    'settings',
    [
        {'lr': 1e30},
        {'lr': 1e37, 'iterations': 1, 'mode': 'full'},
        {'classifier_lr': 1e38, 'iterations': 4},
        {'scale_lr': 1e38, 'iterations': 1},
    ],
    ids=str,
)
def test_divergence_is_refused_or_everything_is_finite(run, toy, settings):
    words = ''
    try:
        logits = run(**settings).decision_function(toy[0])
    except InputError as error:
        words = str(error)
    assert 'lower' in words or np.isfinite(logits).all()


@pytest.mark.parametrize(
    'buffered, updates',
    [(1, 75), (20, 75), (60, 90), (200, 300), (600, 300), (700, 350), (2000, 1000), (5000, 1000)],
)
def test_updates_follow_from_the_buffer_unless_they_are_given(buffered, updates):
    assert Adaptation().updates(buffered) == updates
    assert Adaptation(iterations=7).updates(buffered) == 7
