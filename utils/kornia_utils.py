"""torchvision transforms of one image -> one callable for whole batches. The name is
Mammoth's; kornia is not needed."""
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from scroll.errors import InputError
from utils.augmentations import BatchCompose, apply_transform, random_flip, random_grayscale
from utils.image_ops import crop, random_jitter, random_resized_crop, sides, sometimes


def to_kornia_transform(transform):
    """One callable of a batch, of floats (B, C, H, W) in [0, 1] or uint8 (B, H, W,
    C), for a pipeline made for one image.

    If every step has an equivalent here (`EQUIVALENTS`), the whole batch is changed at once, each image by
    random numbers of its own, on the device where it lies. Conversions from and to PIL are left out, and with
    them their rounding to 8 bits. Otherwise the pipeline is applied image by image on the CPU, as it stands;
    to PIL images, if it is made for those.

    Args:
        transform: of torchvision (`transforms` or `transforms.v2`), a list of such, a callable of one image,
            or None.

    Returns:
        A callable that `apply_transform` hands whole batches; None, or what already
        takes batches, comes back as it is.
    """
    if transform is None or getattr(transform, 'batched', False):
        return transform
    steps = _flatten(transform)
    batched = [_equivalent(step) for step in steps]
    if None in batched:
        return BatchCompose([partial(apply_transform, transform=_OneImage(steps))])
    return BatchCompose([step for step in batched if step is not _as_it_is])


class KorniaMultiAug(nn.Module):
    """The same random change of several batches: images and what belongs to them pixel
    by pixel, or two versions of a batch.

    Args:
        transforms: a torchvision pipeline, or a list of transforms, as `to_kornia_transform` takes them. A
            batch (B, C, H, W) of the same B, H and W draws the same numbers; steps that look at colours must
            suit the channels of each.
    """

    def __init__(self, transforms):
        super().__init__()
        self.transform = to_kornia_transform(transforms)

    def forward(self, *batches: torch.Tensor):
        """One changed batch for one, a tuple for several. Torch's generator goes on as after one batch."""
        state, changed = torch.get_rng_state(), []
        for batch in batches:
            torch.set_rng_state(state)
            changed.append(apply_transform(batch, self.transform))
        return changed[0] if len(changed) == 1 else tuple(changed)


def _kind(step) -> str:
    """Name of a torchvision transform; '' for other things, classes derived from
    one of torchvision's among them."""
    return type(step).__name__ if type(step).__module__.startswith('torchvision.transforms') else ''


def _flatten(transform) -> list:
    """The steps of nested compositions."""
    if _kind(transform) == 'Compose':
        transform = transform.transforms
    if isinstance(transform, (list, tuple, nn.Sequential)):
        return [step for part in transform for step in _flatten(part)]
    return [transform]


def _equivalent(step):
    """A callable (B, C, H, W) -> (B, C', H', W') that does to each image what `step`
    does; None if there is none here."""
    if getattr(step, 'batched', False):
        return step
    return EQUIVALENTS.get(_kind(step), lambda step: None)(step)


class _OneImage:
    """The steps on one image (C, H, W), which becomes a PIL image if the first
    conversion among them starts from one."""

    def __init__(self, steps):
        conversions = [_kind(step) for step in steps
                       if _kind(step) in ('ToPILImage', 'ToTensor', 'PILToTensor')]
        self.steps = steps
        if conversions and conversions[0] != 'ToPILImage':
            from torchvision.transforms import ToPILImage
            self.steps = [ToPILImage(), *steps]

    def __call__(self, image):
        for step in self.steps:
            image = apply_transform(image[None], step)[0] if getattr(step, 'batched', False) else step(image)
        return image


def _as_it_is(images: torch.Tensor) -> torch.Tensor:
    return images


def _crop_of(images: torch.Tensor, size, padding) -> torch.Tensor:
    """torchvision's RandomCrop; `padding`: left, right, top, bottom, with zeros."""
    given, images = images.shape, F.pad(images, padding)
    slack = images.shape[2] - size[0], images.shape[3] - size[1]
    if min(slack) < 0:
        raise InputError(f'RandomCrop to {size[0]} x {size[1]}: the images have {given[2]} x {given[3]} '
                         'pixels, padded '
                        f'{images.shape[2]} x {images.shape[3]}')
    top, left = (torch.randint(0, most + 1, (len(images),)) for most in slack)
    return crop(images, top, left, *size)


def _random_crop(step):
    if step.pad_if_needed or step.padding_mode != 'constant' or step.fill != 0:
        return None
    left, top, right, bottom = sides(step.padding)
    return partial(_crop_of, size=tuple(step.size), padding=(left, right, top, bottom))


def _bilinear(step) -> bool:
    """Whether the step resamples as torchvision does both for PIL images and for tensors, up to rounding."""
    return getattr(step.interpolation, 'value',
                   step.interpolation) == 'bilinear' and step.antialias is not False


def _resized_crop(step):
    if not _bilinear(step):
        return None
    return partial(random_resized_crop, size=tuple(step.size), scale=tuple(step.scale),
                   ratio=tuple(step.ratio))


def _flip_columns(step):
    return random_flip if step.p == 0.5 else partial(sometimes, lambda images: images.flip(-1), prob=step.p)


def _apply(step):
    """RandomApply: the steps within for some of the images; they must keep the size."""
    within = [_equivalent(part) for part in _flatten(list(step.transforms))]
    return None if None in within else partial(sometimes, BatchCompose(within), prob=step.p)


def _itself(step):
    """Not random: torchvision's own takes batches."""
    return step


EQUIVALENTS = {                                       # torchvision's name -> step -> batched callable or None
    'ToPILImage': lambda step: _as_it_is if step.mode is None else None,
    'ToTensor': lambda step: _as_it_is,
    'ToImage': lambda step: _as_it_is,
    'ToDtype': lambda step: _as_it_is if step.dtype == torch.float32 and step.scale else None,
    'Normalize': _itself,
    'CenterCrop': _itself,
    'Grayscale': _itself,
    'Resize': lambda step: step if _bilinear(step) else None,
    'RandomCrop': _random_crop,
    'RandomResizedCrop': _resized_crop,
    'RandomHorizontalFlip': _flip_columns,
    'RandomVerticalFlip': lambda step: partial(sometimes, lambda images: images.flip(-2), prob=step.p),
    'RandomGrayscale': lambda step: partial(random_grayscale, prob=step.p),
    'ColorJitter': lambda step: partial(random_jitter, brightness=step.brightness, contrast=step.contrast,
                                        saturation=step.saturation, hue=step.hue),
    'RandomApply': _apply,
}
