"""The training transform of stream and buffer."""
import pytest
import torch

from scroll.embedding.images import Preprocessing
from utils.augmentations import BatchTransform

PLAIN = Preprocessing(16)


def images(count=6, size=16, channels=3):
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_the_same_seed_gives_the_same_sequence_of_batches():
    a, b, c = (BatchTransform(PLAIN, 2, True, seed) for seed in (3, 3, 4))
    first = a(images()), a(images())
    assert torch.equal(first[0], b(images())) and torch.equal(first[1], b(images()))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], c(images()))


def test_the_global_random_stream_is_left_alone():
    before = torch.get_rng_state()
    BatchTransform(PLAIN, 2, True, 0)(images())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('size', [8, 16, 21])
def test_shapes_of_a_batch_and_of_one_image(size, channels):
    transform = BatchTransform(PLAIN, 2, True, 0)
    assert transform(images(5, size, channels)).shape == (5, 3, 16, 16)
    assert transform(images(5, size, channels)[0]).shape == (3, 16, 16)


def test_one_image_is_treated_as_a_batch_of_one():
    a, b = BatchTransform(PLAIN, 2, True, 1), BatchTransform(PLAIN, 2, True, 1)
    assert torch.equal(a(images()[0]), b(images()[:1])[0])


def test_without_crop_flip_and_resizing_it_only_normalises():
    x = images()
    torch.testing.assert_close(BatchTransform(PLAIN, 0, False, 0)(x), x * 2 - 1)
    other = Preprocessing(16, (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    expected = torch.stack([(x[:, 0] - 0.1), (x[:, 1] - 0.2) / 2, (x[:, 2] - 0.3) / 4], 1)
    torch.testing.assert_close(BatchTransform(other, 0, False, 0)(x), expected)


def test_each_image_is_a_shifted_copy_filled_with_black_or_its_mirror_image():
    """Every output must be one of the 25 shifts, mirrored or not; and not all images shift alike."""
    x = images(40)
    out = (BatchTransform(PLAIN, 2, True, 0)(x) + 1) / 2
    padded = torch.nn.functional.pad(x, (2,) * 4)
    found = []
    for image, result in zip(padded, out):
        crops = {(r, c, f): image[:, r:r + 16, c:c + 16].flip(-1) if f else image[:, r:r + 16, c:c + 16]
                 for r in range(5) for c in range(5) for f in (0, 1)}
        matches = [key for key, crop in crops.items() if torch.allclose(crop, result, atol=1e-6)]
        assert len(matches) == 1
        found += matches
    assert len(set(found)) > 10 and {f for *_, f in found} == {0, 1}


def test_the_input_is_not_written_to():
    x = images()
    before = x.clone()
    BatchTransform(PLAIN, 2, True, 0)(x)
    BatchTransform(PLAIN, 0, False, 0)(x)
    assert torch.equal(x, before)
