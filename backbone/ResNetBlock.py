"""Where files written for Mammoth import its ResNets from."""
from backbone.resnet_cifar import (  # noqa: F401
    BasicBlock,
    ResNet,
    conv3x3,
    reduced_resnet18,
    resnet18,
    resnet34,
)
