"""Perceptron of two hidden layers, the usual network for MNIST: 89,610 parameters at 28 px, ten classes."""
import torch
import torch.nn.functional as F
from torch import nn

from backbone import Mapless, num_flat_features, register_backbone, xavier
from scroll.errors import InputError


class BaseMNISTMLP(Mapless):
    """(B, ...) -> two hidden layers with ReLU -> linear head.

    Args:
        input_size: values of an image. output_size: classes. hidden_size: units of each hidden layer, hence
            features.
    """

    def __init__(self, input_size: int, output_size: int, hidden_size: int = 100):
        super().__init__()
        if input_size < 1 or hidden_size < 1:
            raise ValueError(f'input_size={input_size}, hidden_size={hidden_size}: must be positive')
        self.input_size, self.output_size = input_size, output_size
        self.num_classes, self.feature_dim = output_size, hidden_size
        self.fc1 = nn.Linear(input_size, hidden_size)
        self.fc2 = nn.Linear(hidden_size, hidden_size)
        self.classifier = nn.Linear(hidden_size, output_size)
        self.apply(xavier)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.fc2(F.relu(self.fc1(x.flatten(1)))))


@register_backbone('mnistmlp')
class MNISTMLP(BaseMNISTMLP):
    """Args:
        num_classes: outputs of the linear head.
        mlp_hidden_size: units of each hidden layer.
        mlp_input_size: values of an image, channels times height times width.
    """

    def __init__(self, num_classes: int, mlp_hidden_size: int = 100, mlp_input_size: int = 28 * 28):
        super().__init__(mlp_input_size, num_classes, mlp_hidden_size)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        if num_flat_features(x) != self.input_size:
            raise InputError(f'--backbone mnistmlp: an image has {num_flat_features(x)} values, '
                             f'{tuple(x.shape[1:])}, where {self.input_size} are expected: give '
                             f'--mlp_input_size {num_flat_features(x)}')
        return super().features(x)
