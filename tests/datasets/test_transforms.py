"""Denormalisation, permutation and rotation."""
import numpy as np
import pytest
import torch
from torchvision.transforms import Normalize
from torchvision.transforms.functional import rotate

from datasets.transforms.denormalization import DeNormalize
from datasets.transforms.permutation import FixedPermutation, Permutation
from datasets.transforms.rotation import FixedRotation, IncrementalRotation, Rotation, turned

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 2.0, 1.0)


@pytest.mark.parametrize('shape', [(3, 5, 4), (2, 3, 5, 4)])
def test_denormalising_undoes_normalising(shape):
    x = torch.rand(shape)
    normal = Normalize(MEAN, STD)(x)
    kept = normal.clone()
    assert torch.allclose(DeNormalize(MEAN, STD)(normal), x, atol=1e-6) and torch.equal(normal, kept)


def test_a_permutation_moves_values_the_same_way_each_time():
    x, y = torch.arange(12.).view(3, 2, 2), torch.rand(3, 2, 2)
    fixed = FixedPermutation(5)
    order = fixed(x).flatten().long()
    assert sorted(order.tolist()) == list(range(12)) != order.tolist() and torch.equal(fixed(y).flatten(), y.flatten()[order])
    assert torch.equal(FixedPermutation(5)(y), fixed(y)) and not torch.equal(FixedPermutation(6)(y), fixed(y))
    assert fixed(torch.rand(1, 3, 3)).shape == (1, 3, 3)


def test_what_is_drawn_is_drawn_when_the_transform_is_made():
    """Worker processes see different first images."""
    np.random.seed(1)
    permutation, rotation = Permutation(), Rotation(10, 20)
    after = np.random.get_state()[2]
    x = torch.rand(1, 4, 4)
    first = permutation(x)
    rotation(x)
    assert np.random.get_state()[2] == after and torch.equal(permutation(x), first) and 10 <= rotation.degrees <= 20
    assert Permutation().seed != permutation.seed


def test_rotations():
    x = torch.rand(1, 6, 6)
    fixed = FixedRotation(3, 90, 90)
    assert torch.equal(fixed(x), x.rot90(1, (1, 2))) and FixedRotation(3).degrees == FixedRotation(3).degrees != FixedRotation(4).degrees
    slow = IncrementalRotation(0, 90)
    assert torch.equal(slow(x), x) and torch.equal(slow(x), rotate(x, 90)) and slow.degrees == 180


@pytest.mark.parametrize('size', [12, (3, 2, 2), [3, 4]])
def test_a_permutation_of_a_given_size_takes_images_of_that_size(size):
    x = torch.arange(12.).view(3, 2, 2)
    permute = Permutation(size)
    assert sorted(permute(x).flatten().tolist()) == list(range(12)) and permute(x).shape == x.shape
    with pytest.raises(ValueError, match='12.*9 values'):
        permute(torch.zeros(1, 3, 3))


def test_each_image_is_turned_by_its_own_angle():
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6)).astype(np.uint8)
    quarters = np.arange(5)
    for image, out, k in zip(images, turned(images, 90.0 * quarters), quarters):
        np.testing.assert_array_equal(out, np.rot90(image, k))
    angles = np.array([10.0, 33.0, 100.0, 215.0, 301.0])
    out = turned(images.repeat(6, 1).repeat(6, 2), angles)
    theirs = torch.stack([rotate(torch.from_numpy(image)[None], angle)[0] for image, angle in
                          zip(images.repeat(6, 1).repeat(6, 2), angles)]).numpy()
    assert (out == theirs).mean() > 0.99 and (out != images.repeat(6, 1).repeat(6, 2)).mean() > 0.5
