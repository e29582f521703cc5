"""Changes of images: one image at a time, torchvision does the same."""
import colorsys

import pytest
import torch
from torchvision.transforms import functional as tv

from tests.models.conftest import seeded
from tests.utils.conftest import images
from utils import image_ops as ops


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('name, numbers', [
    ('brightness', (0, 0.5, 1, 1.3, 2, 4)), ('contrast', (0, 0.5, 1, 1.3, 2, 4)),
    ('saturation', (0, 0.5, 1, 1.3, 2, 4)),
    ('hue', (-0.5, -0.21, 0, 0.1, 0.34, 0.5))])
def test_each_image_is_adjusted_by_its_own_number_as_torchvision_does_it(name, numbers, channels):
    x = images(6, 12, 16, channels)
    expected = torch.stack([getattr(tv, f'adjust_{name}')(image, number) for image,
                            number in zip(x, numbers)])
    result = getattr(ops, f'adjust_{name}')(x, torch.tensor(numbers))
    # torchvision's weights of grey add up to 0.9999
    torch.testing.assert_close(result, expected, atol=5e-4, rtol=0)
    assert result.min() >= 0 and result.max() <= 1


def test_hue_of_pure_colours_greys_and_ties_by_the_standard_library():
    colours = [(r, g, b) for r in (0.0, 0.4, 1.0) for g in (0.0, 0.4, 1.0) for b in (0.0, 0.4, 1.0)]
    x = torch.tensor(colours).view(-1, 3, 1, 1)
    expected = []
    for colour in colours:
        h, s, v = colorsys.rgb_to_hsv(*colour)
        expected.append(colorsys.hsv_to_rgb((h + 0.3) % 1, s, v))
    torch.testing.assert_close(ops.adjust_hue(x, torch.full((27,), 0.3))[:, :, 0, 0], torch.tensor(expected))


def test_grey_has_the_weights_of_bt601():
    torch.testing.assert_close(ops.grey(torch.eye(3).view(3, 3, 1, 1)).flatten(),
                               torch.tensor([0.299, 0.587, 0.114]))


def test_crop_takes_each_window_from_its_own_corner():
    x, top, left = images(3, 12, 16), torch.tensor([0, 3, 7]), torch.tensor([8, 0, 2])
    expected = torch.stack([tv.crop(image, t, c, 5, 8) for image, t,
                            c in zip(x, top.tolist(), left.tolist())])
    assert torch.equal(ops.crop(x, top, left, 5, 8), expected)


@pytest.mark.parametrize('size', [(8, 8), (16, 16), (5, 21)])
def test_resized_crop_is_torchvisions_bilinear_antialiased_one(size):
    x = images(5, 12, 16)
    boxes = [(0, 0, 12, 16), (3, 2, 4, 9), (11, 15, 1, 1), (2, 1, 10, 3), (5, 0, 7, 16)]
    expected = torch.stack([tv.resized_crop(image, *box, list(size), antialias=True) for image,
                            box in zip(x, boxes)])
    torch.testing.assert_close(ops.resized_crop(x, *torch.tensor(boxes).T, size), expected, atol=1e-5, rtol=0)


def test_random_boxes_fit_and_have_the_area_and_shape_asked_for():
    top, left, height, width = ops.random_boxes(4000, 60, 80, (0.2, 0.5), (0.5, 2.0), seeded())
    assert (top >= 0).all() and (top + height <= 60).all() and (left >= 0).all()
    assert (left + width <= 80).all()
    area, shape = height * width / 4800, width / height
    assert 0.19 < area.min() < 0.21 and 0.48 < area.max() < 0.51 and abs(area.mean() - 0.35) < 0.01
    assert 0.48 < shape.min() < 0.55 and 1.8 < shape.max() < 2.07 and abs(shape.log().mean()) < 0.05
    assert (top == 0).any() and (top + height == 60).any() and (left == 0).any()
    assert (left + width == 80).any()


def test_a_box_that_never_fits_is_the_largest_central_one_of_the_nearest_shape():
    """As torchvision has it: of an image 10 high and 100 wide, with a shape of at
    most 4/3, rows 0..9 and 13 columns."""
    boxes = ops.random_boxes(3, 10, 100, (1.0, 1.0), (3 / 4, 4 / 3), seeded())
    assert [b.tolist() for b in boxes] == [[0] * 3, [44] * 3, [10] * 3, [13] * 3]


def test_sometimes_changes_each_image_or_not():
    x = torch.ones(2000, 1, 2, 2)
    out = ops.sometimes(lambda batch: batch * 0, x, 0.3, seeded())
    assert 0.65 < out.mean() < 0.75 and {image.mean().item() for image in out} == {0.0, 1.0}
    assert torch.equal(ops.sometimes(lambda batch: batch * 0, x, 0.0), x)
    assert not ops.sometimes(lambda batch: batch * 0, x, 1.0).any()


def test_jitter_stays_in_its_ranges_and_differs_from_image_to_image():
    x = torch.full((500, 3, 2, 2), 0.5)
    factors = ops.random_jitter(x, brightness=(0.6, 1.4), generator=seeded())[:, 0, 0, 0] / 0.5
    assert 0.6 <= factors.min() < 0.62 and 1.38 < factors.max() <= 1.4001
    assert torch.equal(ops.random_jitter(x), x)


def test_jitter_is_a_product_of_the_four_changes_in_some_order():
    x = images(2, 12, 16)
    out = ops.random_jitter(x, (0.5, 0.5), (1.5, 1.5), (0.2, 0.2), (0.1, 0.1), seeded(3))
    steps = [lambda y: tv.adjust_brightness(y, 0.5), lambda y: tv.adjust_contrast(y, 1.5),
             lambda y: tv.adjust_saturation(y, 0.2), lambda y: tv.adjust_hue(y, 0.1)]
    expected = x
    for i in torch.randperm(4, generator=seeded(3)).tolist():
        expected = torch.stack([steps[i](image) for image in expected])
    torch.testing.assert_close(out, expected, atol=1e-3, rtol=0)
