"""Learned augmentation policies (Cubuk et al. 2019) under the names that files written for
Mammoth use; torchvision has them."""
import torch
from torchvision.transforms import AutoAugment, AutoAugmentPolicy


class _Policy(AutoAugment):
    """Of a PIL image or a uint8 tensor (..., C, H, W); a float image in [0, 1] is rounded to 8 bits and back.

    Args:
        fillcolor: grey value, or one for each channel, of what comes from outside the image.
    """
    POLICY: AutoAugmentPolicy

    def __init__(self, fillcolor=(128, 128, 128)):
        super().__init__(self.POLICY, fill=fillcolor if isinstance(fillcolor, int) else list(fillcolor))

    def forward(self, image):
        if isinstance(image, torch.Tensor) and image.is_floating_point():
            return super().forward((image.clamp(0, 1) * 255).round().to(torch.uint8)).to(image.dtype) / 255
        return super().forward(image)


class CIFAR10Policy(_Policy):
    """The policy found on CIFAR-10."""
    POLICY = AutoAugmentPolicy.CIFAR10


class ImageNetPolicy(_Policy):
    """The policy found on ImageNet."""
    POLICY = AutoAugmentPolicy.IMAGENET


class SVHNPolicy(_Policy):
    """The policy found on SVHN."""
    POLICY = AutoAugmentPolicy.SVHN
