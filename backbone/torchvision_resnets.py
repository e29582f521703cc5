"""ResNet18 and ResNet50 of torchvision: 7x7 stem of stride 2, max-pool; with or without its ImageNet weights.

`resnet18-tv` and `resnet50-tv` start at random; `resnet18-7x7-pt` and `resnet50-pt`, as Mammoth calls them,
from torchvision's `IMAGENET1K_V1` weights, which it fetches once into `TORCH_HOME`. They are made for 224 px
and ImageNet's mean and standard deviation. The state dict is torchvision's, with `classifier` for `fc`.
He et al. 2016, "Deep residual learning".
"""
import torch
from torch import nn
from torchvision import models

from backbone import StagedBackbone, register_backbone


class TorchvisionResNet(StagedBackbone):
    """The layers of a torchvision ResNet, as a backbone.

    It has 11,176,512 (ResNet18) or 23,508,032 (ResNet50) parameters without head.

    Args:
        net: an instance of `torchvision.models.ResNet`; its layers are taken over, not copied.
    """

    def __init__(self, net: models.ResNet):
        super().__init__()
        for name, layer in net.named_children():
            if name not in ('avgpool', 'fc'):
                self.add_module(name, layer)
        self.classifier = net.fc
        self.num_classes, self.feature_dim = net.fc.out_features, net.fc.in_features

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return self.maxpool(self.relu(self.bn1(self.conv1(x))))


def _pretrained(build, weights: models.WeightsEnum, num_classes: int) -> TorchvisionResNet:
    """A network from `weights`, with a new head; ValueError where they cannot be had."""
    try:
        tensors = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(f'{weights} cannot be fetched from {weights.url} ({error}); put the file into '
                         f'{torch.hub.get_dir()}/checkpoints') from error
    net = build()
    net.load_state_dict(tensors)
    net.fc = nn.Linear(net.fc.in_features, num_classes)
    return TorchvisionResNet(net)


@register_backbone('resnet18-tv')
def resnet18_tv(num_classes: int) -> TorchvisionResNet:
    return TorchvisionResNet(models.resnet18(num_classes=num_classes))


@register_backbone('resnet50-tv')
def resnet50_tv(num_classes: int) -> TorchvisionResNet:
    return TorchvisionResNet(models.resnet50(num_classes=num_classes))


@register_backbone('resnet18-7x7-pt')
def resnet18_pt(num_classes: int) -> TorchvisionResNet:
    return _pretrained(models.resnet18, models.ResNet18_Weights.IMAGENET1K_V1, num_classes)


@register_backbone('resnet50-pt')
def resnet50_pt(num_classes: int) -> TorchvisionResNet:
    return _pretrained(models.resnet50, models.ResNet50_Weights.IMAGENET1K_V1, num_classes)
