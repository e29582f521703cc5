"""Augmentations: those of stream and buffer, and those that files written for Mammoth
take from `utils.augmentations`."""
import pytest
import torch
from torchvision import transforms

from scroll.embedding.images import Preprocessing
from tests.utils.conftest import MEAN, STD, bytes_of, images, match, moved
from utils.augmentations import (
    BatchCompose,
    BatchTransform,
    DoubleCompose,
    DoubleTransform,
    RepeatedTransform,
    apply_transform,
    normalize,
    random_crop,
    random_flip,
    random_grayscale,
    soft_aug,
    strong_aug,
)

PLAIN = Preprocessing(16)
OURS = [soft_aug(MEAN, STD), strong_aug(16, MEAN, STD)]


def denormalised(x):
    return x * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)


# -- the training transform of stream and buffer
# -----------------------------------------------------------------------

def test_the_same_seed_gives_the_same_sequence_of_batches_and_the_global_stream_is_left_alone():
    before, x = torch.get_rng_state(), images()
    copy = x.clone()
    a, b, c = (BatchTransform(PLAIN, 2, True, seed) for seed in (3, 3, 4))
    first = a(x), a(x)
    assert torch.equal(first[0], b(x)) and torch.equal(first[1], b(x))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], c(x))
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(x, copy)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('size', [8, 16, 21])
def test_shapes_of_a_batch_and_of_one_image_which_is_a_batch_of_one(size, channels):
    a, b = (BatchTransform(PLAIN, 2, True, 0) for _ in range(2))
    x = images(5, size, channels=channels)
    one = a(x[0])
    assert one.shape == (3, 16, 16) and torch.equal(one, b(x[:1])[0]) and a(x).shape == (5, 3, 16, 16)


