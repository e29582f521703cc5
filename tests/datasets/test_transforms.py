"""Denormalisation, permutation and rotation."""
import numpy as np
import pytest
import torch
from torchvision.transforms import Normalize
from torchvision.transforms.functional import rotate

from datasets.transforms.denormalization import DeNormalize
from datasets.transforms.permutation import FixedPermutation, Permutation
from datasets.transforms.rotation import FixedRotation, Rotation, turned

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
    assert sorted(order.tolist()) == list(range(12)) != order.tolist()
    assert torch.equal(fixed(y).flatten(), y.flatten()[order]) and torch.equal(FixedPermutation(5)(y), fixed(y))
    assert not torch.equal(FixedPermutation(6)(y), fixed(y)) and fixed(torch.rand(1, 3, 3)).shape == (1, 3, 3)


def test_random_transforms_draw_when_they_are_made():
    """Worker processes see different first images."""
    np.random.seed(1)
    permutation, rotation = Permutation(), Rotation(10, 20)
    after = np.random.get_state()[2]
    x = torch.rand(1, 4, 4)
    first = permutation(x)
    rotation(x)
    assert np.random.get_state()[2] == after and torch.equal(permutation(x), first) and 10 <= rotation.degrees <= 20
    assert Permutation().seed != permutation.seed
    fixed = FixedRotation(3, 90, 90)
    assert torch.equal(fixed(x), x.rot90(1, (1, 2))) and FixedRotation(3).degrees != FixedRotation(4).degrees


def test_each_image_is_turned_by_its_own_angle():
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 6)).astype(np.uint8)
    for k, (image, out) in enumerate(zip(images, turned(images, 90.0 * np.arange(5)))):
        np.testing.assert_array_equal(out, np.rot90(image, k))
    large, angles = images.repeat(6, 1).repeat(6, 2), np.array([10.0, 33.0, 100.0, 215.0, 301.0])
    theirs = [rotate(torch.from_numpy(image)[None], angle)[0].numpy() for image, angle in zip(large, angles)]
    out = turned(large, angles)
    assert (out == np.stack(theirs)).mean() > 0.99 and (out != large).mean() > 0.5
