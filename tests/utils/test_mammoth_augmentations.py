"""Augmentations that files written for Mammoth take from `utils.augmentations`."""
import pytest
import torch
from torchvision import transforms

from scroll.embedding.images import Preprocessing
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

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 1.0, 2.0)


def images(count=6, size=16):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def denormalised(x):
    return x * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)


def shifts(image, padding):
    """Every shift of an image (C, H, W), and its mirror image."""
    size = image.shape[-1]
    padded = torch.nn.functional.pad(image, (padding,) * 4)
    crops = [padded[:, r:r + size, c:c + size] for r in range(2 * padding + 1) for c in range(2 * padding + 1)]
    return torch.stack([*crops, *(crop.flip(-1) for crop in crops)])


def test_flip_mirrors_about_half_of_the_images():
    x = images(1000, 4)
    out = random_flip(x)
    same = (out == x).all(dim=(1, 2, 3))
    assert 420 < same.sum() < 580 and torch.equal(out[~same], x[~same].flip(-1))


def test_crop_shifts_each_image_by_its_own_way():
    x = images(60, 8)
    out = random_crop(x, 2)
    found = [(shifts(a, 2)[:25] == b).all(dim=(1, 2, 3)).nonzero().flatten().tolist() for a, b in zip(x, out)]
    assert all(len(f) == 1 for f in found) and len({f[0] for f in found}) > 12


def test_grayscale_takes_the_colours_of_a_share_of_the_images():
    x = images(1000, 4)
    out = random_grayscale(x, 0.2)
    changed = (out != x).any(dim=3).any(dim=2).any(dim=1)
    assert 150 < changed.sum() < 250
    expected = transforms.Grayscale(3)(x[changed])
    torch.testing.assert_close(out[changed], expected, atol=2e-4, rtol=0)


def test_normalize_is_torchvisions_on_a_batch_and_on_one_image():
    x = images()
    torch.testing.assert_close(normalize(x, MEAN, STD), transforms.Normalize(MEAN, STD)(x))
    torch.testing.assert_close(normalize(x[0], torch.tensor(MEAN), list(STD)), transforms.Normalize(MEAN, STD)(x[0]))


def test_the_global_seed_fixes_what_is_drawn_and_the_input_stays_as_it_was():
    x = images()
    before = x.clone()
    for transform in (random_flip, lambda y: random_crop(y, 2), random_grayscale, soft_aug(MEAN, STD), strong_aug(16, MEAN, STD)):
        results = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            results.append(transform(x))
        assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert torch.equal(x, before)


def test_soft_aug_is_a_shift_or_mirror_image_normalised():
    x = images(20)
    for image, result in zip(x, denormalised(soft_aug(MEAN, STD)(x))):
        assert (shifts(image, 4) - result).abs().amax(dim=(1, 2, 3)).min() < 1e-6


def test_strong_aug_makes_different_views_of_each_image_in_range():
    x = images(1).expand(64, -1, -1, -1)                    # as with repeat_interleave: each copy has random numbers of its own
    out = denormalised(strong_aug((12, 20), MEAN, STD)(x))
    assert out.shape == (64, 3, 12, 20) and out.min() > -1e-5 and out.max() < 1 + 1e-5
    assert len({tuple(view.flatten().tolist()) for view in out}) == 64
    grey = ((out - out.mean(1, keepdim=True)).abs().amax(dim=(1, 2, 3)) < 1e-5).float().mean()
    assert 0.05 < grey < 0.4


def test_strong_aug_of_a_flat_red_image_changes_nothing_but_colours():
    x = torch.tensor([0.6, 0.2, 0.1]).view(1, 3, 1, 1).expand(8, 3, 16, 16)
    out = strong_aug(16, MEAN, STD)(x)
    torch.testing.assert_close(out, out[:, :, :1, :1].expand_as(out), atol=1e-5, rtol=0)


@pytest.mark.parametrize('transform', [BatchCompose([lambda x: x * 2]), soft_aug(MEAN, STD), strong_aug(16, MEAN, STD)])
def test_uint8_batches_float_batches_and_single_images(transform):
    x = (images() * 255).to(torch.uint8)                    # (B, C, H, W)
    results = []
    for batch in (x.permute(0, 2, 3, 1), x.float() / 255):
        torch.manual_seed(0)
        results.append(transform(batch))
    assert torch.equal(*results) and results[0].shape == (6, 3, 16, 16)
    torch.manual_seed(5)
    one = transform(x[:1].float() / 255)
    torch.manual_seed(5)
    assert torch.equal(transform(x[0].float() / 255), one[0])


def test_repeated_gives_the_result_of_each_transform_in_order():
    x = images()
    twice = RepeatedTransform([BatchCompose([lambda y: y * 2]), None, transforms.CenterCrop(4)])
    for views in (twice(x), apply_transform(x, twice)):
        assert torch.equal(views[0], x * 2) and torch.equal(views[1], x) and torch.equal(views[2], x[:, :, 6:10, 6:10])
    assert [view.shape for view in RepeatedTransform([None] * 2, autosqueeze=True)(x[:1])] == [(3, 16, 16)] * 2


def test_repeated_random_views_differ():
    a, b = RepeatedTransform([soft_aug(MEAN, STD)] * 2)(images())
    assert not torch.equal(a, b)


def test_double_compose_passes_pairs_on():
    def both(first, second):
        return first.flip(-1), second.flip(-1)
    x, labels = images(1)[0], torch.arange(16.0).view(1, 4, 4)
    first, second = DoubleCompose([DoubleTransform(transforms.Normalize(MEAN, STD)), both, DoubleTransform(lambda y: y + 1)])(x, labels)
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


@pytest.mark.parametrize('transform, calls', [(Counting(batched=True), [(6, 3, 16, 16)]), (Counting(), [(3, 16, 16)] * 6),
                                              (Counting(batched=False), [(3, 16, 16)] * 6)])
def test_apply_transform_hands_batches_to_what_declares_it_takes_them(transform, calls):
    x = images()
    assert torch.equal(apply_transform(x, transform), x) and transform.shapes == calls


def test_apply_transform_through_pil_gives_each_image_its_own_randomness():
    pipeline = transforms.Compose([transforms.ToPILImage(), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    x = (images(64) * 255).floor() / 255
    out = apply_transform(x, pipeline)
    same = ((out - x).abs() < 1e-6).all(dim=(1, 2, 3))
    mirrored = ((out - x.flip(-1)).abs() < 1e-6).all(dim=(1, 2, 3))
    assert (same ^ mirrored).all() and 10 < same.sum() < 54


@pytest.mark.parametrize('transform', [None, BatchCompose([]), lambda image: image])
def test_autosqueeze_unpacks_a_batch_of_one_only(transform):
    x = images()
    assert apply_transform(x[:1], transform, autosqueeze=True).shape == (3, 16, 16)
    assert apply_transform(x, transform, autosqueeze=True).shape == (6, 3, 16, 16)
    assert apply_transform(x[:1], transform).shape == (1, 3, 16, 16)


def test_floats_of_a_foreign_buffer_go_through_our_transform_as_its_images_do():
    raw = (images() * 255).to(torch.uint8).permute(0, 2, 3, 1)
    a, b = (BatchTransform(Preprocessing(16), 2, True, 3) for _ in range(2))
    torch.testing.assert_close(apply_transform(raw, a), apply_transform(raw.permute(0, 3, 1, 2).float() / 255, b))
