"""Embedding: features that are a function of the pixels and psi alone, on a grid, and kept on disk
safely.
"""

import hashlib
import io
import os
import pickle
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Preprocessing
from scroll.ground.grid import GRID, quantise, sample_keys
from scroll.learners.learner import Scroll
from tests.conftest import files_below
from tests.scroll.conftest import PREPROCESSING, quick, refused, threads, tiny_net, toy_images

IMAGES = toy_images(6, seed=4)[0]  # 18


def exactly(row) -> list:
    """2^18 x / |x| in rational arithmetic, rounded to the nearest integer, ties to even."""
    row = [Fraction(value) for value in row.tolist()]
    squares = sum(value * value for value in row)
    out = []
    for value in row:
        square = value * value * GRID**2 / squares if squares else Fraction(0)
        k = isqrt(int(square))
        half = square - (k + Fraction(1, 2)) ** 2
        out.append((1 if value >= 0 else -1) * (k + (half > 0 or (half == 0 and k % 2 == 1))))
    return out


@st.composite
def near_ties(draw) -> np.ndarray:
    """float64 (N, d): rows whose first entry ends within a few roundings of half-way between two
    integers.
    """
    count = draw(st.integers(1, 6))
    dim = draw(st.integers(2, 40))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    x = random.normal(size=(count, dim)) * 10.0 ** draw(st.integers(-30, 30))
    share = (random.integers(0, GRID // 2, count) + 0.5) / GRID
    x[:, 0] = share * np.sqrt((x[:, 1:] ** 2).sum(axis=1) / (1 - share**2))
    x[:, 0] += random.integers(-3, 4, count) * np.spacing(x[:, 0])
    return x * random.choice([-1, 1], (count, dim))


LAYOUTS = [
    np.asfortranarray,
    lambda x: np.repeat(x, 3, axis=1)[:, ::3],
    lambda x: np.repeat(x, 2, axis=0)[::2],
    lambda x: np.concatenate([x[:1] * 3, x])[1:],
]


@settings(quick, max_examples=40)
@given(near_ties())
def test_the_exact_quotient_is_rounded_whatever_the_layout_and_the_batch(x):
    expected = [exactly(row) for row in x]
    assert quantise(x).tolist() == expected
    for form in LAYOUTS:
        assert quantise(form(x)).tolist() == expected
    assert [quantise(row[None])[0].tolist() for row in x] == expected
    # in whatever order squares are added
    order = np.random.default_rng(0).permutation(x.shape[1])
    assert quantise(x[:, order])[:, np.argsort(order)].tolist() == expected


def test_quantise_by_hand_at_ties_and_at_any_scale():
    """Whole numbers of length 2^19: the first entry is half of an odd number, and goes to the even
    one.
    """
    by_hand = [[157286, 209715], [0, 0], [-GRID, 0]]
    assert quantise([[3, 4], [0, 0], [-1, 0]]).tolist() == by_hand
    for first, even in {1: 0, 3: 2, -3: -2}.items():
        row = [first]
        left = 2**38 - first**2
        while left:
            row.append(isqrt(left))
            left -= row[-1] ** 2
        assert quantise([row])[0, 0] == even
        assert quantise(np.array([row]) * 2.0**-1000)[0, 0] == even
    for scale in (1e-307, 1e30, 1e308):  # squares neither overflow nor vanish
        assert quantise([[scale, scale, 0.0]]).tolist() == [[185364, 185364, 0]]


def test_what_is_no_table_of_finite_numbers_is_refused():
    for value in (np.nan, -np.inf):
        x = np.ones((9, 3))
        x[7, 2] = x[8, 0] = value
        with refused(r'sample 7\b'):
            quantise(x)
    for x in (np.ones(3), np.ones((2, 0)), 1.0, [['a']], [[1j]], [[1, 2], [3]]):
        with refused():
            quantise(x)


def test_keys_are_equal_for_equal_samples_only():
    x = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    keys = sample_keys(x)
    assert keys.dtype == np.uint64
    assert keys.shape == (4,)
    assert len(set(keys.tolist())) == 4
    for same in (np.asfortranarray(x), np.repeat(x, 2, axis=2)[:, :, ::2]):
        np.testing.assert_array_equal(sample_keys(same), keys)
    np.testing.assert_array_equal(sample_keys(x[[2, 0, 2]]), keys[[2, 0, 2]])  # sample by sample


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16', 'exact'])
def test_embedding_and_f_t_are_batch_invariant(net, dtype):
    """One image, seven or six hundred, in any order, one thread or two: the same bits for each."""
    images, labels = toy_images(200, seed=4)
    embedder = Embedder(net, PREPROCESSING, dtype, chunk=16)
    expected = embedder.features(images)
    f_T = Scroll(embedder, buffer_size=0).partial_fit(images[::9], labels[::9]).predictor()
    logits = f_T.decision_function(quantise(expected))
    order = np.random.default_rng(0).permutation(600)
    np.testing.assert_array_equal(embedder.features(images[order]), expected[order])
    for count, size, start in (1, 1, 0), (1, 7, 593), (2, 7, 300):
        part = slice(start, start + size)
        with threads(count):
            alone = embedder.features(images[part])
        np.testing.assert_array_equal(alone, expected[part])
        np.testing.assert_array_equal(f_T.decision_function(quantise(alone)), logits[part])


@pytest.mark.parametrize('channels_last', [True, False])
def test_features_are_the_networks_own(net, channels_last):
    """To rounding: the batch norms are folded."""
    with torch.no_grad():
        expected = net.features(inputs := PREPROCESSING(torch.from_numpy(IMAGES))).numpy()
    embedder = Embedder(net, PREPROCESSING, chunk=8, channels_last=channels_last)
    np.testing.assert_allclose(embedder.features(IMAGES), expected, atol=1e-5)
    np.testing.assert_allclose(
        [embedder.features(inputs), embedder.features(inputs.double())], [expected] * 2, atol=1e-5
    )
    u, keys = embedder(IMAGES)
    np.testing.assert_allclose(
        u / GRID, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5
    )
    np.testing.assert_array_equal(keys, sample_keys(IMAGES))
    assert embedder.dim == 64


def test_the_network_that_was_given_is_left_alone():
    net = tiny_net().train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    embedder = Embedder(net, PREPROCESSING, chunk=8)
    embedder(IMAGES)
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    for held in (net, embedder.pristine):
        assert all(torch.equal(before[name], tensor) for name, tensor in held.state_dict().items())
    with torch.no_grad():
        net.layer1[0].conv1.weight.zero_()
    assert embedder.pristine.layer1[0].conv1.weight.abs().sum() > 0


class TwoReaders(nn.Module):
    """A convolution read by a batch norm and by something else: it must not be folded."""

    def __init__(self, mean=0.3):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, bias=False)
        self.bn = nn.BatchNorm2d(5)
        nn.init.constant_(self.conv.weight, 0.1)
        self.bn.running_mean.fill_(mean)
        self.bn.running_var.fill_(4)
        self.eval()

    def features(self, x):
        x = self.conv(input=x)
        return (self.bn(input=x).relu() + 2 * x).mean(dim=(2, 3))


class ActivationBetween(TwoReaders):
    """An activation in place between convolution and batch norm: the tensor is the same, its
    content is not.
    """

    def __init__(self, mean=0.3):
        super().__init__(mean)
        nn.init.constant_(self.bn.weight, -1)

    def features(self, x):
        return self.bn(self.conv(x).relu_()).mean(dim=(2, 3))


@pytest.mark.parametrize(
    'make, mean', [(TwoReaders, 0.3), (ActivationBetween, 0.3), (ActivationBetween, 0.0)]
)
def test_an_embedder_of_such_a_network_gives_its_features(make, mean):
    """Also where the network maps the black image to zero, folded or not."""
    net = make(mean)
    with torch.no_grad():
        expected = net.features(PREPROCESSING(torch.from_numpy(IMAGES)))
    np.testing.assert_allclose(
        Embedder(net, PREPROCESSING, chunk=8).features(IMAGES), expected, atol=1e-5
    )


def test_the_digest_tells_apart_all_that_determines_a_feature(net):
    other = tiny_net(width=8)
    with torch.no_grad():
        other.bn1.running_mean[0] += 1e-3
    variants = [
        Embedder(net, PREPROCESSING, chunk=8),
        Embedder(other, PREPROCESSING, chunk=8),
        Embedder(net, Preprocessing(17), chunk=8),
        Embedder(net, Preprocessing(16, mean=(0.5, 0.5, 0.4)), chunk=8),
        Embedder(net, PREPROCESSING, 'bfloat16', chunk=8),
        Embedder(net, PREPROCESSING, chunk=9),
        Embedder(net, PREPROCESSING, chunk=8, channels_last=False),
    ]
    assert len({e.digest for e in variants}) == len(variants)
    options = {'crop': np.float64(1), 'keep_ratio': np.bool_(False)}
    alike = Preprocessing(np.int64(16), [0.5] * 3, tuple(np.full(3, 0.5)), **options)
    assert repr(alike) == repr(PREPROCESSING)
    equal = [
        Embedder(net, alike, chunk=8),
        Embedder(tiny_net(width=8), PREPROCESSING, chunk=8),
        variants[0].with_net(net),
    ]
    assert {e.digest for e in equal} == {variants[0].digest}


def test_large_images_are_resized_a_few_at_a_time_with_the_same_features(net):
    """64 images of 12 million pixels would be 18 GB in float64."""
    images = np.random.default_rng(0).integers(0, 256, (2, 1200, 1200, 3)).astype(np.uint8)
    sizes = []

    class Watching(Preprocessing):
        def __call__(self, images):
            sizes.append(len(images))
            return super().__call__(images)

    features = Embedder(net, Watching(16), chunk=2).features(images)
    assert sum(sizes) == 2 + 2
    assert max(sizes) < 2
    alone = Embedder(net, PREPROCESSING, chunk=2).features(list(images))
    np.testing.assert_array_equal(alone, features)


def test_a_feature_that_is_not_finite_is_refused_and_its_image_named():
    class Moody(nn.Module):
        """No number for a bright image."""

        def features(self, x):
            x = x.mean(dim=(2, 3))
            return torch.where(x > 0.9, torch.nan, x)

    images = IMAGES.copy()
    images[11] = 255
    with refused(r'sample 11\b'):
        Embedder(Moody(), PREPROCESSING, chunk=4)(images)


class Maps(nn.Module):
    def features(self, x):
        return x.mean((2, 3), keepdim=True)


@pytest.mark.parametrize(
    'params, word',
    [
        ({'dtype': 'float16'}, 'dtype'),
        ({'chunk': 0}, 'chunk'),
        ({'channels_last': 'yes'}, 'channels_last'),
        ({'device': 'abacus'}, 'device'),
        ({'device': 'cuda:99'}, 'device'),
        ({'preprocessing': Preprocessing(1)}, 'makes no features'),
        ({'net': Maps()}, r'makes no features \(N, d\)'),
        ({'cache': 3}, 'cache'),
        ({'net': nn.Linear(2, 2)}, 'net'),
        ({'preprocessing': 16}, 'preprocessing'),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(net, params, word):
    with refused(word):
        Embedder(**{'net': net, 'preprocessing': PREPROCESSING, **params})


def test_an_invalid_preprocessing_is_refused():
    for name, value in (
        ('input_size', 0),
        ('mean', 0.5),
        ('mean', (1, 2)),
        ('std', (0, 1, 1)),
        ('mean', (np.nan, 0, 0)),
        ('crop', 2.0),
    ):
        with refused(f'preprocessing {name}'):
            Preprocessing(**{'input_size': 16, name: value})


@pytest.mark.parametrize('channels_last', [False, True])
def test_a_pickle_holds_no_memory_format(net, channels_last):
    """Scikit-learn imported before torch would make it one of `__main__`."""
    embedder = Embedder(net, PREPROCESSING, channels_last=channels_last)
    state = embedder.__getstate__()
    assert not any(isinstance(value, torch.memory_format) for value in state.values())
    again = pickle.loads(pickle.dumps(embedder))
    assert again.layout == embedder.layout
    assert np.array_equal(again(IMAGES)[0], embedder(IMAGES)[0])


@pytest.fixture
def cached(net, tmp_path):
    """A function that makes an embedder with the cache in tmp_path; some features are there
    already.
    """

    def make():
        return Embedder(net, PREPROCESSING, chunk=8, cache=tmp_path)

    Scroll(make()).fit(IMAGES, np.arange(len(IMAGES))).end_part()
    return make


def test_only_what_is_missing_is_computed(cached, embedder, tmp_path):
    again = cached()
    more = 255 - IMAGES[:5]
    both = np.concatenate([IMAGES, more, more[:2]])[::-1]
    seen = []
    features = again.net.features
    again.net.features = lambda x: seen.append(x) or features(x)
    np.testing.assert_array_equal(again(IMAGES[::-1])[0], embedder(IMAGES[::-1])[0])
    assert not seen
    np.testing.assert_array_equal(again(both)[0], embedder(both)[0])
    assert len(seen) == 1  # 7 images are one chunk of 8
    again.cache.flush()
    assert len(files_below(tmp_path)) == 2
    wide = IMAGES.reshape(18, 6, 24, 3)  # of equal bytes and other shape
    np.testing.assert_array_equal(again(wide)[0], embedder(wide)[0])


def forged(table) -> bytes:
    made = io.BytesIO()
    np.save(made, table)
    return made.getvalue()


@pytest.mark.parametrize(
    'kind', ['off the grid', 'not a table', 'wider', 'record', 'torn', 'pickle']
)
def test_a_file_that_is_torn_or_forged_is_dropped_and_made_again(cached, embedder, tmp_path, kind):
    """A forged one has the name that goes with its content."""
    (path,) = files_below(tmp_path)
    content = path.read_bytes()
    table = np.load(path)
    path.unlink()
    content = {
        'off the grid': forged(table * 2),
        'not a table': forged(table[0]),
        'wider': forged(np.repeat(table, 2, axis=1)),
        'record': forged(np.zeros(3, 'i4,f8')),
        'torn': content[:-7],
        'pickle': forged(np.array([None])),
    }[kind]
    bad = path
    if kind != 'torn':
        bad = path.with_name(f'{hashlib.sha256(content).hexdigest()[:32]}.npy')
    bad.write_bytes(content)
    again = cached()
    assert not bad.exists()
    np.testing.assert_array_equal(again(IMAGES)[0], embedder(IMAGES)[0])
    again.cache.flush()
    assert files_below(tmp_path) == [path]


def test_an_entry_that_cannot_be_read_ends_nothing(cached, embedder, tmp_path):
    (folder,) = tmp_path.iterdir()
    (folder / f'{"0" * 32}.npy').mkdir()
    os.mkfifo(folder / f'{"1" * 32}.npy')
    np.testing.assert_array_equal(cached()(IMAGES)[0], embedder(IMAGES)[0])


@pytest.mark.parametrize(
    'change',
    [
        lambda patch, _: patch.setattr(np, '__version__', '1.0'),
        lambda patch, _: patch.setenv('ONEDNN_MAX_CPU_ISA', 'DEFAULT'),
        lambda patch, _: patch.setattr(torch.backends.mkldnn, 'enabled', False),
        lambda _, rounding: rounding(torch.backends.mkldnn.conv, 'bf16'),
        lambda patch, _: patch.setattr(torch.backends.cuda, 'flash_sdp_enabled', bool),
    ],
    ids=['numpy', 'instructions', 'library', 'precision', 'attention'],
)
def test_what_floating_point_features_depend_on_is_in_their_digest(
    net, monkeypatch, rounding, change
):
    """And an embedder that was made before is not used."""
    before = Embedder(net, PREPROCESSING)
    rounding(torch.backends.mkldnn.matmul, 'ieee')  # as runs set it: no other numbers
    assert Embedder(net, PREPROCESSING).digest == before.digest
    change(monkeypatch, rounding)
    assert Embedder(net, PREPROCESSING).digest != before.digest
    with refused('hold on .*, and here is .*: make another'):
        before(IMAGES)


def test_instances_share_a_folder_and_one_that_cannot_be_written_is_refused(
    net, cached, embedder, monkeypatch, tmp_path
):
    one = cached()
    two = cached()
    one(255 - IMAGES[:9])
    two(255 - IMAGES[6:])
    one.cache.flush()
    two.cache.flush()
    third = cached()
    monkeypatch.setattr(third.net, 'features', None)  # it computes nothing
    np.testing.assert_array_equal(third(255 - IMAGES)[0], embedder(255 - IMAGES)[0])
    (tmp_path / 'file').write_text('')
    with refused('file.*--feature_cache 0'):
        closed = Embedder(net, PREPROCESSING, chunk=8, cache=tmp_path / 'file')
        closed(IMAGES)
        closed.cache.flush()
