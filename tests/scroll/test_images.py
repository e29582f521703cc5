"""Resizing that is exact, augmentation that moves pixels as it claims."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import functional as reference

from scroll.embedding.images import Augmentation, Preprocessing, check_images
from scroll.embedding.transforms import (
    colour_jitter,
    random_crop,
    random_flip,
    resize,
    resize_matrix,
)
from tests.scroll.conftest import quick, refused


def pictures(count=6, size=12, low=0, high=256, channels=3):
    shape = count, size, size, channels
    return np.random.default_rng(0).integers(low, high, shape).astype(np.uint8)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize('size_in, size_out', [(32, 42), (84, 42), (42, 42)])
def test_resize_agrees_with_pillow(size_in, size_out):
    """Values that keep clear of the ends of the range: Pillow clips between its two passes, we do
    not.
    """
    images = pictures(4, size_in, 50, 206)
    ours = Preprocessing(size_out).to_unit_range(torch.from_numpy(images)).numpy()
    for image, mine in zip(images, ours):
        theirs = Image.fromarray(image).resize((size_out, size_out), Image.Resampling.LANCZOS)
        np.testing.assert_allclose(255 * mine.transpose(1, 2, 0), np.asarray(theirs), atol=1.5)


@quick
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(0, 99))
def test_resize_of_8_bit_images_equals_integer_arithmetic(height, width, size, seed):
    images = np.random.default_rng(seed).integers(0, 256, (2, 3, height, width))
    rows, columns = (
        np.rint(resize_matrix(n, size) * 2**15).astype(np.int64) for n in (height, width)
    )
    ours = resize(torch.from_numpy(images).double(), size).numpy() * 2.0**30
    np.testing.assert_array_equal(ours, rows @ images @ columns.T)


@pytest.mark.parametrize('size_in, size_out', [(192, 8), (4, 64)])
def test_bicubic_weights_are_exact_quotients_rounded_also_where_they_are_ties(size_in, size_out):
    """Keys 1981 in rational arithmetic. In two of the cases a sum in another order puts ties on the
    other side.
    """

    def kernel(x):
        x = abs(x)
        if x < 1:
            return ((3 * x - 5) * x * x + 2) / 2
        return (((5 - x) * x - 8) * x + 4) / 2 if x < 2 else Fraction(0)

    scale = Fraction(size_in, size_out)
    half = Fraction(1, 2)
    expected = []
    ties = 0
    for place in range(size_out):
        weights = [
            kernel((i + half - (place + half) * scale) / max(scale, 1)) for i in range(size_in)
        ]
        total = sum(weights)
        weights = [weight and weight / total * 2**15 for weight in weights]
        ties += sum(weight.denominator == 2 for weight in weights)
        row = [round(weight) for weight in weights]  # ties to even
        row[row.index(max(row))] += 2**15 - sum(row)
        expected.append(row)
    assert ties
    np.testing.assert_array_equal(
        resize_matrix(size_in, size_out, interpolation='bicubic') * 2**15, expected
    )


def test_lanczos_weights_do_not_depend_on_the_sine_of_the_machine(monkeypatch):
    usual = np.sinc
    sizes = ((32, 84), (84, 56), (500, 224), (7, 64))
    for name in ('sin', 'sinc'):
        monkeypatch.setattr(np, name, np.ones_like)
    for size_in, size_out in sizes:
        scale = size_in / size_out
        x = (np.arange(size_in) + 0.5 - (np.arange(size_out)[:, None] + 0.5) * scale) / max(
            scale, 1
        )
        weights = usual(x) * usual(x / 3) * (np.abs(x) < 3)
        found = resize_matrix(size_in, size_out) * 2**15
        assert (found.sum(axis=1) == 2**15).all()
        assert (found == np.rint(found)).all()
        off = np.abs(found - weights / weights.sum(axis=1, keepdims=True) * 2**15)
        # the largest of a row takes the remainder
        assert np.sort(off, axis=1)[:, :-1].max() <= 0.5 + 1e-6


def test_grey_images_are_three_equal_channels():
    grey = pictures(channels=1)
    preprocessing = Preprocessing(20)
    expected = preprocessing(torch.from_numpy(grey.repeat(3, axis=3)))
    for given_ in (grey, grey[..., 0]):
        assert torch.equal(preprocessing(torch.from_numpy(given_)), expected)
    with refused('the network takes grey ones'):
        Preprocessing(20, (0.5,), (0.5,))(torch.from_numpy(pictures(channels=3)))


@pytest.mark.parametrize(
    'images',
    [
        np.zeros((2, 4, 4, 3), np.float32),
        np.zeros((2, 4, 4, 2), np.uint8),
        np.zeros(3, np.uint8),
        np.zeros((4, 4, 3), np.uint8),  # one, not four grey ones
        [[1, 2]],
        None,
        np.zeros((2, 0, 4, 3), np.uint8),
        np.ma.masked_equal(np.zeros((2, 4, 4, 3), np.uint8), 0),
    ],
    ids=lambda x: f'{getattr(x, "dtype", type(x).__name__)}{list(getattr(x, "shape", []))}',
)
def test_what_is_no_uint8_image_is_refused(images):
    with refused():
        check_images(images)


def test_images_may_lie_on_another_device():
    """Such a tensor refuses to be an array until it is copied to the CPU."""

    class Elsewhere:
        def __array__(self, *_, **__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def cpu(self):
            return torch.ones(2, 4, 4, 3, dtype=torch.uint8)

    assert np.array_equal(check_images(Elsewhere()), np.ones((2, 4, 4, 3), np.uint8))


@pytest.mark.parametrize('dtype', [torch.float32, torch.uint8])
def test_crops_and_flips_are_those_of_the_textbook_image_by_image(dtype):
    """Make the same draws, in the same order, and nothing else drawn: results of earlier versions
    hold.
    """
    images = (255 * torch.rand(20, 7, 9, 3)).to(dtype).permute(0, 3, 1, 2)
    ours = generator(7)
    theirs = generator(7)
    before = images.clone()
    cropped = random_crop(images, 2, ours)
    shift = torch.randint(0, 5, (2, len(images), 1), generator=theirs)[..., 0].T.tolist()
    padded, (height, width) = torch.nn.functional.pad(images, (2,) * 4), images.shape[-2:]
    expected = [image[:, i : i + height, j : j + width] for image, (i, j) in zip(padded, shift)]
    assert cropped.shape == images.shape
    assert all(map(torch.equal, cropped, expected))
    flipped = random_flip(cropped, ours)
    coins = torch.rand(len(images), generator=theirs) < 0.5
    for new, old, coin in zip(flipped, expected, coins):
        assert torch.equal(new, old.flip(-1) if coin else old)
    assert torch.equal(ours.get_state(), theirs.get_state())
    assert torch.equal(images, before)


def test_colour_jitter_agrees_with_torchvision():
    images = torch.rand(8, 3, 9, 9)
    factors = 1 + 0.4 * (2 * torch.rand(3, 8, generator=generator(5)) - 1)
    expected = images
    for change, factor in zip(
        (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation),
        factors,
    ):
        expected = torch.stack([change(x, float(f)) for x, f in zip(expected, factor)])
    torch.testing.assert_close(
        colour_jitter(images, 0.4, generator(5)), expected, atol=2e-3, rtol=0
    )
    assert torch.equal(colour_jitter(images, 0, generator()), images)


def test_augmentation_is_its_parts_in_order():
    """On the normalised tensor, so that the padding is zero, which is mid-grey."""
    images = torch.from_numpy(pictures())
    preprocessing = Preprocessing(14)
    one = generator(1)
    two = generator(1)
    expected = colour_jitter(preprocessing.to_unit_range(images), 0.3, one)
    expected = random_flip(random_crop(preprocessing.normalise(expected), 2, one), one)
    assert torch.equal(
        Augmentation(padding=2 / 14, jitter=0.3)(images, preprocessing, two), expected
    )


@pytest.mark.parametrize('channels, size', [(1, 12), (3, 20)])
def test_neither_preprocessing_nor_augmentation_changes_its_input(channels, size):
    images = torch.from_numpy(pictures(channels=channels))
    before = images.clone()
    augmented = Augmentation(jitter=0.5)(images, Preprocessing(size), generator())
    Preprocessing(size)(images).zero_()
    assert torch.equal(images, before)
    assert augmented.shape == (6, 3, size, size)
    assert augmented.dtype == torch.float32


@pytest.mark.parametrize(
    'interpolation, sizes', [('lanczos', (40, 64)), ('bicubic', (64, 40)), ('bilinear', (50, 50))]
)
def test_resampling_weights_are_exact_and_the_middle_is_the_middle(interpolation, sizes):
    whole = resize_matrix(*sizes, interpolation=interpolation)
    assert (whole * 2**15 == np.rint(whole * 2**15)).all()
    assert (whole.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(resize_matrix(*sizes, sizes[1] - 2, interpolation), whole[1:-1])
