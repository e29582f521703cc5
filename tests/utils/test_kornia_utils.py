"""torchvision pipelines for one image, as one callable for a batch: what it gives must be what they give."""
import pytest
import torch
from torchvision import transforms
from torchvision.transforms import InterpolationMode, v2

from tests.conftest import refused
from tests.utils.conftest import MEAN, STD, bytes_of, images, match, moved
from utils.augmentations import apply_transform, soft_aug
from utils.kornia_utils import to_kornia_transform

IN_PIL = 1.5 / 255                                          # what rounding to 8 bits and back can change


def through_pil(*steps):
    return [transforms.ToPILImage(), *steps, transforms.ToTensor()]


def one_by_one(pipeline, x):
    return torch.stack([transforms.Compose(pipeline)(image) for image in x])


@pytest.fixture
def no_single_images(monkeypatch):
    """Nothing may go through PIL or through torchvision's random transforms."""
    def forbidden(*_, **__):
        raise AssertionError('one image at a time')
    for kind in (transforms.RandomCrop, transforms.RandomHorizontalFlip, transforms.ColorJitter,
                 transforms.RandomResizedCrop,
                 transforms.RandomGrayscale, transforms.RandomApply, transforms.RandomVerticalFlip):
        monkeypatch.setattr(kind, 'forward', forbidden)
    monkeypatch.setattr(transforms.ToPILImage, '__call__', forbidden)


FIXED = [                                                   # not random, or with one possible outcome
    through_pil(),
    [*through_pil(), transforms.Normalize(MEAN, STD)],
    through_pil(transforms.Resize((8, 20))),
    through_pil(transforms.Resize(24), transforms.CenterCrop(10)),
    through_pil(transforms.Grayscale(3)),
    through_pil(transforms.RandomCrop(24, padding=4)),
    through_pil(transforms.RandomCrop((20, 18), padding=(1, 2))),
    through_pil(transforms.RandomCrop((22, 20), padding=[1, 2, 3, 4])),
    through_pil(transforms.RandomHorizontalFlip(1.0), transforms.RandomVerticalFlip(1.0)),
    through_pil(transforms.RandomHorizontalFlip(0.0), transforms.RandomVerticalFlip(0.0)),
    through_pil(transforms.RandomGrayscale(1.0)),
    through_pil(transforms.RandomResizedCrop((8, 12), scale=(1, 1), ratio=(1, 1))),
    through_pil(transforms.ColorJitter(brightness=(1.3, 1.3))),
    through_pil(transforms.ColorJitter(contrast=(1.7, 1.7))),
    through_pil(transforms.ColorJitter(saturation=(0.3, 0.3))),
    through_pil(transforms.RandomApply([transforms.RandomHorizontalFlip(1.0),
                                        transforms.ColorJitter((0.5, 0.5))], p=1.0)),
    through_pil(transforms.RandomApply([transforms.RandomHorizontalFlip(1.0)], p=0.0)),
]


@pytest.mark.parametrize('steps', FIXED,
                         ids=lambda steps: '-'.join(type(step).__name__ for step in steps[1:]))
def test_pipelines_with_one_outcome_give_what_they_give_image_by_image(steps, request):
    x = images()
    expected = one_by_one(steps, x)
    request.getfixturevalue('no_single_images')
    for pipeline in (transforms.Compose(steps), steps,
                     transforms.Compose([steps[0], transforms.Compose(steps[1:])])):
        torch.testing.assert_close(to_kornia_transform(pipeline)(x), expected, atol=4 * IN_PIL, rtol=0)
    at_once = to_kornia_transform(transforms.Compose(steps))
    torch.testing.assert_close(at_once(bytes_of(x)), at_once(x))
    torch.testing.assert_close(at_once(x[0]), at_once(x[:1])[0])
    torch.testing.assert_close(apply_transform(x, at_once), at_once(x))


def test_hue_turns_as_torchvision_turns_it_on_tensors():
    step = transforms.ColorJitter(hue=(0.2, 0.2))
    torch.testing.assert_close(to_kornia_transform(step)(images()), one_by_one([step], images()), atol=1e-5,
                               rtol=0)


@pytest.mark.parametrize('lib', [transforms, v2])
def test_crops_and_flips_are_each_images_own(lib, no_single_images):
    ends = [lib.ToTensor()] if lib is transforms else [lib.ToImage(), lib.ToDtype(torch.float32, scale=True)]
    pipeline = lib.Compose([lib.ToPILImage(), lib.RandomCrop(16, padding=2), lib.RandomHorizontalFlip(),
                            *ends])
    x = images(80)
    found = [match(moved(image, 2), result) for image, result in zip(x, to_kornia_transform(pipeline)(x))]
    assert len(set(found)) > 25 and 20 < sum(i >= 25 for i in found) < 60