def test_without_crop_flip_and_resizing_it_only_normalises():
    x = images()
    torch.testing.assert_close(BatchTransform(PLAIN, 0, False, 0)(x), x * 2 - 1)
    other = Preprocessing(16, (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    expected = torch.stack([(x[:, 0] - 0.1), (x[:, 1] - 0.2) / 2, (x[:, 2] - 0.3) / 4], 1)
    torch.testing.assert_close(BatchTransform(other, 0, False, 0)(x), expected)


def test_each_image_is_a_shifted_copy_filled_with_black_or_its_mirror_image():
    """And not all images shift alike."""
    x = images(40)
    out = (BatchTransform(PLAIN, 2, True, 0)(x) + 1) / 2
    found = {match(moved(image, 2), result) for image, result in zip(x, out)}
    assert len(found) > 10 and {i >= 25 for i in found} == {True, False}


# -- Mammoth's
# ---------------------------------------------------------------------------------------------------------

def test_flip_mirrors_about_half_of_the_images():
    x = images(1000, 4)
    out = random_flip(x)
    same = (out == x).all(dim=(1, 2, 3))
    assert 420 < same.sum() < 580 and torch.equal(out[~same], x[~same].flip(-1))


def test_crop_shifts_each_image_by_its_own_way():
    x = images(60, 8)
    assert len({match(moved(a, 2, mirrored=False), b) for a, b in zip(x, random_crop(x, 2))}) > 12


def test_grayscale_takes_the_colours_of_a_share_of_the_images():
    x = images(1000, 4)
    out = random_grayscale(x, 0.2)
    changed = (out != x).any(dim=3).any(dim=2).any(dim=1)
    assert 150 < changed.sum() < 250
    torch.testing.assert_close(out[changed], transforms.Grayscale(3)(x[changed]), atol=2e-4, rtol=0)


def test_normalize_is_torchvisions_on_a_batch_and_on_one_image():
    x = images()
    torch.testing.assert_close(normalize(x, MEAN, STD), transforms.Normalize(MEAN, STD)(x))
    torch.testing.assert_close(normalize(x[0], torch.tensor(MEAN), list(STD)),
                               transforms.Normalize(MEAN, STD)(x[0]))


@pytest.mark.parametrize('transform', [random_flip, lambda y: random_crop(y, 2), random_grayscale, *OURS])
def test_the_global_seed_fixes_what_is_drawn_and_the_input_stays_as_it_was(transform):
    x, results = images(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(transform(x))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert torch.equal(x, images())


def test_soft_aug_is_a_shift_or_mirror_image_normalised():
    x = images(20)
    for image, result in zip(x, denormalised(soft_aug(MEAN, STD)(x))):
        assert (moved(image, 4) - result).abs().amax(dim=(1, 2, 3)).min() < 1e-6


def test_strong_aug_makes_different_views_of_each_image_in_range():
    x = images(1).expand(64, -1, -1, -1)  # as with repeat_interleave: each copy has random numbers of its own
    out = denormalised(strong_aug((12, 20), MEAN, STD)(x))
    assert out.shape == (64, 3, 12, 20) and out.min() > -1e-5 and out.max() < 1 + 1e-5
    assert len({tuple(view.flatten().tolist()) for view in out}) == 64
    grey = ((out - out.mean(1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-5).float().mean()
    assert 0.05 < grey < 0.4
    flat = strong_aug(16, MEAN, STD)(torch.tensor([0.6, 0.2, 0.1]).view(1, 3, 1, 1).expand(8, 3, 16, 16))
    # colours alone change
    torch.testing.assert_close(flat, flat[:, :, :1, :1].expand_as(flat), atol=1e-5, rtol=0)


@pytest.mark.parametrize('transform', [BatchCompose([lambda x: x * 2]), *OURS])
def test_uint8_batches_float_batches_and_single_images(transform):
    x, results = images(), []
    for batch in (bytes_of(x), x, x[:1], x[0]):
        torch.manual_seed(0)
        results.append(transform(batch))
    assert torch.equal(*results[:2]) and results[0].shape == (6, 3, 16, 16)
    assert torch.equal(results[2][0], results[3])


def test_repeated_gives_the_result_of_each_transform_in_order():
    x = images()
    twice = RepeatedTransform([BatchCompose([lambda y: y * 2]), None, transforms.CenterCrop(4)])
    for views in (twice(x), apply_transform(x, twice)):
        assert torch.equal(views[0], x * 2) and torch.equal(views[1], x)
        assert torch.equal(views[2], x[:, :, 6:10, 6:10])
    assert [view.shape
            for view in RepeatedTransform([None] * 2, autosqueeze=True)(x[:1])] == [(3, 16, 16)] * 2
    assert not torch.equal(*RepeatedTransform([soft_aug(MEAN, STD)] * 2)(x))


def test_double_compose_passes_pairs_on():
    def both(first, second):
        return first.flip(-1), second.flip(-1)
    x, labels = images(1)[0], torch.arange(16.0).view(1, 4, 4)
    first, second = DoubleCompose([DoubleTransform(transforms.Normalize(MEAN, STD)), both,
                                   DoubleTransform(lambda y: y + 1)])(x, labels)
    torch.testing.assert_close(first, transforms.Normalize(MEAN, STD)(x).flip(-1) + 1)
    assert torch.equal(second, labels.flip(-1))


class Counting:
    """Remembers the shapes it is called with."""

    def __init__(self, **attributes):
        self.shapes = []
        vars(self).update(attributes)

    def __call__(self, x):
        self.shapes.append(tuple(x.shape))
        return x


@pytest.mark.parametrize('attributes, calls',
                         [(dict(batched=True), [(6, 3, 16, 16)]), ({}, [(3, 16, 16)] * 6),
                                               (dict(batched=False), [(3, 16, 16)] * 6)])
def test_apply_transform_hands_batches_to_what_declares_it_takes_them(attributes, calls):
    transform = Counting(**attributes)
    assert torch.equal(apply_transform(images(), transform), images()) and transform.shapes == calls


def test_apply_transform_through_pil_gives_each_image_its_own_randomness():
    pipeline = transforms.Compose([transforms.ToPILImage(), transforms.RandomHorizontalFlip(),
                                   transforms.ToTensor()])
    x = images(64)
    flipped = [match(torch.stack([a, a.flip(-1)]), b) for a, b in zip(x, apply_transform(x, pipeline))]
    assert 10 < sum(flipped) < 54


@pytest.mark.parametrize('transform', [None, BatchCompose([]), lambda image: image])
def test_autosqueeze_unpacks_a_batch_of_one_only(transform):
    x = images()
    assert apply_transform(x[:1], transform, autosqueeze=True).shape == (3, 16, 16)
    assert apply_transform(x, transform, autosqueeze=True).shape == (6, 3, 16, 16)
    assert apply_transform(x[:1], transform).shape == (1, 3, 16, 16)


def test_floats_of_a_third_party_buffer_go_through_our_transform_as_its_images_do():
    a, b = (BatchTransform(PLAIN, 2, True, 3) for _ in range(2))
    torch.testing.assert_close(apply_transform(bytes_of(images()), a), apply_transform(images(), b))
