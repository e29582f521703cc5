"""ResNet18 and ResNet50 of torchvision, at their random start: 7x7 stem of stride 2, max-pool.

`--weights ResNet50_Weights.IMAGENET1K_V2` and the like are theirs, for 224 px. The state dict is
torchvision's, with `classifier` for `fc`. He et al. 2016, "Deep residual learning".
"""
import torch
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


@register_backbone('resnet18-tv')
def resnet18_tv(num_classes: int) -> TorchvisionResNet:
    return TorchvisionResNet(models.resnet18(num_classes=num_classes))


@register_backbone('resnet50-tv')
def resnet50_tv(num_classes: int) -> TorchvisionResNet:
    return TorchvisionResNet(models.resnet50(num_classes=num_classes))
