"""Changes of images, vectorised over the batch: each image is changed by numbers of its own.

Images are float (B, C, H, W) in [0, 1] with C = 3, or 1 where all channels are alike. Random functions draw
on the CPU, from `generator` or else from torch's global one.
"""
import math

import torch

LUMA = (0.299, 0.587, 0.114)                # ITU-R BT.601, as Pillow has it


def per_image(values: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """(B,) -> (B, 1, 1, 1), of the images' kind."""
    return values.to(images.device, images.dtype).view(-1, 1, 1, 1)


def per_channel(values, images: torch.Tensor) -> torch.Tensor:
    """(C,) -> (C, 1, 1), of the images' kind."""
    return torch.as_tensor(values, dtype=images.dtype, device=images.device).view(-1, 1, 1)


def sides(padding) -> tuple:
    """torchvision's ways to say a padding: one number, (left and right, top and bottom), or all four."""
    padding = [0] if padding is None else [padding] if isinstance(padding, int) else list(padding)
    return tuple(padding * (4 // len(padding)))             # left, top, right, bottom


def sometimes(step, images: torch.Tensor, prob: float, generator=None) -> torch.Tensor:
    """Each image changed by `step` (batch -> batch of the same shape) with
    probability `prob`, else as it was."""
    chosen = (torch.rand(len(images), generator=generator) < prob).to(images.device)
    return torch.where(chosen.view(-1, 1, 1, 1), step(images), images)


def grey(images: torch.Tensor) -> torch.Tensor:
    """Brightness of each pixel, (B, 1, H, W)."""
    return images if images.shape[1] == 1 else (images * per_channel(LUMA, images)).sum(1, keepdim=True)


def adjust_brightness(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Blend with black: factor 0 gives black, 1 the image."""
    return (images * per_image(factors, images)).clamp(0, 1)


def adjust_contrast(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Blend with the image's mean brightness: factor 0 gives a flat grey, 1 the image."""
    mean = grey(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean.expand_as(images), images, per_image(factors, images)).clamp(0, 1)


def adjust_saturation(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Blend with the grey image: factor 0 gives that, 1 the image."""
    return torch.lerp(grey(images).expand_as(images), images, per_image(factors, images)).clamp(0, 1)


def adjust_hue(images: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    """Turn the hue by these shares of the colour circle; value and saturation (HSV) stay."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)                                                 # (B, H, W) each
    value = images.amax(1)
    chroma = value - images.amin(1)
    scale = 1 / chroma.clamp(min=1e-12)                                       # greys have no hue: any will do
    hue = torch.where(value == red, (green - blue) * scale,                          # in sixths of the circle
                      torch.where(value == green, (blue - red) * scale + 2, (red - green) * scale + 4))
    hue = hue + 6 * per_image(shifts, images)[:, 0]
    turned = ((n + hue) % 6 for n in (5, 3, 1))                                         # red, green, blue
    return torch.stack([value - chroma * torch.minimum(k, 4 - k).clamp(0, 1) for k in turned], 1)


def crop(images: torch.Tensor, top: torch.Tensor, left: torch.Tensor, height: int,
         width: int) -> torch.Tensor:
    """(B, C, height, width) from each image at its own corner (`top`, `left`), int (B,)."""
    rows = top.to(images.device)[:, None] + torch.arange(height, device=images.device)          # (B, height)
    columns = left.to(images.device)[:, None] + torch.arange(width, device=images.device)       # (B, width)
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _resampling(start: torch.Tensor, length: torch.Tensor, size_in: int, size_out: int,
                like: torch.Tensor) -> torch.Tensor:
    """(B, size_out, size_in): weights that resize [start, start + length) of each
    image, linear, widened when shrinking."""
    start, length = (v.to(like.device, like.dtype).view(-1, 1, 1) for v in (start, length))
    ratio = length / size_out
    centre = start + (torch.arange(size_out, device=like.device, dtype=like.dtype).view(1, -1, 1)
                      + 0.5) * ratio
    pixel = torch.arange(size_in, device=like.device, dtype=like.dtype).view(1, 1, -1) + 0.5
    within = (pixel > start) & (pixel < start + length)
    weights = (1 - (pixel - centre).abs() / ratio.clamp(min=1)).clamp(min=0) * within
    return weights / weights.sum(2, keepdim=True)


def resized_crop(images: torch.Tensor, top, left, height, width, size) -> torch.Tensor:
    """(B, C, *size): the box of each image, int (B,) each, resampled (bilinear, antialiased)."""
    rows = _resampling(top, height, images.shape[2], size[0], images)                   # (B, size[0], H)
    columns = _resampling(left, width, images.shape[3], size[1], images)                # (B, size[1], W)
    return rows[:, None] @ images @ columns[:, None].transpose(2, 3)


def random_boxes(count: int, height: int, width: int, scale, ratio, generator=None) -> tuple:
    """Boxes (top, left, height, width), int64 (count,) each, of random area and shape (Szegedy et al. 2015).

    Args:
        scale: least and largest share of the area. ratio: least and largest width / height, log-uniform. A
            box that does not fit is drawn again, up to ten times; then it is the largest central one.
    """
    area = height * width * torch.empty(10, count).uniform_(*scale, generator=generator)
    shape = torch.empty(10, count).uniform_(math.log(ratio[0]), math.log(ratio[1]), generator=generator).exp()
    widths, heights = (area * shape).sqrt().round().long(), (area / shape).sqrt().round().long()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first, some = fits.int().argmax(0, keepdim=True), fits.any(0)
    central = round(min(height, width / ratio[0])), round(min(width, height * ratio[1]))
    box_height = torch.where(some, heights.gather(0, first)[0], central[0])
    box_width = torch.where(some, widths.gather(0, first)[0], central[1])
    # (2, count), of the slack there is
    share = torch.where(some, torch.rand(2, count, generator=generator), 0.5)
    top = (share[0] * (height - box_height + 1)).long()
    left = (share[1] * (width - box_width + 1)).long()
    return top, left, box_height, box_width


def random_resized_crop(images: torch.Tensor, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3),
                        generator=None) -> torch.Tensor:
    """A random box of each image, resampled to `size` (height, width)."""
    boxes = random_boxes(len(images), *images.shape[2:], scale, ratio, generator)
    return resized_crop(images, *boxes, size)


def random_jitter(images: torch.Tensor, brightness=None, contrast=None, saturation=None, hue=None,
                  generator=None) -> torch.Tensor:
    """Colours of each image changed by factors (hue: shifts) uniform in the
    ranges given, (least, largest) each.

    The order of the four changes is drawn once for the batch.
    """
    steps = [(adjust_brightness, brightness), (adjust_contrast, contrast), (adjust_saturation, saturation),
             (adjust_hue, hue)]
    for i in torch.randperm(4, generator=generator).tolist():
        adjust, limits = steps[i]
        if limits is not None:
            images = adjust(images, torch.empty(len(images)).uniform_(*limits, generator=generator))
    return images
