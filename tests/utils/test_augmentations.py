"""Augmentations: the transform of stream and buffer, and what methods apply to batches."""

import pytest
import torch
from torchvision import transforms

from scroll.embedding.images import Preprocessing
from tests.utils.conftest import MEAN, STD, bytes_of, images, match, moved
from utils.augmentations import (
    BatchTransform,
    apply_transform,
    for_batches,
    normalize,
    random_crop,
    random_flip,
)

PLAIN = Preprocessing(16)


def test_the_same_seed_gives_the_same_sequence_of_batches_and_the_global_stream_is_left_alone():
    before = torch.get_rng_state()
    x = images()
    copy = x.clone()
    a, b, c = (BatchTransform(PLAIN, 2, True, seed) for seed in (3, 3, 4))
    first = a(x), a(x)
    assert torch.equal(first[0], b(x))
    assert torch.equal(first[1], b(x))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], c(x))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(x, copy)


@pytest.mark.parametrize('size, channels', [(8, 3), (16, 1), (21, 3)])
def test_shapes_of_a_batch_and_of_one_image_which_is_a_batch_of_one(size, channels):
    a, b = (BatchTransform(PLAIN, 2, True, 0) for _ in range(2))
    x = images(5, size, channels=channels)
    one = a(x[0])
    assert one.shape == (3, 16, 16)
    assert torch.equal(one, b(x[:1])[0])
    assert a(x).shape == (5, 3, 16, 16)


def test_without_crop_flip_and_resizing_it_only_normalises():
    x = images()
    torch.testing.assert_close(BatchTransform(PLAIN, 0, False, 0)(x), x * 2 - 1)
    other = Preprocessing(16, MEAN, STD)
    torch.testing.assert_close(
        BatchTransform(other, 0, False, 0)(x), transforms.Normalize(MEAN, STD)(x)
    )
    torch.testing.assert_close(normalize(x, MEAN, STD), transforms.Normalize(MEAN, STD)(x))
    torch.testing.assert_close(
        normalize(x[0], torch.tensor(MEAN), list(STD)), transforms.Normalize(MEAN, STD)(x[0])
    )


def test_each_image_is_a_shifted_copy_filled_with_black_or_its_mirror_image():
    """And not all images shift alike."""
    x = images(40)
    out = (BatchTransform(PLAIN, 2, True, 0)(x) + 1) / 2
    moves = [match(moved(image, 2), result) for image, result in zip(x, out)]
    assert len(set(moves)) > 10
    assert 10 < sum(move >= 25 for move in moves) < 30
    assert len({match(moved(a, 2, mirrored=False), b) for a, b in zip(x, random_crop(x, 2))}) > 10


class Counting:
    """Remembers the shapes it is called with."""

    def __init__(self, **attributes):
        self.shapes = []
        vars(self).update(attributes)

    def __call__(self, x):
        self.shapes.append(tuple(x.shape))
        return x


@pytest.mark.parametrize(
    'module, attributes, calls',
    [
        ('', {'batched': True}, [(6, 3, 16, 16)]),
        ('', {}, [(3, 16, 16)] * 6),
        ('kornia.augmentation', {}, [(6, 3, 16, 16)]),
    ],
)
def test_apply_transform_hands_batches_to_what_takes_them(module, attributes, calls):
    """It says so, or is kornia's."""
    transform = type('Own', (Counting,), {'__module__': module})(**attributes)
    x = images()
    assert torch.equal(apply_transform(x, transform), x)
    assert transform.shapes == calls
    assert apply_transform(x[:1], transform, autosqueeze=True).shape == (3, 16, 16)
    assert apply_transform(x, transform, autosqueeze=True).shape == (6, 3, 16, 16)
    assert torch.equal(apply_transform(x[0], transform, autosqueeze=True), x[0])
    assert apply_transform(x[:1], None).shape == (1, 3, 16, 16)


def test_apply_transform_through_pil_gives_each_image_its_own_randomness():
    pipeline = transforms.Compose(
        [transforms.ToPILImage(), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    x = images(64)
    flipped = [
        match(torch.stack([a, a.flip(-1)]), b) for a, b in zip(x, apply_transform(x, pipeline))
    ]
    assert 10 < sum(flipped) < 54


def test_floats_of_a_third_party_buffer_go_through_our_transform_as_its_images_do():
    a, b = (BatchTransform(PLAIN, 2, True, 3) for _ in range(2))
    torch.testing.assert_close(apply_transform(bytes_of(images()), a), apply_transform(images(), b))


def test_a_compose_of_torchvision_serves_whole_batches():
    """Each image draws for itself, values are torchvision's, and a step without a batched form is
    taken image by image.
    """
    some = torch.rand(64, 3, 6, 6)
    plain = transforms.Compose(
        [
            transforms.ToPILImage(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
        ]
    )
    nested = transforms.Compose([transforms.ToPILImage(), transforms.Compose(plain.transforms[1:])])
    assert torch.equal(for_batches(nested)(some), for_batches(plain)(some))
    assert torch.allclose(
        for_batches(plain)(some), torch.stack([plain.transforms[-1](image) for image in some])
    )
    steps = [transforms.RandomCrop(6, padding=2), transforms.RandomHorizontalFlip()]
    theirs = for_batches(transforms.Compose(steps))
    torch.manual_seed(0)
    drawn = theirs(some)
    torch.manual_seed(0)
    assert torch.equal(drawn, random_flip(random_crop(some, 2)))
    grey = for_batches(transforms.Compose([transforms.Grayscale(3), transforms.RandomCrop(4)]))
    assert grey(some).shape == (64, 3, 4, 4)
    assert grey(some[0]).shape == (3, 4, 4)

    def own(image):
        return image

    for other in (None, own, transforms.Compose([own])):
        assert for_batches(other) is other
