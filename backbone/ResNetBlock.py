"""Where files written for Mammoth import its ResNets from."""
from backbone.resnet_cifar import BasicBlock, ResNet, reduced_resnet18, resnet18, resnet32, resnet34  # noqa: F401