def test_probabilities_and_ranges_are_those_of_the_steps(no_single_images):
    x = torch.full((2000, 3, 2, 2), 0.5)
    x[:, :, 0] = 0.25
    share = lambda step: (to_kornia_transform(step)(x) != x).flatten(1).any(1).float().mean().item()
    assert share(transforms.RandomVerticalFlip(0.3)) == pytest.approx(0.3, abs=0.04)
    assert share(transforms.RandomApply([transforms.ColorJitter((0.5, 0.5))],
                                        0.8)) == pytest.approx(0.8, abs=0.04)
    factors = to_kornia_transform(transforms.ColorJitter(brightness=0.4))(x)[:, 0, 1, 0] / 0.5
    assert 0.6 <= factors.min() < 0.61 and 1.39 < factors.max() <= 1.4001
    assert factors.mean() == pytest.approx(1, abs=0.03)
    x[:, 0] = 0.9
    assert share(transforms.RandomGrayscale(0.2)) == pytest.approx(0.2, abs=0.04)


def test_a_resized_crop_of_a_ramp_has_the_area_asked_for(no_single_images):
    """On a ramp 0..1 from left to right, the range of a view's values is the width of its box."""
    x = (torch.arange(64) / 63).view(1, 1, 1, 64).expand(300, 3, 64, 64)
    out = to_kornia_transform(transforms.RandomResizedCrop(64, scale=(0.25, 0.25), ratio=(1.0, 1.0)))(x)
    widths = (out.amax(dim=(1, 2, 3)) - out.amin(dim=(1, 2, 3))) * 63 + 1
    torch.testing.assert_close(widths, torch.full((300,), 32.0), atol=0.1, rtol=0)
    assert out.amin(dim=(1, 2, 3)).min() < 0.05 and out.amax() > 0.95


class Shifted(transforms.RandomHorizontalFlip):
    """A step of one's own, derived from one of torchvision's."""

    def forward(self, image):
        return image.transpose(0)                           # PIL's left-right mirror


ODD = [
    [transforms.ToPILImage(), transforms.Lambda(lambda image: image.rotate(90)), transforms.ToTensor()],
    # made for PIL images: gets them
    [transforms.Lambda(lambda image: image.rotate(90)), transforms.ToTensor()],
    [transforms.Resize(20, InterpolationMode.NEAREST)],
    [transforms.ToPILImage(), Shifted(1.0), transforms.ToTensor()],
    [transforms.RandomCrop(24, padding=4, padding_mode='reflect')],
    [transforms.RandomCrop(24, padding=4, fill=1)],
    [transforms.RandomApply([transforms.Lambda(lambda image: 1 - image)], p=1.0)],
    [transforms.CenterCrop(8), transforms.GaussianBlur(3, (1, 1))],
]


@pytest.mark.parametrize('steps', ODD, ids=range(len(ODD)))
def test_what_has_no_equivalent_is_applied_image_by_image(steps):
    x = images()
    first = [] if not any(isinstance(s, transforms.ToTensor)
                          for s in steps) or isinstance(steps[0], transforms.ToPILImage) \
        else [transforms.ToPILImage()]
    expected = one_by_one([*first, *steps], x)
    result = to_kornia_transform(transforms.Compose(steps))
    torch.testing.assert_close(result(x), expected)
    torch.testing.assert_close(result(bytes_of(x)), expected)
    assert torch.equal(apply_transform(x, result), result(x)) and torch.equal(result(x[0]), result(x)[0])


def test_a_callable_of_one_image_steps_of_ours_and_nothing():
    x, ours, results = images(), soft_aug(MEAN, STD), []
    assert torch.equal(to_kornia_transform(lambda image: image.flip(0))(x), x.flip(1))
    for transform in (ours, to_kornia_transform([transforms.ToTensor(), ours])):
        torch.manual_seed(0)
        results.append(transform(x))
    assert torch.equal(*results) and to_kornia_transform([lambda image: image, ours])(x).shape == x.shape
    assert to_kornia_transform(None) is None
    assert to_kornia_transform(ours) is ours          # takes batches as it is


def test_grey_images_pass_through_a_colour_pipeline(no_single_images):
    pipeline = transforms.Compose(through_pil(transforms.RandomCrop(16, 2),
                                              transforms.ColorJitter(0.4, 0.4, 0.4, 0.1),
                                              transforms.RandomGrayscale(0.5)))
    assert to_kornia_transform(pipeline)(images(channels=1)).shape == (6, 1, 16, 16)


def test_a_crop_larger_than_the_image_is_refused_in_one_line():
    with refused('RandomCrop to 32 x 32', '16 x 16 pixels', 'padded 20 x 20'):
        to_kornia_transform(transforms.RandomCrop(32, padding=2))(images())
